"""The open store of runs: one writer, and a separate connection for reading."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from trioeval.errors import StoreError
from trioeval.evaluation.identity import Identities
from trioeval.report.stored import RunStart
from trioeval.store.database import (
    Durability,
    check_pages,
    lock_run,
    open_database,
    open_patiently,
    open_reading,
    store_error,
)
from trioeval.store.run import ResumedRun, StoredRun
from trioeval.store.runs import begin_run
from trioeval.store.schema import RUNS
from trioeval.store.writer import Writer
from trioeval.store.writes import RunPlace, StepWrite

if TYPE_CHECKING:
    from trioeval.evaluation.reconcile import Reconciled, Retry

PATIENCE = 30.0
"""Seconds that another program may keep the database locked."""

_SHOWN = 5  # rows in a message
_NO_CHANGES: Mapping[str | None, Reconciled] = {}


@contextlib.asynccontextmanager
async def open_store(
    path: Path | None,
    *,
    durability: Durability = "normal",
    wal: bool = True,
    on_error: Callable[[StoreError], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
    patience_s: float = PATIENCE,
    after_commit: Callable[[], None] | None = None,
) -> AsyncIterator[Store]:
    """Open the store of runs for writing, until the end of the block, where all of it is written.

    It never ends the block: later problems of the file are reported, and available as `error`.

    Args:
        path: The path of the file, which is created if it does not exist; None stores runs in a file that
            is deleted at the end.
        durability: `full` waits for the disk at every commit, so that a loss of power loses nothing;
            `normal` may lose the last moments. A killed process loses nothing in either mode.
        wal: Whether the file has a write-ahead log. Without one, as network drives need it, each commit waits
            for the disk.
        on_error: Called when nothing can be written any more.
        on_warning: Called with problems that may be temporary.
        patience_s: Seconds that another program may keep the file locked.
        after_commit: Called in the writer's thread after each commit. It must not open the file itself
            if other processes use it: closing it again would release the locks of this one.

    Raises:
        StoreError: The file cannot be used; nothing has been changed.
    """
    async with contextlib.AsyncExitStack() as stack:
        if path is None:
            # Not when the block ends, but when everything has been closed.
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="trioeval-", ignore_cleanup_errors=True)
            )
            path = Path(folder) / "results.db"
        connection = await open_patiently(
            partial(_open_whole, path, durability, wal=wal),
            path,
            RUNS,
            patience_s=patience_s,
            on_warning=on_warning,
        )
        try:
            reading = open_reading(path, RUNS)
        except StoreError:
            connection.close()
            raise
        writer = Writer(
            connection,
            path,
            patience_s=patience_s,
            on_error=on_error,
            on_warning=on_warning,
            after_commit=after_commit,
        )
        store = Store(path, writer, reading, patience_s)
        writer.start()
        try:
            yield store
        finally:
            store.is_closed = True
            with contextlib.suppress(sqlite3.Error):
                reading.close()  # first, so that it does not keep the log from being truncated
            try:
                await writer.aclose()
            finally:
                store.release()


def _open_whole(path: Path, durability: Durability, *, wal: bool) -> sqlite3.Connection:
    """Open the store, and check a small one for damage."""
    connection = open_database(path, RUNS, durability=durability, wal=wal)
    try:
        check_pages(connection, path, RUNS)
    except StoreError:
        connection.close()
        raise
    return connection


@attrs.define(eq=False, repr=False)
class Store:
    """An open store. Created by `open_store`."""

    path: Path
    _writer: Writer
    _reading: sqlite3.Connection
    _patience: float
    is_closed: bool = attrs.field(init=False, default=False)
    """True if nothing can be read or written any more."""
    _runs: list[StoredRun] = attrs.field(init=False, factory=list)
    """The runs that were not released when the latest of them began."""

    @property
    def error(self) -> StoreError | None:
        """The reason why nothing is written any more; None while writes succeed."""
        return self._writer.error

    def has(self, run_id: str) -> bool:
        """Return whether there is a run with this id.

        Raises:
            StoreError: The file cannot be read.
        """
        try:
            found = self._reading.execute("SELECT 1 FROM run WHERE id = ?", (run_id,))
            return found.fetchone() is not None
        except sqlite3.Error as error:
            raise store_error(self.path, RUNS, error) from error

    def begin(self, start: RunStart) -> StoredRun:
        """Start a run.

        Raises:
            UsageError: A run with this id is in progress.
            StoreError: Its lock cannot be created.
        """
        place = RunPlace(eval_id=start.id, keys=start.keys, identities=Identities(start.sources))
        lock = lock_run(self.path, start.id)

        def write(connection: sqlite3.Connection) -> None:
            place.number, place.parts = begin_run(connection, start)

        run = StoredRun(
            self._writer, place, self._connection, lock, start=start, going=ResumedRun()
        )
        self._hold(run)
        self._writer.put(StepWrite(write))
        return run

    async def resume(
        self,
        run_id: str,
        start: RunStart,
        *,
        retry: Retry | None = None,
        reconciled: Mapping[str | None, Reconciled] = _NO_CHANGES,
    ) -> StoredRun:
        """Resume a run. Its rows are read in a thread, one second for about 100,000 of them.

        The rows to run again are marked in the file, in one transaction: if this execution is killed, the
        next one continues with them. Rows stay as they are until they have been run again. Those whose
        records are damaged are reported as a warning, and run again.

        Args:
            run_id: Its id.
            start: As for `begin`. Its flags, files and heads replace those that are stored; heads that it
                lacks are taken from the suite that `run_suite` is given.
            retry: The rows to run again besides unfinished ones; None: those that an earlier execution was
                to run again and did not.
            reconciled: The changes of rows of tasks whose suite has changed since.

        Raises:
            UsageError: Another process runs it.
            StoreError: The run does not exist, or the file cannot be used.
        """
        with contextlib.ExitStack() as stack:
            lock = lock_run(self.path, run_id)
            stack.callback(lock.release)
            going = await open_patiently(
                partial(self._take_up, run_id, start, retry, reconciled),
                self.path,
                RUNS,
                patience_s=self._patience,
                on_warning=self._writer.warn,
            )
            stack.pop_all()
        for task, rows in going.damaged.items():
            self._writer.warn(_damage_warning(self.path, task, rows))
        place = RunPlace(
            eval_id=run_id,
            keys=start.keys,
            number=going.number,
            execution=going.execution,
            parts=dict(going.parts),
            identities=Identities(start.sources),
        )
        run = StoredRun(self._writer, place, self._connection, lock, start=start, going=going)
        self._hold(run)
        return run

    def release(self) -> None:
        """Release all runs for others."""
        for run in self._runs:
            run.release()

    def _hold(self, run: StoredRun) -> None:
        # A store of a service has any number of runs; those that are over are not kept in memory.
        self._runs = [one for one in self._runs if not one.is_released]
        self._runs.append(run)

    def _take_up(
        self,
        run_id: str,
        start: RunStart,
        retry: Retry | None,
        reconciled: Mapping[str | None, Reconciled],
    ) -> ResumedRun:
        from trioeval.evaluation.reconcile import Retry
        from trioeval.store.resuming import resume_run

        connection = open_database(self.path, RUNS)
        try:
            connection.execute("BEGIN IMMEDIATE")
            going = resume_run(connection, run_id, start, retry or Retry(), reconciled)
            if going is None:
                connection.execute("ROLLBACK")
                raise StoreError(f"{self.path}: run {run_id} not found")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise store_error(self.path, RUNS, error) from error
        else:
            return going
        finally:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        return self._reading


def _damage_warning(path: Path, task: str | None, rows: Sequence[int]) -> str:
    of = "" if task is None else f" of task {task}"
    shown = ", ".join(map(str, rows[:_SHOWN])) + (", …" if len(rows) > _SHOWN else "")
    return f"{path}: the records of some rows{of} are damaged ({shown}); they are run again"
