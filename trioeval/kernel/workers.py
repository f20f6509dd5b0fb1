"""The workers of a run: a supervisor for each lane, its workers, and one of them next in line.

A worker takes the lane's next job, runs it in its own task, and takes another one at once if the lane can
serve it: at full load no task is created, woken or handed anything between two jobs. When the lane cannot
serve a next job now, one worker stays *next in line* and waits in the lane's queue; the others end. The
waiting worker starts the job in the same step in which the lane is ready, so nothing comes between admission
and start, and the jobs of a lane start by rank and index. A few of those that would end are kept as *spare*:
the next one in line after it.

The *supervisor*, a child task of the run with a nursery of workers, makes sure that a worker is next in line
when that can help: it is notified when a slot is released and when a job is taken or over, and starts a
worker if jobs are left, no worker is next in line, and a slot is free or other waiters queue for it. So a
lane continues while the worker of a job waits elsewhere for a grader, and no slot waits for a worker (law
EAGER). Jobs on no lane have a supervisor and workers as well; their next in line waits for the serial gate
only.

A job is *live* from its start to its end, whatever it waits for, and costs memory. The number of live jobs
is bounded by the total max concurrency of all lanes, since a job may call any of them, plus a margin. Jobs
in a back-off do not count, or the jobs of a failing service would keep those of another one from starting;
but they cost memory, so including them at most `_WITH_RESTING` times as many jobs are live.

Rejected: one task per job (a million tasks); `max_concurrency` fixed workers (a job that waits outside its
slot keeps its worker and leaves the slot empty); a queue from supervisor to workers (two hops per job, and a
gap between admission and start).

**Outcomes.** Failures are data: an `Exception` of the body becomes `Failed`. Cancellation is never caught
here. A `Cancelled` that belongs to the job's own scope means a timeout or a withdrawn job (see
`CallContext`); any other one propagates, and the `finally` records `Interrupted` on its way.

Laws: TOTAL, HONEST, LIMIT, DRAIN, SERIAL.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, Generic

import attrs
import trio

from trioeval.errors import LaneClosedError, PlanError
from trioeval.kernel.arguments import NOTHING
from trioeval.kernel.calls import Calls
from trioeval.kernel.events import WaitReason
from trioeval.kernel.jobs import Job, P
from trioeval.kernel.lane import Lane
from trioeval.kernel.outcomes import Done, Failed, Interrupted, StopReason, TimedOut, V
from trioeval.kernel.run_state import JobSource, RunState
from trioeval.kernel.timeouts import Timer

_STRIDE = 1000
"""Jobs of a closed lane that are settled between two checkpoints."""
_SPARE = 256
"""Live jobs beyond the max concurrency of all lanes, where the run sets no bound."""
_MOST_SPARE = 8
"""Workers of a lane that are kept without a job: on a lane that waits for its rate, jobs end and start in
turn, and a kept worker costs less than a new one for each."""
_WITH_RESTING = 16
"""Bound of live jobs including those in a back-off, as a multiple of the bound without them."""


async def work(running: RunState[P, V], source: JobSource[P]) -> None:
    """Run the jobs of a source until it has none for this worker. A checkpoint if cancelled."""
    # A worker that was started before the run was cancelled and runs only after it would still start a job.
    await trio.lowlevel.checkpoint_if_cancelled()
    calls: Calls[P] | None = None  # of the job that has no outcome yet
    try:
        while True:
            with Timer(running.timeouts) as timer:
                now = trio.current_time()
                while now < timer.known_deadline:
                    job = source.admit_nowait(now) if now < running.pause_at else None
                    if job is None:
                        job = await _wait_job(running, source, timer)
                        now = trio.current_time()
                    if job is None:
                        return
                    calls = running.start(job, timer, now, source.rested)
                    outcome: Done[V] | Failed
                    body: Any = NOTHING
                    try:
                        body = running.perform(job, calls)
                        value = await body
                        now = trio.current_time()
                        outcome = Done(*calls.course(now), value)
                    except Exception as error:  # noqa: BLE001 - whatever a body raises is its job's outcome
                        now = trio.current_time()
                        outcome = Failed(*calls.course(now), error)
                        running.check_body(body)
                    except BaseExceptionGroup as group:
                        raise cancellation_of(group) from None
                    running.finish(calls, outcome)
                    calls = None
                    source.leave()
            if calls is not None:
                timed_out = TimedOut(*calls.course(trio.current_time()), calls.job.timeout)
                running.finish(calls, _cut_off(running, calls) if calls.withdrawn else timed_out)
                calls = None
                source.leave()
    finally:
        if calls is not None:
            # Only the run's deadline, its failure or the caller's scope leads here with a job running.
            running.finish(calls, _cut_off(running, calls))
            source.leave()


async def _wait_job(running: RunState[P, V], source: JobSource[P], timer: Timer) -> Job[P] | None:
    """Return the worker's next job if none is available at once; no checkpoint after its admission."""
    now = trio.current_time()
    if now >= running.pause_at:
        running.pause_at = now + running.pause_after
        await trio.lowlevel.checkpoint()
        job = source.admit_nowait(trio.current_time())
        if job is not None:
            return job
    timer.set(math.inf)  # no job, no timeout
    return await source.admit()


def cancellation_of(group: BaseExceptionGroup[BaseException]) -> BaseExceptionGroup[BaseException]:
    """Return the exception to propagate for a body with a nursery that failed while it was cancelled.

    The failure during clean-up has no receiver any more; only the cancellation must propagate.
    """
    cancelled, rest = group.split(trio.Cancelled)
    return cancelled if cancelled is not None and isinstance(rest, ExceptionGroup) else group


def _cut_off(running: RunState[P, V], calls: Calls[P]) -> Interrupted:
    now = trio.current_time()
    return Interrupted(*calls.course(now), running.cut(now, started=not calls.withdrawn))


@attrs.define(eq=False, repr=False)
class SerialJobs(JobSource[P], Generic[P, V]):
    """The serial jobs of one run, which run alone over all lanes, one after another in index order.

    One worker runs them all. For each it enters the serial gate, then waits for the job's lane like any other
    first call; while it holds the gate nothing else runs, so few waiters can be before it. It runs jobs that
    were set aside itself.
    """

    running: RunState[P, V]
    _indices: Iterator[int] = attrs.field(init=False)
    _line: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """The scope in which the worker waits between two jobs."""

    def __attrs_post_init__(self) -> None:
        self._indices = iter(self.running.plan.alone)

    def notify(self) -> None:
        """End the wait for a next job if none may start any more."""
        if not self.running.admits(trio.current_time()):
            self._line.cancel("the run admits no new jobs")

    async def admit(self) -> Job[P] | None:
        """Return the next serial job when nothing else runs and its lane can serve it. A checkpoint if so."""
        while (job := self._next()) is not None:
            with trio.CancelScope() as self._line:
                try:
                    return await self._pass_gate(job)
                except LaneClosedError as error:
                    self.running.never_ran(job.index, StopReason.LANE, error.reason)
        return None

    def leave(self) -> None:
        """Release the serial gate at the end of a serial job."""
        self.running.lanes.gate.leave_serial()

    async def _pass_gate(self, job: Job[P]) -> Job[P] | None:
        """Wait until nothing else runs, and until the job's lane can serve it if it needs one.

        Raises:
            LaneClosedError: The lane serves no more calls.
        """
        lanes = self.running.lanes
        lane = None if job.lane is None else lanes[job.lane]
        job = self.running.plan.inspected(job)
        if not lanes.gate.idle:
            self.running.report_wait(job.lane, WaitReason.GATE, job.index)
        await lanes.gate.enter_serial()
        admitted = False
        try:
            if lane is not None and job.lane is not None:
                await lane.wait_ready(self.running.observe)
            elif lane is not None and lane.closed is not None:
                raise LaneClosedError(lane.spec.name, lane.closed)
            admitted = self.running.admits(trio.current_time())
        finally:
            if not admitted:
                lanes.gate.leave_serial()
        return job if admitted else None

    def _next(self) -> Job[P] | None:
        running = self.running
        if not running.admits(trio.current_time()):
            return None
        # Jobs that are set aside come before their successors: serial jobs run in index order.
        indices = itertools.chain(running.next_round(), self._indices)
        index = next((index for index in indices if not running.backlog.blocks(index)), None)
        try:
            return None if index is None else running.plan.job(index)
        except PlanError as error:
            running.fail(error)
            return None


@attrs.define(eq=False, repr=False)
class LaneWorkers(JobSource[P], Generic[P, V]):
    """The workers of one run on one lane, or on none, and the source of their jobs."""

    running: RunState[P, V]
    lane: Lane | None
    max_live: int | None = None
    """Bound of live jobs that do not rest, ≥ 1; None derives it from the max concurrency of all lanes."""
    name: str | None = attrs.field(init=False)
    """The name of the lane."""
    title: str = attrs.field(init=False)
    """The name for tasks."""
    _live: int = 0
    """Jobs that are started and not over."""
    _resting: int = 0
    """Those of them that rest in a back-off."""
    _leading: bool = False
    _serving: bool = False
    """True while the supervisor looks for jobs to start."""
    _spare: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    """Workers without a job that are not next in line."""
    _line: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """The scope in which the next in line waits."""
    _news: trio.Event = attrs.field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.name = None if self.lane is None else self.lane.spec.name
        self.title = "no lane" if self.lane is None else f"lane {self.name}"

    @property
    def idle(self) -> bool:
        """True if no job is live and none that may start is waiting."""
        if self._live:
            return False
        backlog = self.running.backlog
        index = backlog.first(self.name)
        return backlog.walked if index is None else not self.running.in_window(index)

    async def serve(self) -> None:
        """Supervise the workers; return when every job of the run is over or none may start any more."""
        if self.lane is not None:
            self.lane.followers.append(self)
        self._serving = True
        try:
            async with trio.open_nursery() as workers:
                while self.running.admits(trio.current_time()) and not self.running.over:
                    # Re-arm before looking: a notification between the look and the wait would be missed.
                    self._news = trio.Event()
                    if self._look() and not self._spare.unpark():
                        workers.start_soon(work, self.running, self, name=f"worker: {self.title}")
                    await self._news.wait()
                self._serving = False
                self._spare.unpark_all()
                self._line.cancel("no job starts any more")
        finally:
            if self.lane is not None:
                self.lane.followers.remove(self)

    def notify(self) -> None:
        """Check again: a worker may be needed next in line, or the one there may have no job left."""
        self._news.set()

    def on_release(self) -> None:
        """Check again after a call has released its slot, unless a worker is next in line for it."""
        if not self._leading:
            self._news.set()

    def admit_nowait(self, now: float) -> Job[P] | None:
        """Return the next job if the lane can serve it at `now` and its queue is empty."""
        if self._full or not self.running.lanes.gate.open:
            return None
        if self.lane is not None and not self.lane.ready(now):
            return None
        job = self._take(now)
        if job is not None:
            self.notify()
        return job

    async def admit(self) -> Job[P] | None:
        """Wait next in line, or as a spare if a worker is; return the next job once the lane can serve it.

        A checkpoint if it returns a job.
        """
        while self._leading and self._serving and len(self._spare) < _MOST_SPARE:
            await self._spare.park()
        if self._leading or self._full:
            return None
        self._leading, job = True, None
        try:
            with trio.CancelScope() as self._line:
                job = await self._lead()
        except LaneClosedError:
            return None  # the supervisor notices that too
        finally:
            self._leading = False
            # Without a trip through the supervisor if one more call could start after that of the job.
            hands_over = job is not None and self.lane is not None and self.lane.slots_free > 1
            if not (hands_over and self._spare.unpark()):
                self.notify()
        return job

    def leave(self) -> None:
        """Count the end of a job. Its worker is the next to look for one, so no notification is needed."""
        self._live -= 1
        self.running.lanes.gate.leave()
        if not self._live:
            self.running.retry_set_aside()

    def rested(self, change: int) -> None:
        """Count a job that starts to rest, which may make room for another one, or that ends its rest."""
        self._resting += change
        self.notify()

    @property
    def _full(self) -> bool:
        """True if no more jobs may start now, whatever the lane allows."""
        if self.running.is_behind:
            return True
        most = self.max_live
        if self._live < (_SPARE if most is None else most):
            return False
        if most is None:
            most = _SPARE + sum(lane.max_concurrency for lane in self.running.lanes.values())
        return self._live - self._resting >= most or self._live >= _WITH_RESTING * most

    async def _lead(self) -> Job[P] | None:
        gate = self.running.lanes.gate
        while self._has_next():
            if not gate.open:
                self.running.report_wait(self.name, WaitReason.GATE, None)
                await gate.wait_open()
            if self.lane is not None:
                await self.lane.wait_ready(self.running.observe)
            if self._full:
                return None  # jobs that rested are working again
            if gate.open and (job := self._take(trio.current_time())) is not None:
                return job
        return None

    def _take(self, now: float) -> Job[P] | None:
        """Admit the next job, if one may still start."""
        running = self.running
        if not running.admits(now):
            return None
        try:
            if running.window != math.inf and not self._has_next():
                return None
            job = running.backlog.pop(self.name)
        except PlanError as error:
            running.fail(error)
            return None
        if running.backlog.has_news:
            running.notify_if_changed()
        if job is not None:
            running.lanes.gate.enter()
            self._live += 1
        return job

    def _look(self) -> bool:
        """Return whether a worker should be started to be next in line."""
        lane = self.lane
        if lane is not None:
            if lane.closed is not None:
                self._give_up(lane.closed)
                return False
            if self.running.backlog.looks:
                self._next()  # a job that needs no lane leaves this one
        if self._leading and self.running.backlog.first(self.name) is None:
            self._line.cancel("the job was withdrawn")
        if self._leading or self._full:
            return False
        # On a lane of one run whose slots are all taken, the worker that releases one takes the next job.
        contended = lane is None or lane.in_line or len(lane.followers) > 1
        if not (contended or (lane is not None and lane.slots_free > 0) or not self._live):
            return False
        found = self._has_next()
        if not found and not self._live:
            self.running.retry_set_aside()
        return found

    def _has_next(self) -> bool:
        """Return whether the run lets a job start; report the wait if the reorder window does not."""
        index = self._next()
        if index is not None and not self.running.in_window(index):
            self.running.report_wait(self.name, WaitReason.WINDOW, None)
            return False
        return index is not None

    def _next(self) -> int | None:
        """Return the next job if the run still admits one; look again later if that is not known."""
        running = self.running
        try:
            if not running.admits(trio.current_time()):
                return None
            has = running.backlog.has(self.name)
            running.notify_if_changed()
        except PlanError as error:
            running.fail(error)
            return None
        if has is None:
            self.notify()
        return running.backlog.first(self.name) if has else None

    def _give_up(self, reason: str) -> None:
        """Settle the jobs of a closed lane as not run."""
        backlog = self.running.backlog
        try:
            for _ in range(_STRIDE):
                if not backlog.has(self.name, look=False):
                    break
                if (job := backlog.pop(self.name, look=False)) is None:
                    break
                self.running.never_ran(job.index, StopReason.LANE, reason)
            if backlog.has(self.name, look=False) is not False:
                self.notify()
                return
        except PlanError as error:
            self.running.fail(error)
            return
        if not self._live:
            self.running.retry_set_aside()
