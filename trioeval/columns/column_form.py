"""The entries of `columns` as a suite writes them: one flat object each, whose keys go by its `type`.

What they say of each other is looked at elsewhere, see `column_names`.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import cattrs

from trioeval.columns.form_values import (
    ONE_FOR_ALL,
    SAMPLERS,
    as_types,
    chosen,
    column_name,
    column_names,
    dotted_names,
    listed,
    options_of_score,
    prompt_text,
    sampler_hook,
    schema_of,
    seeded_columns,
    who_is_asked,
)
from trioeval.columns.model import (
    Asking,
    Column,
    EmbeddingColumn,
    ExpressionColumn,
    JudgeColumn,
    LlmColumn,
    PythonColumn,
    SamplerColumn,
    Score,
    SeedColumns,
    Skip,
    ValidationColumn,
)
from trioeval.documents.files import Around
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind, nearest
from trioeval.documents.structure import Hook, camel, object_hook, some_text
from trioeval.grading import Assertion, quote
from trioeval.scripting import MOST_WORKERS
from trioeval.suite.python_targets import python_target
from trioeval.suite.sources.values import with_files

KINDS: Mapping[str, type[Column]] = {
    "seed": SeedColumns,
    "sampler": SamplerColumn,
    "expression": ExpressionColumn,
    "llm": LlmColumn,
    "judge": JudgeColumn,
    "embedding": EmbeddingColumn,
    "python": PythonColumn,
    "validation": ValidationColumn,
}
"""By what a suite calls them."""

_MADE = {"outputs": None}
COLUMN_KEYS: Mapping[type[Any], Mapping[str, str | None]] = {
    SeedColumns: {"name": None, "outputs": None, "requires": None, "skip": None},
    SamplerColumn: _MADE,
    ExpressionColumn: {**_MADE, "as_type": "as"},
    LlmColumn: _MADE,
    JudgeColumn: _MADE,
    EmbeddingColumn: _MADE,
    PythonColumn: {"timeout_s": "timeout", "as_types": "as"},
    ValidationColumn: {**_MADE, "assertions": "assert"},
}
"""Keys of fields that a suite calls otherwise; None for those that are not in it."""

INSIDE: Mapping[type[Any], str] = {
    SamplerColumn: "sampler",
    LlmColumn: "asking",
    JudgeColumn: "asking",
}
"""Fields whose own keys stand beside the others."""

SEED_FILES = (".csv", ".jsonl", ".parquet")
"""What files of seeds end with."""

TYPE = "type"
SAMPLER = "sampler"
Place: TypeAlias = Callable[[Any], int]
"""From what stands under `provider` to its place among the providers of the task."""


def keys_of(model: type[Any]) -> tuple[str, ...]:
    """The keys of a kind of columns, in camelCase, without those of the field in `INSIDE`.

    Example:
        >>> keys_of(SeedColumns)
        ('dropWhen', 'keep', 'file', 'fromTask', 'columns', 'order', 'seed', 'emptyAsNull')
    """
    keys = (COLUMN_KEYS[model].get(one.name, camel(one.name)) for one in attrs.fields(model))
    return tuple(key for key in keys if key is not None and key != INSIDE.get(model))


def column_hook(converter: cattrs.Converter, around: Around, place: Place) -> Hook:
    """For one entry, without what it needs of others but for its `requires`, which stay as they are written.

    Args:
        converter: Of suites.
        around: What files are read against.
        place: Finds providers.
    """
    forms = _Forms(converter, around, place)

    def hook(value: Any, _wanted: Any) -> Column:
        if not isinstance(value, dict):
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
        model = KINDS[chosen(value, TYPE, KINDS, "a type of columns")]
        entry = {key: part for key, part in value.items() if key != TYPE}
        return forms.column(model, entry)

    return hook


@attrs.define
class _Forms:
    converter: cattrs.Converter
    around: Around
    place: Place
    _outer: dict[type[Any], Hook] = attrs.field(init=False, factory=dict)
    """Hooks that were made, because that takes a while."""
    _inner: dict[str | type[Any], Hook] = attrs.field(init=False, factory=dict)

    def column(self, model: type[Column], entry: dict[str, Any]) -> Column:
        """One column from its keys but `type`."""
        inside, hook = self._inside(model, entry)
        entry = {key: part for key, part in entry.items() if not inside or key != INSIDE[model]}
        known = (*keys_of(model), *inside)
        mistakes, rest = _known(entry, known)
        outer = {key: part for key, part in rest.items() if camel(key) not in inside}
        if inside:
            outer[INSIDE[model]] = None
            with mistakes.below():
                outer[INSIDE[model]] = hook(
                    {key: rest[key] for key in rest if key not in outer}, None
                )
        if model is SeedColumns:
            outer["name"] = ""  # its first column, below
        try:
            column: Column = self._structure(model)(outer, model)
        except MistakenError as error:
            raise MistakenError(*mistakes, *error.parts) from None
        mistakes += _mistakes_of(column)
        if isinstance(column, ExpressionColumn) and column.python is not None:
            with mistakes.below("python"):
                self.around.check_code(quote(column.python))
        mistakes.raise_any()
        return _with_outputs(column)

    def _structure(self, model: type[Column]) -> Hook:
        if model not in self._outer:
            # What a column has to have is not left out, but given to the hook.
            omitted = {
                name: key
                for name, key in COLUMN_KEYS[model].items()
                if key is not None
                or getattr(attrs.fields(model), name).default is not attrs.NOTHING
            }
            hooks = self._hooks(model)
            self._outer[model] = object_hook(self.converter, model, renamed=omitted, hooks=hooks)
        return self._outer[model]

    def _inside(
        self, model: type[Column], entry: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], Hook]:
        """The keys of what stands among the others, and what reads it."""
        if model is SamplerColumn:
            named = chosen(entry, SAMPLER, SAMPLERS, "a kind of samplers")
            keys = tuple(camel(field.name) for field in attrs.fields(SAMPLERS[named]))
            hook = self._inner.setdefault(named, sampler_hook(self.converter, named))
            return keys, hook
        if model in INSIDE:
            keys = tuple(camel(field.name) for field in attrs.fields(Asking))
            hooks = {"provider": self._provider, "prompt": self._prompt, "config": self._config}
            made = object_hook(self.converter, Asking, hooks=hooks)
            return keys, self._inner.setdefault(Asking, made)
        return (), _never

    def _hooks(self, model: type[Column]) -> Mapping[str, Hook]:
        found: dict[str, Hook] = {
            "name": column_name if model is not SeedColumns else _as_it_is,
            "requires": dotted_names,
            "skip": object_hook(self.converter, Skip, hooks={"when": some_text}),
            "drop_when": some_text,
        }
        more: Mapping[type[Any], Mapping[str, Hook]] = {
            SeedColumns: {
                "file": self._seed_file,
                "from_task": some_text,
                "columns": seeded_columns,
            },
            SamplerColumn: {"sampler": _as_it_is},
            LlmColumn: {"asking": _as_it_is, "schema": self._schema, **_SIDE_EFFECTS},
            JudgeColumn: {"asking": _as_it_is, "scores": self._scores, **_SIDE_EFFECTS},
            EmbeddingColumn: {
                "provider": self._provider,
                "text": some_text,
                "config": self._config,
            },
            PythonColumn: {
                "target": self._target,
                "outputs": column_names,
                "extras": column_names,
                "as_types": as_types,
            },
            ValidationColumn: {"target": some_text, "assertions": self._assertions},
        }
        known = {field.name for field in attrs.fields(model)}
        return {
            name: hook for name, hook in {**found, **more.get(model, {})}.items() if name in known
        }

    def _provider(self, value: Any, _wanted: Any) -> int:
        return self.place(value)

    def _prompt(self, value: Any, _wanted: Any) -> str:
        return prompt_text(value, self.around)

    def _config(self, value: Any, _wanted: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
        found: Mapping[str, Any] = with_files(value, self.around)
        return found

    def _schema(self, value: Any, _wanted: Any) -> Mapping[str, Any]:
        return schema_of(value, self.around)

    def _target(self, value: Any, _wanted: Any) -> str:
        return python_target(value, self.around, "makers of columns")

    def _seed_file(self, value: Any, _wanted: Any) -> Path:
        file = self.around.file(some_text(value))
        if file.suffix.lower() not in SEED_FILES:
            message = f"{quote(file.name)} is no file of seeds"
            raise MistakenError(Mistake(message, f"use one of {', '.join(SEED_FILES)}"))
        return file

    def _scores(self, value: Any, _wanted: Any) -> tuple[Score, ...]:
        hooks: dict[str, Hook] = {
            "name": some_text,
            "description": some_text,
            "options": options_of_score,
        }
        structure = object_hook(self.converter, Score, hooks=hooks)
        found: list[Score] = []
        mistakes = Mistakes()
        for place, entry in enumerate(listed(value, "scores")):
            with mistakes.below(place):
                score: Score = structure(entry, Score)
                if any(score.name == other.name for other in found):
                    message = f"another score has the name {quote(score.name)} as well"
                    mistakes.append(Mistake(message, at=(place, "name")))
                found.append(score)
        mistakes.raise_any()
        return tuple(found)

    def _assertions(self, value: Any, _wanted: Any) -> tuple[Assertion, ...]:
        found: list[Assertion] = []
        mistakes = Mistakes()
        for place, entry in enumerate(listed(value, "assertions")):
            with mistakes.below(place):
                assertion: Assertion = self.converter.structure(entry, Assertion)
                Mistakes(who_is_asked(assertion, self.around.kinds)).raise_any()
                found.append(assertion)
        mistakes.raise_any()
        return tuple(found)


_SIDE_EFFECTS: Mapping[str, Hook] = {"reasoning": column_name, "trace": column_name}


def _never(_value: Any, _wanted: Any) -> Any:
    """For kinds that have nothing inside."""


def _as_it_is(value: Any, _wanted: Any) -> Any:
    return value


def _known(entry: Mapping[str, Any], known: tuple[str, ...]) -> tuple[Mistakes, dict[str, Any]]:
    """What is wrong with the keys of an entry, and what stands under the others."""
    rest = {key: part for key, part in entry.items() if camel(key) in known}
    mistakes = Mistakes(
        Mistake(f'"{key}" is not a key here', nearest(key, known), at=(key,), key=True)
        for key in entry
        if key not in rest
    )
    return mistakes, rest


def _mistakes_of(column: Column) -> Iterator[Mistake]:
    """What does not go together in one entry."""
    match column:
        case SeedColumns():
            if not column.columns:
                hint = "write a list of those of the source, or an object with other names"
                yield Mistake('"columns" is missing', hint)
            if (column.file is None) == (column.from_task is None):
                many = "neither of" if column.file is None else "both"
                message = f"{many} file and fromTask {'are' if column.file else 'is'} given"
                yield Mistake(message, "a seed has one source: write one of them")
        case ExpressionColumn():
            if (column.template is None) == (column.python is None):
                many = "neither of" if column.template is None else "both"
                message = f"{many} template and python {'are' if column.python else 'is'} given"
                yield Mistake(message, "write one of them")
        case PythonColumn():
            yield from _python_mistakes(column)
            yield from _process_mistakes(column)
        case _:
            pass


def _process_mistakes(column: PythonColumn) -> Iterator[Mistake]:
    if column.workers is not None and column.workers > MOST_WORKERS:
        yield Mistake(f"must be 1 to {MOST_WORKERS}, got {column.workers}", at=("workers",))
    if column.ordered and column.workers not in (None, 1):
        hint = "leave out one of the two"
        yield Mistake("ordered groups are made one after another", hint, at=("workers",))


def _python_mistakes(column: PythonColumn) -> Iterator[Mistake]:
    if column.outputs and column.name not in column.outputs:
        message = f"{quote(column.name)}, the name of the column, is not among them"
        yield Mistake(message, "write it first", at=("outputs",))
    outputs = column.outputs or (column.name,)
    for place, name in enumerate(column.extras):
        if name in outputs:
            yield Mistake(f"{quote(name)} is one of its outputs", at=("extras", place))
    for name in column.as_types:
        if name not in (*outputs, *column.extras, ONE_FOR_ALL):
            hint = nearest(name, (*outputs, *column.extras))
            yield Mistake(f"it makes no column {quote(name)}", hint, at=("as", name), key=True)
    if column.ordered and column.scope == "cell":
        hint = 'leave it out, or write "scope": "full"'
        yield Mistake("cells are made in no order", hint, at=("ordered",))
    if column.scope == "scratch":
        hint = 'leave it out, or write "scope": "full"'
        for key, said in (("requires", column.requires), ("skip", column.skip.when)):
            if said:
                message = "what is made from scratch looks at no other column"
                yield Mistake(message, hint, at=(key,), key=True)


def _with_outputs(column: Column) -> Column:
    match column:
        case SeedColumns():
            outputs = tuple(column.columns)
            return attrs.evolve(column, name=outputs[0], outputs=outputs)
        case PythonColumn():
            others = (name for name in column.outputs if name != column.name)
            outputs = (column.name, *others)
            said = column.as_types
            if ONE_FOR_ALL in said:
                said = dict.fromkeys((*outputs, *column.extras), said[ONE_FOR_ALL])
            return attrs.evolve(column, outputs=outputs, as_types=said)
        case _:
            return attrs.evolve(column, outputs=(column.name,))
