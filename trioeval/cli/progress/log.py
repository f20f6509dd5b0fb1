"""What a way of telling of a run has to do. This one shows nothing but the last line."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import trio

from trioeval.cli.terminal import say
from trioeval.report.records import RowRecord
from trioeval.report.run_state import RunState


class RunLog:
    """Tells of a run on stderr; others do more of it."""

    def add(self, record: RowRecord) -> None:
        """Take note of a row that is there, with nothing left out."""

    async def show(
        self, _state: Callable[[], RunState], _more: Callable[[], Sequence[str]], /
    ) -> None:
        """Show how it stands until cancelled, or until nobody can see it.

        Args:
            _state: Gives the picture of the moment.
            _more: Gives further lines, which are inert.
        """
        await trio.lowlevel.checkpoint()

    @contextmanager
    def results(self) -> Iterator[None]:
        """Around what is shown of its results."""
        yield

    def end(self, _code: int, line: str) -> None:
        """The run is over.

        Args:
            _code: The exit code.
            line: Why it is that one.
        """
        say(line)
