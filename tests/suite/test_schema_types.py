"""Misspelt types in JSON Schemas are reported with a suggestion."""

from typing import Any

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import parse_suite
from trioeval.suite.schema_types import schema_type_mistakes, tool_type_mistakes


def problems(**keys: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parse_suite({"providers": ["echo"], **keys})
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("strng", 'did you mean "string"?'),
        ("String", 'did you mean "string"?'),
        ("str", 'did you mean "string"?'),
        ("int", 'did you mean "integer"?'),
        ("float", 'did you mean "number"?'),
        ("bool", 'did you mean "boolean"?'),
        ("list", 'did you mean "array"?'),
        ("dict", 'did you mean "object"?'),
        ("None", 'did you mean "null"?'),
        ("any", "leave the type out to allow any value"),
    ],
)
def test_a_misspelt_type_is_reported_with_a_suggestion(word: str, hint: str) -> None:
    [mistake] = schema_type_mistakes({"type": word})
    assert mistake.message == f'"{word}" is not a JSON Schema type'
    assert (mistake.at, mistake.hint) == (("type",), hint)


def test_types_are_found_in_every_nested_schema() -> None:
    wrong = {"type": "strng"}
    schema = {
        "type": ["object", "nil"],
        "properties": {"type": wrong, "a": {"items": wrong}},
        "anyOf": [{"type": "string"}, wrong],
        "$defs": {"d": {"not": wrong}},
    }
    assert sorted(mistake.at for mistake in schema_type_mistakes(schema)) == [
        ("$defs", "d", "not", "type"),
        ("anyOf", 1, "type"),
        ("properties", "a", "items", "type"),
        ("properties", "type", "type"),
        ("type", 1),
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"type": {"type": "string"}}},
        {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
        {"type": "quaternion"},
        {"enum": ["strng"], "const": {"type": "strng"}, "default": {"type": "strng"}},
        {"type": 5},
        {"properties": [{"type": "strng"}]},
        True,
        "type: strng",
        None,
    ],
)
def test_other_values_are_left_to_the_vendor(schema: Any) -> None:
    """Types in capitals are those of Gemini; a word that resembles no type is not a misspelling."""
    assert list(schema_type_mistakes(schema)) == []


def test_types_of_tools_and_of_response_formats_are_checked() -> None:
    wrong = {"properties": {"a": {"type": "strng"}}}
    config = {
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": wrong}},
            {"name": "g", "input_schema": wrong},
            "file://tools.json",
        ],
        "functions": [{"name": "h", "parameters": wrong}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": wrong}},
    }
    assert [mistake.at[:-3] for mistake in tool_type_mistakes(config)] == [
        ("tools", 0, "function", "parameters"),
        ("tools", 1, "input_schema"),
        ("functions", 0, "parameters"),
        ("response_format", "json_schema", "schema"),
    ]
    assert list(tool_type_mistakes({"tools": "auto", "functions": [None], "text": "x"})) == []


def test_a_suite_is_refused_with_the_position_of_the_type() -> None:
    """It is reported once: the validator of schemas does not report it again."""
    provider = {"id": "echo", "config": {"functions": [{"parameters": {"type": "dict"}}]}}
    schema = {"properties": {"a": {"type": "strng"}}}
    assert problems(
        providers=[provider],
        tests=[
            {"assert": [{"type": "is-json", "value": schema}]},
            {"assert": [{"type": "not-contains-json", "value": "type: objct"}]},
        ],
    ) == [
        (
            '$.providers[0].config.functions[0].parameters.type: "dict" is not a JSON Schema type\n'
            '  did you mean "object"?'
        ),
        (
            '$.tests[0].assert[0].value.properties.a.type: "strng" is not a JSON Schema type\n'
            '  did you mean "string"?'
        ),
        ('$.tests[1].assert[0].value: "objct" is not a JSON Schema type\n  did you mean "object"?'),
    ]
