# Apart from `grading.kinds.tools`: together they exceed 600 lines.
"""The names of the tools that an output calls, in whichever form its provider writes calls.

An output that is data has one of the forms of `_listed` and `_single`. A text is read as JSON; one that is
not JSON may hold blocks of JSON between its lines, because several providers write what a model said and
what it called below each other. A block is a balanced `{…}` or `[…]` that no other encloses, that stands
first on its line and ends a line. One that is not JSON may be an accident of the prose around it, so the
blocks directly inside of it are looked at as well.

Fences of Markdown are left out: what stands there is an example. A fence in an item of a list ends with
the item. A string ends with its line at the latest; brackets that are open where one does not end, or
where a fence or a bracket of the wrong kind comes between, have no partner.

Both what may be open at once and the characters that are read as JSON are bounded, so that the time is
linear in the length of the text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioeval.text import parse_json

_SPACE = " \t\n\v\f\r\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What JavaScript takes for white space."""
_TAB = 4
_OPEN = 65_536
"""Brackets without a partner, and blocks inside of them, that are kept in mind."""
_READ = 4
"""How often as many characters as the text has may be read as JSON."""

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_ITEM = re.compile(r"[ \t]*(?:[-+*]|[0-9]+[.)])[ \t]+")
_FENCE_INDENT = 3
_MARK = re.compile(r'"(?:[^"\\]|\\.)*+"|["{}\[\]]')
"""A string that ends on its line, the beginning of one that does not, or a bracket."""
_PARTNER = {"}": "{", "]": "["}


class UnreadableError(Exception):
    """A text with too many brackets without sense to look for calls in it."""


def tool_names(output: Any) -> frozenset[str]:
    """The names of all tools that an output calls.

    Args:
        output: Text or JSON data.

    Raises:
        UnreadableError: It is a text that cannot be searched within bounds.

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
    """Of a message or a single call, which says what it is."""
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
    """Of one of several parts, of which each may be a call."""
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


@attrs.define(eq=False)  # there may be millions
class _Bracket:
    char: str
    at: int
    first: bool
    """Whether it stands first on its line."""
    last: bool


@attrs.define(eq=False)
class _Block:
    start: int
    stop: int
    first: bool
    """Whether it begins its line."""


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
            msg = "it has too much in brackets that is not JSON"
            raise UnreadableError(msg)
        if "name" not in found and "\\" not in found:
            continue  # it cannot be a call, nor hold one
        try:
            data = parse_json(found)
        except ValueError:
            texts.append(found)
            pending.append(_blocks(_inner(found)))
        else:
            if block.first:
                yield data


def _inner(block: str) -> Iterator[_Bracket | None]:
    """The brackets of a block without those that it begins and ends with."""
    ends = {0, len(block) - 1}
    return (mark for mark in _brackets(block) if mark is None or mark.at not in ends)


def _blocks(marks: Iterator[_Bracket | None]) -> Iterator[_Block]:
    """The outermost balanced blocks that end a line."""
    live: list[_Bracket] = []
    """Brackets that are open and can still find their partner."""
    lost = 0
    waiting: list[_Block] = []
    """Blocks that stand in brackets which may yet find their partner."""
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
            msg = f"it has more than {_OPEN} brackets without a partner"
            raise UnreadableError(msg)
    yield from waiting


def _brackets(text: str) -> Iterator[_Bracket | None]:
    """The brackets outside of strings and fences; None where all that are open lose their partner."""
    fence, fence_column = "", 0
    columns: list[int] = []
    """Where the texts of the list items begin that the line is in."""
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
        said = line[item.end() :] if item else line
        opening = _FENCE.match(said)
        if (
            opening
            and (item or column <= inside + _FENCE_INDENT)
            and not (opening[1][0] == "`" and "`" in said[opening.end() :])
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
    """Columns that a text takes, with tab stops."""
    return len(indent.expandtabs(_TAB)) if indent else 0
