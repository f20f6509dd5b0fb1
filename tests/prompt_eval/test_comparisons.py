"""Outputs of one test that are compared: only its rows wait for the comparison."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval import (
    Provider,
    ProviderError,
    Reply,
    Request,
    Row,
    Status,
    SuiteError,
    Usage,
    collect,
    parse_suite,
    run_suite,
)
from trioeval.run.prepare import prepare
from trioeval.testing import run_virtual

BEST: Mapping[str, Any] = {"type": "select-best", "value": "the longest", "provider": "judge"}


def document(**keys: Any) -> dict[str, Any]:
    return {
        "providers": [{"id": "model", "lane": {"maxConcurrency": 20}}],
        "prompts": ["a {{x}}", "bb {{x}}", "ccc {{x}}"],
        "tests": [{"vars": {"x": "1"}, "assert": [BEST]}],
        **keys,
    }


def chooser(place: int | str, seconds: float = 0.2) -> Provider:
    """A slow judge that always gives the same reply."""

    async def judge(_request: Request) -> Reply:
        await trio.sleep(seconds)
        return Reply(output=f"{place}", usage=Usage(total=7), cost=0.25)

    return judge


async def model(request: Request) -> Reply:
    """Returns the prompt, at once."""
    await trio.lowlevel.checkpoint()
    return Reply(output=request.prompt, cost=1.0)


def rows_of(suite: dict[str, Any], judge: Provider, answering: Provider = model) -> list[Row]:
    return run_virtual(
        lambda: collect(parse_suite(suite), providers={"model": answering, "judge": judge})
    )


def result_of(row: Row) -> tuple[str, float, str | None]:
    return row.status.value, row.score, row.error


def test_one_output_wins_and_every_other_row_fails() -> None:
    """The winner keeps its own verdict; a loser fails with score 0 although its own assertions passed."""
    tests = [{"vars": {"x": "1"}, "assert": [{"type": "contains", "value": "b"}, BEST]}]
    rows = rows_of(document(tests=tests), chooser("1"))
    assert [row.status for row in rows] == [Status.FAIL, Status.PASS, Status.FAIL]
    assert rows[0].error == 'the output does not contain "b"'  # it had failed before
    assert [row.score for row in rows] == [0, 1, 0]
    verdicts = [row.verdict for row in rows if row.verdict is not None]
    parts = [[(part.passed, part.score) for part in one.parts] for one in verdicts]
    assert parts == [[(False, 0), (False, 0)], [(True, 1), (True, 1)], [(False, 0), (False, 0)]]


@pytest.mark.parametrize("reply", ["3", "7", "none", "-1"])
def test_as_43_an_invalid_choice_of_the_judge_wins_nothing(reply: str) -> None:
    """No row loses because of it: all rows are errors."""
    rows = rows_of(document(), chooser(reply))
    assert [result_of(row)[:2] for row in rows] == [("error", 0)] * 3
    assert all("is unusable" in (row.error or "") for row in rows)


def test_the_usage_of_the_judge_is_counted_once() -> None:
    """The first row that was compared is charged."""
    rows = rows_of(document(), chooser("0"))
    assert [(row.spent.usage.total, row.spent.cost) for row in rows] == [
        (7, 0.25),
        (None, None),
        (None, None),
    ]


@pytest.mark.parametrize("groups", [1, 30])
def test_groups_are_compared_concurrently(groups: int) -> None:
    """Thirty groups with a judge of 200 ms at width 20 take two rounds."""
    suite = document(
        prompts=["a {{x}}", "b {{x}}"],
        tests=[{"vars": {"x": f"{n}"}, "assert": [BEST]} for n in range(groups)],
        lanes={"judge": {"maxConcurrency": 20}},
    )
    suite["tests"] = [
        {
            "vars": {"x": f"{n}"},
            "assert": [{**BEST, "provider": {"id": "judge", "lane": "judge"}}],
        }
        for n in range(groups)
    ]

    async def seconds() -> float:
        rows = await collect(parse_suite(suite), providers={"model": model, "judge": chooser("0")})
        assert sum(row.status is Status.PASS for row in rows) == groups
        return trio.current_time()

    ideal = 0.2 * -(-groups // 20)
    assert run_virtual(seconds) == pytest.approx(ideal, rel=0.01)


def test_a_judge_on_the_lane_of_the_model_gets_a_slot() -> None:
    """At width 1, a call from within another would wait forever."""
    one = {"key": "k", "maxConcurrency": 1}
    suite = document(
        providers=[{"id": "model", "lane": "only"}],
        lanes={"only": one},
        tests=[
            {"vars": {"x": "1"}, "assert": [{**BEST, "provider": {"id": "judge", "lane": "only"}}]}
        ],
    )
    assert [row.status for row in rows_of(suite, chooser("2"))] == [
        Status.FAIL,
        Status.FAIL,
        Status.PASS,
    ]


def failing(*prompts: str, kind: Any = "bad_request") -> Provider:
    async def ask(request: Request) -> Reply:
        if request.prompt in prompts:
            raise ProviderError(kind, "no")
        return await model(request)

    return ask


@pytest.mark.parametrize("failed", ["a 1", "bb 1", "ccc 1"])
def test_a_row_without_an_output_is_compared_as_empty(failed: str) -> None:
    """It stays an error; the other rows keep their column numbers for the judge."""
    prompts = ["a 1", "bb 1", "ccc 1"]
    best = max(place for place, prompt in enumerate(prompts) if prompt != failed)
    rows = rows_of(document(), chooser(best), failing(failed))
    expected = [Status.FAIL] * 3
    expected[best] = Status.PASS
    expected[prompts.index(failed)] = Status.ERROR
    assert [row.status for row in rows] == expected
    reasons = [row.verdict.parts[0].reason for row in rows if row.verdict is not None]
    assert reasons == [f"output {best} is the best by the criterion: the longest"] * 2


def test_a_row_without_an_output_cannot_win() -> None:
    """A judge that chooses it is called once more; then the rows are errors."""
    rows = rows_of(document(), chooser("1"), failing("bb 1"))
    assert [row.status for row in rows] == [Status.ERROR] * 3
    assert "the judge's reply is unusable: output 1 does not exist" in (rows[0].error or "")
    assert rows[0].spent.calls == 2


def test_the_highest_score_is_one_of_the_existing_scores() -> None:
    """A row with an error is skipped."""
    contains = {"type": "contains", "value": "b"}
    tests = [{"vars": {"x": "b"}, "assert": [contains, {"type": "max-score"}]}]
    rows = rows_of(document(tests=tests), chooser("0"), failing("a b"))
    assert [row.status for row in rows] == [Status.ERROR, Status.PASS, Status.FAIL]


def test_a_single_output_cannot_be_compared() -> None:
    """The remaining row is an error, and keeps its reply."""
    rows = rows_of(document(), chooser("0"), failing("a 1", "ccc 1"))
    assert [row.status for row in rows] == [Status.ERROR] * 3
    assert rows[1].error == (
        "assert[0] (select-best): 1 of 3 rows can be compared; the others have no verdict"
    )
    assert rows[1].output == "bb 1"


def test_rows_that_could_not_be_compared_keep_their_results() -> None:
    """They keep the reply, the cost and their other verdicts; the judge's costs are counted."""
    tests = [{"vars": {"x": "1"}, "assert": [{"type": "contains", "value": "b"}, BEST]}]
    rows = rows_of(document(tests=tests), chooser("none of them"))
    for row in rows:
        assert row.status is Status.ERROR
        assert row.error is not None
        assert row.error.startswith("assert[1] (select-best): the judge's reply is unusable")
        assert row.reply is not None
        assert [part.assertion and part.assertion.type for part in row.graded] == ["contains"]
    assert rows[0].spent.calls == 2  # one repeated call


def test_the_members_of_a_set_are_scored_instead_of_the_set() -> None:
    """The reason of a winner without other assertions is its win."""
    both = [{"type": "contains", "value": "a", "weight": 10}, {"type": "contains", "value": "b"}]
    tests = [
        {
            "vars": {"x": "1"},
            "threshold": 0,
            "assert": [
                {"type": "assert-set", "threshold": 0.05, "assert": both},
                {"type": "max-score"},
            ],
        }
    ]
    rows = rows_of(document(tests=tests, prompts=["b {{x}}", "a {{x}}"]), chooser("0"))
    assert [row.status for row in rows] == [Status.PASS, Status.FAIL]  # each has one half
    alone = rows_of(document(), chooser("0"))[0].verdict
    assert alone is not None
    assert alone.reason == "output 0 is the best by the criterion: the longest"


def test_concurrent_assertions_follow_the_suite() -> None:
    """Six judges take a second each."""
    asks = [{"type": "llm-rubric", "value": f"{n}", "provider": "judge"} for n in range(6)]

    async def judge(_request: Request) -> Reply:
        await trio.sleep(1)
        return Reply(output='{"pass": true, "score": 1, "reason": "so"}')

    async def seconds(width: int | None) -> float:
        suite = document(
            prompts=["a"],
            tests=[{"assert": asks}],
            evaluateOptions={"maxConcurrency": 20, "assertionsMaxConcurrency": width},
        )
        await collect(parse_suite(suite), providers={"model": model, "judge": judge})
        return trio.current_time()

    assert [run_virtual(seconds, width) for width in (None, 1, 6)] == [2, 6, 1]


def test_a_comparison_with_weight_0_fails_no_row() -> None:
    """It is stored, with its score."""
    tests = [{"vars": {"x": "1"}, "assert": [{**BEST, "weight": 0}]}]
    for judge in (chooser("0"), chooser("unknown")):
        rows = rows_of(document(tests=tests), judge)
        assert [row.status for row in rows] == [Status.PASS] * 3
    assert [row.verdict and row.verdict.parts[0].score for row in rows] == [0, 0, 0]


def test_a_group_waits_for_its_retried_row() -> None:
    """A reply of the second round is compared as well."""
    requests: list[str] = []

    async def unsteady(request: Request) -> Reply:
        requests.append(request.prompt)
        if requests.count("bb 1") == 1 and request.prompt == "bb 1":
            raise ProviderError("server", "try again")
        return await model(request)

    suite = document(
        providers=[{"id": "model", "lane": {"retries": 0}}], evaluateOptions={"salvageRounds": 1}
    )
    rows = rows_of(suite, chooser("1"), unsteady)
    assert requests.count("bb 1") == 2
    assert [row.status for row in rows] == [Status.FAIL, Status.PASS, Status.FAIL]


def test_a_judge_that_failed_transiently_is_called_again() -> None:
    """No other call is repeated."""
    requests: list[str] = []

    async def unsteady(request: Request) -> Reply:
        requests.append("judge")
        if len(requests) == 4:
            raise ProviderError("server", "try again")
        return Reply(output="0")

    async def noted(request: Request) -> Reply:
        requests.append(request.prompt)
        return await model(request)

    judge = {"id": "judge", "lane": {"retries": 0}}
    tests = [{"vars": {"x": "1"}, "assert": [{**BEST, "provider": judge}]}]
    suite = document(tests=tests, evaluateOptions={"salvageRounds": 1})
    rows = rows_of(suite, unsteady, noted)
    assert requests[3:] == ["judge", "judge"]
    assert [row.status for row in rows] == [Status.PASS, Status.FAIL, Status.FAIL]


def test_a_run_interrupted_during_a_comparison_keeps_every_reply() -> None:
    """Rows of the group are errors with the reason; rows before it are unchanged."""
    tests = [{"vars": {"x": "0"}}, {"vars": {"x": "1"}, "assert": [BEST]}]
    rows: list[Row] = []

    async def keep(row: Row) -> None:
        await trio.lowlevel.checkpoint()
        rows.append(row)

    async def main() -> None:
        with trio.move_on_after(1):
            await run_suite(
                parse_suite(document(tests=tests)),
                emit=keep,
                providers={"model": model, "judge": chooser("0", seconds=60)},
            )

    run_virtual(main)
    assert [row.index for row in rows] == list(range(6))
    assert [row.status for row in rows] == [Status.NOT_GRADED] * 3 + [Status.NOT_RUN] * 3
    assert all(row.reply is not None for row in rows)
    assert rows[3].error == "not compared with other rows: interrupted: the run was cancelled"


def test_a_limit_of_a_row_applies_to_its_comparison_too() -> None:
    """`timeoutMs` starts again, because it is another job."""
    rows = rows_of(document(evaluateOptions={"timeoutMs": 500}), chooser("0", seconds=5))
    assert {row.error for row in rows} == {
        "not compared with other rows: timed out after 0.5 s of working time (timeoutMs)"
    }


@pytest.mark.parametrize("options", [{}, {"maxConcurrency": 1}])
def test_steps_that_run_in_order_are_compared_too(options: Mapping[str, Any]) -> None:
    """A register makes every step wait for the one before; comparisons only wait for their groups."""
    tests = [
        {"vars": {"x": f"{n}"}, "assert": [BEST], "options": {"storeOutputAs": "last"}}
        for n in range(3)
    ]
    suite = document(prompts=["a {{x}}", "b {{last}}"], tests=tests, evaluateOptions=options)
    rows = rows_of(suite, chooser("1"))
    assert [row.status for row in rows] == [Status.FAIL, Status.PASS] * 3


DELAYS = st.lists(st.integers(0, 5), min_size=1, max_size=7)


@settings(max_examples=100)
@given(DELAYS, DELAYS, st.lists(st.booleans(), min_size=4, max_size=4), st.integers(1, 3))
def test_rows_do_not_depend_on_the_order_of_replies(
    models: list[int], judges: list[int], compared: list[bool], width: int
) -> None:
    """The order of rows, their verdicts and their costs do not depend on timing."""
    tests: list[dict[str, Any]] = [
        {
            "vars": {"x": f"{n}"},
            "assert": [BEST, {"type": "max-score"}, {"type": "regex", "value": n}],
        }
        if is_compared
        else {"vars": {"x": f"{n}"}}
        for n, is_compared in enumerate(compared)
    ]
    for test in tests:
        for one in test.get("assert", ()):
            one["value"] = f"{one['value']}" if one["type"] == "regex" else one.get("value")
    suite = document(tests=tests, evaluateOptions={"maxConcurrency": width})

    def run(slow: Callable[[int], float]) -> list[Any]:
        calls = iter(range(10_000))

        async def ask(request: Request) -> Reply:
            await trio.sleep(slow(models[next(calls) % len(models)]))
            return Reply(output=request.prompt)

        async def judge(request: Request) -> Reply:
            await trio.sleep(slow(judges[next(calls) % len(judges)]))
            return Reply(output=f"{len(json.dumps(request.prompt)) % 3}", usage=Usage(total=1))

        rows = rows_of(suite, judge, ask)
        return [(row.index, result_of(row), row.verdict, row.spent) for row in rows]

    assert run(float) == run(lambda _: 0.0)


def test_invalid_comparisons_are_reported_before_any_call() -> None:
    """Cases: one column, no scores, a comparison in a set, and a `not-`."""
    suite = parse_suite(
        document(
            prompts=["a"],
            tests=[{"assert": [BEST]}, {"assert": [{"type": "max-score"}]}],
        )
    )
    with pytest.raises(SuiteError) as caught:
        prepare(suite, providers={"model": model, "judge": model})
    assert [problem.path for problem in caught.value.problems] == [
        "$.tests[0].assert[0]",
        "$.tests[1].assert[0]",
        "$.tests[1].assert[0]",
    ]
    for wrong in (
        {"type": "not-select-best", "value": "x"},
        {"type": "assert-set", "assert": [BEST]},
        {"type": "max-score", "value": {"method": "middle"}},
        {"type": "max-score", "value": {"weights": {"contains": -1}}},
        {"type": "max-score", "value": {"treshold": 1}},
    ):
        with pytest.raises(SuiteError):
            parse_suite(document(tests=[{"assert": [wrong]}]))
