# Separate from `web.app`: together they exceed 600 lines.
"""The pages of runs: the state of a run, and its rows, a page at a time. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any, get_args
from urllib.parse import quote, urlencode

import attrs

from trioeval.report.counts import percent
from trioeval.report.stored import DatasetFacts, StoredRunFacts
from trioeval.store.row_pages import PagedRow, RowPage, RowQuery, RowStatus
from trioeval.text_safety import escape_control_characters
from trioeval.web.lane_cards import LaneCard, WorkerLaneLine, ended_cards, live_cards, worker_lines
from trioeval.web.pages import age_text
from trioeval.web.row_page import RowSummary, summary_of
from trioeval.web.watches import RunWatch

_LARGEST = 2**62  # of a key


@attrs.frozen(kw_only=True)
class RunLine:
    """A run as a line of the list, and as the head of its own page."""

    id: str
    url: str
    name: str
    state: str
    created: str
    age: str
    expected: int | None
    rows: int
    passed: int
    failed: int
    errors: int
    not_graded: int = 0
    not_run: int = 0
    tokens: int
    cost: float
    seconds: float | None
    """The duration; None while it is unknown."""
    eta_s: float | None = None
    stopping: bool = False
    tasks: int = 1
    dataset_rows: int | None = None
    left: int = 0
    """Rows that were not run, as far as that is known."""

    @property
    def pass_rate(self) -> str:
        """The share of the graded rows that passed, and their number."""
        rated = self.passed + self.failed + self.errors
        graded = " graded" if self.not_graded else ""
        return f"{percent(self.passed, rated)} % of {rated:,}{graded}" if rated else "–"

    @property
    def shares(self) -> Sequence[tuple[str, float, float]]:
        """The name, start and width in percent of each part of a bar of all rows."""
        whole = max(self.expected or 0, self.rows, 1)
        found, begins = list[tuple[str, float, float]](), 0.0
        for name in ("passed", "failed", "errors", "not_graded"):
            width = 100 * getattr(self, name) / whole
            found.append((name, round(begins, 3), round(width, 3)))
            begins += width
        return found


def line_of(run: StoredRunFacts, now: datetime, state: Mapping[str, Any] | None = None) -> RunLine:
    """Return a run as a line.

    Args:
        run: The facts in the store.
        now: The present time.
        state: The state from `RunState.json`; None if the run is not connected.
    """
    file = "" if run.suite is None else PurePath(run.suite).name
    found = RunLine(
        id=run.id,
        url=f"/run/{quote(run.id, safe='')}",
        name=escape_control_characters(
            ": ".join(part for part in (file, run.description) if part) or run.id, 160
        ),
        state=run.state,
        created=escape_control_characters(run.utc_created, 40)[:19].replace("T", " "),
        age=age_text(run.utc_created, now),
        expected=run.expected,
        rows=run.rows,
        passed=run.passed,
        failed=run.failed,
        errors=run.errors,
        not_graded=run.not_graded,
        not_run=run.not_run,
        tokens=run.tokens,
        cost=run.cost,
        seconds=run.duration_ms / 1000 if run.duration_ms else None,
        tasks=len(run.tasks),
        dataset_rows=run.dataset_rows,
        left=_remaining(run),
    )
    if state is None:
        return found
    found = attrs.evolve(
        found,
        expected=max(state["total"], run.rows),
        tokens=max(state["tokens"], run.tokens),
        cost=max(state["cost"], run.cost),
        seconds=state["elapsedS"],
        eta_s=state["etaS"],
        stopping=state["stopping"],
    )
    counts = {name: state[name] for name in ("passed", "failed", "errors")}
    counts |= {"not_graded": state["notGraded"], "not_run": state["notRun"]}
    # The run reports rows in order, and counts earlier ones in their turn; the store may be ahead.
    return (
        attrs.evolve(found, rows=state["done"], **counts)
        if sum(counts.values()) > run.rows
        else found
    )


def _remaining(run: StoredRunFacts) -> int:
    cut = sum(run.outcomes.get(outcome, 0) for outcome in ("interrupted", "not_run"))
    return cut + max(0, (run.expected or 0) - run.rows)


@attrs.frozen(kw_only=True)
class RunPicture:
    """The state of a run for its page."""

    line: RunLine | None
    """The line of the run; None if the run was deleted."""
    cards: Sequence[LaneCard]
    workers: Sequence[WorkerLaneLine]
    """The lanes of the workers of a running run on several machines."""
    is_live: bool
    """True if the run is connected and can be steered."""
    unheard: bool
    """True if connecting failed."""
    trouble: str | None
    """The reason why its store cannot be read."""


def picture_of(watch: RunWatch, now: datetime) -> RunPicture:
    """Return the state of a watched run."""
    return RunPicture(
        line=None if watch.facts is None else line_of(watch.facts, now, watch.state),
        cards=ended_cards(watch.activities)
        if watch.state is None
        else live_cards(watch.state, watch.history),
        workers=() if watch.state is None else worker_lines(watch.state),
        is_live=watch.state is not None,
        unheard=watch.unheard,
        trouble=watch.trouble,
    )


@attrs.frozen(kw_only=True)
class TaskLine:
    """A task of a run."""

    name: str
    rows: str


def tasks_of(run: StoredRunFacts, datasets: Mapping[str | None, DatasetFacts]) -> list[TaskLine]:
    """Return the tasks of a run that has several, or makes datasets."""
    found = []
    for task, size in zip(run.tasks, run.sizes, strict=True):
        if (made := datasets.get(task)) is not None:
            requested = "?" if made.requested is None else f"{made.requested:,}"
            dropped = f", {made.dropped:,} dropped" if made.dropped else ""
            rows = f"dataset: {made.written:,} of {requested} rows written{dropped}"
        elif size is None:
            rows = "number of rows not known yet"
        else:
            rows = f"{size:,} row" + ("" if size == 1 else "s")
        found.append(TaskLine(name=task or "dataset", rows=rows))
    return found if len(found) > 1 or datasets else []


def read_query(given: Mapping[str, str]) -> RowQuery:
    """Return the rows that an address selects. Invalid parts are ignored.

    Example:
        >>> query = read_query({"status": "fail", "in": "0:1", "after": "x"})
        >>> query.position, query.status, query.column, query.after
        (0, 'fail', 1, None)
    """
    position, _, column = given.get("in", "").partition(":")
    status: RowStatus | None = None
    for known in get_args(RowStatus):
        status = known if given.get("status") == known else status
    return RowQuery(
        position=_number(position),
        column=_number(column),
        status=status,
        text=given.get("text", "").strip()[:500],
        after=_number(given.get("after", "")),
        before=_number(given.get("before", "")),
    )


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) < 20  # noqa: PLR2004 - digits of a key
    return min(int(text), _LARGEST) if is_number else None


def query_text(query: RowQuery, **place: int) -> str:
    """Return the query of an address that selects the same rows, from another position if one is given.

    Example:
        >>> query_text(RowQuery(position=0, column=1, text="a b"), after=7)
        'in=0%3A1&text=a+b&after=7'
    """
    within = "" if query.position is None else str(query.position)
    within += "" if query.column is None else f":{query.column}"
    chosen = {"in": within, "status": query.status, "text": query.text, **place}
    return urlencode({name: value for name, value in chosen.items() if value not in {None, ""}})


@attrs.frozen(kw_only=True)
class RowLine:
    """A row of the table."""

    url: str
    number: str
    summary: RowSummary | None
    """The summary; None if the record is damaged."""
    status: str
    label: str
    """The status as the page shows it."""


@attrs.frozen(kw_only=True)
class RowsPicture:
    """A page of rows."""

    lines: Sequence[RowLine]
    total: int | None
    here: str
    """The query of this page."""
    earlier: str | None
    """The query of the previous page; None if there is none."""
    later: str | None
    searched: str | None
    """The query that continues an interrupted search."""
    unlisted: int = 0
    """Matching rows that never started and have no line on any page."""


def _label(row: PagedRow) -> str:
    status = row.status.replace("_", " ").upper()
    return status if row.record is None else row.record.status.label


def rows_of(run: StoredRunFacts, page: RowPage, query: RowQuery, unlisted: int = 0) -> RowsPicture:
    """Return a page of rows.

    Args:
        run: The run.
        page: The rows that have records.
        query: The query.
        unlisted: The number of matching rows without records.
    """
    lines = []
    for row in page.rows:
        task = run.tasks[row.position]
        lines.append(
            RowLine(
                url=f"/row/{row.position}/{row.index}/{quote(run.id, safe='')}",
                number=str(row.index) if task is None else f"{task} {row.index}",
                summary=None if row.record is None else summary_of(row.record),
                status=row.status,
                label=_label(row),
            )
        )
    place = {name: at for name in ("after", "before") if (at := getattr(query, name)) is not None}
    first, last = (page.rows[0].key, page.rows[-1].key) if page.rows else (None, None)
    searched = None
    if page.searched is not None:
        searched = query_text(
            query, **{"after" if query.before is None else "before": page.searched}
        )
    return RowsPicture(
        lines=lines,
        total=page.total,
        here=query_text(query, **place),
        earlier=query_text(query, before=first) if page.earlier and first is not None else None,
        later=query_text(query, after=last) if page.later and last is not None else None,
        searched=searched,
        unlisted=unlisted,
    )
