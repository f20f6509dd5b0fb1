"""Read access to a store, while others may write to it: for commands, and for code after a run."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from trioeval.evaluation.reconcile import StoredIdentity
from trioeval.report.stored import DatasetFacts, StoredCall, StoredOutcome, StoredRunFacts
from trioeval.run import Status
from trioeval.store.database import lock_run, open_database, store_error
from trioeval.store.not_run_rows import NotRunRows, read_never_began
from trioeval.store.records import (
    RecordSource,
    fact_bodies,
    quick_record,
    read_body,
    read_calls,
    read_text,
    record_texts,
)
from trioeval.store.row_pages import RowPage, RowQuery, read_row_page
from trioeval.store.run_list import RunReader, has_table, key_range, open_connection
from trioeval.store.runs import delete_run, read_activity, read_part_totals, remove_media
from trioeval.store.schema import INDEX_BITS, RUNS

if TYPE_CHECKING:
    from trioeval.columns.result import DroppedRow
    from trioeval.report.compare_runs import UnreadRow
    from trioeval.store.planner.owners import EndProcesses

_BUSY = 30.0  # seconds that deleting waits for writers
_INDEX = (1 << INDEX_BITS) - 1
_IDENTITIES = (
    "SELECT key, row_id, coalesce(content, '') FROM result WHERE key BETWEEN ? AND ? ORDER BY key"
)
_FACTS = "SELECT key, test, status, outcome FROM result WHERE key BETWEEN ? AND ? ORDER BY key"
_FAILED_FACTS = _FACTS.replace(" ORDER", " AND status NOT IN ('pass', 'not_graded') ORDER")
_STATUSES = {status.value: status for status in Status}
_OUTCOMES = "SELECT key, outcome, status FROM result WHERE key BETWEEN ? AND ? ORDER BY key"


@contextlib.contextmanager
def read_store(path: str | os.PathLike[str]) -> Iterator[StoreReader]:
    """Read an existing store, also while it is being written or after it was not closed.

    Raises:
        StoreError: It does not exist, is damaged, foreign or of a newer version, or cannot be read.

    Example:
        ```python
        with read_store(".trioeval/results.db") as reader:
            run = reader.run("latest")
            for record in reader.records(run):
                print(record["success"], record["vars"])
        ```
    """
    database = Path(path)
    with open_connection(database) as connection:
        yield StoreReader(database, connection)


@attrs.frozen(eq=False)
class StoreReader(RunReader):
    """A store that is open for reading. Every method may raise `StoreError`."""

    def heads(self, run: StoredRunFacts) -> list[Mapping[str, Any]]:
        """Return the recorded facts of its tasks except their rows, in order."""
        return self._guarded(
            lambda: [
                _parsed(head)
                for (head,) in self._connection.execute(
                    "SELECT head FROM part WHERE run = ? ORDER BY position", (run.number,)
                )
            ]
        )

    def activity(self, run: StoredRunFacts) -> list[Mapping[str, Any]]:
        """Return the activity of lanes, for each execution that came to its end, in order."""
        return self._guarded(lambda: read_activity(self._connection, run.number))

    def records(
        self,
        run: StoredRunFacts,
        task: str | None = None,
        prompt_idx: int | None = None,
        *,
        failed_only: bool = False,
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of a task, by index.

        Args:
            run: The run.
            task: The id of the task; None if the suite has no named tasks.
            prompt_idx: Only rows of this prompt.
            failed_only: Only rows that are not successes.
        """
        numbered = self.numbered(run, task, prompt_idx, failed_only=failed_only)
        return (record for _, record in numbered)

    def numbered(
        self,
        run: StoredRunFacts,
        task: str | None = None,
        prompt_idx: int | None = None,
        *,
        failed_only: bool = False,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the same with their indices."""
        part, source = run.part(task), RecordSource(self.path, task)
        if part is not None:
            for index, text in record_texts(
                self._connection, part, source, prompt_idx, failed_only=failed_only
            ):
                yield index, source.parsed(index, text)

    def row_facts(
        self, run: StoredRunFacts, task: str | None = None, *, failed_only: bool = False
    ) -> Iterator[tuple[int, int, Status, str]]:
        """Yield the index, test, status and outcome of each row of a task, by index, without its record.

        Args:
            run: The run.
            task: The id of the task.
            failed_only: Only rows that are not successes.
        """
        lines = self._lines(_FAILED_FACTS if failed_only else _FACTS, _keys(run, task))
        for key, test, status, outcome in lines:
            yield key & _INDEX, test, _STATUSES[status], outcome

    def unread_rows(self, run: StoredRunFacts, task: str | None = None) -> Iterator[UnreadRow]:
        """Yield the rows of a task for a comparison, by index."""
        from trioeval.report.compare_runs import UnreadRow

        part, source = run.part(task), RecordSource(self.path, task)
        if part is None:
            return
        for key, status, outcome, stored in fact_bodies(self._connection, part, source):
            read = partial(source.read, key & _INDEX, stored)
            members = quick_record(stored)
            yield UnreadRow(
                read() if members is None else members,
                key & _INDEX,
                _STATUSES[status],
                outcome,
                read,
            )

    def totals(self, run: StoredRunFacts, task: str | None = None) -> str | None:
        """Return the text of the totals of a task, as `report.kept_totals` reads it; None if not kept."""
        part = run.part(task)
        if part is None:
            return None
        return self._guarded(lambda: read_part_totals(self._connection, part))

    def record(self, run: StoredRunFacts, task: str | None, index: int) -> Mapping[str, Any] | None:
        """Return one row; None if it was not recorded."""
        key = self._key(run, task, index)
        source = RecordSource(self.path, task)
        text = None if key is None else read_body(self._connection, key, source)
        return None if text is None else source.parsed(index, text)

    def calls(self, run: StoredRunFacts, task: str | None, index: int) -> list[StoredCall]:
        """Return the calls of a row, in the order in which they ended, over all executions."""
        key = self._key(run, task, index)
        return [] if key is None else self._guarded(lambda: read_calls(self._connection, key))

    def never_began(self, run: StoredRunFacts, task: str | None = None) -> Sequence[NotRunRows]:
        """Return the rows of a task that were never started and are stored as ranges; others have records."""
        part = run.part(task)
        if part is None:
            return ()
        return self._guarded(lambda: read_never_began(self._connection, part))

    def row_page(self, run: StoredRunFacts, query: RowQuery) -> RowPage:
        """Return a page of the rows of a run."""
        return self._guarded(lambda: read_row_page(self._connection, self.path, run, query))

    def datasets(self, run: StoredRunFacts) -> Mapping[str | None, DatasetFacts]:
        """Return the datasets of a run that were started, or have ended, by task."""
        from trioeval.store.dataset_writes import read_dataset_facts

        return self._guarded(
            lambda: {
                facts.task: facts
                for task, part in zip(run.tasks, run.parts, strict=True)
                if (facts := read_dataset_facts(self._connection, task, part)) is not None
            }
        )

    def dropped_rows(
        self, run: StoredRunFacts, task: str | None, *, row: int | None = None, limit: int = 100
    ) -> Sequence[DroppedRow]:
        """Return dropped rows of a dataset, by number.

        Args:
            run: The run.
            task: The id of the task.
            row: Only that row.
            limit: The most rows.
        """
        part = run.part(task)
        if part is None:
            return ()
        from trioeval.store.dataset_writes import read_dropped

        return self._guarded(lambda: read_dropped(self._connection, part, row, limit))

    def identities(self, run: StoredRunFacts, task: str | None = None) -> Iterator[StoredIdentity]:
        """Yield the identities of the rows of a task, by index."""
        lines = self._lines(_IDENTITIES, _keys(run, task))
        return (StoredIdentity(key & _INDEX, row_id, content) for key, row_id, content in lines)

    def started_rows(
        self, run: StoredRunFacts, task: str | None = None
    ) -> Iterator[tuple[int, str]]:
        """Yield the rows of a task that have made calls, and were not recorded: their indices and ids."""
        tables = [name for name in ("call", "job") if has_table(self._connection, name)]
        started = " UNION ALL ".join(
            f"SELECT key, row_id FROM {name} WHERE key BETWEEN ?1 AND ?2"  # noqa: S608
            for name in tables
        )
        statement = (
            f"SELECT key, max(row_id) FROM ({started}) "  # noqa: S608
            "WHERE key NOT IN (SELECT key FROM result) GROUP BY key ORDER BY key"
        )
        return ((key & _INDEX, row) for key, row in self._lines(statement, _keys(run, task)))

    def rows_with_processes(self, run: StoredRunFacts, task: str | None = None) -> frozenset[int]:
        """Return the indices of a task's rows whose agents have a process, or had one when the run died."""
        # Processes left by an earlier execution do not belong to a resumed one.
        statement = "SELECT key FROM running_attempt WHERE key BETWEEN ? AND ? AND execution >= ?"
        since = run.executions if run.state == "running" else 0
        found = self._lines(statement, (*_keys(run, task), since))
        return frozenset(key & _INDEX for (key,) in found)

    def outcomes(self, run: StoredRunFacts, task: str | None = None) -> Iterator[StoredOutcome]:
        """Yield the outcomes of the rows of a task, by index."""
        lines = self._lines(_OUTCOMES, _keys(run, task))
        return (
            StoredOutcome(key & _INDEX, outcome, Status(status)) for key, outcome, status in lines
        )

    def tests(self, run: StoredRunFacts, task: str | None = None) -> Iterator[Any]:
        """Yield the recorded tests of a task; none for a run that died."""
        statement = "SELECT body FROM test WHERE part = ? ORDER BY position"
        for (body,) in self._lines(statement, (run.part(task),)):
            yield self._guarded(partial(_parsed, body))

    def delete(self, run: StoredRunFacts, end: EndProcesses | None = None) -> None:
        """Delete a run and all of its data.

        Args:
            run: The run.
            end: Called with the processes that its agents have left running, before their records are
                deleted.

        Raises:
            UsageError: It is running.
            StoreError: The database cannot be written.
        """
        self._delete([run], end)

    def prune(
        self,
        *,
        keep: int | None = None,
        older_than_s: float | None = None,
        now: datetime | None = None,
        end: EndProcesses | None = None,
    ) -> list[StoredRunFacts]:
        """Delete old runs, except running ones; return the deleted runs.

        Args:
            keep: Number of the newest runs to keep.
            older_than_s: Runs started less than this number of seconds ago are kept.
            now: The current time; None asks the clock.
            end: As in `delete`.
        """
        instant = (now or datetime.now(UTC)).timestamp()
        chosen = [
            run
            for place, run in enumerate(self.runs())
            if run.state != "running"
            and (keep is None or place >= keep)
            and (older_than_s is None or instant - _timestamp(run.utc_created) > older_than_s)
        ]
        if keep is None and older_than_s is None:
            return []
        return self._delete(chosen, end)

    def _delete(
        self, runs: Sequence[StoredRunFacts], end: EndProcesses | None
    ) -> list[StoredRunFacts]:
        if not runs:
            return []
        from trioeval.store.planner.owners import processes_of

        connection = open_database(self.path, RUNS, busy_s=_BUSY)
        deleted = []
        try:
            for run in runs:
                lock = lock_run(self.path, run.id)
                try:
                    # While no other program can resume the run.
                    if end is not None and (left := processes_of(connection, run.number)):
                        end(run, left)
                    connection.execute("BEGIN IMMEDIATE")
                    delete_run(connection, run.number)
                    remove_media(connection, self.path)
                    connection.execute("COMMIT")
                    deleted.append(run)
                finally:
                    lock.release()
            connection.execute("PRAGMA busy_timeout = 0")
            # If others use the file it stays as large as it is; its free space is reused.
            with contextlib.suppress(sqlite3.OperationalError):
                connection.execute("VACUUM")
        except sqlite3.Error as error:
            raise store_error(self.path, RUNS, error) from error
        finally:
            connection.close()
        return deleted

    def _key(self, run: StoredRunFacts, task: str | None, index: int) -> int | None:
        part = run.part(task)
        return None if part is None or not 0 <= index <= _INDEX else part << INDEX_BITS | index


def _keys(run: StoredRunFacts, task: str | None) -> tuple[int, int]:
    """Return the first and the last key that rows of a task may have; an empty range for an unknown task."""
    part = run.part(task)
    return (0, -1) if part is None else key_range(part)


def _parsed(stored: str | bytes) -> Any:
    return json.loads(read_text(stored))


def _timestamp(text: str) -> float:
    """Return seconds since 1970; 0 for an invalid text."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
