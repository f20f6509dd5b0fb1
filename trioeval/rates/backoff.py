"""How long a failed call waits before it is made again.

The problem: calls that fail together come back together, and fail together again. The rule is exponential
back-off with *full jitter*: the wait is drawn evenly from nothing up to a bound that doubles with every
attempt (Brooker, "Exponential Backoff And Jitter", AWS architecture blog, 2015). Not a fixed half plus a
drawn half: the calls would still come in waves, and the sum of all waits would not be less.

Where the server names the wait, it is kept in full and the chance comes on top of it.

The chance itself is an argument: the lane draws it.
"""

import math

import attrs

from trioeval.errors import PlanError

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
