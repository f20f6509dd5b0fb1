"""Judges at work: lanes, retries, costs, and the state of a row that is run again."""

import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import suite_of

import trioeval
from trioeval import Reply, Request, Row, Status
from trioeval.errors import PlanError, ProviderError
from trioeval.providers import Usage
from trioeval.providers.local.record import Recorder
from trioeval.report.row import row_json
from trioeval.run import RunOptions, make_lanes, run_with_options
from trioeval.run.prepare import prepare
from trioeval.testing import run_virtual

ASKS = {"type": "asks", "value": "kind", "provider": "judge"}
LIKE = {"type": "is-like", "value": "hello", "provider": "judge"}

Answer = Callable[[Request], Awaitable[Reply | str]]


async def hello(_request: Request) -> Reply:
    return Reply(output="hello", cost=1.0, usage=Usage(total=100))


async def yes(_request: Request) -> Reply:
    return Reply(output="yes", cost=0.25, usage=Usage(prompt=3, completion=4))


def rows_of(suite: trioeval.Suite, judge: Any = yes, mine: Any = hello) -> list[Row]:
    providers = {"mine": mine, "judge": judge}
    return run_virtual(lambda: trioeval.collect(suite, providers=providers))


def row_of(*assertions: Any, judge: Any = yes, mine: Any = hello, **more: Any) -> Row:
    (row,) = rows_of(suite_of(*assertions, **more), judge, mine)
    return row


def queue(*answers: Any) -> Answer:
    """A judge with these answers in order; exceptions are raised."""
    left = iter(answers)

    async def judge(_request: Request) -> Reply | str:
        await trio.sleep(1)
        answer: Reply | str | Exception = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return judge


def busy() -> ProviderError:
    return ProviderError("server", "503", status=503, body_excerpt="come back later")


def test_a_judge_gets_the_prompt_the_variables_and_the_place_of_the_row() -> None:
    """Its reply determines the verdict."""
    requests: list[Request] = []

    async def judge(request: Request) -> str:
        requests.append(request)
        return "no, it is not"

    row = row_of(ASKS, judge=judge)
    assert (row.status, row.error) == (Status.FAIL, "no, it is not")
    (request,) = requests
    assert request.prompt == "hello | kind"
    assert (request.vars, request.options) == ({"word": "hello"}, {})
    assert (request.test_idx, request.prompt_idx, request.repeat_index) == (0, 0, 0)


def test_a_judge_on_the_narrow_lane_of_its_own_provider_never_waits_for_itself() -> None:
    """A call from within a slot of the lane would wait for that slot forever."""
    tests = [
        {"vars": {"word": word}, "assert": [{**ASKS, "provider": "mine"}] * 2} for word in "abc"
    ]
    suite = suite_of(tests=tests, evaluateOptions={"maxConcurrency": 1})
    in_flight, most = 0, 0

    async def mine(request: Request) -> str:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await trio.sleep(1)
        in_flight -= 1
        return f"yes {request.prompt}"

    assert [row.status for row in rows_of(suite, mine=mine)] == [Status.PASS] * 3
    assert most == 1


@settings(max_examples=10)
@given(
    width=st.integers(1, 3),
    assertions=st.integers(1, 4),
    tests=st.integers(1, 4),
    same=st.booleans(),
    seconds=st.lists(st.floats(0, 5), min_size=1, max_size=5),
    random=st.random_module(),
)
def test_limits_of_lanes_apply_to_judges_shared_by_several_rows(
    *, width: int, assertions: int, tests: int, same: bool, seconds: list[float], random: Any
) -> None:
    """Calls in flight never exceed the width of a lane; every row gets its verdict."""
    judge_id = "mine" if same else "judge"
    test = {"vars": {"word": "w"}, "assert": [{**ASKS, "provider": judge_id}] * assertions}
    suite = suite_of(tests=[test] * tests, evaluateOptions={"maxConcurrency": width})
    in_flight: Counter[str] = Counter()
    most: Counter[str] = Counter()
    pauses = itertools.cycle(seconds)

    async def answer(name: str, _request: Request) -> str:
        in_flight[name] += 1
        most[name] = max(most[name], in_flight[name])
        await trio.sleep(next(pauses))
        in_flight[name] -= 1
        return "yes"

    rows = rows_of(suite, partial(answer, "judge"), partial(answer, "mine"))
    assert [row.status for row in rows] == [Status.PASS] * tests
    assert max(most.values()) <= width


def test_a_judge_is_called_again_by_its_lane() -> None:
    """It answers after two transient failures and a refusal; the provider is called once."""
    answers = queue(busy(), ProviderError("rate_limited", "slow down"), busy(), "yes")
    row = row_of(ASKS, judge=answers)
    assert (row.status, row.calls, row.spent.calls) == (Status.PASS, 5, 4)
    assert row_json(row, "e")["tokenUsage"]["assertions"]["numRequests"] == 4


@pytest.mark.parametrize("kind", ["asks", "not-asks"])
def test_a_failed_judge_is_an_error_and_not_a_verdict(kind: str) -> None:
    """This holds under `not-` too; the row keeps its reply, and names the judge and the failure."""
    row = row_of({**ASKS, "type": kind}, judge=queue(*(busy() for _ in range(9))))
    assert (row.status, row.output, row.verdict, row.failure) == (Status.ERROR, "hello", None, None)
    assert row.error == f"assert[0] ({kind}): the grader judge failed: server: 503"
    assert row.details == {
        "grader": "judge",
        "errorKind": "server",
        "bodyExcerpt": "come back later",
    }
    record = row_json(row, "e")
    assert record["metadata"]["trioeval"]["gradingError"] == row.details
    assert record["tokenUsage"]["assertions"]["numRequests"] == row.calls - 1 == 4


@pytest.mark.parametrize(
    ("reply", "record"),
    [
        (Reply(output=" \n"), "returned no text"),
        (Reply(output=None), "returned no text"),
        (
            Reply(output="", finish_reason="length"),
            "returned no text: it was cut off (finish reason length): raise max_tokens",
        ),
        (Reply(output="I am sorry", is_refusal=True), "refused to reply"),
        (Reply(output="ye", finish_reason="content_filter"), "refused to reply"),
    ],
)
def test_a_reply_without_an_output_is_an_error_and_its_cost_counts(
    reply: Reply, record: str
) -> None:
    """Its costs are counted."""
    row = row_of(ASKS, judge=queue(reply))
    assert (row.status, row.spent.calls) == (Status.ERROR, 1)
    assert row.error == f"assert[0] (asks): the grader judge {record}"
    assert row.details == {"grader": "judge", "graderReply": reply.output}


def test_a_reply_that_was_cut_off_is_reported_as_such() -> None:
    """The finish reason shows it; the remaining text would be misleading."""
    half = Reply(output='{"pass": tr', finish_reason="length")
    rubric = {"type": "llm-rubric", "value": "kind", "provider": "judge"}
    row = row_of(rubric, judge=queue(half, half))
    assert row.status is Status.ERROR
    assert "; it was cut off (finish reason length): raise max_tokens; it begins" in str(row.error)


def test_usage_of_judges_is_reported_by_assertion_and_by_row() -> None:
    """The cost of the row stays that of its provider."""
    row = row_of(ASKS, {"type": "contains", "value": "e"}, ASKS)
    record = row_json(row, "e")
    first, second, _ = record["gradingResult"]["componentResults"]
    assert (first["tokensUsed"]["total"], first["tokensUsed"]["numRequests"]) == (0, 1)
    assert (first["tokensUsed"]["prompt"], second["tokensUsed"]["prompt"]) == (3, 0)
    assert first["metadata"] == {"graders": ["judge"], "graderReplies": ["yes"]}
    assert record["gradingResult"]["tokensUsed"]["completion"] == 8
    assert record["tokenUsage"]["assertions"]["completion"] == 8
    assert record["tokenUsage"]["total"] == 100
    assert (record["cost"], record["metadata"]["trioeval"]["gradingCost"]) == (1.0, 0.5)


def test_usage_without_a_result_is_counted() -> None:
    """Costs are counted if another assertion fails with an error, or the row is interrupted."""
    failing = row_of(ASKS, {**LIKE, "provider": "judge"})
    assert (failing.status, failing.spent.calls) == (Status.ERROR, 2)

    async def slow_second(request: Request) -> Reply:
        if "slow" in request.prompt:
            await trio.sleep(100)
        return await yes(request)

    limit = {"timeoutMs": 5000}
    cut = row_of(ASKS, {**ASKS, "value": "slow"}, judge=slow_second, evaluateOptions=limit)
    assert (cut.status, cut.outcome) == (Status.ERROR, "timed_out")
    assert (cut.spent.cost, cut.spent.judges) == (0.25, ("judge",))
    assert [part.passed for part in cut.graded] == [True]


def test_an_assertion_without_weight_fails_alone() -> None:
    """The failure of its judge is reported with it."""
    answers = queue(*(busy() for _ in range(4)))
    row = row_of({**ASKS, "weight": 0}, {"type": "contains", "value": "e"}, judge=answers)
    assert row.status is Status.PASS
    assert row.verdict is not None
    assert row.verdict.parts[0].metadata["errorKind"] == "server"
    assert (row.verdict.parts[0].spent.calls, row.verdict.spent.calls) == (4, 4)


@settings(max_examples=10)
@given(random=st.random_module(), places=st.permutations([LIKE, ASKS, LIKE]))
def test_equal_texts_of_a_row_are_one_call_that_counts_for_the_first_assertion(
    random: Any, places: list[Any]
) -> None:
    """The result does not depend on the order of arrival. Output and value are equal here."""
    requests: list[str] = []

    async def judge(request: Request) -> Reply:
        requests.append(request.prompt)
        await trio.sleep(1)
        output: Any = "yes" if "|" in request.prompt else [1, 0]
        return Reply(output=output, usage=Usage(total=5))

    row = row_of(*places, judge=judge)
    assert requests.count("hello") == 1
    assert row.verdict is not None
    totals = [part.spent.usage.total for part in row.verdict.parts]
    assert totals == [
        5 if place == ASKS or number == places.index(LIKE) else None
        for number, place in enumerate(places)
    ]
    assert row.spent.usage.total == 10


def test_a_vector_that_failed_is_not_requested_by_others() -> None:
    """All assertions that need it fail with it, whether they wait for it or come later."""
    row = row_of(LIKE, LIKE, LIKE, LIKE, judge=queue(Reply(output="no vector")))
    assert row.error == (
        "assert[0] (is-like): the grader judge returned no vector, which is a list of numbers"
    )
    assert row.spent.calls == 1


def test_a_vector_that_failed_transiently_is_requested_in_the_next_round() -> None:
    """Existing results are kept."""
    answers = [Reply(output=[1]), *(busy() for _ in range(4)), Reply(output=[1])]
    other = {**LIKE, "value": "other"}
    options = {"evaluateOptions": {"salvageRounds": 1, "maxConcurrency": 1}}
    row = row_of(other, judge=queue(*answers), **options)
    assert (row.status, row.spent.calls) == (Status.PASS, 6)


def test_a_waiting_row_requests_a_vector_when_the_first_caller_is_interrupted() -> None:
    """Here another text of the same assertion fails."""

    async def judge(request: Request) -> Reply:
        if request.prompt == "fails":
            await trio.sleep(1)
            raise ProviderError("bad_request", "too long")
        await trio.sleep(5)
        return Reply(output=[1])

    row = row_of({**LIKE, "value": "fails", "weight": 0}, LIKE, judge=judge)
    assert row.status is Status.PASS
    assert row.verdict is not None
    assert row.verdict.parts[1].passed


@pytest.mark.parametrize(
    ("output", "passes"),
    [
        ({"hello": 0.7}, True),
        ([{"label": "hello", "score": 1}], True),
        ('{"classification": {"hello": 1}}', True),
        ([[{"label": "other", "score": 1}]], False),
        ({}, None),
        ("hello", None),
        ({"hello": "much"}, None),
        ([{"label": "hello"}], None),
        ([{"label": "hello", "score": float("nan")}], None),
    ],
)
def test_labels_may_have_several_forms(*, output: Any, passes: bool | None) -> None:
    """None of these forms is an error."""
    of_class = {"type": "is-of-class", "value": "hello", "provider": "judge"}
    row = row_of(of_class, judge=queue(Reply(output=output)))
    assert row.status is {True: Status.PASS, False: Status.FAIL, None: Status.ERROR}[passes]


@pytest.mark.parametrize(
    ("reply", "passes"),
    [
        (Reply(output={"flagged": False, "categories": {"hate": False}}), True),
        (Reply(output={"flags": []}), True),
        (Reply(output={"x": 1}, metadata={"flags": [{"code": "hate"}]}), False),
        (Reply(output='{"categories": {"hate": true}}'), False),
        (Reply(output={"flags": ["hate"]}), None),
        (Reply(output="fine"), None),
        (Reply(output={"categories": 5}), None),
    ],
)
def test_flags_may_have_several_forms(*, reply: Reply, passes: bool | None) -> None:
    """A reply without categories is an error."""
    harmless = {"type": "is-harmless", "value": "x", "provider": "judge"}
    row = row_of(harmless, judge=queue(reply))
    assert row.status is {True: Status.PASS, False: Status.FAIL, None: Status.ERROR}[passes]


def test_a_row_whose_judge_failed_transiently_is_judged_once_more_without_a_new_reply() -> None:
    """Neither its reply nor existing verdicts are paid for twice."""
    requests: Counter[str] = Counter()
    failures = iter([busy() for _ in range(4)])

    async def mine(request: Request) -> str:
        requests["mine"] += 1
        return request.prompt

    async def judge(request: Request) -> Reply:
        requests[request.prompt] += 1
        if "second" in request.prompt and (failure := next(failures, None)):
            raise failure
        return await yes(request)

    options = {"evaluateOptions": {"salvageRounds": 1}}
    row = row_of(ASKS, {**ASKS, "value": "second"}, judge=judge, mine=mine, **options)
    assert (row.status, row.spent.calls, row.spent.cost) == (Status.PASS, 6, 0.5)
    assert requests == {"mine": 1, "hello | kind": 1, "hello | second": 5}
    assert row.verdict is not None
    assert [part.spent.calls for part in row.verdict.parts] == [1, 5]


def test_a_judge_that_refuses_permanently_is_not_transient() -> None:
    """Another round would not help."""
    answers = queue(ProviderError("bad_request", "too long"))
    row = row_of(ASKS, judge=answers, evaluateOptions={"salvageRounds": 3})
    assert (row.status, row.calls) == (Status.ERROR, 2)


def test_a_budget_that_judges_exhaust_ends_the_run() -> None:
    """The row without a verdict is an error, and no further row starts."""
    tests = [{"vars": {"word": word}, "assert": [ASKS]} for word in "abc"]
    options = {"budget": {"requests": 3}, "maxConcurrency": 1}
    rows = rows_of(suite_of(tests=tests, evaluateOptions=options))
    assert [row.status for row in rows].count(Status.NOT_RUN) >= 2
    assert sum(row.calls for row in rows) <= 3
    assert any("budget" in (row.error or "") for row in rows)


def test_a_judge_that_a_shared_limit_refuses_is_an_error_of_the_row() -> None:
    """The row names the judge and the reason, as for any other judge that fails."""
    judge = {"id": "judge", "lane": {"limits": ["judges:tpm"]}}
    limit = {"key": "judges:tpm", "kind": "rolling", "capacity": 1, "windowSeconds": 60}
    row = row_of({**ASKS, "provider": judge}, limits={"define": [limit]})
    assert (row.status, row.output, row.verdict) == (Status.ERROR, "hello", None)
    assert row.error is not None
    assert "the grader judge failed: exceeds_capacity: " in row.error


def test_judges_are_recorded_and_replayed(tmp_path: Path) -> None:
    """A replay makes no calls."""
    suite = suite_of(ASKS, {**LIKE, "value": "other"})
    file = tmp_path / "r.jsonl"

    async def judge(request: Request) -> Reply:
        return Reply(output="yes" if "|" in request.prompt else [len(request.prompt)])

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        seen.append(row)

    seen: list[Row] = []
    with Recorder.create(file) as recorder:
        prepared = prepare(suite, providers={"mine": hello, "judge": judge})
        trio.run(run_with_options, prepared, RunOptions(emit=keep, recorder=recorder))
    assert [json.loads(line)["provider"] for line in file.read_text().splitlines()].count(
        "judge"
    ) == 2 + 1
    trio.run(partial(trioeval.run_suite, prepare(suite, replay=file), emit=keep))
    recorded, replayed = seen
    assert replayed.verdict == recorded.verdict


def test_a_replay_needs_no_key_of_the_built_in_judge(tmp_path: Path) -> None:
    """The recording names the judge."""
    recordings = [
        {"prompt": "hello", "output": "hello", "provider": "mine"},
        {"prompt": "hello | kind", "output": "yes", "provider": "google:gemini-2.5-pro"},
    ]
    file = tmp_path / "r.jsonl"
    file.write_text("\n".join(map(json.dumps, recordings)))
    suite = suite_of({"type": "asks", "value": "kind"})
    prepared = prepare(suite, replay=file, environ={})
    (row,) = trio.run(trioeval.collect, prepared)
    assert (row.status, row.spent.judges) == (Status.PASS, ("google:gemini-2.5-pro",))


def test_lanes_without_that_of_a_judge_are_refused() -> None:
    """They are refused before the first call."""
    suite = suite_of(ASKS)
    lanes = make_lanes(
        prepare(suite_of({"type": "equals", "value": "x"}), providers={"mine": hello})
    )
    with pytest.raises(PlanError, match=r"judges need the lanes \['judge'\]"):
        trio.run(
            partial(trioeval.collect, suite, lanes=lanes, providers={"mine": hello, "judge": yes})
        )
