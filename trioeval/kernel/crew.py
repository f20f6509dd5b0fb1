"""Who takes the jobs of a run to a lane: a foreman, workers, and one leader.

A lane of a run is a child task, the *foreman*, with a nursery of workers. A worker takes the lane's next
job, runs it in its own task, and takes the next one at once if the lane can serve it: in full swing no
task is made, woken or handed anything between two jobs.

When the lane cannot serve a next job now, one worker stays as the *leader* and stands in line for it; the
others go home. The leader becomes the job's worker in the very step in which the lane is ready, so that
nothing comes between admission and start, and the jobs of a lane start in index order.

The foreman's only duty is that somebody leads when leading can help: it is notified when a slot is given
back and when a job is taken or over, and sends a worker if there are jobs left, nobody leads, and a slot
is free or others stand in line for it. That is how a lane goes on while the worker of a job
waits elsewhere for a grader, and why no slot waits for a worker (law EAGER).

Rejected: one task a job (a million tasks); `width` fixed workers (a job that waits outside its slot keeps
its worker and leaves the slot empty); a queue from foreman to workers (two hops a job, and a gap between
admission and start).
"""

from typing import Generic

import attrs
import trio

from trioeval.errors import PlanError
from trioeval.kernel.backlog import Backlog
from trioeval.kernel.jobs import Job, P
from trioeval.kernel.lane import Lane
from trioeval.kernel.outcomes import V
from trioeval.kernel.work import Running, work


@attrs.define(eq=False)
class Crew(Generic[P, V]):
    """The workers of one run on one lane, and where they get their jobs from."""

    running: Running[P, V]
    lane: Lane
    backlog: Backlog[P]
    max_live: int
    """Jobs that may be live at once, ≥ 1: started and not over, whatever they wait for."""
    _live: int = 0
    _leading: bool = False
    _line: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """What the leader waits in."""
    _news: trio.Event = attrs.field(factory=trio.Event)

    async def serve(self) -> None:
        """The foreman: returns when every job of the lane is over, or none may start any more."""
        self.lane.followers.append(self)
        try:
            async with trio.open_nursery() as workers:
                while (more := self._has_more(trio.current_time())) is not False:
                    if more is None:
                        await trio.lowlevel.checkpoint()
                        continue
                    # Re-arm before looking: news between the look and the wait would be missed.
                    self._news = trio.Event()
                    if self._wants_leader():
                        name = f"worker of lane {self.lane.spec.name}"
                        workers.start_soon(work, self.running, self, name=name)
                    await self._news.wait()
        finally:
            self.lane.followers.remove(self)

    def notify(self) -> None:
        """Something changed that may call for a leader."""
        self._news.set()

    def stand_down(self) -> None:
        """After `stop`: nobody waits for a next job any more."""
        self._line.cancel("the run admits no new jobs")
        self._news.set()

    def admit_nowait(self, now: float) -> Job[P] | None:
        """The next job, if the lane can serve it at `now` and nobody stands in line."""
        if self._live < self.max_live and self.running.lanes.gate.open and self.lane.ready(now):
            return self._take(now)
        return None

    async def admit(self) -> Job[P] | None:
        """Lead, if nobody does: the next job, as soon as the lane can serve it. A checkpoint if so."""
        if self._leading or self._live >= self.max_live:
            return None
        gate = self.running.lanes.gate
        self._leading = True
        try:
            with trio.CancelScope() as self._line:
                while (more := self._has_more(trio.current_time())) is not False:
                    if more is None:
                        await trio.lowlevel.checkpoint()
                        continue
                    if not gate.open:
                        self.running.tell_gate(self.lane.spec.name, None)
                        await gate.wait_open()
                    await self.lane.wait_ready(self, self.running.observe)
                    if gate.open:
                        return self._take(trio.current_time())
        finally:
            self._leading = False
            self.notify()
        return None

    def leave(self) -> None:
        """A job is over. Its worker is the next to look for one, so nobody has to be told."""
        self._live -= 1
        self.running.lanes.gate.leave()

    def _take(self, now: float) -> Job[P] | None:
        """Admit the next job, if there is one that may still start."""
        if not self.running.admits(now):
            return None
        try:
            job = self.backlog.pop(self.lane.spec.name)
        except PlanError as error:
            self.running.fail(error)
            return None
        if job is not None:
            self.running.lanes.gate.enter()
            self._live += 1
            self.notify()
        return job

    def _has_more(self, now: float) -> bool | None:
        """Whether a job may still start here; None if it is not known yet."""
        try:
            return self.running.admits(now) and self.backlog.has(self.lane.spec.name)
        except PlanError as error:
            self.running.fail(error)
            return False

    def _wants_leader(self) -> bool:
        if self._leading or self._live >= self.max_live:
            return False
        # On a lane of one run whose slots are all taken, the worker that frees one takes the next job.
        contended = self.lane.in_line or len(self.lane.followers) > 1
        return self.lane.slot_free or contended
