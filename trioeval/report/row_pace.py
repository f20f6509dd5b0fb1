"""The rate at which the rows of lanes finish, and the time that the others need at that rate. Pure."""

from collections.abc import Collection

import attrs

WINDOW_S = 60
"""Seconds over which the sum is reported."""


@attrs.define(eq=False, repr=False)
class MinuteWindow:
    """Amounts per second of the last minute."""

    _counts: list[int] = attrs.field(factory=lambda: [0] * WINDOW_S)
    _second: int = 0

    def add(self, at: float, count: int) -> None:
        """Add an amount at an instant, which is not before the last one."""
        second = int(at)
        if second > self._second:
            self._move(second)
        self._counts[self._second % WINDOW_S] += count

    def total(self, at: float) -> int:
        """Return the sum over the minute before an instant."""
        self._move(int(at))
        return sum(self._counts)

    def _move(self, second: int) -> None:
        for passed in range(self._second + 1, min(second, self._second + WINDOW_S) + 1):
            self._counts[passed % WINDOW_S] = 0
        self._second = max(second, self._second)


_SOON = 3  # rows that an estimate needs
_PACE_MANY = 20  # rows of the last minute that are enough to ignore older ones


@attrs.define(eq=False, repr=False)
class RowPace:
    """The progress of the rows of one lane."""

    began_at: float
    """The start of the run, on the Trio clock."""
    expected: int = 0
    """Rows that this execution runs, as far as they are known."""
    there: int = 0
    """Finished rows, whatever their order."""
    _recent: MinuteWindow = attrs.field(factory=MinuteWindow)

    def add(self, at: float) -> None:
        """Count a finished row."""
        self.there += 1
        self._recent.add(at, 1)

    @property
    def left(self) -> int:
        """Rows that are not finished."""
        return max(0, self.expected - self.there)

    def left_s(self, now: float) -> float | None:
        """Return the seconds until all rows are finished; None if they cannot be estimated.

        Example:
            >>> pace = RowPace(0.0, expected=100)
            >>> for second in range(25):
            ...     pace.add(second / 10)
            >>> pace.left_s(10.0)
            30.0
        """
        if not self.left:
            return 0.0
        if self.there < _SOON or now <= self.began_at:
            return None
        elapsed, rows = now - self.began_at, self.there
        recent = self._recent.total(now)
        if (
            elapsed > WINDOW_S and recent >= _PACE_MANY
        ):  # old bursts and pauses are not representative
            elapsed, rows = WINDOW_S, recent
        return elapsed / rows * self.left


def all_left_s(paces: Collection[RowPace], now: float) -> float | None:
    """Return the seconds until the slowest lane is done; lanes do not wait for each other.

    A lane with too few finished rows is assumed to be as fast as the others.

    Example:
        >>> fast, slow = RowPace(0.0, 100, 100), RowPace(0.0, 100, 10)
        >>> all_left_s([fast, slow], 10.0), all_left_s([], 10.0)
        (90.0, 0.0)
    """
    open_ones = [pace for pace in paces if pace.left]
    if not open_ones:
        return 0.0
    estimates = [pace.left_s(now) for pace in open_ones]
    known = [seconds for seconds in estimates if seconds is not None]
    if len(known) < len(estimates):
        there, expected = sum(one.there for one in paces), sum(one.expected for one in paces)
        whole = RowPace(open_ones[0].began_at, expected, there).left_s(now)
        if whole is None:
            return None
        known.append(whole)
    return max(known)
