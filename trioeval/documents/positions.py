"""Where everything of a document stands: a tree of places beside the tree of values.

Scanners of JSON and YAML tell a `SpotTree` what they come across, in the order of the text; it keeps the
places and finds keys that stand twice, which the values no longer show.
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
"""Levels of lists and objects within each other that a document may have."""
SHOWN_STEPS = 4
"""Steps of the path to something nested too deeply that are shown."""
_NOTHING: Mapping[str | int, "Spot"] = MappingProxyType({})


class LineIndex:
    r"""Lines and columns of a text.

    Example:
        >>> LineIndex("a\nbc").place(3)
        (2, 2)
    """

    def __init__(self, text: str) -> None:
        self._breaks = [found.start() for found in re.finditer("\n", text)]

    def place(self, at: int) -> Place:
        """Where the character with this number stands."""
        line = bisect.bisect_left(self._breaks, at)
        return line + 1, at - (self._breaks[line - 1] if line else -1)


@attrs.frozen
class Spot:
    """Where one value stands, and where its members do."""

    place: Place
    key: Place | None = None
    """Where its key stands; None in a list and at the top."""
    members: Mapping[str | int, "Spot"] = _NOTHING
    size: int = 1
    """Values in it, itself included; what YAML repeats or merges by alias counts each time."""

    def find(self, path: DocumentPath, *, key: bool = False) -> Place:
        """The place of the value at `path`, or of its key; of the nearest value above if there is none."""
        spot = self
        for step in path:
            if step not in spot.members:
                return spot.place
            spot = spot.members[step]
        return spot.key if key and spot.key else spot.place


@attrs.define(eq=False)
class _Open:
    """A list or an object whose end has not come yet."""

    place: Place
    path: DocumentPath
    mapping: bool
    members: dict[str | int, Spot] = attrs.field(factory=dict)
    name: str | None = None
    """The key whose value comes next."""
    key: Place | None = None


@attrs.define(eq=False)
class SpotTree:
    """Builds the spots of one document, told piece by piece what stands in it."""

    merge_key: str | None = None
    """A key whose members count as members of the object that it stands in."""
    root: Spot | None = None
    """All of it, at the end; None if there was nothing."""
    repeated: list[Mistake] = attrs.field(factory=list)
    """Keys that stand twice in one object."""
    too_deep: Mistake | None = None
    """The first list or object that is nested too deeply, if one is."""
    _open: list[_Open] = attrs.field(factory=list)

    @property
    def awaits_key(self) -> bool:
        """Whether what comes next in the text is a key."""
        return bool(self._open) and self._open[-1].mapping and self._open[-1].name is None

    def placed(self, mistake: Mistake) -> Mistake:
        """The same mistake with its place, if it has none."""
        if mistake.place is not None or self.root is None:
            return mistake
        return attrs.evolve(mistake, place=self.root.find(mistake.at, key=mistake.key))

    def key(self, name: str, place: Place) -> None:
        """A key; its value comes next."""
        parent = self._open[-1]
        if before := parent.members.get(name):
            line = before.key[0] if before.key else before.place[0]
            message = f"the key {quote(name)} stands here and in line {line}"
            self.repeated.append(Mistake(message, at=(*parent.path, name), place=place))
        parent.name, parent.key = name, place

    def value(
        self, place: Place, members: Mapping[str | int, Spot] = _NOTHING, size: int = 1
    ) -> Spot:
        """A whole value."""
        if not self._open:
            self.root = Spot(place, None, members, size)
            return self.root
        parent = self._open[-1]
        spot = Spot(place, parent.key, members, size)
        parent.members[self._step()] = spot
        parent.name = parent.key = None
        return spot

    def open(self, place: Place, *, mapping: bool) -> None:
        """The beginning of a list or an object."""
        path: DocumentPath = ()
        if self._open:
            path = self._open[-1].path
            # Paths stop growing, so that the tree of a million brackets is not a million paths.
            path = (*path, self._step()) if len(path) < DEEPEST else path
        if len(path) == DEEPEST and self.too_deep is None:
            self.too_deep = too_deep(path, place)
        self._open.append(_Open(place, path, mapping))

    def close(self) -> Spot:
        """The end of the innermost list or object."""
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
    """The mistake of a list or an object at `path` that has too many levels above it."""
    message = f"is nested more than {DEEPEST} levels deep"
    return Mistake(message, at=path[:SHOWN_STEPS], place=place)


def _merged(spot: Spot) -> dict[str | int, Spot]:
    """The members that a merge key adds; of a list of mappings the first one wins."""
    if 0 not in spot.members:
        return dict(spot.members)
    return {
        step: member
        for part in reversed(list(spot.members.values()))
        for step, member in part.members.items()
    }
