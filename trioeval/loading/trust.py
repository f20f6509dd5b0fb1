# Separate from `loading.structure`: together they exceed 600 lines.
"""Hooks for keys that depend on the folder and the trust of a suite: paths, code, variables, sizes."""

from collections.abc import Mapping
from typing import Any

import attrs
import cattrs

from trioeval.documents.files import FileContext, wrong_paths
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind, read_each, read_list
from trioeval.documents.structure import Hook, object_hook, one_or_more, scalar_texts
from trioeval.grading import quote
from trioeval.scripting import names_script
from trioeval.suite.model import MOST_ROWS, EvaluateOptions


def place_hook(context: FileContext) -> Hook:
    """Return the hook for one path, which must stay in the root of the suite."""

    def hook(value: Any, _wanted: Any) -> str:
        if not isinstance(value, str):
            raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
        context.place(value)
        return value

    return hook


def places_hook(context: FileContext) -> Hook:
    """Return the hook for a path or a list of paths, which must stay in the root of the suite."""

    def hook(value: Any, target: Any) -> tuple[str, ...]:
        texts = one_or_more(value, target)
        if isinstance(value, str):
            context.place(value)
        else:
            read_list(texts, context.place)
        return texts

    return hook


def variables_hook(context: FileContext) -> Hook:
    """Return the hook for environment variables; those that name a file that a run opens are paths."""

    def hook(value: Any, target: Any) -> dict[str, str]:
        variables = scalar_texts(value, target)
        Mistakes(wrong_paths(variables, context)).raise_any()
        return variables

    return hook


def code_texts(context: FileContext) -> Hook:
    """Return the hook for texts that name functions, alone or in a list."""

    def check(text: str) -> None:
        context.check_code(quote(text))
        if names_script(text):
            from trioeval.suite.sources.code import check_node_reference

            check_node_reference(text, "is an extension", context)

    def hook(value: Any, target: Any) -> tuple[str, ...]:
        texts = one_or_more(value, target)
        read_list(texts, check)
        return texts

    return hook


def filters_hook(converter: cattrs.Converter, context: FileContext) -> Hook:
    """Return the hook for filters of templates, by their names."""
    structure = converter.get_structure_hook(Mapping[str, str])

    def hook(value: Any, _wanted: Any) -> Mapping[str, str]:
        filters: Mapping[str, str] = structure(value, Mapping[str, str])
        read_each(filters.items(), lambda _name, file: context.check_code(quote(file)))
        return filters

    return hook


def env_files_hook(context: FileContext) -> Hook:
    """Return the hook for environment files; those of an untrusted suite only the user may name."""
    read = places_hook(context)

    def hook(value: Any, target: Any) -> tuple[str, ...]:
        if not context.trust.trusted:
            raise MistakenError(
                Mistake("an untrusted suite reads no environment", "name the file with --env-file")
            )
        texts: tuple[str, ...] = read(value, target)
        return texts

    return hook


def run_options_hook(converter: cattrs.Converter, context: FileContext) -> Hook:
    """Return the hook for options of a run; an untrusted suite may lower the row limit, not raise it."""
    read = object_hook(converter, EvaluateOptions)

    def hook(value: Any, target: Any) -> EvaluateOptions:
        options: EvaluateOptions = read(value, target)
        if context.trust.trusted or 0 < options.max_rows <= MOST_ROWS:
            return options
        message = f"is ignored: an untrusted suite may have at most {MOST_ROWS:,} rows"
        hint = "to allow more, pass --max-rows (max_rows= in Python)"
        context.warn(Mistake(message, hint, at=("evaluateOptions", "maxRows"), key=True))
        return attrs.evolve(options, max_rows=MOST_ROWS)

    return hook
