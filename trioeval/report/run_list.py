"""Runs as a table for a terminal, a line for each if there is room, and as JSON."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from rich.box import SIMPLE
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from trioeval.report.counts import money, rate_text
from trioeval.report.stored import StoredRunFacts
from trioeval.report.text import Figure, cut_middle, packed
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

if TYPE_CHECKING:
    from trioeval.agent.planner import QueuedSubmission

# The queue of agent cases as a table for a terminal, a line for each, and as JSON.


_QUEUE_LIST_STYLES = {"running": "cyan", "blocked": "yellow"}


def queue_table(entries: Iterable[QueuedSubmission]) -> Table:
    """Return a table with a line for each entry: its position, its task, and its program."""
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("order", "position"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("run", no_wrap=True)
    table.add_column("task", overflow="fold")
    table.add_column("program", no_wrap=True)
    table.add_column("since (UTC)", no_wrap=True)
    for entry in entries:
        since = entry.utc_started or entry.utc_submitted
        table.add_row(
            str(entry.order),
            str(entry.position) if entry.position else "–",
            Text(entry.state, style=_QUEUE_LIST_STYLES.get(entry.state, "")),
            Text(escape_control_characters(entry.submission.run, 60)),
            Text(escape_control_characters(entry.submission.task, 60)),
            Text(_program(entry)),
            escape_control_characters(since, 40)[:19].replace("T", " "),
        )
    return table


def queued_json(entry: QueuedSubmission) -> dict[str, Any]:
    """Return one entry as JSON data."""
    return {
        "id": entry.submission.id,
        "order": entry.order,
        "position": entry.position,
        "state": entry.state,
        "run": entry.submission.run,
        "task": entry.submission.task,
        "dependsOn": list(entry.submission.depends_on),
        "host": entry.host,
        "pid": entry.pid,
        "submitted": entry.utc_submitted,
        "started": entry.utc_started,
    }


def _program(entry: QueuedSubmission) -> str:
    if entry.pid is None:
        return "dead"
    is_here = entry.host == socket.gethostname()
    return escape_control_characters(
        f"{entry.pid}" if is_here else f"{entry.pid} on {entry.host}", 40
    )


_WIDTH = 48  # characters of the suite of a run
_LEAST_NAME = 20  # characters of it that a line shows at least
_BETWEEN, _EDGES = 3, 2  # characters between two columns, and around all of them
_INDENT = "  "
_GO_FIRST = ("cost", "error", "started (UTC)")
"""The columns that a narrow terminal leaves out, the first one first."""
_STYLES = {"finished": "", "running": "cyan", "interrupted": "yellow", "died": "bold yellow"}


def runs_table(runs: Iterable[StoredRunFacts]) -> RenderableType:
    """Return a table with a line for each run: its suite, its progress, and its cost.

    If the table is too wide, cost, errors and the start are left out. If that is not enough, a run has two
    lines or more. Only the suite is ever cut.
    """
    return _RunsTable([*runs])


@attrs.frozen
class _RunsTable:
    runs: Sequence[StoredRunFacts]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fields = [*_fields(self.runs)]
        names = [_name(run) for run in self.runs]
        name_width = min(_LEAST_NAME, max(map(cell_len, names), default=0))
        for title in ("", *_GO_FIRST):
            fields = [field for field in fields if field.title != title]
            taken = sum(field.width + _BETWEEN for field in fields) + _EDGES
            if (room := options.max_width - taken) >= max(name_width, len("suite")):
                yield _table(fields, [cut_middle(name, room) for name in names])
                return
        yield from _lines(fields, names, options.max_width)


def _fields(runs: Sequence[StoredRunFacts]) -> Iterator[Figure]:
    # Rows of datasets have a column if there are any; it replaces the cost if all runs were free.
    makes_datasets = any(run.dataset_rows is not None for run in runs)
    yield Figure.of("run", (escape_control_characters(run.id, 60) for run in runs), is_number=False)
    starts = (_instant(run.utc_created) for run in runs)
    yield Figure.of("started (UTC)", starts, is_number=False)
    states = [Text(run.state, style=_STYLES.get(run.state, "")) for run in runs]
    yield Figure("state", states, is_number=False)
    yield Figure.of("rows", (_came(run, "/") for run in runs))
    yield Figure.of("pass", (str(run.passed) for run in runs))
    yield Figure.of("fail", (str(run.failed) for run in runs))
    yield Figure.of("error", (str(run.errors) for run in runs))
    if any(run.not_graded for run in runs):
        yield Figure.of("not graded", (str(run.not_graded) for run in runs))
    if any(run.not_run for run in runs):
        yield Figure.of("not run", (str(run.not_run) for run in runs))
    yield Figure.of("pass rate", map(_rate, runs))
    if any(run.cost for run in runs) or not makes_datasets:
        yield Figure.of("cost", (money(run.cost) if run.cost else "–" for run in runs))
    if makes_datasets:
        counts = (run.dataset_rows for run in runs)
        yield Figure.of("made", ("–" if count is None else str(count) for count in counts))


def _rate(run: StoredRunFacts) -> str:
    return rate_text(run.passed, run.rated, not_graded=run.not_graded)


def _table(fields: Sequence[Figure], names: Sequence[str]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    for field in fields:
        justify: JustifyMethod = "right" if field.is_number else "left"
        table.add_column(field.title, justify=justify, no_wrap=True)
    table.add_column("suite", no_wrap=True)
    for place, name in enumerate(names):
        table.add_row(*(field.cells[place] for field in fields), Text(name))
    return table


def _lines(fields: Sequence[Figure], names: Sequence[str], width: int) -> Iterator[Text]:
    """Yield the id and the state of each run, and below them its numbers and its suite."""
    ids, states, *numbers = fields
    for place, name in enumerate(names):
        head = Text("  ").join((ids.cells[place], states.cells[place]))
        facts = [f"{field.cells[place].plain} {field.title}" for field in numbers]
        if head.cell_len > width:
            head, facts = ids.cells[place], [states.cells[place].plain, *facts]
        head.stylize("bold")
        head.overflow = "fold"
        yield head
        lines = [*packed([*facts, cut_middle(name, width - len(_INDENT))], width - len(_INDENT))]
        yield from (Text(f"{_INDENT}{line}", overflow="fold") for line in lines)


def run_line(run: StoredRunFacts) -> str:
    """Return one run as a line of text."""
    came = _came(run, " of ")
    counts = f"{run.passed} passed, {run.failed} failed, {counted(run.errors, 'error')}"
    counts += f", {run.not_graded} not graded" if run.not_graded else ""
    counts += f", {run.not_run} not run" if run.not_run else ""
    name = _name(run)
    of = f" of {name}" if name else ""
    start = _instant(run.utc_created)
    facts = (
        [f"{came} {'row' if came == '1' else 'rows'}: {counts}"]
        if run.rows or run.expected != 0
        else []
    )
    facts += [] if run.dataset_rows is None else [f"{run.dataset_rows} rows of datasets written"]
    rows = "; ".join(facts) or "no rows"
    return f"{escape_control_characters(run.id, 60)}{of}: {run.state}, started {start} UTC; {rows}"


def run_json(run: StoredRunFacts) -> dict[str, Any]:
    """Return one run as JSON data."""
    return {
        "id": run.id,
        "suite": run.suite,
        "description": run.description,
        "state": run.state,
        "created": run.utc_created,
        "finished": run.utc_finished,
        "durationMs": run.duration_ms,
        "expected": run.expected,
        "rows": run.rows,
        "passed": run.passed,
        "failed": run.failed,
        "errors": run.errors,
        "notGraded": run.not_graded,
        "notRun": run.not_run,
        **({} if run.dataset_rows is None else {"datasetRows": run.dataset_rows}),
        "outcomes": dict(run.outcomes),
        "tokens": run.tokens,
        "cost": run.cost,
        "tasks": [task for task in run.tasks if task is not None],
    }


def _is_whole(run: StoredRunFacts) -> bool:
    """Return whether a run has all of its rows, whose number may not have been known at its start."""
    return run.rows == run.expected or (run.expected is None and run.state == "finished")


def _came(run: StoredRunFacts, of: str) -> str:
    """Return the number of its rows, and of how many if it is not complete."""
    return str(run.rows) if _is_whole(run) else f"{run.rows}{of}{run.expected or '?'}"


def _instant(utc: str) -> str:
    return escape_control_characters(utc, 40)[:16].replace("T", " ")


def _name(run: StoredRunFacts) -> str:
    file = "" if run.suite is None else Path(run.suite).name
    return cut_middle(
        escape_control_characters(": ".join(part for part in (file, run.description) if part)),
        _WIDTH,
    )
