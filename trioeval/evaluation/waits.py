"""What rows waited for, and for how long, out of the events of their run.

A row waits as the next one of its lane, before it is started, and with calls that wait for their lanes. The
kernel tells of each wait when it begins, and when it becomes one for something else; it ends with a start.
Only for a slot of a lane that is full it lets nobody wait, because whoever frees one takes the next row: that
is seen from the calls.
"""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from trioeval.kernel import Admitted, CallEnded, CallStarted, Event, Lanes, Observer, Waiting
from trioeval.kernel.events import Why

NO_WAITS: Mapping[str, float] = MappingProxyType({})
"""Of a row that did not wait."""


@attrs.define(eq=False)
class _Waited:
    """What one job waited for, or the next one of a lane."""

    seconds: dict[str, float] = attrs.field(factory=dict)
    """By reason."""
    _open: dict[str | None, tuple[str, float]] = attrs.field(factory=dict)
    """By lane: what is waited for now, and since when."""

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


@attrs.define(eq=False)
class Waits:
    """Observes one plan, and remembers the waits of those jobs that are not over.

    Args:
        run_on: The lanes of the plan.
        tell: Whom to tell of everything as well.
    """

    _run_on: Lanes
    _tell: Observer | None = None
    ahead: Mapping[str, float] = attrs.field(init=False, default=NO_WAITS)
    """What the job that was started last had waited for until then, in seconds by reason."""
    _jobs: dict[int, _Waited] = attrs.field(init=False, factory=dict)
    _lanes: dict[str | None, _Waited] = attrs.field(init=False, factory=dict)
    """Of the job that is next on each, and of that on no lane."""
    _full: dict[str, float] = attrs.field(init=False, factory=dict)
    """Since when lanes have no free slot, or a next job has waited for one."""

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        if self._tell is not None:
            self._tell(event)
        match event:
            case CallStarted():
                self._start_call(event)
            case CallEnded():
                self._end_call(event)
            case Admitted():
                self._admit(event)
            case Waiting():
                self._wait(event)
            case _:
                pass

    def take(self, index: int, at: float) -> Mapping[str, float]:
        """What a job waited for that is over at an instant, in seconds by reason; it is forgotten."""
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
        if not self._run_on[event.lane].slot_free:
            self._full.setdefault(event.lane, event.at)

    def _end_call(self, event: CallEnded) -> None:
        since = self._full.pop(event.lane, event.at)
        if since == event.at:
            return
        waited = self._lanes.setdefault(event.lane, _Waited())
        if not waited.is_waiting:
            waited.add(Why.SLOT.value, event.at - since)

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
        if own is not waited:  # it is run once more
            own.seconds = added(own.seconds, waited.seconds)


def added(some: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Seconds by reason, of two.

    Example:
        >>> added({"slot": 1.0, "pace": 2.0}, {"slot": 0.5})
        {'slot': 1.5, 'pace': 2.0}
    """
    return {**some, **{why: some.get(why, 0.0) + seconds for why, seconds in more.items()}}
