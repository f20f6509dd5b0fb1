"""How progress is put into words: numbers, times, and what a lane waits for. Pure."""

from collections.abc import Sequence

import attrs

from trioeval.kernel import Why
from trioeval.report import inert
from trioeval.report.lane_names import lane_names
from trioeval.report.run_state import LaneState, RunState
from trioeval.report.totals import percent
from trioeval.report.wait_words import WAIT_WORDS

_REASON = 60  # characters of why a lane is closed
_SOON = 0.95  # seconds of a wait whose end is not worth telling


def compact(number: float) -> str:
    """A number that is not negative, in at most four characters as long as it is below 10¹⁵.

    Example:
        >>> [compact(number) for number in (0, 7.5, 999, 1234, 99_950, 2_500_000)]
        ['0', '7.5', '999', '1.2k', '100k', '2.5M']
    """
    if round(number) < 1000:  # noqa: PLR2004 - a thousand
        return f"{number:.3g}"
    for unit in "kMGT":
        number /= 1000
        if round(number) < 1000 or unit == "T":  # noqa: PLR2004
            break
    return f"{number:.1f}{unit}" if number < 9.95 else f"{number:.0f}{unit}"  # noqa: PLR2004


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds, with hours where there are any.

    Example:
        >>> clock(75.6), clock(3600)
        ('1:15', '1:00:00')
    """
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def pass_rate(state: RunState) -> str | None:
    """How many of the rows that are counted passed, as `98.0 %`; None of none."""
    counted = state.passed + state.failed + state.errors
    return f"{percent(state.passed, counted)} %" if counted else None


def in_flight(lane: LaneState) -> str:
    """Calls in flight, and how many there may be: as `4/8`, or `2/3 of 8` while they may be fewer."""
    of = "" if lane.limit == lane.width else f" of {lane.width}"
    return f"{lane.in_flight}/{lane.limit}{of}"


def rate(used: int, allowed: float | None) -> str:
    """What was used in the last minute, and what is allowed in one."""
    return compact(used) if allowed is None else f"{compact(used)}/{compact(allowed)}"


def left(lane: LaneState) -> str:
    """How long the rest of its rows takes, as `1:15`; empty if it has none, or nobody knows."""
    return clock(lane.eta_s) if lane.eta_s is not None and lane.done < lane.rows else ""


def wait_words(lane: LaneState) -> str:
    """What a lane waits for and for how long, or why it is closed; empty if it does not wait. It is inert."""
    if lane.mood == "closed":
        return f"closed: {inert(lane.reason, _REASON)}"
    if lane.mood == "paused":
        return "paused"
    if lane.why is None or lane.why is Why.TURN:
        return "probing" if lane.mood == "probing" else ""
    word = WAIT_WORDS[lane.why]
    told = f"probing, {word}" if lane.mood == "probing" else word
    is_long = lane.wait_s is not None and lane.wait_s > _SOON
    return f"{told}, {lane.wait_s:.0f} s" if is_long else told


def by_business(lane: LaneState) -> tuple[int, int, int]:
    """What sorts lanes, the least busy first."""
    return lane.in_flight, lane.queued, lane.calls


def named(lanes: Sequence[LaneState]) -> Sequence[LaneState]:
    """The lanes with the names that people call them by."""
    names = lane_names(lane.name for lane in lanes)
    return [attrs.evolve(lane, name=names[lane.name]) for lane in lanes]
