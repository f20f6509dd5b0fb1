"""The record of a row as JSON. The store keeps it, and all reports are made from it.

The format is that of promptfoo's result files; facts that only trioeval has are in `metadata.trioeval`. A
record has all facts; parts that must not be shown are removed by
`trioeval.report.records.RowRecord.stripped`.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.documents.structure import camel
from trioeval.grading import Assertion, Verdict
from trioeval.grading.algebra import ALL_PASSED, SET, components
from trioeval.grading.grade import RENDERED
from trioeval.grading.model import NOTHING_SPENT
from trioeval.grading.registry import COMMAND, WEBHOOK
from trioeval.providers import Guardrails, Reply
from trioeval.report.formats.json import compact, read_compact, shallow
from trioeval.report.phrases import IN_FULL, SHORT, Phrases
from trioeval.report.redact import redacted, redacted_command, redacted_judges
from trioeval.report.repeats import LABEL_DIGEST, SAME_VARIABLES, label_digest
from trioeval.report.usage import NO_COUNTS, spent_json, sum_json, usage_json
from trioeval.run import Row
from trioeval.suite.expand import Step
from trioeval.suite.model import TestOptions
from trioeval.suite.plain import plain_data
from trioeval.usage import Usage

_SHORTEST = 0.001  # seconds of the shortest wait that is recorded
_OWN = "trioeval"
_NO_TEXTS: Mapping[int, str] = {}


def row_json(row: Row, eval_id: str) -> dict[str, Any]:
    """Return one row as JSON data; see `row_text`."""
    found: dict[str, Any] = read_compact(row_text(row, eval_id))
    return found


def row_text(row: Row, eval_id: str, words: Phrases = IN_FULL) -> str:
    """Return one row as JSON text; values nested too deeply for readers are cut.

    It is put together from texts, because most of it is the same in nearly all rows.

    Args:
        row: The row.
        eval_id: The id of its run.
        words: The spelling of its phrases.
    """
    step, reply = row.step, row.reply
    has_tokens = words is SHORT and not step.column.prompt.config
    # A test and its verdict share their assertions, and a test may have many.
    assertions = {id(one): compact(assertion_json(one)) for one in step.test.assertions}
    used = _usage_text(row, words)
    cost = None if reply is None else reply.cost
    if row.lost.cost is not None:
        cost = (cost or 0.0) + row.lost.cost
    variables = compact(shallow(dict(row.vars)))
    verdict = "null" if row.verdict is None else verdict_text(row.verdict, assertions, words)
    response = "null" if reply is None else _response_text(row, reply, used, words)
    result = ""
    if row.result is not None:
        result = f",{compact({row.result.name: shallow(row.result.json())})[1:-1]}"
    return (
        f'{_place_text(row, eval_id, has_tokens=has_tokens)},"vars":{variables},"testCase":'
        f"{_test_text(step, SAME_VARIABLES if has_tokens else variables, assertions, words)},"
        f'"response":{response},{_success_text(row, words)},"gradingResult":{verdict},'
        f'"latencyMs":{compact(row.latency_ms)},{_spent_members(row, cost, used, words)},'
        f'"metadata":{_metadata_text(row, words)}{result}}}'
    )


def _members(found: Mapping[str, Any]) -> str:
    """Return the members of an object, without its braces."""
    return compact(found)[1:-1]


def _place_text(row: Row, eval_id: str, *, has_tokens: bool) -> str:
    """Return the beginning of a row: the parts that say which one it is."""
    step, prompt = row.step, row.step.column.prompt
    task = "" if row.task is None else f"-{row.task}"
    place = f"test-{step.test_idx}-prompt-{step.prompt_idx}-repeat-{step.repeat_index}"
    found: dict[str, Any] = {"id": f"{eval_id}{task}-{place}"}
    if row.task is not None:
        found["task"] = row.task
    shown: dict[str, Any] = {"raw": row.prompt, "label": prompt.label}
    if prompt.config:
        shown["config"] = redacted(shallow(prompt.config))
    found |= {"testIdx": step.test_idx, "promptIdx": step.prompt_idx}
    is_digest = has_tokens and prompt.id == label_digest(prompt.label)
    prompt_id = LABEL_DIGEST if is_digest else compact(prompt.id)
    provider = {"id": row.provider.shown_id, "label": row.provider.label or ""}
    asked = _members({"provider": provider, "prompt": shown})
    return f'{compact(found)[:-1]},"promptId":{prompt_id},{asked}'


def _test_text(step: Step, variables: str, assertions: Mapping[int, str], words: Phrases) -> str:
    test = step.test
    case = "" if test.extra is None else f"{_members({'case': test.extra.name})},"
    rest, options = words.plain_test, _options_json(test.options)
    if test.threshold is not None or options or test.metadata:
        metadata = shallow(dict(test.metadata))
        rest = _members({"threshold": test.threshold, "options": options, "metadata": metadata})
    return (
        f'{{{case}{_members({"description": test.description})},"vars":{variables},'
        f'"assert":[{",".join(assertions.values())}],{rest}}}'
    )


def _success_text(row: Row, words: Phrases) -> str:
    status, score, named = row.status, row.score, row.named_scores
    if (
        status.is_success
        and score == 1
        and type(score) is float
        and not named
        and row.error is None
    ):
        return f'"success":true,{words.success}'
    return _members(
        {
            "success": status.is_success,
            "score": score,
            "namedScores": dict(named),
            "failureReason": status.failure_reason,
            "error": row.error,
        }
    )


def _response_text(row: Row, reply: Reply, used: str, words: Phrases) -> str:
    # The provider's output is included if a transform changed it, or failed.
    said: dict[str, Any] = {"output": shallow(row.output)}
    if not (reply.output is row.output or reply.output == row.output):
        said["raw"] = shallow(reply.output)
    is_plain = reply.finish_reason is None and reply.is_refusal is False
    is_plain = is_plain and reply.guardrails is None and not reply.metadata
    parts = _parts_json(reply)
    is_plain = is_plain and not parts
    if is_plain and not row.cached and _is_free(reply.cost, used, words):
        return f"{compact(said)[:-1]},{words.free_reply}}}"
    said |= {"cached": row.cached, "cost": reply.cost}
    rest = words.plain_reply
    if not is_plain:
        remarks: dict[str, Any] = {
            "finishReason": reply.finish_reason,
            "isRefusal": reply.is_refusal,
        }
        if reply.guardrails is not None:
            remarks |= _guardrails_json(reply.guardrails)
        rest = _members({**remarks, **parts} | {"metadata": shallow(dict(reply.metadata))})
    return f'{compact(said)[:-1]},"tokenUsage":{used},{rest}}}'


_NO_PARTS: Mapping[str, Any] = {}


def _parts_json(reply: Reply) -> Mapping[str, Any]:
    """Return the parts of a reply that its output may lack, or mixes with others."""
    has_parts = reply.tool_calls or reply.reasoning or reply.log_probs or reply.refusal
    if not (has_parts or reply.media):
        return _NO_PARTS
    found = {
        "text": reply.own_text if reply.tool_calls or reply.reasoning else None,
        "toolCalls": [shallow(call.to_json()) for call in reply.tool_calls] or None,
        "reasoning": reply.reasoning,
        "refusal": reply.refusal,
        "logProbs": reply.log_probs,
        "media": [one.to_json() for one in reply.media] or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _guardrails_json(found: Guardrails) -> Mapping[str, Any]:
    facts = {camel(name): value for name, value in attrs.asdict(found).items() if value is not None}
    return {"guardrails": facts}


# The usage of a row: of its reply, and with failed calls and judges.


def _usage_text(row: Row, words: Phrases) -> str:
    """Return the usage of the reply alone."""
    if row.reply is None:
        return _counts_text(usage_json(), words)
    usage = row.reply.usage
    if row.result is None and not row.cached and usage.is_zero:
        return words.reply_counts
    # The usage of the reply is that of all its steps, each of which was a request.
    more = [] if row.result is None else [Usage()] * (row.result.steps - 1)
    return _counts_text(usage_json(usage, *more, cached=row.cached), words)


def _is_free(cost: float | None, used: str, words: Phrases) -> bool:
    """Return whether a call cost nothing, and used nothing that is counted."""
    return cost == 0 and type(cost) is float and used is words.reply_counts


def _spent_members(row: Row, cost: float | None, used: str, words: Phrases) -> str:
    """Return the members of a row about its cost and usage."""
    used = _whole_usage_text(row, used, words)
    if _is_free(cost, used, words):
        return words.free
    return f'"cost":{compact(cost)},"tokenUsage":{used}'


def _whole_usage_text(row: Row, used: str, words: Phrases) -> str:
    if row.lost is NOTHING_SPENT and row.spent is NOTHING_SPENT:
        return used
    found = read_compact(_usage_text(row, IN_FULL))
    if row.lost is not NOTHING_SPENT:
        found |= sum_json(found, spent_json(row.lost))
    return _counts_text(found | {"assertions": spent_json(row.spent)}, words)


def _counts_text(used: Mapping[str, Any], words: Phrases) -> str:
    """Return the text of a usage: of a row, with that of its judges, or of judges."""
    counts = dict(used)
    details, judges = counts.pop("completionDetails"), counts.pop("assertions", None)
    text = f"{compact(counts)[:-1]},"
    text += _members({"completionDetails": details}) if any(details.values()) else words.no_details
    return f'{text},"assertions":{_spent_text(judges, words)}}}' if judges else f"{text}}}"


def _spent_text(spent: Mapping[str, Any], words: Phrases) -> str:
    return words.no_counts if spent is NO_COUNTS else _counts_text(spent, words)


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


def _metadata_text(row: Row, words: Phrases) -> str:
    """Return the metadata of the test, with the facts that only trioeval has."""
    given = {name: fact for name, fact in row.step.test.metadata.items() if name != _OWN}
    own = compact(_own(row))
    if row.calls == 1 and row.wait_ms == 0:
        own = own.replace(IN_FULL.at_once, words.at_once, 1)  # the first one: details follow
    if row.graded:
        graded = [verdict_text(part, _NO_TEXTS, words) for part in components(row.graded)]
        own = f'{own[:-1]},"componentResults":[{",".join(graded)}]}}'
    before = f"{_members(shallow(given))}," if given else ""
    return f'{{{before}"{_OWN}":{own}}}'


def _own(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        "outcome": row.outcome,
        "lane": row.lane,
        "attempts": row.calls,
        "waitMs": row.wait_ms,
    }
    if row.waits and (waits := {why: s for why, s in row.waits.items() if s >= _SHORTEST}):
        found["waits"] = waits
    if (first_token_ms := row.first_token_ms) is not None:
        found["firstTokenMs"] = first_token_ms
    if row.failure is not None:
        found["errorKind"] = row.failure.kind
        if row.failure.finish_reason is not None:
            found["finishReason"] = row.failure.finish_reason
        if (excerpt := row.body_excerpt) is not None:
            found["bodyExcerpt"] = excerpt
    if row.spent.cost is not None:
        found["gradingCost"] = row.spent.cost
    if row.details:
        found["gradingError"] = shallow(dict(row.details))
    return found


def verdict_text(
    verdict: Verdict, by_id: Mapping[int, str] = _NO_TEXTS, words: Phrases = IN_FULL
) -> str:
    """Return a verdict as JSON text; that of a row includes its parts.

    Args:
        verdict: The verdict.
        by_id: The texts of assertions, by the `id` of each.
        words: The spelling of its phrases.
    """
    text = f"{{{_judged_members(verdict, words)},"
    if not verdict.named_scores and verdict.spent is NOTHING_SPENT:
        text += words.nothing_spent
    else:
        spent = _spent_text(spent_json(verdict.spent), words)
        text += f'"namedScores":{compact(dict(verdict.named_scores))},"tokensUsed":{spent}'
    if verdict.named_score_weights:
        text += f',"namedScoreWeights":{compact(dict(verdict.named_score_weights))}'
    metadata = verdict.metadata
    if verdict.spent.judges:
        metadata = {**metadata, "graders": list(verdict.spent.judges)}
    assertion = verdict.assertion
    if assertion is None:
        parts = [verdict_text(part, by_id, words) for part in components(verdict.parts)]
        text += f',"componentResults":[{",".join(parts)}]'
    elif assertion.type == SET:  # readers of promptfoo's files do not know this type
        metadata = {**metadata, "assertionSet": _set_json(assertion)}
    else:
        text += f',"assertion":{by_id.get(id(assertion)) or compact(assertion_json(assertion))}'
        if RENDERED in metadata and _is_webhook(assertion):
            metadata = {**metadata, RENDERED: redacted_judges(metadata[RENDERED])}
    return f'{text},"metadata":{compact(shallow(dict(metadata)))}}}' if metadata else f"{text}}}"


def _judged_members(verdict: Verdict, words: Phrases) -> str:
    if verdict.passed and verdict.score == 1 and type(verdict.score) is float:
        if verdict.reason == ALL_PASSED:
            return words.all_passed
        return f'{words.passed},"reason":{compact(verdict.reason)}'
    return _members({"pass": verdict.passed, "score": verdict.score, "reason": verdict.reason})


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
    if assertion.threshold is not None:
        found["threshold"] = assertion.threshold
    if assertion.weight != 1:
        found["weight"] = assertion.weight
    if assertion.metric is not None:
        found["metric"] = assertion.metric
    if assertion.transform is not None:
        found["transform"] = assertion.transform
    if assertion.context_transform is not None:
        found["contextTransform"] = assertion.context_transform
    if assertion.config:
        found["config"] = redacted(shallow(assertion.config))
    return found


def _set_json(assertion: Assertion) -> dict[str, Any]:
    """Return the definition of a set."""
    data = assertion_json(assertion)
    found: dict[str, Any] = {"type": SET, "assertionCount": len(assertion.assertions)}
    return found | {name: data[name] for name in ("metric", "threshold", "weight") if name in data}
