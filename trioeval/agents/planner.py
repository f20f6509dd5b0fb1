"""Who may begin: root tasks in the order in which they were submitted, so many at a time.

Several programs share a planner: what they submit stands in one line, each program begins its own tasks, and
a task that waits for others stands in the line without taking a place. A task whose program has died keeps
its order, and stands in nobody's way until somebody takes it up again.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import attrs

EntryState: TypeAlias = Literal["blocked", "queued", "running"]


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
    """From 1, among those that wait; 0 of one that runs."""
    utc_submitted: str
    utc_started: str | None = None


@attrs.frozen
class Recovery:
    """What was found of programs that have died."""

    requeued: tuple[str, ...] = ()
    """Ids that were running, and stand in the line again with their order, without an owner."""
    kept: tuple[str, ...] = ()
    """Ids of programs that live."""
    problems: tuple[str, ...] = ()
    """Entries that cannot be read, each in a sentence; they are held back, and everything else goes on."""


class Planner(Protocol):
    """Where root tasks take their turn. All methods are checkpoints."""

    async def submit(self, submission: Submission, /) -> Entry:
        """Stand in the line, or begin at once if there is a place and nobody before.

        An id that is known keeps its order, and gets this submission and this owner.

        Raises:
            UsageError: The id is blank, or a program that lives has submitted it.
            StoreError: The database cannot be used.
        """
        ...

    async def wait_started(self, id_: str, /) -> None:
        """Return when a submission of this program may run. Cancelled, it still stands in the line."""
        ...

    async def finish(self, id_: str, /, *, done: bool) -> None:
        """Leave the line or the place; what depends on it may begin if it is `done`.

        An unknown id is no error.
        """
        ...

    async def snapshot(self) -> Sequence[Entry]:
        """Everything in the line, by order. Without side effects."""
        ...

    async def recover(self) -> Recovery:
        """Take places back from programs that have died. A second call finds nothing more."""
        ...

    async def set_limit(self, limit: int, /) -> None:
        """Root tasks that may run at once from now on, ≥ 1. None that runs is stopped."""
        ...


Outcomes: TypeAlias = Mapping[str, bool]
"""Of submissions that are over, whether they are done."""
