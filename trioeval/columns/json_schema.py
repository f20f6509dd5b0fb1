# Apart from `loading.json_schema`: it belongs to this package, which the other only uses.
"""Shapes of JSON Schema of datasets: the entries of `columns` by their `type`, samplers, processors."""

from collections.abc import Mapping
from typing import Any, get_args

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.column_form import COLUMN_KEYS, INSIDE, KINDS, SAMPLER, TYPE
from trioeval.columns.form import EXISTING, ON_ERROR, PROCESSOR_KEYS, STAGES
from trioeval.columns.form import RENAMED as SETTINGS_KEYS
from trioeval.columns.form_values import SAMPLERS
from trioeval.columns.model import (
    Asking,
    Column,
    ColumnsSettings,
    EmbeddingColumn,
    ErrorWindow,
    JudgeColumn,
    LlmColumn,
    Processor,
    PythonColumn,
    Score,
    SeedColumns,
    Skip,
    ValidationColumn,
)
from trioeval.documents.json_schema import SOME_TEXT, TEXT, Shape, either, object_shape, ref
from trioeval.documents.structure import camel
from trioeval.grading import Assertion
from trioeval.suite.model import ProviderEntry, RowsOfTask
from trioeval.suite.rows_of_task import RENAMED as ROWS_KEYS
from trioeval.suite.rows_of_task import QuestionsOfTask

_NAME: Shape = {"type": "string", "pattern": r"^[^\W\d]\w*$"}
_NAMES: Shape = {"type": "array", "items": _NAME}
_TYPES: Shape = {"enum": list(get_args(ColumnType))}
_PROMPT: Shape = either(SOME_TEXT, {"type": "array", "minItems": 1, "items": {}})
_OBJECT: Shape = {"type": "object", "additionalProperties": {}}


def column_definitions() -> dict[str, Shape]:
    """The shapes of everything in a dataset but the dataset itself, by name."""
    columns = [
        _column(kind, sampler)
        for kind in KINDS
        for sampler in (SAMPLERS if kind == "sampler" else (None,))
    ]
    return {
        "Skip": object_shape(Skip, shapes={"when": SOME_TEXT}),
        "Score": object_shape(
            Score,
            shapes={
                "name": SOME_TEXT,
                "description": SOME_TEXT,
                "options": {"type": "object", "minProperties": 1, "additionalProperties": TEXT},
            },
        ),
        "Column": either(*columns),
        "Processor": object_shape(
            Processor,
            renamed=PROCESSOR_KEYS,
            shapes={"stage": _spelled(STAGES), "on_error": _spelled(ON_ERROR)},
        ),
        "ErrorWindow": object_shape(
            ErrorWindow,
            shapes={"error_rate": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}},
        ),
        "RowsOfTask": object_shape(
            RowsOfTask,
            renamed=ROWS_KEYS,
            shapes={
                "task": SOME_TEXT,
                "vars": {"type": "object", "additionalProperties": SOME_TEXT},
            },
        ),
        "QuestionsOfTask": object_shape(
            QuestionsOfTask,
            shapes=dict.fromkeys(
                ("from_task", "question", "answers", "correct_answers", "id"), SOME_TEXT
            ),
        ),
    }


def settings_shape() -> Shape:
    """The keys of a task that builds a dataset."""
    return object_shape(
        ColumnsSettings,
        renamed=SETTINGS_KEYS,
        shapes={
            "columns": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Column"}},
            "output_dir": SOME_TEXT,
            "existing": _spelled(EXISTING),
        },
    )


def _spelled(choices: tuple[str, ...]) -> Shape:
    """One of several words, in both spellings."""
    return {"enum": list(dict.fromkeys([*map(camel, choices), *choices]))}


def _column(kind: str, sampler: str | None) -> Shape:
    """One kind of column, or of sampler: a flat object."""
    model = KINDS[kind]
    made = object_shape(model, renamed=_keys(model), shapes=_shapes(model))
    properties: dict[str, Shape] = {TYPE: {"enum": [kind]}}
    required = [TYPE, *made.get("required", ())]
    inside: Shape = {"properties": {}}
    if sampler is not None:
        inside = object_shape(SAMPLERS[sampler])
        properties[SAMPLER] = {"enum": [sampler]}
        required.append(SAMPLER)
    elif model in INSIDE:
        inside = object_shape(Asking, shapes={"provider": ref(ProviderEntry), "prompt": _PROMPT})
    return {
        "type": "object",
        "description": inside.get("description") if sampler else made["description"],
        "properties": {**properties, **made["properties"], **inside["properties"]},
        "additionalProperties": False,
        "required": [*required, *inside.get("required", ())],
    }


def _keys(model: type[Column]) -> Mapping[str, str | None]:
    inside = INSIDE.get(model)
    return {**COLUMN_KEYS[model], **({} if inside is None else {inside: None})}


_SIDE_EFFECTS: Mapping[str, Shape] = {"reasoning": _NAME, "trace": _NAME}


def _shapes(model: type[Column]) -> Mapping[str, Shape]:
    """What fields are that are written otherwise than their type says."""
    more: Mapping[type[Any], Mapping[str, Shape]] = {
        SeedColumns: {
            "file": SOME_TEXT,
            "from_task": SOME_TEXT,
            "columns": either(
                {"type": "object", "minProperties": 1, "additionalProperties": SOME_TEXT},
                {**_NAMES, "minItems": 1},
            ),
        },
        LlmColumn: {"schema": either(_OBJECT, TEXT), **_SIDE_EFFECTS},
        JudgeColumn: {
            "scores": {"type": "array", "minItems": 1, "items": ref(Score)},
            **_SIDE_EFFECTS,
        },
        EmbeddingColumn: {"provider": ref(ProviderEntry), "text": SOME_TEXT},
        PythonColumn: {
            "outputs": _NAMES,
            "extras": _NAMES,
            "as_types": either(_TYPES, {"type": "object", "additionalProperties": _TYPES}),
        },
        ValidationColumn: {
            "target": SOME_TEXT,
            "assertions": {"type": "array", "minItems": 1, "items": ref(Assertion)},
        },
    }
    common = {
        "name": _NAME,
        "drop_when": SOME_TEXT,
        "requires": {"type": "array", "items": SOME_TEXT},
    }
    return {**common, **more.get(model, {})}
