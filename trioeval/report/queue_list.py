"""The line of cases of agents as a table for a terminal, a line each, and as JSON."""

import socket
from collections.abc import Iterable
from typing import Any, Protocol

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from trioeval.agents.planner import Entry
from trioeval.report.inert import inert

_STYLES = {"running": "cyan", "blocked": "yellow"}


class ListedEntry(Protocol):
    """What is told of an entry in a list."""

    @property
    def entry(self) -> Entry:
        """The entry."""
        ...

    @property
    def host(self) -> str | None:
        """Where its program runs; None where that has died."""
        ...

    @property
    def pid(self) -> int | None:
        """The number of the process there."""
        ...


def queue_table(entries: Iterable[ListedEntry]) -> Table:
    """One line an entry: where it stands, what it is, and who runs it."""
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("order", "position"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("run", no_wrap=True)
    table.add_column("task", overflow="fold")
    table.add_column("program", no_wrap=True)
    table.add_column("since (UTC)", no_wrap=True)
    for listed in entries:
        entry = listed.entry
        since = entry.utc_started or entry.utc_submitted
        table.add_row(
            str(entry.order),
            str(entry.position) if entry.position else "–",
            Text(entry.state, style=_STYLES.get(entry.state, "")),
            Text(inert(entry.submission.run, 60)),
            Text(inert(entry.submission.task, 60)),
            Text(_program(listed)),
            inert(since, 40)[:19].replace("T", " "),
        )
    return table


def queued_json(listed: ListedEntry) -> dict[str, Any]:
    """One entry, ready for `json.dumps`."""
    entry = listed.entry
    return {
        "id": entry.submission.id,
        "order": entry.order,
        "position": entry.position,
        "state": entry.state,
        "run": entry.submission.run,
        "task": entry.submission.task,
        "dependsOn": list(entry.submission.depends_on),
        "host": listed.host,
        "pid": listed.pid,
        "submitted": entry.utc_submitted,
        "started": entry.utc_started,
    }


def _program(listed: ListedEntry) -> str:
    if listed.pid is None:
        return "dead"
    is_here = listed.host == socket.gethostname()
    return inert(f"{listed.pid}" if is_here else f"{listed.pid} on {listed.host}", 40)
