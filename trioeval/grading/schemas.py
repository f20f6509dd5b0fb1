"""JSON schemas of a suite: the problems of a schema, and the problems of a document under a schema.

Draft 7 unless `$schema` says otherwise; formats are asserted. An unknown keyword would silently check
nothing, so it is a fault, like everything else that the common strict mode rejects: unknown formats, `if`
without `then` or `else`, `additionalItems` without a list of schemas. Only what is reachable from the root is
checked.

Schemas for JavaScript differ in a few things, which are rewritten: `nullable`, formats of numbers, and
keywords beside `$ref`, which drafts before 2019 ignore. Nothing is ever downloaded.

The verdict and its reason are separate: the verdict takes bounded time for any document, and the reason is
left out if it would not.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.flow_yaml import read_yaml
from trioeval.grading.schema_formats import FORMATS, NUMBER_FORMATS, TEXT_FORMATS
from trioeval.grading.schema_words import (
    IN_LISTS,
    IN_MAPPINGS,
    IN_PLACE,
    JSON_TYPES,
    known_keywords,
    type_hint,
    type_message,
)
from trioeval.text import json_text, quote

# The cost of explaining the faults of a document.
#
# Whether a document is valid is determined once for each of its parts. To list the faults of alternatives,
# though, each alternative is followed to its end, and a copy of the part is kept with each fault. If
# alternatives lead back to the schema that contains them, the number of paths multiplies at each level of the
# document, and a reply of 200 characters would take gigabytes. So the paths are weighed first, which visits
# each pair of a schema and a part once.


_MOST = 1_000_000
"""Weight of all paths: a path weighs about as much as the characters of its part."""
_MOST_PAIRS = 10_000
_SCHEMA_COST_DEEPEST = 200
"""Levels of schemas and parts together."""
_WAY = 64
"""Weight of a path to an empty part."""

_SAME_PART = ("not", "if", "then", "else")
_SAME_PART_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_PART_MAPPINGS = ("dependencies", "dependentSchemas")
_MEMBERS = ("additionalProperties", "unevaluatedProperties")
_ITEMS = ("items", "additionalItems", "unevaluatedItems", "contains")


def can_list_faults(document: Any, schema: Any) -> bool:
    """Return whether the faults of a document can be listed in little time and memory.

    Example:
        >>> can_list_faults([["x"]], {"items": {"$ref": "#"}})
        True
        >>> nested = []
        >>> for _ in range(30):
        ...     nested = [nested]
        >>> can_list_faults(nested, {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]})
        False
    """
    try:
        _Ways(schema).weight(schema, document, 0)
    except _TooManyError:
        return False
    return True


class _TooManyError(Exception):
    """There are too many paths to follow, or their targets are unknown."""


class _Ways:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._weights: dict[tuple[int, int], int] = {}
        self._sizes: dict[int, int] = {}

    def weight(self, schema: Any, part: Any, depth: int) -> int:
        """Return the weight of all paths from a schema and a part of the document."""
        if not isinstance(schema, Mapping):
            return _WAY
        pair = (id(schema), id(part))
        if pair in self._weights:
            return self._weights[pair]
        if depth > _SCHEMA_COST_DEEPEST or len(self._weights) > _MOST_PAIRS:
            raise _TooManyError
        self._weights[pair] = 0  # a circle that goes no deeper adds no path
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
        """Return about the characters of a part."""
        if isinstance(part, str):
            return len(part)
        if not isinstance(part, dict | list):
            return 1
        if id(part) not in self._sizes:
            if depth > _SCHEMA_COST_DEEPEST:
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


_DEEPEST = 100
_BACKTRACKING = 100_000
"""Steps of a pattern."""
_EXCEEDED = "BacktrackLimitExceeded"
"""The library's name for a pattern that would take more."""
_TOLD = 3
"""Faults of a document that are listed."""
_UNTOLD = "too large, or with too many alternatives, to list its faults"
_MOST_SQUARES = 1_000_000_000
"""Most squared lengths of texts, for patterns with lookaround: a second, or one text of 31,000 characters."""
_LOOKS_AROUND = re.compile(r"\(\?<?[=!]|\\\\[1-9k]")
"""Applied to JSON text."""
_KEPT = 64


def schema_of(value: Any) -> Any:
    """Return the schema in a value: itself, or the content of its JSON or YAML text; None for an empty one.

    Raises:
        ValueError: The text is neither.

    Example:
        >>> schema_of("type: string"), schema_of("")
        ({'type': 'string'}, None)
    """
    if isinstance(value, str):
        return read_yaml(value) if value else None
    return value


def schema_faults(schema: Any, *, strict: bool = True) -> Iterator[Problem]:
    """Yield the problems of a schema; paths start at its root, such as `.properties.a`."""
    if not isinstance(schema, Mapping | bool):
        yield Problem("", f"a schema must be an object, got {quote(schema)}")
        return
    walk = _SchemaWalk(schema, strict=strict)
    walk.node(schema, "", 0)
    yield from walk.faults
    if not walk.faults:
        try:
            _validator(json_text(schema), strict)
        except ValueError as error:
            yield Problem("", f"the schema is invalid: {_first_line(error)}")


def schema_problems(
    at: str,
    written: Any,
    *,
    right: str = "a JSON schema",
    strict: bool = True,
    optional: bool = False,
) -> Iterator[Problem]:
    """Yield the problems of a schema in a suite.

    Args:
        at: Its path.
        written: A schema, or its text, whose parts have no paths.
        right: What it must be, for the message.
        strict: True if unknown keywords and formats are faults.
        optional: True if it may be empty.
    """
    try:
        schema = schema_of(written)
    except ValueError as error:
        yield Problem(at, f"must be {right}, got text that is not YAML: {error}")
        return
    if schema is None and optional:
        return
    for fault in schema_faults(schema, strict=strict):
        where = fault.path if isinstance(written, Mapping) else ""
        yield attrs.evolve(fault, path=f"{at}{where}")


def document_faults(document: Any, schema: Any, *, strict: bool = True) -> list[str]:
    """Return the first faults of a document under a schema; empty if it is valid.

    Raises:
        GradingError: They cannot be determined in bounded time.
        ValueError: The schema is invalid.

    Example:
        >>> document_faults({"a": "x"}, {"properties": {"a": {"type": "number"}}})
        ['.a: "x" is not of type "number"']
    """
    rules = rules_of(schema, strict=strict)
    return [] if rules.hold(document) else rules.faults(document)


def rules_of(schema: Any, *, strict: bool = True) -> "CompiledSchema":
    """Compile a schema, to check many documents with it.

    Raises:
        ValueError: The schema is invalid.
    """
    return _validator(json_text(schema), strict)


@attrs.frozen
class CompiledSchema:
    """A compiled schema that checks any document in bounded time."""

    _validator: Any
    _schema: Any
    _looks_around: bool
    """True if patterns have lookaround or references, and so may take quadratic time."""

    def hold(self, document: Any) -> bool:
        """Return whether a document is valid.

        Raises:
            GradingError: It cannot be determined in bounded time.
        """
        if self._looks_around and _squares(document) > _MOST_SQUARES:
            msg = "the schema has patterns with lookaround, and the output is too long for them"
            raise GradingError(msg)
        if self._validator.is_valid(document):
            return True
        # A pattern that needs too many steps makes the whole document invalid, also below `not`.
        if self._looks_around:
            self._check_steps(document)
        return False

    def _check_steps(self, document: Any) -> None:
        """Raise `GradingError` if a document may be invalid because of the steps of a pattern."""
        if not can_list_faults(document, self._schema):
            msg = (
                "the schema has patterns with lookaround, and too many alternatives for the output"
            )
            raise GradingError(msg)
        errors = self._validator.iter_errors(document)
        if any(type(error.kind).__name__ == _EXCEEDED for error in errors):
            msg = f"a pattern of the schema takes more than {_BACKTRACKING:,} steps on the output"
            raise GradingError(msg)

    def faults(self, document: Any) -> list[str]:
        """Return the first faults of an invalid document; never empty."""
        if not can_list_faults(document, self._schema):
            return [_UNTOLD]
        first = itertools.islice(self._validator.iter_errors(document), _TOLD)
        return [f"{_path(error.instance_path)}{error.message}"[:200] for error in first]


def _squares(document: Any) -> int:
    """Return the sum of the squared lengths of all texts in a document."""
    total, waiting = 0, [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            total += len(part) ** 2
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            waiting += part
            waiting += part.values()
    return total


def _path(steps: Any) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return f"{path}: " if path else ""


# Many rows are judged with the same few schemas.
@lru_cache(_KEPT)
def _validator(schema_text: str, strict: bool) -> CompiledSchema:  # noqa: FBT001 - a cache key
    import jsonschema_rs

    schema = json.loads(schema_text)
    walk = _SchemaWalk(schema, strict=strict)
    rewritten = walk.node(schema, "", 0)
    if walk.faults:
        fault = walk.faults[0]
        msg = f"{fault.path}: {fault.message}" if fault.path else fault.message
        raise ValueError(msg)
    drafts = {
        "draft-04": jsonschema_rs.Draft4Validator,
        "draft-06": jsonschema_rs.Draft6Validator,
        "2019-09": jsonschema_rs.Draft201909Validator,
        "2020-12": jsonschema_rs.Draft202012Validator,
    }
    draft = drafts.get(walk.draft, jsonschema_rs.Draft7Validator)
    validator = draft(
        rewritten,
        validate_formats=True,
        formats=dict(TEXT_FORMATS),
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKING),
        offline=True,
    )
    return CompiledSchema(validator, rewritten, bool(_LOOKS_AROUND.search(schema_text)))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class _SchemaWalk:
    """A traversal of a schema that collects faults, and rewrites it."""

    def __init__(self, root: Any, *, strict: bool) -> None:
        self.faults: list[Problem] = []
        declared = root.get("$schema") if isinstance(root, Mapping) else None
        self.draft = next(
            (
                name
                for name in ("draft-04", "draft-06", "2019-09", "2020-12")
                if name in str(declared)
            ),
            "draft-07",
        )
        if declared is not None and self.draft == "draft-07" and "draft-07" not in str(declared):
            self._fault(".$schema", f"{quote(declared)} is not a known draft")
        self._known = known_keywords(self.draft)
        self._strict = strict
        self._root = root
        self._reached: set[str] = set()
        self._reports = True
        """True if the traversed part is reachable from the root."""

    def _fault(self, path: str, message: str, hint: str | None = None) -> None:
        self.faults.append(Problem(path, message, hint))

    def node(self, schema: Any, path: str, depth: int) -> Any:
        """Return the schema to check with; add its faults."""
        if depth > _DEEPEST:
            self._fault("", "the schema is nested too deeply")
            return schema
        if not isinstance(schema, Mapping):
            # A value that is not a schema at all is reported by the metaschema.
            return schema
        made = {key: self._member(key, member, path, depth) for key, member in schema.items()}
        if self._reports:
            if self._strict:
                self._check_words(schema, path)
            self._check_types(schema.get("type"), f"{path}.type")
            self._follow(schema.get("$ref"), depth)
        return self._rewritten(schema, made)

    def _member(self, key: Any, member: Any, path: str, depth: int) -> Any:
        below = f"{path}.{key}"
        if key in IN_MAPPINGS and isinstance(member, Mapping):
            if key in ("definitions", "$defs"):
                return {name: self._unreached(part, depth) for name, part in member.items()}
            return {
                name: self.node(part, f"{below}.{name}", depth + 1) for name, part in member.items()
            }
        if key in IN_LISTS and isinstance(member, list | tuple):
            return [
                self.node(part, f"{below}[{place}]", depth + 1) for place, part in enumerate(member)
            ]
        return self.node(member, below, depth + 1) if key in IN_PLACE else member

    def _unreached(self, schema: Any, depth: int) -> Any:
        """Rewrite a schema without reporting faults, which are reported where it is referenced."""
        reports, self._reports = self._reports, False
        made = self.node(schema, "", depth + 1)
        self._reports = reports
        return made

    def _follow(self, reference: Any, depth: int) -> None:
        if (
            not isinstance(reference, str)
            or not reference.startswith("#/")
            or reference in self._reached
        ):
            return
        self._reached.add(reference)
        target = self._root
        for step in reference[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")  # noqa: PLW2901 - read as it is meant
            if not isinstance(target, Mapping) or step not in target:
                return
            target = target[step]
        self.node(target, f".{reference[2:].replace('/', '.')}", depth + 1)

    def _check_types(self, types: Any, path: str) -> None:
        """Report misspelt types; other values of `type` are left to the metaschema."""
        for place, name in enumerate(types) if isinstance(types, list | tuple) else [(None, types)]:
            if isinstance(name, str) and name not in JSON_TYPES:
                at = path if place is None else f"{path}[{place}]"
                hint = type_hint(name) or f"the types are {', '.join(JSON_TYPES)}"
                self._fault(at, type_message(name), hint)

    def _check_words(self, schema: Mapping[str, Any], path: str) -> None:
        for key in schema:
            if key not in self._known:
                hint = "leave it out, or correct its name: it would check nothing"
                self._fault(f"{path}.{key}", f"{quote(key)} is not a keyword of JSON Schema", hint)
        form = schema.get("format")
        if isinstance(form, str) and form not in FORMATS:
            self._fault(f"{path}.format", f"{quote(form)} is not a format that can be checked")
        if "if" in schema and not ("then" in schema or "else" in schema):
            self._fault(f"{path}.if", '"if" checks nothing without "then" or "else"')
        if ("then" in schema or "else" in schema) and "if" not in schema:
            self._fault(path, '"then" and "else" check nothing without "if"')
        if "additionalItems" in schema and not isinstance(schema.get("items"), list | tuple):
            message = '"additionalItems" checks nothing unless "items" is a list of schemas'
            self._fault(f"{path}.additionalItems", message)
        if "nullable" in schema and "type" not in schema:
            self._fault(f"{path}.nullable", '"nullable" needs "type" beside it')

    def _rewritten(self, schema: Mapping[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        extra: list[Any] = []
        if made.pop("nullable", False) is True and "type" in made:
            types = made["type"]
            made["type"] = [*([types] if isinstance(types, str) else types), "null"]
        form = schema.get("format")
        if isinstance(form, str) and form in NUMBER_FORMATS:
            del made["format"]
            extra.append({"anyOf": [{"not": {"type": "number"}}, NUMBER_FORMATS[form]]})
        if "$ref" in made and len(made) > 1 and self.draft in ("draft-04", "draft-06", "draft-07"):
            extra.append({"$ref": made.pop("$ref")})
        if extra:
            made["allOf"] = [*made.get("allOf", ()), *extra]
        return made
