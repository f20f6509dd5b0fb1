"""Misspelt types in JSON Schemas of a suite: in tools, in response formats, in values of assertions.

Only a type that is clearly a slip or the word of another language is refused: vendors accept types of their
own, in capitals for instance.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.documents.mistakes import Mistake
from trioeval.documents.paths import DocumentPath
from trioeval.grading.schema_words import subschemas, type_hint, type_message

_DEEPEST = 200


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
        inner = [((*at, *steps), part) for key in node for steps, part in subschemas(node, key)]
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
    if isinstance(word, str) and not word.isupper() and (hint := type_hint(word)) is not None:
        yield Mistake(type_message(word), hint, at=at)
