"""The producers of the columns of a dataset, and the types of columns that follow from the suite."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from trioeval.columns.cell_types import ColumnType, common_type
from trioeval.columns.graph import Producer, Scope
from trioeval.columns.model import (
    CategorySampler,
    Column,
    ColumnsSettings,
    DatetimeSampler,
    EmbeddingColumn,
    ExpressionColumn,
    GaussianSampler,
    JudgeColumn,
    LlmColumn,
    PythonColumn,
    Sampler,
    SamplerColumn,
    SeedColumns,
    SubcategorySampler,
    UniformSampler,
    UuidSampler,
    ValidationColumn,
)

_PLAIN: Mapping[str, ColumnType] = {
    "string": "text",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
}
"""The column types of JSON Schema types."""


def producers_of(settings: ColumnsSettings) -> tuple[Producer, ...]:
    """Return the producers of the columns, one for each entry, in their order."""
    return tuple(map(producer_of, settings.columns))


def producer_of(column: Column) -> Producer:
    """Return the producer of one entry.

    Example:
        >>> low = UniformSampler(low=0, high=1)
        >>> producer_of(SamplerColumn(name="a", outputs=("a",), sampler=low)).scope
        'scratch'
    """
    return Producer(
        name=column.name,
        outputs=column.outputs,
        extras=extras_of(column),
        requires=tuple(name for name in column.requires if name not in column.outputs),
        scope=_scope(column),
        ordered=isinstance(column, PythonColumn) and column.ordered,
    )


def extras_of(column: Column) -> tuple[str, ...]:
    """Return the side-effect columns of an entry."""
    match column:
        case LlmColumn() | JudgeColumn():
            return tuple(name for name in (column.reasoning, column.trace) if name is not None)
        case PythonColumn():
            return column.extras
        case _:
            return ()


def written_columns(settings: ColumnsSettings) -> tuple[str, ...]:
    """Return the final columns of the rows of a dataset, in order.

    Each entry has its columns, followed by its side effects. Columns that are not kept, or that a processor
    removes, are left out.
    """
    real = {name for column in settings.columns for name in column.outputs}
    found = [
        name
        for column in settings.columns
        if column.keep
        for name in (
            *column.outputs,
            *(one for one in extras_of(column) if one not in real),
        )
    ]
    dropped = [pattern for processor in settings.processors for pattern in processor.drop_columns]
    return tuple(name for name in found if not any(matches(one, name) for one in dropped))


def matches(pattern: str, name: str) -> bool:
    """Return True if a pattern, in which `*` stands for any text, matches a column.

    Example:
        >>> matches("*__trace", "problem__trace"), matches("a.c", "abc")
        (True, False)
    """
    parts = map(re.escape, pattern.split("*"))
    return re.fullmatch(".*".join(parts), name, re.DOTALL) is not None


def column_types(settings: ColumnsSettings) -> Mapping[str, ColumnType]:
    """Return the types of columns by name, including side-effect columns.

    Types of a seed are missing if only its rows show them: for Parquet files, JSON lines, and the rows of a
    task.
    """
    found: dict[str, ColumnType] = {}
    for column in settings.columns:
        found |= extra_types(column)
    for column in settings.columns:  # a real column comes before a side effect of its name
        found |= output_types(column)
    return found


def output_types(column: Column) -> Mapping[str, ColumnType]:
    """Return the types of the outputs of an entry, without side effects; empty if they are not known yet."""
    names = column.outputs
    match column:
        case SeedColumns():
            is_csv = column.file is not None and column.file.suffix.lower() == ".csv"
            return dict.fromkeys(names, "text") if is_csv else {}
        case SamplerColumn():
            return dict.fromkeys(names, _drawn(column.sampler))
        case ExpressionColumn():
            return dict.fromkeys(names, column.as_type)
        case LlmColumn():
            return dict.fromkeys(
                names, "text" if column.schema is None else _schema_type(column.schema)
            )
        case EmbeddingColumn():
            return dict.fromkeys(names, "vector")
        case PythonColumn():
            return {name: column.as_types.get(name, "json") for name in names}
        case JudgeColumn() | ValidationColumn():
            return dict.fromkeys(names, "json")
    assert_never(column)


def extra_types(column: Column) -> Mapping[str, ColumnType]:
    """Return the types of the side-effect columns of an entry."""
    match column:
        case LlmColumn() | JudgeColumn():
            found: dict[str | None, ColumnType] = {column.reasoning: "text", column.trace: "json"}
            return {name: named for name, named in found.items() if name is not None}
        case PythonColumn():
            return {name: column.as_types.get(name, "json") for name in column.extras}
        case _:
            return {}


def _scope(column: Column) -> Scope:
    match column:
        case LlmColumn() | JudgeColumn() | EmbeddingColumn():
            return "cell"
        case PythonColumn():
            return column.scope
        case SeedColumns():
            return "scratch"
        case ValidationColumn():
            return "full"
        case SamplerColumn() | ExpressionColumn():
            return "full" if column.requires else "scratch"
    assert_never(column)


def _drawn(sampler: Sampler) -> ColumnType:
    match sampler:
        case CategorySampler():
            return common_type(sampler.values)
        case SubcategorySampler():
            return common_type(_members(sampler.values))
        case UniformSampler() | GaussianSampler():
            return "int" if sampler.decimals == 0 else "float"
        case DatetimeSampler() | UuidSampler():
            return "text"
    assert_never(sampler)


def _members(values: Mapping[str, tuple[Any, ...]]) -> Iterator[Any]:
    for several in values.values():
        yield from several


def _schema_type(schema: Mapping[str, Any]) -> ColumnType:
    """Return the type of all values that a schema allows; null is valid for every type."""
    match schema:
        case {"enum": [_, *_] as choices}:
            return common_type(choices)
        case {"const": constant}:
            return common_type([constant])
        case {"type": str(named)}:
            return _PLAIN.get(named, "json")
        case {"type": [*several]}:
            others = {one for one in several if one != "null"}
            return _PLAIN.get(next(iter(others)), "json") if len(others) == 1 else "json"
        case _:
            return "json"
