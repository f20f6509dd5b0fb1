"""Tells whoever follows a task how its rows ended: each when it is safe, in the order in which they ended.

A row is told of in index order, so it may wait long for those before it. That it is over is told earlier: as
soon as its own record can be found again, whatever happens. What is safe is so with everything that was
written down before it, so the order holds whoever finds out first: the task that waits for each row, or
whoever emits them.
"""

from collections.abc import Mapping
from typing import Any, Never, Protocol

import attrs
import trio

from trioeval.kernel import Event
from trioeval.tasks.journal import Journal
from trioeval.tasks.rows import Row, RowsNotRun


class Watch(Protocol):
    """Who follows what the jobs of a task do."""

    def begin(self, at: float, /) -> None:
        """The task begins, at an instant of the Trio clock."""
        ...

    def observe(self, event: Event, waited: Mapping[str, float], /) -> None:
        """The kernel tells of a job.

        Args:
            event: What it tells.
            waited: Of a job that is started: for how long it was the next one of its lane and had to wait,
                in seconds by reason.
        """
        ...

    def ended(self, row: Row, at: float, /) -> Row:
        """A row is made: what is written down in its place."""
        ...

    def never_began(self, rows: RowsNotRun, /) -> None:
        """Report many rows that never began, without details of each."""
        ...

    def written(self, row: Row, /) -> None:
        """A row is safe where rows are written down."""
        ...

    def kept(self, record: Mapping[str, Any], /) -> None:
        """A row is there already and not run again."""
        ...

    def end(self, at: float, /) -> None:
        """The task is over."""
        ...


@attrs.define(eq=False)
class Telling:
    """The rows of one task of which its watch has not been told that they are over."""

    _watch: Watch
    _journal: Journal | None
    _untold: dict[int, Row] = attrs.field(init=False, factory=dict)
    """By index, in the order in which they were written down."""
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)

    def add(self, row: Row) -> None:
        """A row was written down, where that is done."""
        if self._journal is None:
            self._watch.written(row)
        else:
            self._untold[row.index] = row
            self._news.set()

    def tell(self, row: Row) -> None:
        """A row is safe, and so is all that was written down before it."""
        while row.index in self._untold:
            self._watch.written(self._untold.pop(next(iter(self._untold))))

    async def keep_on(self) -> Never:
        """Tell of each row as soon as it is safe, until this is cancelled. Beside those who emit."""
        while True:
            self._news = trio.Event()
            while self._journal is not None and self._untold:
                row = next(iter(self._untold.values()))
                await self._journal.durable(row)
                self.tell(row)
            await self._news.wait()
