"""A simple model of the planner, with real planners to compare."""

import contextlib
import math
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from trioeval.agent.planner import QueuedSubmission, Submission, SubmissionState
from trioeval.store.database import IN_MEMORY, open_database, open_memory
from trioeval.store.planner.owners import PlannerSettings, join_planner
from trioeval.store.planner.planner import AgentPlanner
from trioeval.store.planner.queue import readable_text
from trioeval.store.schema import RUNS

QUIET = PlannerSettings(heartbeat=math.inf, poll=math.inf, patience=60)
"""Timing without any background activity."""
QUICK = PlannerSettings(heartbeat=600, poll=0.005, patience=60)


@contextlib.contextmanager
def tables(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(open_database(path, RUNS, busy_s=20)) as connection:
        connection.text_factory = readable_text
        yield connection


def submission(id_: str, *depends_on: str) -> Submission:
    return Submission(id=id_, run="run", task=f"task/{id_}", depends_on=depends_on)


def bare_planner(path: Path | None, limit: int, settings: PlannerSettings = QUIET) -> AgentPlanner:
    """A planner without its background, which can be dropped as if its program were killed."""
    connection = open_memory(RUNS) if path is None else open_database(path, RUNS)
    connection.execute("PRAGMA synchronous = OFF")
    file = path or IN_MEMORY
    return AgentPlanner(
        file, connection, join_planner(path), limit, settings, print, lambda: 1_000_000.0
    )


def owner_of(planner: AgentPlanner) -> str:
    return planner._me.id


def kill(planner: AgentPlanner) -> None:
    """Close all resources without further changes."""
    planner._connection.close()
    lock = planner._me.lock
    if lock is not None:
        lock.leave()


def bury(planner: AgentPlanner) -> None:
    """Remove what the planner of a file leaves behind after it has left the queue."""
    planner._connection.close()
    lock = planner._me.lock
    assert lock is not None
    lock.release()


def states_of(entries: Sequence[QueuedSubmission]) -> list[tuple[str, str, int]]:
    return [(entry.submission.id, entry.state, entry.position) for entry in entries]


@attrs.define
class Expected:
    """An entry of the queue."""

    id: str
    order: int
    needs: tuple[str, ...]
    owner: int | None
    is_running: bool = False


class RefusedError(Exception):
    """A submission that must be refused."""


@attrs.define
class Model:
    """The queue."""

    entries: dict[str, Expected] = attrs.field(factory=dict)
    done: dict[str, bool] = attrs.field(factory=dict)
    dead: set[int] = attrs.field(factory=set)
    """Programs that have died."""
    present: set[int] = attrs.field(factory=set)
    """Programs that have changed the queue. The others leave nothing when they end."""
    next_order: int = 1
    limits: dict[int, int] = attrs.field(factory=dict)
    """Limits of programs that have scheduled others, also of dead ones that were not detected yet."""

    def in_order(self) -> Iterator[Expected]:
        return iter(sorted(self.entries.values(), key=lambda entry: entry.order))

    def state(self, entry: Expected) -> SubmissionState:
        if entry.is_running:
            return "running"
        return "queued" if all(self.done.get(need) for need in entry.needs) else "blocked"

    def running(self) -> int:
        return sum(entry.is_running for entry in self.entries.values())

    def submit(self, program: int, id_: str, needs: tuple[str, ...], limit: int) -> None:
        known = self.entries.get(id_)
        if known is None:
            known = self.entries[id_] = Expected(id_, self.next_order, needs, program)
            self.next_order += 1
        elif (known.is_running and known.owner == program) or known.owner not in {
            None,
            program,
            *self.dead,
        }:
            raise RefusedError
        elif known.owner in self.dead:
            self.disown(known.owner)
        known.needs, known.owner = needs, program
        self.done.pop(id_, None)
        self.schedule(program, limit)

    def clear_dependencies(self, program: int, id_: str, limit: int) -> None:
        known = self.entries.get(id_)
        if known is None or known.owner != program:
            raise RefusedError
        if not known.is_running:
            known.needs = ()
        self.schedule(program, limit)

    def end(self, program: int, id_: str, done: bool | None, limit: int | None) -> None:  # noqa: FBT001
        known = self.entries.get(id_)
        if known is not None and known.owner in {None, program}:
            del self.entries[id_]
            if done is not None:
                self.done[id_] = done
        if limit is not None:
            self.schedule(program, limit)

    def most(self, limit: int) -> int:
        """The smallest limit of living programs; those that are found dead meanwhile have none."""
        for least in sorted({*self.limits.values()}):
            owners = [owner for owner, own in self.limits.items() if own == least]
            for owner in owners:
                if owner in self.dead:
                    self.disown(owner)
            if least in self.limits.values():
                return least
        return limit

    def schedule(self, program: int, limit: int) -> None:
        """Start waiting entries; from now on the limit of the program counts."""
        self.limits[program] = limit
        self.begin(limit)

    def begin(self, limit: int) -> None:
        most = self.most(limit)
        while self.running() < most:
            candidates = (
                entry
                for entry in self.in_order()
                if entry.owner is not None and self.state(entry) == "queued"
            )
            first = next(candidates, None)
            if first is None:
                return
            if first.owner in self.dead:
                self.disown(first.owner)
            else:
                first.is_running = True

    def disown(self, program: int | None) -> None:
        if program is not None:
            self.limits.pop(program, None)
        for entry in self.entries.values():
            if entry.owner == program:
                entry.owner, entry.is_running = None, False

    def recover(self, caller: int, limit: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the entries that are queued again, and those that are kept."""
        ran = [entry.id for entry in self.in_order() if entry.is_running]
        for program in self.dead:
            self.disown(program)
        kept = tuple(id_ for id_ in ran if self.entries[id_].is_running)
        self.schedule(caller, limit)
        return tuple(id_ for id_ in ran if id_ not in kept), kept

    def clear(self, program: int, limit: int) -> None:
        if program not in self.present:
            return
        for entry in list(self.entries.values()):
            if entry.owner == program:
                del self.entries[entry.id]
        self.limits.pop(program, None)
        self.begin(limit)

    def shown(self) -> list[tuple[str, int, SubmissionState, int | None, int, frozenset[str]]]:
        lines, waiting = [], 0
        for entry in self.in_order():
            state = self.state(entry)
            waiting += state != "running"
            position = 0 if state == "running" else waiting
            lines.append(
                (entry.id, entry.order, state, entry.owner, position, frozenset(entry.needs))
            )
        return lines
