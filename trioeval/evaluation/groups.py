"""The jobs of a task: one a step, and one behind each group of steps whose outputs are compared.

A group is the steps of one test, repeat and combination, which stand side by side. Where their outputs are
compared, a job of its own does that, right behind them in the plan. So a comparison has lanes, retries, a
timeout and a budget like any other job, its place among the outcomes lets the rows of its group be held back
until it is over and no longer, and nothing waits inside of another job.

Which job is which is computed, not stored: spans of groups of one size are searched by halves.

Laws: ORDER, BLOCK.
"""

import bisect
from collections.abc import Iterable, Iterator, Sequence

import attrs

from trioeval.kernel import Freed, Job, Rank, Readiness
from trioeval.sequences import LazySequence
from trioeval.suite.expand import Expansion, Span, Step


@attrs.frozen
class StepJobs(LazySequence[Job[Step]]):
    """The jobs of an expansion, made when they are looked at."""

    steps: Expansion
    lanes: tuple[str, ...]
    """Of each provider."""
    timeout: float
    """Seconds of work that each may take."""

    def __len__(self) -> int:
        return len(self.steps)

    def entry(self, index: int) -> Job[Step]:
        """The job with an index."""
        step = self.steps.entry(index)
        return Job(step.index, self.lanes[step.provider_index], step, self.timeout)


def timeout_of(steps: Expansion) -> float:
    """Seconds of work that each step of a suite may take; infinite where it does not say."""
    timeout_ms = steps.suite.evaluate_options.timeout_ms
    return timeout_ms / 1000 if timeout_ms else float("inf")


@attrs.frozen
class Group:
    """The steps whose outputs one job compares."""

    start: int
    """Index of the first step."""
    stop: int
    """Index behind the last step."""
    job: int
    """Index of the job that compares them."""


@attrs.frozen
class Layout:
    """Which jobs of a plan are steps, and which compare.

    Example:
        >>> layout = Layout.of([Span(0, 4, 2, compared=True)])
        >>> [layout.step(job) for job in range(len(layout))]
        [0, 1, None, 2, 3, None]
        >>> layout.group(5)
        Group(start=2, stop=4, job=5)
    """

    spans: tuple[Span, ...]
    _jobs: tuple[int, ...]
    """The first job of each span, and behind them the number of all jobs."""

    @classmethod
    def of(cls, spans: Iterable[Span]) -> "Layout":
        """That of steps in these spans, which follow each other."""
        listed = tuple(spans)
        jobs = [0]
        for span in listed:
            jobs.append(jobs[-1] + span.stop - span.start + _groups(span))
        return cls(listed, tuple(jobs))

    @property
    def compares(self) -> bool:
        """Whether there is any comparison."""
        return any(span.compared for span in self.spans)

    def __len__(self) -> int:
        return self._jobs[-1]

    def step(self, job: int) -> int | None:
        """The index of the step that a job is; None if it compares."""
        span, first = self._of_job(job)
        if not span.compared:
            return span.start + job - first
        group, within = divmod(job - first, span.width + 1)
        return None if within == span.width else span.start + group * span.width + within

    def whole(self, jobs: range) -> tuple[int, range]:
        """How many of some jobs, the first ones, are all of their groups, and the steps that these are.

        Example:
            >>> layout = Layout.of([Span(0, 4, 2, compared=True), Span(4, 9, 5, compared=False)])
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
        """The group that a job belongs to, as one of its steps or as what compares them."""
        span, first = self._of_job(job)
        if not span.compared:
            return None
        number = (job - first) // (span.width + 1)
        start = span.start + number * span.width
        return Group(start, start + span.width, first + number * (span.width + 1) + span.width)

    def job(self, step: int) -> int:
        """The index of the job that a step is."""
        place = bisect.bisect_right(self.spans, step, key=lambda span: span.start) - 1
        span, within = self.spans[place], step - self.spans[place].start
        return self._jobs[place] + within + (within // span.width if span.compared else 0)

    def step_jobs(self) -> Iterator[int]:
        """The jobs that are steps, ascending."""
        return (job for job in range(len(self)) if self.step(job) is not None)

    def _of_job(self, job: int) -> tuple[Span, int]:
        place = bisect.bisect_right(self._jobs, job, hi=len(self.spans)) - 1
        return self.spans[place], self._jobs[place]


def _groups(span: Span) -> int:
    return (span.stop - span.start) // span.width if span.compared else 0


@attrs.define(eq=False)
class ByGroups(Readiness):
    """A comparison waits for all steps of its group; steps are as ready as another readiness says."""

    _layout: Layout
    _steps: Readiness | None
    """Knows steps by their own indices; None lets all of them start at once."""
    _left: dict[int, int] = attrs.field(init=False, factory=dict)
    """Comparisons of whose steps some are over, and how many are not."""

    def begin(self) -> Sequence[int]:
        """The jobs of steps that may start at once."""
        if self._steps is None:
            return tuple(self._layout.step_jobs())
        return [self._layout.job(step) for step in self._steps.begin()]

    def over(self, index: int, *, done: bool) -> Freed:
        """What a step sets free: other steps, and the comparison that waited for it last."""
        step = self._layout.step(index)
        if step is None:
            return Freed()
        freed = Freed() if self._steps is None else self._of_jobs(self._steps.over(step, done=done))
        ready = list(freed.ready)
        group = self._layout.group(index)
        if group is not None:
            left = self._left.get(group.job, group.stop - group.start) - 1
            self._left[group.job] = left
            if not left:
                del self._left[group.job]
                ready.append(group.job)
        return Freed(ready, freed.blocked)

    def rank(self, index: int) -> Rank:
        """That of the step; comparisons come first."""
        step = self._layout.step(index)
        return () if step is None or self._steps is None else self._steps.rank(step)

    def aside(self, index: int) -> Freed | None:
        """As the steps say; the run decides about comparisons."""
        step = self._layout.step(index)
        freed = None if step is None or self._steps is None else self._steps.aside(step)
        return None if freed is None else self._of_jobs(freed)

    def _of_jobs(self, freed: Freed) -> Freed:
        job = self._layout.job
        return Freed(
            [job(step) for step in freed.ready],
            [(job(never), job(by)) for never, by in freed.blocked],
        )
