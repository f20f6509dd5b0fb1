"""What a trace is looked at with: the words that the laws are written in."""

import itertools
import math
from collections.abc import Iterable, Sequence

from trioeval.errors import CallError
from trioeval.faults import Fault
from trioeval.kernel import LaneSpec
from trioeval.testing.trace import Span, Trace


def require(law: str, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise `AssertionError` with the law's name, unless it holds."""
    if not holds:
        msg = f"{law} is broken: {otherwise}"
        raise AssertionError(msg)


def on(spans: Iterable[Span], lane: LaneSpec) -> list[Span]:
    """Those on a lane."""
    return [span for span in spans if span.lane == lane.name]


def most_at_once(spans: Sequence[Span]) -> int:
    """The most that were open together."""
    steps = sorted(step for span in spans for step in ((span.started, 1), (span.last, -1)))
    return max(itertools.accumulate(change for _, change in steps), default=0)


def rate_bound(starts: Sequence[float], period: float, burst: int) -> float:
    """The first instant at which every window with the starts so far still keeps the rate."""
    place = len(starts)
    return max(
        (at + (place - first + 1 - burst) * period for first, at in enumerate(starts)), default=0.0
    )


def late_starts(
    calls: Iterable[Span], lane: LaneSpec, *, resting: bool = False
) -> list[tuple[Span, float]]:
    """Jobs of a lane whose first request started later than it could have, and when that was.

    Pace and slots decide, by what had started before. Looked at is what happened before the lane was first
    refused.

    Args:
        calls: The requests on the lane.
        lane: What they keep to.
        resting: Whether a job that is called again keeps its slot in between.
    """
    starts = sorted(calls, key=lambda span: span.started)
    refused = (span for span in starts if is_refusal(span) or asked_wait(span))
    refused_at = min((span.ended_at for span in refused), default=math.inf)
    over = {span.index: span.ended_at for span in starts}
    period = 60 / lane.rpm if lane.rpm is not None else 0.0
    late, begun = [], list[Span]()
    for place, span in enumerate(starts):
        waiting = next((other for other in starts[place:] if not other.attempt), None)
        if waiting is None:
            break
        ends = [one.ended_at for one in begun]
        if resting:
            ends = [over[one.index] for one in begun if not one.attempt]
        bounds = [0.0, rate_bound([one.started_at for one in begun], period, lane.burst)]
        bounds += [begun[-1].started_at + lane.min_gap] if begun else []
        bounds += [sorted(ends)[len(ends) - lane.width]] if len(ends) >= lane.width else []
        right = max(bounds)
        if right >= refused_at:
            break
        # A job that keeps its slot needs none to be called again.
        if span.started_at > right and not (resting and span.attempt):
            late.append((waiting, right))
        begun.append(span)
    return late


def asked_wait(span: Span) -> float:
    """Seconds that the provider asked its lane to wait with a refusal or another transient failure."""
    error = span.error
    if isinstance(error, CallError) and error.fault in (Fault.RATE_LIMITED, Fault.TRANSIENT):
        return error.retry_after or 0.0
    return 0.0


def is_refusal(span: Span) -> bool:
    """Whether the provider said that there were too many requests."""
    return isinstance(span.error, CallError) and span.error.fault is Fault.RATE_LIMITED


def working_time(trace: Trace, body: Span) -> float:
    """Seconds of a body in which it did anything else than wait for a lane or rest."""
    within = (body.started_at, body.ended_at)
    calls = [span for span in trace.calls if span.index == body.index]
    asked = [one for one in trace.asked if one.index == body.index]
    instants = {at for call in calls for at in (call.started_at, call.ended_at)}
    instants |= {at for one in asked for at in (one.asked_at, one.ended_at)}
    steps = sorted({*within, *(at for at in instants if within[0] <= at <= within[1])})
    idle = 0.0
    for begin, end in itertools.pairwise(steps):
        waiting = any(one.asked_at <= begin < one.ended_at for one in asked)
        busy = any(call.started_at <= begin < call.ended_at for call in calls)
        if waiting and not busy:
            idle += end - begin
    return body.ended_at - body.started_at - idle


def used_tokens(span: Span) -> int:
    """What a request used, as its lane was told; what it reserved, where it was told nothing."""
    if span.used is not None:
        return span.used
    turned_away = isinstance(span.error, CallError) and span.error.fault is not Fault.TRANSIENT
    return 0 if turned_away else span.tokens
