# Apart from `cli.output`: imported on demand.
"""A description of the database of runs for Datasette: titles, columns, units, facets, and queries.

The description of the views of `trioeval.store`, for `datasette results.db --metadata
metadata.datasette.json`; the tables behind the views are hidden.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.report.results import Results

_ROW = {
    "run": "The run's id",
    "task": "The task's id; empty where the suite has no tasks but is one",
    "row": "The number of the row, as `trioeval show RUN ROW` takes it",
}
_CALLED = {
    "error_kind": "In which of the known ways it failed",
    "latency_ms": "Milliseconds until the reply was there",
    "tokens": "Tokens that were used",
    "cost_usd": "US dollars, as far as prices are known",
    "cached": "1 if the reply came from the cache",
    "row_id": "The row's id in result files",
}
_EXECUTION = "Which execution of the run: it may have been resumed"
_MILLISECONDS = {"latency_ms": "ms", "wait_ms": "ms"}


@attrs.frozen(kw_only=True)
class View:
    """The description of one view."""

    title: str
    about: str
    columns: Mapping[str, str]
    """All columns, each with its description."""
    facets: Sequence[str] = ()
    """Columns with few values, by which lines are counted and filtered."""
    newest_first: str | None = None
    """The column by which lines are sorted; None keeps their order."""
    units: Mapping[str, str] = attrs.field(factory=dict)

    def json(self) -> dict[str, Any]:
        """Return the description in the format of Datasette."""
        found: dict[str, Any] = {
            "title": self.title,
            "description": self.about,
            "columns": dict(self.columns),
        }
        if self.facets:
            found["facets"] = list(self.facets)
        if self.newest_first is not None:
            found["sort_desc"] = self.newest_first
        if self.units:
            found["units"] = dict(self.units)
        return found


VIEWS: Mapping[str, View] = {
    "runs": View(
        title="Runs",
        about="A line a run.",
        columns={
            "run": _ROW["run"],
            "suite": "The file of the suite",
            "description": "What the suite says of itself",
            "state": "running, finished, interrupted, or what else became of it",
            "utc_created": "When it began",
            "utc_finished": "When it ended",
            "executions": "How often it was begun or resumed",
            "duration_s": "Seconds, of all executions",
            "expected": "Rows that it has when it is whole",
            "rows": "Rows that are there",
            "passed": "Rows that passed",
            "failed": "Rows that failed",
            "errors": "Rows without a verdict that came to an end",
            "not_run": "Rows that were not run to their end",
            "tokens": _CALLED["tokens"],
            "cost_usd": _CALLED["cost_usd"],
            "flags": "What it was asked for with, as JSON",
        },
        facets=("state", "suite"),
        newest_first="utc_created",
        units={"duration_s": "s"},
    ),
    "results": View(
        title="Results",
        about="A line a row: one test with one prompt and provider.",
        columns={
            **_ROW,
            "test": "The number of its test, from 0",
            "prompt_number": "The number of its provider and prompt, from 0",
            "repeat": "The number of its repetition, from 0",
            "provider": "Label or id of the provider",
            "description": "What the suite calls the test",
            "vars": "The variables of the test, as JSON",
            "prompt": "What was asked",
            "output": "What was answered",
            "status": "pass, fail, or error where there is no verdict",
            "score": "From 0 to 1",
            "error": "Why it failed, or has no verdict",
            "outcome": "How its job ended",
            **_CALLED,
            "wait_ms": "Milliseconds that it waited for its lane",
            "calls": "Requests that were made for it",
        },
        facets=("run", "task", "provider", "status", "error_kind"),
        units=_MILLISECONDS,
    ),
    "rows_not_run": View(
        title="Rows not run",
        about=(
            "A line for rows that follow each other and never began, when the last execution was "
            "stopped; they have no line of their own among results."
        ),
        columns={
            "run": _ROW["run"],
            "task": _ROW["task"],
            "first_row": "The number of the first of them",
            "last_row": "The number of the last of them",
            "rows": "How many they are",
            "error": "Why they never began",
        },
        facets=("run", "task"),
    ),
    "calls": View(
        title="Calls",
        about="A line an attempt to get a reply: of a tested provider, a judge, or an agent.",
        columns={
            "call": "Its number",
            **_ROW,
            "execution": _EXECUTION,
            "role": "What was called for it: what is tested, or what judges it",
            "provider": "Label or id of the provider",
            "prompt": "What was asked",
            "output": "What was answered",
            "error": "What it failed with",
            **_CALLED,
        },
        facets=("run", "role", "provider", "error_kind"),
        units={"latency_ms": "ms"},
    ),
    "scores": View(
        title="Scores",
        about="A line an assertion that was judged.",
        columns={
            **_ROW,
            "position": "Its place among the assertions of the row",
            "type": "What kind of assertion it is",
            "metric": "The metric that it counts for",
            "passed": "1 if it passed",
            "score": "From 0 to 1",
            "weight": "How much it counts for",
            "reason": "Why it passed or failed",
        },
        facets=("run", "type", "metric", "passed"),
    ),
    "lane_events": View(
        title="Events of lanes",
        about="A line for whatever befell a lane: refusals, other limits, waits, its end.",
        columns={
            "event": "Its number",
            "run": _ROW["run"],
            "execution": _EXECUTION,
            "at_s": "Seconds since the execution began",
            "lane": "The lane's name",
            "kind": "throttled, limit_changed, closed, blocked or paused",
            "row": _ROW["row"],
            "until_s": "Until when nothing starts, in seconds since the execution began",
            "retry_after_s": "Seconds that the provider asked to wait",
            "concurrency": "Calls that may be in flight from then on",
            "reason": "What the provider said",
        },
        facets=("run", "lane", "kind"),
        units={"at_s": "s", "until_s": "s", "retry_after_s": "s"},
    ),
    "datasets": View(
        title="Datasets",
        about="A line a dataset of a task of type columns.",
        columns={
            "run": _ROW["run"],
            "task": "The task's id",
            "expected": "Rows that it is to have",
            "group_size": "Rows that are written together",
            "groups": "How many such groups there are",
            "written": "Rows that are in its files",
            "dropped": "Rows that are not",
        },
    ),
    "dataset_cells": View(
        title="Cells of datasets",
        about="A line for what one job made of a dataset.",
        columns={
            **_ROW,
            "row_group": "The group that the row is in",
            "producer": "What made it",
            "skipped": "1 if it was not to be made",
            "made": "An object of row numbers, each with its columns, as JSON",
            "calls": "Requests that were made for it",
            "execution": _EXECUTION,
        },
        facets=("run", "task", "producer"),
    ),
    "dropped_rows": View(
        title="Dropped rows",
        about="A line for each row of a dataset that is not there.",
        columns={
            **_ROW,
            "cause": "Why it was dropped",
            "column": "The column that could not be made",
            "error": "What happened",
            "error_kind": _CALLED["error_kind"],
            "attempts": "How often it was tried",
        },
        facets=("run", "cause", "column"),
    ),
}
"""The views for readers."""

HIDDEN = (
    "activity",
    "call",
    "cell",
    "dataset",
    "dataset_result",
    "dataset_stage",
    "dropped_row",
    "entry",
    "entry_count",
    "entry_done",
    "entry_limit",
    "entry_needs",
    "event",
    "group_again",
    "never_began",
    "owner",
    "part",
    "record",
    "result",
    "run",
    "running_attempt",
    "score",
    "test",
    "written_group",
)
"""The tables behind the views."""

_QUERIES = {
    "pass_rates": {
        "title": "Pass rates",
        "description": "Of each run, by task and provider, of the rows that came to an end.",
        "sql": (
            "SELECT run, task, provider, count(*) AS rows, sum(status = 'pass') AS passed,"
            " round(100.0 * sum(status = 'pass') / nullif(sum(status <> 'not_run'), 0), 1) AS percent,"
            " round(avg(score), 4) AS score,"
            " round(avg(latency_ms), 1) AS latency_ms, sum(tokens) AS tokens, sum(cost_usd) AS cost_usd"
            " FROM results GROUP BY run, task, provider ORDER BY run DESC, task, percent DESC"
        ),
    },
    "failures": {
        "title": "Why rows fail",
        "description": "Assertions that did not pass, of one run.",
        "sql": (
            "SELECT type, metric, reason, count(*) AS rows FROM scores"
            " WHERE run = :run AND NOT passed GROUP BY type, metric, reason ORDER BY rows DESC"
        ),
    },
    "refusals": {
        "title": "What befell lanes",
        "description": "How often which lane was refused, narrowed or closed.",
        "sql": (
            "SELECT run, lane, kind, count(*) AS times FROM lane_events"
            " GROUP BY run, lane, kind ORDER BY run DESC, times DESC"
        ),
    },
}


def datasette_chunks(*parts: Results) -> Iterator[str]:
    """Yield the metadata file for the database of a run.

    Args:
        parts: One run, or its tasks; the same for all runs of one database.
    """
    yield json.dumps(datasette_metadata(parts[0].info.database), indent=2) + "\n"


def datasette_metadata(database: str) -> dict[str, Any]:
    """Return the description of a database of runs for Datasette."""
    tables = {name: view.json() for name, view in VIEWS.items()}
    hidden = {name: {"hidden": True} for name in HIDDEN}
    about = {"title": "Runs of trioeval", "description": "Runs, their rows, and what they cost."}
    return {
        **about,
        "databases": {database: {**about, "tables": {**tables, **hidden}, "queries": _QUERIES}},
    }
