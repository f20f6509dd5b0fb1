"""Record of a whole run: its suite and its end, and what each task type records beside calls and rows."""

from typing import Protocol

from trioeval.agent.journal import AgentJournal
from trioeval.columns.journal import DatasetJournal
from trioeval.columns.result import DatasetResult
from trioeval.evaluation.journal import Journal
from trioeval.evaluation.prepared import PreparedSuite


class RunJournal(Journal, Protocol):
    """Record of one run; as for `Journal`, nothing synchronous here waits or raises."""

    def begin(self, suite: PreparedSuite, /) -> None:
        """Write down what is run, before anything is asked.

        Raises:
            UsageError: The run is over already.
        """
        ...

    async def end(self, *, finished: bool, duration: float) -> None:
        """Write down how the run ended, and free it for others: nothing of it follows. A checkpoint.

        Called once, whatever ended the run, in a scope that cancels it after a few seconds.

        Args:
            finished: Whether nothing is left to be run.
            duration: Seconds on the Trio clock.
        """
        ...

    def dataset(self, task: str | None, /) -> DatasetJournal | None:
        """Where the dataset of a task of type `columns` is written down; None if datasets are not."""
        ...

    def dataset_ended(self, result: DatasetResult, /) -> None:
        """Write down how the dataset of a task ended."""
        ...

    def agents(self, task: str | None, /) -> AgentJournal | None:
        """Where the processes of a task of type `agent` are written down; None if they are not."""
        ...
