"""What the page of one row tells: as sections of text and tables, in their order. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.grading import output_text
from trioeval.report.formats.json import indented
from trioeval.report.head import agent_lines, agent_of
from trioeval.report.records import name_of_test, output_of, own_of, shown_of, status_of
from trioeval.run import Status
from trioeval.store import StoredCall
from trioeval.text import score_text
from trioeval.web.lane_cards import wait_word
from trioeval.web.pages import count_text, money_text, seconds_text


@attrs.frozen(kw_only=True)
class Section:
    """A part of the page: a text, a table, or a text that is opened on demand."""

    title: str
    text: str | None = None
    table: Sequence[Sequence[str]] = ()
    """Lines; the first holds the headings."""
    folded: bool = False


@attrs.frozen(kw_only=True)
class RowSummary:
    """A row on one line."""

    name: str
    provider: str
    prompt: str
    status: str
    shown: str
    facts: Sequence[str]
    score: str


def summary_of(record: Mapping[str, Any]) -> RowSummary:
    """A row in a few words, all of them foreign."""
    status, graded, own = status_of(record), record["gradingResult"], own_of(record)
    facts = [] if record["latencyMs"] is None else [seconds_text(record["latencyMs"] / 1000)]
    facts += [f"{count_text(total)} tokens"] if (total := record["tokenUsage"]["total"]) else []
    facts += [money_text(record["cost"])] if record["cost"] else []
    facts += [] if own["outcome"] in {"done", "failed"} else [own["outcome"].replace("_", " ")]
    shown = shown_of(record)
    return RowSummary(
        name=name_of_test(record),
        provider=record["provider"]["label"] or record["provider"]["id"],
        prompt=record["prompt"]["label"],
        status=status.value,
        shown="" if shown is None else output_text(shown),
        facts=facts,
        score="" if graded is None or not status.has_verdict else score_text(record["score"]),
    )


def sections_of(record: Mapping[str, Any], calls: Sequence[StoredCall]) -> Iterator[Section]:
    """All that is known of a row."""
    if record["vars"]:
        yield Section(title="Variables", text=indented(record["vars"]))
    yield from _text("Prompt", record["prompt"]["raw"])
    response, own = record["response"], own_of(record)
    if response is not None:
        yield from _text(_reply_title(response), output_of(record))
        yield from _text("Reply before transforms", response.get("raw"), folded=True)
    if not status_of(record).has_verdict:
        yield from _text("Error", record["error"])
        yield from _text("What the provider sent", own.get("bodyExcerpt"))
    yield from _verdict(record)
    if (agent := agent_of(record)) is not None:
        yield Section(title="Agent", text="\n".join(agent_lines(agent)))
    if (question := record.get("question")) is not None:
        yield Section(title="Question", text=indented(question), folded=True)
    yield from _waits(own)
    yield from _calls(calls)
    yield Section(title="The record as JSON", text=indented(record), folded=True)


def _text(title: str, value: Any, *, folded: bool = False) -> Iterator[Section]:
    if value is not None and value != "":
        yield Section(title=title, text=output_text(value), folded=folded)


def _reply_title(response: Mapping[str, Any]) -> str:
    facts = ["from the cache"] if response["cached"] else []
    facts += ["a refusal"] if response["isRefusal"] else []
    facts += [f"ended by {reason}"] if (reason := response["finishReason"]) is not None else []
    return f"Reply ({', '.join(facts)})" if facts else "Reply"


def _verdict(record: Mapping[str, Any]) -> Iterator[Section]:
    graded = record["gradingResult"]
    parts = (graded or own_of(record)).get("componentResults", [])
    if graded is None and not parts:
        return
    table = [("", "score", "assertion", "reason")]
    for part in parts:
        said = part.get("assertion") or part.get("metadata", {}).get("assertionSet") or {}
        value = f" {output_text(said['value'])}" if "value" in said else ""
        metric = f" as {said['metric']}" if said.get("metric") is not None else ""
        status = Status.PASS if part["pass"] else Status.FAIL
        assertion = f"{said.get('type', '')}{value}{metric}"
        table.append((status.name, score_text(part["score"]), assertion, str(part["reason"])))
    yield Section(
        title="Verdict" if graded is not None else "What was judged before it ended",
        text=None if graded is None else str(graded["reason"]),
        table=table if parts else (),
    )


def _waits(own: Mapping[str, Any]) -> Iterator[Section]:
    waits = sorted(own.get("waits", {}).items(), key=lambda found: -found[1])
    if waits:
        lines = [("for", "time"), *((wait_word(why), seconds_text(took)) for why, took in waits)]
        yield Section(title="Waited", table=lines)
    elif own["waitMs"]:
        yield Section(title="Waited", text=seconds_text(own["waitMs"] / 1000))


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
        asked = f"{call.prompt}\n\n" if call.role != "provider" else ""
        said = None if call.reply is None else call.reply.get("output")
        if asked:
            reply = "" if said is None else output_text(said)
            yield Section(
                title=f"Call {number}: asked and replied", text=asked + reply, folded=True
            )


def _ended(call: StoredCall) -> str:
    if call.error is not None:
        return f"{call.error.get('kind', '')}: {call.error.get('message', '')}"
    return "reply from the cache" if call.cached else "reply"
