# Apart from `loading.structure`: together they exceed 600 lines.
"""Keys of a suite of which an untrusted one has none or less: hooks, filters, files with variables, sizes."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import cattrs

from trioeval.documents.files import Around
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes
from trioeval.documents.paths import DocumentPath
from trioeval.documents.structure import Hook, object_hook, one_or_more
from trioeval.grading import quote
from trioeval.loading.paths import places_hook
from trioeval.suite.model import MOST_ROWS, EvaluateOptions


def code_texts(around: Around) -> Hook:
    """For texts that name functions, alone or in a list."""

    def hook(value: Any, wanted: Any) -> tuple[str, ...]:
        texts = one_or_more(value, wanted)
        _refuse((((place,), text) for place, text in enumerate(texts)), around)
        return texts

    return hook


def filters_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For filters of templates, by their names."""
    structure = converter.get_structure_hook(Mapping[str, str])

    def hook(value: Any, _wanted: Any) -> Mapping[str, str]:
        filters: Mapping[str, str] = structure(value, Mapping[str, str])
        _refuse((((name,), file) for name, file in filters.items()), around)
        return filters

    return hook


def env_files_hook(around: Around) -> Hook:
    """For files with variables of the environment, which only the user may name for an untrusted suite."""
    read = places_hook(around)

    def hook(value: Any, wanted: Any) -> tuple[str, ...]:
        if not around.trust.trusted:
            raise MistakenError(
                Mistake("an untrusted suite reads no environment", "name the file with --env-file")
            )
        texts: tuple[str, ...] = read(value, wanted)
        return texts

    return hook


def run_options_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For how a suite is run; one that is not trusted may lower the bound of its rows, and not raise it."""
    read = object_hook(converter, EvaluateOptions)

    def hook(value: Any, wanted: Any) -> EvaluateOptions:
        options: EvaluateOptions = read(value, wanted)
        if around.trust.trusted or 0 < options.max_rows <= MOST_ROWS:
            return options
        message = f"is ignored: an untrusted suite may not have more than {MOST_ROWS:,} rows"
        hint = "if you mean it, say it with --max-rows (max_rows= in Python)"
        around.warn(Mistake(message, hint, at=("evaluateOptions", "maxRows"), key=True))
        return attrs.evolve(options, max_rows=MOST_ROWS)

    return hook


def _refuse(named: Iterable[tuple[DocumentPath, str]], around: Around) -> None:
    mistakes = Mistakes()
    for at, text in named:
        with mistakes.below(*at):
            around.check_code(quote(text))
    mistakes.raise_any()
