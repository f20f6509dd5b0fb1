"""The interface of a task whose rows other processes perform, to the process of the run."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from trioeval.evaluation.row import Row
from trioeval.kernel import Calls, Job


class RowsElsewhere(Protocol):
    """The part of a task that stays in the process of the run while others perform its rows."""

    async def run(
        self, job: Job[Any], calls: Calls[Any], perform: Callable[[], Awaitable[Row | None]], /
    ) -> None:
        """Let another process perform a row as soon as it is its turn. A checkpoint.

        Args:
            job: The job of the row.
            calls: Its calls, of which it makes none.
            perform: Waits until the row is performed, and returns it; None if no process has started it.

        Raises:
            TrioevalError: The row cannot run, or never will.
        """
        ...

    def on_event(self, event: object, /) -> None:
        """Handle an event of a row in another process."""
        ...
