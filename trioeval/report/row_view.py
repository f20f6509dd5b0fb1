"""All facts about one row, for a terminal.

The prompt and the reply, the verdict and its reasons, the calls and the waits. Foreign text is inert, and
very long text is cut.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trioeval.report.counts import money
from trioeval.report.formats.json import indented
from trioeval.report.records import EMPTY_REPLY, RowRecord, agent_lines, event_text
from trioeval.report.stored import StoredCall
from trioeval.report.tables import STATUS_STYLES
from trioeval.run import Status
from trioeval.text import counted, score_text
from trioeval.text_safety import escape_control_characters, inert_lines

_LONG = 20_000  # characters of a prompt or a reply
_NAME = 120  # characters of a name, or of a reason on one line

WAITS_FOR: Mapping[str, str] = {
    "gate": "for a serial row, which runs alone",
    "window": "for earlier rows, which are reported first",
    "turn": "for earlier calls of the lane",
    "paused": "while the lane was paused",
    "blocked": "because the provider requested a pause",
    "pace": "for the lane's rate of requests",
    "delay": "for the minimum gap between two calls of the lane",
    "tokens": "for the lane's rate of tokens",
    "slot": "for a free slot of the lane",
    "budget": "for the part of the budget reserved by calls in flight",
    "cap": "for a free slot under the limit of all lanes",
    "shared_limit": "for a shared limit",
    "backoff": "before a failed call was repeated",
}
"""The words for each `WaitReason` of a row."""


def row_view(
    record: RowRecord, calls: Sequence[StoredCall] = (), near: Path | None = None
) -> RenderableType:
    """Return a row for a terminal.

    Args:
        record: The record with all of its parts.
        calls: The calls of the row, in order.
        near: The folder to which paths are relative if they are inside.
    """
    return Group(*_sections(record, calls, near))


def calls_view(calls: Sequence[StoredCall]) -> RenderableType:
    """Return calls that were not made for a row: prompts, replies, and their cost."""
    parts: list[RenderableType] = []
    for number, call in enumerate(calls, 1):
        parts += _block(
            f"call {number}: {escape_control_characters(call.provider, _NAME)}: prompt", call.prompt
        )
        if call.reply is not None:
            parts += _block("reply of the call", _shown(call.reply.get("output")))
    return Group(*parts, _title("calls"), _calls(calls))


def _reply(record: RowRecord, response: Mapping[str, Any]) -> Iterator[RenderableType]:
    facts = escape_control_characters(", ".join(record.reply_facts), _NAME * 2)
    shown = _shown(record.output) or EMPTY_REPLY
    yield from _block(f"reply ({facts})" if facts else "reply", shown)
    yield from _block("tool calls", record.tool_calls)
    if "reasoning" in response:
        yield from _block("reasoning", _shown(response["reasoning"]))
    if "raw" in response:
        yield from _block("reply before transforms", _shown(response["raw"]))


def _sections(
    record: RowRecord, calls: Sequence[StoredCall], near: Path | None
) -> Iterator[RenderableType]:
    # Most who look at a row ask why it failed: status and reason come first.
    yield _heading(record)
    if not record.status.has_verdict:
        yield from _block("error", record.error)
        yield from _block("what the provider sent", record.own.get("bodyExcerpt"))
    yield from _verdict(record)
    if record.vars:
        yield from _block("variables", indented(record.vars))
    yield from _block("prompt", record.prompt)
    if record.response is not None:
        yield from _reply(record, record.response)
    yield from _question(record)
    yield from _agent(record, near)
    for call in calls:
        if call.role == "grader":
            yield from _block(
                f"{escape_control_characters(call.provider, _NAME)}: prompt of the judge",
                call.prompt,
            )
            if call.reply is not None:
                yield from _block("reply of the call", _shown(call.reply.get("output")))
    if calls:
        yield _title("calls")
        yield _calls(calls)
    yield from _waits(record)


def _heading(record: RowRecord) -> Text:
    task = "" if record.task is None else f"task {escape_control_characters(record.task, _NAME)}, "
    text = Text(f"{task}row {record.number} ({escape_control_characters(record.name, _NAME)})\n")
    text.append(f"{escape_control_characters(record.provider, _NAME)} | ", style="dim")
    text.append(escape_control_characters(record.prompt_label, _NAME) + "\n", style="dim")
    text.append(record.status.label, style=STATUS_STYLES[record.status])
    facts = (
        [f"score {score_text(record.score)}"] if record.status.is_graded and record.verdict else []
    )
    facts.append(record.ending)
    facts += [] if record.latency_ms is None else [f"{record.latency_ms:.0f} ms"]
    facts += ["from the cache"] if record.is_from_cache else []
    facts += [counted(record.tokens, "token")] if record.tokens else []
    facts += [money(record.cost)] if record.cost else []
    facts.append(counted(record.attempts, "call"))
    return text.append(", ".join(["", *facts])[1:])


def _verdict(record: RowRecord) -> Iterator[RenderableType]:
    parts = record.parts
    if record.verdict is not None:
        yield _title(f"verdict: {record.explained(_NAME * 4)}")
    elif parts:
        yield _title("assertions graded before the error")
    if not parts:
        return
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("", "score", "weight", "assertion", "reason", "judges"):
        table.add_column(name, overflow="fold")
    for part in parts:
        status = Status.PASS if part.passed else Status.FAIL
        table.add_row(
            Text(status.name, style=STATUS_STYLES[status]),
            score_text(part.score),
            escape_control_characters(part.assertion.get("weight", 1), _NAME),
            Text(escape_control_characters(part.text, _NAME)),
            Text(escape_control_characters(part.reason, _NAME * 4)),
            Text(escape_control_characters(part.judges, _NAME)),
        )
    yield table


def _question(record: RowRecord) -> Iterator[RenderableType]:
    """Yield the result of a question, and its events."""
    found = record.question
    if not found:
        return
    yield _title(f"question: {str(found['outcome']).replace('_', ' ')}")
    if found.get("correctAnswers"):
        yield Text(
            "  right: "
            + escape_control_characters(", ".join(map(str, found["correctAnswers"])), _NAME * 4)
        )
    if "agentAnswer" in found:
        yield Text("  answer: " + escape_control_characters(found["agentAnswer"], _NAME * 4))
    events = found.get("events") or []
    begin = events[0]["at"] if events else 0
    lines = (
        f"  {event['at'] - begin:9.3f} s  {escape_control_characters(event_text(event), _NAME * 2)}"
        for event in events
    )
    yield Text("\n".join(lines))


def _agent(record: RowRecord, near: Path | None) -> Iterator[RenderableType]:
    """Yield the attempts of an agent."""
    if record.agent is not None:
        first, *others = agent_lines(record.agent, near)
        yield _title(f"agent: {first}")
        if others:
            yield Text("\n".join(f"  {line}" for line in others))


def _calls(calls: Sequence[StoredCall]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("#", "execution", "asked", "as", "ms", "tokens", "cost", "ended"):
        table.add_column(name, overflow="fold")
    for number, call in enumerate(calls, 1):
        table.add_row(
            str(number),
            str(call.execution),
            Text(escape_control_characters(call.provider, _NAME)),
            escape_control_characters(_role(call), _NAME),
            "" if call.latency_ms is None else f"{call.latency_ms:.0f}",
            "" if call.tokens is None else str(call.tokens),
            "" if call.cost is None else money(call.cost),
            Text(_ended(call)),
        )
    return table


def _attempt(call: StoredCall) -> Mapping[str, Any] | None:
    """Return the facts of a whole attempt of an agent; None if the entry is a single call."""
    metadata = None if call.reply is None else call.reply.get("metadata")
    found = metadata.get("attempt") if isinstance(metadata, Mapping) else None
    return found if call.role == "attempt" and isinstance(found, Mapping) else None


def _role(call: StoredCall) -> str:
    """Return the role of a call: the calls of a model that is an agent belong to its attempts."""
    return "agent" if call.role == "attempt" and _attempt(call) is None else call.role


def _ended(call: StoredCall) -> str:
    if call.error is not None:
        return escape_control_characters(
            f"{call.error.get('kind', '')}: {call.error.get('message', '')}", _NAME
        )
    if (attempt := _attempt(call)) is not None:
        failure = attempt.get("failure")
        kind = failure.get("kind") if isinstance(failure, Mapping) else None
        return (
            "has ended"
            if failure is None
            else escape_control_characters(f"has failed: {kind}", _NAME)
        )
    return "reply from the cache" if call.cached else "reply"


def _waits(record: RowRecord) -> Iterator[RenderableType]:
    lines = [
        f"  {seconds:9.3f} s  {WAITS_FOR.get(why, escape_control_characters(why, _NAME))}"
        for why, seconds in record.waits
    ]
    if lines:
        yield _title("waited")
        yield Text("\n".join(lines))
    elif record.wait_ms:
        yield _title(f"waited {record.wait_ms / 1000:.3f} s")


def _block(title: str, text: object) -> Iterator[RenderableType]:
    if text is None or text == "":
        return
    yield _title(title)
    yield Text("  " + inert_lines(text, _LONG).replace("\n", "\n  "))


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _shown(output: Any) -> str:
    return output if isinstance(output, str) else indented(output)
