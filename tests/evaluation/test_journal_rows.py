"""Paid replies are recorded as soon as they arrive, and are not requested again."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio
from journalled import Model, Notes, execute, told

from trioeval import Reply, Request, Row, Status, parse_suite
from trioeval.errors import ProviderError
from trioeval.evaluation.hooks import _result_of, result_json
from trioeval.evaluation.row import RowIds
from trioeval.report.row import row_json
from trioeval.suite.expand import expand

GOOD = json.dumps({"pass": True, "score": 1, "reason": "r"})
BAD = json.dumps({"pass": False, "score": 0, "reason": "r"})


def rubric(value: str, judge: Any = "judge", **more: Any) -> dict[str, Any]:
    return {"type": "llm-rubric", "value": value, "provider": judge, **more}


def suite(
    *tests: Mapping[str, Any], lane: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "providers": [{"id": "model", "lane": {"maxConcurrency": 2, "retries": 1, **(lane or {})}}],
        "prompts": ["{{word}}"],
        "tests": list(tests),
        **more,
    }


def test(word: str, *assertions: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"vars": {"word": word}, "assert": list(assertions), **more}


test.__test__ = False  # type: ignore[attr-defined]


def judge(**how: Any) -> Model:
    return Model(says=lambda _: GOOD, **how)


def test_every_attempt_is_written_down() -> None:
    failures = [
        ProviderError("rate_limited", "slow down", retry_after=5),
        ProviderError("server", "503"),
    ]
    model = Model(fails=lambda _: failures.pop(0) if failures else None)
    notes = Notes()
    ran = execute(suite(test("a")), {"model": model}, notes)
    kinds = [
        one.answer.kind if isinstance(one.answer, ProviderError) else "reply" for one in notes.calls
    ]
    assert kinds == ["rate_limited", "server", "reply"]
    assert len({one.key for one in notes.calls}) == 1
    assert [one.latency_ms for one in notes.calls] == pytest.approx([1000.0] * 3)
    assert isinstance(notes.writes[-1], Row)
    assert ran.rows[0].calls == 3


def test_of_what_costs_nothing_only_the_row_is_kept() -> None:
    document = suite(test("a", rubric("x")), providers=["echo"])
    notes = Notes()
    execute(document, {"judge": judge()}, notes)
    assert [call.provider for call in notes.calls] == ["judge"]
    asked = judge()
    ran = execute(document, {"judge": asked}, notes.next(keeps=lambda _: False))
    assert ran.rows[0].status is Status.PASS
    assert asked.requests == 0


def test_a_run_that_is_cut_between_reply_and_judgement_asks_nobody_again() -> None:
    models = {"model": Model(), "judge": judge(takes=10.0)}
    document = suite(test("a", rubric("x")), test("b", rubric("x")))
    whole = execute(document, models, Notes())
    models = {"model": Model(), "judge": judge(takes=10.0)}
    notes = Notes()
    execute(document, models, notes, cut_at=5.0)
    assert [call.key.role for call in notes.calls] == ["provider", "provider"]
    again = {"model": Model(), "judge": judge(takes=10.0)}
    ran = execute(document, again, notes.next())
    assert (again["model"].requests, again["judge"].requests) == (0, 2)
    assert [told(row) for row in ran.rows] == [told(row) for row in whole.rows]
    assert [row.calls for row in ran.rows] == [2, 2]


@pytest.mark.parametrize(("seen", "requests"), [("a", 0), ("c", 1)])
def test_a_reply_is_recalled_only_where_its_provider_sees_the_same_variables(
    seen: str, requests: int
) -> None:
    """That holds also for equal prompts."""

    def document(word: str) -> dict[str, Any]:
        tests = [{"vars": {"word": word}, "description": "one", "assert": [rubric("x")]}]
        return {"providers": ["model"], "prompts": ["answer me"], "tests": tests}

    notes = Notes()
    execute(document("a"), {"model": Model(), "judge": judge(takes=10.0)}, notes, cut_at=5.0)
    (call,) = notes.calls
    # As if it were the same row: variables made by code, files or extensions are not part of its id.
    row = RowIds(expand(parse_suite(document(seen), environ={})))(0)
    before = [attrs.evolve(call, key=attrs.evolve(call.key, row=row))]
    model = Model()
    execute(document(seen), {"model": model, "judge": judge()}, Notes(before))
    assert model.requests == requests


def test_a_reply_is_recalled_by_its_own_row_only() -> None:
    """Even if another row is at its position now, with the same prompt."""
    notes = Notes()
    named = test("a", rubric("x")) | {"description": "one"}
    execute(suite(named), {"model": Model(), "judge": judge(takes=10.0)}, notes, cut_at=5.0)
    model = Model()
    other = named | {"description": "other"}
    execute(suite(other), {"model": model, "judge": judge()}, notes.next())
    assert model.requests == 1
    assert len({call.key.row for call in notes.calls}) == 1


def test_judges_that_have_answered_are_not_asked_again() -> None:
    document = suite(test("a", rubric("x", "quick"), rubric("x", "slow")))

    def models() -> dict[str, Model]:
        return {"model": Model(), "quick": judge(), "slow": judge(takes=9.0)}

    whole = execute(document, models(), Notes())
    notes = Notes()
    execute(document, models(), notes, cut_at=5.0)
    again = models()
    ran = execute(document, again, notes.next())
    assert {name: model.requests for name, model in again.items()} == {
        "model": 0,
        "quick": 0,
        "slow": 1,
    }
    assert [told(row) for row in ran.rows] == [told(row) for row in whole.rows]
    assert ran.rows[0].spent == whole.rows[0].spent


def test_only_the_judge_is_asked_again_that_was_broken() -> None:
    """A row with a good reply and no verdict, when errors are retried."""
    broken = judge(fails=lambda _: ProviderError("bad_request", "no"))
    notes = Notes()
    document = suite(test("a", rubric("x")))
    first = execute(document, {"model": Model(), "judge": broken}, notes)
    assert first.rows[0].status is Status.ERROR
    model, mended = Model(), judge()
    errors = notes.next(keeps=lambda row: row.verdict is not None)
    ran = execute(document, {"model": model, "judge": mended}, errors)
    assert ran.rows[0].status is Status.PASS
    assert (model.requests, mended.requests) == (0, 1)


def test_replies_that_a_row_did_not_live_to_use_are_written_down() -> None:
    document = suite(
        test("a", rubric("x", "quick"), rubric("x", "slow")), evaluateOptions={"timeoutMs": 5000}
    )
    notes = Notes()
    models = {"model": Model(), "quick": judge(), "slow": judge(takes=9.0)}
    ran = execute(document, models, notes)
    assert ran.rows[0].outcome == "timed_out"
    assert [(call.provider, call.key.role) for call in notes.calls] == [
        ("model", "provider"),
        ("quick", "grader"),
    ]
    again = {"model": Model(), "quick": judge(), "slow": judge()}
    retried = execute(document, again, notes.next(keeps=lambda _: False))
    assert retried.rows[0].status is Status.PASS
    assert {name: model.requests for name, model in again.items()} == {
        "model": 0,
        "quick": 0,
        "slow": 1,
    }


def test_a_failed_assertion_that_decides_loses_no_reply() -> None:
    """A panel is cut off when it has half of its answers."""
    notes = Notes()
    models = {"model": Model(), "panel": judge(), "bad": Model(takes=1.5, says=lambda _: BAD)}
    panel = rubric("x", {"id": "panel", "lane": {"maxConcurrency": 1}}, config={"repeat": 3})
    document = suite(
        test("a", panel, rubric("x", "bad")),
        env={"TRIOEVAL_SHORT_CIRCUIT_TEST_FAILURES": "true"},
    )
    ran = execute(document, models, notes)
    assert ran.rows[0].status is Status.FAIL
    assert ran.at[0] == 2.5
    assert [call.provider for call in notes.calls] == ["model", "panel", "bad"]


def test_a_row_is_written_down_when_it_is_over_and_told_when_it_is_safe() -> None:
    """Each reply is safe three seconds after it came, and each row three after that."""
    notes = Notes(lasts=3.0)
    model = Model(slow={"a": 5.0})
    ran = execute(suite(test("a"), test("b")), {"model": model}, notes)
    assert notes.rows_at == {1: 4.0, 0: 8.0}
    assert [row.index for row in ran.rows] == [0, 1]
    assert ran.at[0] == 11.0
    assert notes.durable_at == len(notes.writes)


def test_a_reply_is_safe_before_anything_is_made_of_it() -> None:
    """RESUME: a judge, and the next turn of a conversation, are asked when the reply before is safe."""
    notes = Notes(lasts=3.0)
    asked_at: dict[str, float] = {}

    async def model(request: Request) -> Reply:
        asked_at[request.prompt] = trio.current_time()
        await trio.sleep(1.0)
        return Reply(output='{"pass": true, "score": 1, "reason": "ok"}')

    document = {
        "providers": [{"id": "model", "lane": {"maxConcurrency": 1}}],
        "prompts": ["{{n}} of {{_conversation | length}}"],
        "tests": [{"vars": {"n": number}} for number in range(2)],
        "defaultTest": {
            "assert": [
                {
                    "type": "llm-rubric",
                    "value": "x",
                    "provider": "model",
                    "rubricPrompt": "judge {{n}}",
                }
            ]
        },
    }
    execute(document, {"model": model}, notes)
    turn = 3.0 + 1.0
    order = ("0 of 0", "judge 0", "1 of 1", "judge 1")
    assert asked_at == {prompt: number * turn for number, prompt in enumerate(order)}


def test_a_slot_is_free_while_a_reply_is_made_safe() -> None:
    """SLOT, LIMIT: the next row's call starts at once, and the wait is not working time."""
    notes = Notes(lasts=3.0)
    asked_at: list[float] = []

    async def model(_request: Request) -> Reply:
        asked_at.append(trio.current_time())
        await trio.sleep(1.0)
        return Reply(output="x")

    document = suite(
        *map(test, "abc"), lane={"maxConcurrency": 1}, evaluateOptions={"timeoutMs": 1500}
    )
    ran = execute(document, {"model": model}, notes)
    assert asked_at == [0.0, 1.0, 2.0]
    assert [row.outcome for row in ran.rows] == ["done"] * 3


def test_rows_that_never_ran_are_written_down_too() -> None:
    stop = trio.Event()
    stop.set()
    notes = Notes()
    ran = execute(suite(test("a"), test("b")), {"model": Model()}, notes, stop=stop)
    assert [row.outcome for row in notes.rows] == ["not_run"] * 2
    assert [row.index for row in ran.rows] == [0, 1]
    later = execute(suite(test("a"), test("b")), {"model": Model()}, notes.next())
    assert [row.status for row in later.rows] == [Status.PASS] * 2


def test_kept_rows_are_counted_and_not_emitted() -> None:
    document = suite(test("a"), test("b", {"type": "equals", "value": "no"}), test("c"))
    notes = Notes()
    execute(document, {"model": Model()}, notes)
    model = Model()
    ran = execute(document, {"model": model}, notes.next(keeps=lambda row: row.index != 2))
    assert [row.index for row in ran.rows] == [2]
    assert ran.summary is not None
    assert (ran.summary.passed, ran.summary.failed, ran.summary.errors) == (2, 1, 0)
    assert model.requests == 0
    nothing = execute(document, {"model": model}, notes.next())
    assert nothing.rows == []
    assert nothing.summary is not None
    assert nothing.summary.rows == 3


def test_what_is_recalled_uses_no_budget_and_no_slot() -> None:
    document = suite(
        *(test(f"w{number}") for number in range(9)),
        lane={"delay": 60_000},
        evaluateOptions={"budget": {"requests": 9}},
    )
    notes = Notes()
    execute(document, {"model": Model()}, notes)
    model = Model()
    document["evaluateOptions"] = {"budget": {"requests": 1}}
    ran = execute(document, {"model": model}, notes.next(keeps=lambda _: False))
    assert ran.summary is not None
    assert (ran.summary.passed, ran.summary.duration, model.requests) == (9, 0.0, 0)


def test_a_judge_that_fails_by_mishap_is_asked_once_more_in_a_run_with_a_journal() -> None:
    failures = [ProviderError("server", "503")] * 2
    broken = judge(fails=lambda _: failures.pop() if failures else None)
    notes, model = Notes(), Model()
    document = suite(test("a", rubric("x", {"id": "judge", "lane": {"retries": 0}})))
    document["evaluateOptions"] = {"salvageRounds": 2}
    ran = execute(document, {"model": model, "judge": broken}, notes)
    assert ran.rows[0].status is Status.PASS
    assert model.requests == 1
    assert len(notes.calls) == 4
    assert len(notes.rows) == 1


@attrs.define
class Scenario:
    """A suite, and who answers in it."""

    document: Mapping[str, Any]

    def models(self) -> dict[str, Model]:
        def fails(request: Request) -> Exception | None:
            return ProviderError("bad_request", "no") if "broken" in request.prompt else None

        return {
            "model": Model(slow={"b": 3.0, "e": 2.0}, fails=fails),
            "judge": Model(
                takes=0.5, says=lambda request: BAD if "c" in request.prompt[:1] else GOOD
            ),
        }


BEST = {"type": "select-best", "value": "x", "provider": "judge", "rubricPrompt": "{{outputs[0]}}"}

SCENARIOS = {
    "judged": suite(
        test("a", rubric("x"), rubric("y")),
        test("b", rubric("x")),
        test("broken", rubric("x")),
        test("c", rubric("x", config={"repeat": 3})),
    ),
    "conversation": {
        **suite(
            test("a", metadata={"conversationId": "1"}),
            test("b", rubric("x"), metadata={"conversationId": "1"}),
            test("c", metadata={"conversationId": "2"}),
            test("e", metadata={"conversationId": "1"}),
        ),
        "prompts": ["{% for turn in _conversation %}{{turn.output}};{% endfor %}{{word}}"],
    },
    "registers": suite(
        test("a", options={"storeOutputAs": "first"}),
        test("b {{first}}", rubric("x"), options={"storeOutputAs": "second"}),
        test("c {{first}} {{second}}"),
    ),
    "compared": {
        **suite(test("a", BEST), test("b", BEST, rubric("x"))),
        "prompts": ["{{word}} 1", "{{word}} 2"],
    },
}
SCENARIOS["compared"]["defaultTest"] = {"options": {"provider": "judge"}}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_that_is_cut_anywhere_goes_on_as_if_it_had_not_been(name: str) -> None:
    """After any prefix of what was written: equal rows, and nothing that was answered is asked."""
    scenario = Scenario(SCENARIOS[name])
    whole = Notes()
    execute(scenario.document, scenario.models(), whole)
    expected = {row.index: told(row) for row in whole.rows}
    total = replies_of(whole.writes)
    for cut in range(len(whole.writes) + 1):
        notes = Notes(whole.writes[:cut])
        models = scenario.models()
        ran = execute(scenario.document, models, notes)
        kept = notes.reused_rows(None)
        found = {
            index: {key: record[key] for key in expected[index]}
            for index, record in kept.records.items()
        }
        # Rows that are compared are kept together or not at all.
        found |= {row.index: told(row) for row in ran.rows}
        assert found == expected, cut
        assert replies_of(notes.writes) + replies_of(notes.before) == total, cut


def replies_of(writes: Sequence[Any]) -> int:
    return sum(isinstance(getattr(one, "answer", None), Reply) for one in writes)


def test_extensions_see_a_kept_row_as_they_see_one_that_ran() -> None:
    document = suite(test("a", {"type": "contains", "value": "a"}, metadata={"k": 1}))
    (row,) = execute(document, {"model": Model()}).rows
    shown, recorded = result_json(row), _result_of(row_json(row, "eval-1"))
    assert recorded.keys() == shown.keys()
    shown.pop("testCase")
    recorded.pop("testCase")
    assert recorded == shown
