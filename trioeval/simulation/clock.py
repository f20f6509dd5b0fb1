# Separate from `simulation.run`: a clock for any run, which knows nothing of suites.
"""A virtual clock for Trio that jumps to the next instant as soon as every task waits.

Like Trio's `MockClock` with `autojump_threshold=0`, with two differences that a simulation of a million rows
needs. A jump takes no extra round of the scheduler. And a simulated call sleeps without a cancel scope: the
clock itself wakes the sleepers, one at a time, so that calls that end at one instant end in the order in
which they began, and equal simulations are equal. Inside, no threads, sockets or child processes: the clock
does not wait for them.
"""

import heapq
import math
from typing import Any, TypeAlias

import attrs
import trio

_FOREVER = 1e9
"""Seconds to sleep if nothing can happen any more; the caller's `fail_after` ends that at once."""


_Sleeper: TypeAlias = list[trio.lowlevel.Task]
"""The task that sleeps; empty after it was cancelled. A list, as every simulated call has one."""


@attrs.define(eq=False, repr=False)
class VirtualClock(trio.abc.Clock):
    """The clock of one Trio run; starts at 0.

    Example:
        >>> clock = VirtualClock()
        >>> async def an_hour():
        ...     await clock.sleep(1800)
        ...     await trio.sleep(1800)
        ...     return trio.current_time()
        >>> trio.run(an_hour, clock=clock)
        3600.0
    """

    now: float = 0.0
    """Seconds since the start."""
    _sleepers: list[tuple[float, int, _Sleeper]] = attrs.field(init=False, factory=list)
    _count: int = attrs.field(init=False, default=0)

    def start_clock(self) -> None:
        """Do nothing: the clock starts at 0."""

    def current_time(self) -> float:
        """Return the virtual time."""
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to the next instant, and return 0; Trio asks for it when every task waits."""
        sleepers = self._sleepers
        while sleepers and not sleepers[0][2]:
            heapq.heappop(sleepers)
        if sleepers and sleepers[0][0] <= deadline:
            at, _, (task,) = heapq.heappop(sleepers)
            self.now = max(self.now, at)
            trio.lowlevel.reschedule(task)
            return 0
        if deadline == math.inf:
            return _FOREVER
        self.now = max(self.now, deadline)
        return 0

    async def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds, ≥ 0. A checkpoint."""
        sleeper: _Sleeper = [trio.lowlevel.current_task()]
        self._count += 1
        heapq.heappush(self._sleepers, (self.now + seconds, self._count, sleeper))

        def abort(_raise: Any) -> trio.lowlevel.Abort:
            sleeper.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
