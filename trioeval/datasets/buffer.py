"""The values of the open groups: the only place where rows change.

Values are set for one row and some of its columns; a record is never replaced as a whole, so columns that are
made side by side cannot overwrite each other.
"""

import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from trioeval.errors import DatasetError


@attrs.define(eq=False)
class _Row:
    values: dict[str, Any] = attrs.field(factory=dict)
    bytes: int = 0
    is_gone: bool = False


class Buffer:
    """The values of open groups, and what they weigh."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._cells = 0
        self._bytes = 0

    @property
    def cells(self) -> int:
        """Values that are held."""
        return self._cells

    @property
    def bytes(self) -> int:
        """What they weigh in memory, as estimated: texts and lists by their length."""
        return self._bytes

    def open(self, rows: Iterable[int]) -> None:
        """Begin rows without values.

        Raises:
            DatasetError: One of them is open already.
        """
        for row in rows:
            if row in self._rows:
                raise DatasetError(f"row {row} is open already")
            self._rows[row] = _Row()

    def set(self, row: int, values: Mapping[str, Any]) -> None:
        """Set columns of a row; of one that has a value, the new one takes its place.

        The values are handed over, and no longer to be changed.

        Raises:
            DatasetError: The row is not open, or was dropped.
        """
        held = self._held(row)
        there, more = held.values, 0
        self._cells -= len(there)
        for column, value in values.items():
            if column in there:
                more -= _weight(there[column])
            more += _weight(value)
            there[column] = value
        self._cells += len(there)
        held.bytes += more
        self._bytes += more

    def view(self, row: int) -> Mapping[str, Any]:
        """The values of a row as they are now, not to be changed.

        Raises:
            DatasetError: As of `set`.
        """
        return MappingProxyType(self._held(row).values)

    def copy(self, row: int, columns: Iterable[str]) -> dict[str, Any]:
        """Those of some columns, deeply copied: the receiver may do with it what it wants.

        Columns without a value are left out.

        Raises:
            DatasetError: As of `set`.
        """
        values = self._held(row).values
        found = {}
        for column in columns:
            if column in values:
                value = values[column]
                # Most cannot change, and there may be millions of them.
                found[column] = _copied(value) if isinstance(value, list | dict) else value
        return found

    def drop(self, rows: Iterable[int]) -> None:
        """Rows are gone; those that are already change nothing.

        Raises:
            DatasetError: One of them is not open.
        """
        for row in rows:
            held = self._rows.get(row)
            if held is None:
                raise DatasetError(f"row {row} is not open")
            self._empty(held)
            held.is_gone = True

    def close(self, rows: Iterable[int]) -> None:
        """Forget rows, gone or not; those that are not open change nothing."""
        for row in rows:
            if held := self._rows.pop(row, None):
                self._empty(held)

    def _held(self, row: int) -> _Row:
        held = self._rows.get(row)
        if held is None or held.is_gone:
            raise DatasetError(f"row {row} {'was dropped' if held else 'is not open'}")
        return held

    def _empty(self, held: _Row) -> None:
        self._cells -= len(held.values)
        self._bytes -= held.bytes
        held.values, held.bytes = {}, 0


def _weight(value: Any) -> int:
    """Bytes of a JSON value, about; without recursion, because it may be deep."""
    if not isinstance(value, list | dict):
        return sys.getsizeof(value)
    total = 0
    parts = [value]
    while parts:
        part = parts.pop()
        total += sys.getsizeof(part)
        if isinstance(part, dict):
            parts += part.values()
            total += sum(map(sys.getsizeof, part))
        elif isinstance(part, list):
            if {*map(type, part)} == {float}:  # a vector: all are as large
                total += sys.getsizeof(part[0]) * len(part)
            else:
                parts += part
    return total


def _copied(value: Any) -> Any:
    """A JSON value that shares nothing with another that could change; without recursion as well."""
    whole = [value]
    left: list[Any] = [whole]
    while left:
        copied = left.pop()
        for key, part in enumerate(copied) if isinstance(copied, list) else copied.items():
            if isinstance(part, list | dict):
                copied[key] = part.copy()  # dicts may get new values while they are walked
                left.append(copied[key])
    return whole[0]
