"""The deadlines of jobs, few of which Trio has to know.

Trio alone cuts a job off, at the instant of its deadline and by its own rules of precedence. But it keeps
deadlines in a heap, and changing one for every job costs as much as a whole job of a bare worker pool; nearly
all jobs end long before. So a deadline that is far away is only recorded here, and is passed to Trio if the
job still runs at the timekeeper's next round. Most jobs are short and cost one comparison.

The invariant: **Trio knows every deadline before `near`**, and the clock does not reach `near` while it is
finite, because a round ends half-way to it. (A process that is suspended for a whole round passes deadlines
late, and cuts off what was due meanwhile one step of the scheduler later.) After a round the timekeeper
sleeps and `near` is infinite: the next job that gets a deadline passes it to Trio itself, and wakes the
timekeeper. So there is at most one round for each deadline that is set, none for jobs without a timeout, and
without a timekeeper all deadlines are Trio's.

Rejected: a timekeeper that cancels by itself. It is a task like any other, so whether a job that ends at the
instant of its deadline were cut off would depend on the order of tasks.

Law: LIMIT.
"""

import math
from types import TracebackType
from typing import Self

import attrs
import trio

_ROUND = 1.0
"""Seconds after which a job is no longer short. Only timeouts of more than two rounds gain anything."""


@attrs.define(eq=False, repr=False)
class Timeouts:
    """The deadlines of all jobs of a run."""

    near: float = math.inf
    """Trio knows every deadline before this instant; infinite while the timekeeper sleeps."""
    timers: "set[Timer]" = attrs.field(factory=set)
    """The timers of all workers."""
    _requested: trio.Event = attrs.field(factory=trio.Event)

    async def keep(self) -> None:
        """Run the timekeeper, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested = trio.Event()
            self.near = trio.current_time() + 2 * _ROUND
            await trio.sleep(_ROUND)
            self.near = math.inf
            for timer in self.timers:
                timer.publish()

    def wake(self) -> None:
        """Start a round: a job got a deadline, and more may follow."""
        self._requested.set()


class Timer:
    """The deadline of one worker's jobs, one job after another; a context manager around them.

    One cancel scope serves many jobs, because entering a scope is the most expensive step. A scope that was
    cancelled cannot be used again, nor can its timer.
    """

    __slots__ = ("_scope", "_timeouts", "deadline", "known_deadline")

    def __init__(self, timeouts: Timeouts) -> None:
        self.deadline = math.inf
        self.known_deadline = math.inf
        """The deadline that Trio knows. After it the scope is unusable, whether Trio has noticed or not."""
        self._timeouts = timeouts
        self._scope = trio.CancelScope()

    def __enter__(self) -> Self:
        self._scope.__enter__()
        self._timeouts.timers.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._timeouts.timers.remove(self)
        return self._scope.__exit__(kind, error, traceback)

    def set(self, deadline: float) -> None:
        """Cut off what runs here at `deadline`, and at no other instant; infinite means never."""
        self.deadline = deadline
        if deadline < self._timeouts.near:
            self._timeouts.wake()
            self.publish()
        elif self.known_deadline != math.inf:
            self.publish()

    def cut(self) -> None:
        """Cut off what runs here now. The timer cannot be used again."""
        self._scope.cancel("the run was stopped before the job made a request")

    def publish(self) -> None:
        """Pass the deadline to Trio if it has to know it."""
        known = self.deadline if self.deadline < self._timeouts.near else math.inf
        if known != self.known_deadline:
            self._scope.deadline = self.known_deadline = known
