"""What makes each column of a dataset, put together from what the suite says and what is open."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from trioeval.columns.graph import ColumnGraph
from trioeval.columns.makers.base import Maker
from trioeval.columns.makers.code import (
    PythonCellMaker,
    PythonExpressionMaker,
    PythonGroupMaker,
    TemplateMaker,
    drop_conditions,
    skip_condition,
)
from trioeval.columns.makers.conversations import Cells
from trioeval.columns.makers.judge import JudgeMaker
from trioeval.columns.makers.llm import EmbeddingMaker, LlmMaker
from trioeval.columns.makers.samplers import SamplerMaker
from trioeval.columns.makers.seeds import SeedMaker, Source
from trioeval.columns.makers.validation import ValidationMaker
from trioeval.columns.model import (
    Column,
    ColumnsSettings,
    EmbeddingColumn,
    ExpressionColumn,
    JudgeColumn,
    LlmColumn,
    PythonColumn,
    SamplerColumn,
    SeedColumns,
    ValidationColumn,
)
from trioeval.columns.spec import Making
from trioeval.evaluation.scripts import Scripts
from trioeval.grading import Kinds

_RECORDED = (LlmColumn, JudgeColumn, EmbeddingColumn, PythonColumn)
"""What costs money or time, or may be another value the next time."""


@attrs.frozen(kw_only=True)
class Means:
    """What makers work with."""

    cells: Cells
    scripts: Scripts
    filters: Mapping[str, Callable[..., Any]]
    """The suite's own, by name."""
    env: Mapping[str, str] = attrs.field(repr=False)
    """What `env` is in templates."""
    kinds: Kinds
    sources: Mapping[str, Source]
    """Of each seed the rows, by the name of its first column."""


def makings_of(
    settings: ColumnsSettings, graph: ColumnGraph, means: Means, digests: Sequence[str]
) -> Sequence[Making]:
    """What makes each producer's columns, in the order of the graph.

    Args:
        settings: As the suite has them.
        graph: Of its columns.
        means: What they work with.
        digests: Of what each producer is and needs, in the order of the graph.

    Raises:
        TemplateError: A condition or a template cannot be read.
    """
    numbers = {column.name: number for number, column in enumerate(settings.columns)}
    return [
        _making(settings, numbers[producer.name], means, digest)
        for producer, digest in zip(graph.producers, digests, strict=True)
    ]


def _making(settings: ColumnsSettings, number: int, means: Means, digest: str) -> Making:
    column = settings.columns[number]
    return Making(
        maker=_maker(settings, number, means),
        kind=kind_of(column),
        digest=digest,
        is_recorded=isinstance(column, _RECORDED),
        leaves_out=isinstance(column, ExpressionColumn),
        skip=column.skip,
        skip_when=skip_condition(column, means.filters, means.env),
        drops=drop_conditions(column, means.filters, means.env),
    )


def _maker(settings: ColumnsSettings, number: int, means: Means) -> Maker:
    match _without_hidden_effects(settings, number):
        case LlmColumn() as column:
            return LlmMaker.of(column, number, means.cells)
        case JudgeColumn() as column:
            return JudgeMaker.of(column, number, means.cells)
        case EmbeddingColumn() as column:
            return EmbeddingMaker(column, number, means.cells)
        case SeedColumns() as column:
            return SeedMaker(column, means.sources[column.name], settings.seed)
        case SamplerColumn() as column:
            return SamplerMaker(column, settings.seed)
        case ExpressionColumn() | PythonColumn() | ValidationColumn() as column:
            return _code_maker(column, means)


def _without_hidden_effects(settings: ColumnsSettings, number: int) -> Column:
    """A column whose side effects are only those that are there: a real column of their name wins."""
    column = settings.columns[number]
    if not isinstance(column, LlmColumn | JudgeColumn):
        return column
    real = {name for one in settings.columns for name in one.outputs or (one.name,)}
    return attrs.evolve(
        column,
        reasoning=None if column.reasoning in real else column.reasoning,
        trace=None if column.trace in real else column.trace,
    )


def _code_maker(column: ExpressionColumn | PythonColumn | ValidationColumn, means: Means) -> Maker:
    match column:
        case ExpressionColumn(python=None):
            return TemplateMaker(column, means.filters, means.env)
        case ExpressionColumn():
            return PythonExpressionMaker(column, means.scripts)
        case PythonColumn(scope="cell"):
            return PythonCellMaker(column, means.scripts)
        case PythonColumn():
            return PythonGroupMaker(column, means.scripts)
        case ValidationColumn():
            return ValidationMaker(column, means.kinds, means.filters, means.env)


_KINDS: Mapping[type[Column], str] = {
    SeedColumns: "seed",
    SamplerColumn: "sampler",
    ExpressionColumn: "expression",
    LlmColumn: "llm",
    JudgeColumn: "judge",
    EmbeddingColumn: "embedding",
    PythonColumn: "python",
    ValidationColumn: "validation",
}


def kind_of(column: Column) -> str:
    """What a file calls the type of a column."""
    return _KINDS[type(column)]
