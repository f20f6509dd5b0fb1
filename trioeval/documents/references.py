"""`$ref`: references to other parts of a document, or to parts of other files.

The target of a reference replaces it; keys next to `$ref` override those of the target. The problem is size:
ten references to ten references soon expand to more values than fit into memory, although each is stored
once. So every value is counted with all that it expands to, and a document may grow only by a factor, as
with the aliases of YAML. Each target is resolved once; a target that is met again while it is being resolved
is a cycle.
"""

import re
import urllib.parse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import attrs

from trioeval.documents.files import FILE, FileContext
from trioeval.documents.merge import Origin
from trioeval.documents.mistakes import Mistake, MistakenError, kind, nearest
from trioeval.documents.paths import DocumentPath, show_path
from trioeval.documents.positions import DEEPEST, GROWTH, SHOWN_STEPS, too_deep
from trioeval.documents.read import Document, read_document
from trioeval.grading import quote

REFERENCE = "$ref"
_ROOT = "#"
_BY_SCHEMA = ("is-json", "not-is-json", "contains-json", "not-contains-json")
"""Assertion types whose value is a JSON Schema."""
_POSITION = re.compile(r"[0-9]{1,9}")
_SCHEME = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")


@attrs.frozen
class Resolved:
    """A value without references."""

    data: Any
    origin: Origin
    size: int = 1
    """The number of values in it, itself included; what several references share counts each time."""
    height: int = 0
    """Its nesting depth, including the references on the way."""


def resolve_references(
    origin: Origin, context: FileContext
) -> tuple[Any, list[Origin], Sequence[Mistake]]:
    """Replace the references in a suite's document; return the data, the other files and the mistakes.

    The mistakes are the references that cannot be resolved, lead outside or form a cycle, with their
    positions; null is in place of each.

    JSON Schemas of functions that a provider offers to its model keep their references. So does a schema in
    the value of an assertion, if a reference has no target in the document but one in the schema, and for
    `#`, which never means the suite.

    Raises:
        MistakenError: References make the document too large or too deep.
    """
    if REFERENCE not in origin.document.text:
        return origin.document.data, [], ()
    resolver = _ReferenceResolver(origin, context)
    resolved = resolver.resolve(origin, origin.document.data, 0)
    others = [found for found in resolver.files.values() if found is not origin]
    return resolved.data, others, tuple(resolver.mistakes.values())


class _ReferenceResolver:
    """Replaces the references of one document."""

    def __init__(self, origin: Origin, context: FileContext) -> None:
        self._suite = origin
        self._context = context
        self.files = {origin.file.absolute(): origin}
        """The files opened so far."""
        self.mistakes: dict[tuple[Document, DocumentPath, int], Mistake] = {}
        """By the reference; the same one may be met twice."""
        self._resolved: dict[tuple[Document, DocumentPath], Resolved] = {}
        self._open: dict[tuple[Document, DocumentPath], str] = {}
        """Targets that are being resolved, with the references to them."""
        self._schema: Any = None
        """The value of the assertion that is being walked through, if it is a JSON Schema."""
        self._is_whole = False
        """True inside of that value itself and at its root, false inside of the targets of its references."""
        self._seen = 0

    def resolve(self, origin: Origin, value: Any, depth: int) -> Resolved:
        """Return a value with all of its references replaced."""
        return self._walked(origin, value, (), depth)

    def _walked(self, origin: Origin, value: Any, at: DocumentPath, depth: int) -> Resolved:
        """Return the value at `at`, relative to the origin's value, with its references replaced."""
        self._seen += 1
        if not isinstance(value, dict | list) or (origin is self._suite and _is_signature(at)):
            return Resolved(value, origin)
        if depth >= DEEPEST:
            deep = origin.placed(attrs.evolve(too_deep(()), at=at))
            raise MistakenError(attrs.evolve(deep, at=deep.at[:SHOWN_STEPS]))
        if is_reference(value):
            return self._replaced(origin, value, at, depth)
        if isinstance(value, dict) and not isinstance(value.get(REFERENCE, ""), str | dict):
            # An object there is the property of that name in a JSON Schema.
            message = f"{REFERENCE} must be text, got {kind(value[REFERENCE])}"
            self._report(origin, at, Mistake(message))
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
            message = f"references expand {self._seen} values to {size}"
            mistake = Mistake(message, "use fewer references", at=at)
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
        """Return the target of a reference, with the keys next to it."""
        beside = {key: member for key, member in value.items() if key != REFERENCE}
        is_whole = self._is_whole
        try:
            source, found = self._find(origin, value[REFERENCE])
            self._is_whole = is_whole and value is self._schema
            target = self._target(source, found, value[REFERENCE], depth + 1)
        except _DanglingReferenceError as error:
            if _leads_within(self._schema, value[REFERENCE], is_whole=is_whole):
                walked = self._walked(origin, beside, at, depth)
                return attrs.evolve(walked, data={REFERENCE: value[REFERENCE], **walked.data})
            self._report(origin, at, *error.parts)
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

    def _report(self, origin: Origin, at: DocumentPath, *parts: Mistake) -> None:
        """Record the mistakes of the reference at `at`."""
        here = (origin.document, (*origin.path, *at))
        mistakes = [origin.placed(part.below(*at, REFERENCE)) for part in parts]
        self.mistakes |= {(*here, number): part for number, part in enumerate(mistakes)}

    def _target(self, origin: Origin, found: Any, reference: str, depth: int) -> Resolved:
        """Return the target of a reference, resolved once."""
        place = (origin.document, origin.path)
        if place in self._open:
            opened = list(self._open)
            way = [*list(self._open.values())[opened.index(place) :], reference]
            raise _DanglingReferenceError(
                Mistake(f"the references form a cycle: {' → '.join(way)}")
            )
        if place not in self._resolved:
            self._open[place] = reference
            self._resolved[place] = self._walked(origin, found, (), depth)
            del self._open[place]
        resolved = self._resolved[place]
        if depth + resolved.height > DEEPEST:
            raise _DanglingReferenceError(too_deep(()))
        return resolved

    def _find(self, origin: Origin, reference: str, hops: int = 0) -> tuple[Origin, Any]:
        """Return the origin and the value that a reference leads to."""
        if reference == _ROOT and isinstance(self._schema, dict):
            message = "the root of the schema here, but of the document that contains it"
            hint = "move the schema to a separate file: value: file://schema.json"
            raise _DanglingReferenceError(Mistake(f"{_ROOT} is not {message}", hint))
        name, _, fragment = reference.partition("#")
        found = Origin(origin.file, origin.document) if not name else self._opened(origin, name)
        value = found.document.data
        for token in fragment.split("/")[1:]:
            if is_reference(value):
                if hops >= DEEPEST:
                    raise _DanglingReferenceError(
                        Mistake(f"the references form a cycle: {reference}")
                    )
                found, value = self._find(found, value[REFERENCE], hops + 1)
            step, value = _descended(found, value, token, reference)
            found = attrs.evolve(found, path=(*found.path, step), grafts={})
        return found, value

    def _opened(self, origin: Origin, name: str) -> Origin:
        """Return the file that a reference names."""
        if scheme := _SCHEME.match(name):
            message = f"references to {scheme[0]} are not followed"
            raise _DanglingReferenceError(Mistake(message, "copy the target into a file"))
        try:
            path = self._context.below(origin.file.absolute()).file(name)
        except MistakenError as error:
            raise _DanglingReferenceError(*error.parts) from None
        if path not in self.files:
            self.files[path] = _read(path, origin.file.parent / name.removeprefix(FILE))
        return attrs.evolve(self.files[path], grafts={})


class _DanglingReferenceError(MistakenError):
    """A reference that cannot be resolved."""


def _read(path: Path, shown: Path) -> Origin:
    """Read another file, under the name that messages show."""
    try:
        origin = Origin(shown, read_document(path))
    except MistakenError as error:
        raise _DanglingReferenceError(
            *(attrs.evolve(part, file=shown) for part in error.parts)
        ) from None
    if origin.document.mistakes:
        raise _DanglingReferenceError(*map(origin.placed, origin.document.mistakes))
    return origin


def is_reference(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is a reference.

    Example:
        >>> is_reference({"$ref": "#/a"}), is_reference({"$ref": "#a"}), is_reference("#/a")
        (True, False, False)
    """
    if not (isinstance(value, dict) and isinstance(value.get(REFERENCE), str)):
        return False
    _, _, fragment = value[REFERENCE].partition("#")
    return fragment.startswith("/") or (not fragment and value[REFERENCE] != "")


def _is_signature(path: DocumentPath) -> bool:
    """Return whether a path is that of the parameters of a function that a provider offers to its model."""
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
    """Return whether a reference leads to a part of a JSON Schema that contains it, or to all of it."""
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
    """Return the member of a value that a token of a reference names, and its step in a path."""
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
            members = "1 member" if len(value) == 1 else f"{len(value)} members"
            hint = f"{shown} has {members}, counted from 0"
        case _:
            hint = f"{shown} is {kind(value)}"
    message = f"{reference} cannot be resolved: {shown} has no {quote(name)}"
    raise _DanglingReferenceError(Mistake(message, hint))
