"""A resumed task: only rows without a result are run.

The plan of the task does not change. The kernel gets a plan without gaps, though: the remaining jobs with
consecutive indices. All indices of jobs are translated, in both directions: the start order, serial jobs,
dependencies, outcomes. For the readiness of the whole plan, kept jobs have ended successfully as soon as they
may start.

Kept rows have stored outputs in registers and turns in conversations. Those are restored from the records
before anything starts, so that a row sees what an uninterrupted run would have shown it.

Rows that are compared with each other are kept together or not at all.

Laws: ONCE, RESUME.
"""

import bisect
import itertools
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
import trio

from trioeval.evaluation.groups import Layout
from trioeval.evaluation.journal import ReusedRows
from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import Body, UnstartedRows
from trioeval.evaluation.waits import NO_WAITS
from trioeval.kernel import (
    Blocked,
    Calls,
    Edge,
    Job,
    Outcome,
    Plan,
    Rank,
    Readiness,
    ReadinessUpdate,
)
from trioeval.sequences import LazySequence
from trioeval.suite.expand import Expansion, Step

_STRIDE = 100  # rows that are restored between two checkpoints


class RowMemory(Protocol):
    """The data that rows leave for later ones; `Tools` implements it."""

    @property
    def shares_data(self) -> bool:
        """True if any row may leave data."""
        ...

    def may_store(self, step: Step, /) -> bool:
        """Return whether a row may store its output."""
        ...

    def may_share(self, step: Step, /) -> bool:
        """Return whether a row may store its output, or a turn."""
        ...

    def restore(self, step: Step, record: Mapping[str, Any], /) -> None:
        """Restore the data that a recorded row left."""
        ...

    def on_row_end(self, step: Step, /) -> None:
        """Handle the end of a row; all rows with a lower index have ended."""
        ...


class ResumedTask:
    """A task body without the kept rows; used for one run.

    Args:
        body: The body of the whole task.
        kept: The rows with results.
        steps: All of its steps.
        layout: The mapping of jobs to steps, if some jobs compare others.
        memory: The data that the rows share.
    """

    def __init__(
        self,
        body: Body,
        kept: ReusedRows,
        steps: Expansion,
        layout: Layout | None,
        memory: RowMemory,
    ) -> None:
        self._body = body
        self._records = kept
        self._steps = steps
        self._layout = layout if layout is not None and layout.compares else None
        self._memory = memory
        self._is_kept = bytearray(index in kept for index in range(len(steps)))
        if self._layout is not None:
            self._keep_whole_groups(self._layout)
        self._left = array("q", self._left_over())

    def kept_rows(self) -> Sequence[int]:
        """Return the indices of the kept rows, ascending."""
        return array("q", itertools.compress(range(len(self._is_kept)), self._is_kept))

    async def restore(self) -> None:
        """Restore the data of kept rows that others may see. Called first; a checkpoint."""
        await trio.lowlevel.checkpoint()
        first, last = self._is_kept.find(0), self._is_kept.rfind(0)
        if first < 0 or not self._memory.shares_data:
            return
        # Remaining serial rows read from before all rows that run with others, wherever they are in the
        # suite.
        serial = self._steps.serial_indices
        settles = all(self._is_kept[index] for index in serial)
        # Serial rows are restored before any row is settled below, in the order in which they ran.
        for index in serial:
            if self._is_kept[index]:
                self._restore(self._steps[index])
        for count, index in enumerate(self.kept_rows(), 1):
            step = self._steps[index]
            if index < last and not step.test.options.run_serially:
                self._restore(step)
            if settles and index < first:
                self._memory.on_row_end(step)
            if count % _STRIDE == 0:
                await trio.lowlevel.checkpoint()

    def plan(self) -> Plan[Any]:
        """Return the plan of the remaining jobs, with consecutive indices."""
        plan = self._body.plan()
        readiness, needs_no_lane = plan.readiness, plan.needs_no_lane
        return attrs.evolve(
            plan,
            jobs=_RemainingJobs(plan.jobs, self._left),
            serial_indices=tuple(self._places(plan.serial_indices)),
            edges={
                place: self._edges(plan.edges[job])
                for place, job in enumerate(self._left)
                if job in plan.edges
            }
            if plan.edges
            else plan.edges,
            readiness=None
            if readiness is None or not self._left
            else lambda: _ResumedReadiness(readiness(), self, plan.serial_indices),
            needs_no_lane=None
            if needs_no_lane is None
            else lambda job: needs_no_lane(self._own_job(job)),
        )

    async def perform(self, job: Job[Any], calls: Calls[Any]) -> object:
        """Run the body of a job.

        Raises:
            TrioevalError: As for the whole task.
        """
        return await self._body.perform(self._own_job(job), calls)

    def rows(self, outcome: Outcome[Any], waits: Mapping[str, float] = NO_WAITS) -> Sequence[Row]:
        """Return the rows that an outcome completes; none of them is kept."""
        own = attrs.evolve(outcome, index=self.job(outcome.index))
        if isinstance(own, Blocked):
            own = attrs.evolve(own, by=self.job(own.by))
        return self._body.rows(own, waits)

    def unstarted(self, jobs: range) -> UnstartedRows | None:
        """Return the rows of remaining jobs that never started, up to the next kept one."""
        first = self.job(jobs.start)
        # The n-th one after the first is n indices further as long as no row between them is kept.
        count = bisect.bisect_left(
            range(len(jobs)), 1, key=lambda n: self.job(jobs.start + n) - first > n
        )
        return self._body.unstarted(range(first, first + count))

    def on_emitted(self, row: Row) -> None:
        """Handle the emission of a row."""
        self._body.on_emitted(row)

    @property
    def remaining(self) -> Sequence[int]:
        """The remaining jobs of the whole plan, ascending."""
        return self._left

    def job(self, place: int) -> int:
        """Return the index in the whole plan of a remaining job."""
        return self._left[place]

    def place(self, job: int) -> int | None:
        """Return the position among the remaining jobs of a job of the whole plan; None if it is kept."""
        found = bisect.bisect_left(self._left, job)
        return found if found < len(self._left) and self._left[found] == job else None

    def _own_job(self, job: Job[Any]) -> Job[Any]:
        return attrs.evolve(job, index=self.job(job.index))

    def _places(self, jobs: Iterable[int]) -> Iterator[int]:
        """Return the positions of those jobs that remain, in their order."""
        return (place for place in map(self.place, jobs) if place is not None)

    def _edges(self, edges: Sequence[Edge]) -> Sequence[Edge]:
        found = ((self.place(edge.on), edge) for edge in edges)
        return tuple(attrs.evolve(edge, on=place) for place, edge in found if place is not None)

    def _restore(self, step: Step) -> None:
        if self._memory.may_share(step):
            self._memory.restore(step, self._records.record(step.index))

    def _keep_whole_groups(self, layout: Layout) -> None:
        for span in layout.spans:
            for start in range(span.start, span.stop, span.width) if span.compared else ():
                group = range(start, start + span.width)
                if not all(self._is_kept[start : group.stop]) or self._is_unclear(group):
                    self._is_kept[start : group.stop] = bytes(span.width)

    def _is_unclear(self, group: range) -> bool:
        """Return whether a row may have stored its output before it was compared, but has no verdict."""
        return self._memory.shares_data and any(
            self._memory.may_store(self._steps[index])
            and self._records.record(index).get("gradingResult") is None
            for index in group
        )

    def _left_over(self) -> Iterator[int]:
        """Return the remaining jobs of the whole plan, ascending."""
        layout = self._layout
        if layout is None:
            return (index for index, is_kept in enumerate(self._is_kept) if not is_kept)
        return (job for job in range(len(layout)) if not self._is_kept[_step_of(job, layout)])


def _step_of(job: int, layout: Layout) -> int:
    """Return the step of a job, or the first one that it compares."""
    step, group = layout.step(job), layout.group(job)
    return group.start if step is None and group is not None else step or 0


@attrs.frozen
class _RemainingJobs(LazySequence[Job[Any]]):
    """The remaining jobs, created on access."""

    whole: Sequence[Job[Any]]
    left: Sequence[int]

    def __len__(self) -> int:
        return len(self.left)

    def entry(self, index: int) -> Job[Any]:
        return attrs.evolve(self.whole[self.left[index]], index=index)


@attrs.define(eq=False, repr=False)
class _ResumedReadiness(Readiness):
    """The readiness of the whole plan, in which kept jobs have succeeded."""

    _whole: Readiness
    _resumed: ResumedTask
    _serial: Iterable[int]
    """Serial jobs of the whole plan, which the readiness does not return."""

    def begin(self) -> Sequence[int]:
        """Return the jobs that may start at once, given that kept ones have succeeded."""
        found = [ReadinessUpdate(tuple(self._whole.begin()))]
        found += [
            self._whole.on_outcome(job, done=True)
            for job in self._serial
            if self._resumed.place(job) is None
        ]
        # Successful jobs block no other.
        return self._release(found).ready

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        """Return the jobs that an outcome releases, directly or through kept jobs."""
        return self._release([self._whole.on_outcome(self._resumed.job(index), done=done)])

    def rank(self, index: int) -> Rank:
        """Return the rank in the whole plan."""
        return self._whole.rank(self._resumed.job(index))

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:
        """Return the decision of the whole plan."""
        freed = self._whole.on_set_aside(self._resumed.job(index))
        return None if freed is None else self._release([freed])

    def _release(self, freed: Iterable[ReadinessUpdate]) -> ReadinessUpdate:
        """Return the released jobs that remain, ending each kept one that is released at once."""
        place = self._resumed.place
        ready: list[int] = []
        blocked: list[tuple[int, int]] = []
        waiting = deque(freed)
        while waiting:
            found = waiting.popleft()
            for job in found.ready:
                if (here := place(job)) is None:
                    waiting.append(self._whole.on_outcome(job, done=True))
                else:
                    ready.append(here)
            for job, by in found.blocked:
                here, there = place(job), place(by)
                if here is None:
                    waiting.append(self._whole.on_outcome(job, done=True))
                elif there is not None:
                    blocked.append((here, there))
        return ReadinessUpdate(ready, blocked)
