"""A journal that tells of each row as soon as it is known, which is before it comes in its turn."""

from collections.abc import Callable

import attrs

from trioeval.tasks import Row
from trioeval.tasks.passing_journal import PassingJournal


@attrs.frozen(eq=False)
class NoticingJournal(PassingJournal):
    """Writes everything down in another one, and tells of rows."""

    notice: Callable[[Row], None]

    async def end(self, *, finished: bool, duration: float) -> None:
        """The run is not over before its results are written, see `Execution`."""

    def row(self, row: Row, /) -> None:
        """See `Journal`."""
        super().row(row)
        self.notice(row)
