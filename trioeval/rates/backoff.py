"""How long a failed call waits before it is made again.

The problem: calls that fail together come back together, and fail together again. The rule is exponential
back-off with *full jitter*: the wait is drawn evenly from nothing up to a bound that doubles with every
attempt (Brooker, "Exponential Backoff And Jitter", AWS architecture blog, 2015). Not a fixed half plus a
drawn half: the calls would still come in waves, and the sum of all waits would not be less.

Where the server names the wait, it is kept in full and the chance comes on top of it.

The chance itself is an argument: the lane draws it.
"""

import enum
import math

import attrs

from trioeval.errors import PlanError

# When to give a lane up: three ways in which a provider shows that it will not serve.
#
# It refuses whoever calls (a wrong key, a missing model) several times in a row; it says that the account
# is used up; or nothing at all has succeeded for longer than the lane's patience. An open breaker stays open
# until somebody resets it: a provider that refused for good is not asked again by itself.
#
# Between closed and open stands half-open: the lane recovers from a block and sends one probe at a time
# (see `throttle`).


_A_TRY = 60.0
"""Seconds that a call may take to come to nothing."""


class BreakerState(enum.Enum):
    """Whether calls may pass."""

    CLOSED = "closed"
    """They pass."""
    HALF_OPEN = "half_open"
    """Few pass, to find out whether the provider serves again."""
    OPEN = "open"
    """None pass."""


@attrs.define(eq=False)
class Breaker:
    """Counts what speaks against a provider.

    Args:
        threshold: Fatal refusals in a row that open it, ≥ 1.
        patience: Seconds of trouble without one success that open it, > 0.
    """

    threshold: int = 3
    patience: float = 300.0
    reason: str | None = attrs.field(init=False, default=None)
    """Why it is open; None if it is not."""
    _refusals: int = attrs.field(init=False, default=0)
    _trouble: float = attrs.field(init=False, default=0.0)
    """Seconds of trouble since the last success."""
    _last_at: float | None = attrs.field(init=False, default=None)
    """When trouble was told last."""
    _rest: float = attrs.field(init=False, default=0.0)
    """Seconds that nobody was to try again after that."""

    @property
    def untroubled(self) -> bool:
        """Whether nothing speaks against the provider since its last success."""
        return self._refusals == 0 and self._last_at is None

    def succeeded(self) -> None:
        """The provider serves: whatever spoke against it is over."""
        self._refusals, self._trouble, self._last_at = 0, 0.0, None

    def refused(self, why: str) -> None:
        """It refused for good."""
        self._refusals += 1
        if self._refusals >= self.threshold:
            self.exhausted(f"{self._refusals} calls in a row were refused: {why}")

    def exhausted(self, why: str) -> None:
        """Open it: the account will not be served any more."""
        if self.reason is None:
            self.reason = why

    def troubled(self, now: float, rest: float, why: str) -> None:
        """It was busy or could not be reached, and is left alone for `rest` seconds.

        Time in which nobody tried is no trouble: a lane that is not used, or starts one call in an hour,
        has not waited for its provider. So no more counts than the rest and a minute.
        """
        if self._last_at is not None:
            self._trouble += min(now - self._last_at, self._rest + _A_TRY)
        self._last_at, self._rest = now, rest
        if self._trouble >= self.patience:
            self.exhausted(f"no success in {self._trouble:g} s of trouble: {why}")

    def asked_to_wait(self, seconds: float, why: str) -> None:
        """It asked for a wait; one that is longer than the patience is not begun."""
        if seconds > self.patience:
            limit = f"longer than the patience of {self.patience:g} s"
            self.exhausted(f"asked to wait {seconds:g} s, {limit}: {why}")

    def reset(self) -> None:
        """Begin anew, closed."""
        self.reason = None
        self.succeeded()


_AFTER_HINT = 1.0
"""Most seconds that chance adds to a wait that the server named."""
_SHARE_OF_HINT = 5
"""And the part of that wait which it adds at most."""


@attrs.frozen
class Backoff:
    """The bounds of the wait between two attempts.

    Raises:
        PlanError: A bound is out of its range.

    Example:
        >>> backoff = Backoff(base=1.0, cap=60.0)
        >>> [backoff.delay(attempt, spread=0.5) for attempt in (0, 1, 2, 9)]
        [0.5, 1.0, 2.0, 30.0]
        >>> backoff.after_hint(20.0, spread=0.5)
        20.5
    """

    base: float = attrs.field(default=2.0)
    """Most seconds before the first repetition, ≥ 0 and finite: twice the mean; 0 never waits."""
    cap: float = attrs.field(default=60.0)
    """Most seconds before any repetition, ≥ `base` and finite."""

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

    def delay(self, attempt: int, spread: float) -> float:
        """Seconds to wait after a failure.

        Args:
            attempt: Failures before this one, ≥ 0.
            spread: By chance, from 0 to 1 without 1.

        Returns:
            From 0 to `cap`; for one `spread` never less than after fewer failures.
        """
        try:
            bound = min(self.cap, math.ldexp(self.base, attempt))
        except OverflowError:  # more than any float, so more than the cap
            bound = self.cap
        return spread * bound

    def after_hint(self, hint: float, spread: float) -> float:
        """Seconds to wait after a failure that named a wait.

        Args:
            hint: Seconds that the server asks to wait, ≥ 0 and finite.
            spread: By chance, from 0 to 1 without 1.

        Returns:
            At least `hint`, and at most a second or a fifth of it more, whichever is less.
        """
        return hint + spread * min(_AFTER_HINT, hint / _SHARE_OF_HINT)
