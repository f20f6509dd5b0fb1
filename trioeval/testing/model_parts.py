"""What the reference scheduler keeps of jobs, and what it says in the end."""

import math
from typing import Literal, TypeAlias

import attrs

from trioeval.testing.scenario import Attempt, Call

Kind: TypeAlias = Literal["Done", "Failed", "TimedOut", "Interrupted", "Blocked", "NotRun"]


@attrs.frozen(order=True)
class PredictedCall:
    """One request, from its start to its end; ordered by start."""

    started_at: float
    index: int
    """Of the job."""
    attempt: int
    """Which of the requests of this run of the job it is, from 0."""
    lane: str
    ended_at: float


@attrs.frozen
class PredictedOutcome:
    """How a job ends."""

    index: int
    kind: Kind
    """The name of the outcome's class."""
    finished_at: float
    """When it is known; the instant of the last end for jobs that were started."""


@attrs.frozen
class PredictedLane:
    """What a lane has learned in the end."""

    name: str
    limit: int
    """Calls that may be in flight when it has recovered."""
    cuts: int
    """How often that limit was cut, refused trials included."""
    trials: int
    """How often one more was tried than had been refused."""
    recoveries: int
    """How often it was left with one call that probes."""
    rates: frozenset[str]
    """`told` and `measured`: where it had a rate from that its spec does not name."""
    closed_at: float
    """When its breaker opened; infinite if it never did."""


@attrs.frozen
class Prediction:
    """All that a run will do."""

    calls: tuple[PredictedCall, ...]
    """In order of their starts."""
    outcomes: tuple[PredictedOutcome, ...]
    """`outcomes[i].index == i`."""
    lanes: tuple[PredictedLane, ...]
    """In the order of the scenario."""
    ended_at: float
    tied_at: frozenset[float]
    """Instants at which the rules leave the order open; empty if the prediction is the only right one."""


@attrs.define(eq=False)
class ModelJob:
    """A job with its one call."""

    index: int
    call: Call
    """Its one call; of a job that makes none its time and its lane."""
    timeout: float
    state: Literal["pending", "resting", "in line", "in flight", "paused", "failed", "over"] = (
        "pending"
    )
    """`paused` jobs are on no lane and pass their time; `failed` ones wait for a salvage round."""
    rounds: int = 0
    """Salvage rounds that it has been in."""
    number: int = 0
    """Of the present or next request of this run of the job, from 0."""
    failures: int = 0
    """Of all runs of the job, of any kind."""
    earlier_failures: int = 0
    """Those of earlier runs."""
    mishaps: int = 0
    """Of this run of the job, transient."""
    refusals: int = 0
    """Of this run of the job: how often it was one too many."""
    mark: int = 0
    """How many calls of the lane had ended when the present request started."""
    seen: tuple[int, int] = (0, 0)
    """Calls that the lane had served, and refused, when this run of the job made its first request."""
    served_before: int = 0
    """Calls that the lane had served since then when the job was last refused."""
    unserved_since: float = 0.0
    """The first refusal after the last of those."""
    arrived: int = 0
    """When it came to stand in line, among all that do."""
    worked: float = 0.0
    started_at: float = 0.0
    """Of the present or last request."""
    failed_at: float = math.inf
    """When its last run failed."""
    on_lane: bool = True
    """Whether it is on a lane; one that is found to need none leaves its own."""

    @property
    def live(self) -> bool:
        """Whether it was started and is not over."""
        return self.state in ("resting", "in line", "in flight", "paused")

    @property
    def attempt(self) -> Attempt:
        """What the present or next request does."""
        return self.call.attempt(self.number)
