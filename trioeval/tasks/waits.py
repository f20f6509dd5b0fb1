"""What rows waited for, and for how long, out of the events of their run.

A row waits as the next one of its lane, before it is started, and with calls that wait for their lanes. The
kernel tells of each wait when it begins, and when it becomes one for something else; it ends with a start.
"""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from trioeval.kernel import Admitted, CallStarted, Event, Observer, Waiting

NO_WAITS: Mapping[str, float] = MappingProxyType({})
"""Of a row that did not wait."""


@attrs.define(eq=False)
class _Waited:
    """What one job waited for, or the next one of a lane."""

    seconds: dict[str, float] = attrs.field(factory=dict)
    """By reason."""
    _open: dict[str, tuple[str, float]] = attrs.field(factory=dict)
    """By lane: what is waited for now, and since when."""

    def begin(self, lane: str, why: str, at: float) -> None:
        self.end(lane, at)
        self._open[lane] = why, at

    def end(self, lane: str, at: float) -> None:
        why, since = self._open.pop(lane, ("", at))
        if at > since:
            self.seconds[why] = self.seconds.get(why, 0.0) + at - since

    def end_all(self, at: float) -> None:
        for lane in tuple(self._open):
            self.end(lane, at)


@attrs.define(eq=False)
class Waits:
    """Observes one plan, and remembers the waits of those jobs that are not over.

    Args:
        tell: Whom to tell of everything as well.
    """

    _tell: Observer | None = None
    _jobs: dict[int, _Waited] = attrs.field(init=False, factory=dict)
    _lanes: dict[str, _Waited] = attrs.field(init=False, factory=dict)
    """Of the job that is next on each."""

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        if self._tell is not None:
            self._tell(event)
        kind = type(event)
        if kind is CallStarted:
            if self._jobs:
                self._start_call(event)  # type: ignore[arg-type]  # a match costs more
        elif kind is Admitted:
            if self._lanes:
                self._admit(event)  # type: ignore[arg-type]
        elif kind is Waiting:
            self._wait(event)  # type: ignore[arg-type]

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
        waited = self._jobs.get(event.index)
        if waited is not None:
            waited.end(event.lane, event.at)

    def _admit(self, event: Admitted) -> None:
        waited = self._lanes.pop(event.lane, None)
        if waited is None:
            return
        waited.end(event.lane, event.at)
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
