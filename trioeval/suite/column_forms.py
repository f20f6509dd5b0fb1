"""The entries of `columns` as a suite writes them: one flat object each, whose keys go by its `type`.

What they say of each other is looked at elsewhere, see `column_names`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import attrs
import cattrs

from trioeval.datasets.types import ColumnType
from trioeval.grading import Assertion, Computed, Kinds, quote
from trioeval.grading.algebra import SET
from trioeval.grading.kind import Asking as AsksOutside
from trioeval.grading.kind import Comparing
from trioeval.grading.kinds import split_type
from trioeval.grading.schemas import schema_faults
from trioeval.suite.column_models import (
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
from trioeval.suite.column_samplers import SAMPLERS, sampler_hook
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import Mistake, MistakenError, kind, nearest
from trioeval.suite.paths import read_path
from trioeval.suite.placing import placed, read_placed
from trioeval.suite.python_targets import python_target
from trioeval.suite.row_sources import sources_hook
from trioeval.suite.sources.around import Around, names_file
from trioeval.suite.sources.nested_files import with_files
from trioeval.suite.sources.prompts import read_prompts
from trioeval.suite.strict import Hook, camel, object_hook, snake, strict_converter

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

RENAMED: Mapping[type, Mapping[str, str | None]] = {
    SeedColumns: {"name": None, "outputs": None, "requires": None, "skip": None},
    PythonColumn: {"timeout_s": "timeout", "as_types": "as"},
    ExpressionColumn: {"outputs": None, "as_type": "as"},
    ValidationColumn: {"outputs": None, "assertions": "assert"},
    **{one: {"outputs": None} for one in (SamplerColumn, LlmColumn, JudgeColumn, EmbeddingColumn)},
}
"""Keys of fields that are called otherwise in a suite; None for those that are not in it."""

INSIDE: Mapping[type, str] = {SamplerColumn: "sampler", LlmColumn: "asking", JudgeColumn: "asking"}
"""Fields whose own keys stand beside the others."""

SEED_FILES = (".csv", ".jsonl", ".parquet")
"""What files of seeds end with."""

_TYPE = "type"
_NO_VARIABLES = frozenset(
    "and or not in is if else true false none null True False None".split()  # noqa: SIM905
)
"""Words that mean something else in templates."""
_MOST_SCALE = 100
"""Options of one score."""

Place: TypeAlias = Callable[[Any], int]
"""From what stands under `provider` to its place among the providers of the task."""


def column_hook(converter: cattrs.Converter, around: Around, place: Place) -> Hook:
    """For one entry, without what it needs of others but for `requires`.

    Args:
        converter: Of suites.
        around: What files are read against.
        place: Finds providers.
    """
    forms = _Forms(converter, around, place)

    def hook(value: Any, _wanted: Any) -> Column:
        if not isinstance(value, dict):
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
        named = _chosen(value, _TYPE, KINDS, "column")
        return forms.column(named, {key: part for key, part in value.items() if key != _TYPE})

    return hook


def keys_of(model: type[Column]) -> tuple[str, ...]:
    """The keys of a kind of columns, in camelCase, without those of the fields in `INSIDE`.

    Example:
        >>> keys_of(SeedColumns)
        ('dropWhen', 'keep', 'file', 'fromTask', 'columns', 'order', 'seed')
    """
    renamed = RENAMED[model]
    inside = INSIDE.get(model)
    keys = (renamed.get(one.name, camel(one.name)) for one in attrs.fields(model))
    return tuple(key for key in keys if key is not None and key != inside)


def camel_choice(*choices: str) -> Hook:
    """For one of several words, which files write in camelCase or in snake_case."""

    def hook(value: Any, _wanted: Any) -> str:
        if isinstance(value, str) and snake(value) in choices:
            return snake(value)
        known = list(map(camel, choices))
        right = f"{', '.join(known[:-1])} or {known[-1]}"
        hint = nearest(value, known) if isinstance(value, str) else None
        raise MistakenError(Mistake(f"must be {right}, got {kind(value)}", hint))

    return hook


def column_name(value: Any, _wanted: Any = None) -> str:
    """The same, if templates can use it as a variable.

    Raises:
        MistakenError: They cannot.
    """
    if not isinstance(value, str):
        raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
    if not value.isidentifier() or value in _NO_VARIABLES:
        message = f"{quote(value)} cannot be a variable of templates, which name columns"
        near = re.sub(r"\W+", "_", value.strip()).strip("_")
        is_better = near.isidentifier() and near not in _NO_VARIABLES
        hint = f"for example {quote(near)}" if is_better else "use letters, digits and _"
        raise MistakenError(Mistake(message, hint))
    return value


def column_names(value: Any, _wanted: Any = None) -> tuple[str, ...]:
    """A list of different names of columns."""
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list of names, got {kind(value)}"))
    mistakes: list[Mistake] = []
    for place, name in enumerate(value):
        try:
            column_name(name)
        except MistakenError as error:
            mistakes += (part.below(place) for part in error.parts)
        if name in value[:place]:
            mistakes.append(Mistake(f"{quote(name)} stands twice", at=(place,)))
    if mistakes:
        raise MistakenError(*mistakes)
    return tuple(value)


def prompt_text(value: Any, around: Around) -> str:
    """A prompt: a text, a list of messages, or what stands in the one file that it names.

    Raises:
        MistakenError: It is none of these.
    """
    if isinstance(value, list) and value:
        value = {"messages": value}["messages"]
        from trioeval.grading.text import json_text  # noqa: PLC0415

        return json_text(value)
    if not isinstance(value, str) or not value.strip():
        message = f"must be the text of a prompt, or a list of messages, got {kind(value)}"
        raise MistakenError(Mistake(message))
    if not names_file(value):
        return value
    prompts = read_prompts(value, around)
    if len(prompts) > 1:
        message = f"{quote(value)} holds {len(prompts)} prompts"
        raise MistakenError(Mistake(message, "name a file with one"))
    if prompts[0].function is not None:
        message = f"{quote(value)} is a program, and prompts of columns are templates"
        raise MistakenError(Mistake(message, "make the text in a column of type python"))
    return prompts[0].raw


def _chosen(value: Mapping[str, Any], key: str, known: Mapping[str, Any], what: str) -> str:
    """What stands under a key that says which keys there are beside it."""
    found = value.get(key)
    if found is None:
        raise MistakenError(Mistake(f'"{key}" is missing', nearest("", known)))
    if not isinstance(found, str) or found not in known:
        hint = nearest(found if isinstance(found, str) else "", known)
        message = f"{kind(found)} is not a {what} type" if key == _TYPE else None
        message = message or f"{kind(found)} is not a {what}"
        raise MistakenError(Mistake(message, hint, at=(key,)))
    return found
