"""How a dataset ended, as JSON data, and read back from it: the same in the store and in all documents."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.datasets.result import ColumnProfile, DatasetResult, DroppedRow, Histogram
from trioeval.suite.strict import camel
from trioeval.suite.strip import Strip
from trioeval.usage import Usage


def dataset_json(result: DatasetResult) -> dict[str, Any]:
    """All that is known of how a dataset ended, ready for `json.dumps`.

    `outcome` and `lost` stand there for who reads it, and follow from the rest.

    Example:
        >>> told = dataset_json(
        ...     DatasetResult(task="a", requested=2, written=1, dropped={"failed": 1})
        ... )
        >>> told["outcome"], told["lost"], told["notRun"]
        ('complete', 1, {})
        >>> read_dataset(told).dropped
        {'failed': 1}
    """
    return {
        "task": result.task,
        "outcome": result.outcome,
        "requested": result.requested,
        "written": result.written,
        "dropped": dict(result.dropped),
        "lost": result.lost,
        "notRun": dict(result.not_run),
        "unfinished": result.unfinished,
        "groups": result.groups,
        "partialGroups": list(result.partial_groups),
        "earlyShutdown": result.early_shutdown,
        "failures": [_camel(attrs.asdict(row)) for row in result.failures],
        "firstError": result.first_error,
        "error": result.error,
        "columns": [_column_json(column) for column in result.columns],
        "folder": None if result.folder is None else str(result.folder),
        "format": result.format,
        "calls": result.calls,
        "usage": _usage_json(result.usage),
        "cost": result.cost,
        "durationSeconds": result.duration_s,
    }


def read_dataset(told: Mapping[str, Any]) -> DatasetResult:
    """What `dataset_json` has told.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    return DatasetResult(
        task=told["task"],
        requested=told["requested"],
        written=told["written"],
        dropped=told["dropped"],
        not_run=told["notRun"],
        unfinished=told.get("unfinished"),
        groups=told["groups"],
        partial_groups=tuple(told["partialGroups"]),
        early_shutdown=told["earlyShutdown"],
        failures=tuple(DroppedRow(**row) for row in told["failures"]),
        first_error=told["firstError"],
        error=told["error"],
        columns=tuple(map(_column, told["columns"])),
        folder=None if told["folder"] is None else Path(told["folder"]),
        format=told["format"],
        calls=told["calls"],
        usage=_usage(told["usage"]),
        cost=told["cost"],
        duration_s=told["durationSeconds"],
    )


def stripped_dataset(result: DatasetResult, strip: Strip) -> DatasetResult:
    """The same without what is left out of documents: values, where rows do without theirs."""
    if not (strip.response_output or strip.test_vars):
        return result
    return attrs.evolve(
        result, columns=tuple(attrs.evolve(column, common=()) for column in result.columns)
    )


def _column_json(column: ColumnProfile) -> dict[str, Any]:
    lengths = column.lengths
    return {
        "name": column.name,
        "kind": column.kind,
        "type": column.type,
        "values": column.values,
        "nulls": column.nulls,
        "skipped": column.skipped,
        "distinct": column.distinct,
        "isEstimate": column.is_estimate,
        "lengths": None
        if lengths is None
        else {"edges": list(lengths.edges), "counts": list(lengths.counts)},
        "numbers": {name: one for name, one in column.numbers.items() if math.isfinite(one)},
        "common": [{"value": value, "count": count} for value, count in column.common],
        "calls": column.calls,
        "recalled": column.recalled,
        "failed": column.failed,
        "usage": _usage_json(column.usage),
        "cost": column.cost,
        "seconds": column.seconds,
    }


def _column(told: Mapping[str, Any]) -> ColumnProfile:
    lengths = told["lengths"]
    return ColumnProfile(
        name=told["name"],
        kind=told["kind"],
        type=told["type"],
        values=told["values"],
        nulls=told["nulls"],
        skipped=told["skipped"],
        distinct=told["distinct"],
        is_estimate=told["isEstimate"],
        lengths=None
        if lengths is None
        else Histogram(edges=tuple(lengths["edges"]), counts=tuple(lengths["counts"])),
        numbers=told["numbers"],
        common=tuple((one["value"], one["count"]) for one in told["common"]),
        calls=told["calls"],
        recalled=told["recalled"],
        failed=told["failed"],
        usage=_usage(told["usage"]),
        cost=told["cost"],
        seconds=told["seconds"],
    )


def _usage_json(usage: Usage) -> dict[str, Any]:
    """What is told of it: nothing stands for what is not known."""
    return _camel({name: count for name, count in attrs.asdict(usage).items() if count is not None})


def _usage(told: Mapping[str, Any]) -> Usage:
    names = {camel(field.name): field.name for field in attrs.fields(Usage)}
    return Usage(**{names[name]: count for name, count in told.items()})


def _camel(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {camel(name): fact for name, fact in facts.items()}
