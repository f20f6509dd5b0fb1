"""The positions of all values in a TOML text.

The standard parser records no positions. This scanner walks a text that the parser has accepted and that is
not nested too deeply; it checks nothing. A table that several headers and dotted keys write together has the
position of its first mention.
"""

import datetime as dt
import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from trioeval.documents.mistakes import Mistake, MistakenError, Place
from trioeval.documents.plain import is_too_deep
from trioeval.documents.positions import LineIndex, Spot, SpotTree, too_deep

# TOML as plain data: its dates and times become text, as in YAML.


_WHERE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_toml(text: str) -> dict[str, Any]:
    r"""Return the values of a TOML text.

    Raises:
        MistakenError: The text is not TOML, or nested too deeply.

    Example:
        >>> read_toml("[a]\nday = 2024-01-31\nn = 1_000")
        {'a': {'day': '2024-01-31', 'n': 1000}}
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place: Place | None = None
        if found := _WHERE.search(message):
            message = message[: found.start()]
            place = (int(found[1]), int(found[2])) if found[1] else _end(text)
        message = f"not TOML: {message[:1].lower()}{message[1:]}"
        raise MistakenError(Mistake(message, place=place)) from None
    except ValueError:  # Python's own limit; the parser reports no position
        raise MistakenError(Mistake("not TOML: an integer has too many digits")) from None
    except RecursionError:
        raise MistakenError(too_deep(())) from None
    if is_too_deep(data):
        raise MistakenError(too_deep(()))
    plain: dict[str, Any] = _plain(data)
    return plain


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(member) for key, member in value.items()}
        case list():
            return [_plain(member) for member in value]
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            return value


def _end(text: str) -> Place:
    lines = text.split("\n")
    return len(lines), len(lines[-1]) + 1


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
    r"""Return the positions of all values in a TOML text.

    Example:
        >>> toml_spots("[a]\nb.c = [1,\n 2]").root.find(("a", "b", "c", 1))
        (3, 2)
    """
    return SpotTree(root=_Scanner(text).scan().spot())


@attrs.define(eq=False, repr=False)
class _TomlEntry:
    """A value that may get further members, in the same place or further down in the text."""

    place: Place
    key: Place | None = None
    members: dict[str | int, "_TomlEntry"] = attrs.field(factory=dict)

    def below(self, name: str, place: Place) -> "_TomlEntry":
        """Return a member, created at its first mention."""
        return self.members.setdefault(name, _TomlEntry(place, place))

    def appended(self, place: Place) -> "_TomlEntry":
        """Add an element to an array of tables."""
        return self.members.setdefault(len(self.members), _TomlEntry(place))

    def descended(self, keys: Iterable[tuple[str, Place]]) -> "_TomlEntry":
        """Return the table that a dotted key leads to; in an array of tables the last one."""
        entry = self
        for name, place in keys:
            entry = entry.below(name, place)
            if 0 in entry.members:
                entry = entry.members[len(entry.members) - 1]
        return entry

    def spot(self) -> Spot:
        """Return its final position with those of its members."""
        members = {step: entry.spot() for step, entry in self.members.items()}
        return Spot(self.place, self.key, members)


class _Scanner:
    """Scans one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = LineIndex(text)

    def scan(self) -> _TomlEntry:
        """Scan the whole text."""
        top = _TomlEntry((1, 1))
        table = top
        while self._skip(_SPACE) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header(top)
            else:
                self._pair(table)
        return top

    def _header(self, top: _TomlEntry) -> _TomlEntry:
        """Scan a header and return the table that it opens."""
        place = self._place()
        opening = self._take(_OPENING)
        *above, (name, at) = self._key()
        self._at += len(opening)
        entry = top.descended(above).below(name, at)
        return entry.appended(place) if opening == "[[" else entry

    def _pair(self, table: _TomlEntry) -> None:
        *above, (name, place) = self._key()
        self._at += 1
        self._skip(_BLANK)
        table.descended(above).members[name] = self._value(place)

    def _key(self) -> list[tuple[str, Place]]:
        """Scan the parts of a dotted key with their positions, up to its end."""
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

    def _value(self, key: Place | None) -> _TomlEntry:
        entry = _TomlEntry(self._place(), key)
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
        """Yield at each member of an array or an inline table, and stop after its end."""
        self._at += 1
        while self._text[self._skip(_SPACE)] != end:
            yield
            self._skip(_SPACE)
            self._take(_COMMA)
        self._at += 1

    def _skip(self, space: re.Pattern[str]) -> int:
        self._take(space)
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> str:
        """Consume and return what matches here; empty if nothing does."""
        found = pattern.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def _place(self) -> Place:
        return self._lines.place(self._at)


def _name(written: str) -> str:
    """Return a part of a key without its quotes."""
    if written[:1] not in {'"', "'"}:
        return written
    return next(iter(tomllib.loads(f"{written} = 0")))
