"""A part of a task: some of its jobs, as a plan without gaps.

The plan of the task does not change. The kernel gets the chosen jobs with consecutive indices, and all
indices of jobs are translated, in both directions: the start order, serial jobs, dependencies, outcomes. For
the readiness of the whole plan, the other jobs have ended successfully as soon as they may start.

A resumed task is the part without a result; a worker of a run on many machines gets a few rows at a time.
"""

import bisect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import Body, UnstartedRows
from trioeval.evaluation.waits import NO_WAITS
from trioeval.kernel import (
    Blocked,
    Calls,
    Done,
    Edge,
    Job,
    Outcome,
    Plan,
    Rank,
    Readiness,
    ReadinessUpdate,
)
from trioeval.sequences import LazySequence


class TaskPart:
    """The body of some jobs of a task; used for one run.

    Args:
        body: The body of the whole task.
        jobs: The jobs of its plan, ascending.
        order: Decides which of them may start, by their positions in the part; None derives that from the
            plan, which takes as long as that is large.
    """

    def __init__(
        self, body: Body, jobs: Sequence[int], order: Callable[[], Readiness] | None = None
    ) -> None:
        self._body = body
        self._jobs = jobs
        self._order = order

    def plan(self) -> Plan[Any]:
        """Return the plan of these jobs, with consecutive indices."""
        plan = self._body.plan()
        readiness, needs_no_lane = plan.readiness, plan.needs_no_lane
        return attrs.evolve(
            plan,
            jobs=_JobsOfPart(plan.jobs, self._jobs),
            serial_indices=tuple(self._places(plan.serial_indices)),
            edges={
                place: self._edges(plan.edges[job])
                for place, job in enumerate(self._jobs)
                if job in plan.edges
            }
            if plan.edges
            else plan.edges,
            readiness=self._order
            if self._order is not None or readiness is None or not self._jobs
            else lambda: _PartReadiness(readiness(), self, plan.serial_indices),
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
        """Return the rows that an outcome completes."""
        return self._body.rows(self._own_outcome(outcome), waits)

    def unstarted(self, jobs: range) -> UnstartedRows | None:
        """Return the rows of jobs that never started, up to the next job of another part."""
        first = self.job(jobs.start)
        # The n-th one after the first is n indices further as long as all rows between them are in the part.
        count = bisect.bisect_left(
            range(len(jobs)), 1, key=lambda n: self.job(jobs.start + n) - first > n
        )
        return self._body.unstarted(range(first, first + count))

    def on_emitted(self, row: Row) -> None:
        """Handle the emission of a row."""
        self._body.on_emitted(row)

    @property
    def remaining(self) -> Sequence[int]:
        """The jobs of the part in the whole plan, ascending."""
        return self._jobs

    def job(self, place: int) -> int:
        """Return the index in the whole plan of a job of the part."""
        return self._jobs[place]

    def place(self, job: int) -> int | None:
        """Return the position in the part of a job of the whole plan; None if it is in another part."""
        found = bisect.bisect_left(self._jobs, job)
        return found if found < len(self._jobs) and self._jobs[found] == job else None

    def _own_job(self, job: Job[Any]) -> Job[Any]:
        return _with_index(job, self.job(job.index))

    def _own_outcome(self, outcome: Outcome[Any]) -> Outcome[Any]:
        index = self.job(outcome.index)
        if isinstance(outcome, Done):  # most are: `attrs.evolve` takes a tenth of the time of a row
            return Done(
                index,
                outcome.started_at,
                outcome.finished_at,
                outcome.waited,
                outcome.calls,
                outcome.value,
            )
        if isinstance(outcome, Blocked):
            return Blocked(index, self.job(outcome.by))
        return attrs.evolve(outcome, index=index)

    def _places(self, jobs: Iterable[int]) -> Iterator[int]:
        """Return the positions of those jobs that are in the part, in their order."""
        return (place for place in map(self.place, jobs) if place is not None)

    def _edges(self, edges: Sequence[Edge]) -> Sequence[Edge]:
        found = ((self.place(edge.on), edge) for edge in edges)
        return tuple(attrs.evolve(edge, on=place) for place, edge in found if place is not None)


@attrs.frozen
class _JobsOfPart(LazySequence[Job[Any]]):
    """The jobs of a part, created on access."""

    whole: Sequence[Job[Any]]
    jobs: Sequence[int]

    def __len__(self) -> int:
        return len(self.jobs)

    def entry(self, index: int) -> Job[Any]:
        return _with_index(self.whole[self.jobs[index]], index)


def _with_index(job: Job[Any], index: int) -> Job[Any]:
    return Job(index, job.lane, job.payload, job.timeout, job.key)


@attrs.define(eq=False, repr=False)
class _PartReadiness(Readiness):
    """The readiness of the whole plan, in which jobs of other parts have succeeded."""

    _whole: Readiness
    _part: TaskPart
    _serial: Iterable[int]
    """Serial jobs of the whole plan, which the readiness does not return."""

    def begin(self) -> Sequence[int]:
        """Return the jobs that may start at once, given that those of other parts have succeeded."""
        found = [ReadinessUpdate(tuple(self._whole.begin()))]
        found += [
            self._whole.on_outcome(job, done=True)
            for job in self._serial
            if self._part.place(job) is None
        ]
        # Successful jobs block no other.
        return self._release(found).ready

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        """Return the jobs that an outcome releases, directly or through jobs of other parts."""
        return self._release([self._whole.on_outcome(self._part.job(index), done=done)])

    def rank(self, index: int) -> Rank:
        """Return the rank in the whole plan."""
        return self._whole.rank(self._part.job(index))

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:
        """Return the decision of the whole plan."""
        freed = self._whole.on_set_aside(self._part.job(index))
        return None if freed is None else self._release([freed])

    def _release(self, freed: Iterable[ReadinessUpdate]) -> ReadinessUpdate:
        """Return the released jobs of the part, ending each other one that is released at once."""
        place = self._part.place
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
