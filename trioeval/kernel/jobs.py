"""Jobs, and the plan that lists them.

Pure data. A plan may be lazy: `jobs` is any sequence, so that a million pending jobs are a million integers
inside the kernel and become objects only when they start.
"""

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias

import attrs

from trioeval.errors import PlanError

# The default makes bare names, like `Job`, valid annotations. At run time it would need Python 3.13.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    P = TypeVar("P", default=Any)
else:
    from typing import TypeVar

    P = TypeVar("P")

J = TypeVar("J")

Rank: TypeAlias = tuple[float, ...]
"""The rank of a job among those of its lane that may start: lower ranks first, `()` before all others."""


def _positive(_job: object, field: "attrs.Attribute[float]", value: float) -> None:
    if not value > 0:
        msg = f"Job.{field.name} must be more than 0 seconds, got {value!r}"
        raise PlanError(msg)


@attrs.frozen
class Job(Generic[P]):
    """One unit of work with one stable index and exactly one outcome."""

    index: int
    """Its position in the plan and among the results, from 0."""
    lane: str | None
    """The lane of its first call, which admits the job when it can serve it; None waits for no lane."""
    payload: P
    """The input of the job's body; the kernel never reads it."""
    timeout: float = attrs.field(default=math.inf, validator=_positive)
    """Seconds of working time: calls in flight and the body's own work, not waits.

    A body that shields itself from cancellation and returns after all is `Done`, however late.
    """
    key: Hashable = None
    """Jobs with equal keys run in index order, one at a time, while others run freely; None without a key."""


@attrs.frozen
class Edge:
    """A dependency on another job."""

    on: int
    """The index of the job that is waited for."""
    when: Literal["success", "always"] = attrs.field(default="success")
    """`success`: the dependant starts when the job is `Done`, and is `Blocked` by any other outcome;
    `always`: it starts after any outcome."""

    @when.validator
    def _check(self, _field: "attrs.Attribute[str]", value: str) -> None:
        if value not in ("success", "always"):
            msg = f"Edge.when must be success or always, got {value!r}"
            raise PlanError(msg)


@attrs.frozen
class ReadinessUpdate:
    """The jobs that an outcome releases and those that it blocks; `ready` is applied before `blocked`."""

    ready: Sequence[int] = ()
    """Jobs that may start now; jobs that are set aside may be named again."""
    blocked: Sequence[tuple[int, int]] = ()
    """Jobs that never start, each with the job that blocks it.

    A job that may start and has not, or is set aside, is withdrawn: it gets its outcome now, `Blocked` or the
    failure with which it was set aside.
    """


class Readiness(Protocol):
    """The protocol by which a plan decides, while it runs, which jobs may start and in which order.

    For plans whose dependencies are too many or too regular to be listed as edges. Each method is called
    synchronously and should cost in proportion to what it returns. Serial jobs run before all others in any
    case: a readiness need not name them, and is notified of their outcomes. By default jobs start in index
    order and the run chooses the time of salvage rounds.
    """

    def begin(self) -> Iterable[int]:
        """Return the jobs that may start at once; called first, and once."""
        ...

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        """Note that a job has its outcome; called once for every job, including blocked ones.

        A job is named as ready once, by `begin` or later, and once more each time that it was set aside. It
        may be blocked as long as it has no outcome and is not running.
        """
        ...

    def rank(self, index: int) -> Rank:  # noqa: ARG002 - the same for all
        """Return the job's rank on its lane: of the jobs that may start, the lowest (rank, index) is first.

        Called each time that the job becomes ready; the rank then stays fixed.
        """
        return ()

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:  # noqa: ARG002 - the same for all
        """Note that a job failed transiently and has a salvage round left; choose the time of the round.

        Returns:
            None leaves the time to the run: when no other job can continue. Otherwise the jobs that may start
            now; this readiness will name the job as ready at the time of its round, in this or a later
            return value. Not called for serial jobs: their round comes before the next serial job.
        """
        return None


@attrs.frozen
class Plan(Generic[P]):
    """All work of one run.

    `Plan.of` builds one from existing jobs. A lazy plan declares its lanes and serial jobs itself, because
    the kernel does not walk through a million jobs to find them.
    """

    jobs: Sequence[Job[P]]
    """`jobs[i].index == i`. Each job is looked up once or twice, in no fixed order."""
    lanes: Collection[str | None]
    """The names of the lanes on which its jobs start; includes None if some jobs are on no lane."""
    serial_indices: Sequence[int] = ()
    """Jobs that run alone over all lanes, before the others; ascending."""
    serial: bool = False
    """Every job runs alone, in index order; other runs on the same lanes wait for the last of them."""
    edges: Mapping[int, Sequence[Edge]] = attrs.field(factory=dict)
    """The dependencies of each job; jobs without dependencies may be left out."""
    readiness: Callable[[], Readiness] | None = None
    """Makes the object that decides, instead of edges, which jobs may start; None lets all of them start."""
    needs_no_lane: Callable[[Job[P]], bool] | None = None
    """True if a job no longer needs a call on its lane, because its reply is known.

    Called when the job becomes the next of its lane. If true, the job leaves the lane and starts without
    waiting for it. Must return at once; an exception counts as false. None leaves every job on its lane.
    """

    @staticmethod  # with its own type variable: the one of a bare `Plan` is `Any`
    def of(
        jobs: Iterable[Job[J]],
        *,
        serial_indices: Iterable[int] = (),
        serial: bool = False,
        edges: Mapping[int, Iterable[int | Edge]] | None = None,
    ) -> "Plan[J]":
        """Return a plan of existing jobs.

        Args:
            jobs: In the order of their indices.
            serial_indices: Jobs that run alone, before the others.
            serial: Whether all jobs run alone.
            edges: The dependencies of each job; a bare index is a dependency on its success.

        Raises:
            PlanError: The indices are not 0, 1, 2, …, or a serial index or an edge is not the index of a job.
        """
        listed = tuple(jobs)
        alone = tuple(sorted(set(serial_indices)))
        depends = {
            index: tuple(on if isinstance(on, Edge) else Edge(on) for on in several)
            for index, several in (edges or {}).items()
        }
        plan = Plan(listed, frozenset(job.lane for job in listed), alone, serial, depends)
        for index in range(len(listed)):
            plan.job(index)
        plan.check_serial_indices()
        return plan

    @property
    def alone(self) -> Sequence[int]:
        """The jobs that run alone, before the others; ascending."""
        return range(len(self.jobs)) if self.serial else self.serial_indices

    def check_serial_indices(self) -> None:
        """Raise if a serial index is not the index of a job, or if the indices are not ascending.

        Raises:
            PlanError: With the wrong indices.
        """
        size = len(self.jobs)
        pairs = itertools.pairwise((-1, *self.serial_indices))
        wrong = [index for before, index in pairs if not max(before, -1) < index < size]
        if wrong:
            msg = f"serial_indices must be ascending and name jobs of the plan (0 to {size - 1}), got {wrong}"
            raise PlanError(msg)

    def job(self, index: int) -> Job[P]:
        """Return the job at `index`.

        Raises:
            PlanError: The sequence raises, holds a job with another index there, or the job's lane is not
                declared.
        """
        try:
            job = self.jobs[index]
        except Exception as error:
            msg = f"the plan cannot return job {index}: {type(error).__name__}: {error}"
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

    def inspected(self, job: Job[P]) -> Job[P]:
        """Return the next job of a lane; without a lane if it needs none."""
        if self.needs_no_lane is None or job.lane is None:
            return job
        try:
            is_known = self.needs_no_lane(job)
        except Exception:  # noqa: BLE001 - the body will meet the same problem and report it
            return job
        return attrs.evolve(job, lane=None) if is_known else job


def _check_key(job: Job[P]) -> None:
    try:
        hash(job.key)
    except TypeError:
        msg = f"job {job.index} has the key {job.key!r}; a key must be hashable"
        raise PlanError(msg) from None
