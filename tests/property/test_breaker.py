"""The circuit breaker of a lane, on the arithmetic alone."""

import itertools
import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.rates import Breaker

pytestmark = pytest.mark.slow


@attrs.frozen
class Event:
    """A report of a lane to its breaker, some seconds after the previous one."""

    what: str
    after: float
    wait: float
    """Seconds of the requested wait, or of the back-off after a failure."""


kinds = st.sampled_from(
    ("success", "refused", "refused", "exhausted", "troubled", "troubled", "wait")
)
quarters = st.integers(0, 24).map(lambda n: n / 4)
gaps = quarters | st.sampled_from((60.0, 64.0, 400.0))
events = st.lists(st.builds(Event, kinds, gaps, quarters), max_size=30)
thresholds = st.integers(1, 4)
patiences = st.sampled_from((0.25, 4.0, 5.0, 61.0, 300.0, math.inf))
breakers = st.builds(Breaker, thresholds, patiences)


def report(breaker: Breaker, event: Event, now: float) -> None:
    match event.what:
        case "success":
            breaker.succeeded()
        case "refused":
            breaker.refused("why")
        case "exhausted":
            breaker.exhausted("why")
        case "troubled":
            breaker.troubled(now, event.wait, "why")
        case _:
            breaker.observe_wait(event.wait, "why")


@attrs.define
class Expected:
    """The rules in their simplest form: computed over everything since the last success."""

    breaker: Breaker
    refusals: int = 0
    troubles: list[tuple[float, float]] = attrs.field(factory=list)
    """Instants, and the back-off after each."""

    def opens(self, event: Event, now: float) -> bool:
        match event.what:
            case "success":
                self.refusals, self.troubles = 0, []
                return False
            case "refused":
                self.refusals += 1
                return self.refusals >= self.breaker.threshold
            case "troubled":
                self.troubles.append((now, event.wait))
                return self.trouble() >= self.breaker.patience
            case "exhausted":
                return True
            case _:
                return event.wait > self.breaker.patience

    def trouble(self) -> float:
        """Return the failure time from each failure to the next, less time without due attempts."""
        pairs = itertools.pairwise(self.troubles)
        return sum(min(after - at, rest + 60) for (at, rest), (after, _) in pairs)


@given(breakers, events)
def test_a_breaker_opens_by_its_three_rules_and_stays_open(
    breaker: Breaker, several: list[Event]
) -> None:
    """A breaker opens by one of its three rules and stays open."""
    expected, now, opened = Expected(breaker), 0.0, False
    for event in several:
        now += event.after
        opened = expected.opens(event, now) or opened
        report(breaker, event, now)
        assert (breaker.reason is not None) == opened


@given(breakers, events)
def test_the_first_reason_stays(breaker: Breaker, several: list[Event]) -> None:
    """The reason of a closed lane is the first one."""
    now, first = 0.0, None
    for event in several:
        now += event.after
        report(breaker, event, now)
        first = breaker.reason if first is None else first
        assert breaker.reason == first


@given(thresholds, patiences, events, events)
def test_a_reset_breaker_is_a_new_one(
    threshold: int, patience: float, before: list[Event], after: list[Event]
) -> None:
    """After a reset no earlier failure counts."""
    breaker, new, now = Breaker(threshold, patience), Breaker(threshold, patience), 0.0
    for event in before:
        now += event.after
        report(breaker, event, now)
    breaker.reset()
    assert breaker.untroubled
    assert breaker.reason is None
    for event in after:
        now += event.after
        report(breaker, event, now)
        report(new, event, now)
        assert breaker.untroubled == new.untroubled
        assert breaker.reason == new.reason


@given(st.integers(1, 8), st.integers(0, 60), st.integers(400, 100_000))
def test_idle_time_is_not_failure_time(failures: int, rest: int, idle: int) -> None:
    """Hours without attempts count at most as the back-off and a minute."""
    breaker = Breaker(patience=300.0)
    breaker.troubled(0.0, rest, "why")
    for nth in range(1, failures + 1):
        breaker.troubled(float(nth * idle), rest, "why")
        assert (breaker.reason is None) == (nth * (rest + 60) < 300)


def test_continuous_failures_open_at_the_patience() -> None:
    """With attempts as soon as possible, all the time counts as failure."""
    breaker = Breaker(patience=300.0)
    for now in (0.0, 60.0, 120.0, 180.0, 240.0, 299.75):
        breaker.troubled(now, 0.0, "why")
        assert breaker.reason is None
    breaker.troubled(300.0, 0.0, "why")
    assert breaker.reason == "no success in 300 s of trouble: why"


def test_the_time_of_a_named_wait_is_failure_time() -> None:
    """It counts in full."""
    breaker = Breaker(patience=300.0)
    breaker.troubled(0.0, 240.0, "why")
    breaker.troubled(299.0, 0.0, "why")
    assert breaker.reason is None
    breaker.troubled(300.0, 0.0, "why")
    assert breaker.reason is not None


def reason_of(what: str) -> str | None:
    breaker = Breaker(threshold=2, patience=8.0)
    match what:
        case "refusals":
            breaker.refused("no such key")
            breaker.refused("no such model")
        case "trouble":
            breaker.troubled(1.0, 2.0, "busy")
            breaker.troubled(9.5, 2.0, "unreachable")
        case "wait":
            breaker.observe_wait(8.0, "busy")
            breaker.observe_wait(8.5, "busy")
        case _:
            breaker.exhausted("no credit")
    return breaker.reason


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("refusals", "2 calls in a row were refused: no such model"),
        ("trouble", "no success in 8.5 s of trouble: unreachable"),
        ("wait", "asked to wait 8.5 s, longer than the patience of 8 s: busy"),
        ("quota", "no credit"),
    ],
)
def test_a_reason_is_a_complete_line(what: str, reason: str) -> None:
    """The reason has the count or duration, and the provider's last message."""
    assert reason_of(what) == reason
