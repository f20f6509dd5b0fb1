"""What it may cost to tell what is wrong with a document by a schema.

Whether a document is valid is found out once for each of its parts. To tell the faults of alternatives,
though, each of them is followed wherever it leads, and a copy of the part is kept with each fault. Where
alternatives lead back to the schema that they stand in, there are several times as many ways for each level
of the document, and a reply of 200 characters would take gigabytes. So the ways are weighed first, for which
each pair of a schema and a part is looked at once.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_MOST = 1_000_000
"""Weight of all ways: a way weighs about as much as the characters of its part."""
_MOST_PAIRS = 10_000
_DEEPEST = 200
"""Levels of schemas and parts together."""
_WAY = 64
"""Weight of a way to a part of no size."""

_SAME_PART = ("not", "if", "then", "else")
_SAME_PART_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_PART_MAPPINGS = ("dependencies", "dependentSchemas")
_MEMBERS = ("additionalProperties", "unevaluatedProperties")
_ITEMS = ("items", "additionalItems", "unevaluatedItems", "contains")


def can_be_told(document: Any, schema: Any) -> bool:
    """Whether the faults of a document can be told in little time and memory.

    Example:
        >>> can_be_told([["x"]], {"items": {"$ref": "#"}})
        True
        >>> nested = []
        >>> for _ in range(30):
        ...     nested = [nested]
        >>> can_be_told(nested, {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]})
        False
    """
    try:
        _Ways(schema).weight(schema, document, 0)
    except _TooManyError:
        return False
    return True


class _TooManyError(Exception):
    """There are more ways than can be followed, or it cannot be seen where they lead."""


class _Ways:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._weights: dict[tuple[int, int], int] = {}
        self._sizes: dict[int, int] = {}

    def weight(self, schema: Any, part: Any, depth: int) -> int:
        """That of all ways from a schema and a part of the document on."""
        if not isinstance(schema, Mapping):
            return _WAY
        pair = (id(schema), id(part))
        if pair in self._weights:
            return self._weights[pair]
        if depth > _DEEPEST or len(self._weights) > _MOST_PAIRS:
            raise _TooManyError
        self._weights[pair] = 0  # a circle that goes no deeper is no way
        weight = _WAY + self._size(part, depth)
        for onward, below in self._onward(schema, part):
            weight += self.weight(onward, below, depth + 1)
            if weight > _MOST:
                raise _TooManyError
        self._weights[pair] = weight
        return weight

    def _onward(self, schema: Mapping[str, Any], part: Any) -> Iterator[tuple[Any, Any]]:
        for key in ("$ref", "$recursiveRef", "$dynamicRef"):
            if key in schema:
                yield self._target(schema[key]), part
        for onward in _in_place(schema):
            yield onward, part
        if isinstance(part, dict):
            yield from _in_object(schema, part)
        elif isinstance(part, list):
            yield from _in_list(schema, part)

    def _target(self, reference: Any) -> Any:
        if reference == "#":
            return self._root
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise _TooManyError
        found = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise _TooManyError
            found = found[name]
        return found

    def _size(self, part: Any, depth: int) -> int:
        """About the characters of a part."""
        if isinstance(part, str):
            return len(part)
        if not isinstance(part, dict | list):
            return 1
        if id(part) not in self._sizes:
            if depth > _DEEPEST:
                raise _TooManyError
            members = part.values() if isinstance(part, dict) else part
            self._sizes[id(part)] = 2 + sum(self._size(member, depth + 1) for member in members)
        return self._sizes[id(part)]


def _in_place(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key in _SAME_PART:
        if key in schema:
            yield schema[key]
    for key in _SAME_PART_LISTS:
        yield from schema.get(key, ())
    for key in _SAME_PART_MAPPINGS:
        yield from schema.get(key, {}).values()


def _in_object(schema: Mapping[str, Any], part: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    properties = schema.get("properties", {})
    for name, member in part.items():
        if name in properties:
            yield properties[name], member
        for key in _MEMBERS:
            if key in schema:
                yield schema[key], member
        for onward in schema.get("patternProperties", {}).values():
            yield onward, member
        if "propertyNames" in schema:
            yield schema["propertyNames"], name


def _in_list(schema: Mapping[str, Any], part: list[Any]) -> Iterator[tuple[Any, Any]]:
    for key in _ITEMS:
        onward = schema.get(key)
        if isinstance(onward, Mapping):
            for member in part:
                yield onward, member
    for key in ("items", "prefixItems"):
        if isinstance(schema.get(key), list):
            yield from zip(schema[key], part, strict=False)
