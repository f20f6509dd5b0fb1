# Separate from `grading.kinds.tools`: together they exceed 600 lines.
"""The names of the tools that an output calls, in the formats of all providers.

Structured output has one of the forms of `_listed` and `_single`. A text is read as JSON; one that is not
JSON may have blocks of JSON between its lines, because several providers put a model's text and its calls
below each other. A block is an outermost balanced `{…}` or `[…]` that starts its line and ends a line. If one
is not JSON, prose around it may be the reason, so the blocks directly inside of it are tried as well.

Markdown fences are skipped: their content is an example. A fence in a list item ends with the item. A string
ends with its line at the latest; brackets that are open where a string does not end, or where a fence or a
bracket of the wrong kind follows, stay unmatched.

The number of open brackets and the characters that are read as JSON are bounded, so the time is linear in the
length of the text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioeval.text import parse_json

_SPACE = " \t\n\v\f\r\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""White space in JavaScript."""
_TAB = 4
_OPEN = 65_536
"""Most unmatched brackets, and blocks inside of them, that are remembered."""
_READ = 4
"""The multiple of the length of the text that may be read as JSON."""

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_ITEM = re.compile(r"[ \t]*(?:[-+*]|[0-9]+[.)])[ \t]+")
_FENCE_INDENT = 3
_MARK = re.compile(r'"(?:[^"\\]|\\.)*+"|["{}\[\]]')
"""A string that ends on its line, the start of one that does not, or a bracket."""
_PARTNER = {"}": "{", "]": "["}


class UnreadableError(Exception):
    """A text with too many meaningless brackets to search it for calls."""


def tool_names(output: Any) -> frozenset[str]:
    """Return the names of all tools that an output calls.

    Args:
        output: Text or JSON data.

    Raises:
        UnreadableError: A text cannot be searched within bounds.

    Example:
        >>> sorted(tool_names([{"type": "tool_use", "name": "a"}, {"function": {"name": "b"}}]))
        ['a', 'b']
        >>> sorted(tool_names('{"type": "function_call", "name": "search"}'))
        ['search']
    """
    while isinstance(output, str):
        try:
            output = parse_json(output)
        except ValueError:
            return frozenset(name for block in _json_blocks(output) for name in _names(block))
    return frozenset(_names(output))


def _names(data: Any) -> Iterator[str]:
    match data:
        case list() | tuple():
            for item in data:
                if isinstance(item, Mapping):
                    yield from _listed(item)
        case Mapping():
            yield from _single(data)


def _single(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name in a message or a single call, which has a type."""
    live = data.get("toolCall")
    if isinstance(calls := data.get("tool_calls"), list | tuple):
        for call in calls:
            yield from _name(_within(call, "function"))
            yield from _name(call)
    elif data.get("type") in {"tool_use", "function_call"} and isinstance(data.get("name"), str):
        yield from _name(data)
    elif isinstance(data.get("functionCall"), Mapping | list):
        yield from _name(data["functionCall"])
    elif isinstance(calls := _within(live, "functionCalls"), list | tuple):
        for call in calls:
            yield from _name(call)


def _listed(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names in one of several parts, each of which may be a call."""
    if item.get("type") == "tool_use" and isinstance(item.get("name"), str):
        yield from _name(item)
        return
    for key in ("functionCall", "function"):
        if isinstance(item.get(key), Mapping | list):
            yield from _name(item[key])
            return
    yield from _name(item)


def _name(value: Any) -> Iterator[str]:
    if isinstance(name := _within(value, "name"), str):
        yield name


def _within(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


@attrs.define(eq=False, repr=False)  # there may be millions
class _Bracket:
    char: str
    at: int
    first: bool
    """True if it starts its line."""
    last: bool


@attrs.define(eq=False, repr=False)
class _Block:
    start: int
    stop: int
    first: bool
    """True if it starts its line."""


def _json_blocks(text: str) -> Iterator[Any]:
    left = _READ * len(text)
    texts = [text]
    pending = [_blocks(_brackets(text))]
    while pending:
        block = next(pending[-1], None)
        if block is None:
            pending.pop()
            texts.pop()
            continue
        found = texts[-1][block.start : block.stop]
        left -= len(found)
        if left < 0:
            msg = "it has too many brackets that are not JSON"
            raise UnreadableError(msg)
        if "name" not in found and "\\" not in found:
            continue  # it cannot be a call, nor contain one
        try:
            data = parse_json(found)
        except ValueError:
            texts.append(found)
            pending.append(_blocks(_inner(found)))
        else:
            if block.first:
                yield data


def _inner(block: str) -> Iterator[_Bracket | None]:
    """Yield the brackets of a block without its own."""
    ends = {0, len(block) - 1}
    return (mark for mark in _brackets(block) if mark is None or mark.at not in ends)


def _blocks(marks: Iterator[_Bracket | None]) -> Iterator[_Block]:
    """Yield the outermost balanced blocks that end a line."""
    live: list[_Bracket] = []
    """Open brackets that can still be matched."""
    lost = 0
    waiting: list[_Block] = []
    """Blocks inside of brackets that may still be matched."""
    for mark in marks:
        if mark is not None and mark.char in "{[":
            live.append(mark)
        elif mark is not None and live and live[-1].char == _PARTNER[mark.char]:
            start = live.pop()
            while waiting and waiting[-1].start > start.at:
                waiting.pop()
            if mark.last:
                waiting.append(_Block(start.at, mark.at + 1, start.first))
        else:
            lost += len(live) + (mark is not None)
            live.clear()
        if not live:
            yield from waiting
            waiting.clear()
        if lost + len(live) + len(waiting) > _OPEN:
            msg = f"it has more than {_OPEN} unmatched brackets"
            raise UnreadableError(msg)
    yield from waiting


def _brackets(text: str) -> Iterator[_Bracket | None]:
    """Yield the brackets outside of strings and fences; None where all open ones become unmatched."""
    fence, fence_column = "", 0
    columns: list[int] = []
    """The columns at which the texts of the current list items start."""
    start, stop = 0, -1
    while stop < len(text):
        start, stop = stop + 1, text.find("\n", stop + 1)
        stop = len(text) if stop < 0 else stop
        line = text[start:stop].rstrip(_SPACE)
        if not line:
            continue
        indent = len(line) - len(line.lstrip(_SPACE))
        column = _width(line[:indent])
        if fence:
            if column >= fence_column:
                if _closes(line, fence, column - fence_column):
                    fence = ""
                continue
            fence = ""
            yield None
        while columns and column < columns[-1]:
            columns.pop()
        item = _ITEM.match(line)
        if item:
            columns.append(_width(item[0]))
        inside = columns[-1] if columns else 0
        content = line[item.end() :] if item else line
        opening = _FENCE.match(content)
        if (
            opening
            and (item or column <= inside + _FENCE_INDENT)
            and not (opening[1][0] == "`" and "`" in content[opening.end() :])
        ):
            fence, fence_column = opening[1], inside
            yield None
            continue
        yield from _of_line(line, start, indent)


def _of_line(line: str, start: int, indent: int) -> Iterator[_Bracket | None]:
    for mark in _MARK.finditer(line):
        char, at = mark[0], mark.start()
        if char == '"':
            yield None
            return
        if char[0] != '"':
            yield _Bracket(char, start + at, at == indent, at == len(line) - 1)


def _closes(line: str, fence: str, indent: int) -> bool:
    found = _FENCE.match(line)
    return (
        found is not None
        and indent <= _FENCE_INDENT
        and found[1].startswith(fence)
        and found.end() == len(line)
    )


def _width(indent: str) -> int:
    """Return the columns that a text takes, with tab stops."""
    return len(indent.expandtabs(_TAB)) if indent else 0
