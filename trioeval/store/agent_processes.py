"""The processes of agents as recorded by a run; the next execution ends those that an interruption left."""

import json
import sqlite3
from collections.abc import Sequence

import attrs

from trioeval.agent.journal import AgentJournal, ProcessIdentity, RunningAttempt
from trioeval.store.records import plain
from trioeval.store.run_list import key_range
from trioeval.store.schema import INDEX_BITS
from trioeval.store.writer import StoredTask
from trioeval.store.writes import InsertTable, earlier, insert

_RUNNING = InsertTable(
    "running_attempt",
    ("id", "key", "row_id", "number", "agent", "pid", "process", "execution", "utc_started"),
)


class StoredAgents(StoredTask, AgentJournal):
    """The processes of one task of a run. Created by `StoredRun.agents`."""

    def started(self, attempt: RunningAttempt, /) -> None:
        """Record that the process of an attempt runs."""

        def write(connection: sqlite3.Connection) -> None:
            (now,) = connection.execute("SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')").fetchone()
            line = (
                attempt.run_id,
                self._place.key(self._task, attempt.index),
                plain(attempt.row),
                attempt.number,
                plain(attempt.agent),
                attempt.process.pid,
                json.dumps(attrs.asdict(attempt.process)),
                self._place.execution,
                now,
            )
            insert(connection, _RUNNING, [line])

        self._step(write)

    def recover(self, attempt: RunningAttempt | str, /) -> None:
        """Record a process of an earlier execution; a run id is the end of all of an attempt."""
        if isinstance(attempt, str):
            self.gone(attempt)
        else:
            attrs.evolve(self, place=earlier(self._place)).started(attempt)

    def gone(self, run_id: str, /) -> None:
        """Record that no process of an attempt is left."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM running_attempt WHERE id = ?", (run_id,))

        self._step(write)

    def left(self) -> Sequence[RunningAttempt]:
        """Return the attempts of earlier executions whose end was not recorded."""
        if self._part is None:
            return ()
        try:
            lines = self._read().execute(
                "SELECT id, key, row_id, number, agent, process FROM running_attempt "
                "WHERE key BETWEEN ? AND ? AND execution < ? ORDER BY id",
                (*key_range(self._part), self._place.execution),
            )
            return [
                RunningAttempt(
                    run_id=id_,
                    index=key & ((1 << INDEX_BITS) - 1),
                    row=row,
                    number=number,
                    agent=agent,
                    process=ProcessIdentity(**json.loads(process)),
                )
                for id_, key, row, number, agent, process in lines
            ]
        except (sqlite3.Error, ValueError, TypeError) as error:
            self._writer.warn(
                f"{self._writer.path}: the running agents of an earlier execution cannot be read "
                f"({error}); if there are any, end them"
            )
            return ()
