"""Loads a suite from files or from plain data, and places what is wrong with it."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.suite.chosen import apply_given, folders_of
from trioeval.suite.documents import SuiteDocument, check_plain, read_document, read_suite_documents
from trioeval.suite.documents.spots import Spot
from trioeval.suite.mistakes import Mistake, MistakenError
from trioeval.suite.models import Suite
from trioeval.suite.paths import read_path, show_path
from trioeval.suite.sources.around import FILE, Around
from trioeval.suite.structure import respelled, structure_suite
from trioeval.suite.task_entries import in_every_task
from trioeval.suite.transformed import with_transformed_vars

_OF_SEVERAL_FILES = ("prompts", "providers", "tests", "scenarios", "tasks")
"""Lists to which several suite files add."""


def load_suite(
    path: str | PathLike[str],
    *more: str | PathLike[str],
    environ: Mapping[str, str] | None = None,
    allow_outside: bool = False,
    given: Mapping[str, Any] | None = None,
) -> Suite:
    """Load a suite from a file, or from several that are laid over each other.

    Reads every file that it names; code that it names runs only where it makes tests or variables of them.

    Args:
        path: A `.json`, `.yaml`, `.yml` or `.toml` file. Relative paths in it are relative to its folder.
        more: Other suite files, whose prompts, providers and tests are added; else what is later wins.
        environ: What `{{env.NAME}}` and switches are looked up in; the process environment if None.
        allow_outside: Whether the suite may read files outside of its folder.
        given: Keys of a suite that stand in place of the files', as `apply_given` has it. Its paths are
            absolute, and the folders of its files may be read.

    Raises:
        SuiteError: Everything that is wrong with it, with file, line and column, in the order of the file.
    """
    files = [Path(path), *map(Path, more)]
    environ = os.environ if environ is None else environ
    given = {} if given is None else given
    try:
        document = read_suite_documents(files, environ=environ, allow_outside=allow_outside)
    except MistakenError as error:
        raise SuiteError(_sorted(_problem(mistake) for mistake in error.parts)) from None
    found = _Found(document.files)
    directory = files[0].absolute().parent
    around = Around(
        directory=directory,
        environ=_environ(document.data, environ),
        roots=tuple(
            dict.fromkeys([*(file.absolute().parent for file in files), *folders_of(given)])
        ),
        allow_outside=allow_outside,
        warn=found.warnings.append,
        note=found.add,
    )

    def placed(mistake: Mistake) -> Mistake:
        # What a command line says stands in no file.
        return mistake if {*mistake.at[:1]} & given.keys() else document.placed(mistake)

    mistakes = list(document.mistakes)
    suite: Suite | None = None
    try:
        whole = apply_given(_with_own_paths(document, directory), given)
        suite = structure_suite(whole, around)
        suite = in_every_task(suite, lambda one: with_transformed_vars(one, around))
    except MistakenError as error:
        mistakes += error.parts
    if suite is None or mistakes:
        raise SuiteError(_sorted(_problem(placed(mistake)) for mistake in mistakes))
    warnings = [*document.warnings, *(placed(warning) for warning in found.warnings)]
    suite = attrs.evolve(suite, file=files[0], files=found.files)
    return _finished(suite, around, warnings)


def parse_suite(
    document: Any,
    *,
    directory: Path | None = None,
    environ: Mapping[str, str] | None = None,
    allow_outside: bool = False,
) -> Suite:
    """A suite from data of the shape of a suite file.

    Args:
        document: What `json.load` would give. Templates like `{{env.NAME}}` stay for when rows run.
        directory: What relative paths are relative to; the working directory if None.
        environ: What switches are looked up in; the process environment if None.
        allow_outside: Whether the suite may read files outside of `directory`.

    Raises:
        SuiteError: Everything that is wrong with it.

    Example:
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["Hello"]})
        >>> suite.providers[0].id, suite.evaluate_options.max_concurrency
        ('echo', 4)
    """
    if foreign := check_plain(document):
        raise SuiteError(map(_problem, foreign))
    directory = Path.cwd() if directory is None else directory.absolute()
    found = _Found(())
    around = Around(
        directory=directory,
        environ=_environ(document, os.environ if environ is None else environ),
        allow_outside=allow_outside,
        warn=found.warnings.append,
        note=found.add,
    )
    try:
        suite = structure_suite(document, around)
        suite = in_every_task(suite, lambda one: with_transformed_vars(one, around))
    except MistakenError as error:
        raise SuiteError(map(_problem, error.parts)) from None
    return _finished(attrs.evolve(suite, files=found.files), around, found.warnings)


def place_problems(problems: Iterable[Problem], file: Path) -> list[Problem]:
    """The places of problems that were found after loading, such as those of a provider's config.

    Args:
        problems: With the paths of the document; those that name a file are left as they are.
        file: The suite file.
    """
    try:
        spots = read_document(file).spots().root
    except MistakenError:  # gone or changed since it was loaded
        spots = None
    return [
        problem if problem.file else _in_file(_mistake(problem, spots), file, spots)
        for problem in problems
    ]


def _finished(suite: Suite, around: Around, warnings: Iterable[Mistake]) -> Suite:
    """A suite that knows what its files are read against, and what is odd about it."""
    roots = around.roots if len(around.roots) > 1 else ()
    suite = in_every_task(
        suite,
        lambda one: attrs.evolve(
            one, directory=around.directory, roots=roots, allow_outside=around.allow_outside
        ),
    )
    return attrs.evolve(suite, warnings=tuple(map(_problem, dict.fromkeys(warnings))))


class _Found:
    """What turns up while a suite is loaded."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.warnings: list[Mistake] = []
        self._files = dict.fromkeys(files)

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self._files)

    def add(self, file: Path) -> None:
        self._files[file] = None


def _environ(document: Any, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with what the suite says over it; what is wrong with that is told elsewhere."""
    own = document.get("env") if isinstance(document, dict) else None
    if not isinstance(own, dict):
        return environ
    return {**environ, **{name: value for name, value in own.items() if isinstance(value, str)}}


def _with_own_paths(document: SuiteDocument, directory: Path) -> Any:
    """The document, with the paths of files from other folders made absolute."""
    if len({file.absolute().parent for file in document.files}) < 2:  # noqa: PLR2004 - two folders
        return document.data
    data = dict(document.data)
    for key in _OF_SEVERAL_FILES:
        if isinstance(data.get(key), list):
            data[key] = [
                _absolute(entry, folder)
                if (folder := document.directory_of((key, place))) != directory
                else entry
                for place, entry in enumerate(data[key])
            ]
    return data


def _absolute(value: Any, directory: Path) -> Any:
    match value:
        case str() if value.startswith(FILE):
            return f"{FILE}{directory / value.removeprefix(FILE)}"
        case dict():
            return {key: _absolute(part, directory) for key, part in value.items()}
        case list():
            return [_absolute(part, directory) for part in value]
        case _:
            return value


def _mistake(problem: Problem, spots: Spot | None) -> Mistake:
    mistake = Mistake(problem.message, problem.hint, at=read_path(problem.path))
    return respelled(mistake) if spots is not None and "targets" in spots.members else mistake


def _in_file(mistake: Mistake, file: Path, spots: Spot | None) -> Problem:
    place = None if spots is None else spots.find(mistake.at, key=mistake.key)
    return _problem(attrs.evolve(mistake, file=file, place=mistake.place or place))


def _problem(mistake: Mistake) -> Problem:
    line, column = mistake.place or (None, None)
    file = None if mistake.file is None else str(mistake.file)
    return Problem(show_path(mistake.at), mistake.message, mistake.hint, file, line, column)


def _sorted(problems: Iterable[Problem]) -> Sequence[Problem]:
    """Problems by file, each in the order of its lines; files in the order in which they turn up."""
    found = list(problems)
    files = list(dict.fromkeys(problem.file for problem in found))
    by_place: Callable[[Problem], tuple[int, int, int]] = lambda problem: (  # noqa: E731 - typed
        files.index(problem.file),
        problem.line or 0,
        problem.column or 0,
    )
    return sorted(found, key=by_place)
