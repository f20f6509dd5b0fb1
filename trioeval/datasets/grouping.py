"""Rows in groups: fixed for ever by their numbers.

Group sizes follow from the original target and never change: 5 rows in groups of 2 are 2, 2, 1. A dataset that
is extended keeps them; the new rows make groups of their own behind them.
"""

from collections.abc import Iterator

import attrs


@attrs.frozen
class Grouping:
    """Which rows make which group. Cheap for any number of rows.

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

    @property
    def rows(self) -> int:
        """All rows."""
        return self.targets[-1]

    def __len__(self) -> int:
        """How many groups there are."""
        raise NotImplementedError

    def rows_of(self, group: int) -> range:
        """The rows of a group.

        Raises:
            IndexError: There is no such group.
        """
        raise NotImplementedError

    def group_of(self, row: int) -> int:
        """The group of a row.

        Raises:
            IndexError: There is no such row.
        """
        raise NotImplementedError

    def groups(self) -> Iterator[range]:
        """The rows of all groups, in order."""
        raise NotImplementedError

    def extended(self, target: int) -> "Grouping":
        """The same with more rows; itself if `target` is what it has.

        Raises:
            DatasetError: That would be fewer.
        """
        raise NotImplementedError
