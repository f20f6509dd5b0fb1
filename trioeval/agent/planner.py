"""The planner: a shared queue that starts root tasks in the order of submission, a limited number at a time.

Several programs share a planner: their submissions form one queue, and each program starts its own tasks. A
task that waits for others is queued without taking a slot. A task whose program has died keeps its position,
and blocks no other task until a program submits it again.
"""

import contextlib
from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias

import attrs
import trio

from trioeval.errors import StoreError

SubmissionState: TypeAlias = Literal["blocked", "queued", "running"]

_LEAVE_WITHIN = 5.0  # maximum seconds for leaving the queue when a program is to end


@attrs.frozen(kw_only=True)
class Submission:
    """A root task to be started."""

    id: str
    """Unique among all programs that share the planner, and the same in every execution of a run; not
    blank."""
    run: str
    """The id of its run."""
    task: str
    """The displayed name: `task/case`."""
    depends_on: tuple[str, ...] = ()
    """Ids of other submissions, which may not have been submitted yet."""


@attrs.frozen(kw_only=True)
class QueuedSubmission:
    """A queued or running submission."""

    submission: Submission
    order: int
    """Assigned once; the submission with the lowest order starts next."""
    state: SubmissionState
    owner: str | None
    """The id of the client that will run it, or runs it; None if its program has died."""
    position: int
    """From 1, among waiting submissions including blocked ones; 0 for a running one."""
    utc_submitted: str
    utc_started: str | None = None
    """The time of its start; None for a waiting one."""
    host: str | None = None
    """The host of its program; None if that has died, or was not looked up."""
    pid: int | None = None
    """The id of the process there."""


class Planner(Protocol):
    """The queue of root tasks. All methods are checkpoints."""

    async def submit(self, submission: Submission, /) -> QueuedSubmission:
        """Queue a submission, or start it at once if a slot is free and no other one is before it.

        A known id keeps its order, and gets this submission and this owner. Its earlier outcome is
        discarded. If this is cancelled, the submission is not queued.

        Raises:
            UsageError: The id is blank or depends on itself, it runs here, or a living program has
                submitted it.
            StoreError: The database cannot be used.
        """
        ...

    async def clear_dependencies(self, id_: str, /) -> QueuedSubmission:
        """Remove the dependencies of a submission of this program; it keeps its order.

        A running submission, or one without dependencies, is not changed.

        Raises:
            UsageError: It is not queued for this program.
            StoreError: The database cannot be used.
        """
        ...

    async def wait_started(self, id_: str, /) -> None:
        """Wait until a submission of this program may run. If this is cancelled, it remains queued.

        Raises:
            UsageError: It is not queued for this program.
            StoreError: The database cannot be used.
        """
        ...

    async def finish(self, id_: str, /, *, done: bool | None) -> None:
        """Remove a submission from the queue, or release its slot; its dependents may start if it is `done`.

        An unknown id is not an error, nor is one of another living program: both are ignored. A submission
        of a program that has died is removed. If this is cancelled or fails, it is repeated later.

        Args:
            id_: The id of the submission.
            done: Whether it is done; if not, its dependents wait until it is submitted again.
                None stores no outcome, for an interrupted one: submitted again, it is queued at the end.

        Raises:
            StoreError: The database cannot be used.
        """
        ...


@attrs.define(eq=False, repr=False)
class PlannerTurn:
    """A submission for the duration of a block. Created by `planner_turn`."""

    _planner: Planner
    entry: QueuedSubmission
    """The state when it was submitted, or released from its dependencies."""
    done: bool | None = None
    """True if it is done, set before the end of the block; None stores no outcome."""

    async def clear_dependencies(self) -> None:
        """Remove its dependencies, if it has any. A checkpoint.

        Raises:
            UsageError: It is no longer queued.
            StoreError: The database cannot be used.
        """
        if self.entry.submission.depends_on:
            self.entry = await self._planner.clear_dependencies(self.entry.submission.id)
        else:
            await trio.lowlevel.checkpoint()

    async def wait_started(self) -> None:
        """Wait until it may run. A checkpoint.

        Raises:
            UsageError: It is no longer queued.
            StoreError: The database cannot be used.
        """
        await self._planner.wait_started(self.entry.submission.id)


@contextlib.asynccontextmanager
async def planner_turn(planner: Planner, submission: Submission) -> AsyncGenerator[PlannerTurn]:
    """Queue a submission for the duration of the block, which can wait for its turn.

    At the end of the block, also when cancelled, it is removed: with the outcome that the block set, or none.

    Raises:
        UsageError: As `Planner.submit`.
        StoreError: The database cannot be used.

    Example:
        ```python
        async with planner_turn(planner, submission) as turn:
            await others_have_ended()  # its dependencies, however they ended
            await turn.set_free()
            await turn.wait_started()
            await work()
            turn.done = True
        ```
    """
    turn = PlannerTurn(planner, await planner.submit(submission))
    try:
        yield turn
    finally:
        # The slot must be released even when this is cancelled. If that fails the planner repeats it later,
        # and the error of the block, or its cancellation, takes precedence.
        with trio.move_on_after(_LEAVE_WITHIN, shield=True), contextlib.suppress(StoreError):
            await planner.finish(submission.id, done=turn.done)
