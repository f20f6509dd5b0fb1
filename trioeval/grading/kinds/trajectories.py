"""The steps of an agent, derived from the spans of a trace.

Each span is one step. Its type and its name follow from its attributes, which tracing libraries name in many
ways. The first that applies counts: a command run by a tool for commands, a tool, a command, a search, a
thought, a message; any other span is a step of no special type. A step can be selected by its name, by the
name of its span, and by the program of its command.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.grading.kinds.traces import ReplySpan, ReplyTrace
from trioeval.grading.kinds.workspace_files import matches
from trioeval.text import output_text, parse_json

StepType: TypeAlias = Literal["tool", "command", "search", "reasoning", "message", "span"]

STEP_TYPES: tuple[StepType, ...] = ("tool", "command", "search", "reasoning", "message", "span")
"""The types of steps."""

SHOWN = 24
"""Most steps in the summary of a trajectory; of more, those in the middle are left out."""

_DOTTED = (".args", ".arguments", ".input")
_TOOL_NAMES = (
    *("tool.name", "tool_name", "tool", "function.name", "function_name", "ai.toolCall.name"),
    *("gen_ai.tool.name", "agent.tool_name", "agent.tool", "agent.toolName", "codex.mcp.tool"),
)
_ARGUMENTS = (
    *(f"tool{ending}" for ending in (*_DOTTED, "_args", "_arguments", "_input")),
    *(f"function{ending}" for ending in (*_DOTTED, "_args", "_arguments")),
    *(f"ai.toolCall{ending}" for ending in _DOTTED),
    *(f"gen_ai.tool{ending}" for ending in (*_DOTTED, ".call.args", ".call.arguments")),
    *(f"agent.tool{ending}" for ending in _DOTTED),
    *(f"codex.mcp{ending}" for ending in _DOTTED),
    *("args", "arguments", "input"),
)
_COMMANDS = ("codex.command", "command", "command.name", "command_name")
_QUERIES = ("codex.search.query", "search.query", "search_query")
_COMMAND_TOOLS = frozenset({"exec_command", "local_shell", "shell"})
_KIND = "codex.item.type"

_NAMES_TOOL = re.compile(r"tool.?name|function.?name", re.IGNORECASE)
_IS_TOOL = re.compile(r"(?:^|[._])tool(?:$|[._])", re.IGNORECASE)
_OF_TOOL = re.compile(r"result|output|definition", re.IGNORECASE)
_IS_ARGUMENTS = re.compile(r"(?:^|[._])(?:arguments|args|input)(?:$|[._])", re.IGNORECASE)
_IS_RESULT = re.compile(r"result|output|error|status", re.IGNORECASE)
_IS_COMMAND = re.compile("command", re.IGNORECASE)
_OF_COMMAND = re.compile("output|result", re.IGNORECASE)
_SEARCHES = re.compile(
    r"(?:^|[\s._:/-])(?:search|find|lookup|retriev(?:e|al))(?:$|[\s._:/-])", re.IGNORECASE
)
_OF_SEARCH = re.compile(r"(?:^|[._])(?:search|lookup|retriev(?:e|al))(?:$|[._])", re.IGNORECASE)
_REASONS = re.compile(r"reasoning(?:[_\s]|$)", re.IGNORECASE)


@attrs.frozen
class TrajectoryStep:
    """One step of an agent."""

    type: StepType
    name: str
    """The name of the tool, the command, the query, or else of the span."""
    aliases: tuple[str, ...]
    """All names that it can be selected by."""
    span: ReplySpan
    args: Any = None
    """The arguments of a tool; None if unknown."""

    def fits(self, pattern: str) -> bool:
        """Return whether one of its names matches a pattern."""
        return any(matches(alias, pattern) for alias in self.aliases)

    def __str__(self) -> str:
        """Return the step as messages show it.

        Example:
            >>> str(TrajectoryStep("tool", "search", ("search",), ReplySpan("search")))
            'tool:search'
        """
        return f"{self.type}:{self.name}"


def steps_of(trace: ReplyTrace) -> tuple[TrajectoryStep, ...]:
    """Return the steps of a trajectory, in the order of their starts.

    Example:
        >>> spans = (ReplySpan("mcp db/query", 2), ReplySpan("exec ls -l", 1))
        >>> [str(step) for step in steps_of(ReplyTrace(spans))]
        ['command:ls -l', 'tool:query']
    """
    commands = _COMMAND_TOOLS | trace.commands
    return tuple(_step(span, commands) for span in sorted(trace.spans, key=_begins))


def _begins(span: ReplySpan) -> tuple[float, float]:
    start = math.inf if span.start is None else span.start
    return start, start if span.end is None else span.end


def _step(span: ReplySpan, command_tools: frozenset[str]) -> TrajectoryStep:
    tool, args = _tool(span), _arguments(span.attributes)
    runs_commands = tool is not None and tool.lower() in command_tools
    command = _command(span, args if runs_commands else None)
    query = _query(span)

    def step(kind: StepType, name: str, *aliases: str, args: Any = None) -> TrajectoryStep:
        return TrajectoryStep(kind, name, (span.name, name, *aliases), span, args)

    if command and tool and runs_commands:
        return step("command", command, tool, command.split(maxsplit=1)[0], args=args)
    if tool:
        return step("tool", tool, args=args)
    if command:
        return step("command", command, command.split(maxsplit=1)[0])
    if query:
        return step("search", query)
    if span.attributes.get(_KIND) == "reasoning" or _REASONS.match(span.name):
        return step("reasoning", span.name, "reasoning")
    if span.attributes.get(_KIND) == "agent_message" or span.name in _MESSAGES:
        return step("message", span.name, "message")
    return step("span", span.name)


_MESSAGES = ("agent response", "send input")


def _tool(span: ReplySpan) -> str | None:
    attributes = span.attributes
    if name := _first(attributes, _TOOL_NAMES):
        return name
    for key, text in _texts(attributes):
        if _is_structured(text):
            continue
        if _NAMES_TOOL.search(key) or (_IS_TOOL.search(key) and not _OF_TOOL.search(key)):
            return text
    if span.name.startswith("mcp ") and "/" in span.name:
        return span.name.rpartition("/")[2].strip() or None
    return None


def _arguments(attributes: Mapping[str, Any]) -> Any:
    """Return the arguments of a tool; text that is JSON is parsed."""
    others = (key for key in attributes if _IS_ARGUMENTS.search(key) and not _IS_RESULT.search(key))
    for key in (*_ARGUMENTS, *others):
        value = attributes.get(key)
        if isinstance(value, str):
            value = _read(value.strip())
        if value is not None and value != "":
            return value
    return None


def _command(span: ReplySpan, args: Any) -> str | None:
    """Return the command that a span ran, or that its tool was called with."""
    attributes = span.attributes
    if command := _first(attributes, _COMMANDS):
        return command
    for key, text in _texts(attributes):
        if _IS_COMMAND.search(key) and not _OF_COMMAND.search(key):
            return text
    if isinstance(args, Mapping):
        for key, between in (("cmd", " "), ("command", " "), ("commands", "; ")):
            if key in args:
                parts = [args[key]] if isinstance(args[key], str) else args[key]
                words = [output_text(part).strip() for part in parts] if _is_list(parts) else []
                if joined := between.join(filter(None, words)):
                    return joined
                break
    if span.name.startswith("exec "):
        return span.name.removeprefix("exec ").strip() or None
    return None


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _query(span: ReplySpan) -> str | None:
    attributes = span.attributes
    if query := _first(attributes, _QUERIES):
        return query
    if (query := _first(attributes, ("query",))) and _is_search(span):
        return query
    if span.name.startswith("search "):
        name = span.name.removeprefix("search ")
        return name.removeprefix('"').removesuffix('"').strip() or None
    return None


def _is_search(span: ReplySpan) -> bool:
    return _SEARCHES.search(span.name) is not None or any(map(_OF_SEARCH.search, span.attributes))


def _first(attributes: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    found = (attributes.get(key) for key in keys)
    texts = (value.strip() for value in found if isinstance(value, str))
    return next(filter(None, texts), None)


def _texts(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield attributes that are text, and not blank."""
    for key, value in attributes.items():
        if isinstance(value, str) and (text := value.strip()):
            yield key, text


def _is_structured(text: str) -> bool:
    return text.startswith(("{", "[")) and isinstance(_read(text), dict | list)


def _read(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def trajectory_summary(trace: ReplyTrace) -> str:
    """Return the steps of a trajectory as JSON for a judge: types, names and status messages.

    Equal steps in a row are one with `collapsedCount`; of more than `SHOWN`, those in the middle are one
    entry with `omittedCount`.

    Example:
        >>> spans = [ReplySpan("mcp db/query", start) for start in range(3)]
        >>> json.loads(trajectory_summary(ReplyTrace(tuple(spans))))[
        ...     "steps"
        ... ]  # doctest: +NORMALIZE_WHITESPACE
        [{'index': 1, 'type': 'tool', 'name': 'query', 'spanName': 'mcp db/query',
          'collapsedCount': 3}]
    """
    steps = steps_of(trace)
    shown: list[dict[str, Any]] = []
    for place, step in enumerate(steps, 1):
        summary = _step_summary(step)
        same = shown and {k: v for k, v in shown[-1].items() if k not in _COUNTS} == summary
        if same:
            shown[-1]["collapsedCount"] = shown[-1].get("collapsedCount", 1) + 1
        else:
            shown.append({"index": place, **summary})
    compacted = len(shown)
    if compacted > SHOWN:
        half = SHOWN // 2
        shown = [*shown[:half], {"omittedCount": compacted - SHOWN}, *shown[-half:]]
    whole = {
        **({} if trace.id is None else {"traceId": trace.id}),
        "stepCount": len(steps),
        "compactedStepCount": compacted,
        "steps": shown,
    }
    return json.dumps(whole, ensure_ascii=False, indent=2)


_COUNTS = frozenset({"index", "collapsedCount"})


def _step_summary(step: TrajectoryStep) -> dict[str, Any]:
    summary: dict[str, Any] = {"type": step.type, "name": step.name}
    if step.span.name != step.name:
        summary["spanName"] = step.span.name
    if step.span.code:
        summary["status"] = {"code": step.span.code}
        if step.span.message:
            summary["status"]["message"] = step.span.message
    return summary
