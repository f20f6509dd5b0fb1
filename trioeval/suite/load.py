"""Loads a suite from a file or from plain data, and places what is wrong with it."""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import Mistake, MistakenError
from trioeval.suite.models import Suite
from trioeval.suite.paths import read_path, show_path
from trioeval.suite.spots import Spot
from trioeval.suite.structure import respelled, structure_suite


def load_suite(path: str | PathLike[str]) -> Suite:
    """Load a suite file.

    Args:
        path: A `.json`, `.yaml` or `.yml` file. Relative paths in it are relative to its folder.

    Raises:
        SuiteError: Everything that is wrong with it, with file, line and column, in the order of the file.
    """
    file = Path(path)
    try:
        document = read_document(file)
    except MistakenError as error:
        raise SuiteError(_problem(mistake, file, None) for mistake in error.parts) from None
    mistakes = list(document.mistakes)
    suite: Suite | None = None
    try:
        suite = structure_suite(document.data)
    except MistakenError as error:
        mistakes += error.parts
    if suite is None or mistakes:
        spots = document.spots().root
        problems = [_problem(mistake, file, spots) for mistake in mistakes]
        raise SuiteError(sorted(problems, key=lambda found: (found.line or 0, found.column or 0)))
    return attrs.evolve(suite, directory=file.absolute().parent, file=file)


def parse_suite(document: Any, *, directory: Path | None = None) -> Suite:
    """A suite from data of the shape of a suite file.

    Args:
        document: What `json.load` would give.
        directory: What relative paths are relative to; the working directory if None.

    Raises:
        SuiteError: Everything that is wrong with it.

    Example:
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["Hello"]})
        >>> suite.providers[0].id, suite.evaluate_options.max_concurrency
        ('echo', 4)
    """
    try:
        suite = structure_suite(document)
    except MistakenError as error:
        raise SuiteError(_problem(mistake, None, None) for mistake in error.parts) from None
    return attrs.evolve(suite, directory=Path.cwd() if directory is None else directory)


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
        problem if problem.file else _problem(_mistake(problem, spots), file, spots)
        for problem in problems
    ]


def _mistake(problem: Problem, spots: Spot | None) -> Mistake:
    mistake = Mistake(problem.message, problem.hint, at=read_path(problem.path))
    return respelled(mistake) if spots is not None and "targets" in spots.members else mistake


def _problem(mistake: Mistake, file: Path | None, spots: Spot | None) -> Problem:
    place = mistake.place
    if place is None and spots is not None:
        place = spots.find(mistake.at, key=mistake.key)
    line, column = place or (None, None)
    return Problem(
        show_path(mistake.at),
        mistake.message,
        mistake.hint,
        None if file is None else str(file),
        line,
        column,
    )
