"""What is told of calls, rows and verdicts, by name; what is not known is None. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trioeval.errors import ProviderError
from trioeval.grading import Verdict
from trioeval.providers import Reply
from trioeval.tasks.agents.recorded import end_of
from trioeval.tasks.journal import CallRecord
from trioeval.tasks.rows import Row
from trioeval.telemetry import names
from trioeval.telemetry.asked import Operation
from trioeval.usage import Usage


def asked(call: CallRecord, operation: Operation) -> Mapping[str, Any]:
    """What is known of a call when it is made."""
    who = call.asked
    return {
        names.OPERATION: operation.name,
        names.PROVIDER: operation.provider,
        names.REQUEST_MODEL: operation.model,
        names.AGENT: operation.agent,
        names.SERVER: None if who is None else who.host,
        names.PORT: None if who is None or who.host is None else who.port,
        names.LABEL: call.provider,
        names.ROLE: call.key.role,
        names.TASK: call.key.task,
        names.ROW: call.key.index,
        names.CACHED: call.cached or None,
    }


def answered(call: CallRecord) -> Mapping[str, Any]:
    """What is known of a call when it is over, but for how it failed."""
    reply = call.answer
    if isinstance(reply, ProviderError):
        return {
            names.STATUS_CODE: reply.status,
            **_used(reply.usage, is_cached=False),
            names.COST: reply.money,
        }
    about = reply.metadata
    return {
        names.RESPONSE_MODEL: _text(about.get("model")),
        names.RESPONSE_ID: response_id(reply),
        names.FINISH_REASONS: None if reply.finish_reason is None else [reply.finish_reason],
        names.FIRST_CHUNK: reply.first_token,
        **_used(reply.usage, is_cached=call.cached),
        names.COST: reply.cost,
    }


def _used(usage: Usage, *, is_cached: bool) -> Mapping[str, Any]:
    return {
        names.INPUT_TOKENS: usage.prompt,
        names.OUTPUT_TOKENS: usage.completion,
        # Those of a reply from our own cache were read from that, not from the provider's.
        names.CACHE_READ: None if is_cached else usage.cached,
        names.CACHE_CREATION: usage.cache_creation,
        names.REASONING: usage.reasoning,
    }


def failure(call: CallRecord) -> str | None:
    """In a word how a call failed, or an attempt of an agent; None if it did not."""
    if isinstance(call.answer, ProviderError):
        return call.answer.kind
    end = end_of(call.answer)
    return None if end is None or end.failure is None else end.failure.kind


def row_told(row: Row, *, is_recalled: bool) -> Mapping[str, Any]:
    """What is known of a row that is over, but for its number and how it failed."""
    waits = {f"{names.WAIT}.{why}": seconds for why, seconds in row.waits.items()}
    return {
        names.STATUS: row.status.value,
        names.OUTCOME: row.outcome,
        names.SCORE: row.score,
        names.LANE: row.lane,
        names.LABEL: row.label,
        names.CALLS: row.calls,
        names.TEST: row.step.test_idx,
        names.TEST_NAME: row.step.test.description,
        names.PROMPT: row.step.prompt_idx,
        names.CACHED: row.cached or None,
        names.RECALLED: is_recalled or None,
        **waits,
    }


def judged(row: Row) -> Iterator[Verdict]:
    """The verdicts that were not made of others."""
    if row.verdict is None:
        yield from _leaves(row.graded)
    elif row.verdict.parts:
        yield from _leaves(row.verdict.parts)
    elif row.question is not None:
        yield row.verdict


def response_id(reply: Reply | None) -> str | None:
    """What the provider calls its reply."""
    return None if reply is None else _text(reply.metadata.get("id"))


def _leaves(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    for verdict in verdicts:
        if verdict.parts:
            yield from _leaves(verdict.parts)
        else:
            yield verdict


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
