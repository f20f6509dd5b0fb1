# Apart from `loading.json_schema`: it belongs to this package, which the other only uses.
"""Shapes of JSON Schema of datasets: the entries of `columns` by their `type`, samplers, processors."""

from trioeval.columns.column_form import KINDS, SAMPLER, TYPE
from trioeval.columns.form_values import SAMPLERS
from trioeval.columns.model import (
    Asking,
    ColumnsSettings,
    ErrorWindow,
    JudgeColumn,
    LlmColumn,
    Processor,
    Score,
    Skip,
)
from trioeval.documents.json_schema import object_shape
from trioeval.documents.structure import Shape, either
from trioeval.suite.model import RowsOfTask
from trioeval.suite.rows_of_task import QuestionsOfTask


def column_definitions() -> dict[str, Shape]:
    """The shapes of everything in a dataset but the dataset itself, by name."""
    columns = [
        _column(kind, sampler)
        for kind in KINDS
        for sampler in (SAMPLERS if kind == "sampler" else (None,))
    ]
    return {
        "Skip": object_shape(Skip),
        "Score": object_shape(Score),
        "Column": either(*columns),
        "Processor": object_shape(Processor),
        "ErrorWindow": object_shape(ErrorWindow),
        "RowsOfTask": object_shape(RowsOfTask),
        "QuestionsOfTask": object_shape(QuestionsOfTask),
    }


def settings_shape() -> Shape:
    """The keys of a task that builds a dataset."""
    return object_shape(
        ColumnsSettings,
        shapes={"columns": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Column"}}},
    )


def _column(kind: str, sampler: str | None) -> Shape:
    """One kind of column, or of sampler: a flat object."""
    model = KINDS[kind]
    made = object_shape(model)
    properties: dict[str, Shape] = {TYPE: {"enum": [kind]}}
    required = [TYPE, *made.get("required", ())]
    inside: Shape = {"properties": {}}
    if sampler is not None:
        inside = object_shape(SAMPLERS[sampler])
        properties[SAMPLER] = {"enum": [sampler]}
        required.append(SAMPLER)
    elif model in {LlmColumn, JudgeColumn}:
        inside = object_shape(Asking)
    return {
        "type": "object",
        "description": inside.get("description") if sampler else made["description"],
        "properties": {**properties, **made["properties"], **inside["properties"]},
        "additionalProperties": False,
        "required": [*required, *inside.get("required", ())],
    }
