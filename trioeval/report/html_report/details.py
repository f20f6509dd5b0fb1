"""All that a page tells of one row when it is opened.

A row is a few blocks, each with a title and a shape that the script of the page knows:
`["text", title, text]`, `["pairs", title, [[name, text], …]]` and
`["checks", title, [[passed, score, name, reason, facts, compared], …]]`. A check that failed may say what
was expected as `compared`: `[whether it is JSON, expected]`; the page sets it against the output.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.grading import output_text
from trioeval.grading.grade import RENDERED
from trioeval.report.formats.json import indented
from trioeval.report.head import agent_lines, agent_of
from trioeval.report.html_report.inert_text import plain
from trioeval.report.records import output_of, own_of, shown_of, status_of
from trioeval.report.row_view import WAITS_FOR
from trioeval.run import Status
from trioeval.text import score_text

LONG = 100_000
"""Characters of a text that are shown."""
SHORT = 1500
"""Of the same in a page that has grown large."""
_REASON = 4000
_NAME = 300
_PARTS = 500  # assertions of a row that are told

_COMPARED = frozenset({"equals", "similar", "levenshtein", "rouge-n", "bleu", "gleu", "meteor"})
"""Types of assertions whose value is what the output should have been."""

Block = list[Any]


def details_json(record: Mapping[str, Any], most: int = LONG) -> dict[str, Any]:
    """A row as the page shows it when it is opened.

    Args:
        record: As `row_json` made it, without what must not be shown.
        most: Characters of a text.
    """
    output = output_of(record)
    return {
        "facts": [*_facts(record)],
        "output": None if output is None else plain(_shown(output), most),
        "blocks": [*_blocks(record, most)],
    }


def _facts(record: Mapping[str, Any]) -> Iterator[str]:
    own, response = own_of(record), record["response"]
    if record["gradingResult"]:
        yield f"score {score_text(record['score'])}"
    agent = agent_of(record)
    gave_up = agent is not None and agent.gave_up and own["outcome"] == "done"
    yield "gave up" if gave_up else plain(own["outcome"], _NAME).replace("_", " ")
    if record["latencyMs"] is not None:
        yield f"{record['latencyMs']:.0f} ms"
    if total := record["tokenUsage"]["total"]:
        yield f"{total} tokens"
    if record["cost"]:
        yield f"{record['cost']:.6f} US dollars"
    if own["attempts"] != 1:
        yield f"{plain(own['attempts'], _NAME)} calls"
    if response is not None:
        if response["cached"]:
            yield "from the cache"
        if response["isRefusal"]:
            yield "a refusal"
        if response["finishReason"] is not None:
            yield f"ended by {plain(response['finishReason'], _NAME)}"


def _blocks(record: Mapping[str, Any], most: int) -> Iterator[Block]:
    own = own_of(record)
    if not status_of(record).has_verdict:
        yield from _text("error", record["error"], most)
        yield from _text("what the provider sent", own.get("bodyExcerpt"), most)
    yield from _question(record, most)
    yield from _agent(record, most)
    yield from _checks(record)
    if record["vars"]:
        pairs = [
            [plain(name, _NAME), plain(_shown(value), most)]
            for name, value in record["vars"].items()
        ]
        yield ["pairs", "variables", pairs]
    yield from _text("prompt", record["prompt"]["raw"], most)
    response = record["response"]
    if response is not None and "raw" in response:
        yield from _text("reply before transforms", _shown(response["raw"]), most)
    waits = sorted(own.get("waits", {}).items(), key=lambda found: -found[1])
    if waits:
        told = [[f"{s:.3f} s", WAITS_FOR.get(why, plain(why, _NAME))] for why, s in waits]
        yield ["pairs", "waited", told]


def _text(title: str, text: object, most: int) -> Iterator[Block]:
    if text is not None and text != "":
        yield ["text", title, plain(text, most)]


def _question(record: Mapping[str, Any], most: int) -> Iterator[Block]:
    found = record.get("question")
    if found is None:
        return
    pairs = [["ended", str(found["outcome"]).replace("_", " ")]]
    if status_of(record).has_verdict:
        pairs.append(["answer", output_text(shown_of(record) or "")])
    if right := found.get("correctAnswers"):
        pairs.append(["right", ", ".join(map(str, right))])
    yield ["pairs", "question", [[name, plain(text, most)] for name, text in pairs]]
    events = found.get("events") or []
    begin = events[0]["at"] if events else 0
    lines = (f"{event['at'] - begin:9.3f} s  {_event(event)}" for event in events)
    yield from _text("events", "\n".join(lines), most)


def _event(event: Mapping[str, Any]) -> str:
    details = {key: part for key, part in event.items() if key not in {"sequence", "at", "event"}}
    more = ", ".join(f"{key} {output_text(part)}" for key, part in details.items())
    return plain(f"{event['event']}{f' ({more})' if more else ''}", _NAME)


def _agent(record: Mapping[str, Any], most: int) -> Iterator[Block]:
    agent = agent_of(record)
    if agent is not None:
        count = len(agent.attempts)
        title = "1 attempt" if count == 1 else f"{count} attempts"
        yield from _text(title, "\n".join(agent_lines(agent)), most)


def _checks(record: Mapping[str, Any]) -> Iterator[Block]:
    graded = record["gradingResult"]
    parts = (graded or own_of(record)).get("componentResults", [])
    if graded is not None and (not parts or status_of(record) is not Status.PASS):
        yield from _text("reason", graded["reason"], _REASON)
    if parts:
        title = "assertions" if graded is not None else "judged before it ended"
        yield ["checks", title, [_check(part) for part in parts[:_PARTS]]]
    if len(parts) > _PARTS:
        yield from _text("and more", f"{len(parts) - _PARTS} further assertions", _NAME)


def _check(part: Mapping[str, Any]) -> list[Any]:
    metadata = part.get("metadata", {})
    said = part.get("assertion") or metadata.get("assertionSet") or {}
    value = metadata.get(RENDERED, said.get("value"))
    name = plain(said.get("type", ""), _NAME)
    if value is not None:
        name += f" {plain(output_text(value), _NAME)}"
    facts = [f"weight {said['weight']}"] if said.get("weight", 1) != 1 else []
    facts += [f"metric {said['metric']}"] if said.get("metric") is not None else []
    facts += [f"threshold {said['threshold']}"] if said.get("threshold") is not None else []
    if judges := metadata.get("graders", ()):
        told = judges if isinstance(judges, list | tuple) else [judges]
        facts.append(f"judged by {', '.join(map(str, told))}")
    passed = bool(part["pass"])
    return [
        passed,
        score_text(part["score"]),
        name,
        plain(part["reason"], _REASON),
        plain(", ".join(facts), _NAME),
        None if passed else _compared(str(said.get("type", "")), value),
    ]


def _compared(kind: str, value: Any) -> Sequence[bool | str] | None:
    """What the output is set against."""
    if kind not in _COMPARED or value is None or value == "":
        return None
    if isinstance(value, str):
        return [False, plain(value, LONG)]
    return [True, plain(indented(value), LONG)]


def _shown(output: Any) -> str:
    return output if isinstance(output, str) else indented(output)
