"""`$ref`: parts of a document that stand elsewhere in it, or in another file.

What a reference leads to takes its place; keys beside `$ref` are put over it. The problem is size: ten
references to ten references are soon more values than there is memory for, although each is kept once.
So every value is counted with all that it stands for, and a document may grow by a factor only, as with
the aliases of YAML. Each target is resolved once; one that is met again while it is being resolved is a
circle.
"""

import re
import urllib.parse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import attrs

from trioeval.documents.files import FILE, Around
from trioeval.documents.merge import Origin
from trioeval.documents.mistakes import Mistake, MistakenError, kind, nearest
from trioeval.documents.paths import DocumentPath, show_path
from trioeval.documents.positions import DEEPEST, SHOWN_STEPS, too_deep
from trioeval.documents.read import Document, read_document
from trioeval.documents.yaml import GROWTH
from trioeval.grading import quote

REFERENCE = "$ref"
_ROOT = "#"
_BY_SCHEMA = ("is-json", "not-is-json", "contains-json", "not-contains-json")
"""Types of assertions whose value is a JSON Schema."""
_POSITION = re.compile(r"[0-9]{1,9}")
_SCHEME = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")


@attrs.frozen
class Resolved:
    """A value without references."""

    data: Any
    origin: Origin
    size: int = 1
    """Values in it, itself included; what several references share counts each time."""
    height: int = 0
    """Levels of it, references on the way to them included."""


def resolve_references(
    origin: Origin, around: Around
) -> tuple[Any, list[Origin], Sequence[Mistake]]:
    """The data of a suite's document with its references replaced, and the other files they are from.

    The last of the three are the references that lead nowhere, outside or in a circle, placed in their files;
    null is in place of each.

    JSON Schemas of functions that a provider offers to its model keep theirs. So does one that an assertion
    gives as its value, where a reference leads nowhere in the document, but somewhere in the schema, and
    where it is `#`, which is never the suite.

    Raises:
        MistakenError: References make the document too large or too deep.
    """
    if REFERENCE not in origin.document.text:
        return origin.document.data, [], ()
    resolver = _Resolver(origin, around)
    resolved = resolver.resolve(origin, origin.document.data, 0)
    others = [found for found in resolver.files.values() if found is not origin]
    return resolved.data, others, tuple(resolver.mistakes.values())


class _Resolver:
    """Replaces the references of one document."""

    def __init__(self, origin: Origin, around: Around) -> None:
        self._suite = origin
        self._around = around
        self.files = {origin.file.absolute(): origin}
        """The files looked at so far, as wholes."""
        self.mistakes: dict[tuple[Document, DocumentPath, int], Mistake] = {}
        """By the reference; the same one may be met twice."""
        self._resolved: dict[tuple[Document, DocumentPath], Resolved] = {}
        self._open: dict[tuple[Document, DocumentPath], str] = {}
        """Targets that are being resolved, with the references to them."""
        self._schema: Any = None
        """The value of an assertion that is being walked through, where it is a JSON Schema."""
        self._is_whole = False
        """Whether what is walked through stands in that value itself, or is all of it."""
        self._seen = 0

    def resolve(self, origin: Origin, value: Any, depth: int) -> Resolved:
        """A value with all that its references lead to."""
        return self._walked(origin, value, (), depth)

    def _walked(self, origin: Origin, value: Any, at: DocumentPath, depth: int) -> Resolved:
        """The value at `at` in that of the origin."""
        self._seen += 1
        if not isinstance(value, dict | list) or (origin is self._suite and _is_signature(at)):
            return Resolved(value, origin)
        if depth >= DEEPEST:
            deep = origin.placed(attrs.evolve(too_deep(()), at=at))
            raise MistakenError(attrs.evolve(deep, at=deep.at[:SHOWN_STEPS]))
        if is_reference(value):
            return self._replaced(origin, value, at, depth)
        if isinstance(value, dict) and not isinstance(value.get(REFERENCE, ""), str | dict):
            # An object is the property of that name in a JSON Schema.
            message = f"{REFERENCE} must be text, got {kind(value[REFERENCE])}"
            self._tell(origin, at, Mistake(message))
            return Resolved(None, origin)
        members: list[Resolved] = []
        for step, member in _members(value):
            outer = self._schema, self._is_whole
            if step == "value" and _is_judged_by_schema(value):
                self._schema, self._is_whole = member, True
            members.append(self._walked(origin, member, (*at, step), depth + 1))
            self._schema, self._is_whole = outer
        data = [member.data for member in members]
        size = 1 + sum(member.size for member in members)
        if size > GROWTH * self._seen:
            message = f"references make {size} values of {self._seen}"
            mistake = Mistake(message, "write less with references", at=at)
            raise MistakenError(origin.placed(mistake))
        return Resolved(
            dict(zip(value, data, strict=True)) if isinstance(value, dict) else data,
            origin,
            size,
            1 + max((member.height for member in members), default=0),
        )

    def _replaced(
        self, origin: Origin, value: dict[str, Any], at: DocumentPath, depth: int
    ) -> Resolved:
        """What a reference stands for, with the keys beside it."""
        beside = {key: member for key, member in value.items() if key != REFERENCE}
        is_whole = self._is_whole
        try:
            source, found = self._find(origin, value[REFERENCE])
            self._is_whole = is_whole and value is self._schema
            target = self._target(source, found, value[REFERENCE], depth + 1)
        except _AstrayError as error:
            if _leads_within(self._schema, value[REFERENCE], is_whole=is_whole):
                kept = self._walked(origin, beside, at, depth)
                return attrs.evolve(kept, data={REFERENCE: value[REFERENCE], **kept.data})
            self._tell(origin, at, *error.parts)
            return Resolved(None, origin)
        finally:
            self._is_whole = is_whole
        origin.grafts[at] = target.origin
        if not (beside and isinstance(target.data, dict)):
            return attrs.evolve(target, height=target.height + 1)
        origin.grafts |= {(*at, key): None for key in beside}
        own = self._walked(origin, beside, at, depth)
        return Resolved(
            own.data | {key: part for key, part in target.data.items() if key not in beside},
            origin,
            own.size + target.size,
            1 + max(own.height, target.height),
        )

    def _tell(self, origin: Origin, at: DocumentPath, *parts: Mistake) -> None:
        """What is wrong with the reference at `at`."""
        here = (origin.document, (*origin.path, *at))
        mistakes = [origin.placed(part.below(*at, REFERENCE)) for part in parts]
        self.mistakes |= {(*here, number): part for number, part in enumerate(mistakes)}

    def _target(self, origin: Origin, found: Any, reference: str, depth: int) -> Resolved:
        """What a reference leads to, resolved once."""
        place = (origin.document, origin.path)
        if place in self._open:
            opened = list(self._open)
            way = [*list(self._open.values())[opened.index(place) :], reference]
            raise _AstrayError(Mistake(f"the references go in a circle: {' → '.join(way)}"))
        if place not in self._resolved:
            self._open[place] = reference
            self._resolved[place] = self._walked(origin, found, (), depth)
            del self._open[place]
        resolved = self._resolved[place]
        if depth + resolved.height > DEEPEST:
            raise _AstrayError(too_deep(()))
        return resolved

    def _find(self, origin: Origin, reference: str, hops: int = 0) -> tuple[Origin, Any]:
        """Where a reference leads, and the value there."""
        if reference == _ROOT and isinstance(self._schema, dict):
            what = "the root of the schema here, but of what it is put together from"
            hint = "give the schema a file of its own: value: file://schema.json"
            raise _AstrayError(Mistake(f"{_ROOT} is not {what}", hint))
        name, _, fragment = reference.partition("#")
        found = Origin(origin.file, origin.document) if not name else self._opened(origin, name)
        value = found.document.data
        for token in fragment.split("/")[1:]:
            if is_reference(value):
                if hops >= DEEPEST:
                    raise _AstrayError(Mistake(f"the references go in a circle: {reference}"))
                found, value = self._find(found, value[REFERENCE], hops + 1)
            step, value = _descended(found, value, token, reference)
            found = attrs.evolve(found, path=(*found.path, step), grafts={})
        return found, value

    def _opened(self, origin: Origin, name: str) -> Origin:
        """The file that a reference names."""
        if scheme := _SCHEME.match(name):
            message = f"references to {scheme[0]} are not followed"
            raise _AstrayError(Mistake(message, "copy what it leads to into a file"))
        try:
            path = self._around.below(origin.file.absolute()).file(name)
        except MistakenError as error:
            raise _AstrayError(*error.parts) from None
        if path not in self.files:
            self.files[path] = _read(path, origin.file.parent / name.removeprefix(FILE))
        return attrs.evolve(self.files[path], grafts={})


class _AstrayError(MistakenError):
    """A reference that cannot be followed."""


def _read(path: Path, shown: Path) -> Origin:
    """The document in another file, under the name by which messages call it."""
    try:
        origin = Origin(shown, read_document(path))
    except MistakenError as error:
        raise _AstrayError(*(attrs.evolve(part, file=shown) for part in error.parts)) from None
    if origin.document.mistakes:
        raise _AstrayError(*map(origin.placed, origin.document.mistakes))
    return origin


def is_reference(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a value stands for what is elsewhere.

    Example:
        >>> is_reference({"$ref": "#/a"}), is_reference({"$ref": "#a"}), is_reference("#/a")
        (True, False, False)
    """
    if not (isinstance(value, dict) and isinstance(value.get(REFERENCE), str)):
        return False
    _, _, fragment = value[REFERENCE].partition("#")
    return fragment.startswith("/") or (not fragment and value[REFERENCE] != "")


def _is_signature(path: DocumentPath) -> bool:
    """Whether the parameters of a function stand here that a provider offers to its model."""
    if path[:1] not in {("providers",), ("targets",)}:
        return False
    match path[2:] if "config" in path[2:3] else path[3:]:
        case ("config", "functions", int(), "parameters"):
            return True
        case ("config", "tools", int(), "function", "parameters"):
            return True
        case _:
            return False


def _is_judged_by_schema(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in _BY_SCHEMA


def _leads_within(schema: Any, reference: str, *, is_whole: bool) -> bool:
    """Whether a reference leads to a part of a JSON Schema that it may stand in, or to all of it."""
    if reference == _ROOT:
        return is_whole
    if not isinstance(schema, dict) or not reference.startswith("#/"):
        return False
    for token in reference.split("/")[1:]:
        name = _name(token)
        if not isinstance(schema, dict) or name not in schema:
            return False
        schema = schema[name]
    return True


def _members(value: dict[str, Any] | list[Any]) -> Iterable[tuple[str | int, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _name(token: str) -> str:
    return urllib.parse.unquote(token).replace("~1", "/").replace("~0", "~")


def _descended(origin: Origin, value: Any, token: str, reference: str) -> tuple[str | int, Any]:
    """One step down from the value at an origin."""
    name = _name(token)
    shown = show_path(origin.path)
    match value:
        case dict() if name in value:
            return name, value[name]
        case list() if _POSITION.fullmatch(name) and int(name) < len(value):
            return int(name), value[int(name)]
        case dict():
            hint = nearest(name, value)
        case list():
            hint = f"{shown} has {len(value)}, counted from 0"
        case _:
            hint = f"{shown} is {kind(value)}"
    message = f"{reference} leads nowhere: there is no {quote(name)} in {shown}"
    raise _AstrayError(Mistake(message, hint))
