# Apart from `run.open_task`: it belongs to this package, which the other only uses.
"""A task of which some rows are there already: only the others are run.

The plan of the task stays what it is. What the kernel is given has no gaps, though: the jobs that are left,
moved together. Everything that speaks of jobs is translated, in both directions: the order in which they may
start, what runs serially, what they depend on, their outcomes. For whatever decides who may start when,
kept jobs are over and done as soon as they may start.

Rows that are kept have left outputs in registers and turns in conversations. Those are restored from what was
recorded before anything starts, so that a row sees what an uninterrupted run would have shown it.

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
from trioeval.evaluation.journal import KeptRows
from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import Body, Unstarted
from trioeval.evaluation.waits import NO_WAITS
from trioeval.kernel import Blocked, Calls, Edge, Freed, Job, Outcome, Plan, Rank, Readiness
from trioeval.sequences import LazySequence
from trioeval.suite.expand import Expansion, Step

_STRIDE = 100  # rows that are restored between two looks at the rest of the world


class Memory(Protocol):
    """What rows leave for later ones; `Tools` is one."""

    @property
    def remembers(self) -> bool:
        """Whether any row may leave anything."""
        ...

    def stores(self, step: Step, /) -> bool:
        """Whether a row may leave its output."""
        ...

    def leaves(self, step: Step, /) -> bool:
        """Whether a row may leave its output, or a turn."""
        ...

    def restore(self, step: Step, record: Mapping[str, Any], /) -> None:
        """Leave what a row left that was recorded."""
        ...

    def over(self, step: Step, /) -> None:
        """A row is over, and all with a lower index."""
        ...


class Resumed:
    """A body without the rows that are kept; good for one run.

    Args:
        body: What does all of the task.
        kept: The rows that are there already.
        steps: All of its steps.
        layout: Which of its jobs are steps, where some compare others.
        memory: What the rows share.
    """

    def __init__(
        self,
        body: Body,
        kept: KeptRows,
        steps: Expansion,
        layout: Layout | None,
        memory: Memory,
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
        """The indices of the rows that are kept, ascending."""
        return array("q", itertools.compress(range(len(self._is_kept)), self._is_kept))

    async def restore(self) -> None:
        """Restore what the kept rows left, as far as others may see it. Comes first; a checkpoint."""
        await trio.lowlevel.checkpoint()
        first, last = self._is_kept.find(0), self._is_kept.rfind(0)
        if first < 0 or not self._memory.remembers:
            return
        # Serial rows that are left look from before all that runs with others, wherever they stand.
        serial = self._steps.serial_indices
        settles = all(self._is_kept[index] for index in serial)
        # They come before whatever is settled below, as when they ran.
        for index in serial:
            if self._is_kept[index]:
                self._restore(self._steps[index])
        for count, index in enumerate(self.kept_rows(), 1):
            step = self._steps[index]
            if index < last and not step.test.options.run_serially:
                self._restore(step)
            if settles and index < first:
                self._memory.over(step)
            if count % _STRIDE == 0:
                await trio.lowlevel.checkpoint()

    def plan(self) -> Plan[Any]:
        """The jobs that are left, moved together."""
        plan = self._body.plan()
        readiness, needs_no_lane = plan.readiness, plan.needs_no_lane
        return attrs.evolve(
            plan,
            jobs=_Jobs(plan.jobs, self._left),
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
            else lambda: _Ready(readiness(), self, plan.serial_indices),
            needs_no_lane=None
            if needs_no_lane is None
            else lambda job: needs_no_lane(self._own_job(job)),
        )

    async def perform(self, job: Job[Any], calls: Calls[Any]) -> object:
        """The body of a job.

        Raises:
            TrioevalError: As for the whole task.
        """
        return await self._body.perform(self._own_job(job), calls)

    def rows(self, outcome: Outcome[Any], waits: Mapping[str, float] = NO_WAITS) -> Sequence[Row]:
        """The rows that an outcome makes known; none of them is kept."""
        own = attrs.evolve(outcome, index=self.job(outcome.index))
        if isinstance(own, Blocked):
            own = attrs.evolve(own, by=self.job(own.by))
        return self._body.rows(own, waits)

    def unstarted(self, jobs: range) -> Unstarted | None:
        """Rows of jobs that are left and never began, up to the next one that is kept."""
        first = self.job(jobs.start)
        # The n-th behind the first is n further on as long as none between them is kept.
        count = bisect.bisect_left(
            range(len(jobs)), 1, key=lambda n: self.job(jobs.start + n) - first > n
        )
        return self._body.unstarted(range(first, first + count))

    def emitted(self, row: Row) -> None:
        """A row is told of."""
        self._body.emitted(row)

    @property
    def left(self) -> Sequence[int]:
        """The jobs of the whole plan that are left, ascending."""
        return self._left

    def job(self, place: int) -> int:
        """The index in the whole plan of a job that is left."""
        return self._left[place]

    def place(self, job: int) -> int | None:
        """Which of the jobs that are left one of the whole plan is; None if it is kept."""
        found = bisect.bisect_left(self._left, job)
        return found if found < len(self._left) and self._left[found] == job else None

    def _own_job(self, job: Job[Any]) -> Job[Any]:
        return attrs.evolve(job, index=self.job(job.index))

    def _places(self, jobs: Iterable[int]) -> Iterator[int]:
        """Those of some jobs that are left, in their order."""
        return (place for place in map(self.place, jobs) if place is not None)

    def _edges(self, edges: Sequence[Edge]) -> Sequence[Edge]:
        found = ((self.place(edge.on), edge) for edge in edges)
        return tuple(attrs.evolve(edge, on=place) for place, edge in found if place is not None)

    def _restore(self, step: Step) -> None:
        if self._memory.leaves(step):
            self._memory.restore(step, self._records.record(step.index))

    def _keep_whole_groups(self, layout: Layout) -> None:
        for span in layout.spans:
            for start in range(span.start, span.stop, span.width) if span.compared else ():
                group = range(start, start + span.width)
                if not all(self._is_kept[start : group.stop]) or self._is_unclear(group):
                    self._is_kept[start : group.stop] = bytes(span.width)

    def _is_unclear(self, group: range) -> bool:
        """Whether a row has no verdict that may have left its output before it was compared."""
        return self._memory.remembers and any(
            self._memory.stores(self._steps[index])
            and self._records.record(index).get("gradingResult") is None
            for index in group
        )

    def _left_over(self) -> Iterator[int]:
        """The jobs of the whole plan that are left, ascending."""
        layout = self._layout
        if layout is None:
            return (index for index, is_kept in enumerate(self._is_kept) if not is_kept)
        return (job for job in range(len(layout)) if not self._is_kept[_step_of(job, layout)])


def _step_of(job: int, layout: Layout) -> int:
    """The step that a job is, or one of those that it compares."""
    step, group = layout.step(job), layout.group(job)
    return group.start if step is None and group is not None else step or 0


@attrs.frozen
class _Jobs(LazySequence[Job[Any]]):
    """The jobs that are left, made when they are looked at."""

    whole: Sequence[Job[Any]]
    left: Sequence[int]

    def __len__(self) -> int:
        return len(self.left)

    def entry(self, index: int) -> Job[Any]:
        return attrs.evolve(self.whole[self.left[index]], index=index)


@attrs.define(eq=False)
class _Ready(Readiness):
    """As ready as the whole plan says, in which kept jobs are done."""

    _whole: Readiness
    _resumed: Resumed
    _serial: Iterable[int]
    """Serial jobs of the whole plan: nobody names them."""

    def begin(self) -> Sequence[int]:
        """The jobs that may start at once, kept ones being done."""
        found = [Freed(tuple(self._whole.begin()))]
        found += [
            self._whole.over(job, done=True)
            for job in self._serial
            if self._resumed.place(job) is None
        ]
        # What is done blocks nobody.
        return self._pass_on(found).ready

    def over(self, index: int, *, done: bool) -> Freed:
        """What an outcome sets free, and what kept jobs do that it sets free."""
        return self._pass_on([self._whole.over(self._resumed.job(index), done=done)])

    def rank(self, index: int) -> Rank:
        """As in the whole plan."""
        return self._whole.rank(self._resumed.job(index))

    def aside(self, index: int) -> Freed | None:
        """As in the whole plan."""
        freed = self._whole.aside(self._resumed.job(index))
        return None if freed is None else self._pass_on([freed])

    def _pass_on(self, freed: Iterable[Freed]) -> Freed:
        """What becomes free of the jobs that are left, when every kept one that does is over at once."""
        place = self._resumed.place
        ready: list[int] = []
        blocked: list[tuple[int, int]] = []
        waiting = deque(freed)
        while waiting:
            found = waiting.popleft()
            for job in found.ready:
                if (here := place(job)) is None:
                    waiting.append(self._whole.over(job, done=True))
                else:
                    ready.append(here)
            for job, by in found.blocked:
                here, there = place(job), place(by)
                if here is None:
                    waiting.append(self._whole.over(job, done=True))
                elif there is not None:
                    blocked.append((here, there))
        return Freed(ready, blocked)
