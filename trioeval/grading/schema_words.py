"""The vocabulary of JSON Schema: keywords by draft, places of subschemas, types."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.text import quote

_ALWAYS = """
    $comment $schema additionalItems additionalProperties allOf anyOf contentEncoding contentMediaType
    default definitions dependencies deprecated description enum examples exclusiveMaximum
    exclusiveMinimum format items maxItems maxLength maxProperties maximum minItems minLength
    minProperties minimum multipleOf not nullable oneOf pattern patternProperties properties readOnly
    required title type uniqueItems writeOnly $ref
"""
_SINCE_6 = "$id const contains propertyNames"
_SINCE_7 = "if then else contentSchema $defs $vocabulary"
_SINCE_2019 = """
    $anchor dependentRequired dependentSchemas maxContains minContains unevaluatedItems
    unevaluatedProperties
"""
_KEYWORDS: Mapping[str, frozenset[str]] = {
    draft: frozenset(" ".join(words).split())
    for draft, words in (
        ("draft-04", (_ALWAYS, "id")),
        ("draft-06", (_ALWAYS, _SINCE_6)),
        ("draft-07", (_ALWAYS, _SINCE_6, _SINCE_7)),
        ("2019-09", (_ALWAYS, _SINCE_6, _SINCE_7, _SINCE_2019, "$recursiveRef $recursiveAnchor")),
        (
            "2020-12",
            (_ALWAYS, _SINCE_6, _SINCE_7, _SINCE_2019, "$dynamicRef $dynamicAnchor prefixItems"),
        ),
    )
}

IN_PLACE = frozenset(
    """
    additionalItems additionalProperties contains contentSchema else if items not propertyNames then
    unevaluatedItems unevaluatedProperties
    """.split()  # noqa: SIM905 - a list would be ten lines
)
"""Keywords whose value is a schema."""
IN_LISTS = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
"""Keywords whose value is a list of schemas."""
IN_MAPPINGS = frozenset(
    ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
)
"""Keywords whose value maps names to schemas."""


def subschemas(schema: Mapping[str, Any], key: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the schemas that a keyword of a schema contains, with the steps to each.

    Example:
        >>> (
        ...     list(subschemas({"anyOf": [True, {}]}, "anyOf")),
        ...     list(subschemas({"enum": [{}]}, "enum")),
        ... )
        ([(('anyOf', 0), True), (('anyOf', 1), {})], [])
    """
    member = schema[key]
    if key in IN_MAPPINGS and isinstance(member, Mapping):
        yield from (((key, name), part) for name, part in member.items())
    elif key in IN_LISTS and isinstance(member, list | tuple):
        yield from (((key, place), part) for place, part in enumerate(member))
    elif key in IN_PLACE:
        yield (key,), member


JSON_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
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


def type_message(word: str) -> str:
    """Return the message about a word that is not a type."""
    return f"{quote(word)} is not a JSON Schema type"


def type_hint(word: str) -> str | None:
    """Return what to write in place of a misspelt type; None for types and words that resemble none.

    Example:
        >>> type_hint("strng"), type_hint("dict"), type_hint("string"), type_hint("quaternion")
        ('did you mean "string"?', 'did you mean "object"?', None, None)
    """
    if word in JSON_TYPES:
        return None
    folded = word.strip().casefold()
    if folded in _ALIASES and _ALIASES[folded] is None:
        return "leave the type out to allow any value"
    if folded in _ALIASES or folded in JSON_TYPES:
        return f'did you mean "{_ALIASES.get(folded, folded)}"?'
    close = difflib.get_close_matches(folded, JSON_TYPES, n=1, cutoff=_SIMILAR)
    return f'did you mean "{close[0]}"?' if close else None


def known_keywords(draft: str) -> frozenset[str]:
    """Return the keywords of a draft, such as `draft-07` or `2020-12`."""
    return _KEYWORDS[draft]
