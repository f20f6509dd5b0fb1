"""When a lane is given up, on the arithmetic alone."""

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.rates import Breaker

pytestmark = pytest.mark.slow


@attrs.frozen
class Event:
    """Something that a lane tells its breaker, some seconds after the last."""

    what: str
    after: float
    wait: float


kinds = st.sampled_from(
    ("success", "refused", "refused", "exhausted", "troubled", "troubled", "wait")
)
quarters = st.integers(0, 24).map(lambda n: n / 4)
events = st.lists(st.builds(Event, kinds, quarters, quarters), max_size=30)
breakers = st.builds(Breaker, st.integers(1, 4), st.sampled_from((0.25, 4.0, 5.0, 300.0, math.inf)))


def tell(breaker: Breaker, event: Event, now: float) -> None:
    match event.what:
        case "success":
            breaker.succeeded()
        case "refused":
            breaker.refused("why")
        case "exhausted":
            breaker.exhausted("why")
        case "troubled":
            breaker.troubled(now, "why")
        case _:
            breaker.asked_to_wait(event.wait, "why")


@attrs.define
class Expected:
    """The rules said once more, in the plainest way: over everything since the last success."""

    breaker: Breaker
    refusals: int = 0
    troubles: list[float] = attrs.field(factory=list)

    def opens(self, event: Event, now: float) -> bool:
        match event.what:
            case "success":
                self.refusals, self.troubles = 0, []
                return False
            case "refused":
                self.refusals += 1
                return self.refusals >= self.breaker.threshold
            case "troubled":
                self.troubles.append(now)
                return len(self.troubles) > 1 and now - self.troubles[0] >= self.breaker.patience
            case "exhausted":
                return True
            case _:
                return event.wait > self.breaker.patience


@given(breakers, events)
def test_a_breaker_opens_by_its_three_rules_and_stays_open(
    breaker: Breaker, several: list[Event]
) -> None:
    """Refusals in a row, a used-up account, or trouble beyond the patience; nothing closes it again."""
    expected, now, opened = Expected(breaker), 0.0, False
    for event in several:
        now += event.after
        opened = expected.opens(event, now) or opened
        tell(breaker, event, now)
        assert (breaker.reason is not None) == opened


@given(breakers, events)
def test_the_first_reason_stays(breaker: Breaker, several: list[Event]) -> None:
    """Whoever asks why a lane is closed hears what closed it."""
    now, first = 0.0, None
    for event in several:
        now += event.after
        tell(breaker, event, now)
        first = breaker.reason if first is None else first
        assert breaker.reason == first


@given(breakers, events)
def test_a_reset_breaker_is_a_new_one(breaker: Breaker, several: list[Event]) -> None:
    """Nothing that spoke against the provider before counts after it."""
    for event in several:
        tell(breaker, event, event.after)
    breaker.reset()
    assert breaker.reason is None
    assert breaker.untroubled
    for _ in range(breaker.threshold - 1):
        breaker.refused("why")
        assert not breaker.untroubled
    breaker.troubled(1e9, "why")
    assert breaker.reason is None


def reason_of(what: str) -> str | None:
    breaker = Breaker(threshold=2, patience=8.0)
    match what:
        case "refusals":
            breaker.refused("no such key")
            breaker.refused("no such model")
        case "trouble":
            breaker.troubled(1.0, "busy")
            breaker.troubled(9.5, "unreachable")
        case "wait":
            breaker.asked_to_wait(8.0, "busy")
            breaker.asked_to_wait(8.5, "busy")
        case _:
            breaker.exhausted("no credit")
    return breaker.reason


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("refusals", "2 calls in a row were refused: no such model"),
        ("trouble", "no success for 8.5 s: unreachable"),
        ("wait", "asked to wait 8.5 s, longer than the patience of 8 s: busy"),
        ("quota", "no credit"),
    ],
)
def test_a_reason_is_a_whole_line(what: str, reason: str) -> None:
    """It says how often or how long, and what the provider said last."""
    assert reason_of(what) == reason
