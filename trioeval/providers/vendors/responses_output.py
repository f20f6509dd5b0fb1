"""OpenAI responses: from the items of a response to one output.

Each item that has something to say is a line or more; the lines of all items, in their order, are the
output. Items that are not known are skipped: the service invents new ones.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from trioeval.providers.answers import NOT_JSON, count, field, objects, read_json, text
from trioeval.providers.config import is_number
from trioeval.usage import Usage

Item: TypeAlias = Mapping[str, Any]

CALLS = frozenset({"function_call", "custom_tool_call"})
"""Items that whoever asked has to answer."""


def is_empty(items: Sequence[Item]) -> bool:
    """Whether a response says nothing at all; an empty text is something, and so is what is not known.

    Example:
        >>> is_empty([{"type": "reasoning", "summary": []}])
        True
        >>> is_empty([{"type": "message", "content": [{"type": "output_text", "text": ""}]}])
        False
    """
    return not any(map(_says_something, items))


def read_output(items: Sequence[Item], *, show_thinking: bool, wants_json: bool) -> Any:
    """The output: lines of text, or the data that a message in JSON is.

    Args:
        items: Of the response.
        show_thinking: Whether the model's reasoning belongs to the output.
        wants_json: Whether messages were to be JSON by a schema; text that is none stays text.
    """
    if wants_json and not any(text(item, "type") in CALLS for item in items):
        data = read_json("\n".join(part for item in items for part in _message(item)))
        if data is not NOT_JSON:
            return data
    return "\n".join(
        line for item in items for line in _lines(item, show_thinking=show_thinking) if line
    )


def read_refusal_text(items: Sequence[Item]) -> str | None:
    """Why the model will not answer, in its own words; None if it does."""
    refusals = (text(part, "refusal") for part in _parts(items) if part.get("type") == "refusal")
    return next((refusal for refusal in refusals if refusal), None)


def read_log_probs(items: Sequence[Item]) -> tuple[float, ...] | None:
    """Natural logarithms of the tokens' probabilities; None where there are none."""
    found: list[Any] = [
        token.get("logprob")
        for part in _parts(items)
        if part.get("type") == "output_text"
        for token in objects(part, "logprobs")
    ]
    return tuple(one for one in found if is_number(one)) or None


def read_annotations(items: Sequence[Item]) -> list[dict[str, Any]]:
    """What the service says of parts of its texts: citations of pages and files."""
    return [note for part in _parts(items) for note in objects(part, "annotations")]


def read_finish_reason(data: Item, items: Sequence[Item]) -> str:
    """Why the response ended, in the words of `Reply.finish_reason`."""
    if data.get("status") == "incomplete":
        reason = text(data, "incomplete_details", "reason") or "length"
        return "length" if reason == "max_output_tokens" else reason.lower()
    return "tool_calls" if items and text(items[-1], "type") in CALLS else "stop"


def read_usage(data: Any) -> Usage:
    """The tokens of the field `usage`."""
    return Usage(
        prompt=count(data, "input_tokens"),
        completion=count(data, "output_tokens"),
        total=count(data, "total_tokens"),
        cached=count(data, "input_tokens_details", "cached_tokens"),
        cache_creation=count(data, "input_tokens_details", "cache_write_tokens"),
        reasoning=count(data, "output_tokens_details", "reasoning_tokens"),
    )


def _parts(items: Sequence[Item]) -> Iterator[dict[str, Any]]:
    for item in items:
        if item.get("type") == "message":
            yield from objects(item, "content")


def _says_something(item: Item) -> bool:
    match item.get("type"):
        case "message":
            return bool(objects(item, "content"))
        case "reasoning":
            return any(text(part, "text") for part in _thoughts(item))
        case _:
            return True


def _thoughts(item: Item) -> list[dict[str, Any]]:
    """The parts of a reasoning, in short if the service sums it up."""
    return objects(item, "summary") or objects(item, "content")


def _message(item: Item) -> Iterator[str]:
    """What a message says: its texts, or why there are none."""
    for part in _parts([item]):
        said = text(part, "refusal") if part.get("type") == "refusal" else text(part, "text")
        if said:
            yield said


def _lines(item: Item, *, show_thinking: bool) -> Iterator[str]:
    match item.get("type"):
        case "message":
            yield from _message(item)
        case "function_call" | "custom_tool_call":
            yield json.dumps(item, ensure_ascii=False)
        case "reasoning" if show_thinking:
            said = "\n".join(filter(None, (text(part, "text") for part in _thoughts(item))))
            yield f"Thinking: {said}" if said else ""
        case "web_search_call":
            yield _line("Web search", _searched(item.get("action")))
        case "code_interpreter_call":
            yield _line("Code interpreter", text(item, "code"))
        case "mcp_call":
            failed = item.get("error")
            what = f"MCP {text(item, 'name') or 'tool'}{' failed' if failed else ''}"
            yield _line(what, _plain(failed) if failed else text(item, "output"))
        case "mcp_list_tools":
            names = ", ".join(filter(None, (text(tool, "name") for tool in objects(item, "tools"))))
            yield _line(f"MCP tools of {text(item, 'server_label') or 'the server'}", names)
        case "mcp_approval_request":
            wanted = f"{text(item, 'name') or 'tool'} {text(item, 'arguments') or ''}"
            yield _line("MCP asks for approval", wanted)
        case _:
            pass


def _line(what: str, detail: str | None) -> str:
    """One line, whatever the detail is."""
    return " ".join(f"{what}: {detail or ''}".split()).removesuffix(":")


def _searched(action: Any) -> str | None:
    """What a web search looked for or at."""
    queries = field(action, "queries")
    listed = [one for one in queries if isinstance(one, str)] if isinstance(queries, list) else []
    place = text(action, "url")
    return text(action, "query") or "; ".join(listed) or text(action, "pattern") or place


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
