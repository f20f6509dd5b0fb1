"""The state that all parts of one run share, and the one place that every outcome passes through.

An outcome is recorded, reported, and releases the jobs that waited for it. A job that failed transiently has
no outcome yet if it has retry rounds left: it is set aside until no other job of the run can continue, and
is then run once more together with the others set aside (a *salvage round*). A readiness may choose another
time.
Laws: TOTAL, BLOCK.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic

import attrs
import trio

from trioeval.errors import BudgetError, PlanError
from trioeval.kernel.arguments import not_awaitable
from trioeval.kernel.backlog import Backlog
from trioeval.kernel.calls import Call, CallContext, Calls, worth_salvaging
from trioeval.kernel.events import Admitted, Finished, Salvaged, Waiting, WaitReason
from trioeval.kernel.jobs import Job, P, Plan, ReadinessUpdate
from trioeval.kernel.ledger import Ledger
from trioeval.kernel.outcomes import Blocked, Done, Failed, NotRun, Outcome, StopReason, V
from trioeval.kernel.timeouts import Timeouts, Timer

_MOST_WAITING = 4096
PAUSE_AFTER = 0.001
"""Seconds after which a worker lets other tasks run, since a body need not have a checkpoint."""


class JobSource(Generic[P]):
    """The source from which the workers of a run get their jobs; this base class has none.

    No checkpoint separates the return of either `admit` method from the start of the job.
    """

    @property
    def idle(self) -> bool:
        """True if no job of this source is running and none could start."""
        return False

    def admit_nowait(self, now: float) -> Job[P] | None:  # noqa: ARG002 - subclasses look at the lane
        """Return the next job if its lane can serve it at `now`."""
        return None

    async def admit(self) -> Job[P] | None:
        """Return the next job when its lane can serve it; None ends the worker."""
        return None

    def leave(self) -> None:
        """Count the end of one of its jobs. The job's worker is the next to look for one."""

    def rested(self, change: int) -> None:
        """Change the number of its jobs that wait in a back-off."""

    def notify(self) -> None:
        """Check again: a job may have become available, or none may be left."""


@attrs.frozen
class _Salvage:
    """A job that is set aside, or is run again."""

    failed: Failed
    """The outcome of its last run."""
    call: Call | None
    """The call with which it failed."""
    rounds: int
    """The number of times it was set aside."""


@attrs.define(eq=False, repr=False)
class RunState(CallContext, Generic[P, V]):
    """The state of one run."""

    plan: Plan[P]
    perform: Callable[[Job[P], Calls[P]], Awaitable[V]]
    rounds: int = 0
    """Number of times that a job with transient failures is run again."""
    window: float = math.inf
    """The distance by which a job may run ahead of the first unemitted outcome; may be infinite."""
    settled: Callable[[Outcome[V]], None] | None = None
    """Called with each outcome as soon as it exists."""
    most_waiting: int = attrs.field(default=_MOST_WAITING, kw_only=True)
    """Outcomes that wait for the consumer, beyond which no job starts: they are in memory."""
    ledger: Ledger[V] = attrs.field(init=False)
    backlog: Backlog[P] = attrs.field(init=False)
    scope: trio.CancelScope = attrs.field(init=False)
    """The scope around all jobs of the run; its deadline is the run's."""
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    """The deadlines of the jobs."""
    sources: list[JobSource[P]] = attrs.field(factory=list)
    """The serial jobs, or those of each lane."""
    pause_after: float = attrs.field(default=PAUSE_AFTER, kw_only=True)
    """Seconds after which a worker between two jobs lets other tasks run."""
    pause_at: float = -math.inf
    """The instant from which a worker between two jobs must let other tasks run."""
    failure: Exception | None = None
    """The error that ends the whole run; raised to the caller at the end."""
    exhausted: BudgetError | None = None
    """The error that says which part of the budget is used up."""
    _salvages: dict[int, _Salvage] = attrs.field(factory=dict)
    """Jobs that are set aside, or are run again."""
    _aside: set[int] = attrs.field(factory=set)
    """Those of them that wait for the run's own salvage round."""
    _blocked: deque[tuple[int, int]] = attrs.field(factory=deque)
    """Jobs whose `Blocked` outcome is not recorded yet, each with the job that blocks it."""
    _releasing: bool = False
    _held_back: bool = False
    """True if a job did not start because the consumer is behind."""
    _held_by_window: bool = False
    """True if a job did not start because it was outside of the window."""

    def __attrs_post_init__(self) -> None:
        self.ledger = Ledger(len(self.plan.jobs))
        self.backlog = Backlog(self.plan)
        self.scope = trio.CancelScope(deadline=self.deadline)

    @property
    def over(self) -> bool:
        """True if every job has its outcome."""
        return self.ledger.recorded == self.ledger.size

    def admits(self, now: float) -> bool:
        """Return whether new jobs may still start."""
        if self.failure is not None:
            return False
        return now < self.deadline and not self.stop.is_set() and self.exhausted is None

    @property
    def is_behind(self) -> bool:
        """True if no job may start because the consumer must take outcomes first."""
        if self.ledger.waiting < self.most_waiting:
            return False
        self._held_back = True
        return True

    def in_window(self, index: int) -> bool:
        """Return whether the window lets a job start; if not, the sources are notified when it moves."""
        if index < self.ledger.emitted + self.window:
            return True
        self._held_by_window = True
        return False

    def on_emitted(self) -> None:
        """Notify every source if the next job may start because the consumer has taken an outcome."""
        if self._held_by_window:
            self._held_by_window = False
            self.notify()
        if self._held_back and self.ledger.waiting <= self.most_waiting // 2:
            self._held_back = False
            self.notify()

    def start(
        self, job: Job[P], timer: Timer, now: float, rested: Callable[[int], None]
    ) -> Calls[P]:
        """Start a job that was admitted in the same step: from here on its outcome is not `NotRun`."""
        before = self._salvages.get(job.index) if self._salvages else None
        if before is None:
            calls = Calls(job, self, timer, now, rested)
        else:
            calls = Calls(job, self, timer, now, rested, before.failed.calls, before.call)
        if job.lane is not None:  # its lane was ready for its first call
            self.lanes.by_name[job.lane].admitted = calls
        if self.observe is not None:
            self.observe(Admitted(now, job.index, job.lane))
        return calls

    def finish(self, calls: Calls[P], outcome: Outcome[V]) -> None:
        """Record the end of a job's body."""
        calls.close()
        if calls.job.lane is not None:
            lane = self.lanes.by_name[calls.job.lane]
            if (
                lane.admitted is calls
            ):  # a lane outlives its runs and must not keep their objects alive
                lane.admitted = None
        if self.rounds and isinstance(outcome, Failed) and self._set_aside(outcome, calls.failed):
            return
        self.settle(outcome)

    def settle(self, outcome: Outcome[V]) -> None:
        """Record the outcome of a job, and those of the jobs that it blocks."""
        if self._salvages and self._salvages.pop(outcome.index, None) is not None:
            self._aside.discard(outcome.index)
        self.ledger.record(outcome)
        if self.settled is not None:
            self._report_settled(self.settled, outcome)
        if self.observe is not None:
            self.observe(Finished(trio.current_time(), outcome))
        if self.backlog.tracking:
            self._release(outcome)
        if self.ledger.recorded == self.ledger.size:
            self.notify()

    def never_ran(self, index: int, cut: StopReason, reason: str) -> None:
        """Settle a job that will not be run, or not be run again."""
        self.settle(self._failure_of(index) or NotRun(index, cut, reason))

    def notify(self) -> None:
        """Notify every source that there may be something to do."""
        for source in self.sources:
            source.notify()

    def retry_set_aside(self) -> None:
        """Start the salvage round, after the end of a job, if no other job can continue."""
        if not self._aside and not self.backlog.tracking:
            return
        if not all(source.idle for source in self.sources):
            return
        if self._aside:
            try:
                for index in self.next_round():
                    self.backlog.put_back(index)
            except PlanError as error:
                self.fail(error)
            self.notify()
        elif not self.over and self.backlog.empty and self.admits(trio.current_time()):
            self._fail_stuck()

    def next_round(self) -> Sequence[int]:
        """Remove and return the jobs that were set aside, in index order."""
        indices, self._aside = sorted(self._aside), set()
        self._report_salvaged(indices)
        return indices

    def notify_if_changed(self) -> None:
        """Notify the sources that a lane may have a next job now."""
        if self.backlog.has_news:
            self.backlog.has_news = False
            self.notify()

    def report_wait(self, lane: str | None, why: WaitReason, index: int | None) -> None:
        """Report to the observer a wait whose end is not known."""
        if self.observe is not None:
            self.observe(Waiting(trio.current_time(), lane, why, None, index))

    def cut(self, now: float, *, started: bool) -> StopReason:
        """Return the reason why a job was cut off at `now`, or was not started until then."""
        if self.failure is not None:
            return StopReason.FAULT
        if now >= self.deadline:
            return StopReason.DEADLINE
        if not started and self.exhausted is not None:
            return StopReason.BUDGET
        return StopReason.STOP if self.stop.is_set() and not started else StopReason.CANCEL

    def close(self) -> None:
        """Close the ledger: no job is running and none will start."""
        self.backlog.tracking = False  # no more jobs are released
        for salvage in tuple(self._salvages.values()):
            self.settle(salvage.failed)
        self.ledger.cut = self.cut(trio.current_time(), started=False)
        if self.exhausted is not None:
            self.ledger.reason = str(self.exhausted)
        self.ledger.close()

    def fail(self, error: Exception) -> None:
        """End the run because of an error that does not belong to a job."""
        if self.failure is None:
            self.failure = error
        self.scope.cancel(f"the run failed: {error}")

    def check_body(self, body: object) -> None:
        """End the run if what `perform` has returned cannot be awaited: a fault of all jobs."""
        error = not_awaitable("perform", self.perform, body)
        if error is not None:
            self.fail(error)

    def exhaust(self, error: BudgetError) -> None:
        """Admit no more jobs, unless the call is too large for any budget of this size."""
        if self.exhausted is None and error.wanted <= error.limit:
            self.exhausted = error
            self.notify()

    async def watch_stop(self) -> None:
        """Wait for the caller's `stop`, then admit no job and withdraw jobs that have made no request."""
        await self.stop.wait()
        self.notify()
        for calls in tuple(self.first_requests.values()):
            calls.withdraw()

    def _failure_of(self, index: int) -> Failed | None:
        """Return the failure of a job that is set aside; None if it is not."""
        salvage = self._salvages.get(index)
        return None if salvage is None else salvage.failed

    def _report_settled(self, settled: Callable[[Outcome[V]], None], outcome: Outcome[V]) -> None:
        try:
            settled(outcome)
        except Exception as error:  # noqa: BLE001 - the consumer's fault ends the run
            self.settled = None
            self.fail(error)

    def _report_salvaged(self, indices: Sequence[int]) -> None:
        if indices and self.observe is not None:
            self.observe(Salvaged(trio.current_time(), tuple(indices)))

    def _fail_stuck(self) -> None:
        left = self.ledger.size - self.ledger.recorded
        again = f", {len(self._salvages)} of them again" if self._salvages else ""
        self.fail(PlanError(f"{left} jobs of the plan never became ready{again}"))

    def _set_aside(self, failed: Failed, call: Call | None) -> bool:
        index = failed.index
        before = self._salvages.get(index)
        rounds = 0 if before is None else before.rounds
        if rounds >= self.rounds or not worth_salvaging(failed.error):
            return False
        if call is not None and (call.is_exhausted or call.is_own):
            return False
        self._salvages[index] = _Salvage(failed, call, rounds + 1)
        try:
            freed = self.backlog.on_set_aside(index)
        except PlanError as error:
            self.fail(error)
            return True
        if freed is None:
            self._aside.add(index)
        else:
            self._apply_update(freed)
        return True

    def _release(self, outcome: Outcome[V]) -> None:
        try:
            self._apply_update(
                self.backlog.on_outcome(outcome.index, done=isinstance(outcome, Done))
            )
        except PlanError as error:
            self.fail(error)

    def _apply_update(self, freed: ReadinessUpdate) -> None:
        """Wake the sources that have something to do, and settle the jobs that are blocked."""
        if self._salvages:
            self._report_salvaged(sorted(i for i in freed.ready if i in self._salvages))
        self.notify_if_changed()
        self._blocked += freed.blocked
        if self._releasing:
            return
        # A chain of a million jobs may depend on one: no recursion.
        self._releasing = True
        while self._blocked:
            index, by = self._blocked.popleft()
            self.settle(self._failure_of(index) or Blocked(index, by))
        self._releasing = False
