"""The page of one row as sections of text and tables. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from trioeval.grading import output_text
from trioeval.providers.base import Media
from trioeval.report.formats.json import indented
from trioeval.report.media import media_of
from trioeval.report.records import EMPTY_REPLY, RowRecord, agent_lines
from trioeval.report.stored import StoredCall
from trioeval.run import Status
from trioeval.text import score_text
from trioeval.web.lane_cards import wait_word
from trioeval.web.pages import count_text, money_text, seconds_text


@attrs.frozen(kw_only=True)
class Section:
    """A part of the page: a text, a table, or a folded text."""

    title: str
    text: str | None = None
    table: Sequence[Sequence[str]] = ()
    """Lines; the first one has the headings."""
    folded: bool = False
    media: Sequence[Media] = ()


@attrs.frozen(kw_only=True)
class RowSummary:
    """A row on one line."""

    name: str
    provider: str
    prompt: str
    status: str
    label: str
    """The status as pages show it."""
    shown: str
    facts: Sequence[str]
    score: str


def summary_of(record: RowRecord) -> RowSummary:
    """Return the summary of a row; its texts are foreign."""
    facts = [] if record.latency_ms is None else [seconds_text(record.latency_ms / 1000)]
    unit = "token" if record.tokens == 1 else "tokens"
    facts += [f"{count_text(record.tokens)} {unit}"] if record.tokens else []
    facts += [money_text(record.cost)] if record.cost else []
    facts += [] if record.outcome in {"done", "failed"} else [record.outcome.replace("_", " ")]
    is_judged = record.verdict is not None and record.status.is_graded
    return RowSummary(
        name=record.name,
        provider=record.provider,
        prompt=record.prompt_label,
        status=record.status.value,
        label=record.status.label,
        shown="" if record.shown is None else output_text(record.shown),
        facts=facts,
        score=score_text(record.score) if is_judged else "",
    )


def sections_of(record: RowRecord, calls: Sequence[StoredCall]) -> Iterator[Section]:
    """Yield all facts about a row."""
    if record.vars:
        yield Section(title="Variables", text=indented(record.vars))
    yield from _text("Prompt", record.prompt)
    if record.response is not None:
        facts = ", ".join(record.reply_facts)
        output = EMPTY_REPLY if record.output == "" else record.output
        yield from _text(f"Reply ({facts})" if facts else "Reply", output)
        if media := media_of(record):
            yield Section(title="Media", media=media)
        yield from _text("Tool calls", record.tool_calls)
        yield from _text("Reasoning", record.response.get("reasoning"), folded=True)
        yield from _text("Reply before transforms", record.response.get("raw"), folded=True)
    if not record.status.has_verdict:
        yield from _text("Error", record.error)
        yield from _text("Response of the provider", record.own.get("bodyExcerpt"))
    yield from _verdict(record)
    if record.agent is not None:
        yield Section(title="Agent", text="\n".join(agent_lines(record.agent)))
    if record.question:
        yield Section(title="Question", text=indented(record.question), folded=True)
    yield from _waits(record)
    yield from _calls(calls)
    yield Section(title="The record as JSON", text=indented(record.json), folded=True)


def _text(title: str, value: Any, *, folded: bool = False) -> Iterator[Section]:
    if value is not None and value != "":
        yield Section(title=title, text=output_text(value), folded=folded)


def _verdict(record: RowRecord) -> Iterator[Section]:
    table = [
        (
            (Status.PASS if part.passed else Status.FAIL).name,
            score_text(part.score),
            part.text,
            part.reason,
        )
        for part in record.parts
    ]
    if table:
        table.insert(0, ("", "score", "assertion", "reason"))
    if record.verdict is not None:
        yield Section(title="Verdict", text=str(record.reason), table=table)
    elif table:
        yield Section(title="Assertions graded before the error", table=table)


def _waits(record: RowRecord) -> Iterator[Section]:
    waits = [(wait_word(why), seconds_text(took)) for why, took in record.waits]
    if waits:
        yield Section(title="Waited", table=[("for", "time"), *waits])
    elif record.wait_ms:
        yield Section(title="Waited", text=seconds_text(record.wait_ms / 1000))


def _calls(calls: Sequence[StoredCall]) -> Iterator[Section]:
    if not calls:
        return
    table = [("#", "execution", "asked", "as", "time", "tokens", "cost", "ended")]
    table += [
        (
            str(number),
            str(call.execution),
            call.provider,
            call.role,
            "" if call.latency_ms is None else seconds_text(call.latency_ms / 1000),
            "" if call.tokens is None else count_text(call.tokens),
            "" if not call.cost else money_text(call.cost),
            _ended(call),
        )
        for number, call in enumerate(calls, 1)
    ]
    yield Section(title="Calls", table=table)
    for number, call in enumerate(calls, 1):
        prompt = f"{call.prompt}\n\n" if call.role != "provider" else ""
        output = None if call.reply is None else call.reply.get("output")
        if prompt:
            reply = "" if output is None else output_text(output)
            yield Section(
                title=f"Call {number}: asked and replied", text=prompt + reply, folded=True
            )


def _ended(call: StoredCall) -> str:
    if call.error is not None:
        return f"{call.error.get('kind', '')}: {call.error.get('message', '')}"
    return "reply from the cache" if call.cached else "reply"
