"""Reading a store, while others may write to it: for commands, and for whatever comes after a run."""

import contextlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs

from trioeval.columns.result import DroppedRow
from trioeval.errors import StoreError, UsageError
from trioeval.evaluation.reconcile import StoredIdentity
from trioeval.report.stored import DatasetFacts, RunFacts, RunState, StoredCall, StoredOutcome
from trioeval.store.database import is_running, lock_run, open_database, open_reading, store_error
from trioeval.store.dataset_writes import read_dataset_facts, read_dropped
from trioeval.store.never_began import NeverBegan, read_never_began
from trioeval.store.planner.owners import EndProcesses, leave, processes_of
from trioeval.store.records import Source, read_body, read_calls, read_text, record_texts
from trioeval.store.row_pages import RowPage, RowQuery, read_row_page
from trioeval.store.runs import delete_run, key_range, read_activity, read_runs
from trioeval.store.schema import INDEX_BITS, RUNS

T = TypeVar("T")

_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")
_SHOWN = 5  # ids in a message
_BUSY = 30.0  # seconds that deleting waits for whoever writes
_INDEX = (1 << INDEX_BITS) - 1
_IDENTITIES = (
    "SELECT key, row_id, coalesce(content, '') FROM result WHERE key BETWEEN ? AND ? ORDER BY key"
)
_OUTCOMES = "SELECT key, outcome, status FROM result WHERE key BETWEEN ? AND ? ORDER BY key"


@contextlib.contextmanager
def read_store(path: Path) -> Iterator["Reader"]:
    """Read a store that is there. Also one that is being written, and one that was never closed.

    Raises:
        StoreError: There is none, it is damaged, foreign or of a newer version, or it cannot be read.

    Example:
        ```python
        with read_store(Path(".trioeval/results.db")) as reader:
            run = reader.run("latest")
            for record in reader.records(run):
                print(record["success"], record["vars"])
        ```
    """
    connection = open_reading(path, RUNS)
    try:
        yield Reader(path, connection)
    except sqlite3.Error as error:
        raise store_error(path, RUNS, error) from error
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.close()


@attrs.frozen(eq=False)
class Reader:
    """A store that is open to be read. Every method may raise `StoreError`."""

    path: Path
    _connection: sqlite3.Connection = attrs.field(repr=False)

    def runs(
        self,
        *,
        suite: str | None = None,
        state: RunState | None = None,
        limit: int | None = None,
    ) -> list[RunFacts]:
        """The runs, the newest first.

        Args:
            suite: The path of the suite that they are of.
            state: How they stand.
            limit: At most so many.
        """
        return self._guarded(lambda: self._runs(suite, state, limit))

    def run(self, name: str, *, suite: str | None = None) -> RunFacts:
        """One run: by its id, a beginning of it that no other has, `latest`, or `latest~2` before that.

        Args:
            name: Which.
            suite: Those of this suite alone.

        Raises:
            UsageError: There is none, or more than one.
        """
        runs = self.runs(suite=suite)
        of = f" of {suite}" if suite is not None else ""
        if not runs:
            raise UsageError(f"{self.path} holds no run{of}")
        named = _LATEST.fullmatch(name)
        if named is not None:
            place = int(named[1] or 0)
            if place >= len(runs):
                raise UsageError(f"{self.path}: there is no {name}{of}, only {len(runs)} runs")
            return runs[place]
        found = [run for run in runs if run.id == name] or [
            run for run in runs if run.id.startswith(name)
        ]
        if len(found) == 1:
            return found[0]
        ids = ", ".join(run.id for run in (found or runs)[:_SHOWN])
        what = (
            f"{name!r} is the beginning of {len(found)} runs"
            if found
            else f"there is no run {name!r}"
        )
        raise UsageError(f"{self.path}: {what}{of}; the last ones are {ids}")

    def find(self, run_id: str) -> RunFacts | None:
        """The run with this very id; None if there is none. Looks at no other one."""
        found = self._guarded(lambda: self._runs(None, None, 1, run_id))
        return found[0] if found else None

    def heads(self, run: RunFacts) -> list[Mapping[str, Any]]:
        """What was told of its tasks beside their rows, in their order."""
        return self._guarded(
            lambda: [
                _parsed(head)
                for (head,) in self._connection.execute(
                    "SELECT head FROM part WHERE run = ? ORDER BY position", (run.number,)
                )
            ]
        )

    def activity(self, run: RunFacts) -> list[Mapping[str, Any]]:
        """What lanes did, for each execution that came to its end, in their order."""
        return self._guarded(lambda: read_activity(self._connection, run.number))

    def records(
        self,
        run: RunFacts,
        task: str | None = None,
        prompt_idx: int | None = None,
        *,
        failed_only: bool = False,
    ) -> Iterator[Mapping[str, Any]]:
        """The rows of a task, by their indices.

        Args:
            run: Which.
            task: Its id; None where the suite has no tasks but is one.
            prompt_idx: Those of one prompt alone.
            failed_only: Those alone that did not pass.
        """
        numbered = self.numbered(run, task, prompt_idx, failed_only=failed_only)
        return (record for _, record in numbered)

    def numbered(
        self,
        run: RunFacts,
        task: str | None = None,
        prompt_idx: int | None = None,
        *,
        failed_only: bool = False,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The same with their indices."""
        part, source = run.part(task), Source(self.path, task)
        if part is not None:
            for index, text in record_texts(
                self._connection, part, source, prompt_idx, failed_only=failed_only
            ):
                yield index, source.parsed(index, text)

    def record(self, run: RunFacts, task: str | None, index: int) -> Mapping[str, Any] | None:
        """One row; None if it was never written down."""
        key = self._key(run, task, index)
        source = Source(self.path, task)
        text = None if key is None else read_body(self._connection, key, source)
        return None if text is None else source.parsed(index, text)

    def calls(self, run: RunFacts, task: str | None, index: int) -> list[StoredCall]:
        """The calls that a row made, in the order in which they ended, over all executions."""
        key = self._key(run, task, index)
        return [] if key is None else self._guarded(lambda: read_calls(self._connection, key))

    def never_began(self, run: RunFacts, task: str | None = None) -> Sequence[NeverBegan]:
        """Rows of a task that never began and were written down together; others have records."""
        part = run.part(task)
        if part is None:
            return ()
        return self._guarded(lambda: read_never_began(self._connection, part))

    def row_page(self, run: RunFacts, wanted: RowQuery) -> RowPage:
        """Some of the rows of a run, as they are paged through."""
        return self._guarded(lambda: read_row_page(self._connection, self.path, run, wanted))

    def datasets(self, run: RunFacts) -> Mapping[str | None, DatasetFacts]:
        """The datasets of a run that were begun, or have ended, by their tasks."""
        return self._guarded(
            lambda: {
                facts.task: facts
                for task, part in zip(run.tasks, run.parts, strict=True)
                if (facts := read_dataset_facts(self._connection, task, part)) is not None
            }
        )

    def dropped_rows(
        self, run: RunFacts, task: str | None, *, row: int | None = None, limit: int = 100
    ) -> Sequence[DroppedRow]:
        """Rows of a dataset that are not there, by their numbers.

        Args:
            run: Which.
            task: The id of the task.
            row: Only that one.
            limit: At most so many.
        """
        part = run.part(task)
        if part is None:
            return ()
        return self._guarded(lambda: read_dropped(self._connection, part, row, limit))

    def identities(self, run: RunFacts, task: str | None = None) -> Iterator[StoredIdentity]:
        """What the rows of a task are, by their indices."""
        lines = self._lines(_IDENTITIES, _keys(run, task))
        return (StoredIdentity(key & _INDEX, row_id, content) for key, row_id, content in lines)

    def begun(self, run: RunFacts, task: str | None = None) -> Iterator[tuple[int, str]]:
        """The rows of a task that have made calls, and were never written down: their indices and ids."""
        statement = (
            "SELECT key, max(row_id) FROM call WHERE key BETWEEN ? AND ? "
            "AND key NOT IN (SELECT key FROM result) GROUP BY key ORDER BY key"
        )
        return ((key & _INDEX, row) for key, row in self._lines(statement, _keys(run, task)))

    def working(self, run: RunFacts, task: str | None = None) -> frozenset[int]:
        """The rows of a task whose agents have a process, or had one when the run died: their indices."""
        # What an earlier execution has left is nothing of one that goes on.
        statement = "SELECT key FROM running_attempt WHERE key BETWEEN ? AND ? AND execution >= ?"
        since = run.executions if run.state == "running" else 0
        found = self._lines(statement, (*_keys(run, task), since))
        return frozenset(key & _INDEX for (key,) in found)

    def outcomes(self, run: RunFacts, task: str | None = None) -> Iterator[StoredOutcome]:
        """How the rows of a task ended, by their indices."""
        lines = self._lines(_OUTCOMES, _keys(run, task))
        return (
            StoredOutcome(key & _INDEX, outcome, status in {"pass", "fail"}, status == "pass")
            for key, outcome, status in lines
        )

    def tests(self, run: RunFacts, task: str | None = None) -> Iterator[Any]:
        """What was told of the tests of a task; nothing of a run that died."""
        statement = "SELECT body FROM test WHERE part = ? ORDER BY position"
        for (body,) in self._lines(statement, (run.part(task),)):
            yield self._guarded(partial(_parsed, body))

    def delete(self, run: RunFacts, end: EndProcesses = leave) -> None:
        """Take away a run and all that belongs to it.

        Args:
            run: Which.
            end: Given what its agents have left running, before that is forgotten.

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
        end: EndProcesses = leave,
    ) -> list[RunFacts]:
        """Take away old runs, but none that is running; what was taken away.

        Args:
            keep: So many of the newest stay.
            older_than_s: What was begun less than so many seconds ago stays.
            now: What time it is; None asks the clock.
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

    def _delete(self, runs: Sequence[RunFacts], end: EndProcesses) -> list[RunFacts]:
        if not runs:
            return []
        connection = open_database(self.path, RUNS, busy_s=_BUSY)
        deleted = []
        try:
            for run in runs:
                lock = lock_run(self.path, run.id)
                try:
                    # While nobody else can go on with the run.
                    if left := processes_of(connection, run.number):
                        end(run, left)
                    connection.execute("BEGIN IMMEDIATE")
                    delete_run(connection, run.number)
                    connection.execute("COMMIT")
                    deleted.append(run)
                finally:
                    lock.release()
            connection.execute("PRAGMA busy_timeout = 0")
            # What others use meanwhile stays as large as it is; the room is used again.
            with contextlib.suppress(sqlite3.OperationalError):
                connection.execute("VACUUM")
        except sqlite3.Error as error:
            raise store_error(self.path, RUNS, error) from error
        finally:
            connection.close()
        return deleted

    def _runs(
        self,
        suite: str | None,
        state: RunState | None,
        limit: int | None,
        run_id: str | None = None,
    ) -> list[RunFacts]:
        found: list[RunFacts] = []
        for facts, is_open in read_runs(self._connection, suite=suite, run_id=run_id):
            if limit is not None and len(found) >= limit:
                break
            run = facts
            if is_open and is_running(self.path, facts.id):
                run = attrs.evolve(facts, state="running")
            if state is None or run.state == state:
                found.append(run)
        return found

    def _key(self, run: RunFacts, task: str | None, index: int) -> int | None:
        part = run.part(task)
        return None if part is None or not 0 <= index <= _INDEX else part << INDEX_BITS | index

    def _lines(self, statement: str, given: Sequence[int | None]) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(statement, given)
        except sqlite3.Error as error:
            raise store_error(self.path, RUNS, error) from error

    def _guarded(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except sqlite3.Error as error:
            raise store_error(self.path, RUNS, error) from error
        except (ValueError, KeyError) as error:
            raise StoreError(
                f"{self.path}: the store of runs holds what cannot be read ({error}); it may be damaged"
            ) from error


def _keys(run: RunFacts, task: str | None) -> tuple[int, int]:
    """The first and the last key that rows of a task may have; of a task that is not there, none."""
    part = run.part(task)
    return (0, -1) if part is None else key_range(part)


def _parsed(stored: str | bytes) -> Any:
    return json.loads(read_text(stored))


def _timestamp(text: str) -> float:
    """Seconds since 1970; of what is no instant, the beginning of time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
