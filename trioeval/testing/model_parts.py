"""The jobs of the reference scheduler, and its predictions."""

import math
from typing import Literal, TypeAlias

import attrs

from trioeval.testing.scenario import AttemptScript, CallScript

Kind: TypeAlias = Literal["Done", "Failed", "TimedOut", "Interrupted", "Blocked", "NotRun"]


@attrs.frozen(order=True)
class PredictedCall:
    """One request, from its start to its end; ordered by start."""

    started_at: float
    index: int
    """The index of its job."""
    attempt: int
    """The number of the request in this run of the job, from 0."""
    lane: str
    ended_at: float


@attrs.frozen
class PredictedOutcome:
    """The predicted end of a job."""

    index: int
    kind: Kind
    """The name of the outcome's class."""
    finished_at: float
    """The instant at which it is known; the last end for jobs that were started."""


@attrs.frozen
class PredictedLane:
    """The predicted final state of a lane."""

    name: str
    limit: int
    """Calls that may be in flight after its recovery."""
    cuts: int
    """Number of cuts of that limit, including refused trials."""
    trials: int
    """Number of trials of one more call than had been refused."""
    recoveries: int
    """Number of recoveries with one probing call."""
    rates: frozenset[str]
    """`declared` and `measured`: the sources of rates that its spec does not name."""
    closed_at: float
    """The instant at which its breaker opened; infinite if it did not."""


@attrs.frozen
class Prediction:
    """All steps of a run."""

    calls: tuple[PredictedCall, ...]
    """In order of their starts."""
    outcomes: tuple[PredictedOutcome, ...]
    """`outcomes[i].index == i`."""
    lanes: tuple[PredictedLane, ...]
    """In the order of the scenario."""
    ended_at: float
    tied_at: frozenset[float]
    """Instants at which the rules leave the order open; empty if the prediction is the only right one."""


@attrs.define(eq=False, repr=False)
class ModelJob:
    """A job with its one call."""

    index: int
    call: CallScript
    """Its one call; for a job that makes none, its time and its lane."""
    timeout: float
    state: Literal["pending", "resting", "queued", "in flight", "paused", "failed", "over"] = (
        "pending"
    )
    """`paused` jobs are on no lane and pause; `failed` ones wait for a salvage round."""
    rounds: int = 0
    """Salvage rounds that it has been in."""
    number: int = 0
    """The number of the present or next request of this run of the job, from 0."""
    failures: int = 0
    """Failures in all runs of the job, of any kind."""
    earlier_failures: int = 0
    """Failures in earlier runs."""
    mishaps: int = 0
    """Transient failures in this run of the job."""
    refusals: int = 0
    """Refusals because of too many calls in this run of the job."""
    mark: int = 0
    """Number of calls of the lane that had ended when the present request started."""
    seen: tuple[int, int] = (0, 0)
    """Calls that the lane had served and refused at the first request of this run of the job."""
    served_before: int = 0
    """Calls that the lane had served since then when the job was last refused."""
    unserved_since: float = 0.0
    """The instant of the first refusal since that number last changed."""
    arrived: int = 0
    """Its position in the order of arrivals in queues."""
    worked: float = 0.0
    started_at: float = 0.0
    """The start of the present or last request."""
    failed_at: float = math.inf
    """The instant at which its last run failed."""
    on_lane: bool = True
    """False if it was found to need no lane, and left its own."""

    @property
    def live(self) -> bool:
        """True if it was started and is not over."""
        return self.state in ("resting", "queued", "in flight", "paused")

    @property
    def attempt(self) -> AttemptScript:
        """The present or next request."""
        return self.call.attempt(self.number)
