"""Waiting times of rows by reason, computed from the events of their run.

A row waits as the next one of its lane, before it starts, and with calls that wait for their lanes. The
kernel reports each wait when it begins, and when its reason changes; it ends with a start. The kernel reports
no wait for a slot of a full lane, because the call that frees a slot takes the next row: that is derived from
the calls.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from trioeval.kernel import Admitted, CallEnded, CallStarted, Event, Lanes, Observer, Waiting
from trioeval.kernel.events import WaitReason

NO_WAITS: Mapping[str, float] = MappingProxyType({})
"""The waits of a row that did not wait."""


@attrs.define(eq=False, repr=False)
class _Waited:
    """The waits of one job, or of the next one of a lane."""

    seconds: dict[str, float] = attrs.field(factory=dict)
    """By reason."""
    _open: dict[str | None, tuple[str, float]] = attrs.field(factory=dict)
    """The current reason and its start, by lane."""

    @property
    def is_waiting(self) -> bool:
        return bool(self._open)

    def add(self, why: str, seconds: float) -> None:
        if seconds > 0:
            self.seconds[why] = self.seconds.get(why, 0.0) + seconds

    def begin(self, lane: str | None, why: str, at: float) -> None:
        self.end(lane, at)
        self._open[lane] = why, at

    def end(self, lane: str | None, at: float) -> None:
        why, since = self._open.pop(lane, ("", at))
        self.add(why, at - since)

    def end_all(self, at: float) -> None:
        for lane in tuple(self._open):
            self.end(lane, at)


@attrs.define(eq=False, repr=False)
class WaitTimes:
    """Observes one plan, and stores the waits of its unfinished jobs.

    Args:
        run_on: The lanes of the plan.
        forward: Also called with every event.
    """

    _run_on: Lanes
    _forward: Observer | None = None
    ahead: Mapping[str, float] = attrs.field(init=False, default=NO_WAITS)
    """The waits before the start of the job that was started last, in seconds by reason."""
    _jobs: dict[int, _Waited] = attrs.field(init=False, factory=dict)
    _lanes: dict[str | None, _Waited] = attrs.field(init=False, factory=dict)
    """The waits of the next job on each lane, and of that on no lane."""
    _full: dict[str, float] = attrs.field(init=False, factory=dict)
    """The time since when a lane has no free slot, or a next job has waited for one."""

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        if self._forward is not None:
            self._forward(event)
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)

    def take(self, index: int, at: float) -> Mapping[str, float]:
        """Remove and return the waits of a job that ends at this instant, in seconds by reason."""
        waited = self._jobs.pop(index, None) if self._jobs else None
        if waited is None:
            return NO_WAITS
        waited.end_all(at)
        return waited.seconds

    def _wait(self, event: Waiting) -> None:
        if event.index is None:
            waited = self._lanes.setdefault(event.lane, _Waited())
        else:
            waited = self._jobs.setdefault(event.index, _Waited())
        waited.begin(event.lane, event.why.value, event.at)

    def _start_call(self, event: CallStarted) -> None:
        if self._jobs and (waited := self._jobs.get(event.index)) is not None:
            waited.end(event.lane, event.at)
        if self._run_on[event.lane].slots_free <= 0:
            self._full.setdefault(event.lane, event.at)

    def _end_call(self, event: CallEnded) -> None:
        since = self._full.pop(event.lane, event.at)
        if since == event.at:
            return
        waited = self._lanes.setdefault(event.lane, _Waited())
        if not waited.is_waiting:
            waited.add(WaitReason.SLOT.value, event.at - since)

    def _admit(self, event: Admitted) -> None:
        waited = self._lanes.pop(event.lane, None)
        self.ahead = NO_WAITS
        if waited is None:
            return
        waited.end(event.lane, event.at)
        self.ahead = waited.seconds
        if not waited.seconds:
            return
        own = self._jobs.setdefault(event.index, waited)
        if own is not waited:  # it is run again
            own.seconds = sum_waits(own.seconds, waited.seconds)


_HANDLERS: Mapping[type, Callable[[WaitTimes, Any], None]] = {
    CallStarted: WaitTimes._start_call,  # noqa: SLF001 - of this module
    CallEnded: WaitTimes._end_call,  # noqa: SLF001
    Admitted: WaitTimes._admit,  # noqa: SLF001
    Waiting: WaitTimes._wait,  # noqa: SLF001
}
"""The handler of each type of event. A look-up is faster than comparisons, and events are many."""


def sum_waits(some: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Return the sums of two mappings of seconds by reason.

    Example:
        >>> sum_waits({"slot": 1.0, "pace": 2.0}, {"slot": 0.5})
        {'slot': 1.5, 'pace': 2.0}
    """
    return {**some, **{why: some.get(why, 0.0) + seconds for why, seconds in more.items()}}
