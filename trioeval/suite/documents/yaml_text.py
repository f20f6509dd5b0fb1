"""YAML by the core rules of version 1.2: `no` is text, `010` is ten, dates are text.

The problem: PyYAML composes a tree of nodes and then constructs values from it. That is where its time
goes; its composer ends the interpreter on deep nesting, and its rules are those of YAML 1.1. The rule
here: values are made straight from the events of its C parser, in one loop without recursion, in a third
of the time. Whatever may be forbidden (depth, aliases, tags, keys that are no scalars, keys that stand
twice) makes the exact and slower pass over the same text, `yaml_spots`, say so; a text without any of
them never pays for it. Tests prove that both passes see the same document.
"""

import re
import sys
from typing import Any

import attrs
import yaml

from trioeval.grading.text import read_integer
from trioeval.suite.documents.spots import DEEPEST
from trioeval.suite.documents.yaml_spots import MERGE_KEY, mark_place, yaml_spots
from trioeval.suite.mistakes import Mistake, MistakenError, Place

_CONSTANTS = {"": None, "~": None} | {
    spelling: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelling in (word, word.title(), word.upper())
}
_NUMERIC = frozenset("-+.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


@attrs.frozen
class YamlText:
    """A YAML text as plain data."""

    data: Any
    repeated: bool
    """Whether a key stands twice in one mapping."""
    odd_numbers: bool
    """Whether there are numbers that JSON cannot hold."""


def read_yaml(text: str) -> YamlText | None:
    """The values of a YAML text; None if there are none.

    Raises:
        MistakenError: It holds what a suite must not hold.
        yaml.YAMLError: It is not YAML.

    Example:
        >>> read_yaml("{a: [010, no], <<: {b: 1}}").data
        {'a': [10, 'no'], 'b': 1}
    """
    builder = _Builder(text)
    steps = {
        yaml.ScalarEvent: builder.scalar,
        yaml.AliasEvent: builder.alias,
        yaml.MappingStartEvent: builder.start,
        yaml.SequenceStartEvent: builder.start,
        yaml.MappingEndEvent: builder.end,
        yaml.SequenceEndEvent: builder.end,
        yaml.DocumentStartEvent: builder.document,
    }
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if step := steps.get(type(event)):
            step(event)
    if not builder.root:
        return None
    return YamlText(builder.root[0], builder.repeated, builder.odd_numbers)


@attrs.frozen
class _Merge:
    """A key whose value is merged into the mapping that it stands in."""

    place: Place


class _Builder:
    """Puts values together from the events of the parser."""

    def __init__(self, text: str) -> None:
        self.root: list[Any] = []
        """The whole document, once there is one."""
        self.repeated = False
        self.odd_numbers = False
        self._text = text
        self._checked = False
        self._holder: Any = self.root
        """The innermost collection that has not ended."""
        self._key: Any = None
        """The key whose value comes next, in a mapping."""
        self._outer: list[tuple[Any, Any]] = []
        """The collections around the innermost one, with their keys."""
        self._overridable: dict[int, set[str]] = {}
        """What was merged into open mappings and may still be given by themselves, by their identity."""
        self._anchors: dict[str, Any] = {}

    def document(self, event: Any) -> None:
        if self.root:
            message = "expected a single document in the stream, but found another document"
            raise MistakenError(Mistake(f"not YAML: {message}", place=mark_place(event.start_mark)))

    def scalar(self, event: Any) -> None:
        if event.tag is not None:
            self._check()
        text = event.value
        value = self._plain(text) if event.implicit[0] else text
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        if self._key is None and type(self._holder) is dict:
            merges = text == MERGE_KEY and event.implicit[0]
            self._key = _Merge(mark_place(event.start_mark)) if merges else text
        else:
            self._put(value)

    def start(self, event: Any) -> None:
        is_key = self._key is None and type(self._holder) is dict
        if is_key or event.tag is not None or len(self._outer) >= DEEPEST:
            self._check()
        self._outer.append((self._holder, self._key))
        self._holder = {} if type(event) is yaml.MappingStartEvent else []
        self._key = None
        if event.anchor is not None:
            self._anchors[event.anchor] = self._holder

    def end(self, _event: Any) -> None:
        value = self._holder
        if self._overridable:
            self._overridable.pop(id(value), None)
        self._holder, self._key = self._outer.pop()
        self._put(value)

    def alias(self, event: Any) -> None:
        self._check()
        if event.anchor not in self._anchors:
            place = mark_place(event.start_mark)
            raise MistakenError(Mistake("not YAML: found undefined alias", place=place))
        self._put(self._anchors[event.anchor])

    def _put(self, value: Any) -> None:
        """A whole value, at its place in what holds it."""
        holder, key = self._holder, self._key
        if type(holder) is list:
            holder.append(value)
            return
        self._key = None
        if type(key) is _Merge:
            self._merge(value, key.place)
            return
        if key in holder:
            merged = self._overridable.get(id(holder), set())
            self.repeated = self.repeated or key not in merged
            merged.discard(key)
        holder[key] = value

    def _merge(self, value: Any, place: Place) -> None:
        """Members that the mapping does not have yet; they stand where the merge key stands."""
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            message = f"the key {MERGE_KEY} takes a mapping or a list of mappings"
            raise MistakenError(Mistake(message, place=place))
        self.repeated = self.repeated or id(self._holder) in self._overridable
        overridable = self._overridable.setdefault(id(self._holder), set())
        for part in parts:
            for key, member in part.items():
                if key not in self._holder:
                    self._holder[key] = member
                    overridable.add(key)

    def _plain(self, text: str) -> Any:
        """What a text without quotes stands for."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in _NUMERIC:
            return text
        number: float
        if _INTEGER.fullmatch(text):
            # Decimal also with leading zeros; `0o` and `0x` say otherwise.
            number = int(text, 0) if text[:2] in {"0o", "0x"} else read_integer(text)
        elif _FLOAT.fullmatch(text):
            number = float(text)
        elif _NO_NUMBER.fullmatch(text):
            number = float(text.replace(".", "", 1))
        else:
            return text
        if not abs(number) <= sys.float_info.max:
            self.odd_numbers = True
        return number

    def _check(self) -> None:
        """The exact pass, at the first sign of anything that may have to be refused."""
        if not self._checked:
            yaml_spots(self._text)
            self._checked = True
