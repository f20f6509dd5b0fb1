"""The six ways in which a job can end; every job ends in exactly one of them (law TOTAL).

Instants are seconds on the Trio clock of the run.
"""

import enum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

import attrs

if TYPE_CHECKING:  # bare names, like `Outcome`, are valid annotations; see `jobs.P`
    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")


class StopReason(enum.Enum):
    """The reason why a job did not run to its end."""

    DEADLINE = "deadline"
    """The run's deadline passed."""
    STOP = "stop"
    """The caller set the `stop` event."""
    CANCEL = "cancel"
    """The caller's cancel scope was cancelled."""
    LANE = "lane"
    """The job's lane was closed: its provider refuses calls, or did not recover."""
    BUDGET = "budget_exceeded"
    """The budget is exhausted."""
    FAULT = "fault"
    """The run itself failed: the plan contradicts itself, or the consumer raised."""


@attrs.frozen
class _Ended:
    """The outcome of a job that was started.

    Instants and waits are those of its last run, if the job was salvaged.
    """

    index: int
    started_at: float
    finished_at: float
    waited: float
    """Seconds between the two that were not working time: waits for lanes, paces and back-offs."""
    calls: int
    """Requests that were started, including retries and earlier salvage rounds."""


@attrs.frozen
class Done(_Ended, Generic[V]):
    """The outcome of a body that returned."""

    value: V


@attrs.frozen
class Failed(_Ended):
    """The outcome of a body that raised."""

    error: Exception


@attrs.frozen
class TimedOut(_Ended):
    """The outcome of a job whose working time reached its timeout."""

    timeout: float


@attrs.frozen
class Interrupted(_Ended):
    """The outcome of a job that was started and then cut off."""

    cut: StopReason


@attrs.frozen
class Blocked:
    """The outcome of a job that depends on one that was not `Done`."""

    index: int
    by: int
    """The index of the job that blocks it."""


@attrs.frozen
class NotRun:
    """The outcome of a job that was never started."""

    index: int
    cut: StopReason
    reason: str | None = None
    """Details: why the lane was closed, or which part of the budget is used up."""


Started: TypeAlias = Done[V] | Failed | TimedOut | Interrupted
"""The outcomes of jobs that were started: they have instants, waits and calls."""

Outcome: TypeAlias = Done[V] | Failed | TimedOut | Interrupted | Blocked | NotRun
