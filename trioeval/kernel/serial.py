"""Jobs that run alone over all lanes, one after another in index order.

One worker runs them all. It passes the serial gate for each, then waits for the job's lane like any other
first call; while it has the gate nothing else runs, so there is nobody in line before it for long.

Law: SERIAL.
"""

from collections.abc import Iterator
from typing import Generic

import attrs
import trio

from trioeval.errors import PlanError
from trioeval.kernel.jobs import Job, P, Plan
from trioeval.kernel.outcomes import V
from trioeval.kernel.work import Running


@attrs.define(eq=False)
class SerialLine(Generic[P, V]):
    """The serial jobs of one run, as a source for its one serial worker."""

    running: Running[P, V]
    plan: Plan[P]
    _indices: Iterator[int]
    _line: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """What the worker waits in between two jobs."""

    def stand_down(self) -> None:
        """After `stop`: nobody waits for a next job any more."""
        self._line.cancel("the run admits no new jobs")

    def admit_nowait(self, now: float) -> None:  # noqa: ARG002 - the gate has to be waited for
        """None: a serial job is never admitted without waiting for the gate."""
        return

    async def admit(self) -> Job[P] | None:
        """The next serial job, when nothing else runs and its lane can serve it. A checkpoint if so."""
        job = self._next()
        if job is None:
            return None
        lanes = self.running.lanes
        with trio.CancelScope() as self._line:
            if not lanes.gate.idle:
                self.running.tell_gate(job.lane, job.index)
            await lanes.gate.enter_serial()
            admitted = False
            try:
                await lanes[job.lane].wait_ready(self, self.running.observe)
                admitted = self.running.admits(trio.current_time())
            finally:
                if not admitted:
                    lanes.gate.leave_serial()
            return job if admitted else None
        return None

    def leave(self) -> None:
        """A serial job is over."""
        self.running.lanes.gate.leave_serial()

    def _next(self) -> Job[P] | None:
        index = next(self._indices, None)
        if index is None or not self.running.admits(trio.current_time()):
            return None
        try:
            return self.plan.job(index)
        except PlanError as error:
            self.running.fail(error)
            return None
