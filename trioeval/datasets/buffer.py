"""The values of the open groups: the only place where rows change.

A value is set once, for one row and some of its columns; a record is never replaced as a whole, so columns that
are made side by side cannot overwrite each other.
"""

from collections.abc import Iterable, Mapping
from typing import Any


class Buffer:
    """The values of open groups, and what they weigh."""

    @property
    def cells(self) -> int:
        """Values that are held."""
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """What they weigh in memory, as estimated: texts and lists by their length."""
        raise NotImplementedError

    def open(self, rows: Iterable[int]) -> None:
        """Begin rows without values."""
        raise NotImplementedError

    def set(self, row: int, values: Mapping[str, Any]) -> None:
        """Set columns of a row.

        Raises:
            DatasetError: The row is not open, or was dropped.
        """
        raise NotImplementedError

    def view(self, row: int) -> Mapping[str, Any]:
        """The values of a row as they are now, not to be changed."""
        raise NotImplementedError

    def copy(self, row: int, columns: Iterable[str]) -> dict[str, Any]:
        """Those of some columns, deeply copied: the receiver may do with it what it wants."""
        raise NotImplementedError

    def drop(self, rows: Iterable[int]) -> None:
        """Rows are gone."""
        raise NotImplementedError

    def close(self, rows: Iterable[int]) -> None:
        """Forget rows, gone or not."""
        raise NotImplementedError
