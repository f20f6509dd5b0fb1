"""Where things stand in a JSON text.

The standard parser keeps no positions. This scanner walks a text that the parser has accepted, or would
but for repeated keys, and notes the offset of every value and key. Not a parser: it trusts its input.
"""

import re
from collections.abc import Generator, Iterator
from json.decoder import scanstring

import attrs

from trioeval.suite.paths import DocumentPath

_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]+")


@attrs.frozen
class _Found:
    path: DocumentPath
    value_at: int
    key_at: int | None
    """None for what stands in a list, and for the top."""


@attrs.frozen
class JsonPlaces:
    """Positions in one text; it is scanned anew for every question."""

    text: str

    def place(self, path: DocumentPath, *, key: bool = False) -> tuple[int, int] | None:
        """Line and column of the value at `path`, or of its key; None if it is not there."""
        for found in self._scan():
            if found.path == path:
                at = found.key_at if key and found.key_at is not None else found.value_at
                return self._line_and_column(at)
        return None

    def repeated_keys(self) -> Iterator[tuple[DocumentPath, tuple[int, int], tuple[int, int]]]:
        """Every key that stands twice in one object, with where it stood first and where again."""
        seen: dict[DocumentPath, int] = {}
        for found in self._scan():
            if found.key_at is None:
                continue
            if found.path in seen:
                first = self._line_and_column(seen[found.path])
                yield found.path, first, self._line_and_column(found.key_at)
            else:
                seen[found.path] = found.key_at

    def _line_and_column(self, at: int) -> tuple[int, int]:
        line = self.text.count("\n", 0, at) + 1
        return line, at - self.text.rfind("\n", 0, at)

    def _scan(self) -> Iterator[_Found]:
        yield from self._value(self._skip(0), (), None)

    def _value(self, at: int, path: DocumentPath, key_at: int | None) -> Generator[_Found, None, int]:
        yield _Found(path, at, key_at)
        match self.text[at]:
            case "{":
                return (yield from self._members(at, path, closing="}"))
            case "[":
                return (yield from self._members(at, path, closing="]"))
            case '"':
                return scanstring(self.text, at + 1)[1]
            case _:
                scalar = _SCALAR.match(self.text, at)
                return scalar.end() if scalar else at + 1

    def _members(self, at: int, path: DocumentPath, *, closing: str) -> Generator[_Found, None, int]:
        at, place = self._skip(at + 1), 0
        while self.text[at] != closing:
            step: str | int = place
            key_at = None
            if closing == "}":
                key_at = at
                step, at = scanstring(self.text, at + 1)
                at = self._skip(self._skip(at) + 1)
            at = self._skip((yield from self._value(at, (*path, step), key_at)))
            place += 1
            if self.text[at] == ",":
                at = self._skip(at + 1)
        return at + 1

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self.text, at)
        return space.end() if space else at
