"""When to give a lane up: three ways in which a provider shows that it will not serve.

It refuses whoever calls (a wrong key, a missing model) several times in a row; it says that the account
is used up; or nothing at all has succeeded for longer than the lane's patience. An open breaker stays open
until somebody resets it: a provider that refused for good is not asked again by itself.

Between closed and open stands half-open: the lane recovers from a block and sends one probe at a time
(see `throttle`).
"""

import enum

import attrs

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
            self._open(f"{self._refusals} calls in a row were refused: {why}")

    def exhausted(self, why: str) -> None:
        """The account will not be served any more."""
        self._open(why)

    def troubled(self, now: float, rest: float, why: str) -> None:
        """It was busy or could not be reached, and is left alone for `rest` seconds.

        Time in which nobody tried is no trouble: a lane that is not used, or starts one call in an hour,
        has not waited for its provider. So no more counts than the rest and a minute.
        """
        if self._last_at is not None:
            self._trouble += min(now - self._last_at, self._rest + _A_TRY)
        self._last_at, self._rest = now, rest
        if self._trouble >= self.patience:
            self._open(f"no success in {self._trouble:g} s of trouble: {why}")

    def asked_to_wait(self, seconds: float, why: str) -> None:
        """It asked for a wait; one that is longer than the patience is not begun."""
        if seconds > self.patience:
            limit = f"longer than the patience of {self.patience:g} s"
            self._open(f"asked to wait {seconds:g} s, {limit}: {why}")

    def reset(self) -> None:
        """Begin anew, closed."""
        self.reason = None
        self.succeeded()

    def _open(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
