# Separate from `columns.progress`: together they exceed 600 lines.
"""The values of the open groups: the only place where rows change.

Values are set for single columns of a row; a record is never replaced as a whole, so columns that are made
concurrently cannot overwrite each other.
"""

import math
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from trioeval.errors import DatasetError

# When to give up because too many calls have failed permanently. Pure.


_WARN_CALLS = 20
_WARN_RATE = 0.5
_WARN_REST = 60.0  # seconds


class _OutcomeWindow:
    """The last outcomes and the number of failures among them."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._outcomes: deque[bool] = deque()
        self._bad = 0

    def add(self, *, bad: bool) -> float:
        """Add an outcome and return the share of failures; 0 until the window is full."""
        self._outcomes.append(bad)
        self._bad += bad
        if len(self._outcomes) > self._calls:
            self._bad -= self._outcomes.popleft()
        return self._bad / self._calls if len(self._outcomes) == self._calls else 0.0


class FailureWindow:
    """The last calls of a dataset.

    Args:
        calls: The size of the window, ≥ 1. Nothing happens until it is full.
        error_rate: The share of permanent failures, in (0, 1], from which on the dataset gives up.

    Example:
        >>> window = FailureWindow(2, 0.5)
        >>> window.add(failed=True), window.add(failed=False), window.add(failed=False)
        (False, True, False)
    """

    def __init__(self, calls: int, error_rate: float) -> None:
        self._last = _OutcomeWindow(calls)
        self._error_rate = error_rate

    def add(self, *, failed: bool) -> bool:
        """Add a call that succeeded or failed permanently. Refusals and transient failures are not added.

        Returns:
            True if it is time to give up.
        """
        return self._last.add(bad=failed) >= self._error_rate


class TransientFailureWarning:
    """Decides when to warn of transient failures: half of the last 20 calls, at most once in 60 seconds."""

    def __init__(self) -> None:
        self._last = _OutcomeWindow(_WARN_CALLS)
        self._warned_at = -math.inf

    def add(self, *, transient: bool, now: float) -> bool:
        """Add a call that ended at `now` (seconds), and return True if a warning is due."""
        if self._last.add(bad=transient) < _WARN_RATE or now - self._warned_at < _WARN_REST:
            return False
        self._warned_at = now
        return True


# The order of jobs on a lane: older groups come first, and columns of a group share it by weight. Pure.
#
# Start-time fair queueing (Goyal, Vin, Cheng 1996) within each group: a job gets a start tag when it becomes
# ready, the larger of its column's last finish tag and the group's virtual time, which is the start tag of
# the job that started last. Its finish tag is 1/weight later. Jobs start in the order of their tags. A
# column that was idle gets no credit for that time, and a column that is alone gets the whole lane. Of two
# columns f and m that always have ready jobs, neither is ahead by more than 1/weight_f + 1/weight_m, in jobs
# per weight.
#
# Tags belong to a group and not to the lane: otherwise a column that is far ahead in a later group would have
# to wait for the others when a job of an older group becomes ready.


@attrs.define(eq=False, repr=False)
class _GroupTags:
    virtual_time: float = 0.0
    finish_tags: defaultdict[int, float] = attrs.field(factory=lambda: defaultdict(float))
    """By column, the finish tag of the last job that became ready."""


class FairQueue:
    """A fair queue: the ranks of the jobs of one lane."""

    def __init__(self) -> None:
        self._groups: defaultdict[int, _GroupTags] = defaultdict(_GroupTags)

    def rank(self, column: int, group: int, weight: float = 1.0) -> tuple[float, float]:
        """Return the rank of a job that has become ready; jobs with lower ranks start first.

        Args:
            column: The column of the job.
            group: Its row group.
            weight: The share of the column, > 0.

        Example:
            >>> line = FairQueue()
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
        """Note that the job with this rank has started."""
        group, tag = rank
        if state := self._groups.get(int(group)):
            state.virtual_time = max(state.virtual_time, tag)

    def close(self, group: int) -> None:
        """Forget a group that has no more jobs."""
        self._groups.pop(group, None)


@attrs.define(eq=False, repr=False)
class _BufferedRow:
    values: dict[str, Any] = attrs.field(factory=dict)
    bytes: int = 0
    is_gone: bool = False


class Buffer:
    """The values of the open groups, and their estimated size."""

    def __init__(self) -> None:
        self._rows: dict[int, _BufferedRow] = {}
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """The estimated size in memory: texts and lists by their length."""
        return self._bytes

    def open(self, rows: Iterable[int]) -> None:
        """Add rows without values.

        Raises:
            DatasetError: One of them is already open.
        """
        for row in rows:
            if row in self._rows:
                raise DatasetError(f"row {row} is already open")
            self._rows[row] = _BufferedRow()

    def set(self, row: int, values: Mapping[str, Any]) -> None:
        """Set columns of a row; a new value replaces an old one.

        The buffer owns the values: the caller must not change them afterwards.

        Raises:
            DatasetError: The row is not open, or was dropped.
        """
        buffered = self._buffered(row)
        there, more = buffered.values, 0
        for column, value in values.items():
            if column in there:
                more -= _weight(there[column])
            more += _weight(value)
            there[column] = value
        buffered.bytes += more
        self._bytes += more

    def view(self, row: int) -> Mapping[str, Any]:
        """Return a read-only view of the current values of a row.

        Raises:
            DatasetError: The row is not open, or was dropped.
        """
        return MappingProxyType(self._buffered(row).values)

    def copy(self, row: int, columns: Iterable[str]) -> dict[str, Any]:
        """Return a deep copy of some columns of a row; the caller may change it.

        Columns without a value are left out.

        Raises:
            DatasetError: The row is not open, or was dropped.
        """
        values = self._buffered(row).values
        found = {}
        for column in columns:
            if column in values:
                value = values[column]
                # Only lists and objects are copied: most values are immutable, and there may be millions.
                found[column] = _copied(value) if isinstance(value, list | dict) else value
        return found

    def drop(self, rows: Iterable[int]) -> None:
        """Drop rows; rows that were already dropped are ignored.

        Raises:
            DatasetError: One of them is not open.
        """
        for row in rows:
            buffered = self._rows.get(row)
            if buffered is None:
                raise DatasetError(f"row {row} is not open")
            self._empty(buffered)
            buffered.is_gone = True

    def close(self, rows: Iterable[int]) -> None:
        """Forget rows, dropped or not; rows that are not open are ignored."""
        for row in rows:
            if buffered := self._rows.pop(row, None):
                self._empty(buffered)

    def _buffered(self, row: int) -> _BufferedRow:
        buffered = self._rows.get(row)
        if buffered is None or buffered.is_gone:
            raise DatasetError(f"row {row} {'was dropped' if buffered else 'is not open'}")
        return buffered

    def _empty(self, buffered: _BufferedRow) -> None:
        self._bytes -= buffered.bytes
        buffered.values, buffered.bytes = {}, 0


def _weight(value: Any) -> int:
    """Return the approximate size of a JSON value in bytes; without recursion, because it may be deep."""
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
            if {*map(type, part)} == {float}:  # a vector: all members have the same size
                total += sys.getsizeof(part[0]) * len(part)
            else:
                parts += part
    return total


def _copied(value: Any) -> Any:
    """Return a deep copy of a JSON value; without recursion, because it may be deep."""
    whole = [value]
    left: list[Any] = [whole]
    while left:
        copied = left.pop()
        for key, part in enumerate(copied) if isinstance(copied, list) else copied.items():
            if isinstance(part, list | dict):
                copied[key] = (
                    part.copy()
                )  # values may be replaced during iteration; keys stay the same
                left.append(copied[key])
    return whole[0]
