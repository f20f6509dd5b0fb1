"""Counts, rates, amounts of money and numbers of rows as people read them. Pure."""

import math
from collections.abc import Iterable, Iterator

import attrs

_RANGES = 4  # ranges of row numbers that are shown before the last one
_CENT = 0.01


def money(dollars: float) -> str:
    """US dollars: cents from one dollar on, four decimals below, and two digits of less than a cent.

    Example:
        >>> money(0), money(0.0123), money(12.5), money(0.00001234)
        ('$0', '$0.0123', '$12.50', '$0.000012')
    """
    if not dollars:
        return "$0"
    if dollars >= 1:
        return f"${dollars:,.2f}"
    if dollars >= _CENT or not dollars > 0:
        return f"${dollars:.4f}"
    return f"${dollars:.{max(4, 1 - math.floor(math.log10(dollars)))}f}"


def rate_text(passed: int, rated: int, *, not_graded: int = 0) -> str:
    """Return a pass rate with the number of rows that it is about; a dash without such rows.

    Args:
        passed: Rows that passed.
        rated: Rows that ended, except those that were not graded.
        not_graded: Rows that were not graded.

    Example:
        >>> rate_text(3, 4), rate_text(3, 4, not_graded=1), rate_text(0, 0, not_graded=1)
        ('75.0 % of 4', '75.0 % of 4 graded', '–')
    """
    if not rated:
        return "–"
    return f"{percent(passed, rated)} % of {rated}{' graded' if not_graded else ''}"


def percent(part: int, whole: int) -> str:
    """Return a share in percent with one decimal; 100.0 only for all, and 0.0 only for nothing.

    Args:
        part: 0 to `whole`.
        whole: At least 1.

    Example:
        >>> percent(299_999, 300_000), percent(1, 300_000), percent(1, 3)
        ('99.9', '0.1', '33.3')
    """
    shown = 1000 * part / whole
    within = min(max(round(shown), 1), 999)
    return f"{(within if 0 < part < whole else round(shown)) / 10:.1f}"


@attrs.define
class RowNumbers:
    """The numbers of some rows, which are added in any order.

    Example:
        >>> numbers = RowNumbers()
        >>> for index in (0, 1, 2, 7):
        ...     numbers.add(index)
        >>> str(numbers), numbers.count
        ('0–2, 7', 4)
    """

    _ranges: list[range] = attrs.field(factory=list)

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(map(len, self._ranges))

    def add(self, index: int) -> None:
        """Add one row."""
        self.add_range(range(index, index + 1))

    def add_range(self, rows: range) -> None:
        """Add consecutive rows, at least one."""
        if self._ranges and self._ranges[-1].stop == rows.start:
            self._ranges[-1] = range(self._ranges[-1].start, rows.stop)
        else:
            self._ranges.append(rows)

    def gaps(self, size: int, others: Iterable[range] = ()) -> Iterator[range]:
        """The rows up to a number that are neither these nor others.

        Example:
            >>> numbers = RowNumbers()
            >>> numbers.add_range(range(2, 5))
            >>> [*numbers.gaps(9, [range(7, 8)])]
            [range(0, 2), range(5, 7), range(8, 9)]
        """
        first = 0
        for rows in sorted([*self._ranges, *others], key=lambda rows: rows.start):
            if first < rows.start:
                yield range(first, rows.start)
            first = max(first, rows.stop)
        if first < size:
            yield range(first, size)

    def __str__(self) -> str:
        """The numbers as ranges; of many ranges the first ones and the end of the last."""
        merged = RowNumbers()
        for rows in sorted(self._ranges, key=lambda rows: rows.start):
            merged.add_range(rows)
        first, rest = merged._ranges[:_RANGES], merged._ranges[_RANGES:]
        texts = [_range_text(rows) for rows in first]
        if rest:
            texts += [_range_text(rest[0]) if len(rest) == 1 else f"… {rest[-1].stop - 1}"]
        return ", ".join(texts)


def _range_text(rows: range) -> str:
    last = rows.stop - 1
    return str(last) if len(rows) == 1 else f"{rows.start}–{last}"
