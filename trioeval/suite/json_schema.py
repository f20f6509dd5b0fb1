"""The JSON Schema of suite files, for editors: made from the models that the loader fills.

It says what shapes there are: keys, types, bounds, choices. What it takes may still be wrong in meaning,
such as a lane that there is not; what it refuses, the loader refuses too, and a test holds them to that.
Where objects, lists and their entries are asked for, a `$ref` may stand for them, or for a part of them.
The descriptions are the words under the fields of the models.
"""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import attrs

from trioeval.grading import KINDS, Assertion
from trioeval.grading.algebra import SET
from trioeval.grading.model import HEAVIEST
from trioeval.suite.bounds import AtLeast
from trioeval.suite.keys import (
    DEFINITIONS,
    NOT_YET_IN_LANES,
    WITHOUT_MEANING,
    WITHOUT_MEANING_IN_OPTIONS,
)
from trioeval.suite.models import (
    BudgetSettings,
    CommandLineOptions,
    DerivedMetric,
    EvaluateOptions,
    LaneSettings,
    Prompt,
    ProviderEntry,
    Scenario,
    Suite,
    Test,
    TestOptions,
)
from trioeval.suite.strict import camel, snake
from trioeval.suite.structure import NOT_IN_FILES
from trioeval.suite.task_entries import PROMPT_EVAL

Shape: TypeAlias = dict[str, Any]

_TEXT: Shape = {"type": "string"}
_SOME_TEXT: Shape = {"type": "string", "pattern": r"\S"}
_NOTHING: Shape = {"type": "null"}
_EMPTY: Shape = {"enum": [None, "", [], {}]}
_REFERENCE: Shape = {"$ref": "#/$defs/Reference"}
_SCALARS: Shape = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
_TEXTS: Shape = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_WORDS: Shape = {"anyOf": [_TEXT, {"type": "number"}]}
_PROVIDER_FORMS = ("id", "label", "config", "lane", "prompts", "delay", "transform", "env")


def suite_schema() -> Shape:
    """The schema, of draft 2020-12.

    Example:
        >>> options = suite_schema()["$defs"]["EvaluateOptions"]["properties"]
        >>> options["maxConcurrency"]["anyOf"][0]["minimum"]
        1
    """
    top = _object(
        Suite,
        without=NOT_IN_FILES,
        shapes={
            "description": _WORDS,
            "providers": _or(*_listed(_ref(ProviderEntry))["anyOf"], _NOTHING),
            "prompts": _or(
                {"type": "array", "minItems": 1, "items": _ref(Prompt)},
                _SOME_TEXT,
                _labels(),
                _NOTHING,
            ),
            "tests": _tests(),
            "scenarios": _listed(_or(_ref(Scenario), _TEXT)),
            "default_test": _or(_ref(Test), _TEXT),
            "env": _SCALARS,
            "tags": _SCALARS,
            "output_path": _TEXTS,
            "extensions": _TEXTS,
            "tasks": {"type": "array", "items": {"$ref": "#/$defs/Task"}},
        },
    )
    options = _object(EvaluateOptions)["properties"]
    top["properties"] |= {
        "targets": top["properties"]["providers"],
        **{name: options[name] for name in ("serialize", "registerScope", "register_scope")},
        **dict.fromkeys((*WITHOUT_MEANING, *DEFINITIONS), True),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A suite of trioeval",
        **_with_references(top),
        "patternProperties": {"^x-": True},
        "anyOf": [
            _has("providers", without=("targets", "tasks")),
            _has("targets", without=("providers", "tasks")),
            _has("tasks", without=("prompts", "scenarios", "tests")),
            {"required": ["$ref"]},
        ],
        "$defs": {
            **{name: _with_references(shape) for name, shape in _definitions().items()},
            "Reference": _reference(),
        },
    }


def _has(key: str, *, without: Collection[str]) -> Shape:
    """A file with something in a key, and nothing in others."""
    nothing = dict.fromkeys(without, _NOTHING)
    return {"required": [key], "properties": {key: {"not": _EMPTY}, **nothing}}


def _with_references(shape: Shape) -> Shape:
    """The same, with references allowed in place of objects and of lists and their entries."""
    match shape:
        case {"type": "object", **rest}:
            known = {
                key: part if isinstance(part, bool) else _with_references(part)
                for key, part in rest.pop("properties", {}).items()
            }
            if isinstance(other := rest.get("additionalProperties"), dict):
                rest["additionalProperties"] = _with_references(other)
            if required := rest.pop("required", None):
                rest["anyOf"] = [{"required": required}, {"required": ["$ref"]}]
            return {"type": "object", **rest, "properties": {**known, "$ref": _TEXT}}
        case {"type": "array", "items": entry, **rest}:
            items = _with_references(entry)
            if not _may_be_object(entry):
                items = _or(_REFERENCE, items)
            return {**rest, "anyOf": [_REFERENCE, {"type": "array", "items": items}]}
        case {"anyOf": parts, **rest}:
            return {**rest, "anyOf": [_with_references(part) for part in parts]}
        case _:
            return shape


def _may_be_object(shape: Shape) -> bool:
    """Whether objects are asked for, which have a `$ref` of their own."""
    if "anyOf" in shape:
        return any(map(_may_be_object, shape["anyOf"]))
    return "$ref" in shape or shape.get("type") == "object"


def _reference() -> Shape:
    return {
        "type": "object",
        "description": "What stands in another place of the file, or in another file.",
        "required": ["$ref"],
        "properties": {"$ref": _TEXT},
    }


def _definitions() -> dict[str, Shape]:
    several = ("env_file", "env_path", "extension", "filter_metadata", "output")
    flags = {"tags": _SCALARS, "var": _SCALARS, **dict.fromkeys(several, _TEXTS)}
    found = {
        LaneSettings: _object(LaneSettings, not_yet=NOT_YET_IN_LANES),
        BudgetSettings: _object(BudgetSettings),
        EvaluateOptions: _run_options(),
        CommandLineOptions: _object(CommandLineOptions, shapes=flags),
        Assertion: _assertion(),
        ProviderEntry: _provider(),
        Prompt: _prompt(),
        TestOptions: _options(),
        Test: _object(
            Test,
            renamed={"assertions": "assert"},
            without={"fault", "judge"},
            shapes={
                "description": _WORDS,
                "vars": {"type": ["object", "string", "array", "null"]},
                "provider_output": {},
            },
        ),
        DerivedMetric: _object(DerivedMetric),
        Scenario: _object(
            Scenario,
            shapes={
                "description": _WORDS,
                "config": _listed(_or(_ref(Test), _TEXT)),
                "tests": _tests(),
            },
        ),
    }
    task = {
        "type": "object",
        "required": ["type"],
        "properties": {
            "id": _or_nothing(_TEXT),
            "type": {"enum": [PROMPT_EVAL]},
            "dependsOn": _or_nothing(_TEXTS),
        },
    }
    return {model.__name__: shape for model, shape in found.items()} | {"Task": task}


def _run_options() -> Shape:
    shape = _object(EvaluateOptions)
    for key in WITHOUT_MEANING_IN_OPTIONS:
        shape["properties"] |= {key: True, snake(key): True}
    return shape


def _provider() -> Shape:
    """An id, an object with one, or an object whose one key is the id."""
    settings = _object(ProviderEntry, shapes={"id": _SOME_TEXT, "env": _SCALARS})
    by_id: Shape = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "propertyNames": {"not": {"enum": list(_PROVIDER_FORMS)}},
        "additionalProperties": _or(
            {
                **settings,
                "required": [],
                "properties": {k: part for k, part in settings["properties"].items() if k != "id"},
            },
            _NOTHING,
        ),
    }
    return {"description": settings.pop("description"), "anyOf": [_SOME_TEXT, settings, by_id]}


def _prompt() -> Shape:
    """A text or the name of a file, or an object with it."""
    kept = {"given_id": "id", "id": None, "function": None}
    shape = _object(Prompt, renamed=kept, shapes={"raw": _SOME_TEXT})
    shape["properties"] = {name: _or(part, _NOTHING) for name, part in shape["properties"].items()}
    del shape["required"]
    return {"description": shape.pop("description"), "anyOf": [_SOME_TEXT, shape]}


def _assertion() -> Shape:
    members = {"type": "array", "items": _ref(Assertion)}
    shape = _object(Assertion, renamed={"assertions": "assert"}, shapes={"assertions": members})
    types = sorted(KINDS)
    known = [*types, *(f"not-{name}" for name in types if KINDS[name].invertible), SET]
    named = shape["properties"]["type"]
    # Any other may be one that the suite brings.
    named |= {"anyOf": [{"enum": known}, {"type": named.pop("type")}]}
    number = shape["properties"]["weight"]["anyOf"][0]
    number |= {"minimum": 0, "maximum": HEAVIEST}
    return shape


def _options() -> Shape:
    """Switches, and any key of a provider's config."""
    shape = _object(TestOptions, without={"overrides"})
    shape["properties"]["postprocess"] = shape["properties"]["transform"]
    return {**shape, "additionalProperties": True}


def _labels() -> Shape:
    """Files of prompts with their labels."""
    return {"type": "object", "additionalProperties": {"type": ["string", "null"]}}


def _tests() -> Shape:
    """A list of tests and of files with them, or one of these."""
    source: Shape = {
        "type": "object",
        "required": ["path"],
        "properties": {"path": _TEXT, "config": {}},
        "additionalProperties": False,
    }
    entry = _or(_ref(Test), _TEXT, source)
    return _or({"type": "array", "items": entry}, entry)


def _object(
    model: type,
    *,
    renamed: Mapping[str, str | None] | None = None,
    without: Collection[str] = (),
    not_yet: Collection[str] = (),
    shapes: Mapping[str, Shape] | None = None,
) -> Shape:
    """A JSON object with the fields of a model as keys, in both spellings.

    Args:
        model: An attrs class.
        renamed: Keys of fields that are called otherwise; None for one that is not in files.
        without: Fields that are not in files.
        not_yet: Keys in which nothing may stand.
        shapes: What fields are that are written otherwise than their type says.
    """
    renamed = {**({} if renamed is None else renamed), **dict.fromkeys(without)}
    shapes = {} if shapes is None else shapes
    described = _descriptions(model)
    properties: dict[str, Shape] = {
        spelling: _EMPTY for key in not_yet for spelling in (key, snake(key))
    }
    required: list[str] = []
    for field in attrs.fields(model):
        key = renamed.get(field.name, camel(field.name))
        if key is None:
            continue
        shape = dict(shapes[field.name] if field.name in shapes else _typed(field.type))
        if field.default is not attrs.NOTHING:
            shape = _or_nothing(shape)
        if text := described.get(field.name):
            shape["description"] = text
        properties |= {key: shape, snake(key): shape}
        if field.default is attrs.NOTHING and model is not Suite:
            required.append(key)
    return {
        "type": "object",
        "description": inspect.getdoc(model),
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _typed(wanted: Any) -> Shape:
    """The shape of what the strict converter makes a type of."""
    if wanted is Any:
        return {}
    if attrs.has(wanted):
        return _ref(wanted)
    named = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
    if wanted in named:
        return {"type": named[wanted]}
    arguments: Sequence[Any] = get_args(wanted)
    origin = get_origin(wanted)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Annotated:
        return _typed(arguments[0]) | _bounds(arguments[1])
    if origin is tuple:
        return {"type": "array", "items": _typed(arguments[0])}
    if origin in {UnionType, Union}:
        return _or(*map(_typed, arguments))
    # Mappings are all that is left.
    return {"type": "object", "additionalProperties": _typed(arguments[1])}


def _bounds(bound: AtLeast) -> Shape:
    return {"exclusiveMinimum" if bound.above else "minimum": bound.least}


def _ref(model: type) -> Shape:
    return {"$ref": f"#/$defs/{model.__name__}"}


def _or(*shapes: Shape) -> Shape:
    return {"anyOf": list(shapes)}


def _or_nothing(shape: Shape) -> Shape:
    """The shape, or null."""
    match shape:
        case {"anyOf": parts}:
            return shape if _NOTHING in parts else _or(*parts, _NOTHING)
        case {"$ref": _} | {"enum": _} | {"type": str()}:
            return _or(shape, _NOTHING)
        case _:
            return shape


def _listed(entry: Shape) -> Shape:
    """A list of entries, or one text without a list around it."""
    return _or({"type": "array", "items": entry}, _TEXT)


def _descriptions(model: type) -> dict[str, str]:
    """The words under the fields of a model."""
    source = textwrap.dedent(inspect.getsource(model))
    (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = " ".join(words.split())
            case _:
                pass
    return found
