"""What the reference scheduler keeps of jobs and lanes, and what it says in the end.

Nothing is summed up as it goes along: a lane keeps all of its past starts and computes its rates from
their definition each time it is asked.
"""

import math
from typing import Literal, TypeAlias

import attrs

from trioeval.kernel import Backoff, LaneSpec
from trioeval.testing.scenario import Attempt, Call

Kind: TypeAlias = Literal["Done", "Failed", "TimedOut", "Interrupted", "Blocked", "NotRun"]

_RECOVER_AFTER = 4  # refusals in a row after which a lane recovers, hinted or not


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
class Prediction:
    """All that a run will do."""

    calls: tuple[PredictedCall, ...]
    """In order of their starts."""
    outcomes: tuple[PredictedOutcome, ...]
    """`outcomes[i].index == i`."""
    ended_at: float
    tied_at: frozenset[float]
    """Instants at which the rules leave the order open; empty if the prediction is the only right one."""


@attrs.define(eq=False)
class ModelJob:
    """A job with its one call."""

    index: int
    call: Call
    """Its one call; of a free job its time and its lane, where it makes none."""
    timeout: float
    state: Literal["pending", "resting", "in line", "in flight", "paused", "failed", "over"] = (
        "pending"
    )
    """`paused` jobs are free and pass their time; `failed` ones wait for a salvage round."""
    rounds: int = 0
    """Salvage rounds that it has been in."""
    number: int = 0
    """Of the present or next request of this run of the job, from 0."""
    failures: int = 0
    """Of this run of the job, of any kind."""
    mishaps: int = 0
    """Of this run of the job, transient."""
    refusals: int = 0
    """Of this run of the job: how often it was one too many."""
    mark: int = 0
    """The lane's generation when the present request started."""
    worked: float = 0.0
    started_at: float = 0.0
    """Of the present or last request."""
    failed_at: float = math.inf
    """When its last run failed."""
    answer: bool | None = None
    """Whether it said that it is free; None before it was asked."""

    @property
    def live(self) -> bool:
        """Whether it was started and is not over."""
        return self.state in ("resting", "in line", "in flight", "paused")

    @property
    def attempt(self) -> Attempt:
        """What the present or next request does."""
        return self.call.attempt(self.number)


@attrs.define(eq=False)
class ModelLane:
    """A lane that does not adapt."""

    spec: LaneSpec
    in_flight: int = 0
    starts: list[float] = attrs.field(factory=list)
    used: list[int] = attrs.field(factory=list)
    """Tokens, start by start: what was reserved, and after the end what was used."""
    blocked_until: float = -math.inf
    congestions: int = 0
    """Generations without a success: what is in flight at a refusal is one."""
    generation: int = 0
    elders: int = 0
    """Calls in flight that belong to the present generation or an earlier one."""
    allowance: int | None = None
    """Calls that may be in flight while it recovers."""
    recovering_since: float = -math.inf
    looked_at: float = -math.inf
    """The instant at which it is already looked at again."""
    asks: bool = False
    """Whether a job of it is being asked whether it is free."""
    trouble_since: float | None = None
    """When what went wrong since the last success began."""

    def opens_at(self) -> float:
        """The first instant at which its rates allow a start; -inf if they are open."""
        opens_at, spec = self.blocked_until, self.spec
        if not self.starts:
            return opens_at
        if spec.rpm is not None:
            period = 60 / spec.rpm
            due = _due_at(self.starts, [period] * len(self.starts))
            opens_at = max(opens_at, due - (spec.burst - 1) * period)
        if spec.tpm is not None:
            period = 60 / spec.tpm
            due = _due_at(self.starts, [period * tokens for tokens in self.used])
            opens_at = max(opens_at, due - spec.token_burst * period)
        return max(opens_at, self.starts[-1] + spec.min_gap)

    @property
    def has_slot(self) -> bool:
        """Whether one more call may be in flight."""
        limit = self.spec.width if self.allowance is None else self.allowance
        return self.in_flight < limit

    def succeeded(self, started_at: float) -> None:
        """A call that started at `started_at` was served."""
        self.congestions, self.trouble_since, self.elders = 0, None, 0
        if self.allowance is not None and started_at >= self.recovering_since:
            self.allowance *= 2
            if self.allowance >= self.spec.width:
                self.allowance = None

    def ended(self, mark: int) -> None:
        """A call of some generation is over and was not served."""
        if self.elders and mark < self.generation:
            self.elders -= 1

    def congested(self, now: float, attempt: Attempt, job: ModelJob, spread: float) -> float:
        """A call was refused because there were too many; returns the seconds that it rests.

        If all that was in flight at a refusal ends without a success, the server serves nobody. If the wait
        that it named did not help, or that has happened several times without a wait being named, the lane
        is blocked for longer each time.
        """
        hint = attempt.retry_after
        if self.elders:
            self.ended(job.mark)
        else:
            self.congestions += 1
            self.generation += 1
            self.elders = self.in_flight
        if hint is not None or self.congestions >= _RECOVER_AFTER:
            self._recover(now, hint)
        return _rest(self.spec.busy_backoff, hint, max(job.refusals, self.congestions) - 1, spread)

    def failed(self, now: float, attempt: Attempt, mishaps: int, spread: float) -> float:
        """A call failed by mishap, and has failed so before; returns the seconds that it rests."""
        if attempt.retry_after is not None:
            self._recover(now, attempt.retry_after)
        return _rest(self.spec.backoff, attempt.retry_after, mishaps, spread)

    def _recover(self, now: float, hint: float | None) -> None:
        """Nothing starts before the wait that was named is over, and then one call probes."""
        if hint is not None:
            self.blocked_until = max(self.blocked_until, now + hint)
        self.allowance, self.recovering_since = 1, now
        longer = self.congestions - (_RECOVER_AFTER if hint is None else 1)
        if longer >= (0 if hint is None else 1):
            backoff = self.spec.busy_backoff
            rest = min(backoff.cap, backoff.base * 2.0**longer)
            self.blocked_until = max(self.blocked_until, now + rest)

    def troubled(self, now: float, retry_after: float | None) -> bool:
        """A call failed in a way that should pass: whether it has gone on for longer than the patience."""
        if self.trouble_since is None:
            self.trouble_since = now
        patience = self.spec.patience
        return now - self.trouble_since >= patience or (retry_after or 0.0) > patience


def _rest(backoff: Backoff, hint: float | None, exponent: int, spread: float) -> float:
    if hint is not None:
        return hint + spread * min(1.0, hint / 5)
    return spread * min(backoff.cap, backoff.base * 2.0**exponent)


def _due_at(starts: list[float], costs: list[float]) -> float:
    """The instant at which all that was started is paid for, at one second a second, without a credit."""
    return max(start + sum(costs[first:]) for first, start in enumerate(starts))
