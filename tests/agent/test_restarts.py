"""The decisions about restarts, as a pure function of numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_bench import WELL, failed

from trioeval.agent.restarts import (
    PERMANENT,
    AttemptEnd,
    AttemptFailure,
    GiveUp,
    RestartAfter,
    RestartPolicy,
    decide,
)
from trioeval.errors import UsageError
from trioeval.usage import Usage

ENDS = st.lists(
    st.sampled_from([WELL, failed(), failed("exit", "code 2"), failed("timeout", "code 1")]),
    max_size=12,
)


def test_ag_11_invalid_settings_are_all_reported_together() -> None:
    """Each has its name, range and value."""
    with pytest.raises(UsageError) as caught:
        RestartPolicy(
            max_attempts=-1,
            delay=-1,
            backoff=0.5,
            max_delay=math.inf,
            identical_failures=0,
            max_tokens=0,
            max_cost=math.nan,
        )
    assert str(caught.value).split("; ") == [
        "max_attempts must be a whole number of at least 0, got -1",
        "identical_failures must be a whole number of at least 1, got 0",
        "max_tokens must be a whole number of at least 1, got 0",
        "delay must be at least 0 and finite, got -1",
        "backoff must be at least 1 and finite, got 0.5",
        "max_delay must be at least 0 and finite, got inf",
        "max_cost must be more than 0 and finite, got nan",
    ]
    with pytest.raises(
        UsageError, match="max_attempts must be a whole number of at least 0, got True"
    ):
        RestartPolicy(max_attempts=True)


def test_ag_10_five_equal_failures_end_it_after_delays_of_1_2_4_8() -> None:
    """The fifth failure is the last one."""
    verdicts = [decide(RestartPolicy(), [failed()] * number) for number in range(6)]
    assert verdicts == [
        RestartAfter(0.0),
        RestartAfter(1.0),
        RestartAfter(2.0),
        RestartAfter(4.0),
        RestartAfter(8.0),
        GiveUp(
            "identical_failures",
            "gave up after 5 attempts: the last 5 failed in the same way: exit: code 1",
        ),
    ]


def test_an_agent_that_reaches_a_limit_may_have_progressed() -> None:
    """Equal messages of that kind do not prove the opposite."""
    bound = failed("timeout", "reached 50 steps (maxSteps)")
    assert isinstance(decide(RestartPolicy(), [bound] * 9), RestartAfter)
    assert isinstance(decide(RestartPolicy(), [failed(), bound, *[failed()] * 3]), RestartAfter)


@pytest.mark.parametrize("kind", sorted(PERMANENT))
def test_ag_09_a_permanent_failure_is_the_last(kind: str) -> None:
    """It is reported instead of any other reason."""
    end = failed(kind, "no such program: agent")  # type: ignore[arg-type]
    for policy in (RestartPolicy(), RestartPolicy(max_attempts=1, identical_failures=1)):
        message = f"gave up after 1 attempt: {kind}: no such program: agent"
        assert decide(policy, [end]) == GiveUp("permanent", message)


def test_ag_04_normally_ended_attempts_are_counted() -> None:
    """All attempts count together, however they ended."""
    policy = RestartPolicy(max_attempts=3)
    assert decide(policy, [WELL, failed()]) == RestartAfter(1.0)
    message = "gave up: not done after 3 attempts of 3"
    assert decide(policy, [WELL, failed(), WELL]) == GiveUp("max_attempts", message)
    expected = f"{message}; the last failed: timeout: 5 seconds are over"
    last = failed("timeout", "5 seconds are over")
    assert decide(policy, [WELL, failed(), last]) == GiveUp("max_attempts", expected)
    assert isinstance(decide(RestartPolicy(max_attempts=0), []), GiveUp)


def test_an_exhausted_budget_ends_it() -> None:
    """Tokens count as reported, in total or in parts; costs as far as they are known."""
    ends = [
        AttemptEnd(usage=Usage(total=60), cost=0.5),
        AttemptEnd(usage=Usage(prompt=30, completion=9)),
    ]
    assert decide(RestartPolicy(max_tokens=100, max_cost=0.75), ends) == RestartAfter(1.0)
    decision = decide(RestartPolicy(max_tokens=99), ends)
    assert decision == GiveUp("max_tokens", "gave up after 2 attempts: 99 of 99 tokens are used")
    decision = decide(RestartPolicy(max_cost=0.5), ends)
    assert decision == GiveUp(
        "max_cost", "gave up after 2 attempts: 0.5 of 0.5 US dollars are spent"
    )


@given(ENDS, st.sampled_from([0.0, 0.5, 1.0, 90.0]), st.sampled_from([1.0, 2.0, 1e200]))
def test_delays_grow_with_consecutive_failures_up_to_the_maximum(
    ends: list[AttemptEnd], delay: float, backoff: float
) -> None:
    """A normally ended attempt resets them; a longer delay of its own is kept."""
    policy = RestartPolicy(delay=delay, backoff=backoff, identical_failures=99)
    verdict = decide(policy, ends)
    assert isinstance(verdict, RestartAfter)
    failures = 0
    for end in ends:
        failures = failures + 1 if end.failure is not None else 0
    expected = delay
    for _ in range(failures - 1):
        expected = min(expected * backoff, max(delay, 60.0))
    assert verdict.delay == (expected if ends else 0.0)


@given(ENDS, st.integers(1, 4))
def test_failures_are_equal_if_kind_and_message_are(ends: list[AttemptEnd], number: int) -> None:
    """Consecutive ones at the end count, up to the configured number."""
    verdict = decide(RestartPolicy(identical_failures=number), ends)
    last = [end.failure for end in ends[-number:]]
    alike = len(last) == number and None not in last and len(set(last)) == 1
    alike = alike and last[0] is not None and last[0].kind != "timeout"
    assert isinstance(verdict, GiveUp) == alike


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("12:30:01.5 disk full", "12:30:02.75 disk full", True),
        ("process 40123 died", "process 40177 died", True),
        ("<Lock at 0x7f00aa>", "<Lock at 0x7f00bb>", True),
        ("2026-01-02T10:00:01Z refused", "2026-01-03T11:00:02+01:00 refused", True),
        ("no /tmp/tmpab1c/a", "no /tmp/tmpxd2e/a", True),
        ("pid=890 took 9s", "pid=91 took 1m10.5s", True),
        ("127.0.0.1:4111 refused", "127.0.0.1:40123 refused", True),
        ("no /tmp/tmpab1c/a", "no /tmp/tmpab1c/b", False),
        ("score 0.1", "score 0.2", False),
        ("coverage 71.5% < 80%", "coverage 72.5% < 80%", False),
        ("4000 tests fail", "3000 tests fail", False),
        ("a.py:12:30: no name", "a.py:13:30: no name", False),
        ("ended with exit code 1", "ended with exit code 2", False),
        ("3 tests fail", "2 tests fail", False),
    ],
)
def test_times_and_process_numbers_do_not_distinguish_failures(
    one: str,
    other: str,
    alike: bool,  # noqa: FBT001
) -> None:
    """They differ each time; the kind of end and the remaining work distinguish failures."""
    same = AttemptFailure("exit", one).signature == AttemptFailure("exit", other).signature
    assert same == alike
