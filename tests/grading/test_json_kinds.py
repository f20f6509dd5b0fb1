import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import GradingError
from trioeval.grading import Assertion, check_assertion, grade
from trioeval.grading.kinds.json import LENIENT_KINDS
from trioeval.grading.schemas import document_faults, rules_of, schema_faults

NUMBER = {"type": "object", "required": ["a"], "properties": {"a": {"type": "number"}}}


@pytest.mark.parametrize(
    ("output", "kind", "value", "passes"),
    [
        ("42", "is-json", None, True),
        ('{"a":"x"}', "not-is-json", NUMBER, True),
        ('{"a":1}', "not-is-json", NUMBER, False),
        ("nope", "not-is-json", NUMBER, True),
        ('{"a":"x"} {a: 1}', "contains-json", NUMBER, True),
        ('{"a":"x"}', "not-contains-json", NUMBER, True),
        ("none", "contains-json", NUMBER, False),
        ("x", "is-json", "type: string", False),
        ('"x"', "is-json", "{{schema}}", True),
    ],
)
def test_outputs_are_judged_by_schema(output: str, kind: str, value: Any, *, passes: bool) -> None:
    """The value may be an object, YAML text, or a template of it."""
    verdict = grade(
        output,
        [Assertion(type=kind, value=value)],
        render=lambda text: "type: string" if "{{" in text else text,
    )
    assert verdict.passed is passes


@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        ({"properties": {"a": {"typ": 1}}}, ".value.properties.a.typ", "is not a keyword"),
        (
            {"$ref": "#/definitions/x", "definitions": {"x": {"foo": 1}}},
            ".value.definitions.x.foo",
            "is not a",
        ),
        ({"$ref": "#/definitions/x"}, ".value", "does not exist"),
        ({"$ref": "http://localhost/x"}, ".value", "disabled"),
        ({"type": "strin"}, ".value.type", '"strin" is not a JSON Schema type'),
        ({"minimum": "a"}, ".value", "the schema is invalid"),
        ({"format": "zork"}, ".value.format", "not a format"),
        ({"if": True}, ".value.if", "without"),
        ({"then": True}, ".value", "without"),
        ({"additionalItems": False}, ".value.additionalItems", "checks nothing"),
        ({"nullable": True}, ".value.nullable", "needs"),
        ({"$schema": "http://x"}, ".value.$schema", "not a known draft"),
        ("[1]", ".value", "must be an object"),
        ("{", ".value", "not YAML"),
    ],
)
def test_invalid_schemas_are_reported_at_load(schema: Any, path: str, message: str) -> None:
    """The message has the position in the schema."""
    (problem,) = check_assertion(Assertion(type="is-json", value=schema))
    assert problem.path == path
    assert message in problem.message


def test_without_strict_mode_unknown_words_are_ignored() -> None:
    """The metaschema still applies."""
    assert not list(
        check_assertion(
            Assertion(type="is-json", value={"foo": 1, "format": "zork"}), kinds=LENIENT_KINDS
        )
    )
    assert grade("1", [Assertion(type="is-json", value={"foo": 1})], kinds=LENIENT_KINDS).passed


@pytest.mark.parametrize("value", ["{", "foo: 1"])
def test_an_invalid_schema_in_a_row_is_an_error(value: str) -> None:
    """It is not a verdict on the output, also under `not-`."""
    with pytest.raises(GradingError, match="the schema"):
        grade("1", [Assertion(type="not-is-json", value="{{s}}")], render=lambda _: value)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "nullable": True}, None, 1),
        ({"format": "int32"}, 5, 2**31),
        ({"format": "float"}, 1.5, ...),
        (
            {"$ref": "#/definitions/a", "minLength": 2, "definitions": {"a": {"type": "string"}}},
            "xx",
            "x",
        ),
        (
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "prefixItems": [{"type": "null"}],
            },
            [None],
            [1],
        ),
        ({"items": [{"type": "null"}], "additionalItems": False}, [None], [None, 1]),
        ({"pattern": "^(a+)+$"}, "a", "a" * 50 + "b"),
        ({"format": "date-time"}, "2016-12-31 23:59:60Z", "2024-01-01T00:00:00"),
        ({"format": "time"}, "12:00:00+01:00", "12:00:00+25:00"),
        ({"format": "byte"}, "YQ==", "YQ"),
        (True, 1, ...),
    ],
)
def test_documents_are_validated(schema: Any, good: Any, bad: Any) -> None:
    """Schemas have the meaning that they have in JavaScript."""
    assert not list(schema_faults(schema))
    assert document_faults(good, schema) == []
    assert bad is ... or document_faults(bad, schema)


def nested(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"op": "pow", "args": [leaf]}
    return leaf


def operation(name: str) -> Any:
    arguments = {"type": "array", "items": {"$ref": "#/definitions/n"}}
    return {"required": ["op"], "properties": {"op": {"const": name}, "args": arguments}}


TREE = {
    "$ref": "#/definitions/n",
    "definitions": {"n": {"anyOf": [{"type": "number"}, *map(operation, ("add", "mul", "neg"))]}},
}
BOTH = {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}], "maxItems": 1}


def lists(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


@pytest.mark.parametrize(("document", "schema"), [(nested(40, 1), TREE), (lists(60, [1, 2]), BOTH)])
def test_too_many_faults_are_not_listed(document: Any, schema: Any) -> None:
    """Each level has several times the faults of the one below it; that there are some is still reported."""
    assert document_faults(document, schema) == [
        "too large, or with too many alternatives, to list its faults"
    ]


def test_a_fault_in_a_large_document_is_found_without_copies() -> None:
    """The document has three million characters, with a fault at each member."""
    document = [True] * 500_000
    schema = {"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "number"}}]}
    assert len(document_faults(document, schema)) == 1


def test_faults_in_few_levels_of_a_tree_are_listed() -> None:
    """They are listed as for any other schema."""
    (fault,) = document_faults(nested(2, 1), TREE)
    assert "'anyOf'" in fault


@given(st.recursive(st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)))
def test_only_an_invalid_document_has_a_fault(document: Any) -> None:
    """A valid one has none."""
    schema = {"anyOf": [{"type": "integer"}, {"items": {"$ref": "#"}, "minItems": 1}]}
    assert rules_of(schema).hold(document) is not bool(document_faults(document, schema))


def test_patterns_with_lookaround_on_long_texts_are_an_error() -> None:
    """Such patterns take quadratic time; a pattern without lookaround may search any text."""
    with pytest.raises(GradingError, match="too long for them"):
        document_faults(["a" * 32_000], {"items": {"pattern": "(?=a*b)x"}})
    assert document_faults("a" * 32_000, {"pattern": "^(a+)+$"}) == []
    assert document_faults("ab", {"pattern": "(?=a*b)x"})


_P = {"pattern": r"^(?:(a|aa)+x(?!y)|.*z)$"}
_LONG = "a" * 60 + "z"


@pytest.mark.parametrize("kind", ["is-json", "not-is-json", "contains-json", "not-contains-json"])
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"z": _P}},
        {"properties": {"z": {"not": _P}}},
        {"properties": {"z": {"not": {"oneOf": [{"not": _P}, {"type": "number"}]}}}},
        {"properties": {"z": {"not": {"$ref": "#/definitions/p"}}}, "definitions": {"p": _P}},
        {"patternProperties": {_P["pattern"]: {"type": "string"}}},
        {"not": {"propertyNames": _P}},
    ],
)
def test_a_pattern_that_takes_too_many_steps_is_an_error(kind: str, schema: Any) -> None:
    """The match is undetermined, so neither a type nor its opposite holds."""
    output = json.dumps({"z": _LONG, _LONG: 1})
    with pytest.raises(GradingError, match="takes more than 100,000 steps"):
        grade(output, [Assertion(type=kind, value=schema)])


@pytest.mark.parametrize(("text", "passes"), [("bz", True), ("b", False), ("aax", True)])
def test_a_pattern_with_lookaround_and_few_steps_is_judged(text: str, *, passes: bool) -> None:
    assert grade(json.dumps(text), [Assertion(type="is-json", value=_P)]).passed is passes


def test_too_many_steps_of_an_irrelevant_pattern_are_no_error() -> None:
    """Another alternative of the schema holds."""
    either = {"anyOf": [_P, {"type": "string"}]}
    assert grade(json.dumps(_LONG), [Assertion(type="is-json", value=either)]).passed
