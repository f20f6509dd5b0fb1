"""What is to be done: jobs, and the plan that lists them.

Pure data. A plan may be lazy: `jobs` is any sequence, so that a million pending jobs are a million
integers inside the kernel and become objects only when they start.
"""

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import attrs

from trioeval.errors import PlanError

P = TypeVar("P")
Rank: TypeAlias = tuple[float, ...]
"""Where a job stands among those of its lane that may start: lower ranks first, `()` before all others."""


def _positive(_job: object, field: "attrs.Attribute[float]", value: float) -> None:
    if not value > 0:
        msg = f"Job.{field.name} must be more than 0 seconds, got {value!r}"
        raise PlanError(msg)


@attrs.frozen
class Job(Generic[P]):
    """One unit of work with one stable index and exactly one outcome."""

    index: int
    """Its place in the plan and among the results, from 0."""
    lane: str | None
    """The lane of its first call, which admits the job when it can serve it; None waits for no lane."""
    payload: P
    """What the job's body needs; the kernel never looks at it."""
    timeout: float = attrs.field(default=math.inf, validator=_positive)
    """Seconds of working time: calls in flight and the body's own work, no waiting.

    A body that hides from cancellation, and returns after all, is done however late it is.
    """
    key: Hashable = None
    """Jobs with equal keys run in index order, one at a time, while others run freely; None is no key."""


@attrs.frozen
class Edge:
    """A job that another one waits for."""

    on: int
    """Its index."""
    when: Literal["success", "always"] = attrs.field(default="success")
    """`success`: the other starts when it is `Done`, and is `Blocked` by any other outcome; `always`: the
    other starts after any outcome."""

    @when.validator
    def _check(self, _field: "attrs.Attribute[str]", value: str) -> None:
        if value not in ("success", "always"):
            msg = f"Edge.when must be success or always, got {value!r}"
            raise PlanError(msg)


@attrs.frozen
class Freed:
    """What an outcome sets free, and what it puts an end to; `ready` counts before `blocked`."""

    ready: Sequence[int] = ()
    """Jobs that may start now; those that are set aside may be named again."""
    blocked: Sequence[tuple[int, int]] = ()
    """Jobs that never will, each with the job that blocks it.

    Jobs that may start and have not, or are set aside, are withdrawn: they get their outcome now, `Blocked`,
    or the failure that they were set aside with.
    """


class Readiness(Protocol):
    """Which jobs may start when, and in which order, decided while the plan runs.

    For plans whose dependencies are too many or too regular to be written down as edges. Each method is
    called synchronously and should cost in proportion to what it returns. Serial jobs run before all
    others whatever it says: it need not name them, and it is told of their outcomes. Subclasses start jobs
    in index order and leave salvage to the run unless they say otherwise.
    """

    def begin(self) -> Iterable[int]:
        """The jobs that may start at once; asked for first, and once."""
        ...

    def over(self, index: int, *, done: bool) -> Freed:
        """A job has its outcome; told of every job once, blocked ones among them.

        A job is named once as ready, by `begin` or later, and once more each time that it was set aside. It
        may be blocked as long as it has no outcome and is not under way.
        """
        ...

    def rank(self, index: int) -> Rank:  # noqa: ARG002 - the same for all
        """Where a job stands on its lane: of those that may start the lowest (rank, index) does so first.

        Asked each time that the job comes to be one of them; what it says then stays.
        """
        return ()

    def aside(self, index: int) -> Freed | None:  # noqa: ARG002 - the same for all
        """A job failed by mishap, and has a salvage round left: who says when that comes.

        Returns:
            None leaves it to the run: when nothing else of it can go on. What may start now says that this
            readiness will name the job as ready when its round has come, now or in a later answer.
            Serial jobs are not asked about: their round comes before the next of them.
        """
        return None


@attrs.frozen
class Plan(Generic[P]):
    """Everything that one run does.

    `Plan.of` makes one from jobs at hand. A lazy plan names its lanes and serial jobs itself, because
    the kernel does not walk through a million jobs to find them.
    """

    jobs: Sequence[Job[P]]
    """`jobs[i].index == i`. Looked up once or twice a job, in no fixed order."""
    lanes: Collection[str | None]
    """The names of the lanes on which its jobs start; with None if `jobs` holds some on no lane."""
    serial_indices: Sequence[int] = ()
    """Jobs that run alone over all lanes, before the others; ascending."""
    serial: bool = False
    """Every job runs alone, in index order; other runs on the same lanes wait for the last of them."""
    edges: Mapping[int, Sequence[Edge]] = attrs.field(factory=dict)
    """What each job depends on; jobs without dependencies need not appear."""
    readiness: Callable[[], Readiness] | None = None
    """Makes what decides, in place of edges, which jobs may start; None lets all of them."""
    needs_no_lane: Callable[[Job[P]], bool] | None = None
    """Whether a job needs no call of its lane by now: its reply is known.

    Called when the job becomes the next of its lane, which it then leaves: it is a job on no lane, and
    starts whatever the lane waits for. Must return at once; an exception means no. None leaves every job
    where it is.
    """

    @classmethod
    def of(
        cls,
        jobs: Iterable[Job[P]],
        *,
        serial_indices: Iterable[int] = (),
        serial: bool = False,
        edges: Mapping[int, Iterable[int | Edge]] | None = None,
    ) -> "Plan[P]":
        """A plan of jobs that exist already.

        Args:
            jobs: In the order of their indices.
            serial_indices: Jobs that run alone, before the others.
            serial: Whether all of them do.
            edges: What each job depends on; a bare index is a dependency on its success.

        Raises:
            PlanError: The indices are not 0, 1, 2, …, or a serial index or an edge names no job.
        """
        listed = tuple(jobs)
        alone = tuple(sorted(set(serial_indices)))
        depends = {
            index: tuple(on if isinstance(on, Edge) else Edge(on) for on in several)
            for index, several in (edges or {}).items()
        }
        plan = cls(listed, frozenset(job.lane for job in listed), alone, serial, depends)
        for index in range(len(listed)):
            plan.job(index)
        plan.check_serial_indices()
        return plan

    @property
    def alone(self) -> Sequence[int]:
        """The jobs that run alone, before the others; ascending."""
        return range(len(self.jobs)) if self.serial else self.serial_indices

    def check_serial_indices(self) -> None:
        """Refuse serial indices that name no job or are not ascending.

        Raises:
            PlanError: With the indices that are wrong.
        """
        size = len(self.jobs)
        pairs = itertools.pairwise((-1, *self.serial_indices))
        wrong = [index for before, index in pairs if not max(before, -1) < index < size]
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
        if job.key is not None and not isinstance(job.key, str):
            _check_key(job)
        if job.lane not in self.lanes:
            declared = sorted(self.lanes, key=lambda lane: lane or "")
            msg = f"job {index} starts on lane {job.lane!r}; the plan declares {declared}"
            raise PlanError(msg)
        return job

    def looked_at(self, job: Job[P]) -> Job[P]:
        """The next job of a lane; on no lane if it needs none."""
        if self.needs_no_lane is None or job.lane is None:
            return job
        try:
            is_known = self.needs_no_lane(job)
        except Exception:  # noqa: BLE001 - whatever is wrong with the job its body will find too
            return job
        return attrs.evolve(job, lane=None) if is_known else job


def _check_key(job: Job[P]) -> None:
    try:
        hash(job.key)
    except TypeError:
        msg = f"job {job.index} has the key {job.key!r}; a key must be hashable"
        raise PlanError(msg) from None
