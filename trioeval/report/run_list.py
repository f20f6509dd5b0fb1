"""Runs as a table for a terminal, a line each, and as JSON."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from trioeval.report.inert import inert
from trioeval.report.totals import percent

_WIDTH = 48  # characters of what a run is of
_STYLES = {"finished": "", "running": "cyan", "interrupted": "yellow", "died": "bold yellow"}


class ListedRun(Protocol):
    """What is told of a run in a list."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def suite(self) -> str | None:
        """Its suite file."""
        ...

    @property
    def description(self) -> str | None:
        """What it is."""
        ...

    @property
    def state(self) -> str:
        """`running`, `finished`, `interrupted` or `died`."""
        ...

    @property
    def utc_created(self) -> str:
        """ISO 8601."""
        ...

    @property
    def utc_finished(self) -> str | None:
        """ISO 8601; None if it never said so."""
        ...

    @property
    def duration_ms(self) -> float:
        """Of all its executions."""
        ...

    @property
    def expected(self) -> int | None:
        """Rows that it will have."""
        ...

    @property
    def rows(self) -> int:
        """Rows that it has."""
        ...

    @property
    def passed(self) -> int:
        """Rows that passed."""
        ...

    @property
    def failed(self) -> int:
        """Rows that failed."""
        ...

    @property
    def errors(self) -> int:
        """Rows without a verdict."""
        ...

    @property
    def dataset_rows(self) -> int | None:
        """Rows of its datasets that are written; None if it makes none."""
        ...

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Rows by how their jobs ended."""
        ...

    @property
    def tokens(self) -> int:
        """What it used."""
        ...

    @property
    def cost(self) -> float:
        """US dollars."""
        ...

    @property
    def tasks(self) -> tuple[str | None, ...]:
        """The ids of its tasks."""
        ...


def runs_table(runs: Iterable[ListedRun]) -> Table:
    """One line a run: what it is of, how far it came, and what it took."""
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("begun (UTC)", no_wrap=True)
    table.add_column("state", no_wrap=True)
    listed = list(runs)
    # Rows of datasets stand in a column where there are any; room for it is where nothing was paid.
    makes_datasets = any(run.dataset_rows is not None for run in listed)
    is_paid = any(run.cost for run in listed) or not makes_datasets
    names = ("rows", "pass", "fail", "error", "pass rate")
    for name in (*names, *["cost"] * is_paid, *["made"] * makes_datasets):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("suite", overflow="fold")
    for run in listed:
        table.add_row(
            Text(inert(run.id, 60)),
            _instant(run.utc_created),
            Text(run.state, style=_STYLES.get(run.state, "")),
            str(run.rows) if _is_whole(run) else f"{run.rows}/{run.expected or '?'}",
            *(str(count) for count in (run.passed, run.failed, run.errors)),
            f"{percent(run.passed, run.rows)} %" if run.rows else "–",
            *([f"{run.cost:.4f}" if run.cost else "–"] * is_paid),
            *(["–" if run.dataset_rows is None else str(run.dataset_rows)] * makes_datasets),
            Text(_name(run)),
        )
    return table


def run_line(run: ListedRun) -> str:
    """One run in a line."""
    came = run.rows if _is_whole(run) else f"{run.rows} of {run.expected or '?'}"
    counts = f"{run.passed} passed, {run.failed} failed, {run.errors} errors"
    name = _name(run)
    of = f" of {name}" if name else ""
    begun = _instant(run.utc_created)
    told = [f"{came} rows: {counts}"] if run.rows or run.expected != 0 else []
    told += [] if run.dataset_rows is None else [f"{run.dataset_rows} rows of datasets written"]
    rows = "; ".join(told) or "no rows"
    return f"{inert(run.id, 60)}{of}: {run.state}, begun {begun} UTC; {rows}"


def run_json(run: ListedRun) -> dict[str, Any]:
    """One run, ready for `json.dumps`."""
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
        **({} if run.dataset_rows is None else {"datasetRows": run.dataset_rows}),
        "outcomes": dict(run.outcomes),
        "tokens": run.tokens,
        "cost": run.cost,
        "tasks": [task for task in run.tasks if task is not None],
    }


def _is_whole(run: ListedRun) -> bool:
    """Whether a run has all of its rows. How many those are was not known of all when it began."""
    return run.rows == run.expected or (run.expected is None and run.state == "finished")


def _instant(utc: str) -> str:
    return inert(utc, 40)[:16].replace("T", " ")


def _name(run: ListedRun) -> str:
    file = "" if run.suite is None else Path(run.suite).name
    return inert(": ".join(part for part in (file, run.description) if part), _WIDTH)
