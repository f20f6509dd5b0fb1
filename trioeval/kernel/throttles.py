"""The throttle that a lane's description asks for."""

from typing import assert_never

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
