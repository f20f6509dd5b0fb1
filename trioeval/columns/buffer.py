# Apart from `columns.progress`: together they exceed 600 lines.
"""The values of the open groups: the only place where rows change.

Values are set for one row and some of its columns; a record is never replaced as a whole, so columns that are
made side by side cannot overwrite each other.
"""

import math
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from trioeval.errors import DatasetError

# When so many calls have failed for good that trying the rest is a waste. Pure.


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


# Whose turn it is on a lane: older groups come first, and columns of a group share it by weight. Pure.
#
# Start-time fair queueing (Goyal, Vin, Cheng 1996) within each group: a job gets a start tag when it becomes
# ready, the larger of its column's last finish tag and the group's virtual time, which is the start tag of
# the job that started last. Its finish tag is 1/weight later. Jobs start in the order of their tags. A
# column that was idle claims nothing for that time, and one that is alone has the whole lane. Of two columns
# f and m that have ready jobs all the while, neither is ahead by more than 1/weight_f + 1/weight_m, in jobs
# per weight.
#
# Tags are of one group and not of the lane: else a column that was far ahead in a later group would have to
# wait for the others when work of it comes up in an older one.


@attrs.define(eq=False)
class _Group:
    virtual_time: float = 0.0
    finish_tags: defaultdict[int, float] = attrs.field(factory=lambda: defaultdict(float))
    """By column: when its last job that has become ready would be over."""


class FairLine:
    """The ranks of the jobs of one lane."""

    def __init__(self) -> None:
        self._groups: defaultdict[int, _Group] = defaultdict(_Group)

    def rank(self, column: int, group: int, weight: float = 1.0) -> tuple[float, float]:
        """Where a job stands that has become ready: lower ranks start first.

        Args:
            column: Whose job it is.
            group: Its row group.
            weight: The share of the column, > 0.

        Example:
            >>> line = FairLine()
            >>> ranks = [line.rank(column, 7) for column in (0, 0, 0, 1)]
            >>> ranks.sort()
            >>> ranks
            [(7, 0.0), (7, 0.0), (7, 1.0), (7, 2.0)]
        """
        state = self._groups[group]
        tag = max(state.finish_tags[column], state.virtual_time)
        state.finish_tags[column] = tag + 1 / weight
        return (group, tag)

    def started(self, rank: tuple[float, float]) -> None:
        """The job of this rank has started."""
        group, tag = rank
        if state := self._groups.get(int(group)):
            state.virtual_time = max(state.virtual_time, tag)

    def close(self, group: int) -> None:
        """Forget a group: nothing of it will become ready any more."""
        self._groups.pop(group, None)


@attrs.define(eq=False)
class _Row:
    values: dict[str, Any] = attrs.field(factory=dict)
    bytes: int = 0
    is_gone: bool = False


class Buffer:
    """The values of open groups, and what they weigh."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._bytes = 0

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
        for column, value in values.items():
            if column in there:
                more -= _weight(there[column])
            more += _weight(value)
            there[column] = value
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
