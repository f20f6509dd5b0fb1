# Apart from `store.run`: together they exceed 600 lines.
"""The processes of agents, as they are written down while they run and found when their program died."""

import json
import sqlite3
from collections.abc import Callable, Sequence

import attrs

from trioeval.agent.journal import AgentJournal, ProcessIdentity, RunningAttempt
from trioeval.store.records import plain
from trioeval.store.runs import key_range
from trioeval.store.schema import INDEX_BITS
from trioeval.store.writer import Writer
from trioeval.store.writes import Place, StepWork, Table, insert

_RUNNING = Table(
    "running_attempt",
    ("id", "key", "row_id", "number", "agent", "pid", "process", "execution", "utc_started"),
)


class StoredAgents(AgentJournal):
    """The processes of one task of a run. Made by `StoredRun.agents`.

    Args:
        writer: Writes everything down.
        place: Of the run.
        task: The id of the task.
        part: Of an earlier execution; None if there was none.
        read: A connection that reads.
    """

    def __init__(
        self,
        writer: Writer,
        place: Place,
        task: str | None,
        part: int | None,
        read: Callable[[], sqlite3.Connection],
    ) -> None:
        self._writer = writer
        self._place = place
        self._task = task
        self._part = part
        self._read = read

    def started(self, attempt: RunningAttempt, /) -> None:
        """Its process runs."""

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

        self._writer.put(StepWork(write))

    def gone(self, run_id: str, /) -> None:
        """Nothing of it is left."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM running_attempt WHERE id = ?", (run_id,))

        self._writer.put(StepWork(write))

    def left(self) -> Sequence[RunningAttempt]:
        """What earlier executions of the run did not see the end of."""
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
                f"{self._writer.path}: which agents of an earlier execution still run cannot be read "
                f"({error}); if there are any, end them"
            )
            return ()

    async def durable(self) -> None:
        """Return when everything until now is safe, or cannot be made so. A checkpoint if it has to wait."""
        await self._writer.wait_done()
