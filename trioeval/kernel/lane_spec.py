"""What a lane allows, and what it says of itself."""

import math
from collections.abc import Callable
from typing import Literal, TypeAlias, assert_never

import attrs

from trioeval.errors import PlanError
from trioeval.kernel.events import Why
from trioeval.rates import (
    AimdLimit,
    Backoff,
    Breaker,
    BreakerState,
    Delivery,
    GradientLimit,
    Limit,
    Pace,
    Throttle,
    TokenPace,
)

Adaptive: TypeAlias = Literal["aimd", "latency", "off"]
Oversize: TypeAlias = Literal["alone", "refuse"]

_BUSY = Backoff(base=0.5)


@attrs.frozen
class LaneSpec:
    """What a lane allows.

    Raises:
        PlanError: A value is out of its range.

    Example:
        >>> LaneSpec("gpt", 8, rpm=500, tpm=200_000).retries
        3
    """

    name: str = attrs.field()
    width: int = attrs.field(default=4)
    """Calls in flight at once, ≥ 1; the adaptive limit moves between 1 and this."""
    rpm: float | None = attrs.field(default=None, kw_only=True)
    """Requests per minute, > 0 and finite; None sets no rate."""
    burst: int = attrs.field(default=1, kw_only=True)
    """Requests that may start together after a pause, ≥ 1."""
    tpm: float | None = attrs.field(default=None, kw_only=True)
    """Tokens per minute, > 0 and finite; None sets no rate."""
    token_burst: int = attrs.field(default=0, kw_only=True)
    """Tokens that may be used at once beyond the rate after a pause, ≥ 0."""
    min_gap: float = attrs.field(default=0.0, kw_only=True)
    """Least seconds between two starts, ≥ 0 and finite."""
    adaptive: Adaptive = attrs.field(default="aimd", kw_only=True)
    """How the limit moves: by refusals (`aimd`), by latency as well (`latency`), or not at all (`off`)."""
    slow_start: bool = attrs.field(default=False, kw_only=True)
    """Whether the limit begins at 1 and doubles while all goes well; for `aimd`."""
    retries: int = attrs.field(default=3, kw_only=True)
    """How often a call that failed by mishap is made again, ≥ 0."""
    max_retries: int | None = attrs.field(default=None, kw_only=True)
    """How often a call is made again for whatever reason, ≥ 0; None leaves refusals to the patience."""
    backoff: Backoff = attrs.field(default=Backoff(), kw_only=True)
    """How long a call waits that failed by mishap."""
    busy_backoff: Backoff = attrs.field(default=_BUSY, kw_only=True)
    """How long a call waits that was refused because there were too many, and not told how long."""
    patience: float = attrs.field(default=300.0, kw_only=True)
    """Seconds of trouble without one success after which the lane is closed, > 0."""
    breaker_threshold: int = attrs.field(default=3, kw_only=True)
    """Fatal refusals in a row after which the lane is closed, ≥ 1."""
    oversize: Oversize = attrs.field(default="alone", kw_only=True)
    """What becomes of a call of more tokens than a minute's: it starts alone, or is refused."""

    @name.validator
    def _check_name(self, _field: "attrs.Attribute[str]", value: str) -> None:
        if not value:
            self._refuse("name", "a text that is not empty", value)

    @width.validator
    @burst.validator
    @breaker_threshold.validator
    def _check_count(self, field: "attrs.Attribute[int]", value: int) -> None:
        self._require_whole(field.name, value, 1)

    @retries.validator
    @token_burst.validator
    def _check_number(self, field: "attrs.Attribute[int]", value: int) -> None:
        self._require_whole(field.name, value, 0)

    @max_retries.validator
    def _check_bound(self, field: "attrs.Attribute[int | None]", value: int | None) -> None:
        if value is not None:
            self._require_whole(field.name, value, 0)

    @rpm.validator
    @tpm.validator
    def _check_rate(self, field: "attrs.Attribute[float | None]", value: float | None) -> None:
        if value is not None and not 0 < value < math.inf:
            self._refuse(field.name, "more than 0 and finite", value)

    @min_gap.validator
    def _check_gap(self, _field: "attrs.Attribute[float]", value: float) -> None:
        if not 0 <= value < math.inf:
            self._refuse("min_gap", "at least 0 seconds and finite", value)

    @busy_backoff.validator
    def _check_busy(self, _field: "attrs.Attribute[Backoff]", value: Backoff) -> None:
        # A server that refuses at once would be asked again in the same instant, for ever.
        if not value.base > 0:
            self._refuse("busy_backoff", "a back-off whose base is more than 0 seconds", value)

    @patience.validator
    def _check_patience(self, _field: "attrs.Attribute[float]", value: float) -> None:
        if not value > 0:
            self._refuse("patience", "more than 0 seconds", value)

    @adaptive.validator
    def _check_adaptive(self, _field: "attrs.Attribute[Adaptive]", value: Adaptive) -> None:
        if value not in ("aimd", "latency", "off"):
            self._refuse("adaptive", "aimd, latency or off", value)

    @oversize.validator
    def _check_oversize(self, _field: "attrs.Attribute[Oversize]", value: Oversize) -> None:
        if value not in ("alone", "refuse"):
            self._refuse("oversize", "alone or refuse", value)

    def _require_whole(self, field: str, value: int, least: int) -> None:
        if type(value) is not int or value < least:
            self._refuse(field, f"a whole number of at least {least}", value)

    def _refuse(self, field: str, right: str, value: object) -> None:
        msg = f"lane {self.name!r}: {field} must be {right}, got {value!r}"
        raise PlanError(msg)


@attrs.frozen
class LaneStatistics:
    """A snapshot of a lane; later changes do not appear in it."""

    name: str
    width: int
    limit: int
    """Calls that may be in flight now, ≤ `width`; 0 while the lane is paused or closed."""
    in_flight: int
    waiting: int
    """Calls, and next jobs of runs, that stand in line."""
    resting: int
    """Failed calls whose back-off is not over."""
    why: Why | None
    """What the first in line waits for; None if nobody stands there."""
    next_start_at: float
    """The instant before which pace or block allow no start; -inf if the lane is open."""
    blocked_until: float
    state: BreakerState
    paused: bool
    reason: str | None
    """Why the lane is closed."""
    started: int
    """Requests so far, retries among them."""
    succeeded: int
    refused: int
    """Requests that were refused because there were too many."""
    retried: int
    """Requests that were made again."""
    cuts: int
    """How often the adaptive limit was cut."""
    rpm: float | None
    """Requests per minute that the lane allows itself; None sets no rate."""
    tpm: float | None
    """Likewise tokens."""


Rng: TypeAlias = Callable[[], float]
"""Gives a number from 0 to 1, like `random.random`."""


# How a lane makes its throttle, what it tells it of failures, and how it names what it hears.


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


def pacer(throttle: Throttle, open_at: float, now: float) -> Why:
    """What it is that lets nothing start at `now`, but only at `open_at`."""
    if open_at == throttle.blocked_until:
        return Why.BLOCKED
    if open_at == throttle.gap_until > throttle.rated_until(now):
        return Why.DELAY
    return Why.PACE if open_at == throttle.rated_until(now) else Why.TOKENS


def _make_limit(spec: LaneSpec) -> Limit:
    match spec.adaptive:
        case "aimd":
            return AimdLimit(spec.width, spec.slow_start)
        case "latency":
            return GradientLimit(spec.width)
        case "off":
            return Limit(spec.width)
        case other:
            assert_never(other)
