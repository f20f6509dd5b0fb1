"""Several suites as one: lists are appended, objects merged with later files winning.

Duplicates of providers, and of prompts that are texts, are dropped. Every part keeps its
path in its own file.
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

# The sources of a document that was put together from several files.


@attrs.define(eq=False, repr=False)
class Origin:
    """The file that a value was read from, and the parts that references put into it from elsewhere."""

    file: Path
    document: Document
    path: DocumentPath = ()
    """The path of the value in that file."""
    grafts: dict[DocumentPath, "Origin | None"] = attrs.field(factory=dict)
    """The parts from elsewhere, by their paths in this value; None is this file again."""

    def trace(self, path: DocumentPath, *, key: bool = False) -> tuple["Origin", DocumentPath]:
        """Return the origin of the value at `path`, or of its key, and its path in that origin's file.

        The deepest graft above it decides; a part that was put into the grafted value is looked up there.
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
        """Return a mistake with its file, line, column and its path in that file."""
        if mistake.file is not None:
            return mistake
        origin, path = self.trace(mistake.at, key=mistake.key)
        root = origin.document.spots().root
        place = mistake.place or (root.find(path, key=mistake.key) if root else None)
        return attrs.evolve(mistake, file=origin.file, at=path, place=place)


EVERYTHING = "{{prompt}}"
"""The prompt of a suite that has none."""
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
"""The usual spelling of each key, by its other spellings."""


@attrs.frozen
class MergedPart:
    """The source of a part of the combined document."""

    origin: Origin
    """The file."""
    path: DocumentPath
    """Its path in that file."""

    def below(self, *steps: str | int) -> "MergedPart":
        """Return the source of a part of it."""
        return attrs.evolve(self, path=(*self.path, *steps))

    def placed(self, mistake: Mistake) -> Mistake:
        """Return a mistake of this part with its position in its file."""
        return self.origin.placed(attrs.evolve(mistake, at=(*self.path, *mistake.at)))


def combine(documents: Sequence[tuple[Mapping[str, Any], Origin]]) -> "Combined":
    """Combine several documents into one, each with the file it is from."""
    combined = Combined()
    named = any(document.get("prompts") is not None for document, _ in documents)
    for document, origin in documents:
        for key, value in document.items():
            combined.add(top_key(key), value, MergedPart(origin, (key,)))
        if named and document.get("prompts") is None:
            combined.add("prompts", EVERYTHING, MergedPart(origin, ()))
            message = f"no prompts here, so the prompt {EVERYTHING} is added"
            mistake = Mistake(message, "give it a prompt of the other files")
            combined.warnings.append(origin.placed(mistake))
    return combined


def top_key(key: str) -> str:
    """Return a top-level key in its usual spelling.

    Example:
        >>> top_key("targets"), top_key("default_test")
        ('providers', 'defaultTest')
    """
    return _NAMES.get(key, key)


@attrs.define(eq=False, repr=False)
class Combined:
    """Several documents as one; files are added one after another."""

    data: dict[str, Any] = attrs.field(factory=dict)
    parts: dict[DocumentPath, MergedPart] = attrs.field(factory=dict)
    """By the path in `data`; parts without an entry are from the first file."""
    warnings: list[Mistake] = attrs.field(factory=list)
    """Warnings, with their positions."""
    _seen: set[tuple[str, str, Path | None]] = attrs.field(factory=set)
    """Providers and prompts so far; those that name files also have their folder."""

    def add(self, name: str, value: Any, part: MergedPart) -> None:
        """Add a top-level key of a file; null counts as absent."""
        if value is None and name in _KNOWN:
            return
        data = self.data
        self.parts.setdefault((name,), part)
        earlier = data.get(name)
        match name:
            case "providers" | "prompts":
                entries = [
                    (entry, part)
                    for entry, part in _entries(_spelled_out(name, value), part)
                    if self._is_new(name, entry, part)
                ]
                data[name] = self._joined((name,), earlier, entries)
            case _ if name in _LISTS:
                data[name] = self._joined((name,), earlier, _entries(value, part))
            case _ if name in _OBJECTS:
                data[name] = self._merged((name,), earlier, value, part)
            case "defaultTest":
                data[name] = self._default_test(earlier, value, part)
            case "description" if isinstance(earlier, str) and isinstance(value, str):
                data[name] = f"{earlier}, {value}"
            case _:
                data[name] = value
                self.parts[name,] = part

    def _is_new(self, name: str, entry: Any, part: MergedPart) -> bool:
        """Return whether no equal entry was added before. Prompts that are objects are never equal."""
        if name == "prompts" and not isinstance(entry, str):
            return True
        text = json.dumps(entry)
        mark = (name, text, part.origin.file.absolute().parent if FILE in text else None)
        known = mark in self._seen
        self._seen.add(mark)
        return not known

    def _default_test(self, earlier: Any, value: Any, part: MergedPart) -> Any:
        """Merge objects as tests inherit. A text names a file; objects have no effect if there is one."""
        if isinstance(earlier, str) and isinstance(value, dict):
            message = f"has no effect beside the file {quote(earlier)}"
            self.warnings.append(part.placed(Mistake(message, key=True)))
            return earlier
        at = ("defaultTest",)
        if not (isinstance(earlier, dict) and isinstance(value, dict)):
            return self._merged(at, earlier, value, part)
        inherited: dict[str, Any] = {}
        for key in earlier.keys() & value.keys():
            before, member = earlier[key], value[key]
            if key == "assert" and isinstance(before, list):
                inherited[key] = self._joined((*at, key), before, _entries(member, part.below(key)))
            elif key in _INHERITED and isinstance(before, dict) and isinstance(member, dict):
                inherited[key] = self._merged((*at, key), before, member, part.below(key))
        rest = {key: member for key, member in value.items() if key not in inherited}
        return self._merged(at, earlier, rest, part) | inherited

    def _joined(
        self, at: DocumentPath, earlier: Any, entries: Sequence[tuple[Any, MergedPart]]
    ) -> list[Any]:
        found = [] if earlier is None else list(earlier)
        for entry, part in entries:
            self.parts[*at, len(found)] = part
            found.append(entry)
        return found

    def _merged(self, at: DocumentPath, earlier: Any, value: Any, part: MergedPart) -> Any:
        if earlier is not None and not (isinstance(earlier, dict) and isinstance(value, dict)):
            self.parts[at] = part
            return value
        self.parts.setdefault(at, part)
        if not isinstance(value, dict):
            return value
        for key in value:
            self.parts[*at, key] = part.below(key)
        return {**(earlier or {}), **value}


def _spelled_out(name: str, value: Any) -> Any:
    """Return prompts written as files with labels as a list of prompts."""
    if name == "prompts" and isinstance(value, dict) and "raw" not in value:
        return [{"raw": file, "label": label} for file, label in value.items()]
    return value


def _entries(value: Any, part: MergedPart) -> list[tuple[Any, MergedPart]]:
    """Return the members of a list, with their sources; a value that is not a list is the only member."""
    if not isinstance(value, list):
        return [(value, part)]
    return [(member, part.below(position)) for position, member in enumerate(value)]
