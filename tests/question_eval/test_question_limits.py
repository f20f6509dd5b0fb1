"""Suites with shared limits: opened for a run, used by its lanes, reported in rows and events."""

from pathlib import Path
from typing import Any

import pytest
import trio
from asked_questions import RIGHT, Pupil, asked, quiz

from trioeval import Reply, Request, Row, own_provider, parse_suite, prepare, run_suite
from trioeval.errors import LimitError, SuiteError
from trioeval.evaluation.metering import CallMeter
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.model import SharedLimit
from trioeval.providers import Usage
from trioeval.providers.metering import Metering
from trioeval.question_eval import question_of
from trioeval.run import PreparedSuite, make_lanes
from trioeval.run.shared_limits import open_suite_limits, permits_of
from trioeval.testing import run_virtual


def limited(folder: Path, size: int, limit: dict[str, Any], **entry: Any) -> Any:
    """Return questions whose provider counts against one limit."""
    return quiz(
        folder,
        size,
        entry=entry,
        providers=[{"id": "pupil", "lane": {"limits": [limit["key"]]}}],
        limits={"define": [limit]},
    )


def test_a_run_opens_the_limits_of_its_suite(tmp_path: Path) -> None:
    """The second question waits for the window, without a slot, and reports it."""
    limit = {"key": "pupils:rpm", "kind": "rolling", "capacity": 1, "windowSeconds": 60}
    ran = asked(limited(tmp_path, 2, limit, workers=2), Pupil())
    assert ran.ended_at == 61
    assert ran.outcomes == ["correct", "correct"]
    assert ran.questions[1].wait_s == 60
    assert "waiting_rate_limit" in ran.names(1)
    assert ran.rows[1].waits == {"shared_limit": 60}


def test_a_late_start_contains_its_duration_and_limits(
    tmp_path: Path,
) -> None:
    """The third question is not started while the second waits for the limit; its whole wait is reported."""
    limit = {"key": "pupils:rpm", "kind": "rolling", "capacity": 1, "windowSeconds": 60}
    ran = asked(limited(tmp_path, 3, limit, workers=3), Pupil())
    assert ran.ended_at == 121
    third = [event for event in ran.events if event.index == 2]
    assert [event.name for event in third][:2] == ["queued", "scheduled"]
    assert third[1].details == {"waited_ms": 60_000, "reasons": ["turn"], "keys": ["pupils:rpm"]}
    (waited,) = [event for event in third if event.name == "waiting_rate_limit"]
    assert (waited.details["retry_after_ms"], ran.questions[2].wait_s) == (60_000, 120)


def test_qe_23_the_maximum_of_a_reply_is_the_budget_of_its_question(tmp_path: Path) -> None:
    """A reservation is the maximum prompt and 500 tokens: with one token less, the limit never allows it."""
    pupil = Pupil()
    asked(quiz(tmp_path, 1), pupil)
    prompt = len(pupil.requests[0].prompt.encode())
    for spare, outcome in ((0, "correct"), (-1, "runtime_error")):
        limit = {"key": "pupils:tokens", "kind": "budget", "capacity": prompt + 500 + spare}
        document = limited(tmp_path, 1, limit, budget={"maxTokens": 500})
        document["limits"]["maxOutputTokens"] = 100
        ran = asked(document, Pupil())
        assert ran.outcomes == [outcome]
    error = ran.questions[0].run_error
    assert error is not None
    assert error.message == (
        f"pupils:tokens: {prompt + 500:,} of pupils:tokens requested, the capacity is {prompt + 499:,}; "
        f"its prompt may have {prompt:,} tokens and its reply 500: "
        "reduce max_tokens, budget.maxTokens or maxOutputTokens"
    )


def test_the_unused_part_of_a_reservation_is_free_again(tmp_path: Path) -> None:
    """Each question reserves 2,048 tokens for its reply; all of them together use far less."""
    limit = {"key": "pupils:tokens", "kind": "budget", "capacity": 6000}
    ran = asked(limited(tmp_path, 20, limit, workers=20), Pupil())
    assert ran.outcomes == ["correct"] * 20


@pytest.mark.parametrize(
    ("usage", "used"), [(Usage(), 0), (Usage(prompt=9, completion=1, total=10), 60)]
)
def test_uncounted_usage_is_settled_as_it_is_reported(
    tmp_path: Path, usage: Usage, used: int
) -> None:
    """A quarter of the characters counts: the limit agrees with the rows, not with the reservations."""
    limit = {"key": "pupils:tokens", "kind": "budget", "capacity": 100_000}
    suite = prepare(
        parse_suite(limited(tmp_path, 6, limit), allow_outside=True),
        providers={"pupil": Pupil(says=lambda *_: Reply(output=RIGHT, usage=usage))},
    )
    rows: list[Row] = []

    async def emit(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    async def main() -> int:
        async with open_suite_limits(suite) as limits:
            assert limits is not None
            await run_suite(suite, emit=emit, lanes=make_lanes(suite, limits=limits))
            (state,) = await limits.states()
            return state.used

    counted = run_virtual(main)
    expected_total = sum(
        found.tokens_total or 0 for row in rows if (found := question_of(row)) is not None
    )
    assert counted == expected_total > 0
    assert not used or counted == used


def test_a_budget_keeps_uncounted_tokens(tmp_path: Path) -> None:
    """A budget must hold, so an estimate releases nothing: two calls of 1,024 tokens and more fit."""
    document = quiz(tmp_path, 4, evaluateOptions={"budget": {"tokens": 3000}})
    ran = asked(document, Pupil(says=lambda *_: Reply(output=RIGHT)), longest_reply=1024)
    assert ran.outcomes == ["correct", "correct", "cancelled", "cancelled"]


def test_an_exhausted_limit_ends_the_question(tmp_path: Path) -> None:
    """The error names the limit, and the task is an error."""
    limit = {"key": "pupils:requests", "kind": "budget", "capacity": 1}
    ran = asked(limited(tmp_path, 2, limit), Pupil())
    assert ran.outcomes == ["correct", "runtime_error"]
    error = ran.questions[1].run_error
    assert error is not None
    assert (error.kind, error.retryable) == ("budget_exhausted", False)


def test_limits_that_no_lane_uses_are_not_opened(tmp_path: Path) -> None:
    """They cost nothing, and the limit server need not exist."""
    document = quiz(tmp_path, 1, limits={"backend": "redis", "url": "redis://127.0.0.1:1"})
    assert asked(document, Pupil()).outcomes == ["correct"]


@pytest.mark.parametrize("is_text_or_texts", [True, False])
def test_unreachable_limits_are_reported_before_any_call(
    tmp_path: Path,
    is_text_or_texts: bool,  # noqa: FBT001
) -> None:
    """The run does not start, whether or not limits are to be created there."""
    limit = {"key": "pupils:rpm", "kind": "rolling", "capacity": 1, "windowSeconds": 60}
    document = limited(tmp_path, 1, limit)
    document["limits"] |= {
        "backend": "redis",
        "url": "redis://127.0.0.1:1",
        "patienceMs": 50,
        "requestTimeoutMs": 50,
    }
    if not is_text_or_texts:
        del document["limits"]["define"]
    pupil = Pupil()
    with pytest.raises(LimitError) as caught:
        asked(document, pupil, run=trio.run)
    assert caught.value.reason == "limiter_unavailable"
    assert not pupil.requests


def prepared(limits: list[Any]) -> PreparedSuite:
    suite = parse_suite(
        {
            "providers": [{"id": "pupil", "lane": {"limits": limits}}],
            "prompts": ["hi"],
            "limits": {
                "define": [
                    {"key": key, "kind": "budget", "capacity": 9} for key in ("a:rpm", "b:tokens")
                ]
            },
        }
    )

    async def pupil(_request: Request) -> str:
        return "hi"

    return prepare(suite, providers={"pupil": pupil})


def test_suites_that_share_lanes_share_their_limits() -> None:
    """Calls of a lane count against all limits of both suites."""
    one, other = prepared(["a:rpm"]), prepared(["a:rpm", "b:tokens"])
    keys: list[Any] = []

    class Seen:
        def permits(self, lane: str, uses: Any) -> Any:
            keys.append((lane, [(use.key, use.unit) for use in uses]))

        async def states(self) -> list[Any]:
            return []

    make_lanes(one, other, limits=Seen())
    assert keys == [("pupil", [("a:rpm", "requests"), ("b:tokens", "tokens")])]


def test_two_units_of_one_limit_on_a_lane_are_rejected() -> None:
    """It would be unclear which applies; a limit counts the same unit for both suites."""
    one, other = prepared(["a:rpm"]), prepared([{"key": "a:rpm", "unit": "tokens"}])
    expected_total = (
        "lane pupil counts requests of its calls in one place and tokens in another against a:rpm"
    )
    with pytest.raises(SuiteError, match=expected_total):
        permits_of(MemoryLimits(now=0.0), one, other)


def test_a_prompt_evaluation_counts_against_limits_as_well() -> None:
    """Lanes are the same for all tasks."""
    suite = prepared(["a:rpm"])

    async def main() -> list[Any]:
        async with open_suite_limits(suite) as limits:
            assert limits is not None
            lanes = make_lanes(suite, limits=limits)

            async def emit(_row: Any) -> None:
                pass

            await run_suite(suite, emit=emit, lanes=lanes)
            return [(state.limit.key, state.used) for state in await limits.states()]

    assert run_virtual(main) == [("a:rpm", 1), ("b:tokens", 0)]


def test_estimates_on_a_lane_with_a_limit_of_tokens_are_bounds() -> None:
    """They ignore learned values; on other lanes estimates are likely values."""
    known = Metering(longest_reply=1000)
    meter = CallMeter(
        [known, known], ["a", "b"], bounds_only=False, bounded_lanes=frozenset({"a"}), guess=2048
    )
    for place in (0, 1):
        estimate = meter.estimate(place, "12345678")
        meter.learn(place, estimate, Usage(prompt=2, completion=10))
        for _ in range(50):
            meter.learn(place, meter.estimate(place, "12345678"), Usage(prompt=2, completion=10))
    assert meter.estimate(0, "12345678").tokens == 8 + 2048
    assert meter.estimate(1, "12345678").tokens < 200


def test_the_reply_limit_of_a_provider_is_used() -> None:
    """It is better than an estimate."""
    cases: list[tuple[Metering, dict[str, int], int, int]] = [
        (Metering(longest_reply=300, is_bounded=True), {"guess": 2048}, 300, 300),
        (Metering(longest_reply=300, is_bounded=True), {"ceiling": 500}, 300, 300),
        (Metering(longest_reply=300, is_bounded=True), {"ceiling": 50}, 300, 50),
        (Metering(longest_reply=300), {}, 300, 300),
        (Metering(longest_reply=300), {"guess": 50}, 300, 50),
        (Metering(longest_reply=300), {"guess": 2048}, 2048, 2048),
        (Metering(longest_reply=300), {"ceiling": 50, "guess": 2048}, 2048, 50),
        (Metering(longest_reply=300), {"ceiling": 5000, "guess": 2048}, 5000, 5000),
    ]
    for known, given, budgeted, shared in cases:
        for bounds_only, bound in ((True, budgeted), (False, shared)):
            meter = CallMeter(
                [known],
                ["a"],
                bounds_only=bounds_only,
                ceiling=given.get("ceiling"),
                guess=given.get("guess"),
            )
            assert meter.estimate(0, "").reply_bound == bound


@pytest.mark.parametrize("max_tokens", [0, 10])
def test_the_budget_of_a_question_does_not_exceed_that_of_the_run(
    tmp_path: Path, max_tokens: int
) -> None:
    """It limits no reply: the maximum of each reply is reserved, so usage stays below the budget."""
    document = quiz(
        tmp_path,
        8,
        entry={"workers": 8, "budget": {"maxTokens": max_tokens}},
        evaluateOptions={"budget": {"tokens": 9000}},
    )
    usage = Usage(prompt=100, completion=3800, total=3900)
    pupil = Pupil(says=lambda *_: Reply(output=RIGHT, usage=usage))
    ran = asked(document, pupil, longest_reply=4000)
    assert sum(question.tokens_total or 0 for question in ran.questions) == 7800
    assert ran.outcomes.count("cancelled") == 6


def test_a_question_may_use_more_than_the_capacity_of_a_limit(tmp_path: Path) -> None:
    """Each of its steps is limited by its provider; an unlimited one causes a warning."""
    limit = {"key": "pupils:tpm", "kind": "rolling", "capacity": 20_000, "windowSeconds": 60}
    document = limited(tmp_path, 2, limit, budget={"maxTokens": 100_000})
    ran = asked(document, Pupil())
    assert ran.outcomes == ["runtime_error"] * 2
    suite = parse_suite(document, allow_outside=True)
    (warning,) = prepare(suite, providers={"pupil": Pupil()}).warnings
    assert warning.path == "$.providers[0]"
    assert warning.message == (
        "a reply of pupil may have up to 100,000 tokens, so a call needs 100,000 of "
        '"pupils:tpm", which never has more than 20,000: all of its calls will fail'
    )
    assert warning.hint is not None
    assert warning.hint.startswith("budget.maxTokens of the questions sets that number")
    assert asked(document, Pupil(), longest_reply=50).outcomes == ["correct"] * 2


@pytest.mark.parametrize(
    ("settings", "expected_total"),
    [
        ({"maxOutputTokens": 1000}, []),
        (
            {"maxOutputTokens": 1001},
            [("$.providers[1]", "maxOutputTokens of $.limits sets that number")],
        ),
        ({"backend": "redis", "url": "redis://127.0.0.1:1"}, None),
    ],
)
def test_replies_larger_than_a_limit_are_warned_of(
    settings: dict[str, Any], expected_total: list[tuple[str, str]] | None
) -> None:
    """The warning covers every task, tokens and money, and known limits only."""
    lane = {"limits": ["a:tpm", "b:cost_micro"]}
    paid = {"max_tokens": 2000, "apiKey": "sk-1234", "price": {"input": 0, "output": 4}}
    limits = [
        {"key": "a:tpm", "kind": "budget", "capacity": 1000},
        {"key": "b:cost_micro", "kind": "budget", "capacity": 7999},
    ]
    suite = parse_suite(
        {
            "providers": [
                {"id": "openai:gpt-4.1", "config": paid, "lane": lane},
                {"id": "pupil", "lane": lane},
            ],
            "prompts": ["hi"],
            "limits": {"define": limits, **settings},
        }
    )
    free = own_provider(Pupil(), max_cost=0)
    found = prepare(suite, providers={"pupil": free}, environ={}).warnings
    bounded = [("$.providers[0]", "allow shorter replies in its config, for example by max_tokens")]
    expected = [] if expected_total is None else [*bounded, *bounded, *expected_total]
    hints = [(one.path, str(one.hint).partition(",")[0]) for one in found]
    assert hints == [(path, hint.partition(",")[0]) for path, hint in expected]
    assert [key for one in found for key in ("a:tpm", "b:cost") if key in one.message] == [
        *["a:tpm", "b:cost", "a:tpm"][: len(expected)]
    ]


def test_tools_count_as_part_of_the_prompt() -> None:
    """Parts of a single call are not part of the overhead."""
    meter = CallMeter([Metering()], ["a"], bounds_only=True)
    assert meter.estimate(0, "", {"tools": ["x"]}).prompt_bound == len('{"tools": ["x"]}')


def test_failures_settle_their_permits(tmp_path: Path) -> None:
    """After a failure, timeout or answer, nothing is held when the next question starts."""
    limit = {
        "key": "pupils:concurrency",
        "kind": "concurrency",
        "capacity": 1,
        "timeoutSeconds": 600,
    }
    document = limited(tmp_path, 4, limit, workers=4)
    document["evaluateOptions"] = {"timeoutMs": 5000}

    def says(number: int, _step: int) -> Any:
        return ValueError("no") if number == 0 else Reply(output=RIGHT)

    pupil = Pupil(says=says, takes=lambda number: 60.0 if number == 1 else 1.0)
    ran = asked(document, pupil)
    assert ran.outcomes == ["runtime_error", "runtime_error", "correct", "correct"]
    assert pupil.began_at == [0, 1, 6, 7]


def test_definitions_of_limits_are_those_of_the_suite(tmp_path: Path) -> None:
    """They are used unchanged."""
    limit = {"key": "pupils:rpm", "kind": "rolling", "capacity": 3, "windowSeconds": 60}
    suite = parse_suite(limited(tmp_path, 1, limit), allow_outside=True)
    assert suite.limits is not None
    assert suite.limits.define == (
        SharedLimit(key="pupils:rpm", kind="rolling", capacity=3, window=60),
    )
