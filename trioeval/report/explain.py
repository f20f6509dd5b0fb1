"""The history of one job: its waits and requests, from the events of its run."""

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import attrs

from trioeval.kernel import (
    Admitted,
    Blocked,
    CallEnded,
    CallStarted,
    Done,
    Event,
    Failed,
    Finished,
    Interrupted,
    Noted,
    NotRun,
    Outcome,
    Reserving,
    Salvaged,
    Shortage,
    Started,
    Throttled,
    TimedOut,
    Waiting,
    WaitReason,
)
from trioeval.text import counted

_Moment: TypeAlias = tuple[float, str]


@attrs.frozen
class JobHistory:
    """The events of one job, in order."""

    index: int
    moments: Sequence[_Moment]
    """Instants on the Trio clock, each with a description."""

    def __str__(self) -> str:
        lines = [f"{at:>10.3f}  {text}" for at, text in self.moments]
        return "\n".join((f"job {self.index}", *lines))


def explain(events: Iterable[Event], index: int) -> JobHistory:
    """Return the history of a job.

    Args:
        events: All events of one run, as its observer got them.
        index: The job.

    Returns:
        The history; without moments if no event is about the job.

    Example:
        >>> print(explain([Admitted(0.0, 7, "a"), CallStarted(0.0, 7, "a")], 7))
        job 7
             0.000  is started on lane a
             0.000  a request on lane a starts
    """
    moments: list[_Moment] = []
    # The waits before admission of each lane: the admission determines which job they belong to.
    ahead: dict[str | None, list[_Moment]] = {}
    for event in events:
        match event:
            case Waiting(at, lane, why, until, index=None):
                ahead.setdefault(lane, []).append((at, _waits(lane, why, until)))
            case Admitted(at, found, lane):
                waited = ahead.pop(lane, [])
                if found == index:
                    moments += [*waited, (at, f"is started on {_named(lane)}")]
            case _ if (text := _say(event, index)) is not None:
                moments.append((event.at, text))
            case _:
                pass
    return JobHistory(index, tuple(moments))


def _say(event: Event, index: int) -> str | None:
    """Describe an event of a job that is started or will never be; None if the event has no description."""
    match event:
        case Waiting(_, lane, why, until, found, shortage) if found == index:
            return _waits(lane, why, until) + _lacks(shortage)
        case Reserving(_, found, lane) if found == index:
            return f"requests a permit of lane {lane}"
        case Noted(_, found, note) if found == index:
            return f"note: {note}"
        case CallStarted(_, found, lane) if found == index:
            return f"a request on lane {lane} starts"
        case CallEnded(_, found, lane, error) if found == index:
            return f"the request on lane {lane} " + ("ends" if error is None else f"fails: {error}")
        case Throttled(_, found, lane, retry_after, blocked_until) if found == index:
            return _refused(lane, retry_after, blocked_until)
        case Salvaged(_, indices) if index in indices:
            return "runs in a final retry round"
        case Finished(_, outcome) if outcome.index == index:
            return _ending(outcome)
        case _:
            return None


def _waits(lane: str | None, why: WaitReason, until: float | None) -> str:
    end = "" if until is None else f", until {until:.3f}"
    return f"waits for {_named(lane)}: {why.value.replace('_', ' ')}{end}"


def _named(lane: str | None) -> str:
    return "no lane" if lane is None else f"lane {lane}"


def _lacks(shortage: Shortage | None) -> str:
    """Describe the shortage that a permit waits for."""
    if shortage is None:
        return ""
    keys = ", ".join(shortage.keys)
    words = {
        "rate_limit": keys,
        "limit_decreasing": f"{keys} becomes smaller",
        "limiter_error": "the limit server does not respond",
    }[shortage.kind]
    details = f" ({words})" if words else ""
    return f"{details}: {shortage.message}" if shortage.message else details


def _refused(lane: str, retry_after: float | None, blocked_until: float) -> str:
    retry = "" if retry_after is None else f", retry after {retry_after:g} s"
    blocked = "" if blocked_until == -math.inf else f"; blocked until {blocked_until:.3f}"
    return f"lane {lane} refuses the call (rate limit){retry}{blocked}"


def _ending(outcome: Outcome[object]) -> str:
    match outcome:
        case Done():
            return f"is done: {_work(outcome)}"
        case Failed():
            return f"failed with {outcome.error!r}: {_work(outcome)}"
        case TimedOut():
            return f"timed out after {outcome.timeout:g} s of work: {_work(outcome)}"
        case Interrupted():
            return f"was interrupted ({outcome.cut.value}): {_work(outcome)}"
        case Blocked():
            return f"is blocked by job {outcome.by}"
        case NotRun():
            more = "" if outcome.reason is None else f": {outcome.reason}"
            return f"was not run ({outcome.cut.value}){more}"


def _work(outcome: Started[object]) -> str:
    worked = outcome.finished_at - outcome.started_at - outcome.waited
    return f"{counted(outcome.calls, 'request')}, {worked:.3f} s of work, {outcome.waited:.3f} s of waits"
