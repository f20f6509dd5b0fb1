# Apart from `telemetry.spans`: together they exceed 600 lines.
"""A journal that tells of what is written down in another one."""

from collections.abc import Container, Mapping
from typing import Any, Protocol

import attrs

from trioeval.agent.journal import AgentJournal
from trioeval.columns.journal import DatasetJournal
from trioeval.columns.result import DatasetResult
from trioeval.evaluation.journal import CallKey, CallRecord, KeptRows, Paid
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.run.journal import RunJournal
from trioeval.run.observing_journal import PassingJournal


class Hearer(Protocol):
    """Who is told."""

    def call_ended(self, call: CallRecord, /) -> None:
        """A call is over."""
        ...

    def recalled(self, key: CallKey, /) -> None:
        """The reply to a question was there from an earlier execution."""
        ...

    def row_ended(self, row: Row, /) -> None:
        """A row is known."""
        ...

    def has_no_rows(self, task: str | None, /) -> None:
        """A task builds a dataset: its calls belong to no row."""
        ...


@attrs.frozen(eq=False)
class TellingJournal(PassingJournal):
    """Writes everything down in another one, and then tells of it."""

    hearer: Hearer

    def call(self, call: CallRecord, /) -> None:
        """See `RunJournal`, as for all others."""
        super().call(call)
        self.hearer.call_ended(call)

    def recall(self, key: CallKey, /) -> Paid | None:
        """See there."""
        paid = super().recall(key)
        if paid is not None:
            self.hearer.recalled(key)
        return paid

    def row(self, row: Row, /) -> None:
        """See there."""
        super().row(row)
        self.hearer.row_ended(row)

    def dataset(self, task: str | None, /) -> DatasetJournal | None:
        """See there."""
        self.hearer.has_no_rows(task)
        return super().dataset(task)


@attrs.frozen(eq=False)
class NoJournal(RunJournal):
    """Keeps nothing: for runs that are told of and not kept."""

    @property
    def resumed(self) -> bool:
        """Never."""
        return False

    def begin(self, suite: PreparedSuite, /) -> None:
        """Nothing."""

    async def end(self, *, finished: bool, duration: float) -> None:  # noqa: ASYNC124
        """Nothing."""

    def call(self, call: CallRecord, /) -> None:
        """Nothing."""

    def recall(self, key: CallKey, /) -> Paid | None:  # noqa: ARG002 - as the protocol has it
        """Nothing is there."""
        return None

    def row(self, row: Row, /) -> None:
        """Nothing."""

    def first_alone(self, task: str | None, rows: range, /) -> int:  # noqa: ARG002
        """None."""
        return rows.stop

    def rows_not_run(self, rows: RowsNotRun, /) -> None:
        """Nothing."""

    def standing(self, row: Row, /) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Nothing."""
        return None

    def reject(self, key: CallKey, /) -> None:
        """Nothing."""

    def asks_anew(self, task: str | None, index: int, /) -> bool:  # noqa: ARG002
        """Never."""
        return False

    async def durable(self, row: Row | None = None, /) -> None:  # noqa: ASYNC124
        """At once."""

    def kept(self, task: str | None, /) -> KeptRows:  # noqa: ARG002
        """None."""
        return _NoRows()

    def dataset(self, task: str | None, /) -> DatasetJournal | None:  # noqa: ARG002
        """Not written down."""
        return None

    def dataset_ended(self, result: DatasetResult, /) -> None:
        """Nothing."""

    def agents(self, task: str | None, /) -> AgentJournal | None:  # noqa: ARG002
        """Not written down."""
        return None


@attrs.frozen
class _NoRows(Container[int]):
    def __len__(self) -> int:
        return 0

    def __contains__(self, _index: object) -> bool:
        return False

    def record(self, index: int, /) -> Mapping[str, Any]:
        raise KeyError(index)
