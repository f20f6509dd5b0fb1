"""YAML by the core rules of version 1.2, for schemas and for objects in an output.

Values are built from the events of the C parser in one loop: no recursion that a hostile text could exhaust.
Aliases count with the size of their target, so they cannot multiply. Collections as keys and application tags
are rejected.
"""

import re
from typing import Any

import attrs
import yaml

from trioeval.text import output_text, read_integer

DEEPEST = 100
"""Deepest nesting of collections."""
MOST = 1_000_000
"""Most values of one text, aliases counted in full."""

_CONSTANTS = {"": None, "~": None} | {
    spelling: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelling in (word, word.title(), word.upper())
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_STANDARD = "tag:yaml.org,2002:"
_TAGS = frozenset(
    _STANDARD + name for name in ("str", "int", "float", "bool", "null", "map", "seq")
)
_TEXT_TAGS = frozenset(("!", f"{_STANDARD}str"))
_MERGE = "<<"
_NO_KEY = object()


@attrs.define
class ParseAllowance:
    """The cost that several texts may have together."""

    events: int
    """Parser events: a value is one, a collection two. Below 0 only within the last text."""


def read_yaml(text: str, allowance: ParseAllowance | None = None) -> Any:
    """Return the value of a YAML text; None for an empty one.

    Args:
        text: One document.
        allowance: Reduced by the cost of this text, also if it is not YAML.

    Raises:
        ValueError: It is not YAML, or has more than one document; the message says why.

    Example:
        >>> read_yaml("{a: [010, no], 'b': 1.5,}")
        {'a': [10, 'no'], 'b': 1.5}
    """
    builder = _FlowBuilder()
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if allowance is not None:
                allowance.events -= 1
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        msg = f"{where}{error.problem}"
        raise ValueError(msg) from None
    except yaml.YAMLError as error:
        msg = str(error).partition("\n")[0]
        raise ValueError(msg) from None
    return builder.root[0] if builder.root else None


@attrs.define(eq=False, repr=False)
class _OpenFlow:
    """A collection that has not ended yet."""

    value: Any
    anchor: str | None = None
    key: Any = _NO_KEY
    """In a mapping, the key whose value comes next."""
    size: int = 1
    merged: list[Any] = attrs.field(factory=list)


class _FlowBuilder:
    def __init__(self) -> None:
        self.root: list[Any] = []
        self._documents = 0
        self._open = [_OpenFlow(self.root)]
        self._anchors: dict[str, tuple[Any, int]] = {}

    def take(self, event: Any) -> None:
        match event:
            case yaml.ScalarEvent():
                value = _scalar(event)
                self._anchor(event.anchor, value, 1)
                self._put(value, 1, merges=event.implicit[0] and event.value == _MERGE)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    msg = f"unknown alias *{event.anchor}"
                    raise ValueError(msg)
                self._put(*self._anchors[event.anchor])
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._start({} if isinstance(event, yaml.MappingStartEvent) else [], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end()
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    msg = "it has more than one document"
                    raise ValueError(msg)

    def _start(self, value: Any, event: Any) -> None:
        if len(self._open) > DEEPEST:
            msg = "it is nested too deeply"
            raise ValueError(msg)
        _check_tag(event.tag)
        self._open.append(_OpenFlow(value, event.anchor))

    def _end(self) -> None:
        ended = self._open.pop()
        for other in ended.merged:
            for key, value in other.items():
                ended.value.setdefault(key, value)
        self._anchor(ended.anchor, ended.value, ended.size)
        self._put(ended.value, ended.size)

    def _anchor(self, name: str | None, value: Any, size: int) -> None:
        if name is not None:
            self._anchors[name] = (value, size)

    def _put(self, value: Any, size: int, *, merges: bool = False) -> None:
        holder = self._open[-1]
        holder.size += size
        if holder.size > MOST:
            msg = "it has too many values"
            raise ValueError(msg)
        if isinstance(holder.value, list):
            holder.value.append(value)
        elif holder.key is _NO_KEY:
            if isinstance(value, dict | list):
                msg = "a key must be a text or a number"
                raise ValueError(msg)  # noqa: TRY004 - the text is wrong
            holder.key = _MERGE_KEY if merges else output_text(value)
        else:
            if holder.key is _MERGE_KEY:
                holder.merged += _mappings(value)
            else:
                holder.value[holder.key] = value
            holder.key = _NO_KEY


_MERGE_KEY = object()


def _mappings(value: Any) -> list[Any]:
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(other, dict) for other in several):
        msg = "<< merges mappings only"
        raise ValueError(msg)
    return several


def _check_tag(tag: str | None) -> None:
    if tag is not None and tag != "!" and tag not in _TAGS:
        msg = f"unknown tag {tag}"
        raise ValueError(msg)


def _scalar(event: Any) -> Any:
    _check_tag(event.tag)
    text: str = event.value
    is_text = event.tag in _TEXT_TAGS or (event.tag is None and not event.implicit[0])
    return text if is_text else _plain(text)


def _plain(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return read_integer(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text
