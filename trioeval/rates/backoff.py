"""The delay before a failed call is retried.

The problem: calls that fail together come back together, and fail together again. The rule is exponential
back-off with *full jitter*: the delay is drawn evenly from zero up to a bound that doubles with every attempt
(Brooker, "Exponential Backoff And Jitter", AWS architecture blog, 2015). Not a fixed half plus a drawn half:
the calls would still come in waves, and the sum of all delays would not be less.

A server that fails at random serves the next attempt as well as a later one, so the delay is no longer than
the lane has seen nothing but failures; only the delay before the first retry is drawn from its whole bound.
After an outage of t seconds the calls are thus back within t seconds.

If the server names the wait, it is observed in full and the jitter is added to it.

The random number is an argument: the lane draws it.
"""

import enum
import math

import attrs

from trioeval.errors import PlanError

# The circuit breaker: three ways in which a provider shows that it will not serve.
#
# It refuses every caller (a wrong key, a missing model) several times in a row; it reports that the account
# is exhausted; or nothing at all has succeeded for longer than the lane's patience. An open breaker stays
# open until it is reset: a provider that refused permanently is not called again automatically.
#
# Between closed and open there is half-open: the lane recovers from a block and sends one probe at a time
# (see `throttle`).


_A_TRY = 60.0
"""Seconds that a call may take until it fails."""


class BreakerState(enum.Enum):
    """True if calls may pass."""

    CLOSED = "closed"
    """Calls pass."""
    HALF_OPEN = "half_open"
    """A few calls pass, to find out whether the provider serves again."""
    OPEN = "open"
    """No calls pass."""


@attrs.define(eq=False, repr=False)
class Breaker:
    """A circuit breaker, which counts the failures of a provider.

    Args:
        threshold: Fatal refusals in a row that open it, ≥ 1.
        patience: Seconds of failures without one success that open it, > 0.
    """

    threshold: int = 3
    patience: float = 300.0
    reason: str | None = attrs.field(init=False, default=None)
    """The reason why it is open; None if it is not."""
    _refusals: int = attrs.field(init=False, default=0)
    _trouble: float = attrs.field(init=False, default=0.0)
    """Seconds of failures since the last success."""
    _since: float = attrs.field(init=False, default=0.0)
    """The instant of the first failure since the last success; meaningless before one."""
    _last_at: float | None = attrs.field(init=False, default=None)
    """The instant of the last reported failure."""
    _rest: float = attrs.field(init=False, default=0.0)
    """Seconds after that in which no attempt was due."""

    @property
    def untroubled(self) -> bool:
        """True if no failure was counted since the provider's last success."""
        return self._refusals == 0 and self._last_at is None

    def failing_for(self, now: float) -> float:
        """Return the seconds since the first failure after the last success; 0 if there is none."""
        return 0.0 if self._last_at is None else now - self._since

    def succeeded(self) -> None:
        """Count a success: all earlier failures are forgotten."""
        self._refusals, self._trouble, self._last_at = 0, 0.0, None

    def refused(self, why: str) -> None:
        """Count a permanent refusal."""
        self._refusals += 1
        if self._refusals >= self.threshold:
            self.exhausted(f"{self._refusals} calls in a row were refused: {why}")

    def exhausted(self, why: str) -> None:
        """Open the breaker: the account will not be served any more."""
        if self.reason is None:
            self.reason = why

    def troubled(self, now: float, rest: float, why: str) -> None:
        """Count a failure: the provider was busy or unreachable, with `rest` seconds until the next attempt.

        Time without attempts is not counted as failure: a lane that is unused, or starts one call in an hour,
        has not waited for its provider. So at most the rest plus a minute is counted.
        """
        if self._last_at is None:
            self._since = now
        else:
            self._trouble += min(now - self._last_at, self._rest + _A_TRY)
        self._last_at, self._rest = now, rest
        if self._trouble >= self.patience:
            self.exhausted(f"no success in {self._trouble:g} s of trouble: {why}")

    def observe_wait(self, seconds: float, why: str) -> None:
        """Note a wait that the provider asked for; one longer than the patience opens the breaker at once."""
        if seconds > self.patience:
            limit = f"longer than the patience of {self.patience:g} s"
            self.exhausted(f"asked to wait {seconds:g} s, {limit}: {why}")

    def reset(self) -> None:
        """Close the breaker and forget all failures."""
        self.reason = None
        self.succeeded()


_AFTER_HINT = 1.0
"""The most seconds of jitter added to a wait that the server named."""
_SHARE_OF_HINT = 5
"""The largest part of that wait which the jitter may add."""


@attrs.frozen
class Backoff:
    """The bounds of the wait between two attempts.

    Raises:
        PlanError: A bound is out of range.

    Example:
        >>> backoff = Backoff(base=1.0, cap=60.0)
        >>> [backoff.delay(attempt, spread=0.5) for attempt in (0, 1, 2, 9)]
        [0.5, 1.0, 2.0, 30.0]
        >>> backoff.after_hint(20.0, spread=0.5)
        20.5
    """

    base: float = attrs.field(default=0.5)
    """The most seconds before the first retry, ≥ 0 and finite: twice the mean; 0 never waits."""
    cap: float = attrs.field(default=60.0)
    """The most seconds before any retry, ≥ `base` and finite."""

    @base.validator
    def _check_base(self, _field: "attrs.Attribute[float]", value: float) -> None:
        if not 0 <= value < math.inf:
            msg = f"backoff: base must be at least 0 seconds and finite, got {value!r}"
            raise PlanError(msg)

    @cap.validator
    def _check_cap(self, _field: "attrs.Attribute[float]", value: float) -> None:
        if not self.base <= value < math.inf:
            msg = (
                f"backoff: cap must be at least base ({self.base!r}) seconds and finite, "
                f"got {value!r}"
            )
            raise PlanError(msg)

    def delay(self, attempt: int, spread: float, failing_for: float = math.inf) -> float:
        """Return the seconds to wait after a failure.

        Args:
            attempt: Failures before this one, ≥ 0.
            spread: A random number from 0 (included) to 1 (excluded).
            failing_for: Seconds for which all calls of the lane have failed, ≥ 0: the bound, if more than
                `base`.

        Returns:
            From 0 to `cap`; with the same `spread` never less than after fewer failures.
        """
        try:
            bound = min(self.cap, math.ldexp(self.base, attempt))
        except OverflowError:  # more than any float, so more than the cap
            bound = self.cap
        return spread * min(bound, max(self.base, failing_for))

    def after_hint(self, hint: float, spread: float) -> float:
        """Return the seconds to wait after a failure that named a wait.

        Args:
            hint: Seconds that the server asks to wait, ≥ 0 and finite.
            spread: A random number from 0 (included) to 1 (excluded).

        Returns:
            At least `hint`, and at most a second or a fifth of it more, the smaller of both.
        """
        return hint + spread * min(_AFTER_HINT, hint / _SHARE_OF_HINT)
