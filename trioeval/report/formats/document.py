"""The whole run as a document of version 3.

The format is that of promptfoo's result files, so that the same programs read them. Pure: text and instants
are arguments, and so are rows, which may not fit into memory.
"""

from collections.abc import Sequence
from typing import Any

from trioeval.report.columns import dataset_json
from trioeval.report.question_eval import summary_json, task_json
from trioeval.report.results import Results
from trioeval.run import Status


def document(results: Results) -> dict[str, Any]:
    """Return a run, or a task of one; its rows are an iterator, for `json_chunks` and similar writers."""
    head, totals, info = results.head, results.totals, results.info
    return {
        "evalId": head.eval_id,
        **task_json(head, totals),
        **(
            {}
            if (dataset := results.shown_dataset()) is None
            else {"dataset": dataset_json(dataset)}
        ),
        "results": {
            "version": 3,
            "timestamp": head.utc_created,
            "prompts": [_column_json(results, idx) for idx in range(len(results.columns))],
            "results": map(info.row_json, results.rows()),
            **({"neverBegan": list(results.never_began)} if results.never_began else {}),
            "stats": {
                "successes": totals.successes,
                "failures": totals.count(Status.FAIL),
                "errors": totals.count(Status.ERROR),
                **({"notRun": totals.left} if totals.left else {}),
                **({"notGraded": totals.not_graded} if totals.not_graded else {}),
                **({"cutOff": totals.cut_off} if totals.cut_off else {}),
                "tokenUsage": info.usage_json(totals.usage.json()),
                "durationMs": info.duration_ms,
                "evaluationDurationMs": info.duration_ms,
            },
        },
        "config": results.shown_config(),
        "shareableUrl": None,
        "metadata": _run_json(results),
        "vars": [] if info.strip.test_vars else list(totals.vars),
        "runtimeOptions": dict(head.runtime_options),
    }


def run_document(parts: Sequence[Results]) -> dict[str, Any]:
    """Return the document of a run: of its only task, or an object with a document for each task."""
    first, *_ = parts
    if first.task is None:
        return document(first)
    return {
        "evalId": first.head.eval_id,
        "tasks": {
            part.task: {"dependsOn": list(part.head.depends_on), **document(part)} for part in parts
        },
        **summary_json((part.head, part.totals) for part in parts),
        "shareableUrl": None,
        "metadata": _run_json(first),
    }


def _run_json(results: Results) -> dict[str, Any]:
    return {
        **results.head.versions,
        "exportedAt": results.info.utc_exported,
        "evaluationCreatedAt": results.head.utc_created,
    }


def _column_json(results: Results, prompt_idx: int) -> dict[str, Any]:
    column = results.columns[prompt_idx]
    metrics = results.totals.columns[prompt_idx].json()
    return {
        "id": column.id,
        "raw": results.prompt_text(column.raw),
        "label": results.prompt_text(column.label),
        "provider": column.provider,
        "metrics": {**metrics, "tokenUsage": results.info.usage_json(metrics["tokenUsage"])},
    }
