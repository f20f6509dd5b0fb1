"""The records of a run on workers, and those that a row takes with it when it is placed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply, RecordObserver
from trioeval.run.journal import RunJournal
from trioeval.scaleout.blocks import SentRow
from trioeval.scaleout.messages import CreatedJob

RecordedReplies = Callable[[str | None, int], Sequence[tuple[CallKey, RecordedReply]]]
"""Returns the replies to a row that earlier executions of the run recorded."""

RecordedJobs = Callable[[str | None, int], Sequence[tuple[CallKey, str]]]
"""Returns the jobs of a row at services that earlier executions of the run recorded."""


@attrs.frozen(eq=False, repr=False)
class RunRecords:
    """The records of a run: those that arrive, and those of its earlier executions."""

    journal: RunJournal | None = None
    _observers: Sequence[RecordObserver] = ()
    _recorded: RecordedReplies | None = None
    _recorded_jobs: RecordedJobs | None = None

    def call(self, call: CallRecord) -> None:
        """Record a call."""
        if self.journal is not None:
            self.journal.call(call)
        for observer in self._observers:
            observer.on_call(call)

    def reject(self, key: CallKey) -> None:
        """Record that a reply is not to be used again."""
        if self.journal is not None:
            self.journal.reject(key)

    def job(self, created: CreatedJob, row: SentRow | None) -> None:
        """Record a job at a service, or its end: also if nothing awaits its row any more, it is paid.

        Args:
            created: The job.
            row: Its row; None if nothing awaits it.
        """
        key, name = created.key, created.name
        kept = None if self.journal is None else self.journal.job(key)
        if name is None:
            if kept is not None:
                kept.drop()
            if row is not None:
                row.jobs.pop(key, None)
        else:
            if kept is not None:
                kept.note(name)
            if row is not None:
                row.jobs[key] = name

    def recorded_replies(
        self, task: str | None, row: int
    ) -> Sequence[tuple[CallKey, RecordedReply]]:
        """Return the replies to calls for a row that earlier executions recorded."""
        return () if self._recorded is None else self._recorded(task, row)

    def replies(self, row: SentRow) -> Sequence[tuple[CallKey, RecordedReply]]:
        """Return the recorded replies to a row, of earlier executions and of this one."""
        before: Sequence[tuple[CallKey, RecordedReply]] = ()
        if self.journal is not None and self.journal.resumed:
            before = self.recorded_replies(row.block.task.id, row.index)
        return [*before, *row.replies.items()]

    def jobs(self, row: SentRow) -> Sequence[tuple[CallKey, str]]:
        """Return the recorded jobs of a row, of earlier executions and of this one."""
        if not row.block.task.keeps_jobs:
            return ()
        before: Sequence[tuple[CallKey, str]] = ()
        if self._recorded_jobs is not None and self.journal is not None and self.journal.resumed:
            before = self._recorded_jobs(row.block.task.id, row.index)
        return [*before, *row.jobs.items()]

    def needs_new_reply(self, row: SentRow) -> bool:
        """Return whether a row ignores its recorded replies."""
        journal = self.journal
        return (
            not row.losses
            and journal is not None
            and journal.resumed
            and journal.needs_new_reply(row.block.task.id, row.index)
        )
