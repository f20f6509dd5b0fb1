"""Rows in groups: fixed for ever by their numbers.

Group sizes follow from the original target and never change: 5 rows in groups of 2 are 2, 2, 1. A dataset
that is extended keeps them; the new rows make groups of their own behind them.
"""

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import attrs

from trioeval.errors import DatasetError


@attrs.frozen
class Grouping:
    """Which rows make which group. Cheap for any number of rows.

    Raises:
        DatasetError: The size is less than 1, or the targets are not ascending numbers of at least 1.

    Example:
        >>> grouping = Grouping(2, (5,))
        >>> [list(grouping.rows_of(group)) for group in range(len(grouping))]
        [[0, 1], [2, 3], [4]]
        >>> [list(grouping.extended(7).rows_of(group)) for group in range(4)][-2:]
        [[4], [5, 6]]
    """

    size: int
    """Rows of a group, ≥ 1; the last one before each target may have fewer."""
    targets: tuple[int, ...]
    """How many rows there were to be, first and after each extension; ascending, never empty, each ≥ 1."""

    def __attrs_post_init__(self) -> None:
        if self.size < 1:
            raise DatasetError(f"groups have at least 1 row, not {self.size}")
        if not self.targets or any(low >= high for low, high in pairwise((0, *self.targets))):
            raise DatasetError(
                f"the targets of a dataset are ascending numbers of at least 1, not {self.targets}"
            )

    @property
    def rows(self) -> int:
        """All rows."""
        return self.targets[-1]

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """How many groups there are up to each target."""
        ends, groups, start = [], 0, 0
        for target in self.targets:
            groups -= (start - target) // self.size  # the quotient, rounded up
            ends.append(groups)
            start = target
        return tuple(ends)

    @property
    def parts(self) -> tuple[range, ...]:
        """The groups of each target: all of a part have `size` rows, but for its last one."""
        return tuple(range(low, high) for low, high in pairwise((0, *self._ends)))

    def __len__(self) -> int:
        """How many groups there are."""
        return self._ends[-1]

    def rows_of(self, group: int) -> range:
        """The rows of a group.

        Raises:
            IndexError: There is no such group.
        """
        if not 0 <= group < len(self):
            raise IndexError(f"there is no group {group}; there are {len(self)}")
        part = bisect_right(self._ends, group)
        behind = group - (self._ends[part - 1] if part else 0)
        start = (self.targets[part - 1] if part else 0) + behind * self.size
        return range(start, min(start + self.size, self.targets[part]))

    def group_of(self, row: int) -> int:
        """The group of a row.

        Raises:
            IndexError: There is no such row.
        """
        if not 0 <= row < self.rows:
            raise IndexError(f"there is no row {row}; there are {self.rows}")
        part = bisect_right(self.targets, row)
        if not part:
            return row // self.size
        return self._ends[part - 1] + (row - self.targets[part - 1]) // self.size

    def groups(self) -> Iterator[range]:
        """The rows of all groups, in order."""
        return map(self.rows_of, range(len(self)))

    def extended(self, target: int) -> "Grouping":
        """The same with more rows; itself if `target` is what it has.

        Raises:
            DatasetError: That would be fewer.
        """
        if target == self.rows:
            return self
        if target < self.rows:
            raise DatasetError(
                f"a dataset of {self.rows} rows cannot be made smaller; {target} are wanted"
            )
        return Grouping(self.size, (*self.targets, target))
