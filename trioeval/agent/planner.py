"""Who may begin: root tasks in the order in which they were submitted, so many at a time.

Several programs share a planner: what they submit stands in one line, each program begins its own tasks, and
a task that waits for others stands in the line without taking a place. A task whose program has died keeps
its order, and stands in nobody's way until somebody takes it up again.
"""

import contextlib
from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias

import attrs
import trio

from trioeval.errors import StoreError

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

    async def finish(self, id_: str, /, *, done: bool | None) -> None:
        """Leave the line or the place; what depends on it may begin if it is `done`.

        An unknown id is no error, nor is one of another program that lives: nothing happens. One of a program
        that has died leaves the line. Cancelled or failed, it is made up for later.

        Args:
            id_: Of the submission.
            done: Whether it is done; what is not keeps those who depend on it waiting, until it comes again.
                None leaves no outcome, as one that is interrupted: submitted again, it stands at the end.

        Raises:
            StoreError: The database cannot be used.
        """
        ...


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
            await planner.finish(submission.id, done=turn.done)
