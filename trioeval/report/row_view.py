"""All that is known of one row, for a terminal.

What was asked and answered, why it is judged as it is, what its calls were and what it waited for.
Everything foreign is harmless text, however it came in; what is very long is cut.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trioeval.grading import output_text
from trioeval.report.formats.json import indented
from trioeval.report.head import agent_lines, agent_of
from trioeval.report.records import is_from_cache, name_of_test, output_of, own_of, status_of
from trioeval.report.tables import STATUS_STYLES
from trioeval.report.text import inert, inert_lines
from trioeval.run import Status
from trioeval.text import score_text

_LONG = 20_000  # characters of a prompt or a reply
_NAME = 120  # of a name or a reason on one line

WAITS_FOR: Mapping[str, str] = {
    "gate": "for a row that had to run alone",
    "window": "for earlier rows, which are told first",
    "turn": "for others of the lane that stood before it",
    "paused": "while the lane was paused",
    "blocked": "because the provider asked to wait",
    "pace": "for the lane's rate of requests",
    "delay": "for the least gap between two calls of the lane",
    "tokens": "for the lane's rate of tokens",
    "slot": "for a free slot of the lane",
    "budget": "for what calls in flight had reserved of the budget",
    "cap": "for a free slot among those of all lanes",
    "quota": "for a limit that others share",
    "backoff": "before a call that failed was made again",
}
"""What a row waited for: of each `Why`."""


class SeenCall(Protocol):
    """What is told of a call of the row."""

    @property
    def role(self) -> str:
        """`provider` for what is tested, `grader` for a judge."""
        ...

    @property
    def provider(self) -> str:
        """Who was asked, by name."""
        ...

    @property
    def execution(self) -> int:
        """Of the run, from 1."""
        ...

    @property
    def prompt(self) -> str:
        """What was asked."""
        ...

    @property
    def reply(self) -> Mapping[str, Any] | None:
        """JSON data with an `output`; None if the call failed."""
        ...

    @property
    def error(self) -> Mapping[str, Any] | None:
        """`kind`, `message` and what else is known of a failure."""
        ...

    @property
    def latency_ms(self) -> float | None:
        """Of this call alone."""
        ...

    @property
    def tokens(self) -> int | None:
        """Of this call."""
        ...

    @property
    def cost(self) -> float | None:
        """US dollars."""
        ...

    @property
    def cached(self) -> bool:
        """Whether it came from the cache."""
        ...


def row_view(
    record: Mapping[str, Any], calls: Sequence[SeenCall] = (), near: Path | None = None
) -> RenderableType:
    """A row as a terminal shows it.

    Args:
        record: As `row_json` made it.
        calls: Those that were made for it, in their order.
        near: The folder from which paths are shown that lie in there.
    """
    return Group(*_sections(record, calls, near))


def calls_view(calls: Sequence[SeenCall]) -> RenderableType:
    """Calls that were made for something else than a row: what was asked and answered, and what it took.

    Args:
        calls: They, in their order.
    """
    parts: list[RenderableType] = []
    for number, call in enumerate(calls, 1):
        parts += _block(f"call {number}: {inert(call.provider, _NAME)} was asked", call.prompt)
        if call.reply is not None:
            parts += _block("and replied", _shown(call.reply.get("output")))
    return Group(*parts, _title("calls"), _calls(calls))


def _sections(
    record: Mapping[str, Any], calls: Sequence[SeenCall], near: Path | None
) -> Iterator[RenderableType]:
    yield _heading(record)
    if record["vars"]:
        yield from _block("variables", indented(record["vars"]))
    yield from _block("prompt", record["prompt"]["raw"])
    response = record["response"]
    if response is not None:
        yield from _block(_reply_title(response), _shown(output_of(record)))
        if "raw" in response:
            yield from _block("reply before transforms", _shown(response["raw"]))
    if not status_of(record).has_verdict:
        yield from _block("error", record["error"])
        yield from _block("what the provider sent", own_of(record).get("bodyExcerpt"))
    yield from _question(record)
    yield from _agent(record, near)
    yield from _verdict(record)
    for call in calls:
        if call.role == "grader":
            yield from _block(f"{inert(call.provider, _NAME)} was asked to judge", call.prompt)
            if call.reply is not None:
                yield from _block("and replied", _shown(call.reply.get("output")))
    if calls:
        yield _title("calls")
        yield _calls(calls)
    yield from _waits(own_of(record))


def _heading(record: Mapping[str, Any]) -> Text:
    status, provider, own = status_of(record), record["provider"], own_of(record)
    task = "" if record.get("task") is None else f"task {inert(record['task'], _NAME)}, "
    text = Text(f"{task}test {record['testIdx']}, column {record['promptIdx']}: ")
    text.append(inert(name_of_test(record), _NAME) + "\n")
    text.append(f"{inert(provider['label'] or provider['id'], _NAME)} | ", style="dim")
    text.append(inert(record["prompt"]["label"], _NAME) + "\n", style="dim")
    text.append(status.label, style=STATUS_STYLES[status])
    facts = [f"score {score_text(record['score'])}"] if record["gradingResult"] else []
    agent = agent_of(record)
    gave_up = agent is not None and agent.gave_up and own["outcome"] == "done"
    facts.append("gave up" if gave_up else str(own["outcome"]).replace("_", " "))
    facts += [] if record["latencyMs"] is None else [f"{record['latencyMs']:.0f} ms"]
    facts += ["from the cache"] if is_from_cache(record) else []
    facts += [f"{total} tokens"] if (total := record["tokenUsage"]["total"]) else []
    facts += [f"{record['cost']:.6f} US dollars"] if record["cost"] else []
    facts.append(f"{own['attempts']} calls" if own["attempts"] != 1 else "1 call")
    return text.append(", ".join(["", *facts])[1:])


def _reply_title(response: Mapping[str, Any]) -> str:
    facts = ["from the cache"] if response["cached"] else []
    facts += ["a refusal"] if response["isRefusal"] else []
    if (reason := response["finishReason"]) is not None:
        facts.append(f"ended by {inert(reason, _NAME)}")
    return "reply" + (f" ({', '.join(facts)})" if facts else "")


def _verdict(record: Mapping[str, Any]) -> Iterator[RenderableType]:
    graded = record["gradingResult"]
    parts = (graded or own_of(record)).get("componentResults", [])
    if graded is None and not parts:
        return
    title = "verdict" if graded is not None else "what was judged before it ended"
    yield _title(title if graded is None else f"{title}: {inert(graded['reason'], _NAME * 4)}")
    if not parts:
        return
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("", "score", "weight", "assertion", "reason", "judges"):
        table.add_column(name, overflow="fold")
    for part in parts:
        status = Status.PASS if part["pass"] else Status.FAIL
        said = part.get("assertion") or part.get("metadata", {}).get("assertionSet") or {}
        table.add_row(
            Text(status.name, style=STATUS_STYLES[status]),
            score_text(part["score"]),
            inert(said.get("weight", 1), _NAME),
            Text(_assertion(said)),
            Text(inert(part["reason"], _NAME * 4)),
            Text(inert(", ".join(map(str, _judges(part))), _NAME)),
        )
    yield table


def _question(record: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What became of a question, and when."""
    found = record.get("question")
    if found is None:
        return
    yield _title(f"question: {str(found['outcome']).replace('_', ' ')}")
    if found.get("correctAnswers"):
        yield Text("  right: " + inert(", ".join(map(str, found["correctAnswers"])), _NAME * 4))
    if "agentAnswer" in found:
        yield Text("  answer: " + inert(found["agentAnswer"], _NAME * 4))
    events = found.get("events") or []
    begin = events[0]["at"] if events else 0
    lines = (f"  {event['at'] - begin:9.3f} s  {_told(event)}" for event in events)
    yield Text("\n".join(lines))


def _agent(record: Mapping[str, Any], near: Path | None) -> Iterator[RenderableType]:
    """The attempts of an agent."""
    found = agent_of(record)
    if found is not None:
        first, *others = agent_lines(found, near)
        yield _title(f"agent: {first}")
        if others:
            yield Text("\n".join(f"  {line}" for line in others))


def _told(event: Mapping[str, Any]) -> str:
    details = {key: part for key, part in event.items() if key not in {"sequence", "at", "event"}}
    more = ", ".join(f"{key} {output_text(part)}" for key, part in details.items())
    return inert(f"{event['event']}{f' ({more})' if more else ''}", _NAME * 2)


def _judges(part: Mapping[str, Any]) -> Sequence[object]:
    found = part.get("metadata", {}).get("graders", ())
    return found if isinstance(found, list | tuple) else [found]


def _assertion(said: Mapping[str, Any]) -> str:
    value = "" if "value" not in said else f" {output_text(said['value'])}"
    metric = "" if said.get("metric") is None else f" as {said['metric']}"
    return inert(f"{said.get('type', '')}{value}{metric}", _NAME)


def _calls(calls: Sequence[SeenCall]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("#", "execution", "asked", "as", "ms", "tokens", "US dollars", "ended"):
        table.add_column(name, overflow="fold")
    for number, call in enumerate(calls, 1):
        table.add_row(
            str(number),
            str(call.execution),
            Text(inert(call.provider, _NAME)),
            inert(_role(call), _NAME),
            "" if call.latency_ms is None else f"{call.latency_ms:.0f}",
            "" if call.tokens is None else str(call.tokens),
            "" if call.cost is None else f"{call.cost:.6f}",
            Text(_ended(call)),
        )
    return table


def _attempt(call: SeenCall) -> Mapping[str, Any] | None:
    """What an entry says that stands for a whole attempt of an agent; None of a single call."""
    metadata = None if call.reply is None else call.reply.get("metadata")
    found = metadata.get("attempt") if isinstance(metadata, Mapping) else None
    return found if call.role == "attempt" and isinstance(found, Mapping) else None


def _role(call: SeenCall) -> str:
    """What somebody was asked as: a model that is an agent is asked several times in one attempt."""
    return "agent" if call.role == "attempt" and _attempt(call) is None else call.role


def _ended(call: SeenCall) -> str:
    if call.error is not None:
        return inert(f"{call.error.get('kind', '')}: {call.error.get('message', '')}", _NAME)
    if (attempt := _attempt(call)) is not None:
        failure = attempt.get("failure")
        kind = failure.get("kind") if isinstance(failure, Mapping) else None
        return "has ended" if failure is None else inert(f"has failed: {kind}", _NAME)
    return "reply from the cache" if call.cached else "reply"


def _waits(own: Mapping[str, Any]) -> Iterator[RenderableType]:
    waits = sorted(own.get("waits", {}).items(), key=lambda found: -found[1])
    if not waits:
        if own["waitMs"]:
            yield _title(f"waited {own['waitMs'] / 1000:.3f} s")
        return
    yield _title("waited")
    lines = (
        f"  {seconds:9.3f} s  {WAITS_FOR.get(why, inert(why, _NAME))}" for why, seconds in waits
    )
    yield Text("\n".join(lines))


def _block(title: str, text: object) -> Iterator[RenderableType]:
    if text is None or text == "":
        return
    yield _title(title)
    yield Text("  " + inert_lines(text, _LONG).replace("\n", "\n  "))


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _shown(output: Any) -> str:
    return output if isinstance(output, str) else indented(output)
