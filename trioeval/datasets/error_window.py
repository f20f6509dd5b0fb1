"""When so many calls have failed for good that trying the rest is a waste. Pure."""

import math
from collections import deque

_WARN_CALLS = 20
_WARN_RATE = 0.5
_WARN_REST = 60.0  # seconds


class _Last:
    """The last outcomes, and how many of them were bad."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._outcomes: deque[bool] = deque()
        self._bad = 0

    def add(self, *, bad: bool) -> float:
        """Returns the part that was bad; 0 before there are enough."""
        self._outcomes.append(bad)
        self._bad += bad
        if len(self._outcomes) > self._calls:
            self._bad -= self._outcomes.popleft()
        return self._bad / self._calls if len(self._outcomes) == self._calls else 0.0


class FailureWindow:
    """The last calls of a dataset.

    Args:
        calls: How many are looked at, ≥ 1. Before there are so many, nothing follows.
        error_rate: The part of them that failed for good, in (0, 1], from which on it is time to give up.

    Example:
        >>> window = FailureWindow(2, 0.5)
        >>> window.add(failed=True), window.add(failed=False), window.add(failed=False)
        (False, True, False)
    """

    def __init__(self, calls: int, error_rate: float) -> None:
        self._last = _Last(calls)
        self._error_rate = error_rate

    def add(self, *, failed: bool) -> bool:
        """A call has ended, well or for good. Refusals for now and mishaps are not to be told.

        Returns:
            Whether it is time to give up.
        """
        return self._last.add(bad=failed) >= self._error_rate


class MishapWarning:
    """Whether to warn of many mishaps: half of the last 20 calls, at most once in 60 seconds."""

    def __init__(self) -> None:
        self._last = _Last(_WARN_CALLS)
        self._warned_at = -math.inf

    def add(self, *, mishap: bool, now: float) -> bool:
        """A call has ended at `now` (seconds). Returns whether to warn."""
        if self._last.add(bad=mishap) < _WARN_RATE or now - self._warned_at < _WARN_REST:
            return False
        self._warned_at = now
        return True
