"""What programs that have died have left running, found in what was written down of their attempts."""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs

from trioeval.store.facts import RunFacts
from trioeval.store.locks import RunLock, is_running
from trioeval.store.schema import INDEX_BITS
from trioeval.tasks.agents.agent_journal import ProcessIdentity

EndProcesses: TypeAlias = Callable[[RunFacts, Sequence[ProcessIdentity]], object]
"""Ends what the agents of a run have left running: the first processes of their trees."""


def leave(_run: RunFacts, _processes: Sequence[ProcessIdentity]) -> None:
    """End nothing."""


# Attempts of an earlier execution, or of one that may have died.
_ATTEMPTS = f"""
    SELECT run.id, attempt.execution < run.executions, attempt.process
    FROM run JOIN part ON part.run = run.run JOIN running_attempt AS attempt
    ON attempt.key BETWEEN part.part << {INDEX_BITS} AND (part.part + 1 << {INDEX_BITS}) - 1
    WHERE run.id IN (SELECT run FROM entry WHERE owner = ? AND state = 'running')
"""  # noqa: S608 - all of it stands here


_OF_RUN = f"""
    SELECT attempt.process FROM part JOIN running_attempt AS attempt
    ON attempt.key BETWEEN part.part << {INDEX_BITS} AND (part.part + 1 << {INDEX_BITS}) - 1
    WHERE part.run = ?
"""  # noqa: S608


@attrs.define(eq=False)
class Remains:
    """What one program has left running that has died, until it is ended."""

    owner: str
    processes: tuple[ProcessIdentity, ...]
    """The first ones of its trees."""
    lock: RunLock = attrs.field(repr=False)
    """Its lock, held by whoever ends them."""
    is_over: bool = attrs.field(init=False, default=False)
    """Whether they are ended."""


def find_processes(
    connection: sqlite3.Connection, database: Path, owner: str
) -> tuple[ProcessIdentity, ...]:
    """What a program that has died was at, as far as it can be read; it may be over by now.

    A run that somebody goes on with is left alone: what it has begun since is not what has died.

    Args:
        connection: In a transaction.
        database: The database of runs.
        owner: The id of the program.
    """
    found = connection.execute(_ATTEMPTS, (owner,)).fetchall()
    live = {run for run in {run for run, _, _ in found} if is_running(database, str(run))}
    return _readable(process for run, is_earlier, process in found if is_earlier or run not in live)


def processes_of(connection: sqlite3.Connection, number: int) -> tuple[ProcessIdentity, ...]:
    """The first processes of all trees that a run has not seen the end of.

    Args:
        connection: To the database of runs.
        number: Of the run, whose lock is held.
    """
    return _readable(process for (process,) in connection.execute(_OF_RUN, (number,)))


def _readable(processes: Iterable[str]) -> tuple[ProcessIdentity, ...]:
    """What can be read; whoever goes on with the run is told of the rest."""
    found = []
    for process in processes:
        with contextlib.suppress(ValueError, TypeError):
            found.append(ProcessIdentity(**json.loads(process)))
    return tuple(found)
