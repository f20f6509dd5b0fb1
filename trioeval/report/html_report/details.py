"""The details of one row, which a page shows when the row is opened.

A row is a few blocks, each with a title and a form that the script of the page can draw:
`["text", title, text]`, `["pairs", title, [[name, text], …]]`, `["media", title, [[name, data], …]]` and
`["checks", title, [[passed, score, name, reason, facts, compared], …]]`. A failed check may have the expected
value as `compared`: `[whether it is JSON, expected]`; the page shows its differences to the output.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trioeval.grading import output_text
from trioeval.grading.grade import RENDERED
from trioeval.providers.base import Media
from trioeval.report.counts import money
from trioeval.report.formats.json import indented
from trioeval.report.html_report.inert_text import plain
from trioeval.report.media import media_of
from trioeval.report.records import PartRecord, RowRecord, agent_lines, event_text
from trioeval.report.row_view import WAITS_FOR
from trioeval.text import counted, score_text

LONG = 100_000
"""Characters of a text that are shown."""
SHORT = 1500
"""Characters of a text that are shown in a large page."""
_REASON = 4000
_NAME = 300
_PARTS = 500  # assertions of a row that are shown

_COMPARED = frozenset({"equals", "similar", "levenshtein", "rouge-n", "bleu", "gleu", "meteor"})
"""Types of assertions whose value is the expected output."""

_MEDIA = 20  # media of a row that are shown

Block = list[Any]


def not_embedded(_media: Media) -> None:
    """Return None: a page without the bytes of media shows their names."""


def details_json(
    record: RowRecord, most: int = LONG, embed: Callable[[Media], str | None] = not_embedded
) -> dict[str, Any]:
    """Return the details of a row.

    Args:
        record: The row.
        most: Characters of a text that are shown.
        embed: Returns an image as a `data:` URI; None if the page shows only its name.
    """
    output = record.output
    return {
        "facts": [*_facts(record)],
        "output": None if output is None else plain(_shown(output), most),
        "blocks": [*_media(record, embed), *_blocks(record, most)],
    }


def _media(record: RowRecord, embed: Callable[[Media], str | None]) -> Iterator[Block]:
    if media := media_of(record):
        shown = [
            [f"{one.file}: {one.mime_type}, {counted(one.size, 'byte')}", embed(one)]
            for one in media[:_MEDIA]
        ]
        yield ["media", "media", shown]


def _facts(record: RowRecord) -> Iterator[str]:
    if record.verdict:
        yield f"score {score_text(record.score)}"
    yield plain(record.ending, _NAME)
    if record.latency_ms is not None:
        yield f"{record.latency_ms:.0f} ms"
    if record.tokens:
        yield counted(record.tokens, "token")
    if record.cost:
        yield money(record.cost)
    if record.attempts != 1:
        yield f"{plain(record.attempts, _NAME)} calls"
    for fact in record.reply_facts:
        yield plain(fact, _NAME)


def _blocks(record: RowRecord, most: int) -> Iterator[Block]:
    if not record.status.has_verdict:
        yield from _text("error", record.error, most)
        yield from _text("response of the provider", record.own.get("bodyExcerpt"), most)
    yield from _question(record, most)
    yield from _agent(record, most)
    yield from _checks(record)
    if record.vars:
        pairs = [
            [plain(name, _NAME), plain(_shown(value), most)] for name, value in record.vars.items()
        ]
        yield ["pairs", "variables", pairs]
    yield from _text("prompt", record.prompt, most)
    yield from _text("tool calls", record.tool_calls, most)
    if record.response is not None and "reasoning" in record.response:
        yield from _text("reasoning", _shown(record.response["reasoning"]), most)
    if record.response is not None and "raw" in record.response:
        yield from _text("reply before transforms", _shown(record.response["raw"]), most)
    if waits := record.waits:
        listed = [[f"{s:.3f} s", WAITS_FOR.get(why, plain(why, _NAME))] for why, s in waits]
        yield ["pairs", "waited", listed]


def _text(title: str, text: object, most: int) -> Iterator[Block]:
    if text is not None and text != "":
        yield ["text", title, plain(text, most)]


def _question(record: RowRecord, most: int) -> Iterator[Block]:
    found = record.question
    if not found:
        return
    pairs = [["ended", str(found["outcome"]).replace("_", " ")]]
    if record.status.has_verdict:
        pairs.append(["answer", output_text(record.shown or "")])
    if right := found.get("correctAnswers"):
        pairs.append(["right", ", ".join(map(str, right))])
    yield ["pairs", "question", [[name, plain(text, most)] for name, text in pairs]]
    events = found.get("events") or []
    begin = events[0]["at"] if events else 0
    lines = (f"{event['at'] - begin:9.3f} s  {plain(event_text(event), _NAME)}" for event in events)
    yield from _text("events", "\n".join(lines), most)


def _agent(record: RowRecord, most: int) -> Iterator[Block]:
    if (agent := record.agent) is not None:
        count = len(agent.attempts)
        yield from _text(counted(count, "attempt"), "\n".join(agent_lines(agent)), most)


def _checks(record: RowRecord) -> Iterator[Block]:
    is_judged, parts = record.verdict is not None, record.parts
    if is_judged and (not parts or not record.status.is_success):
        yield from _text("reason", record.reason, _REASON)
    if parts:
        title = "assertions" if is_judged else "graded before the error"
        yield ["checks", title, [_check(part) for part in parts[:_PARTS]]]
    if len(parts) > _PARTS:
        yield from _text(
            "and more", counted(len(parts) - _PARTS, "more assertion", "more assertions"), _NAME
        )


def _check(part: PartRecord) -> list[Any]:
    assertion = part.assertion
    value = part.metadata.get(RENDERED, assertion.get("value"))
    name = plain(part.type, _NAME)
    if value is not None:
        name += f" {plain(output_text(value), _NAME)}"
    facts = [f"weight {assertion['weight']}"] if assertion.get("weight", 1) != 1 else []
    facts += [f"metric {assertion['metric']}"] if assertion.get("metric") is not None else []
    facts += (
        [f"threshold {assertion['threshold']}"] if assertion.get("threshold") is not None else []
    )
    facts += [f"judged by {part.judges}"] if part.judges else []
    return [
        part.passed,
        score_text(part.score),
        name,
        plain(part.reason, _REASON),
        plain(", ".join(facts), _NAME),
        None if part.passed else _compared(part.type, value),
    ]


def _compared(kind: str, value: Any) -> Sequence[bool | str] | None:
    """Return the expected value, to which the output is compared."""
    if kind not in _COMPARED or value is None or value == "":
        return None
    if isinstance(value, str):
        return [False, plain(value, LONG)]
    return [True, plain(indented(value), LONG)]


def _shown(output: Any) -> str:
    return output if isinstance(output, str) else indented(output)
