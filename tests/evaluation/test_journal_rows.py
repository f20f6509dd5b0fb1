"""Paid replies are recorded as soon as they arrive, and are not requested again."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio
from journalled import Model, Notes, execute, without_times

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


def test_every_attempt_is_recorded() -> None:
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


def test_without_costs_only_the_row_is_recorded() -> None:
    document = suite(test("a", rubric("x")), providers=["echo"])
    notes = Notes()
    execute(document, {"judge": judge()}, notes)
    assert [call.provider for call in notes.calls] == ["judge"]
    second_judge = judge()
    ran = execute(document, {"judge": second_judge}, notes.next(keeps=lambda _: False))
    assert ran.rows[0].status is Status.PASS
    assert second_judge.requests == 0


def test_a_run_that_is_cut_between_reply_and_verdict_repeats_no_call() -> None:
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
    assert [without_times(row) for row in ran.rows] == [without_times(row) for row in whole.rows]
    assert [row.calls for row in ran.rows] == [2, 2]


@pytest.mark.parametrize(("seen", "requests"), [("a", 0), ("c", 1)])
def test_a_reply_is_recalled_only_if_its_provider_sees_the_same_variables(
    seen: str, requests: int
) -> None:
    """This applies to equal prompts too."""

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
    """It is not recalled by another row that is at its position now, with the same prompt."""
    notes = Notes()
    named = test("a", rubric("x")) | {"description": "one"}
    execute(suite(named), {"model": Model(), "judge": judge(takes=10.0)}, notes, cut_at=5.0)
    model = Model()
    other = named | {"description": "other"}
    execute(suite(other), {"model": model, "judge": judge()}, notes.next())
    assert model.requests == 1
    assert len({call.key.row for call in notes.calls}) == 1


def test_judges_with_recorded_replies_are_not_called_again() -> None:
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
    assert [without_times(row) for row in ran.rows] == [without_times(row) for row in whole.rows]
    assert ran.rows[0].spent == whole.rows[0].spent


def test_only_the_failed_judge_is_called_again() -> None:
    """The row has a good reply and no verdict, and errors are retried."""
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


def test_replies_that_a_cancelled_row_did_not_use_are_recorded() -> None:
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


def test_a_deciding_failed_assertion_loses_no_reply() -> None:
    """A panel is cancelled when it has half of its replies."""
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


def test_a_row_is_recorded_at_its_end_and_reported_when_it_is_durable() -> None:
    """Each reply is durable three seconds after its arrival, and each row three seconds later."""
    notes = Notes(lasts=3.0)
    model = Model(slow={"a": 5.0})
    ran = execute(suite(test("a"), test("b")), {"model": model}, notes)
    assert notes.rows_at == {1: 4.0, 0: 8.0}
    assert [row.index for row in ran.rows] == [0, 1]
    assert ran.at[0] == 11.0
    assert notes.durable_at == len(notes.writes)


def test_a_reply_is_durable_before_it_is_used() -> None:
    """RESUME: a judge, and the next turn of a conversation, are called when the earlier reply is durable."""
    notes = Notes(lasts=3.0)
    called_at: dict[str, float] = {}

    async def model(request: Request) -> Reply:
        called_at[request.prompt] = trio.current_time()
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
    assert called_at == {prompt: number * turn for number, prompt in enumerate(order)}


def test_a_slot_is_free_while_a_reply_is_made_durable() -> None:
    """SLOT, LIMIT: the next row's call starts at once, and the wait is not working time."""
    notes = Notes(lasts=3.0)
    called_at: list[float] = []

    async def model(_request: Request) -> Reply:
        called_at.append(trio.current_time())
        await trio.sleep(1.0)
        return Reply(output="x")

    document = suite(
        *map(test, "abc"), lane={"maxConcurrency": 1}, evaluateOptions={"timeoutMs": 1500}
    )
    ran = execute(document, {"model": model}, notes)
    assert called_at == [0.0, 1.0, 2.0]
    assert [row.outcome for row in ran.rows] == ["done"] * 3


@pytest.mark.parametrize("lanes", [("one", "one"), ("one", "two")])
def test_a_reply_is_urgent_if_no_other_call_is_in_flight(lanes: tuple[str, str]) -> None:
    """On any lane: other calls may bring replies for the same commit."""
    notes = Notes()

    async def model(request: Request) -> Reply:
        await trio.sleep(float(request.prompt))
        return Reply(output="x")

    document = {
        "providers": [
            {"id": "model", "label": str(place), "prompts": [str(place)], "lane": {"key": key}}
            for place, key in enumerate(lanes, 1)
        ],
        "prompts": [{"raw": str(place), "label": str(place)} for place in (1, 2)],
    }
    execute(document, {"model": model}, notes)
    assert notes.urgent == [False, True]


def test_rows_that_never_ran_are_recorded_too() -> None:
    stop = trio.Event()
    stop.set()
    notes = Notes()
    ran = execute(suite(test("a"), test("b")), {"model": Model()}, notes, stop=stop)
    assert [row.outcome for row in notes.rows] == ["not_run"] * 2
    assert [row.index for row in ran.rows] == [0, 1]
    later = execute(suite(test("a"), test("b")), {"model": Model()}, notes.next())
    assert [row.status for row in later.rows] == [Status.NOT_GRADED] * 2


def test_kept_rows_are_counted_and_not_emitted() -> None:
    document = suite(test("a"), test("b", {"type": "equals", "value": "no"}), test("c"))
    notes = Notes()
    execute(document, {"model": Model()}, notes)
    model = Model()
    ran = execute(document, {"model": model}, notes.next(keeps=lambda row: row.index != 2))
    assert [row.index for row in ran.rows] == [2]
    assert ran.summary is not None
    assert (ran.summary.not_graded, ran.summary.failed, ran.summary.passed) == (2, 1, 0)
    assert model.requests == 0
    nothing = execute(document, {"model": model}, notes.next())
    assert nothing.rows == []
    assert nothing.summary is not None
    assert nothing.summary.rows == 3


def test_recalled_replies_use_no_budget_and_no_slot() -> None:
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
    assert (ran.summary.not_graded, ran.summary.duration, model.requests) == (9, 0.0, 0)


def test_a_transient_failure_of_a_judge_is_retried_once_in_a_run_with_a_journal() -> None:
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
    """A suite and its providers."""

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
def test_a_run_that_is_cut_anywhere_and_resumed_has_the_rows_of_an_uninterrupted_run(
    name: str,
) -> None:
    """For any prefix of the records: the rows are equal, and no recorded reply is requested again."""
    scenario = Scenario(SCENARIOS[name])
    whole = Notes()
    execute(scenario.document, scenario.models(), whole)
    expected = {row.index: without_times(row) for row in whole.rows}
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
        # Compared rows are kept together or not at all.
        found |= {row.index: without_times(row) for row in ran.rows}
        assert found == expected, cut
        assert replies_of(notes.writes) + replies_of(notes.before) == total, cut


def replies_of(writes: Sequence[Any]) -> int:
    return sum(isinstance(getattr(one, "answer", None), Reply) for one in writes)


def test_extensions_see_a_kept_row_like_one_that_ran() -> None:
    document = suite(test("a", {"type": "contains", "value": "a"}, metadata={"k": 1}))
    (row,) = execute(document, {"model": Model()}).rows
    shown, recorded = result_json(row), _result_of(row_json(row, "eval-1"))
    assert recorded.keys() == shown.keys()
    shown.pop("testCase")
    recorded.pop("testCase")
    assert recorded == shown
