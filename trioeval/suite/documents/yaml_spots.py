"""Where everything stands in a YAML text, and what must not stand there.

One pass over the parser's events, before anything is composed: the composer of PyYAML ends the interpreter
on deep nesting, and a few aliases of aliases can stand for more values than there is memory. Refused are
values nested too deeply, aliases that stand for too much or for what they stand in, keys that are no
scalars, and tags.
"""

from typing import Any

import attrs
import yaml

from trioeval.suite.documents.spots import Spot, SpotTree
from trioeval.suite.mistakes import Mistake, MistakenError, Place

MERGE_KEY = "<<"
GROWTH = 100
"""How many times more values aliases may make of those that are written out."""


def yaml_spots(text: str) -> SpotTree:
    """The spots of a YAML text.

    Raises:
        MistakenError: It holds what a suite must not hold.
        yaml.YAMLError: It is not YAML. That it is YAML is not proved by anything else.

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
        message = f"aliases make {tree.root.size} values of {written}"
        raise MistakenError(Mistake(message, "write less with aliases", place=tree.root.place))
    return tree


@attrs.define(eq=False)
class _Anchors:
    """What aliases stand for."""

    _spots: dict[str, Spot] = attrs.field(factory=dict)
    _open: list[str | None] = attrs.field(factory=list)
    """Anchors, if any, of the collections that have not ended."""

    def add(self, anchor: str | None, spot: Spot) -> None:
        if anchor is not None:
            self._spots[anchor] = spot

    def open(self, anchor: str | None) -> None:
        self._open.append(anchor)

    def close(self, spot: Spot) -> None:
        self.add(self._open.pop(), spot)

    def find(self, anchor: str | None, place: Place) -> Spot:
        if anchor in self._open:
            raise MistakenError(Mistake(f"the alias *{anchor} stands in itself", place=place))
        # One that is not known is told by the parser, in its words.
        return self._spots.get(anchor or "", Spot(place))


def mark_place(mark: Any) -> Place:
    """The place of a mark of PyYAML's, which counts from 0."""
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
