"""One row as JSON, as it stands in documents and in JSON Lines.

The shape is that of promptfoo's result files; what only trioeval knows of a row stands under
`metadata.trioeval`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.grading import Assertion, Verdict
from trioeval.grading.algebra import SET, components
from trioeval.grading.grade import RENDERED
from trioeval.grading.webhook_kinds import WEBHOOK
from trioeval.providers.secrets import hide_in
from trioeval.report.json_text import shallow
from trioeval.report.redact import redacted, redacted_judges
from trioeval.report.usage import spent_json, usage_json
from trioeval.suite import Prompt, TestOptions
from trioeval.suite.plain_form import plain_data
from trioeval.suite.strict import camel
from trioeval.suite.strip import KEEP_ALL, Strip
from trioeval.tasks import Row, Status

_FAILURE_REASON = {Status.PASS: 0, Status.FAIL: 1, Status.ERROR: 2}

_OF_TESTS = ("testCase", "error", "gradingResult", "metadata")
"""Where what a test says may stand, its values with the environment filled in."""

STRIPPED_PROMPT = "[prompt stripped]"
STRIPPED_OUTPUT = "[output stripped]"


def row_json(
    row: Row, eval_id: str, strip: Strip = KEEP_ALL, keys: Sequence[str] = ()
) -> dict[str, Any]:
    """One row, ready for `json.dumps`; what is nested too deeply for any reader is cut.

    Args:
        row: Any row.
        eval_id: Of its run.
        strip: What is left out.
        keys: Texts that are blanked in the test and in what judges say of it; see `keys_of`.
    """
    found: dict[str, Any] = shallow(_row_json(row, eval_id, strip))
    if keys:
        found |= hide_in({name: found[name] for name in _OF_TESTS}, keys)
    return found


def _row_json(row: Row, eval_id: str, strip: Strip) -> dict[str, Any]:
    step, reply = row.step, row.reply
    own = () if reply is None else (reply.usage,)
    usage = usage_json(*own)
    variables = {} if strip.test_vars else dict(step.vars)
    metadata = {} if strip.metadata else dict(step.test.metadata)
    verdict = None if strip.grading_result else row.verdict
    # What a failed row says is the reason of its verdict.
    hides_error = strip.grading_result and row.status is Status.FAIL
    task = "" if row.task is None else f"-{row.task}"
    return {
        "id": f"{eval_id}{task}-test-{step.test_idx}-prompt-{step.prompt_idx}-repeat-{step.repeat_index}",
        **_known({"task": row.task}),
        "testIdx": step.test_idx,
        "promptIdx": step.prompt_idx,
        "promptId": step.column.prompt.id,
        "provider": {"id": row.provider.id, "label": row.provider.label or ""},
        "prompt": {
            "raw": STRIPPED_PROMPT if strip.prompt_text else row.prompt,
            "label": STRIPPED_PROMPT if strip.prompt_text else step.column.prompt.label,
            **_config(step.column.prompt),
        },
        "vars": {} if strip.test_vars else dict(row.vars),
        "testCase": {
            "description": step.test.description,
            "vars": variables,
            "assert": [assertion_json(assertion) for assertion in step.test.assertions],
            "threshold": step.test.threshold,
            "options": _options_json(step.test.options),
            "metadata": metadata,
        },
        "response": None
        if reply is None
        else {
            "output": STRIPPED_OUTPUT if strip.response_output else row.output,
            **_raw(row, strip),
            "cached": False,
            "cost": reply.cost,
            "tokenUsage": usage,
            "finishReason": reply.finish_reason,
            "isRefusal": reply.is_refusal,
            "metadata": {} if strip.metadata else dict(reply.metadata),
        },
        "success": row.status is Status.PASS,
        "score": row.score,
        "namedScores": dict(row.named_scores),
        "failureReason": _FAILURE_REASON[row.status],
        "error": None if hides_error else row.error,
        "gradingResult": None if verdict is None else verdict_json(verdict),
        "latencyMs": row.latency_ms,
        "cost": None if reply is None else reply.cost,
        "tokenUsage": usage_json(*own, judges=row.spent) if row.spent.calls else usage,
        "metadata": {**metadata, "trioeval": _own(row, strip)},
    }


def _config(prompt: Prompt) -> dict[str, Any]:
    return {"config": redacted(shallow(prompt.config))} if prompt.config else {}


def _options_json(options: TestOptions) -> dict[str, Any]:
    given = {field.name: getattr(options, field.name) for field in attrs.fields(TestOptions)}
    overrides = given.pop("overrides")
    said = {camel(name): plain_data(value) for name, value in given.items() if value is not None}
    if "provider" in said:
        said["provider"] = redacted_judges(said["provider"])
    found: dict[str, Any] = redacted(shallow({**said, **overrides}))
    return found


def _raw(row: Row, strip: Strip) -> dict[str, Any]:
    """What the provider sent, where transforms made something else of it, or failed."""
    sent = None if row.reply is None else row.reply.output
    return {} if strip.response_output or sent == row.output else {"raw": sent}


def _own(row: Row, strip: Strip) -> dict[str, Any]:
    sent = None if strip.response_output else row.body_excerpt
    return {
        "outcome": row.outcome,
        "lane": row.lane,
        "attempts": row.calls,
        "waitMs": row.wait_ms,
        **_known({"firstTokenMs": row.first_token_ms}),
        **_known(
            {
                "errorKind": row.error_kind,
                "bodyExcerpt": sent,
                "gradingCost": row.spent.cost,
            }
        ),
        **({} if strip.grading_result else _graded(row)),
    }


def _graded(row: Row) -> dict[str, Any]:
    """What was judged of a row that has no verdict."""
    found = [verdict_json(part) for part in components(row.graded)]
    details = {"gradingError": dict(row.details)} if row.details else {}
    return {**details, **({"componentResults": found} if found else {})}


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict; that of a row with its parts."""
    found: dict[str, Any] = {
        "pass": verdict.passed,
        "score": verdict.score,
        "reason": verdict.reason,
        "namedScores": dict(verdict.named_scores),
        "tokensUsed": spent_json(verdict.spent),
    }
    if verdict.named_score_weights:
        found["namedScoreWeights"] = dict(verdict.named_score_weights)
    judges = {"graders": list(verdict.spent.judges)} if verdict.spent.judges else {}
    metadata = {**verdict.metadata, **judges}
    assertion = verdict.assertion
    if assertion is not None and RENDERED in metadata and _is_webhook(assertion):
        metadata[RENDERED] = redacted_judges(metadata[RENDERED])
    if assertion is None:
        found["componentResults"] = [verdict_json(part) for part in components(verdict.parts)]
    elif assertion.type == SET:  # which is none for readers of promptfoo's files
        metadata["assertionSet"] = _set_json(assertion)
    else:
        found["assertion"] = assertion_json(assertion)
    return {**found, "metadata": metadata} if metadata else found


def _is_webhook(assertion: Assertion) -> bool:
    return assertion.type.endswith(WEBHOOK)  # or its opposite


def assertion_json(assertion: Assertion) -> dict[str, Any]:
    """An assertion as a suite file would say it, without what says who judges it and how."""
    value = plain_data(assertion.value)
    given = {
        "type": assertion.type,
        "assert": [*map(assertion_json, assertion.assertions)] or None,
        "value": redacted_judges(value) if _is_webhook(assertion) else value,
        "threshold": assertion.threshold,
        "weight": None if assertion.weight == 1 else assertion.weight,
        "metric": assertion.metric,
        "transform": assertion.transform,
        "contextTransform": assertion.context_transform,
        "config": redacted(shallow(assertion.config)) if assertion.config else None,
    }
    return _known(given)


def _set_json(assertion: Assertion) -> dict[str, Any]:
    """What is said of a set beside its result."""
    said = assertion_json(assertion)
    found: dict[str, Any] = {"type": SET, "assertionCount": len(assertion.assertions)}
    return found | {name: said[name] for name in ("metric", "threshold", "weight") if name in said}
