"""The progress of a run in a cell of a Jupyter notebook.

IPython is used if the program has imported it, as every notebook has, and is never imported here.
"""

import asyncio
import html
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import attrs

from trioeval.errors import UsageError
from trioeval.evaluation.journal import RecordObserver
from trioeval.run import Row, Status
from trioeval.text import counted

_REFRESH = 0.2
"""Seconds between two updates of a display."""


@attrs.frozen
class RowCounts:
    """The numbers of rows that a display shows."""

    total: int
    """All rows, as far as they are known."""
    done: int
    """Ended rows."""
    passed: int
    failed: int
    errors: int


@attrs.define(eq=False, repr=False)
class RowCounter(RecordObserver):
    """Counts the rows of a run as they end."""

    total: int
    _counts: Counter[Status] = attrs.field(factory=Counter, init=False)

    def on_row(self, row: Row, /) -> None:
        """Count an ended row."""
        self._counts[row.status] += 1

    async def read(self) -> RowCounts:
        """Return the present numbers."""
        return self.counts

    @property
    def counts(self) -> RowCounts:
        """The present numbers."""
        by_status = self._counts
        return RowCounts(
            self.total,
            by_status.total(),
            by_status[Status.PASS],
            by_status[Status.FAIL],
            by_status[Status.ERROR],
        )


@attrs.define(eq=False, repr=False)
class ProgressDisplay:
    """The display of a run's progress in a cell; without a notebook, it shows nothing."""

    _module: Any
    """IPython's module of displays; None without a notebook."""
    _handle: Any = attrs.field(default=None, init=False)
    _refreshing: asyncio.Task[None] | None = attrs.field(default=None, init=False)

    def watch(self, read: Callable[[], Awaitable[RowCounts]]) -> None:
        """Show what a function returns, from now on and again and again."""
        if self._module is not None:
            self._refreshing = asyncio.ensure_future(self._refresh(read))

    def show(self, counts: RowCounts) -> None:
        """Show numbers."""
        if self._module is None:
            return
        if self._handle is None:
            self._handle = self._module.display(_picture(counts), raw=True, display_id=True)
        else:
            self._handle.update(_picture(counts), raw=True)

    def close(self) -> None:
        """End the repetition."""
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def _refresh(self, read: Callable[[], Awaitable[RowCounts]]) -> None:
        with suppress(UsageError):  # the run ends meanwhile
            while True:
                self.show(await read())
                await asyncio.sleep(_REFRESH)


@contextmanager
def progress_display(*, wanted: bool | None) -> Generator[ProgressDisplay]:
    """Open a display in the running cell, until the end of the block.

    Args:
        wanted: None shows progress in a notebook only; True requires one.

    Raises:
        UsageError: It is required, and this is not a notebook.
    """
    module = None if wanted is False else _notebook()
    if module is None and wanted:
        raise UsageError("progress=True needs a notebook; progress=None shows it in notebooks only")
    display = ProgressDisplay(module)
    try:
        yield display
    finally:
        display.close()


def _notebook() -> Any:
    """Return IPython's module of displays if code runs in a cell of a notebook; else None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # A terminal has no kernel, and cannot update what it has shown.
    return sys.modules.get("IPython.display") if hasattr(shell, "kernel") else None


def _picture(counts: RowCounts) -> dict[str, str]:
    """Return numbers in the formats of front ends."""
    parts = [
        f"{number} {word}"
        for number, word in (
            (counts.passed, "passed"),
            (counts.failed, "failed"),
            (counts.errors, "error" if counts.errors == 1 else "errors"),
        )
        if number
    ]
    text = f"{counts.done} of {counted(counts.total, 'row')}"
    if parts:
        text += f": {', '.join(parts)}"
    bar = f'<progress value="{counts.done}" max="{max(counts.total, 1)}"></progress>'
    return {"text/plain": text, "text/html": f"{bar} {html.escape(text)}"}
