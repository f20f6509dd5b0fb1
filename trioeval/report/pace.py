"""How fast the rows of lanes come, and how long the rest of them takes if it goes on like this. Pure."""

from collections.abc import Collection

import attrs

from trioeval.report.window import WINDOW_S, Window

_SOON = 3  # rows before which nobody can say how long it takes
_MANY = 20  # rows of the last minute that say more than all before them


@attrs.define
class Pace:
    """How fast the rows of one lane come."""

    began_at: float
    """When the run began, on the Trio clock."""
    expected: int = 0
    """Rows that this execution is to run, as far as they are known."""
    there: int = 0
    """Those of them that are over, whatever their turn is."""
    _recent: Window = attrs.field(factory=Window)

    def add(self, at: float) -> None:
        """A row is over."""
        self.there += 1
        self._recent.add(at, 1)

    @property
    def left(self) -> int:
        """Rows that are still to come."""
        return max(0, self.expected - self.there)

    def left_s(self, now: float) -> float | None:
        """Seconds until all rows are over; None where that is not known.

        Args:
            now: The instant, on the Trio clock.

        Example:
            >>> pace = Pace(0.0, expected=100)
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
        if elapsed > WINDOW_S and recent >= _MANY:  # a burst or a pause long ago says nothing
            elapsed, rows = WINDOW_S, recent
        return elapsed / rows * self.left


def all_left_s(paces: Collection[Pace], now: float) -> float | None:
    """Seconds until the slowest lane is done; lanes do not wait for each other.

    Of a lane of which too little is known it is taken that it goes like the others.

    Args:
        paces: Of all lanes, with one beginning.
        now: The instant, on the Trio clock.

    Example:
        >>> fast, slow = Pace(0.0, 100, 100), Pace(0.0, 100, 10)
        >>> all_left_s([fast, slow], 10.0), all_left_s([], 10.0)
        (90.0, 0.0)
    """
    open_ones = [pace for pace in paces if pace.left]
    if not open_ones:
        return 0.0
    told = [pace.left_s(now) for pace in open_ones]
    known = [seconds for seconds in told if seconds is not None]
    if len(known) < len(told):
        there, expected = sum(one.there for one in paces), sum(one.expected for one in paces)
        whole = Pace(open_ones[0].began_at, expected, there).left_s(now)
        if whole is None:
            return None
        known.append(whole)
    return max(known)
