"""The whole run as a document of version 3.

The shape is that of promptfoo's result files, so that what reads those reads these. Pure: text and instants
come in as arguments, and so do rows, which may be more than fit into memory.
"""

from collections.abc import Sequence
from typing import Any

from trioeval.report.config import config_json, options_json
from trioeval.report.results import Results, RunInfo
from trioeval.suite import Column
from trioeval.tasks import Status


def document(results: Results) -> dict[str, Any]:
    """A whole run, or a task of one; its rows stand in it as an iterator, for `json_chunks` and its like."""
    suite, totals, info = results.suite, results.totals, results.info
    return {
        "evalId": info.eval_id,
        "results": {
            "version": 3,
            "timestamp": info.utc_created,
            "prompts": [_column_json(results, column) for column in results.columns],
            "results": results.rows(None),
            "stats": {
                "successes": totals.count(Status.PASS),
                "failures": totals.count(Status.FAIL),
                "errors": totals.count(Status.ERROR),
                "tokenUsage": totals.usage.json(),
                "durationMs": info.duration_ms,
                "evaluationDurationMs": info.duration_ms,
            },
        },
        "config": config_json(results),
        "shareableUrl": None,
        "metadata": _run_json(info),
        "vars": [] if info.strip.test_vars else list(totals.vars),
        "runtimeOptions": options_json(suite),
    }


def run_document(parts: Sequence[Results]) -> dict[str, Any]:
    """The document of a run: of its only part, or an object with one for each of its tasks."""
    first, *_ = parts
    if first.task is None:
        return document(first)
    info = first.info
    return {
        "evalId": info.eval_id,
        "tasks": {
            part.task: {"dependsOn": list(part.depends_on), **document(part)} for part in parts
        },
        "shareableUrl": None,
        "metadata": _run_json(info),
    }


def _run_json(info: RunInfo) -> dict[str, Any]:
    return {
        **info.versions,
        "exportedAt": info.utc_exported,
        "evaluationCreatedAt": info.utc_created,
    }


def _column_json(results: Results, column: Column) -> dict[str, Any]:
    return {
        "id": column.prompt.id,
        "raw": results.prompt_text(column.prompt.raw),
        "label": results.prompt_text(column.prompt.label),
        "provider": results.provider_name(column),
        "metrics": results.totals.columns[column.prompt_idx].json(),
    }
