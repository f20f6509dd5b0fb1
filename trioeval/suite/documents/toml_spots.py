"""Where everything stands in a TOML text.

The standard parser keeps no positions. This scanner walks a text that the parser has accepted and that is
not nested too deeply; it checks nothing. A table that several headers and dotted keys write together
stands where it is first mentioned.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator

import attrs

from trioeval.suite.documents.spots import LineIndex, Spot, SpotTree
from trioeval.suite.mistakes import Place

_SPACE = re.compile(r"(?:\s|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_COMMA = re.compile(",")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_OPENING = re.compile(r"\[\[?")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)
_ATOM = re.compile(r"[^,\]}#\n]+")


def toml_spots(text: str) -> SpotTree:
    r"""The spots of a TOML text.

    Example:
        >>> toml_spots("[a]\nb.c = [1,\n 2]").root.find(("a", "b", "c", 1))
        (3, 2)
    """
    return SpotTree(root=_Scanner(text).scan().spot())


@attrs.define(eq=False)
class _Entry:
    """A value whose members may still come, in the same place or further down in the text."""

    place: Place
    key: Place | None = None
    members: dict[str | int, "_Entry"] = attrs.field(factory=dict)

    def below(self, name: str, place: Place) -> "_Entry":
        """A member; made where it is first mentioned."""
        return self.members.setdefault(name, _Entry(place, place))

    def appended(self, place: Place) -> "_Entry":
        """A further element of an array of tables."""
        return self.members.setdefault(len(self.members), _Entry(place))

    def descended(self, keys: Iterable[tuple[str, Place]]) -> "_Entry":
        """The table that a dotted key leads to; in an array of tables that is the last one."""
        entry = self
        for name, place in keys:
            entry = entry.below(name, place)
            if 0 in entry.members:
                entry = entry.members[len(entry.members) - 1]
        return entry

    def spot(self) -> Spot:
        """All of it, at the end."""
        members = {step: entry.spot() for step, entry in self.members.items()}
        return Spot(self.place, self.key, members)


class _Scanner:
    """Walks over one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = LineIndex(text)

    def scan(self) -> _Entry:
        """All of it."""
        top = _Entry((1, 1))
        table = top
        while self._skip(_SPACE) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header(top)
            else:
                self._pair(table)
        return top

    def _header(self, top: _Entry) -> _Entry:
        """The table that a header opens."""
        place = self._place()
        opening = self._take(_OPENING)
        *above, (name, at) = self._key()
        self._at += len(opening)
        entry = top.descended(above).below(name, at)
        return entry.appended(place) if opening == "[[" else entry

    def _pair(self, table: _Entry) -> None:
        *above, (name, place) = self._key()
        self._at += 1
        self._skip(_BLANK)
        table.descended(above).members[name] = self._value(place)

    def _key(self) -> list[tuple[str, Place]]:
        """The parts of a dotted key with their places, up to what ends it."""
        parts: list[tuple[str, Place]] = []
        while True:
            self._skip(_BLANK)
            place = self._place()
            written = self._take(_STRING) or self._take(_BARE)
            parts.append((_name(written), place))
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return parts
            self._at += 1

    def _value(self, key: Place | None) -> _Entry:
        entry = _Entry(self._place(), key)
        match self._text[self._at]:
            case "[":
                for _ in self._stops("]"):
                    entry.members[len(entry.members)] = self._value(None)
            case "{":
                for _ in self._stops("}"):
                    self._pair(entry)
            case _:
                self._take(_STRING) or self._take(_ATOM)
        return entry

    def _stops(self, end: str) -> Iterator[None]:
        """Stops at each member of an array or an inline table, and ends behind it."""
        self._at += 1
        while self._text[self._skip(_SPACE)] != end:
            yield
            self._skip(_SPACE)
            self._take(_COMMA)
        self._at += 1

    def _skip(self, space: re.Pattern[str]) -> int:
        self._take(space)
        return self._at

    def _take(self, what: re.Pattern[str]) -> str:
        """What stands here, if it is that."""
        found = what.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def _place(self) -> Place:
        return self._lines.place(self._at)


def _name(written: str) -> str:
    """A part of a key without its quotes."""
    if written[:1] not in {'"', "'"}:
        return written
    return next(iter(tomllib.loads(f"{written} = 0")))
