"""The record of a row as JSON. The store keeps it, and all reports are made from it.

The format is that of promptfoo's result files; facts that only trioeval has are in `metadata.trioeval`. A
record has all facts; parts that must not be shown are removed by
`trioeval.report.records.RowRecord.stripped`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from trioeval.documents.structure import camel
from trioeval.grading import Assertion, Verdict
from trioeval.grading.algebra import SET, components
from trioeval.grading.grade import RENDERED
from trioeval.grading.model import NOTHING_SPENT
from trioeval.grading.registry import COMMAND, WEBHOOK
from trioeval.providers import Guardrails, Reply
from trioeval.report.formats.json import shallow
from trioeval.report.redact import redacted, redacted_command, redacted_judges
from trioeval.report.usage import spent_json, sum_json, usage_json
from trioeval.run import Row
from trioeval.suite.model import Prompt, TestOptions
from trioeval.suite.plain import plain_data
from trioeval.usage import Usage

_SHORTEST = 0.001  # seconds of the shortest wait that is recorded

NOTHING_SAID: Mapping[int, Mapping[str, Any]] = {}


def row_json(row: Row, eval_id: str) -> dict[str, Any]:
    """Return one row as JSON data; values nested too deeply for readers are cut.

    Args:
        row: The row.
        eval_id: The id of its run.
    """
    step, reply = row.step, row.reply
    own = () if reply is None else (reply.usage, *_more_requests(row))
    usage = usage_json(*own, cached=row.cached)
    whole, cost = usage, None if reply is None else reply.cost
    if row.lost is not NOTHING_SPENT:
        whole = {**usage, **sum_json(usage, spent_json(row.lost))}
        cost = (
            None
            if cost is None and row.lost.cost is None
            else (cost or 0.0) + (row.lost.cost or 0.0)
        )
    if row.spent is not NOTHING_SPENT:
        whole = {**whole, "assertions": spent_json(row.spent)}
    metadata = shallow(dict(step.test.metadata))
    # A test and its verdict share their assertions, and a test may have many.
    assertions = {id(assertion): assertion_json(assertion) for assertion in step.test.assertions}
    task = "" if row.task is None else f"-{row.task}"
    return {
        "id": f"{eval_id}{task}-test-{step.test_idx}-prompt-{step.prompt_idx}-repeat-{step.repeat_index}",
        **({} if row.task is None else {"task": row.task}),
        "testIdx": step.test_idx,
        "promptIdx": step.prompt_idx,
        "promptId": step.column.prompt.id,
        "provider": {"id": row.provider.id, "label": row.provider.label or ""},
        "prompt": {
            "raw": row.prompt,
            "label": step.column.prompt.label,
            **_config(step.column.prompt),
        },
        "vars": shallow(dict(row.vars)),
        "testCase": {
            **({} if step.test.extra is None else {"case": step.test.extra.name}),
            "description": step.test.description,
            "vars": shallow(dict(step.vars)),
            "assert": list(assertions.values()),
            "threshold": step.test.threshold,
            "options": _options_json(step.test.options),
            "metadata": metadata,
        },
        "response": None if reply is None else _response_json(row, reply, usage),
        "success": row.status.is_success,
        "score": row.score,
        "namedScores": dict(row.named_scores),
        "failureReason": row.status.failure_reason,
        "error": row.error,
        "gradingResult": None if row.verdict is None else verdict_json(row.verdict, assertions),
        "latencyMs": row.latency_ms,
        "cost": cost,
        "tokenUsage": whole,
        "metadata": {**metadata, "trioeval": _own(row)},
        **({} if row.result is None else {row.result.name: shallow(row.result.json())}),
    }


def _more_requests(row: Row) -> Sequence[Usage]:
    """Return an empty usage for each further step of a row: the usage of the reply is of all steps."""
    return () if row.result is None else [Usage()] * (row.result.steps - 1)


def _response_json(row: Row, reply: Reply, usage: Mapping[str, Any]) -> dict[str, Any]:
    # The provider's output is included if a transform changed it, or failed.
    is_same = reply.output is row.output or reply.output == row.output
    raw = {} if is_same else {"raw": shallow(reply.output)}
    return {
        "output": shallow(row.output),
        **raw,
        "cached": row.cached,
        "cost": reply.cost,
        "tokenUsage": usage,
        "finishReason": reply.finish_reason,
        "isRefusal": reply.is_refusal,
        **({} if reply.guardrails is None else _guardrails_json(reply.guardrails)),
        "metadata": shallow(dict(reply.metadata)),
    }


def _guardrails_json(found: Guardrails) -> Mapping[str, Any]:
    facts = {camel(name): value for name, value in attrs.asdict(found).items() if value is not None}
    return {"guardrails": facts}


def _config(prompt: Prompt) -> dict[str, Any]:
    return {"config": redacted(shallow(prompt.config))} if prompt.config else {}


_OPTIONS = tuple(
    (field.name, camel(field.name))
    for field in attrs.fields(TestOptions)
    if field.name != "overrides"
)
_NO_OPTIONS = TestOptions()


def _options_json(options: TestOptions) -> dict[str, Any]:
    if options == _NO_OPTIONS:  # true for most tests
        return {}
    options_data = {
        name: plain_data(value)
        for attribute, name in _OPTIONS
        if (value := getattr(options, attribute)) is not None
    }
    if "provider" in options_data:
        options_data["provider"] = redacted_judges(options_data["provider"])
    found: dict[str, Any] = redacted(shallow({**options_data, **options.overrides}))
    return found


def _own(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        "outcome": row.outcome,
        "lane": row.lane,
        "attempts": row.calls,
        "waitMs": row.wait_ms,
    }
    if row.waits and (waits := {why: s for why, s in row.waits.items() if s >= _SHORTEST}):
        found["waits"] = waits
    rest = (
        ("firstTokenMs", row.first_token_ms),
        ("errorKind", row.error_kind),
        ("bodyExcerpt", row.body_excerpt),
        ("gradingCost", row.spent.cost),
    )
    return _with_known(found, rest) | _graded(row)


def _graded(row: Row) -> dict[str, Any]:
    """Return the verdicts of the assertions of a row without a verdict."""
    found = [verdict_json(part) for part in components(row.graded)]
    details = {"gradingError": shallow(dict(row.details))} if row.details else {}
    return {**details, **({"componentResults": found} if found else {})}


def _with_known(found: dict[str, Any], more: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members with those of the others that are not None."""
    return found | {name: fact for name, fact in more if fact is not None}


def verdict_json(
    verdict: Verdict, by_id: Mapping[int, Mapping[str, Any]] = NOTHING_SAID
) -> dict[str, Any]:
    """Return a verdict; that of a row includes its parts.

    Args:
        verdict: The verdict.
        by_id: Results of `assertion_json`, by the `id` of each assertion.
    """
    found: dict[str, Any] = {
        "pass": verdict.passed,
        "score": verdict.score,
        "reason": verdict.reason,
        "namedScores": dict(verdict.named_scores),
        "tokensUsed": spent_json(verdict.spent),
    }
    if verdict.named_score_weights:
        found["namedScoreWeights"] = dict(verdict.named_score_weights)
    metadata = dict(verdict.metadata)
    if verdict.spent.judges:
        metadata["graders"] = list(verdict.spent.judges)
    assertion = verdict.assertion
    if assertion is None:
        found["componentResults"] = [
            verdict_json(part, by_id) for part in components(verdict.parts)
        ]
    elif assertion.type == SET:  # readers of promptfoo's files do not know this type
        metadata["assertionSet"] = _set_json(assertion)
    else:
        found["assertion"] = by_id.get(id(assertion)) or assertion_json(assertion)
        if RENDERED in metadata and _is_webhook(assertion):
            metadata[RENDERED] = redacted_judges(metadata[RENDERED])
    if metadata:
        found["metadata"] = shallow(metadata)
    return found


def _is_webhook(assertion: Assertion) -> bool:
    return assertion.type.endswith(WEBHOOK)  # or the negated form


def assertion_json(assertion: Assertion) -> dict[str, Any]:
    """Return an assertion as in a suite file, without the definition of its judge."""
    value = shallow(plain_data(assertion.value))
    found: dict[str, Any] = {"type": assertion.type}
    if assertion.assertions:
        found["assert"] = [*map(assertion_json, assertion.assertions)]
    if value is not None:
        found["value"] = redacted_judges(value) if _is_webhook(assertion) else value
        if assertion.type.endswith(COMMAND):
            found["value"] = redacted_command(value)
    rest = (
        ("threshold", assertion.threshold),
        ("weight", None if assertion.weight == 1 else assertion.weight),
        ("metric", assertion.metric),
        ("transform", assertion.transform),
        ("contextTransform", assertion.context_transform),
        ("config", redacted(shallow(assertion.config)) if assertion.config else None),
    )
    return _with_known(found, rest)


def _set_json(assertion: Assertion) -> dict[str, Any]:
    """Return the definition of a set."""
    data = assertion_json(assertion)
    found: dict[str, Any] = {"type": SET, "assertionCount": len(assertion.assertions)}
    return found | {name: data[name] for name in ("metric", "threshold", "weight") if name in data}
