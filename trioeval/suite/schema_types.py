"""Misspelt types in JSON Schemas of a suite: in tools, in response formats, in values of assertions.

Only a type that is clearly a slip or the word of another language is refused: vendors accept types of their
own, in capitals for instance.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.documents.mistakes import Mistake
from trioeval.documents.paths import DocumentPath
from trioeval.grading import quote

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_ALIASES = {
    "any": None,
    "arr": "array",
    "bool": "boolean",
    "dict": "object",
    "dictionary": "object",
    "double": "number",
    "float": "number",
    "hash": "object",
    "int": "integer",
    "list": "array",
    "long": "integer",
    "map": "object",
    "nil": "null",
    "none": "null",
    "nonetype": "null",
    "str": "string",
    "struct": "object",
    "text": "string",
    "tuple": "array",
}
"""Words of programming languages, with the type that they mean; None stands for a schema without a type."""
_SIMILAR = 0.8  # ratio of difflib from which a word counts as a misspelling
_DEEPEST = 200
_SCHEMAS = (
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


def schema_type_mistakes(schema: Any) -> Iterator[Mistake]:
    """Yield a mistake for each misspelt type in a JSON Schema.

    Example:
        >>> [mistake] = schema_type_mistakes({"properties": {"a": {"type": "strng"}}})
        >>> mistake.at, mistake.message, mistake.hint
        (('properties', 'a', 'type'), '"strng" is not a JSON Schema type', 'did you mean "string"?')
    """
    waiting: list[tuple[DocumentPath, Any]] = [((), schema)]
    while waiting:
        at, node = waiting.pop()
        if not isinstance(node, Mapping) or len(at) > _DEEPEST:
            continue
        types = node.get("type")
        for place, one in enumerate(types) if isinstance(types, list) else ():
            yield from _type_mistakes(one, (*at, "type", place))
        yield from _type_mistakes(types, (*at, "type"))
        inner = [((*at, key), node.get(key)) for key in _SCHEMAS]
        for key in _LISTS:
            parts = node.get(key)
            inner += (
                (((*at, key, place), part) for place, part in enumerate(parts or ()))
                if isinstance(parts, list)
                else ()
            )
        for key in _MAPS:
            parts = node.get(key)
            inner += (
                (((*at, key, name), part) for name, part in parts.items())
                if isinstance(parts, Mapping)
                else ()
            )
        waiting += reversed(inner)


def tool_type_mistakes(config: Any) -> Iterator[Mistake]:
    """Yield a mistake for each misspelt type in the tools and the response format of a provider's config."""
    for at, schema in _config_schemas(config):
        yield from (mistake.below(*at) for mistake in schema_type_mistakes(schema))


def _config_schemas(config: Any) -> Iterator[tuple[DocumentPath, Any]]:
    if not isinstance(config, Mapping):
        return
    for key in ("tools", "functions"):
        entries = config.get(key)
        for place, tool in enumerate(entries) if isinstance(entries, list) else ():
            for below, owner in (((), tool), (("function",), _member(tool, "function"))):
                for name in ("parameters", "input_schema", "inputSchema"):
                    yield (key, place, *below, name), _member(owner, name)
    for path in (
        ("response_format", "schema"),
        ("response_format", "json_schema", "schema"),
        ("text", "format", "schema"),
    ):
        schema: Any = config
        for step in path:
            schema = _member(schema, step)
        yield path, schema


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _type_mistakes(word: Any, at: DocumentPath) -> Iterator[Mistake]:
    if not isinstance(word, str) or word in TYPES or word.isupper():
        return
    folded = word.strip().casefold()
    if folded in _ALIASES and _ALIASES[folded] is None:
        meant: str | None = None
    elif folded in _ALIASES or folded in TYPES:
        meant = _ALIASES.get(folded, folded)
    elif close := difflib.get_close_matches(folded, TYPES, n=1, cutoff=_SIMILAR):
        meant = close[0]
    else:
        return
    hint = "leave the type out to allow any value" if meant is None else f'did you mean "{meant}"?'
    yield Mistake(f"{quote(word)} is not a JSON Schema type", hint, at=at)
