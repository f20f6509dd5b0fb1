"""Who may begin: root tasks in the order in which they were submitted, so many at a time.

Several programs share a planner: what they submit stands in one line, each program begins its own tasks, and
a task that waits for others stands in the line without taking a place. A task whose program has died keeps
its order, and stands in nobody's way until somebody takes it up again.
"""

import contextlib
from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import attrs
import trio

from trioeval.errors import StoreError, UsageError

EntryState: TypeAlias = Literal["blocked", "queued", "running"]

_LEAVE_WITHIN = 5.0  # seconds that leaving may take of a program that is to end


@attrs.frozen(kw_only=True)
class Submission:
    """A root task that wants to begin."""

    id: str
    """Unique among all that share the planner, and the same in every execution of a run; never blank."""
    run: str
    """The id of its run."""
    task: str
    """What people call it: `task/case`."""
    depends_on: tuple[str, ...] = ()
    """Ids of other submissions, also such that nobody has submitted yet."""


@attrs.frozen(kw_only=True)
class Entry:
    """A submission in the line."""

    submission: Submission
    order: int
    """Given once; the next that begins is the one with the lowest."""
    state: EntryState
    owner: str | None
    """The incarnation of the program that will run it, or runs it; None if that has died."""
    position: int
    """From 1, among those that wait, blocked ones too; 0 of one that runs."""
    utc_submitted: str
    utc_started: str | None = None
    """When it began to run; None of one that waits."""


@attrs.frozen
class Recovery:
    """What was found of programs that have died."""

    requeued: tuple[str, ...] = ()
    """Ids that were running, and stand in the line again with their order, without an owner."""
    kept: tuple[str, ...] = ()
    """Ids that run in programs that live, this one among them; they count against the limit."""
    problems: tuple[str, ...] = ()
    """Entries that cannot be read, each in a sentence; they are held back, and everything else goes on."""


class Planner(Protocol):
    """Where root tasks take their turn. All methods are checkpoints."""

    async def submit(self, submission: Submission, /) -> Entry:
        """Stand in the line, or begin at once if there is a place and nobody before.

        An id that is known keeps its order, and gets this submission and this owner. How it ended before does
        not count any more. Cancelled, it does not stand in the line.

        Raises:
            UsageError: The id is blank or waits for itself, it runs here, or a program that lives has
                submitted it.
            StoreError: The database cannot be used.
        """
        ...

    async def set_free(self, id_: str, /) -> Entry:
        """Let a submission of this program depend on nothing any more; it keeps its order.

        One that runs, or depends on nothing, stays as it is.

        Raises:
            UsageError: It does not stand in the line for this program.
            StoreError: The database cannot be used.
        """
        ...

    async def wait_started(self, id_: str, /) -> None:
        """Return when a submission of this program may run. Cancelled, it still stands in the line.

        Raises:
            UsageError: It does not stand in the line for this program.
            StoreError: The database cannot be used.
        """
        ...

    async def finish(self, id_: str, /, *, done: bool, schedule: bool = True) -> None:
        """Leave the line or the place; what depends on it may begin if it is `done`.

        An unknown id is no error, nor is one of another program that lives: nothing happens. One of a program
        that has died leaves the line. Cancelled or failed, it is made up for later.

        Args:
            id_: Of the submission.
            done: Whether it is done; what is not keeps those who depend on it waiting, until it comes again.
            schedule: Whether the place goes to the next at once; False in a program that begins nothing more.

        Raises:
            StoreError: The database cannot be used.
        """
        ...

    async def leave(self, id_: str, /) -> None:
        """Leave the line or the place without an outcome, as one that is interrupted.

        Submitted again, it stands at the end. All else is as in `finish`.

        Raises:
            StoreError: The database cannot be used.
        """
        ...

    async def snapshot(self) -> Sequence[Entry]:
        """Everything in the line, by order. Without side effects.

        Raises:
            StoreError: The database cannot be used.
        """
        ...

    async def recover(self) -> Recovery:
        """Take places back from programs that have died. A second call finds nothing more.

        Raises:
            StoreError: The database cannot be used.
        """
        ...

    async def set_limit(self, limit: int, /) -> None:
        """Root tasks that may run at once from now on, ≥ 1. None that runs is stopped.

        Raises:
            UsageError: It is less than 1.
            StoreError: The database cannot be used; the limit holds all the same.
        """
        ...


def check_submission(submission: Submission) -> None:
    """See that a submission can stand in a line.

    Raises:
        UsageError: Its id is blank, or it waits for itself.
    """
    if not submission.id.strip():
        raise UsageError(
            f"{submission.task}: a submission to the planner needs an id; it has {submission.id!r}"
        )
    if submission.id in submission.depends_on:
        raise UsageError(f"{submission.id}: it depends on itself, and would wait for ever")


def check_limit(limit: int) -> None:
    """See that so many may run.

    Raises:
        UsageError: They are less than 1.
    """
    if limit < 1:
        raise UsageError(f"the planner lets at least 1 root task run at once, not {limit}")


@attrs.define(eq=False)
class Turn:
    """A submission for as long as somebody cares for it. Made by `planner_turn`."""

    _planner: Planner
    entry: Entry
    """As it stood when it was submitted, or set free."""
    done: bool | None = None
    """Whether it is done, told before the end of the block; None leaves no outcome."""

    async def set_free(self) -> None:
        """Depend on nothing any more. Costs nothing where that is so. A checkpoint.

        Raises:
            UsageError: It has left the line.
            StoreError: The database cannot be used.
        """
        if self.entry.submission.depends_on:
            self.entry = await self._planner.set_free(self.entry.submission.id)
        else:
            await trio.lowlevel.checkpoint()

    async def wait_started(self) -> None:
        """Return when it may run. A checkpoint.

        Raises:
            UsageError: It has left the line.
            StoreError: The database cannot be used.
        """
        await self._planner.wait_started(self.entry.submission.id)


@contextlib.asynccontextmanager
async def planner_turn(planner: Planner, submission: Submission) -> AsyncGenerator[Turn]:
    """Stand in the line for as long as the block, which waits for its turn where it wants to.

    At the end it leaves, also if it is cancelled: with the outcome that the block told, or with none.

    Raises:
        UsageError: As `Planner.submit`.
        StoreError: The database cannot be used.

    Example:
        ```python
        async with planner_turn(planner, submission) as turn:
            await others_are_over()  # those that it depends on, whatever became of them
            await turn.set_free()
            await turn.wait_started()
            await work()
            turn.done = True
        ```
    """
    turn = Turn(planner, await planner.submit(submission))
    try:
        yield turn
    finally:
        # The place must go to the next even when this is cancelled. Where that fails the planner makes up
        # for it, and the error of the block, or its cancellation, is what counts.
        with trio.move_on_after(_LEAVE_WITHIN, shield=True), contextlib.suppress(StoreError):
            if turn.done is None:
                await planner.leave(submission.id)
            else:
                await planner.finish(submission.id, done=turn.done)


# The planner of one program that shares it with nobody.
#
# Orders of those that wait, and of those that are queued, stand in sorted lists: the next to begin is the
# first, and a position is found by bisection.


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
