"""The entries of `columns` as a suite writes them: one flat object each, whose keys go by its `type`.

What they say of each other is looked at elsewhere, see `column_names`.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import cattrs

from trioeval.columns.field_types import ONE_FOR_ALL
from trioeval.columns.form_values import (
    SAMPLERS,
    chosen,
    listed,
    prompt_text,
    sampler_hook,
    schema_of,
    who_is_asked,
)
from trioeval.columns.model import (
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
from trioeval.documents.structure import Hook, object_hook, some_text
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

SEED_FILES = (".csv", ".jsonl", ".parquet")
"""What files of seeds end with."""

TYPE = "type"
SAMPLER = "sampler"
Place: TypeAlias = Callable[[Any], int]
"""From what stands under `provider` to its place among the providers of the task."""


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
        return forms.column(model, {key: part for key, part in value.items() if key != TYPE})

    return hook


@attrs.define
class _Forms:
    converter: cattrs.Converter
    around: Around
    place: Place
    _hooks: dict[tuple[type[Column], str | None], Hook] = attrs.field(init=False, factory=dict)
    """Hooks that were made, because that takes a while."""

    def column(self, model: type[Column], entry: dict[str, Any]) -> Column:
        """One column from its keys but `type`."""
        sampler = None
        if model is SamplerColumn:
            sampler = chosen(entry, SAMPLER, SAMPLERS, "a kind of samplers")
            entry = {key: part for key, part in entry.items() if key != SAMPLER}
        if (model, sampler) not in self._hooks:
            self._hooks[model, sampler] = self._hook(model, sampler)
        column: Column = self._hooks[model, sampler](entry, model)
        mistakes = Mistakes(_mistakes_of(column))
        if isinstance(column, ExpressionColumn) and column.python is not None:
            with mistakes.below("python"):
                self.around.check_code(quote(column.python))
        mistakes.raise_any()
        return _with_outputs(column)

    def _hook(self, model: type[Column], sampler: str | None) -> Hook:
        hooks: dict[str, Hook] = {
            "skip": object_hook(self.converter, Skip),
            "provider": self._provider,
            "prompt": self._prompt,
            "config": self._config,
            "schema": self._schema,
            "file": self._seed_file,
            "scores": self._scores,
            "assertions": self._assertions,
        }
        if sampler is not None:
            hooks["sampler"] = sampler_hook(self.converter, sampler)
        if model is PythonColumn:  # the target of a validation is a column
            hooks["target"] = self._target
        inside = {} if sampler is None else {"sampler": SAMPLERS[sampler]}
        made = {"name": ""} if model is SeedColumns else {}  # its first column, see `_with_outputs`
        return object_hook(self.converter, model, hooks=hooks, inside=inside, made=made)

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
        structure = object_hook(self.converter, Score)
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
