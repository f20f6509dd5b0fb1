"""The JSON Schema of suite files, for editors, generated from the models of the loader.

`python tests/suite_schema.py` writes it into the package, which includes it and does not need this module.

It describes keys, types, bounds and choices. A file that it accepts may still be semantically invalid, for
example with an unknown lane; a file that it rejects is also rejected by the loader, which a test checks. In
place of objects, lists and their entries, or parts of them, a `$ref` is allowed. The descriptions are the
docstrings of the fields of the models.
"""

import ast
import inspect
import itertools
import json
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs

from trioeval.agent.model import AgentSettings, Case
from trioeval.columns.column_form import KINDS as COLUMN_KINDS
from trioeval.columns.column_form import SAMPLER, SAMPLERS, TYPE
from trioeval.columns.model import ColumnsSettings, ErrorWindow, Processor, Score, Skip
from trioeval.documents.structure import (
    ALSO,
    SOME_TEXT,
    TEXT,
    BothSpellings,
    Form,
    Shape,
    Texts,
    Words,
    camel,
    either,
    fields_beside,
    fields_by_key,
    snake,
)
from trioeval.grading import KINDS, Assertion
from trioeval.grading.algebra import SET
from trioeval.grading.model import HEAVIEST
from trioeval.limits.model import MOST, SPANS, LimitKey, SharedLimit
from trioeval.loading.tasks import AGENT, COLUMNS, PROMPT_EVAL, QUESTION_EVAL
from trioeval.question_eval.form import ROWS_KEY
from trioeval.question_eval.model import QuestionBudget, QuestionSettings, Tool
from trioeval.suite.dependencies import FailedDependency
from trioeval.suite.form import DEFINITIONS, IGNORED_KEYS, IGNORED_OPTIONS, NOT_YET_IN_LANES
from trioeval.suite.model import (
    BatchSettings,
    BudgetSettings,
    CommandLineOptions,
    DerivedMetric,
    EvaluateOptions,
    LaneSettings,
    LimitsSettings,
    Prompt,
    ProviderEntry,
    RowsOfTask,
    RunLimits,
    Scenario,
    Suite,
    Test,
    TestOptions,
)
from trioeval.suite.rows_of_task import QuestionsOfTask

SHIPPED = Path(__file__).parent.parent / "trioeval/loading/suite-schema.json"
_REFERENCE: Shape = {"$ref": "#/$defs/Reference"}
_PROVIDER_FORMS = ("id", "label", "config", "lane", "prompts", "delay", "transform", "env")


def suite_schema() -> Shape:
    """Return the schema, of draft 2020-12."""
    top = object_shape(
        Suite,
        needed=False,
        shapes={
            "providers": either(*listed(ref(ProviderEntry))["anyOf"], NOTHING),
            "prompts": or_nothing(_prompts()),
            "tests": _tests(),
            "scenarios": listed(either(ref(Scenario), TEXT)),
            "default_test": either(ref(Test), TEXT),
            "tasks": {"type": "array", "items": {"$ref": "#/$defs/Task"}},
        },
    )
    options = object_shape(EvaluateOptions)["properties"]
    top["properties"] |= {
        "targets": top["properties"]["providers"],
        **{name: options[name] for name in ("serialize", "registerScope", "register_scope")},
        **dict.fromkeys((*IGNORED_KEYS, *DEFINITIONS), True),
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
    """Return the condition of a file with a value in a key, and none in others."""
    nothing = dict.fromkeys(without, NOTHING)
    return {"required": [key], "properties": {key: {"not": EMPTY}, **nothing}}


def _with_references(shape: Shape) -> Shape:
    """Return a schema with references allowed in place of objects, lists and their entries."""
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
            return {"type": "object", **rest, "properties": {**known, "$ref": TEXT}}
        case {"type": "array", "items": entry, **rest}:
            items = _with_references(entry)
            if not _may_be_object(entry):
                items = either(_REFERENCE, items)
            return {**rest, "anyOf": [_REFERENCE, {"type": "array", "items": items}]}
        case {"anyOf": parts, **rest}:
            return {**rest, "anyOf": [_with_references(part) for part in parts]}
        case _:
            return shape


def _may_be_object(shape: Shape) -> bool:
    """Return whether a schema accepts objects, which have their own `$ref`."""
    if "anyOf" in shape:
        return any(map(_may_be_object, shape["anyOf"]))
    return "$ref" in shape or shape.get("type") == "object"


def _reference() -> Shape:
    return {
        "type": "object",
        "description": "What stands in another place of the file, or in another file.",
        "required": ["$ref"],
        "properties": {"$ref": TEXT},
    }


def _definitions() -> dict[str, Shape]:
    found = {
        LaneSettings: object_shape(LaneSettings, not_yet=NOT_YET_IN_LANES),
        SharedLimit: _limit(),
        LimitKey: _limits_key(),
        BatchSettings: object_shape(BatchSettings),
        LimitsSettings: object_shape(LimitsSettings),
        QuestionBudget: object_shape(QuestionBudget),
        Tool: object_shape(Tool),
        BudgetSettings: object_shape(BudgetSettings),
        EvaluateOptions: _run_options(),
        CommandLineOptions: object_shape(CommandLineOptions),
        Assertion: _assertion(),
        ProviderEntry: _provider(),
        Prompt: _prompt(),
        TestOptions: object_shape(TestOptions),
        Test: object_shape(Test),
        Case: _case(),
        RunLimits: object_shape(RunLimits),
        DerivedMetric: object_shape(DerivedMetric),
        Scenario: object_shape(
            Scenario,
            shapes={
                "config": listed(either(ref(Test), TEXT)),
                "tests": _tests(),
            },
        ),
    }
    tasks = [_prompt_task(), _question_task(), _columns_task(), _agent_task()]
    return {
        **{model.__name__: shape for model, shape in found.items()},
        **_columns(),
        "Task": either(*tasks),
    }


def _task(named: str) -> Shape:
    """Return the schema of a task of one type, with the keys that all types have in common."""
    return {
        "type": "object",
        "required": ["type"],
        "properties": {
            "id": or_nothing(TEXT),
            "type": {"enum": [named]},
            "dependsOn": or_nothing(shape_of(Texts)),
            "onFailedDependency": or_nothing({"enum": list(get_args(FailedDependency))}),
        },
    }


def _prompt_task() -> Shape:
    """Return the schema of a task of prompts, whose tests may be the rows of another."""
    shape = _task(PROMPT_EVAL)
    shape["properties"]["tests"] = or_nothing(either(*_tests()["anyOf"], ref(RowsOfTask)))
    return shape


def _question_task() -> Shape:
    """Return the schema of a task of questions, with only its own keys."""
    settings = object_shape(QuestionSettings)
    settings["properties"][ROWS_KEY] = or_nothing(ref(QuestionsOfTask))
    return _closed_task(QUESTION_EVAL, settings)


def _columns_task() -> Shape:
    """Return the schema of a task that builds a dataset."""
    columns = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Column"}}
    return _closed_task(COLUMNS, object_shape(ColumnsSettings, shapes={"columns": columns}))


def _agent_task() -> Shape:
    """Return the schema of a task of agents: the usual prompts and tests, and its own settings."""
    settings = object_shape(AgentSettings)
    cases = either(*_tests(Case)["anyOf"], ref(RowsOfTask))
    properties = {
        **settings["properties"],
        "prompts": or_nothing(_prompts()),
        "tests": or_nothing(cases),
        **dict.fromkeys(("defaultTest", "default_test"), or_nothing(either(ref(Test), TEXT))),
    }
    return _closed_task(AGENT, {**settings, "properties": properties})


def _closed_task(named: str, settings: Shape) -> Shape:
    """Return the schema of a task with its own settings, and few keys of a suite."""
    shape = _task(named)
    options = or_nothing(ref(EvaluateOptions))
    known = {
        **shape["properties"],
        **settings["properties"],
        "depends_on": shape["properties"]["dependsOn"],
        "on_failed_dependency": shape["properties"]["onFailedDependency"],
        "description": or_nothing(shape_of(Words)),
        "evaluateOptions": options,
        "evaluate_options": options,
        "providers": either(*listed(ref(ProviderEntry))["anyOf"], NOTHING),
    }
    required = [*shape["required"], *settings.get("required", ())]
    return {**shape, "required": required, "properties": known, "additionalProperties": False}


def _case() -> Shape:
    """Return the schema of a test with its settings as a case."""
    test, case = object_shape(Test), object_shape(Case)
    properties = case["properties"]
    properties["id"] = or_nothing(properties["id"])
    return {**test, "properties": {**test["properties"], **properties}}


def _limit() -> Shape:
    seconds = {"type": "number", "exclusiveMinimum": 0}
    return object_shape(
        SharedLimit,
        shapes={
            "key": SOME_TEXT,
            "capacity": {"type": "integer", "minimum": 1, "maximum": MOST},
            **dict.fromkeys(SPANS.values(), seconds),
        },
    )


def _limits_key() -> Shape:
    """Return the schema of a key, or of an object with it and the unit."""
    shape = object_shape(LimitKey, shapes={"key": SOME_TEXT})
    shape["properties"]["unit"] = or_nothing(shape["properties"]["unit"])
    return {
        "description": shape.pop("description"),
        "anyOf": [SOME_TEXT, {**shape, "required": ["key"]}],
    }


def _run_options() -> Shape:
    shape = object_shape(EvaluateOptions)
    for key in IGNORED_OPTIONS:
        shape["properties"] |= {key: True, snake(key): True}
    return shape


def _provider() -> Shape:
    """Return the schema of a provider: an id, an object with one, or an object whose only key is the id."""
    settings = object_shape(ProviderEntry)
    by_id: Shape = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "propertyNames": {"not": {"enum": list(_PROVIDER_FORMS)}},
        "additionalProperties": either(
            {
                **settings,
                "required": [],
            },
            NOTHING,
        ),
    }
    return {"description": settings.pop("description"), "anyOf": [SOME_TEXT, settings, by_id]}


def _prompt() -> Shape:
    """Return the schema of a prompt: a text, the name of a file, or an object with it."""
    shape = object_shape(Prompt)
    shape["properties"] = {
        name: either(part, NOTHING) for name, part in shape["properties"].items()
    }
    del shape["required"]
    return {"description": shape.pop("description"), "anyOf": [SOME_TEXT, shape]}


def _assertion() -> Shape:
    members = {"type": "array", "items": ref(Assertion)}
    shape = object_shape(Assertion, shapes={"assertions": members})
    types = sorted(KINDS)
    known = [*types, *(f"not-{name}" for name in types if KINDS[name].invertible), SET]
    named = shape["properties"]["type"]
    # Any other may be a custom type of the suite.
    named |= {"anyOf": [{"enum": known}, {"type": named.pop("type")}]}
    number = shape["properties"]["weight"]["anyOf"][0]
    number |= {"minimum": -HEAVIEST, "maximum": HEAVIEST}
    return shape


def _labels() -> Shape:
    """Return the schema of files of prompts with their labels."""
    return {"type": "object", "additionalProperties": {"type": ["string", "null"]}}


def _prompts() -> Shape:
    """Return the schema of a list of prompts, one of them, or files with their labels."""
    return either({"type": "array", "minItems": 1, "items": ref(Prompt)}, SOME_TEXT, _labels())


def _tests(form: type = Test) -> Shape:
    """Return the schema of a list of tests, of cases, and of files with them, or of one of these."""
    source: Shape = {
        "type": "object",
        "required": ["path"],
        "properties": {"path": TEXT, "config": {}},
        "additionalProperties": False,
    }
    entry = either(ref(form), TEXT, source)
    return either({"type": "array", "items": entry}, entry)


def _columns() -> dict[str, Shape]:
    """Return the shapes of all parts of a dataset, by name."""
    models = (Skip, Score, Processor, ErrorWindow, RowsOfTask, QuestionsOfTask)
    columns = [
        _column(kind, sampler)
        for kind in COLUMN_KINDS
        for sampler in (SAMPLERS if kind == "sampler" else (None,))
    ]
    found = {model.__name__: object_shape(model) for model in models}
    return {"Skip": found["Skip"], "Score": found["Score"], "Column": either(*columns), **found}


def _column(kind: str, sampler: str | None) -> Shape:
    """Return the shape of one kind of column, or of sampler: a flat object."""
    form = None if sampler is None else SAMPLERS[sampler]
    shape = object_shape(COLUMN_KINDS[kind], inside={} if form is None else {"sampler": form})
    chosen = {TYPE: kind} if sampler is None else {TYPE: kind, SAMPLER: sampler}
    return {
        **shape,
        "description": inspect.getdoc(form) if form else shape["description"],
        "properties": {
            **{key: {"enum": [name]} for key, name in chosen.items()},
            **shape["properties"],
        },
        "required": [*chosen, *shape.get("required", ())],
    }


NOTHING: Shape = {"type": "null"}
EMPTY: Shape = {"enum": [None, "", [], {}]}


def object_shape(
    model: type,
    *,
    not_yet: Collection[str] = (),
    shapes: Mapping[str, Shape] | None = None,
    needed: bool = True,
    inside: Mapping[str, type] = MappingProxyType({}),
) -> Shape:
    """Return a JSON object with the fields of a model as keys, in both spellings.

    Args:
        model: An attrs class.
        not_yet: Keys that are not allowed yet.
        shapes: Shapes of fields that differ from their type.
        needed: Make fields without a default required.
        inside: As for `object_hook`.
    """
    shapes = {} if shapes is None else shapes
    described = _descriptions(model)
    properties: dict[str, Shape] = {
        spelling: EMPTY for key in not_yet for spelling in (key, snake(key))
    }
    required: list[str] = []
    for key, field in fields_by_key(model).items():
        shape = dict(shapes[field.name] if field.name in shapes else shape_of(field.type))
        if field.default is not attrs.NOTHING:
            shape = or_nothing(shape)
        if text := described.get(field.name):
            shape["description"] = text
        properties |= {key: shape, snake(key): shape}
        if ALSO in field.metadata:
            properties[field.metadata[ALSO]] = shape
        # A requirement of one of two spellings cannot be expressed in this form.
        if needed and field.default is attrs.NOTHING and snake(key) == key:
            required.append(key)
    rest, inner = fields_beside(model, inside)
    for form in inner.values():
        part = object_shape(form)
        properties |= part["properties"]
        required += part.get("required", ())
    return {
        "type": "object",
        "description": inspect.getdoc(model),
        "properties": properties,
        "additionalProperties": rest is not None,
        **({"required": required} if required else {}),
    }


def shape_of(wanted: Any) -> Shape:
    """Return the shape of the data that the strict converter accepts for a type."""
    if wanted is Any:
        return {}
    if attrs.has(wanted):
        return ref(wanted)
    named = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
    if wanted in named:
        return {"type": named[wanted]}
    arguments: Sequence[Any] = get_args(wanted)
    origin = get_origin(wanted)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Annotated:
        return _marked(*arguments)
    if origin is tuple:
        return {"type": "array", "items": shape_of(arguments[0])}
    if origin in {UnionType, Union}:
        if len(arguments) == len((Any, None)) and arguments[1] is NoneType:
            return or_nothing(shape_of(arguments[0]))
        return either(*map(shape_of, arguments))
    # Only mappings are left.
    return {"type": "object", "additionalProperties": shape_of(arguments[1])}


def _marked(plain: Any, mark: Any) -> Shape:
    match mark:
        case Form():
            return dict(mark.schema)
        case BothSpellings():
            words = get_args(plain)
            return {"enum": list(dict.fromkeys([*map(camel, words), *words]))}
        case _:
            bound = "exclusiveMinimum" if mark.above else "minimum"
            return shape_of(plain) | {bound: mark.least}


def ref(model: type) -> Shape:
    """Return a reference to the shape of a model, which is among the definitions."""
    return {"$ref": f"#/$defs/{model.__name__}"}


def or_nothing(shape: Shape) -> Shape:
    """Return a schema of a shape or null."""
    match shape:
        case {"anyOf": parts}:
            return shape if NOTHING in parts else either(*parts, NOTHING)
        case {"$ref": _} | {"enum": _} | {"type": str()}:
            return either(shape, NOTHING)
        case _:
            return shape


def listed(entry: Shape) -> Shape:
    """Return a schema of a list of entries, or of one text without a list."""
    return either({"type": "array", "items": entry}, TEXT)


def _descriptions(model: type) -> dict[str, str]:
    """Return the docstrings of the fields of a model."""
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


def schema_text() -> str:
    """Return the text of the schema in the package."""
    return json.dumps(suite_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SHIPPED.write_text(schema_text(), "utf-8")
