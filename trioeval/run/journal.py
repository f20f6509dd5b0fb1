"""The journal of a whole run: its suite and its end, and the additional records of each task type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trioeval.evaluation.journal import Journal
from trioeval.evaluation.prepared import PreparedSuite

if TYPE_CHECKING:
    from trioeval.agent.journal import AgentJournal
    from trioeval.columns.journal import DatasetJournal
    from trioeval.columns.result import DatasetResult


class RunJournal(Journal, Protocol):
    """The journal of one run; as for `Journal`, the synchronous methods never wait or raise."""

    def begin(self, suite: PreparedSuite, /) -> None:
        """Record the suite before the first call.

        Raises:
            UsageError: The run has already ended.
        """
        ...

    async def end(self, *, finished: bool, duration: float) -> None:
        """Record the end of the run, and release it for other processes. A checkpoint.

        Called once, however the run ends, in a scope that cancels it after a few seconds; nothing is recorded
        afterwards.

        Args:
            finished: True if everything has been run.
            duration: Seconds on the Trio clock.
        """
        ...

    def dataset(self, task: str | None, /) -> DatasetJournal | None:
        """Return the journal of the dataset of a task; None if datasets are not recorded."""
        ...

    def dataset_ended(self, result: DatasetResult, /) -> None:
        """Record the result of the dataset of a task."""
        ...

    def agents(self, task: str | None, /) -> AgentJournal | None:
        """Return the journal of the processes of a task of type `agent`; None if they are not recorded."""
        ...
