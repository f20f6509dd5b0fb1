"""The planner of one program that shares it with nobody.

Orders of those that wait, and of those that are queued, stand in sorted lists: the next to begin is the
first, and a position is found by bisection.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

import attrs
import trio

from trioeval.agents.planner import (
    Entry,
    EntryState,
    Recovery,
    Submission,
    check_limit,
    check_submission,
)
from trioeval.errors import UsageError

_HERE = "here"


@attrs.define(eq=False)
class _Place:
    """A submission in the line."""

    submission: Submission
    order: int
    state: EntryState
    utc_submitted: str
    utc_started: str | None = None
    news: trio.Event = attrs.field(factory=trio.Event)
    """Set when it runs, or has left."""


@attrs.define(eq=False)
class MemoryPlanner:
    """A planner that is gone with its program.

    Args:
        limit: Root tasks that may run at once, ≥ 1.
        utc: Tells what time it is, as ISO 8601.

    Raises:
        UsageError: The limit is less than 1.

    Example:
        >>> import trio
        >>> async def main():
        ...     planner = MemoryPlanner(1, lambda: "2026-01-01T00:00:00.000Z")
        ...     for name in ("a", "b"):
        ...         entry = await planner.submit(Submission(id=name, run="r", task=name))
        ...         print(name, entry.state, entry.position)
        ...     await planner.finish("a", done=True)
        ...     print([(entry.submission.id, entry.state) for entry in await planner.snapshot()])
        >>> trio.run(main)
        a running 0
        b queued 1
        [('b', 'running')]
    """

    _limit: int
    _utc: Callable[[], str]
    _next_order: int = attrs.field(init=False, default=1)
    _places: dict[str, _Place] = attrs.field(init=False, factory=dict)
    _by_order: dict[int, _Place] = attrs.field(init=False, factory=dict)
    _waiting: list[int] = attrs.field(init=False, factory=list)
    _queued: list[int] = attrs.field(init=False, factory=list)
    _running: int = attrs.field(init=False, default=0)
    _done: dict[str, bool] = attrs.field(init=False, factory=dict)
    _dependents: dict[str, dict[str, None]] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        check_limit(self._limit)

    async def submit(self, submission: Submission, /) -> Entry:
        """See `Planner.submit`."""
        check_submission(submission)
        await trio.lowlevel.checkpoint()
        name = submission.id
        place = self._places.get(name)
        if place is None:
            place = _Place(submission, self._next_order, "blocked", self._utc())
            self._next_order += 1
            self._places[name] = self._by_order[place.order] = place
        elif place.state == "running":
            raise UsageError(f"{name}: it runs already, and is not submitted again")
        else:
            self._forget(place)
            place.submission = submission
        for needed in submission.depends_on:
            self._dependents.setdefault(needed, {})[name] = None
        self._put(place, self._waiting_state(place))
        if self._done.pop(name, False):
            self._look_at_dependents(name)
        self._schedule()
        return self._entry(place)

    async def set_free(self, id_: str, /) -> Entry:
        """See `Planner.set_free`."""
        await trio.lowlevel.checkpoint()
        place = self._places.get(id_)
        if place is None:
            raise UsageError(f"{id_}: it does not stand in the line")
        if place.state != "running":
            self._forget(place)
            place.submission = attrs.evolve(place.submission, depends_on=())
            self._put(place, "queued")
            self._schedule()
        return self._entry(place)

    async def wait_started(self, id_: str, /) -> None:
        """See `Planner.wait_started`."""
        await trio.lowlevel.checkpoint()
        place = self._places.get(id_)
        if place is not None and place.state != "running":
            await place.news.wait()
        if place is None or self._places.get(id_) is not place:
            raise UsageError(f"{id_}: it does not stand in the line")

    async def finish(self, id_: str, /, *, done: bool, schedule: bool = True) -> None:
        """See `Planner.finish`."""
        if self._remove(id_):
            self._done[id_] = done
            self._look_at_dependents(id_)
        if schedule:
            self._schedule()
        await trio.lowlevel.checkpoint()

    async def leave(self, id_: str, /) -> None:
        """See `Planner.leave`."""
        self._remove(id_)
        self._schedule()
        await trio.lowlevel.checkpoint()

    async def snapshot(self) -> Sequence[Entry]:
        """See `Planner.snapshot`."""
        await trio.lowlevel.checkpoint()
        return tuple(self._entry(self._by_order[order]) for order in sorted(self._by_order))

    async def recover(self) -> Recovery:
        """See `Planner.recover`; no other program has anything in this line."""
        await trio.lowlevel.checkpoint()
        kept = (place for _, place in sorted(self._by_order.items()) if place.state == "running")
        found = Recovery(kept=tuple(place.submission.id for place in kept))
        self._schedule()
        return found

    async def set_limit(self, limit: int, /) -> None:
        """See `Planner.set_limit`."""
        check_limit(limit)
        await trio.lowlevel.checkpoint()
        self._limit = limit
        self._schedule()

    def _schedule(self) -> None:
        while self._queued and self._running < self._limit:
            place = self._by_order[self._queued[0]]
            self._take_out(place)
            self._put(place, "running")
            place.utc_started = self._utc()
            place.news.set()

    def _remove(self, name: str) -> bool:
        place = self._places.pop(name, None)
        if place is None:
            return False
        del self._by_order[place.order]
        self._forget(place)
        place.news.set()
        return True

    def _forget(self, place: _Place) -> None:
        """Take out of all but the line itself what is known of a submission."""
        self._take_out(place)
        for needed in dict.fromkeys(place.submission.depends_on):
            del self._dependents[needed][place.submission.id]
            if not self._dependents[needed]:
                del self._dependents[needed]

    def _put(self, place: _Place, state: EntryState) -> None:
        place.state = state
        self._running += state == "running"
        if state != "running":
            insort(self._waiting, place.order)
        if state == "queued":
            insort(self._queued, place.order)

    def _take_out(self, place: _Place) -> None:
        self._running -= place.state == "running"
        if place.state != "running":
            del self._waiting[bisect_left(self._waiting, place.order)]
        if place.state == "queued":
            del self._queued[bisect_left(self._queued, place.order)]

    def _look_at_dependents(self, name: str) -> None:
        for dependent in self._dependents.get(name, ()):
            place = self._places[dependent]
            if place.state != "running":
                self._take_out(place)
                self._put(place, self._waiting_state(place))

    def _waiting_state(self, place: _Place) -> EntryState:
        is_free = all(self._done.get(needed, False) for needed in place.submission.depends_on)
        return "queued" if is_free else "blocked"

    def _entry(self, place: _Place) -> Entry:
        is_running = place.state == "running"
        return Entry(
            submission=place.submission,
            order=place.order,
            state=place.state,
            owner=_HERE,
            position=0 if is_running else bisect_left(self._waiting, place.order) + 1,
            utc_submitted=place.utc_submitted,
            utc_started=place.utc_started,
        )
