"""The list of stored runs: their facts and counts, without rows.

It is read without the modules that read rows, which import all of the evaluation: a list is shown at once.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from trioeval.errors import StoreError, UsageError
from trioeval.report.stored import RunState, StoredRunFacts
from trioeval.store.database import is_running, open_reading, store_error
from trioeval.store.schema import INDEX_BITS, RUNS

T = TypeVar("T")

LATEST = re.compile(r"latest(?:~(\d{1,9}))?")
"""The names of the latest run and of those before it."""
_SHOWN = 5  # ids in a message
_PLAIN = ("id", "suite", "description", "utc_created", "utc_finished", "executions", "duration_ms")
_FACTS = ("run", "state", "versions", "flags", "files", "derived", "totals", *_PLAIN)


@contextlib.contextmanager
def open_connection(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing store for reading while the block runs.

    Raises:
        StoreError: It does not exist, is damaged, foreign or of a newer version, or cannot be read.
    """
    connection = open_reading(path, RUNS)
    try:
        yield connection
    except sqlite3.Error as error:
        raise store_error(path, RUNS, error) from error
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.close()


@contextlib.contextmanager
def read_run_list(path: Path) -> Iterator[RunReader]:
    """Read the list of runs of an existing store; raises like `open_connection`."""
    with open_connection(path) as connection:
        yield RunReader(path, connection)


@attrs.frozen(eq=False, repr=False)
class RunReader:
    """The list of runs of a store that is open for reading. Every method may raise `StoreError`."""

    path: Path
    _connection: sqlite3.Connection = attrs.field(repr=False)

    def runs(
        self,
        *,
        suite: str | None = None,
        state: RunState | None = None,
        limit: int | None = None,
    ) -> list[StoredRunFacts]:
        """Return the runs, newest first.

        Args:
            suite: The path of their suite.
            state: Their state.
            limit: The most runs.
        """
        return self._guarded(lambda: self._runs(suite, state, limit))

    def run(self, name: str, *, suite: str | None = None) -> StoredRunFacts:
        """Return a run by its id, a unique prefix of it, `latest`, or `latest~2` for the second before that.

        Args:
            name: The name.
            suite: Only runs of this suite.

        Raises:
            UsageError: None matches, or more than one.
        """
        runs = self.runs(suite=suite)
        of = f" of {suite}" if suite is not None else ""
        if not runs:
            raise UsageError(f"{self.path} contains no runs{of}")
        named = LATEST.fullmatch(name)
        if named is not None:
            place = int(named[1] or 0)
            if place >= len(runs):
                count = "is 1 run" if len(runs) == 1 else f"are {len(runs)} runs"
                raise UsageError(f"{self.path}: {name}{of} does not exist: there {count}")
            return runs[place]
        found = [run for run in runs if run.id == name] or [
            run for run in runs if run.id.startswith(name)
        ]
        if len(found) == 1:
            return found[0]
        ids = ", ".join(run.id for run in (found or runs)[:_SHOWN])
        problem = (
            f"{name!r} is a prefix of {len(found)} runs" if found else f"run {name!r} not found"
        )
        raise UsageError(f"{self.path}: {problem}{of}; the last ones are {ids}")

    def find(self, run_id: str) -> StoredRunFacts | None:
        """Return the run with this exact id; None if it does not exist."""
        found = self._guarded(lambda: self._runs(None, None, 1, run_id))
        return found[0] if found else None

    def _runs(
        self,
        suite: str | None,
        state: RunState | None,
        limit: int | None,
        run_id: str | None = None,
    ) -> list[StoredRunFacts]:
        found: list[StoredRunFacts] = []
        for facts, is_open in read_runs(self._connection, suite=suite, run_id=run_id):
            if limit is not None and len(found) >= limit:
                break
            run = facts
            if is_open and is_running(self.path, facts.id):
                run = attrs.evolve(facts, state="running")
            if state is None or run.state == state:
                found.append(run)
        return found

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
                f"{self.path}: the store of runs contains unreadable data ({error}); it may be damaged"
            ) from error


def key_range(part: int) -> tuple[int, int]:
    """Return the first and last key that rows of a part may have."""
    return part << INDEX_BITS, (part + 1 << INDEX_BITS) - 1


def part_numbers(connection: sqlite3.Connection, number: int) -> list[int]:
    """Return the parts of a run, in order."""
    found = connection.execute("SELECT part FROM part WHERE run = ? ORDER BY position", (number,))
    return [part for (part,) in found]


def totals(connection: sqlite3.Connection, number: int) -> dict[str, Any]:
    """Return the totals of the rows of a run."""
    from trioeval.store.not_run_rows import count_never_began  # imports tasks of all types

    found: dict[str, Any] = {"rows": 0, "statuses": {}, "outcomes": {}, "tokens": 0, "cost": 0.0}
    for part in part_numbers(connection, number):
        for status, outcome, rows, tokens, cost in connection.execute(
            "SELECT status, outcome, count(*), sum(tokens), total(cost) FROM result "
            "WHERE key BETWEEN ? AND ? GROUP BY status, outcome",
            key_range(part),
        ):
            found["rows"] += rows
            found["tokens"] += tokens
            found["cost"] += cost
            found["statuses"][status] = found["statuses"].get(status, 0) + rows
            found["outcomes"][outcome] = found["outcomes"].get(outcome, 0) + rows
        for outcome, rows in count_never_began(connection, part).items():
            found["rows"] += rows
            found["statuses"]["not_run"] = found["statuses"].get("not_run", 0) + rows
            found["outcomes"][outcome] = found["outcomes"].get(outcome, 0) + rows
    return found


def read_runs(
    connection: sqlite3.Connection, *, suite: str | None = None, run_id: str | None = None
) -> Iterator[tuple[StoredRunFacts, bool]]:
    """Return the runs, those of one suite, or a single one, newest first, each with whether it is open.

    The state is the recorded one.
    """
    chosen = {"suite": suite, "id": run_id}
    given = {column: value for column, value in chosen.items() if value is not None}
    where = " AND ".join(["1", *(f"{column} = ?" for column in given)])
    statement = f"SELECT {', '.join(_FACTS)} FROM run WHERE {where} ORDER BY run DESC"  # noqa: S608
    for line in connection.execute(statement, (*given.values(),)):
        yield _facts(connection, dict(zip(_FACTS, line, strict=True)))


def _facts(
    connection: sqlite3.Connection, columns: Mapping[str, Any]
) -> tuple[StoredRunFacts, bool]:
    parts = connection.execute(
        "SELECT part, task, expected FROM part WHERE run = ? ORDER BY position", (columns["run"],)
    ).fetchall()
    sums = (
        totals(connection, columns["run"])
        if columns["totals"] is None
        else json.loads(columns["totals"])
    )
    is_open = columns["state"] == "open"
    statuses = sums["statuses"]
    facts = StoredRunFacts(
        **{name: columns[name] for name in _PLAIN},
        **{name: json.loads(columns[name]) for name in ("versions", "flags", "files")},
        **{name: sums[name] for name in ("rows", "outcomes", "tokens", "cost")},
        number=columns["run"],
        state="died" if is_open else columns["state"],
        passed=statuses.get("pass", 0),
        failed=statuses.get("fail", 0),
        errors=statuses.get("error", 0),
        not_graded=statuses.get("not_graded", 0),
        not_run=statuses.get("not_run", 0),
        derived=None if columns["derived"] is None else json.loads(columns["derived"]),
        tasks=tuple(task for _, task, _ in parts),
        sizes=tuple(size for _, _, size in parts),
        parts=tuple(part for part, _, _ in parts),
        dataset_rows=written_rows(connection, [part for part, _, _ in parts]),
    )
    return facts, is_open


def keeps_datasets(connection: sqlite3.Connection) -> bool:
    """Return whether the store has tables of datasets; version 1, opened for reading, lacks them."""
    return has_table(connection, "dataset_result")


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether a table exists; a store of an older version, opened for reading, lacks some."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,))
    return found.fetchone() is not None


def written_rows(connection: sqlite3.Connection, parts: Sequence[int]) -> int | None:
    """Return the number of written dataset rows of several parts; None if none of them has a dataset."""
    if not keeps_datasets(connection):
        return None
    numbers = json.dumps(list(parts))
    datasets, rows = connection.execute(
        "SELECT (SELECT count(*) FROM dataset WHERE part IN (SELECT value FROM json_each(?1))), "
        "(SELECT coalesce(sum(rows), 0) FROM written_group "
        "WHERE part IN (SELECT value FROM json_each(?1)))",
        (numbers,),
    ).fetchone()
    return rows if datasets else None
