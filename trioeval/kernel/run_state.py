"""What all parts of one run share, and where every outcome passes through.

An outcome is recorded, told, and sets free what waited for it. One that may still become better is not an
outcome yet: a job that failed by mishap is set aside until nothing else of the run can go on, and is run
once more then, together with the others of its kind (a *salvage round*). A readiness may say when instead.

Laws: TOTAL, BLOCK.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic

import attrs
import trio

from trioeval.errors import BudgetError, PlanError
from trioeval.kernel.backlog import Backlog
from trioeval.kernel.calls import Attempts, CallContext, Calls, worth_salvaging
from trioeval.kernel.events import Admitted, Finished, Salvaged, Waiting, Why
from trioeval.kernel.jobs import Job, P
from trioeval.kernel.ledger import Ledger
from trioeval.kernel.outcomes import Blocked, Cut, Done, Failed, NotRun, Outcome, V
from trioeval.kernel.readiness import Released
from trioeval.kernel.timeouts import Timeouts, Timer


class JobSource(Generic[P]):
    """Where the workers of a run get their jobs from; this one has none.

    Between the return of either `admit` and the start of the job there is no checkpoint.
    """

    @property
    def idle(self) -> bool:
        """Whether no job of it is under way and none could be."""
        return False

    def admit_nowait(self, now: float) -> Job[P] | None:  # noqa: ARG002 - subclasses look at the lane
        """Return the next job, if its lane can serve it at `now`."""
        return None

    async def admit(self) -> Job[P] | None:
        """Return the next job, when its lane can serve it; None sends the worker home."""
        return None

    def leave(self) -> None:
        """Count a job of it that is over. Its worker is the next to look for one."""

    def rested(self, change: int) -> None:
        """Count so many more of its jobs that rest in a back-off, or fewer."""

    def notify(self) -> None:
        """Look again: there may be a job, or none any more."""

    def stop_admitting(self) -> None:
        """Give up waiting: no new job starts."""

    def forget(self, index: int) -> None:
        """Heed that a job was withdrawn that it may be waiting for."""


@attrs.frozen
class _Salvage:
    """A job that is set aside, or run again."""

    failed: Failed
    """How it ended the last time."""
    attempts: Attempts | None
    """Of the call with which it failed."""
    rounds: int
    """How often it was set aside."""


@attrs.define(eq=False)
class RunState(CallContext, Generic[P, V]):
    """The state of one run."""

    perform: Callable[[Job[P], Calls[P]], Awaitable[V]]
    ledger: Ledger[V]
    backlog: Backlog[P]
    rounds: int = 0
    """How often a job that failed by mishap is run again."""
    window: float = math.inf
    """How far a job may run ahead of the first outcome that is not emitted; infinite if that is free."""
    settled: Callable[[Outcome[V]], None] | None = None
    """Told of each outcome as soon as it is there."""
    scope: trio.CancelScope = attrs.field(init=False)
    """What all jobs of the run live in; its deadline is the run's."""
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    """When jobs are cut off."""
    sources: list[JobSource[P]] = attrs.field(factory=list)
    """The serial jobs, or those of each lane."""
    pause_at: float = -math.inf
    """When a worker between two jobs has to let others run."""
    emitted: int = 0
    """Outcomes that the consumer has taken."""
    failure: Exception | None = None
    """What the run as a whole failed with; raised to its caller at the end."""
    exhausted: BudgetError | None = None
    """What is used up of the budget."""
    _salvages: dict[int, _Salvage] = attrs.field(factory=dict)
    """Jobs that are set aside, or run again."""
    _aside: set[int] = attrs.field(factory=set)
    """Those of them whose round comes when nothing else can go on."""
    _blocked: deque[tuple[int, int]] = attrs.field(factory=deque)
    """Jobs that have yet to get their outcome, each with the job that blocks it."""
    _releasing: bool = False

    def __attrs_post_init__(self) -> None:
        self.scope = trio.CancelScope(deadline=self.deadline)

    @property
    def over(self) -> bool:
        """Whether every job has its outcome."""
        return self.ledger.recorded == self.ledger.size

    def admits(self, now: float) -> bool:
        """Whether new jobs may still start."""
        if self.failure is not None:
            return False
        return now < self.deadline and not self.stop.is_set() and self.exhausted is None

    def start(
        self,
        job: Job[P],
        timer: Timer,
        now: float,
        *,
        rested: Callable[[int], None],
    ) -> Calls[P]:
        """Begin a job at `now`, the present: from here on it has an outcome other than `NotRun`.

        Args:
            job: Admitted in this very step.
            timer: Cuts it off.
            now: The present.
            rested: Told when it begins and ceases to rest; see `Calls`.
        """
        made, attempts = 0, None
        if self._salvages and (before := self._salvages.get(job.index)) is not None:
            made, attempts = before.failed.calls, before.attempts
        calls = Calls(job, self, timer, now, made=made, rested=rested)
        calls.attempts = attempts
        if job.lane is not None:  # its lane was found ready for its first call
            self.lanes.by_name[job.lane].admitted = calls
        if self.observe is not None:
            self.observe(Admitted(now, job.index, job.lane))
        return calls

    def finish(self, calls: Calls[P], outcome: Outcome[V]) -> None:
        """The body of a job is over."""
        calls.close()
        if calls.job.lane is not None:
            lane = self.lanes.by_name[calls.job.lane]
            if lane.admitted is calls:  # a lane outlives its runs, and keeps nothing of them
                lane.admitted = None
        if self.rounds and isinstance(outcome, Failed) and self._set_aside(outcome, calls.attempts):
            return
        self.settle(outcome)

    def settle(self, outcome: Outcome[V]) -> None:
        """Give a job its outcome, and those their own that it blocks."""
        if self._salvages and self._salvages.pop(outcome.index, None) is not None:
            self._aside.discard(outcome.index)
        self.ledger.record(outcome)
        if self.settled is not None:
            self._tell_settled(self.settled, outcome)
        if self.observe is not None:
            self.observe(Finished(trio.current_time(), outcome))
        if self.backlog.tracking:
            self._release(outcome)
        if self.ledger.recorded == self.ledger.size:
            self.notify()

    def never_ran(self, index: int, cut: Cut, reason: str) -> None:
        """A job will not be run, or not be run again."""
        self.settle(self._failure_of(index) or NotRun(index, cut, reason))

    def pass_on(self, emitted: int) -> None:
        """The consumer has taken so many outcomes: the window moves."""
        self.emitted = emitted
        self.notify()

    def notify(self) -> None:
        """There may be something to do for everybody."""
        for source in self.sources:
            source.notify()

    def go_on(self) -> None:
        """A job is over: if nothing else can go on, it is time for those that were set aside."""
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
        """Those that were set aside, in index order; they are not any more."""
        indices, self._aside = sorted(self._aside), set()
        self._tell_salvaged(indices)
        return indices

    def tell_shifted(self) -> None:
        """Jobs may have left their lanes: there is something to do for those on no lane."""
        if self.backlog.shifted:
            self.backlog.shifted = False
            self.notify()

    def tell_waiting(self, lane: str | None, why: Why, index: int | None) -> None:
        """Tell the observer of a wait whose end is not known."""
        if self.observe is not None:
            self.observe(Waiting(trio.current_time(), lane, why, None, index))

    def cut(self, now: float, *, started: bool) -> Cut:
        """Why a job was cut off at `now`, or not started until then."""
        if self.failure is not None:
            return Cut.FAULT
        if now >= self.deadline:
            return Cut.DEADLINE
        if not started and self.exhausted is not None:
            return Cut.BUDGET
        return Cut.STOP if self.stop.is_set() and not started else Cut.CANCEL

    def close(self) -> None:
        """No job is under way any more and none will start."""
        self.backlog.tracking = False  # nothing is set free any more
        for salvage in tuple(self._salvages.values()):
            self.settle(salvage.failed)
        self.ledger.cut = self.cut(trio.current_time(), started=False)
        if self.exhausted is not None:
            self.ledger.reason = str(self.exhausted)
        self.ledger.close()

    def fail(self, error: Exception) -> None:
        """End the run because of a fault that is not a job's."""
        if self.failure is None:
            self.failure = error
        self.scope.cancel(f"the run failed: {error}")

    def exhaust(self, error: BudgetError) -> None:
        """Admit no more jobs, unless the call is too large for any budget of this size."""
        if self.exhausted is None and error.wanted <= error.limit:
            self.exhausted = error
            self.stop_admitting()

    def stop_admitting(self) -> None:
        """No new job starts."""
        for source in self.sources:
            source.stop_admitting()

    def drain(self) -> None:
        """The caller has set `stop`: no new job starts, and no first request waits for its permit."""
        self.stop_admitting()
        self.withdraw_first_requests()

    def _failure_of(self, index: int) -> Failed | None:
        """How a job ended that is set aside."""
        salvage = self._salvages.get(index)
        return None if salvage is None else salvage.failed

    def _tell_settled(self, settled: Callable[[Outcome[V]], None], outcome: Outcome[V]) -> None:
        try:
            settled(outcome)
        except Exception as error:  # noqa: BLE001 - the consumer's fault ends the run
            self.settled = None
            self.fail(error)

    def _tell_salvaged(self, indices: Sequence[int]) -> None:
        if indices and self.observe is not None:
            self.observe(Salvaged(trio.current_time(), tuple(indices)))

    def _fail_stuck(self) -> None:
        left = self.ledger.size - self.ledger.recorded
        again = f", {len(self._salvages)} of them again" if self._salvages else ""
        self.fail(PlanError(f"{left} jobs of the plan never became ready{again}"))

    def _set_aside(self, failed: Failed, attempts: Attempts | None) -> bool:
        index = failed.index
        before = self._salvages.get(index)
        rounds = 0 if before is None else before.rounds
        if rounds >= self.rounds or not worth_salvaging(failed.error):
            return False
        if attempts is not None and (attempts.exhausted or attempts.is_own):
            return False
        self._salvages[index] = _Salvage(failed, attempts, rounds + 1)
        try:
            released = self.backlog.aside(index)
        except PlanError as error:
            self.fail(error)
            return True
        if released is None:
            self._aside.add(index)
        else:
            self._pass_on(released)
        return True

    def _release(self, outcome: Outcome[V]) -> None:
        try:
            released = self.backlog.over(outcome.index, done=isinstance(outcome, Done))
        except PlanError as error:
            self.fail(error)
            return
        self._pass_on(released)

    def _pass_on(self, released: Released) -> None:
        """Wake who has something to do now, and end those that are blocked."""
        if self._salvages:
            self._tell_salvaged(sorted(i for i in released.ready if i in self._salvages))
        if released.lanes:
            self.notify()
        for index in released.withdrawn:
            for source in self.sources:
                source.forget(index)
        self._blocked += released.blocked
        if self._releasing:
            return
        # A chain of a million jobs may hang on one: no recursion.
        self._releasing = True
        while self._blocked:
            index, by = self._blocked.popleft()
            self.settle(self._failure_of(index) or Blocked(index, by))
        self._releasing = False
