"""Results as JSON: one object a row, and the whole run as a document of version 3.

The shape is that of promptfoo's result files, so that what reads those reads these; what only trioeval
knows of a row stands under `metadata.trioeval`. Pure: text and instants come in as arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.grading import Assertion, Verdict
from trioeval.providers import Usage
from trioeval.providers.secret_names import is_secret_name
from trioeval.suite import Column, Suite
from trioeval.tasks import Row, Status

_FAILURE_REASON = {Status.PASS: 0, Status.FAIL: 1, Status.ERROR: 2}


@attrs.frozen(kw_only=True)
class RunInfo:
    """What a document says of the run itself."""

    eval_id: str
    utc_created: str
    """ISO 8601."""
    utc_exported: str
    duration_ms: float
    versions: Mapping[str, str]
    """`trioevalVersion`, `pythonVersion`, `platform`, `arch`."""


def document(
    suite: Suite, columns: Sequence[Column], rows: Sequence[Row], info: RunInfo
) -> dict[str, Any]:
    """The whole run, ready for `json.dump`; rows are in index order."""
    counts = {status: sum(row.status is status for row in rows) for status in Status}
    return {
        "evalId": info.eval_id,
        "results": {
            "version": 3,
            "timestamp": info.utc_created,
            "prompts": [
                _column_json(suite, column, [row for row in rows if row.step.column == column])
                for column in columns
            ],
            "results": [row_json(row, info.eval_id) for row in rows],
            "stats": {
                "successes": counts[Status.PASS],
                "failures": counts[Status.FAIL],
                "errors": counts[Status.ERROR],
                "tokenUsage": _usage_json([row.reply.usage for row in rows if row.reply]),
                "durationMs": info.duration_ms,
                "evaluationDurationMs": info.duration_ms,
            },
        },
        "config": _suite_json(suite),
        "shareableUrl": None,
        "metadata": {
            **info.versions,
            "exportedAt": info.utc_exported,
            "evaluationCreatedAt": info.utc_created,
        },
        "vars": sorted({name for row in rows for name in row.step.vars}),
        "runtimeOptions": _options_json(suite),
    }


def row_json(row: Row, eval_id: str) -> dict[str, Any]:
    """One row, as it stands in the document and in JSON Lines."""
    step, reply = row.step, row.reply
    usages = [] if reply is None else [reply.usage]
    return {
        "id": f"{eval_id}-test-{step.test_idx}-prompt-{step.prompt_idx}-repeat-{step.repeat_index}",
        "testIdx": step.test_idx,
        "promptIdx": step.prompt_idx,
        "promptId": step.column.prompt.id,
        "provider": {"id": row.provider.id, "label": row.provider.label or ""},
        "prompt": {"raw": row.prompt, "label": step.column.prompt.label},
        "vars": dict(step.vars),
        "testCase": {
            "description": step.test.description,
            "vars": dict(step.vars),
            "assert": [_assertion_json(assertion) for assertion in step.test.assertions],
            "threshold": step.test.threshold,
            "options": {"runSerially": bool(step.test.options.run_serially)},
            "metadata": dict(step.test.metadata),
        },
        "response": None
        if reply is None
        else {
            "output": reply.output,
            "cached": False,
            "cost": reply.cost,
            "tokenUsage": _usage_json(usages),
            "finishReason": reply.finish_reason,
            "isRefusal": reply.is_refusal,
            "metadata": dict(reply.metadata),
        },
        "success": row.status is Status.PASS,
        "score": row.score,
        "namedScores": dict(row.named_scores),
        "failureReason": _FAILURE_REASON[row.status],
        "error": row.error,
        "gradingResult": None if row.verdict is None else _verdict_json(row.verdict),
        "latencyMs": row.latency_ms,
        "cost": None if reply is None else reply.cost,
        "tokenUsage": _usage_json(usages),
        "metadata": {
            **step.test.metadata,
            "trioeval": {
                "outcome": row.outcome,
                "lane": row.lane,
                "attempts": row.calls,
                "waitMs": row.wait_ms,
                **_known({"firstTokenMs": row.first_token_ms}),
                **_known({"errorKind": row.error_kind, "bodyExcerpt": row.body_excerpt}),
            },
        },
    }


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def redacted(config: Any) -> Any:
    """A config without what looks like a credential."""
    match config:
        case Mapping():
            return {
                name: _blank(value) if _is_secret(str(name)) else redacted(value)
                for name, value in config.items()
            }
        case list() | tuple():
            return [redacted(value) for value in config]
        case _:
            return config


def _blank(value: Any) -> Any:
    return dict.fromkeys(value, "[redacted]") if isinstance(value, Mapping) else "[redacted]"


def _is_secret(name: str) -> bool:
    return name.lower() == "headers" or is_secret_name(name)


def _column_json(suite: Suite, column: Column, rows: Sequence[Row]) -> dict[str, Any]:
    entry = suite.providers[column.provider_index]
    parts = [part for row in rows if row.verdict for part in row.verdict.parts]
    named = [(part, part.assertion.metric) for part in parts if part.assertion is not None]
    metrics = sorted({metric for _, metric in named if metric is not None})
    weights = {
        metric: [(part.score, _weight(part)) for part, name in named if name == metric]
        for metric in metrics
    }
    costs = [row.reply.cost for row in rows if row.reply and row.reply.cost is not None]
    return {
        "id": column.prompt.id,
        "raw": column.prompt.raw,
        "label": column.prompt.label,
        "provider": entry.label or entry.id,
        "metrics": {
            "score": sum(row.score for row in rows),
            "testPassCount": sum(row.status is Status.PASS for row in rows),
            "testFailCount": sum(row.status is Status.FAIL for row in rows),
            "testErrorCount": sum(row.status is Status.ERROR for row in rows),
            "assertPassCount": sum(part.passed for part in parts),
            "assertFailCount": sum(not part.passed for part in parts),
            "totalLatencyMs": sum(row.latency_ms or 0 for row in rows),
            "tokenUsage": _usage_json([row.reply.usage for row in rows if row.reply]),
            "namedScores": {m: sum(s * w for s, w in pairs) for m, pairs in weights.items()},
            "namedScoresCount": {m: len(pairs) for m, pairs in weights.items()},
            "namedScoreWeights": {m: sum(w for _, w in pairs) for m, pairs in weights.items()},
            "cost": sum(costs) if costs else None,
        },
    }


def _weight(part: Verdict) -> float:
    return 1.0 if part.assertion is None else part.assertion.weight


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = {
        "pass": verdict.passed,
        "score": verdict.score,
        "reason": verdict.reason,
        "namedScores": dict(verdict.named_scores),
        "tokensUsed": _usage_json([]),
    }
    if verdict.assertion is not None:
        found["assertion"] = _assertion_json(verdict.assertion)
    else:
        found["componentResults"] = [_verdict_json(part) for part in verdict.parts]
    return found


def _assertion_json(assertion: Assertion) -> dict[str, Any]:
    given = {
        "type": assertion.type,
        "value": assertion.value,
        "threshold": assertion.threshold,
        "weight": None if assertion.weight == 1 else assertion.weight,
        "metric": assertion.metric,
    }
    return {name: value for name, value in given.items() if value is not None}


def _usage_json(usages: Sequence[Usage]) -> dict[str, Any]:
    def total(field: str) -> int:
        return sum(getattr(usage, field) or 0 for usage in usages)

    return {
        "prompt": total("prompt"),
        "completion": total("completion"),
        "cached": total("cached"),
        "total": total("total"),
        "numRequests": len(usages),
        "completionDetails": {
            "reasoning": total("reasoning"),
            "acceptedPrediction": total("accepted_prediction"),
            "rejectedPrediction": total("rejected_prediction"),
        },
    }


def _options_json(suite: Suite) -> dict[str, Any]:
    options = suite.evaluate_options
    return {
        "maxConcurrency": options.max_concurrency,
        "repeat": options.repeat,
        "delay": options.delay,
        "timeoutMs": options.timeout_ms,
        "maxEvalTimeMs": options.max_eval_time_ms,
    }


def _suite_json(suite: Suite) -> dict[str, Any]:
    return {
        "description": suite.description,
        "providers": [
            {"id": entry.id, "label": entry.label, "config": redacted(entry.config)}
            for entry in suite.providers
        ],
        "prompts": [prompt.raw for prompt in suite.prompts],
        "evaluateOptions": _options_json(suite),
    }
