"""How a lane makes its throttle, what it tells it of failures, and how it names what it hears."""

from typing import assert_never

import attrs

from trioeval.errors import CallError, PlanError
from trioeval.faults import Fault
from trioeval.kernel.events import Why
from trioeval.kernel.lane_spec import LaneSpec
from trioeval.rates import (
    AdaptiveLimit,
    AimdLimit,
    Breaker,
    Delivery,
    FixedLimit,
    GradientLimit,
    Pace,
    Throttle,
    TokenPace,
)


def make_throttle(spec: LaneSpec) -> Throttle:
    """A throttle that has learned nothing yet."""
    return Throttle(
        limit=_make_limit(spec),
        pace=Pace.per_minute(spec.rpm, burst=spec.burst, min_gap=spec.min_gap),
        tokens=None if spec.tpm is None else TokenPace.per_minute(spec.tpm, burst=spec.token_burst),
        breaker=Breaker(spec.breaker_threshold, spec.patience),
        backoff=spec.backoff,
        busy_backoff=spec.busy_backoff,
        delivery=None if spec.adaptive == "off" else Delivery(),
    )


def check_rates(spec: LaneSpec, rpm: float | None, tpm: float | None) -> None:
    """Refuse rates that a lane cannot be given while it runs.

    Raises:
        PlanError: One is out of its range, or is of tokens where the lane has no rate of them.
    """
    attrs.evolve(spec, rpm=rpm, tpm=tpm)  # refuses what no lane could have
    if tpm is not None and spec.tpm is None:
        # Calls under way have reserved nothing of it.
        msg = f"lane {spec.name!r}: has no rate of tokens that could be changed, got tpm={tpm!r}"
        raise PlanError(msg)


def learn_failure(
    throttle: Throttle,
    error: CallError,
    now: float,
    *,
    mark: int,
    in_flight: int,
    mishaps: int,
    refusals: int,
    spread: float,
) -> float | None:
    """Tell a throttle of a failed call.

    Args:
        throttle: Of the call's lane.
        error: What the call's sender made of the failure.
        now: The instant.
        mark: The throttle's mark when the call started.
        in_flight: Calls in flight, this one included.
        mishaps: Transient failures of the call, this one included.
        refusals: How often it was one too many, this time included.
        spread: A number from 0 to 1, by chance.

    Returns:
        The instant before which the call is not made again; None if there is no sense in that.
    """
    why, wait = str(error), error.retry_after
    match error.fault:
        case Fault.RATE_LIMITED:
            return throttle.congested(
                now,
                mark=mark,
                in_flight=in_flight,
                refusals=refusals,
                retry_after=wait,
                why=why,
                spread=spread,
            )
        case Fault.TRANSIENT:
            return throttle.failed(now, mishaps - 1, wait, why, spread)
        case Fault.FATAL:
            throttle.refused(why)
        case Fault.QUOTA_EXHAUSTED:
            throttle.exhausted(why)
        case Fault.REFUSED:
            pass
    return None


def pacer(throttle: Throttle, open_at: float, now: float) -> Why:
    """What it is that lets nothing start at `now`, but only at `open_at`."""
    if open_at == throttle.blocked_until:
        return Why.BLOCKED
    if open_at == throttle.gap_until > throttle.rated_until(now):
        return Why.DELAY
    return Why.PACE if open_at == throttle.rated_until(now) else Why.TOKENS


def _make_limit(spec: LaneSpec) -> AdaptiveLimit:
    match spec.adaptive:
        case "aimd":
            return AimdLimit(spec.width, spec.slow_start)
        case "latency":
            return GradientLimit(spec.width)
        case "off":
            return FixedLimit(spec.width)
        case other:
            assert_never(other)
