"""The positions of all values of a document: a tree of positions parallel to the tree of values.

Scanners of JSON and YAML pass the parts of a text to a `SpotTree`, in order. It records their positions and
finds duplicate keys, which the values no longer show.
"""

import bisect
import re
from collections.abc import Mapping
from types import MappingProxyType

import attrs

from trioeval.documents.mistakes import Mistake, Place
from trioeval.documents.paths import DocumentPath
from trioeval.grading import quote

DEEPEST = 200
"""The maximum depth of nested lists and objects in a document."""
GROWTH = 100
"""The maximum ratio of values after the expansion of aliases and references to values written in the text."""
SHOWN_STEPS = 4
"""The maximum number of steps shown of the path to a value nested too deeply."""
_NOTHING: Mapping[str | int, "Spot"] = MappingProxyType({})


class LineIndex:
    r"""The lines and columns of a text.

    Example:
        >>> LineIndex("a\nbc").place(3)
        (2, 2)
    """

    def __init__(self, text: str) -> None:
        self._breaks = [found.start() for found in re.finditer("\n", text)]

    def place(self, at: int) -> Place:
        """Return the line and column of the character at an offset."""
        line = bisect.bisect_left(self._breaks, at)
        return line + 1, at - (self._breaks[line - 1] if line else -1)


@attrs.frozen
class Spot:
    """The position of one value and of its members."""

    place: Place
    key: Place | None = None
    """The position of its key; None in a list and at the top."""
    members: Mapping[str | int, "Spot"] = _NOTHING
    size: int = 1
    """The number of values in it, itself included; what YAML repeats or merges by alias counts each time."""

    def find(self, path: DocumentPath, *, key: bool = False) -> Place:
        """Return the position of the value at `path`, or of its key, or of the nearest existing ancestor."""
        spot = self
        for step in path:
            if step not in spot.members:
                return spot.place
            spot = spot.members[step]
        return spot.key if key and spot.key else spot.place


@attrs.define(eq=False, repr=False)
class _OpenCollection:
    """A list or an object that has not ended."""

    place: Place
    path: DocumentPath
    mapping: bool
    members: dict[str | int, Spot] = attrs.field(factory=dict)
    name: str | None = None
    """The key whose value comes next."""
    key: Place | None = None


@attrs.define(eq=False, repr=False)
class SpotTree:
    """Builds the tree of positions of one document from its parts, in order."""

    merge_key: str | None = None
    """A key whose members count as members of the object that contains it."""
    root: Spot | None = None
    """The position of the whole document, after its last part; None for an empty text."""
    repeated: list[Mistake] = attrs.field(factory=list)
    """Duplicate keys."""
    too_deep: Mistake | None = None
    """The first list or object that is nested too deeply."""
    _open: list[_OpenCollection] = attrs.field(factory=list)

    @property
    def awaits_key(self) -> bool:
        """True if the next part of the text is a key."""
        return bool(self._open) and self._open[-1].mapping and self._open[-1].name is None

    def placed(self, mistake: Mistake) -> Mistake:
        """Return the mistake with its position added if it has none."""
        if mistake.place is not None or self.root is None:
            return mistake
        return attrs.evolve(mistake, place=self.root.find(mistake.at, key=mistake.key))

    def key(self, name: str, place: Place) -> None:
        """Add a key; its value comes next."""
        parent = self._open[-1]
        if before := parent.members.get(name):
            line = before.key[0] if before.key else before.place[0]
            message = f"duplicate key {quote(name)}: it is already in line {line}"
            self.repeated.append(Mistake(message, at=(*parent.path, name), place=place))
        parent.name, parent.key = name, place

    def value(
        self, place: Place, members: Mapping[str | int, Spot] = _NOTHING, size: int = 1
    ) -> Spot:
        """Add a complete value."""
        if not self._open:
            self.root = Spot(place, None, members, size)
            return self.root
        parent = self._open[-1]
        spot = Spot(place, parent.key, members, size)
        parent.members[self._step()] = spot
        parent.name = parent.key = None
        return spot

    def open(self, place: Place, *, mapping: bool) -> None:
        """Begin a list or an object."""
        path: DocumentPath = ()
        if self._open:
            path = self._open[-1].path
            # Paths stop growing at this depth, so that a million brackets do not need a million long paths.
            path = (*path, self._step()) if len(path) < DEEPEST else path
        if len(path) == DEEPEST and self.too_deep is None:
            self.too_deep = too_deep(path, place)
        self._open.append(_OpenCollection(place, path, mapping))

    def close(self) -> Spot:
        """End the innermost list or object."""
        done = self._open.pop()
        members = done.members
        size = 1 + sum(spot.size for spot in members.values())
        if self.merge_key is not None and (merged := members.pop(self.merge_key, None)):
            members = {**_merged(merged), **members}
        return self.value(done.place, members, size)

    def _step(self) -> str | int:
        parent = self._open[-1]
        return len(parent.members) if parent.name is None else parent.name


def too_deep(path: DocumentPath, place: Place | None = None) -> Mistake:
    """Return the mistake of a list or an object at `path` that is nested too deeply."""
    message = f"is nested more than {DEEPEST} levels deep"
    return Mistake(message, at=path[:SHOWN_STEPS], place=place)


def _merged(spot: Spot) -> dict[str | int, Spot]:
    """Return the members that a merge key adds; in a list of mappings the first one wins."""
    if 0 not in spot.members:
        return dict(spot.members)
    return {
        step: member
        for part in reversed(list(spot.members.values()))
        for step, member in part.members.items()
    }
