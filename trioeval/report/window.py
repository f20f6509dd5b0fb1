"""How much there was of something in the last minute, in little memory."""

import attrs

WINDOW_S = 60
"""Seconds over which it is told."""


@attrs.define
class Window:
    """How much there was in each of the last seconds."""

    _counts: list[int] = attrs.field(factory=lambda: [0] * WINDOW_S)
    _second: int = 0

    def add(self, at: float, count: int) -> None:
        """So much more at an instant, which is none before the last one."""
        self._move(int(at))
        self._counts[self._second % WINDOW_S] += count

    def total(self, at: float) -> int:
        """All of the minute before an instant."""
        self._move(int(at))
        return sum(self._counts)

    def _move(self, second: int) -> None:
        for gone in range(self._second + 1, min(second, self._second + WINDOW_S) + 1):
            self._counts[gone % WINDOW_S] = 0
        self._second = max(second, self._second)
