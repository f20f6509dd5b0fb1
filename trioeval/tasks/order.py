"""In which order the steps of a run may start, where some need what others leave.

A step reads and writes *cells*: registers, and conversations, of which each step of one reads all turns and
adds its own. It waits for every earlier step that may write a cell which it may read. The latest of them
would do if it were certain to succeed; if it fails, the value before it counts. "Earlier" is as in
`history`: steps that run serially, which the kernel runs first anyway, and then by index.

Waiting is counted, never searched: for each cell, writers are numbered, and a reader with n writers before
it waits until the first n of them are over. So a reader costs one number a cell, however many writers
there are. Edges would be as many as readers times writers.

Finding what a step reads means looking at it, and steps may be lines of a huge file. So steps are looked at
in index order, and no more of them than `AHEAD` at a time that are not over. The first of those waits for
nobody, so the run goes on whatever the others wait for.

Law: BLOCK.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias

import attrs

from trioeval.kernel import Freed, Readiness

Cell: TypeAlias = Hashable

AHEAD = 8192
"""Steps that are looked at and not over, at most: of a run that has more, later ones start later."""


@attrs.frozen
class Access:
    """The cells that one step may read, and those that it may write."""

    reads: frozenset[Cell] = frozenset()
    writes: frozenset[Cell] = frozenset()


@attrs.define(eq=False)
class OneByOne(Readiness):
    """Every step waits for the one before it."""

    _rest: list[int]
    """Steps that have not started, the next one last."""
    _last: int = -1
    """The step that has started."""

    @classmethod
    def of(cls, size: int, serial: Iterable[int]) -> "OneByOne":
        """Nothing has started yet.

        Args:
            size: How many steps there are.
            serial: Those that the kernel runs first, which nothing waits for here.
        """
        first = frozenset(serial)
        return cls([index for index in reversed(range(size)) if index not in first])

    def begin(self) -> Sequence[int]:
        """The first step."""
        return self._next()

    def over(self, index: int, *, done: bool) -> Freed:  # noqa: ARG002 - whatever its outcome is
        """The step after the one that is over."""
        if index != self._last:
            return Freed()
        return Freed(self._next())

    def _next(self) -> Sequence[int]:
        if not self._rest:
            return ()
        self._last = self._rest.pop()
        return (self._last,)


@attrs.define(eq=False)
class _CellState:
    """Who of the writers of a cell is over."""

    writers: int = 0
    """Steps that may write it, among those looked at so far."""
    finished: int = 0
    """Writers that are over, and all before them."""
    over: set[int] = attrs.field(factory=set)
    """Numbers of other writers that are over."""
    waiting: deque[tuple[int, int]] = attrs.field(factory=deque)
    """How many writers a reader waits for, and the reader; both ascend."""


@attrs.define(eq=False)
class ByCells(Readiness):
    """A step waits for the earlier writers of the cells that it reads."""

    _size: int
    _serial: frozenset[int]
    _access: Callable[[int], Access]
    _ahead: int = AHEAD
    _cursor: int = attrs.field(init=False, default=0)
    """The first step that is not looked at yet."""
    _live: int = attrs.field(init=False, default=0)
    """Steps that are looked at and not over."""
    _cells: dict[Cell, _CellState] = attrs.field(init=False, factory=dict)
    _left: dict[int, int] = attrs.field(init=False, factory=dict)
    """Steps that wait, and for how many cells."""
    _numbers: dict[int, list[tuple[_CellState, int]]] = attrs.field(init=False, factory=dict)
    """The cells that a step writes, and which of their writers it is."""

    @classmethod
    def of(
        cls,
        size: int,
        serial: Iterable[int],
        access: Callable[[int], Access],
        ahead: int = AHEAD,
    ) -> "ByCells":
        """Nothing has started yet.

        Args:
            size: How many steps there are.
            serial: Those that the kernel runs first.
            access: What a step reads and writes.
            ahead: Steps that are looked at and not over, at most; ≥ 1.
        """
        return cls(size, frozenset(serial), access, ahead)

    def begin(self) -> Sequence[int]:
        """The first steps that wait for nobody."""
        return self._look_on()

    def over(self, index: int, *, done: bool) -> Freed:  # noqa: ARG002 - a failed writer leaves the value before
        """The readers that waited for this step last, and what is looked at in its place."""
        ready: list[int] = []
        for cell, number in self._numbers.pop(index, ()):
            cell.over.add(number)
            while cell.finished in cell.over:
                cell.over.remove(cell.finished)
                cell.finished += 1
            while cell.waiting and cell.waiting[0][0] <= cell.finished:
                _, reader = cell.waiting.popleft()
                self._left[reader] -= 1
                if not self._left[reader]:
                    del self._left[reader]
                    ready.append(reader)
        # What serial steps write is there before any other step starts, so nobody waits for them.
        if index not in self._serial:
            self._live -= 1
        return Freed(sorted(ready) + self._look_on())

    def _look_on(self) -> list[int]:
        """Look at further steps; those of them that may start at once."""
        ready = []
        while self._live < self._ahead and self._cursor < self._size:
            index = self._cursor
            self._cursor += 1
            if index in self._serial:
                continue
            self._live += 1
            if self._enter(index):
                ready.append(index)
        return ready

    def _enter(self, index: int) -> bool:
        """Take note of a step; whether it may start at once."""
        access = self._access(index)
        waits = 0
        for name in access.reads:
            cell = self._cells.get(name)
            if cell is not None and cell.finished < cell.writers:
                cell.waiting.append((cell.writers, index))
                waits += 1
        numbers = []
        for name in access.writes:
            cell = self._cells.get(name)
            if cell is None:
                cell = self._cells[name] = _CellState()
            numbers.append((cell, cell.writers))
            cell.writers += 1
        if numbers:
            self._numbers[index] = numbers
        if waits:
            self._left[index] = waits
        return not waits
