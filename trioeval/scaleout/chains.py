"""The rows of a task that run on one worker at a time, because they read what others leave. Pure.

A chain is such rows. At any time one worker runs rows of a chain, in their order, and gets with them what
the chain's earlier rows left. Different chains run side by side, and a row without a chain runs anywhere:

* the turns of a conversation are a chain,
* all rows that may use the registers of a scope are one, with their conversations,
* rows that are compared with each other are one, and are always sent together,
* if all rows of a task run one after another, they are one,
* so are `runSerially` rows, while nothing else runs.

Laws: SERIAL, BLOCK.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TypeAlias

import attrs

from trioeval.evaluation.groups import Layout
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.registers import FindAccess

ChainKey: TypeAlias = Hashable

_WHOLE = "whole task"
_SERIAL = "serial rows"


@attrs.frozen(eq=False, repr=False)
class Chains:
    """The chains of one task."""

    _prepared: PreparedSuite
    _layout: Layout
    _access: FindAccess
    _serial: Collection[int]
    _is_whole: bool
    """True if all rows without `runSerially` are one chain."""

    @classmethod
    def of(cls, prepared: PreparedSuite) -> Chains | None:
        """Return the chains of a task; None if it has none."""
        layout = Layout.of(prepared.steps.spans)
        serial = prepared.steps.serial_indices
        shares = prepared.sharing.any
        if not (prepared.in_order or shares or layout.compares or serial):
            return None
        return cls(
            prepared,
            layout,
            prepared.access,
            serial if isinstance(serial, range) else frozenset(serial),
            prepared.in_order or (shares and layout.compares),
        )

    @property
    def use_several_lanes(self) -> bool:
        """True if rows of one chain may start on different lanes."""
        prepared = self._prepared
        if self._is_whole or self._layout.compares or self._serial:
            return True
        of_suite = prepared.suite.evaluate_options.register_scope == "suite"
        if prepared.sharing.registers and of_suite:
            return True
        stretches = prepared.steps.stretches
        return any(stretch.shape.provider_index is not None for stretch in stretches)

    def key(self, row: int) -> ChainKey | None:
        """Return the chain of a row; None if it runs anywhere, at any time."""
        if row in self._serial:
            return _SERIAL
        if self._is_whole:
            return _WHOLE
        group = self._compared(row)
        if group is not None:
            return ("compared", group.start)
        found = self._access(row)
        cells = found.reads | found.writes
        if not cells:
            return None
        if self._prepared.sharing.registers:
            of_suite = self._prepared.suite.evaluate_options.register_scope == "suite"
            return ("registers", None if of_suite else self._prepared.steps[row].prompt_idx)
        return next(iter(cells))

    def together(self, row: int) -> range:
        """Return the rows that are sent together with a row, which include it: those compared with it."""
        return self._compared(row) or range(row, row + 1)

    def _compared(self, row: int) -> range | None:
        group = self._layout.group(self._layout.job(row))
        return None if group is None else range(group.start, group.stop)


def next_piece(rows: Sequence[int], most: int, chains: Chains) -> int:
    """Return how many of the first waiting rows of a chain are sent now.

    Args:
        rows: The rows of the chain that wait, ascending; later ones may follow.
        most: The most rows; more if they are compared with each other.
        chains: The chains of their task.
    """
    count = 0
    while count < len(rows):
        together = chains.together(rows[count])
        following = count + len(together)
        if count and following > most:
            break
        if [*rows[count:following]] != [*together]:
            break  # some of them have not started
        count = following
    return count


def serial_cuts(
    size: int, serial: Iterable[int], most: int, most_serial: int
) -> Sequence[tuple[range, bool]]:
    """Return consecutive ranges of rows, and whether they are serial; each has rows of one kind.

    Args:
        size: The number of rows.
        serial: The serial ones, ascending.
        most: The most rows of a range that is not serial, ≥ 1.
        most_serial: The most rows of a serial range, ≥ 1.

    Example:
        >>> serial_cuts(5, [1, 2], 10, 10)
        [(range(0, 1), False), (range(1, 3), True), (range(3, 5), False)]
        >>> serial_cuts(4, [0, 1], 1, 2)
        [(range(0, 2), True), (range(2, 3), False), (range(3, 4), False)]
    """
    marks = bytearray(size)
    for row in serial:
        marks[row] = 1
    found: list[tuple[range, bool]] = []
    start = 0
    while start < size:
        is_serial = bool(marks[start])
        end = min(start + (most_serial if is_serial else most), size)
        other = marks.find(1 - marks[start], start, end)
        stop = end if other < 0 else other
        found.append((range(start, stop), is_serial))
        start = stop
    return found
