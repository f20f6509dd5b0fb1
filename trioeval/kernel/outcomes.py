"""How a job can end: six ways, and every job ends in exactly one of them (law TOTAL).

Instants are seconds on the Trio clock of the run.
"""

import enum
from typing import Generic, TypeAlias, TypeVar

import attrs

V = TypeVar("V")


class Cut(enum.Enum):
    """What kept a job from running to its end."""

    DEADLINE = "deadline"
    """The run's deadline passed."""
    STOP = "stop"
    """The caller set the `stop` event."""
    CANCEL = "cancel"
    """The caller's cancel scope was cancelled."""
    LANE = "lane"
    """The job's lane was closed: its provider refuses, or did not recover."""
    BUDGET = "budget_exceeded"
    """What the run was allowed to use is used up."""
    FAULT = "fault"
    """The run itself failed: the plan contradicts itself, or the consumer raised."""


@attrs.frozen
class _Ended:
    """A job that was started.

    Instants and waits are of its last run, if the job was salvaged.
    """

    index: int
    started_at: float
    finished_at: float
    waited: float
    """Seconds between the two that did not count as working time: waits for lanes, paces and back-offs."""
    calls: int
    """Requests that were started, retries and earlier salvage rounds among them."""


@attrs.frozen
class Done(_Ended, Generic[V]):
    """The body returned."""

    value: V


@attrs.frozen
class Failed(_Ended):
    """The body raised."""

    error: Exception


@attrs.frozen
class TimedOut(_Ended):
    """The body's working time reached the job's timeout."""

    timeout: float


@attrs.frozen
class Interrupted(_Ended):
    """The job was started and then cut off."""

    cut: Cut


@attrs.frozen
class Blocked:
    """A job that it depends on was not done."""

    index: int
    by: int
    """The index of that job."""


@attrs.frozen
class NotRun:
    """The job was never started."""

    index: int
    cut: Cut
    reason: str | None = None
    """More about it: why the lane was closed, what is used up."""


Started: TypeAlias = Done[V] | Failed | TimedOut | Interrupted
"""The outcomes of jobs that were started: they have instants, waits and calls."""

Outcome: TypeAlias = Done[V] | Failed | TimedOut | Interrupted | Blocked | NotRun
