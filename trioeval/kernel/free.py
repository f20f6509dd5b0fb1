"""Which of a lane's next jobs need nothing of it.

A job whose reply is there already has no reason to wait for the lane that would bring it. Whether that is so
is asked of the lane's next job and of no other, because jobs of one lane start in their order; and it may
take time, in which the lane starts nothing new.

A job that is asked about stays in the backlog. So a question that is cut off loses nothing, and a job that
becomes ready meanwhile and comes before it is asked next and starts first. Each answer is kept until its job
starts, or is withdrawn: a job is asked once each time that it is run.

Rejected: taking the job and asking then. Stop, deadline and a closed lane would each have to put it back.

Law: FREE.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias

import attrs
import trio

from trioeval.kernel.jobs import Job, P, Plan
from trioeval.kernel.work import cancellation_of

Free: TypeAlias = Callable[[Job[P]], Awaitable[bool]]


async def needs_nothing(free: Free[P], job: Job[P]) -> bool:
    """What `free` says of a job; False if it fails or takes longer than the job may."""
    with trio.move_on_after(job.timeout):
        try:
            return bool(await free(job))
        except Exception:  # noqa: BLE001 - whatever is wrong with the job its body will find too
            return False
        except BaseExceptionGroup as group:
            raise cancellation_of(group) from None
    return False


@attrs.define(eq=False)
class Scout(Generic[P]):
    """The questions of one lane: who asks now, and what was answered."""

    _free: Free[P]
    _plan: Plan[P]
    answers: dict[int, bool] = attrs.field(factory=dict)
    """Of jobs that were asked about and are not started."""
    busy: bool = False
    """Whether somebody asks, or has found a free job and waits for the serial gate."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """What that is done in."""
    asking: int | None = None
    """The job that is asked about."""

    @classmethod
    def of(cls, plan: Plan[P]) -> "Scout[P] | None":
        """None where no job is free."""
        return None if plan.free is None else cls(plan.free, plan)

    async def ask(self, index: int) -> None:
        """Ask about a job.

        Raises:
            PlanError: The job is not as the plan declares it.
        """
        self.asking = index
        try:
            free = await needs_nothing(self._free, self._plan.job(index))
            if self.asking == index:  # it may have been withdrawn just now
                self.answers[index] = free
        finally:
            self.asking = None

    def forget(self, index: int) -> None:
        """A job never starts: what was answered about it is of no use, and what is asked neither."""
        self.answers.pop(index, None)
        if self.asking == index:
            self.asking = None
            self.scope.cancel("the job was withdrawn")

    def stand_down(self) -> None:
        """Ask no more."""
        self.scope.cancel("the next job of the lane does not start")
