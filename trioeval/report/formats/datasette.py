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
    "task": "The task's id; empty if the suite has only one",
    "row": "The number of the row, as `trioeval show RUN ROW` takes it",
}
_CALLED = {
    "error_kind": "The kind of the failure",
    "latency_ms": "Milliseconds until the reply was complete",
    "tokens": "Used tokens",
    "cost_usd": "US dollars, as far as prices are known",
    "cached": "1 if the reply came from the cache",
    "row_id": "The row's id in result files",
}
_EXECUTION = "The execution of the run, from 1: it may have been resumed"
_MILLISECONDS = {"latency_ms": "ms", "wait_ms": "ms"}


@attrs.frozen(kw_only=True)
class ViewDescription:
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


VIEWS: Mapping[str, ViewDescription] = {
    "runs": ViewDescription(
        title="Runs",
        about="A line for each run.",
        columns={
            "run": _ROW["run"],
            "suite": "The file of the suite",
            "description": "The description of the suite",
            "state": "running, finished, interrupted or died",
            "utc_created": "The start",
            "utc_finished": "The end",
            "executions": "The number of executions",
            "duration_s": "Seconds of all executions",
            "expected": "The number of rows of the complete run",
            "rows": "Recorded rows",
            "passed": "Rows that passed",
            "failed": "Rows that failed",
            "errors": "Rows that ended without a verdict",
            "not_graded": "Rows that nothing graded",
            "not_run": "Rows that were not run",
            "tokens": _CALLED["tokens"],
            "cost_usd": _CALLED["cost_usd"],
            "flags": "The flags of the run, as JSON",
        },
        facets=("state", "suite"),
        newest_first="utc_created",
        units={"duration_s": "s"},
    ),
    "results": ViewDescription(
        title="Results",
        about="A line for each row: one test with one prompt and provider.",
        columns={
            **_ROW,
            "test": "The number of its test, from 0",
            "prompt_number": "The number of its provider and prompt, from 0",
            "repeat": "The number of its repeat, from 0",
            "provider": "Label or id of the provider",
            "description": "The title of the test",
            "vars": "The variables of the test, as JSON",
            "prompt": "The prompt",
            "output": "The reply",
            "status": "pass, fail, error, not_graded or not_run",
            "score": "From 0 to 1",
            "error": "The reason of a failure, or the error",
            "outcome": "The outcome of its job",
            **_CALLED,
            "wait_ms": "Milliseconds of waiting for its lane",
            "calls": "The number of requests",
        },
        facets=("run", "task", "provider", "status", "error_kind"),
        units=_MILLISECONDS,
    ),
    "rows_not_run": ViewDescription(
        title="Rows not run",
        about=(
            "A line for consecutive rows that never started because the last execution was "
            "stopped; they are not among the results."
        ),
        columns={
            "run": _ROW["run"],
            "task": _ROW["task"],
            "first_row": "The number of the first row",
            "last_row": "The number of the last row",
            "rows": "The number of rows",
            "error": "The reason",
        },
        facets=("run", "task"),
    ),
    "calls": ViewDescription(
        title="Calls",
        about="A line for each call of a tested provider, a judge, or an agent.",
        columns={
            "call": "Its number",
            **_ROW,
            "execution": _EXECUTION,
            "role": "The role: provider, user, grader or attempt",
            "provider": "Label or id of the provider",
            "prompt": "The prompt",
            "output": "The reply",
            "error": "The failure",
            **_CALLED,
        },
        facets=("run", "role", "provider", "error_kind"),
        units={"latency_ms": "ms"},
    ),
    "scores": ViewDescription(
        title="Scores",
        about="A line for each graded assertion.",
        columns={
            **_ROW,
            "position": "The position among the assertions of the row",
            "type": "The type of the assertion",
            "metric": "The metric",
            "passed": "1 if it passed",
            "score": "From 0 to 1",
            "weight": "The weight",
            "reason": "The reason",
        },
        facets=("run", "type", "metric", "passed"),
    ),
    "lane_events": ViewDescription(
        title="Events of lanes",
        about="A line for each event of a lane: refusals, changed limits, waits, its closing.",
        columns={
            "event": "Its number",
            "run": _ROW["run"],
            "execution": _EXECUTION,
            "at_s": "Seconds since the start of the execution",
            "lane": "The lane's name",
            "kind": "throttled, limit_changed, closed, blocked or paused",
            "row": _ROW["row"],
            "until_s": "The end of a pause, in seconds since the start of the execution",
            "retry_after_s": "Seconds of the pause that the provider requested",
            "concurrency": "The new limit of calls in flight",
            "reason": "The message of the provider",
        },
        facets=("run", "lane", "kind"),
        units={"at_s": "s", "until_s": "s", "retry_after_s": "s"},
    ),
    "datasets": ViewDescription(
        title="Datasets",
        about="A line for each dataset of a columns task.",
        columns={
            "run": _ROW["run"],
            "task": "The task's id",
            "expected": "Requested rows",
            "group_size": "Rows of a group",
            "groups": "The number of groups",
            "written": "Written rows",
            "dropped": "Dropped rows",
        },
    ),
    "dataset_cells": ViewDescription(
        title="Cells of datasets",
        about="A line for each job of a dataset.",
        columns={
            **_ROW,
            "row_group": "The group of the row",
            "producer": "The maker",
            "skipped": "1 if it was skipped",
            "made": "An object of row numbers, each with its columns, as JSON",
            "calls": "The number of requests",
            "execution": _EXECUTION,
        },
        facets=("run", "task", "producer"),
    ),
    "dropped_rows": ViewDescription(
        title="Dropped rows",
        about="A line for each dropped row of a dataset.",
        columns={
            **_ROW,
            "cause": "The cause",
            "column": "The column that failed",
            "error": "What happened",
            "error_kind": _CALLED["error_kind"],
            "attempts": "The number of attempts",
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
    "job",
    "media",
    "never_began",
    "owner",
    "part",
    "part_totals",
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
        "description": "Pass rates of each run by task and provider, over the graded rows that ended.",
        "sql": (
            "SELECT run, task, provider, count(*) AS rows, sum(status = 'pass') AS passed,"
            " sum(status = 'not_graded') AS not_graded,"
            " round(100.0 * sum(status = 'pass')"
            " / nullif(sum(status NOT IN ('not_graded', 'not_run')), 0), 1) AS percent,"
            " round(avg(score) FILTER (WHERE status IN ('pass', 'fail')), 4) AS score,"
            " round(avg(latency_ms), 1) AS latency_ms, sum(tokens) AS tokens, sum(cost_usd) AS cost_usd"
            " FROM results GROUP BY run, task, provider ORDER BY run DESC, task, percent DESC"
        ),
    },
    "failures": {
        "title": "Reasons of failures",
        "description": "Failed assertions of one run.",
        "sql": (
            "SELECT type, metric, reason, count(*) AS rows FROM scores"
            " WHERE run = :run AND NOT passed GROUP BY type, metric, reason ORDER BY rows DESC"
        ),
    },
    "refusals": {
        "title": "Events of lanes by kind",
        "description": "The number of refusals, changed limits and closings of each lane.",
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
    about = {"title": "Runs of trioeval", "description": "Runs, their rows, and their costs."}
    return {
        **about,
        "databases": {database: {**about, "tables": {**tables, **hidden}, "queries": _QUERIES}},
    }
