"""Which groups are open at once: a budget of values held in memory. Pure.

Groups are opened in order, each as a whole, as long as their values fit: what an open group will have counts
from its beginning. A group that is larger than the budget is opened alone. A column may run ahead over all
groups that are open, whatever the other columns do: what bounds it is the budget.

One group that stands still must not let the rest of the dataset pass it for ever: the kernel keeps outcomes
in order, so those of all groups behind it stay in memory. So no group is opened that is further ahead of the
oldest open one than a few budgets.
"""

from collections.abc import Iterator

import attrs

from trioeval.datasets.grouping import Grouping

AHEAD = 4
"""How many budgets of values may lie between the oldest open group and one that is opened."""


@attrs.define(eq=False)
class Admission:
    """The groups that are to be opened."""

    grouping: Grouping
    columns: int
    """Values of a row."""
    max_cells: int
    max_bytes: int
    _waiting: Iterator[int]
    """Groups that were not opened, in order."""
    _next: int | None = attrs.field(init=False, default=None)
    _open: dict[int, int] = attrs.field(init=False, factory=dict)
    """The values of groups that are open."""
    _cells: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._next = next(self._waiting, None)

    @property
    def waiting(self) -> bool:
        """Whether groups are left that were not opened."""
        return self._next is not None

    def take(self, weight: int) -> int | None:
        """The next group, if it may be opened now; it is then.

        Args:
            weight: Bytes that open groups hold.
        """
        group = self._next
        if group is None:
            return None
        cells = len(self.grouping.rows_of(group)) * self.columns
        if self._open and not self._fits(group, cells, weight):
            return None
        self._next = next(self._waiting, None)
        self._open[group] = cells
        self._cells += cells
        return group

    def close(self, group: int) -> None:
        """A group is over."""
        self._cells -= self._open.pop(group)

    def _fits(self, group: int, cells: int, weight: int) -> bool:
        if self._cells + cells > self.max_cells or weight >= self.max_bytes:
            return False
        oldest = self.grouping.rows_of(next(iter(self._open)))
        ahead = (self.grouping.rows_of(group).start - oldest.start) * self.columns
        return ahead <= AHEAD * self.max_cells
