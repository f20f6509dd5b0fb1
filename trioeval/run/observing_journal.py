"""A journal that passes everything on to another one, for those who hear of some of it on the way."""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.agent.journal import AgentJournal
from trioeval.columns.journal import DatasetJournal
from trioeval.columns.result import DatasetResult
from trioeval.evaluation.journal import CallKey, CallRecord, KeptRows, Paid
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.run.journal import RunJournal


@attrs.frozen(eq=False)
class PassingJournal(RunJournal):
    """Writes everything down in another one."""

    journal: RunJournal

    @property
    def resumed(self) -> bool:
        """See `RunJournal`, as for all others."""
        return self.journal.resumed

    def begin(self, suite: PreparedSuite, /) -> None:
        """See there."""
        self.journal.begin(suite)

    async def end(self, *, finished: bool, duration: float) -> None:
        """See there."""
        await self.journal.end(finished=finished, duration=duration)

    def call(self, call: CallRecord, /) -> None:
        """See there."""
        self.journal.call(call)

    def recall(self, key: CallKey, /) -> Paid | None:
        """See there."""
        return self.journal.recall(key)

    def row(self, row: Row, /) -> None:
        """See there."""
        self.journal.row(row)

    def first_alone(self, task: str | None, rows: range, /) -> int:
        """See there."""
        return self.journal.first_alone(task, rows)

    def rows_not_run(self, rows: RowsNotRun, /) -> None:
        """See there."""
        self.journal.rows_not_run(rows)

    def standing(self, row: Row, /) -> Mapping[str, Any] | None:
        """See there."""
        return self.journal.standing(row)

    def reject(self, key: CallKey, /) -> None:
        """See there."""
        self.journal.reject(key)

    def asks_anew(self, task: str | None, index: int, /) -> bool:
        """See there."""
        return self.journal.asks_anew(task, index)

    async def durable(self, row: Row | None = None, /) -> None:
        """See there."""
        await self.journal.durable(row)

    def kept(self, task: str | None, /) -> KeptRows:
        """See there."""
        return self.journal.kept(task)

    def dataset(self, task: str | None, /) -> DatasetJournal | None:
        """See there."""
        return self.journal.dataset(task)

    def dataset_ended(self, result: DatasetResult, /) -> None:
        """See there."""
        self.journal.dataset_ended(result)

    def agents(self, task: str | None, /) -> AgentJournal | None:
        """See there."""
        return self.journal.agents(task)
