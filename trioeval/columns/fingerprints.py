# Separate from `columns.open`: a change of a column is detected without opening anything.
"""The inputs of a dataset as digests: equal digests mean equal values, as far as values are reproducible.

A digest covers the settings of the suite, the contents of the files that it names, and the providers that are
called; not the locations of files, nor credentials.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.columns.graph import ColumnGraph
from trioeval.columns.model import Column, ColumnsSettings
from trioeval.providers.secrets import is_secret_name

_WORD = re.compile(r"[A-Za-z_]\w*")
_PLACES = frozenset({"provider"})
"""Fields that are positions among other entries; marks identify the entries themselves."""
_TRIES = frozenset({"restarts", "corrections", "timeout_s", "workers", "on_error"})
"""Fields that limit retries and resources: changing them before a run is resumed changes no value."""
_NO_VALUES = frozenset({"keep", "drop_when", "drop"})
"""Fields that decide what happens to values, but not the values."""


def producer_digests(
    graph: ColumnGraph, settings: ColumnsSettings, marks: Mapping[str, str]
) -> Sequence[str]:
    """Return a digest of everything that the values of each producer depend on, in the order of the graph.

    That is the producer's own settings, and the digests of the producers that it needs.

    Args:
        graph: The graph of the columns.
        settings: The settings of the dataset.
        marks: By the name of a column, its other inputs: the provider that is called, the contents of files.

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
    """Return the inputs of a dataset part by part, so that a difference can be named.

    Args:
        settings: The settings of the dataset.
        marks: As for `producer_digests`.
        processor_marks: The contents of the files of its processors, in their order.

    Example:
        >>> from trioeval.columns.model import SamplerColumn, UuidSampler
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


def surroundings_mark(
    column: Column, env: Mapping[str, str], filters: Mapping[str, str | None]
) -> str:
    """Return a digest of what the texts of a column use besides the row; empty if nothing.

    These are the variables of `env` that they name, except those that look like credentials by their name,
    and the suite's own filters.

    Args:
        column: The column.
        env: The value of `env` in its templates.
        filters: The digests of the files of the suite's own filters, by name.

    Example:
        >>> from trioeval.columns.model import ExpressionColumn
        >>> greeting = ExpressionColumn(name="a", template="{{ env.WORD }} {{ b | loud }}")
        >>> one = surroundings_mark(greeting, {"WORD": "hi", "OTHER": "x"}, {"loud": "f1"})
        >>> one == surroundings_mark(greeting, {"WORD": "hi", "OTHER": "y"}, {"loud": "f1"})
        True
        >>> one == surroundings_mark(greeting, {"WORD": "ho"}, {"loud": "f1"})
        False
    """
    words = {word for text in _texts(_plain(column)) for word in _WORD.findall(text)}
    named = {name: env[name] for name in words & env.keys() if not is_secret_name(name)}
    if "env" not in words:
        named = {}
    used = {name: filters[name] for name in words & filters.keys()}
    if not named and not used:
        return ""
    return _digest([sorted(named.items()), sorted(used.items())])


def _own(
    column: Column, settings: ColumnsSettings, mark: str, leave: Collection[str] = frozenset()
) -> Any:
    """Return the own settings of one column."""
    # A column with its own seed does not depend on that of the dataset.
    seeded = getattr(column, "seed", 0) is None
    return [_plain(column, leave), mark, settings.seed if seeded else None]


def _plain(value: Any, leave: Collection[str] = frozenset()) -> Any:
    """Return a value as JSON that differs for different values."""
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
            parts = [
                [field.name, _plain(getattr(value, field.name))]
                for field in attrs.fields(type(value))
                if field.name not in _PLACES | _TRIES and field.name not in leave
            ]
            return {type(value).__name__: parts}
        case _:
            return type(value).__qualname__


def _texts(plain: Any) -> Iterator[str]:
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, list):
        for part in plain:
            yield from _texts(part)
    elif isinstance(plain, dict):
        yield from _texts(list(plain.values()))


def _digest(parts: Any) -> str:
    text = json.dumps(parts, ensure_ascii=True, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()
