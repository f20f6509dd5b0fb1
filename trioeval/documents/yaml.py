"""YAML by the core rules of version 1.2: `no` is text, `010` is ten, dates are text.

PyYAML composes a tree of nodes and then constructs values from it. This takes most of its time; its composer
crashes the interpreter on deep nesting, and its rules are those of YAML 1.1. Here values are built directly
from the events of its C parser, in one loop without recursion, in a third of the time. Anything that may
have to be refused (depth, aliases, tags, keys that are not scalars, duplicate keys) starts the exact and
slower pass over the same text, `yaml_spots`; other texts never pay for it. Tests prove that both passes see
the same document.
"""

import contextlib
import re
import sys
from typing import Any

import attrs
import yaml

from trioeval.documents.mistakes import Mistake, MistakenError, Place
from trioeval.documents.positions import DEEPEST, GROWTH, Spot, SpotTree
from trioeval.text import read_integer

# The positions of all values in a YAML text, and the checks for what a suite must not contain.
#
# One pass over the parser's events, before anything is composed: the composer of PyYAML crashes the
# interpreter on deep nesting, and a few aliases of aliases can expand to more values than fit into memory.
# Refused are values nested too deeply, aliases that expand to too many values or to themselves, keys that are
# not scalars, and tags.


MERGE_KEY = "<<"
_PARSER_LIMIT = "maximum nesting depth"


def yaml_spots(text: str) -> SpotTree:
    """Return the positions of all values in a YAML text.

    Raises:
        MistakenError: The text contains something that a suite must not contain.
        yaml.YAMLError: The text is not YAML. Only this function detects that.

    Example:
        >>> yaml_spots("a: [true]").root.find(("a", 0))
        (1, 5)
    """
    tree = SpotTree(merge_key=MERGE_KEY)
    anchors = _Anchors()
    written = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if not isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            continue
        place = mark_place(event.start_mark)
        if isinstance(event, yaml.NodeEvent):
            if tree.awaits_key:
                tree.key(_key(event, place), place)
                continue
            written += 1
        match event:
            case yaml.AliasEvent():
                spot = anchors.find(event.anchor, place)
                tree.value(place, spot.members, spot.size)
            case yaml.ScalarEvent():
                _check_tag(event, place)
                anchors.add(event.anchor, tree.value(place))
            case yaml.CollectionStartEvent():
                _check_tag(event, place)
                tree.open(place, mapping=isinstance(event, yaml.MappingStartEvent))
                if tree.too_deep is not None:
                    raise MistakenError(tree.too_deep)
                anchors.open(event.anchor)
            case _:
                anchors.close(tree.close())
    if tree.root is not None and tree.root.size > GROWTH * written:
        message = f"aliases expand {written} values to {tree.root.size}"
        raise MistakenError(Mistake(message, "use fewer aliases", place=tree.root.place))
    return tree


def _report_own_limit(text: str, error: yaml.MarkedYAMLError) -> None:
    """Raise the project's own error if the parser refused a text for its depth.

    Since 0.2.6 libyaml has a limit of its own, 1000 levels. It scans ahead, so it may refuse a text before it
    has returned the event of level 201. Of the text before the refused level it returns all events.

    Raises:
        MistakenError: The text is nested more than `DEEPEST` levels deep.
    """
    if error.problem_mark is not None and _PARSER_LIMIT in (error.problem or ""):
        with contextlib.suppress(yaml.YAMLError):
            yaml_spots(text[: error.problem_mark.index])


@attrs.define(eq=False, repr=False)
class _Anchors:
    """The positions of the values that aliases refer to."""

    _spots: dict[str, Spot] = attrs.field(factory=dict)
    _open: list[str | None] = attrs.field(factory=list)
    """The anchors, if any, of the collections that have not ended."""

    def add(self, anchor: str | None, spot: Spot) -> None:
        if anchor is not None:
            self._spots[anchor] = spot

    def open(self, anchor: str | None) -> None:
        self._open.append(anchor)

    def close(self, spot: Spot) -> None:
        self.add(self._open.pop(), spot)

    def find(self, anchor: str | None, place: Place) -> Spot:
        if anchor in self._open:
            raise MistakenError(Mistake(f"the alias *{anchor} contains itself", place=place))
        # The parser reports an unknown anchor in its own words.
        return self._spots.get(anchor or "", Spot(place))


def mark_place(mark: Any) -> Place:
    """Return the line and column of a PyYAML mark, which counts from 0."""
    return mark.line + 1, mark.column + 1


def _key(event: yaml.NodeEvent, place: Place) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        raise MistakenError(Mistake("a key must be plain text", place=place))
    _check_tag(event, place)
    return str(event.value)


def _check_tag(event: Any, place: Place) -> None:
    plain = event.tag == "tag:yaml.org,2002:str" and isinstance(event, yaml.ScalarEvent)
    if not (event.tag is None or plain):
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        message = f"the tag {tag} is not supported"
        raise MistakenError(Mistake(message, "write the value without a tag", place=place))


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
    """True if a mapping has a duplicate key."""
    odd_numbers: bool
    """True if a number cannot be represented in JSON."""


def read_yaml(text: str) -> YamlText | None:
    """Return the values of a YAML text; None if it has none.

    Raises:
        MistakenError: The text contains something that a suite must not contain.
        yaml.YAMLError: The text is not YAML.

    Example:
        >>> read_yaml("{a: [010, no], <<: {b: 1}}").data
        {'a': [10, 'no'], 'b': 1}
    """
    builder = _YamlBuilder(text)
    steps = {
        yaml.ScalarEvent: builder.scalar,
        yaml.AliasEvent: builder.alias,
        yaml.MappingStartEvent: builder.start,
        yaml.SequenceStartEvent: builder.start,
        yaml.MappingEndEvent: builder.end,
        yaml.SequenceEndEvent: builder.end,
        yaml.DocumentStartEvent: builder.document,
    }
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if step := steps.get(type(event)):
                step(event)
    except yaml.MarkedYAMLError as error:
        _report_own_limit(text, error)
        raise
    if not builder.root:
        return None
    return YamlText(builder.root[0], builder.repeated, builder.odd_numbers)


@attrs.frozen
class _Merge:
    """A merge key: its value is merged into the mapping that contains it."""

    place: Place


class _YamlBuilder:
    """Builds values from the events of the parser."""

    def __init__(self, text: str) -> None:
        self.root: list[Any] = []
        """The whole document, when it is complete; otherwise empty."""
        self.repeated = False
        self.odd_numbers = False
        self._text = text
        self._checked = False
        self._holder: Any = self.root
        """The innermost collection that has not ended."""
        self._key: Any = None
        """The key whose value comes next, in a mapping."""
        self._outer: list[tuple[Any, Any]] = []
        """The enclosing collections, each with the key whose value is being built."""
        self._overridable: dict[int, set[str]] = {}
        """Keys that came from a merge and may still be overridden, by the identity of the open mapping."""
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
        """Add a complete value to the collection that contains it."""
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
        """Add the members that the mapping does not have yet, at the position of the merge key."""
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
        """Return the value of an unquoted scalar."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in _NUMERIC:
            return text
        number: float
        if _INTEGER.fullmatch(text):
            # Decimal even with leading zeros; only `0o` and `0x` select another base.
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
        """Run the exact pass, once, when something may have to be refused."""
        if not self._checked:
            yaml_spots(self._text)
            self._checked = True
