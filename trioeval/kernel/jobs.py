"""What is to be done: jobs, and the plan that lists them.

Pure data. A plan may be lazy: `jobs` is any sequence, so that a million pending jobs are a million
integers inside the kernel and become objects only when they start.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Generic, TypeVar

import attrs

from trioeval.errors import PlanError

P = TypeVar("P")


def _positive(_job: object, field: "attrs.Attribute[float]", value: float) -> None:
    if not value > 0:
        msg = f"Job.{field.name} must be more than 0 seconds, got {value!r}"
        raise PlanError(msg)


@attrs.frozen
class Job(Generic[P]):
    """One unit of work with one stable index and exactly one outcome."""

    index: int
    """Its place in the plan and among the results, from 0."""
    lane: str
    """The lane of its first call; the job is admitted when that lane can serve it."""
    payload: P
    """What the job's body needs; the kernel never looks at it."""
    timeout: float = attrs.field(default=math.inf, validator=_positive)
    """Seconds of working time: calls in flight and the body's own work, no waiting.

    A body that hides from cancellation, and returns after all, is done however late it is.
    """


@attrs.frozen
class Plan(Generic[P]):
    """Everything that one run does.

    `Plan.of` makes one from jobs at hand. A lazy plan names its lanes and serial jobs itself, because
    the kernel does not walk through a million jobs to find them.
    """

    jobs: Sequence[Job[P]]
    """`jobs[i].index == i`. Looked up once or twice a job, in no fixed order."""
    lanes: Collection[str]
    """The names of the lanes on which its jobs start."""
    serial_indices: Sequence[int] = ()
    """Jobs that run alone over all lanes, before the others; ascending."""
    serial: bool = False
    """Every job runs alone, in index order; other runs on the same lanes wait for the last of them."""

    @classmethod
    def of(
        cls,
        jobs: Iterable[Job[P]],
        *,
        serial_indices: Iterable[int] = (),
        serial: bool = False,
    ) -> "Plan[P]":
        """A plan of jobs that exist already.

        Raises:
            PlanError: The indices are not 0, 1, 2, … or a serial index names no job.
        """
        listed = tuple(jobs)
        alone = tuple(sorted(set(serial_indices)))
        plan = cls(listed, frozenset(job.lane for job in listed), alone, serial)
        for index in range(len(listed)):
            plan.job(index)
        plan.check_serial_indices()
        return plan

    def check_serial_indices(self) -> None:
        """Refuse serial indices that name no job or are not ascending.

        Raises:
            PlanError: With the indices that are wrong.
        """
        size = len(self.jobs)
        wrong = [
            index
            for position, index in enumerate(self.serial_indices)
            if not 0 <= index < size or (position and index <= self.serial_indices[position - 1])
        ]
        if wrong:
            msg = f"serial_indices must be ascending and name jobs of the plan (0 to {size - 1}), got {wrong}"
            raise PlanError(msg)

    def job(self, index: int) -> Job[P]:
        """The job at `index`.

        Raises:
            PlanError: The sequence cannot give it, holds a job with another index there, or the job's
                lane is not declared.
        """
        try:
            job = self.jobs[index]
        except Exception as error:
            msg = f"the plan cannot give its job {index}: {type(error).__name__}: {error}"
            raise PlanError(msg) from error
        if job.index != index:
            msg = (
                f"the job at position {index} of the plan has index {job.index}; they must be equal"
            )
            raise PlanError(msg)
        if job.lane not in self.lanes:
            msg = f"job {index} starts on lane {job.lane!r}; the plan declares {sorted(self.lanes)}"
            raise PlanError(msg)
        return job
