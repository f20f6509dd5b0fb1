"""The jobs of a task: one for each step, and one after each group of steps whose outputs are compared.

A group is the adjacent steps of one test, repeat and combination. Where their outputs are compared, a
separate job right after them in the plan does that. So a comparison has lanes, retries, a timeout and a
budget like any other job, its position among the outcomes lets the rows of its group be held back exactly
until it has ended, and nothing waits inside of another job.

The mapping between jobs and steps is computed, not stored: by binary search in spans of groups of one size.

Laws: ORDER, BLOCK.
"""

import bisect
from collections.abc import Iterable, Iterator, Sequence

import attrs

from trioeval.kernel import Job, Rank, Readiness, ReadinessUpdate
from trioeval.sequences import LazySequence
from trioeval.suite.expand import Expansion, Step, StepSpan


@attrs.frozen
class StepJobs(LazySequence[Job[Step]]):
    """The jobs of an expansion, created on access."""

    steps: Expansion
    lanes: tuple[str, ...]
    """The lane of each provider."""
    timeout: float
    """The timeout of each job in seconds of work."""

    def __len__(self) -> int:
        return len(self.steps)

    def entry(self, index: int) -> Job[Step]:
        """Return the job with an index."""
        step = self.steps.entry(index)
        return Job(step.index, self.lanes[step.provider_index], step, self.timeout)


def timeout_of(steps: Expansion) -> float:
    """Return the timeout of each step of a suite in seconds of work; infinite if it is not set."""
    timeout_ms = steps.suite.evaluate_options.timeout_ms
    return timeout_ms / 1000 if timeout_ms else float("inf")


@attrs.frozen
class Group:
    """The steps whose outputs one job compares."""

    start: int
    """Index of the first step."""
    stop: int
    """Index after the last step."""
    job: int
    """Index of the job that compares them."""


@attrs.frozen
class Layout:
    """The mapping of a plan's jobs to steps and comparisons.

    Example:
        >>> layout = Layout.of([StepSpan(0, 4, 2, compared=True)])
        >>> [layout.step(job) for job in range(len(layout))]
        [0, 1, None, 2, 3, None]
        >>> layout.group(5)
        Group(start=2, stop=4, job=5)
    """

    spans: tuple[StepSpan, ...]
    _jobs: tuple[int, ...]
    """The first job of each span, and at the end the number of all jobs."""

    @classmethod
    def of(cls, spans: Iterable[StepSpan]) -> "Layout":
        """Return the layout for steps in these consecutive spans."""
        listed = tuple(spans)
        jobs = [0]
        for span in listed:
            jobs.append(jobs[-1] + span.stop - span.start + _groups(span))
        return cls(listed, tuple(jobs))

    @property
    def compares(self) -> bool:
        """True if there is any comparison."""
        return any(span.compared for span in self.spans)

    def __len__(self) -> int:
        return self._jobs[-1]

    def step(self, job: int) -> int | None:
        """Return the index of a job's step; None for a comparison."""
        span, first = self._of_job(job)
        if not span.compared:
            return span.start + job - first
        group, within = divmod(job - first, span.width + 1)
        return None if within == span.width else span.start + group * span.width + within

    def whole(self, jobs: range) -> tuple[int, range]:
        """Return how many of the first jobs are complete groups, and their steps.

        Example:
            >>> layout = Layout.of(
            ...     [StepSpan(0, 4, 2, compared=True), StepSpan(4, 9, 5, compared=False)]
            ... )
            >>> layout.whole(range(3, 8)), layout.whole(range(4, 8)), layout.whole(range(6, 9))
            ((3, range(2, 4)), (0, range(0, 0)), (3, range(4, 7)))
        """
        if not jobs:
            return 0, range(0)
        span, first = self._of_job(jobs.start)
        if not span.compared:
            step = span.start + jobs.start - first
            count = min(len(jobs), span.stop - step)
            return count, range(step, step + count)
        groups, within = divmod(jobs.start - first, span.width + 1)
        if within:
            return 0, range(0)
        step = span.start + groups * span.width
        count = min(len(jobs) // (span.width + 1), (span.stop - step) // span.width)
        if not count:
            return 0, range(0)
        return count * (span.width + 1), range(step, step + count * span.width)

    def group(self, job: int) -> Group | None:
        """Return the group that a job belongs to, as one of its steps or as its comparison."""
        span, first = self._of_job(job)
        if not span.compared:
            return None
        number = (job - first) // (span.width + 1)
        start = span.start + number * span.width
        return Group(start, start + span.width, first + number * (span.width + 1) + span.width)

    def job(self, step: int) -> int:
        """Return the index of a step's job."""
        place = bisect.bisect_right(self.spans, step, key=lambda span: span.start) - 1
        span, within = self.spans[place], step - self.spans[place].start
        return self._jobs[place] + within + (within // span.width if span.compared else 0)

    def step_jobs(self) -> Iterator[int]:
        """Return the jobs of steps, ascending."""
        return (job for job in range(len(self)) if self.step(job) is not None)

    def _of_job(self, job: int) -> tuple[StepSpan, int]:
        place = bisect.bisect_right(self._jobs, job, hi=len(self.spans)) - 1
        return self.spans[place], self._jobs[place]


def _groups(span: StepSpan) -> int:
    return (span.stop - span.start) // span.width if span.compared else 0


@attrs.define(eq=False, repr=False)
class GroupReadiness(Readiness):
    """Lets a comparison start after all steps of its group, and steps when another readiness allows it."""

    _layout: Layout
    _steps: Readiness | None
    """Uses the steps' own indices; None lets all of them start at once."""
    _left: dict[int, int] = attrs.field(init=False, factory=dict)
    """Number of unfinished steps of comparisons some of whose steps have ended."""

    def begin(self) -> Sequence[int]:
        """Return the jobs of steps that may start at once."""
        if self._steps is None:
            return tuple(self._layout.step_jobs())
        return [self._layout.job(step) for step in self._steps.begin()]

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        """Return the jobs that a step's end releases: other steps, and its comparison after the last step."""
        step = self._layout.step(index)
        if step is None:
            return ReadinessUpdate()
        freed = (
            ReadinessUpdate()
            if self._steps is None
            else self._of_jobs(self._steps.on_outcome(step, done=done))
        )
        ready = list(freed.ready)
        group = self._layout.group(index)
        if group is not None:
            left = self._left.get(group.job, group.stop - group.start) - 1
            self._left[group.job] = left
            if not left:
                del self._left[group.job]
                ready.append(group.job)
        return ReadinessUpdate(ready, freed.blocked)

    def rank(self, index: int) -> Rank:
        """Return the rank of the step; comparisons come first."""
        step = self._layout.step(index)
        return () if step is None or self._steps is None else self._steps.rank(step)

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:
        """Return the steps' decision; the run decides about comparisons."""
        step = self._layout.step(index)
        freed = None if step is None or self._steps is None else self._steps.on_set_aside(step)
        return None if freed is None else self._of_jobs(freed)

    def _of_jobs(self, freed: ReadinessUpdate) -> ReadinessUpdate:
        job = self._layout.job
        return ReadinessUpdate(
            [job(step) for step in freed.ready],
            [(job(never), job(by)) for never, by in freed.blocked],
        )
