"""What a dataset is made of, as digests: equal ones mean equal values, as far as values can be the same.

A digest is of what a suite says, of the texts of files that it names, and of who is asked; not of where files
lie, nor of credentials.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.datasets.graph import ColumnGraph
from trioeval.suite.column_models import Column, ColumnsSettings

_PLACES = frozenset({"provider"})
"""Fields that say where something stands among others, which is told by marks."""
_NO_VALUES = frozenset({"keep", "drop_when", "drop"})
"""Fields that say what becomes of values, not which they are."""


def producer_digests(
    graph: ColumnGraph, settings: ColumnsSettings, marks: Mapping[str, str]
) -> Sequence[str]:
    """Of each producer, in the order of the graph: what its values depend on.

    That is what the suite says of it, and all of that of what it needs.

    Args:
        graph: Of its columns.
        settings: Of the dataset.
        marks: By the name of a column, what else its values depend on: who is asked, what stands in files.

    Returns:
        Hexadecimal texts.
    """
    by_name = {column.name: column for column in settings.columns}
    found: list[str] = []
    for place, producer in enumerate(graph.producers):
        column = by_name[producer.name]
        own = _own(column, settings, marks.get(producer.name, ""), leave=_NO_VALUES)
        found.append(_digest([own, *(found[need] for need in graph.upstream[place])]))
    return found


def fingerprint(
    settings: ColumnsSettings,
    marks: Mapping[str, str],
    processor_marks: Sequence[str] = (),
) -> Mapping[str, str]:
    """What a dataset is made of, part by part, so that a difference can be named.

    Args:
        settings: Of the dataset.
        marks: As of `producer_digests`.
        processor_marks: What stands in the files of its processors, in their order.

    Example:
        >>> from trioeval.suite.column_models import SamplerColumn, UuidSampler
        >>> settings = ColumnsSettings(columns=(SamplerColumn(name="id", sampler=UuidSampler()),))
        >>> list(fingerprint(settings, {}))
        ['columns.id', 'seed']
    """
    found = {
        f"columns.{column.name}": _digest(_own(column, settings, marks.get(column.name, "")))
        for column in settings.columns
    }
    found["seed"] = _digest(settings.seed)
    for place, processor in enumerate(settings.processors):
        mark = processor_marks[place] if place < len(processor_marks) else ""
        found[f"processors[{place}]"] = _digest([_plain(processor), mark])
    return found


def _own(
    column: Column, settings: ColumnsSettings, mark: str, leave: Collection[str] = frozenset()
) -> Any:
    """What is said of one column alone."""
    # Where a column has a seed of its own, that of the dataset does not matter to it.
    seeded = getattr(column, "seed", 0) is None
    return [_plain(column, leave), mark, settings.seed if seeded else None]


def _plain(value: Any, leave: Collection[str] = frozenset()) -> Any:
    """A value as JSON that tells it from others."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value.rpartition("/")[2] if value.startswith("file://") else value
        case Path():
            return value.name
        case Mapping():
            return [[_plain(name), _plain(part)] for name, part in value.items()]
        case list() | tuple():
            return [_plain(part) for part in value]
        case _ if attrs.has(type(value)):
            said = [
                [field.name, _plain(getattr(value, field.name))]
                for field in attrs.fields(type(value))
                if field.name not in _PLACES and field.name not in leave
            ]
            return {type(value).__name__: said}
        case _:
            return type(value).__qualname__


def _digest(said: Any) -> str:
    text = json.dumps(said, ensure_ascii=True, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()
