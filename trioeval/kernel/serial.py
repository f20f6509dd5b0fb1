"""Jobs that run alone over all lanes, one after another in index order.

One worker runs them all. It passes the serial gate for each, then waits for the job's lane like any other
first call; while it has the gate nothing else runs, so there is nobody in line before it for long.

Law: SERIAL.
"""

import itertools
from collections.abc import Iterator
from typing import Generic

import attrs
import trio

from trioeval.errors import LaneClosedError, PlanError
from trioeval.kernel.events import Why
from trioeval.kernel.free import needs_nothing
from trioeval.kernel.jobs import Job, P, Plan
from trioeval.kernel.lane import Lane
from trioeval.kernel.outcomes import Cut, V
from trioeval.kernel.running import Running


@attrs.define(eq=False)
class SerialLine(Generic[P, V]):
    """The serial jobs of one run, as a source for its one serial worker."""

    running: Running[P, V]
    plan: Plan[P]
    _indices: Iterator[int]
    favours: bool = attrs.field(init=False, default=True)
    """Whether the first call of the job that was admitted last passes its lane's line."""
    _line: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """What the worker waits in between two jobs."""

    @property
    def idle(self) -> bool:
        """Never: the line itself looks after those that were set aside."""
        return False

    def notify(self) -> None:
        """Nothing: the one worker is at work, or waits for what wakes it anyway."""

    def forget(self, index: int) -> None:
        """Nothing: no serial job is ever withdrawn."""

    def stand_down(self) -> None:
        """No new job starts: nobody waits for a next one any more."""
        self._line.cancel("the run admits no new jobs")

    def admit_nowait(self, now: float) -> None:  # noqa: ARG002 - the gate has to be waited for
        """None: a serial job is never admitted without waiting for the gate."""
        return

    async def admit(self) -> Job[P] | None:
        """The next serial job, when nothing else runs and its lane can serve it. A checkpoint if so."""
        while (job := self._next()) is not None:
            with trio.CancelScope() as self._line:
                try:
                    admitted = await self._pass_gate(job)
                except LaneClosedError as error:
                    self.running.never_ran(job.index, Cut.LANE, error.reason)
                    continue
                return job if admitted else None
        return None

    def leave(self) -> None:
        """A serial job is over."""
        self.running.lanes.gate.leave_serial()

    def rested(self, change: int) -> None:
        """Nothing: while a serial job rests, no other one starts either."""

    async def _pass_gate(self, job: Job[P]) -> bool:
        lanes, free = self.running.lanes, self.plan.free
        self.favours = free is None or not await needs_nothing(free, job)
        if not lanes.gate.idle:
            self.running.tell_waiting(job.lane, Why.GATE, job.index)
        await lanes.gate.enter_serial()
        admitted = False
        try:
            await self._wait_lane(lanes[job.lane])
            admitted = self.running.admits(trio.current_time())
        finally:
            if not admitted:
                lanes.gate.leave_serial()
        return admitted

    async def _wait_lane(self, lane: Lane) -> None:
        """Wait until the lane can serve the job, unless the job is free.

        Raises:
            LaneClosedError: The lane serves no more calls.
        """
        if self.favours:
            await lane.wait_ready(self.running.observe)
        elif lane.closed is not None:
            raise LaneClosedError(lane.spec.name, lane.closed)

    def _next(self) -> Job[P] | None:
        if not self.running.admits(trio.current_time()):
            return None
        # What is set aside comes before what follows it: serial jobs run in index order.
        for index in itertools.chain(self.running.next_round(), self._indices):
            if not self.running.backlog.blocks(index):
                return self._job(index)
        return None

    def _job(self, index: int) -> Job[P] | None:
        try:
            return self.plan.job(index)
        except PlanError as error:
            self.running.fail(error)
            return None
