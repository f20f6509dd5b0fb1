"""The configuration of a lane, and a snapshot of its state."""

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, assert_never, get_args

import attrs

from trioeval.errors import PlanError
from trioeval.kernel.events import WaitReason
from trioeval.rates import (
    AimdLimit,
    Backoff,
    Breaker,
    BreakerState,
    GradientLimit,
    Limit,
    MeasuredRate,
    Pace,
    Throttle,
    TokenPace,
)

Adaptive: TypeAlias = Literal["aimd", "latency", "off"]
Oversize: TypeAlias = Literal["alone", "refuse"]

Rng: TypeAlias = Callable[[], float]
"""Returns a number from 0 to 1, like `random.random`."""


def _must_be(right: str, holds: Callable[[Any], bool]) -> Callable[["LaneSpec", Any, Any], None]:
    """Return a validator that accepts values for which `holds` is true, and None if that is the default."""

    def check(spec: "LaneSpec", field: "attrs.Attribute[Any]", value: object) -> None:
        if not (value is None and field.default is None) and not holds(value):
            msg = f"lane {spec.name!r}: {field.name} must be {right}, got {value!r}"
            raise PlanError(msg)

    return check


def _is_whole(least: int) -> Callable[["LaneSpec", Any, Any], None]:
    right = f"a whole number of at least {least}"
    return _must_be(right, lambda value: type(value) is int and value >= least)


_IS_RATE = _must_be("more than 0 and finite", lambda value: 0 < value < math.inf)
_IS_DELAY = _must_be("at least 0 seconds and finite", lambda value: 0 <= value < math.inf)
_IS_SPAN = _must_be("more than 0 seconds", lambda value: value > 0)
# Without a delay the server, which refuses at once, would be called again at the same instant, for ever.
_IS_REST = _must_be("more than 0 seconds and finite", lambda value: 0 < value < math.inf)


@attrs.frozen
class LaneSpec:
    """The configuration of a lane.

    Its attributes have the names of the keys of a lane in a suite file.

    Raises:
        PlanError: A value is out of its range.

    Example:
        >>> LaneSpec("gpt", 8, rpm=500, tpm=200_000).retries
        3
    """

    name: str = attrs.field(validator=_must_be("a text that is not empty", bool))
    max_concurrency: int = attrs.field(validator=_is_whole(1), default=4)
    """Calls in flight at once, ≥ 1; the adaptive limit moves between 1 and this."""
    rpm: float | None = attrs.field(validator=_IS_RATE, default=None, kw_only=True)
    """Requests per minute, > 0 and finite; None sets no rate."""
    burst: int = attrs.field(validator=_is_whole(1), default=1, kw_only=True)
    """Requests that may start together after a pause, ≥ 1."""
    tpm: float | None = attrs.field(validator=_IS_RATE, default=None, kw_only=True)
    """Tokens per minute, > 0 and finite; None sets no rate."""
    token_burst: int = attrs.field(validator=_is_whole(0), default=0, kw_only=True)
    """Tokens that may be used at once beyond the rate after a pause, ≥ 0."""
    min_gap: float = attrs.field(validator=_IS_DELAY, default=0.0, kw_only=True)
    """Least seconds between two starts, ≥ 0 and finite."""
    adaptive: Adaptive = attrs.field(
        validator=_must_be("aimd, latency or off", get_args(Adaptive).__contains__),
        default="aimd",
        kw_only=True,
    )
    """The rule of the limit: refusals (`aimd`), latency as well (`latency`), or none (`off`)."""
    slow_start: bool = attrs.field(default=False, kw_only=True)
    """True if the limit starts at 1 and doubles until the first failure; for `aimd`."""
    retries: int = attrs.field(validator=_is_whole(0), default=3, kw_only=True)
    """Attempts after the first for a call with transient failures, ≥ 0."""
    max_retries: int | None = attrs.field(validator=_is_whole(0), default=None, kw_only=True)
    """Attempts after the first for any reason, ≥ 0; None bounds refused calls by `patience` only."""
    retry_delay: float = attrs.field(validator=_IS_DELAY, default=0.5, kw_only=True)
    """Most seconds before the first retry after a transient failure, ≥ 0 and finite; doubles with each."""
    refusal_delay: float = attrs.field(validator=_IS_REST, default=0.5, kw_only=True)
    """Most seconds before the first retry after a refusal (too many requests) without a retry-after hint, > 0
    and finite; doubles with each."""
    max_retry_delay: float = attrs.field(validator=_IS_DELAY, default=60.0, kw_only=True)
    """Most seconds to which these delays grow, ≥ 0 and finite; a larger first delay stays as it is."""
    patience: float = attrs.field(validator=_IS_SPAN, default=300.0, kw_only=True)
    """Seconds of failures without one success after which the lane is closed, > 0."""
    breaker_threshold: int = attrs.field(validator=_is_whole(1), default=3, kw_only=True)
    """Fatal refusals in a row after which the lane is closed, ≥ 1."""
    oversize: Oversize = attrs.field(
        validator=_must_be("alone or refuse", get_args(Oversize).__contains__),
        default="alone",
        kw_only=True,
    )
    """The treatment of a call that exceeds a minute's tokens: start it alone, or refuse it."""

    def make_throttle(self) -> Throttle:
        """Return a throttle in its initial state."""
        return Throttle(
            limit=self._make_limit(),
            pace=Pace.per_minute(self.rpm, burst=self.burst, min_gap=self.min_gap),
            tokens=None
            if self.tpm is None
            else TokenPace.per_minute(self.tpm, burst=self.token_burst),
            breaker=Breaker(self.breaker_threshold, self.patience),
            backoff=self._make_backoff(self.retry_delay),
            busy_backoff=self._make_backoff(self.refusal_delay),
            measured_rate=None if self.adaptive == "off" else MeasuredRate(),
        )

    def _make_backoff(self, first: float) -> Backoff:
        return Backoff(base=first, cap=max(self.max_retry_delay, first))

    def _make_limit(self) -> Limit:
        match self.adaptive:
            case "aimd":
                return AimdLimit(self.max_concurrency, self.slow_start)
            case "latency":
                return GradientLimit(self.max_concurrency)
            case "off":
                return Limit(self.max_concurrency)
            case other:
                assert_never(other)


@attrs.frozen
class LaneStatistics:
    """A snapshot of a lane; later changes do not appear in it."""

    name: str
    max_concurrency: int
    limit: int
    """Calls that may be in flight now, ≤ `max_concurrency`; 0 while the lane is paused or closed."""
    in_flight: int
    waiting: int
    """Calls, and next jobs of runs, in the queue."""
    resting: int
    """Failed calls that wait for the end of their back-off."""
    why: WaitReason | None
    """The reason why the first waiter in the queue waits; None if the queue is empty."""
    next_start_at: float
    """The instant before which the pace or a block allows no start; -inf if the lane is open."""
    blocked_until: float
    state: BreakerState
    paused: bool
    reason: str | None
    """The reason why the lane is closed; None if it is open."""
    started: int
    """Requests so far, including retries."""
    succeeded: int
    refused: int
    """Requests that the provider refused because there were too many."""
    retried: int
    """Requests that were retries."""
    cuts: int
    """Number of cuts of the adaptive limit."""
    rpm: float | None
    """Requests per minute that the lane allows; None sets no rate."""
    tpm: float | None
    """Tokens per minute that the lane allows; None sets no rate."""
