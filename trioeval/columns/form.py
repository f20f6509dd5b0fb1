"""Tasks of type `columns` as a suite writes them: a dataset, built column by column.

Such a task is a suite without prompts and tests. Its providers are the ones that its columns name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import cattrs

from trioeval.columns.cell_types import fits
from trioeval.columns.column_form import column_hook, one_of_two
from trioeval.columns.model import Column, ColumnsSettings, ErrorWindow, Processor, SeedColumns
from trioeval.columns.names import NameReader, related
from trioeval.columns.types import column_types, extras_of, matches, written_columns
from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    Mistakes,
    kind,
    moved_unknown_keys,
    nearest,
)
from trioeval.documents.paths import DocumentPath
from trioeval.documents.structure import (
    Hook,
    fields_by_key,
    object_hook,
    some_text,
    strict_converter,
)
from trioeval.grading import quote
from trioeval.suite.form import ProviderIndex, entries_of, many
from trioeval.suite.model import UNREADABLE, ProviderEntry, Suite
from trioeval.suite.sources.code import python_target
from trioeval.templates import Templates
from trioeval.text import json_text

SETTINGS = tuple(fields_by_key(ColumnsSettings))
"""Keys that only tasks of this type have."""


@attrs.frozen
class ColumnsContext:
    """The context in which a task is read."""

    context: FileContext
    """The files that it may name."""
    templates: Templates
    """Checks templates and finds the names that they use."""
    converter: cattrs.Converter
    """Converts suites; reports no warnings."""
    structure: Callable[[Mapping[str, Any], FileContext], Suite]
    """Returns the suite of some data."""


def columns_suite(
    task: Mapping[str, Any], data: Mapping[str, Any], reading: ColumnsContext
) -> tuple[Suite, list[Mistake]]:
    """Return the suite of such a task, and everything that is wrong with it."""
    suite = UNREADABLE
    mistakes = Mistakes()
    listed = entries_of(data.get("providers"))
    inline = _inline_providers(task.get("columns"), listed)
    written = [*listed, *(entry for _, entry in inline)]

    def placed(mistake: Mistake) -> Mistake:
        match mistake.at:
            case ("providers", int(place), *rest) if place >= len(listed):
                return attrs.evolve(mistake, at=(*inline[place - len(listed)][0], *rest))
            case _:
                return mistake

    warn = reading.context.warn
    context = attrs.evolve(reading.context, warn=lambda warning: warn(placed(warning)))
    try:
        with moved_unknown_keys(placed):
            suite = reading.structure({**data, "providers": written}, context)
    except MistakenError as error:
        mistakes += map(placed, error.parts)
    roster = ProviderIndex(
        suite.providers,
        len(suite.providers) - len(inline),
        listed,
        is_right=suite is not UNREADABLE,
        structure=lambda entry: reading.converter.structure(entry, ProviderEntry),
    )
    settings: ColumnsSettings | None = None
    with mistakes.below():
        settings = _settings(task, reading, roster)
    providers = suite.providers if settings is None else roster.used
    suite = attrs.evolve(
        suite,
        # `prompts` of a provider refers to other tasks.
        providers=tuple(attrs.evolve(entry, prompts=None) for entry in providers),
        tests=(),
        settings=suite.settings if settings is None else settings,
        # Hooks are for tests.
        command_line_options=attrs.evolve(suite.command_line_options, extension=()),
    )
    return suite, mistakes


def _inline_providers(
    columns: Any, listed: Sequence[Any]
) -> list[tuple[DocumentPath, dict[str, Any]]]:
    """Return the providers that are defined in a column, each once, and where."""
    found: dict[str, tuple[DocumentPath, dict[str, Any]]] = {}
    known = set(map(json_text, listed))
    for place, column in enumerate(columns if isinstance(columns, list) else ()):
        entry = column.get("provider") if isinstance(column, dict) else None
        if isinstance(entry, dict):
            found.setdefault(json_text(entry), (("columns", place, "provider"), entry))
    return [one for text, one in found.items() if text not in known]


def _settings(
    task: Mapping[str, Any], reading: ColumnsContext, roster: ProviderIndex
) -> ColumnsSettings:
    context = reading.context
    hooks: dict[str, Hook] = {
        "columns": _columns_hook(reading, roster),
        "output_dir": lambda value, _wanted: _output_folder(some_text(value), context),
        "shutdown": object_hook(strict_converter(), ErrorWindow),
        "processors": _processors_hook(context),
    }
    structure = object_hook(strict_converter(), ColumnsSettings, hooks=hooks, check=_mistakes_of)
    settings: ColumnsSettings = structure(task, ColumnsSettings)
    for warning in _hidden(settings):
        context.warn(warning)
    return settings


def _output_folder(named: str, context: FileContext) -> Path:
    """Return the folder of a dataset's files, which may be below the working folder or the suite's."""
    here = Path.cwd()
    return attrs.evolve(context, directory=here).place(named, also=(here,))


def _columns_hook(reading: ColumnsContext, roster: ProviderIndex) -> Hook:
    names = NameReader(reading.context, reading.templates)
    one = column_hook(reading.converter, reading.context, roster.place)

    def hook(value: Any, _wanted: Any) -> tuple[Column, ...]:
        if not isinstance(value, list):
            raise MistakenError(Mistake(f"must be a list of columns, got {kind(value)}"))
        if not value:
            raise MistakenError(Mistake("no columns are given"))
        found: list[Column | None] = []
        mistakes = Mistakes()
        for place, entry in enumerate(value):
            found.append(None)
            with mistakes.below(place):
                found[place] = one(entry, Column)
        found, more = related(value, found, names)
        mistakes += more
        mistakes.sort(key=lambda part: part.at[:1])
        mistakes.raise_any()
        return tuple(column for column in found if column is not None)

    return hook


def _processors_hook(context: FileContext) -> Hook:
    target: Hook = lambda value, _wanted: python_target(value, context, "processors")  # noqa: E731 - typed
    structure = object_hook(
        strict_converter(), Processor, hooks={"target": target}, check=_processor_mistakes
    )
    return lambda value, _wanted: many(
        value, " of processors", lambda entry: (structure(entry, Processor),), alone=()
    )


def _processor_mistakes(processor: Processor) -> Iterator[Mistake]:
    if (processor.target is None) == (not processor.drop_columns):
        yield one_of_two("target", "dropColumns", both=processor.target is not None)
    if processor.drop_columns and processor.stage == "before_batch":
        message = "no column can be dropped before the other columns are made"
        yield Mistake(message, 'write "stage": "afterBatch"', at=("stage",))
    if processor.on_error == "drop_group" and processor.stage == "after_generation":
        message = "a group cannot be dropped after generation"
        yield Mistake(message, 'write "onError": "abort"', at=("onError",))


def _mistakes_of(settings: ColumnsSettings) -> Iterator[Mistake]:
    """Yield the contradictions in settings whose parts are valid."""
    if settings.rows is None and not any(
        isinstance(column, SeedColumns) for column in settings.columns
    ):
        yield Mistake('"rows" is missing', "without a seed column the number of rows must be given")
    types = column_types(settings)
    for place, column in enumerate(settings.columns):
        value = column.skip.value
        wrong = next(
            (name for name in column.outputs if not fits(value, types.get(name, "json"))), None
        )
        if wrong is not None:
            message = f"must be a value of the type of {wrong}, {types[wrong]}, got {kind(value)}"
            yield Mistake(
                message, "null is valid for every type", at=("columns", place, "skip", "value")
            )
    made = {name for column in settings.columns for name in (*column.outputs, *extras_of(column))}
    for place, processor in enumerate(settings.processors):
        for position, pattern in enumerate(processor.drop_columns):
            if not any(matches(pattern, name) for name in made):
                at = ("processors", place, "dropColumns", position)
                message = f"{quote(pattern)} matches no column"
                yield Mistake(message, nearest(pattern, made), at=at)
    yield from _alike(settings)
    if not written_columns(settings):
        yield Mistake("no column is kept", 'remove "keep": false from a column', at=("columns",))


def _alike(settings: ColumnsSettings) -> Iterator[Mistake]:
    """Yield the names that differ only in case, which some file formats ignore."""
    if settings.format == "jsonl":
        return
    seen: dict[str, str] = {}
    for place, column in enumerate(settings.columns):
        for name in (*column.outputs, *extras_of(column)) if column.keep else ():
            other = seen.setdefault(name.casefold(), name)
            if other != name:
                message = f"{quote(name)} differs from {quote(other)} only in upper and lower case"
                hint = 'rename one of them, or write "format": "jsonl"'
                yield Mistake(message, hint, at=("columns", place))


def _hidden(settings: ColumnsSettings) -> Iterator[Mistake]:
    """Yield warnings of side-effect columns that are hidden by a column with the same name."""
    real = {name for column in settings.columns for name in column.outputs}
    for place, column in enumerate(settings.columns):
        for name in extras_of(column):
            if name in real:
                message = f"{quote(name)} is also a column: this side effect is not kept"
                yield Mistake(message, "rename it to keep it", at=("columns", place))
