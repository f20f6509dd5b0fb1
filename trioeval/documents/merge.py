"""Several suites as one: lists are appended, objects merged with later files winning.

Of equal providers, and of equal prompts that are texts, one stays. Everything keeps the path by which it
can be found in its own file.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents.files import FILE
from trioeval.documents.mistakes import Mistake
from trioeval.documents.paths import DocumentPath
from trioeval.documents.read import Document
from trioeval.documents.structure import snake
from trioeval.grading import quote

# Where the parts of a document come from that was put together from several places.


@attrs.define(eq=False)
class Origin:
    """The text that a value was read from, and what was put into it from elsewhere."""

    file: Path
    document: Document = attrs.field(repr=False)
    path: DocumentPath = ()
    """Where the value stands in that file."""
    grafts: dict[DocumentPath, "Origin | None"] = attrs.field(factory=dict)
    """What stands elsewhere, by where it was put in this value; None is this text again."""

    def trace(self, path: DocumentPath, *, key: bool = False) -> tuple["Origin", DocumentPath]:
        """Who wrote the value at `path`, or its key: the origin, and the path in the file of that.

        The deepest graft above it decides; what was put into the grafted value is looked up there.
        """
        deepest = len(path) - 1 if key and path else len(path)
        for depth in range(deepest, -1, -1):
            if path[:depth] not in self.grafts:
                continue
            graft = self.grafts[path[:depth]]
            if graft is None:
                break
            return graft.trace(path[depth:], key=key)
        return self, (*self.path, *path)

    def placed(self, mistake: Mistake) -> Mistake:
        """The same mistake in the file that it is in, with line, column and the path there."""
        if mistake.file is not None:
            return mistake
        origin, path = self.trace(mistake.at, key=mistake.key)
        root = origin.document.spots().root
        place = mistake.place or (root.find(path, key=mistake.key) if root else None)
        return attrs.evolve(mistake, file=origin.file, at=path, place=place)


EVERYTHING = "{{prompt}}"
"""The prompt of a suite that names none."""
_LISTS = frozenset({"tests", "scenarios", "derivedMetrics", "extensions", "outputPath", "tasks"})
_OBJECTS = frozenset(
    {
        "env",
        "evaluateOptions",
        "commandLineOptions",
        "metadata",
        "tags",
        "nunjucksFilters",
        "lanes",
    }
)
_KNOWN = _LISTS | _OBJECTS | {"providers", "prompts", "defaultTest", "description"}
_INHERITED = frozenset({"vars", "options", "metadata"})
_NAMES = {"targets": "providers"} | {
    snake(name): name for name in _LISTS | _OBJECTS | {"defaultTest"}
}
"""Keys by other spellings of them."""


@attrs.frozen
class Piece:
    """The source of a part of several documents put together."""

    origin: Origin
    """The file."""
    path: DocumentPath
    """Where it stands there."""

    def below(self, *steps: str | int) -> "Piece":
        """A part of it."""
        return attrs.evolve(self, path=(*self.path, *steps))

    def placed(self, mistake: Mistake) -> Mistake:
        """A mistake of this part in its file."""
        return self.origin.placed(attrs.evolve(mistake, at=(*self.path, *mistake.at)))


def combine(documents: Sequence[tuple[Mapping[str, Any], Origin]]) -> "Combined":
    """One document of several, each with the file that it is from."""
    combined = Combined()
    named = any(document.get("prompts") is not None for document, _ in documents)
    for document, origin in documents:
        for key, value in document.items():
            combined.add(top_key(key), value, Piece(origin, (key,)))
        if named and document.get("prompts") is None:
            combined.add("prompts", EVERYTHING, Piece(origin, ()))
            message = f"there are no prompts here, so {EVERYTHING} is asked as well"
            mistake = Mistake(message, "name a prompt of the other files")
            combined.warnings.append(origin.placed(mistake))
    return combined


def top_key(key: str) -> str:
    """A key at the top of a file in its usual spelling.

    Example:
        >>> top_key("targets"), top_key("default_test")
        ('providers', 'defaultTest')
    """
    return _NAMES.get(key, key)


@attrs.define(eq=False)
class Combined:
    """Several documents as one, to which file after file is added."""

    data: dict[str, Any] = attrs.field(factory=dict)
    pieces: dict[DocumentPath, Piece] = attrs.field(factory=dict)
    """By the path in `data`; what is not in it is from the first file."""
    warnings: list[Mistake] = attrs.field(factory=list)
    """What is odd, placed in its file."""
    _seen: set[tuple[str, str, Path | None]] = attrs.field(factory=set)
    """Providers and prompts so far; those that name files are told apart by the folder."""

    def add(self, name: str, value: Any, piece: Piece) -> None:
        """A key at the top of a file; null is as good as nothing."""
        if value is None and name in _KNOWN:
            return
        data = self.data
        self.pieces.setdefault((name,), piece)
        held = data.get(name)
        match name:
            case "providers" | "prompts":
                entries = [
                    (entry, part)
                    for entry, part in _entries(_spelled_out(name, value), piece)
                    if self._is_new(name, entry, part)
                ]
                data[name] = self._joined((name,), held, entries)
            case _ if name in _LISTS:
                data[name] = self._joined((name,), held, _entries(value, piece))
            case _ if name in _OBJECTS:
                data[name] = self._merged((name,), held, value, piece)
            case "defaultTest":
                data[name] = self._default_test(held, value, piece)
            case "description" if isinstance(held, str) and isinstance(value, str):
                data[name] = f"{held}, {value}"
            case _:
                data[name] = value
                self.pieces[name,] = piece

    def _is_new(self, name: str, entry: Any, piece: Piece) -> bool:
        """Whether no equal entry came before. Prompts that are objects are never equal."""
        if name == "prompts" and not isinstance(entry, str):
            return True
        text = json.dumps(entry)
        mark = (name, text, piece.origin.file.absolute().parent if FILE in text else None)
        known = mark in self._seen
        self._seen.add(mark)
        return not known

    def _default_test(self, held: Any, value: Any, piece: Piece) -> Any:
        """Objects are merged as tests inherit; a text names a file, beside which objects have no effect."""
        if isinstance(held, str) and isinstance(value, dict):
            message = f"has no effect beside the file {quote(held)}"
            self.warnings.append(piece.placed(Mistake(message, key=True)))
            return held
        at = ("defaultTest",)
        if not (isinstance(held, dict) and isinstance(value, dict)):
            return self._merged(at, held, value, piece)
        inherited: dict[str, Any] = {}
        for key in held.keys() & value.keys():
            before, member = held[key], value[key]
            if key == "assert" and isinstance(before, list):
                inherited[key] = self._joined(
                    (*at, key), before, _entries(member, piece.below(key))
                )
            elif key in _INHERITED and isinstance(before, dict) and isinstance(member, dict):
                inherited[key] = self._merged((*at, key), before, member, piece.below(key))
        rest = {key: member for key, member in value.items() if key not in inherited}
        return self._merged(at, held, rest, piece) | inherited

    def _joined(
        self, at: DocumentPath, held: Any, entries: Sequence[tuple[Any, Piece]]
    ) -> list[Any]:
        found = [] if held is None else list(held)
        for entry, piece in entries:
            self.pieces[*at, len(found)] = piece
            found.append(entry)
        return found

    def _merged(self, at: DocumentPath, held: Any, value: Any, piece: Piece) -> Any:
        if held is not None and not (isinstance(held, dict) and isinstance(value, dict)):
            self.pieces[at] = piece
            return value
        self.pieces.setdefault(at, piece)
        if not isinstance(value, dict):
            return value
        for key in value:
            self.pieces[*at, key] = piece.below(key)
        return {**(held or {}), **value}


def _spelled_out(name: str, value: Any) -> Any:
    """Prompts that are files with labels as a list of prompts."""
    if name == "prompts" and isinstance(value, dict) and "raw" not in value:
        return [{"raw": file, "label": label} for file, label in value.items()]
    return value


def _entries(value: Any, piece: Piece) -> list[tuple[Any, Piece]]:
    """The members of a list; what is none counts as one member."""
    if not isinstance(value, list):
        return [(value, piece)]
    return [(member, piece.below(position)) for position, member in enumerate(value)]
