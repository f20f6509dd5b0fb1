"""A suite file as pytest collects it: what it holds, and what is wrong with it."""

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.pytest_support.keys import Key, RowKey, TaskKey
from trioeval.pytest_support.naming import Names, row_names
from trioeval.report import inert
from trioeval.suite import Suite, load_suite, told_together
from trioeval.suite.own_files import read_own_env_files
from trioeval.tasks import PreparedSuite, PreparedTask, prepare


@attrs.frozen(eq=False)
class LoadedFile:
    """A suite whose rows may be run."""

    path: Path
    suite: Suite = attrs.field(repr=False)
    environ: Mapping[str, str] = attrs.field(repr=False)
    max_concurrency: int | None
    checked: PreparedSuite = attrs.field(repr=False)
    """Without what its extensions would make of it: those are told of runs, and collecting is none."""
    has_extensions: bool
    """Whether only a run shows which rows it has."""

    def prepared(self) -> PreparedSuite:
        """What is run. Its extensions are told that it begins, and may change its tests.

        Raises:
            SuiteError: They are wrong, or what they make of it.
        """
        if not self.has_extensions:
            return self.checked
        return prepare(self.suite, environ=self.environ, max_concurrency=self.max_concurrency)


@attrs.frozen
class Named:
    """What is to be one item."""

    name: str
    key: Key
    path: str
    """Where it stands in the suite."""


def load_file(path: Path, max_concurrency: int | None, *, plans: bool = False) -> LoadedFile:
    """Load a suite and check it; nobody is asked anything.

    Args:
        path: The file.
        max_concurrency: Calls in flight that no lane may exceed.
        plans: Whether no code of it is to run; rows that code makes are then one item.

    Raises:
        SuiteError: Everything that is wrong with it.
        UsageError: Files with its environment are wrong.
    """
    try:
        suite = load_suite(path, plans=plans)
    except SuiteError as error:
        check = functools.partial(_checked, environ=os.environ, max_concurrency=max_concurrency)
        raise told_together(error, check) from None
    environ = _environ(suite)
    return LoadedFile(
        path,
        suite,
        environ,
        max_concurrency,
        _checked(suite, environ=environ, max_concurrency=max_concurrency),
        bool(suite.unknown)
        or any(part.extensions for part in (suite, *(task.suite for task in suite.tasks))),
    )


def named_items(loaded: LoadedFile, encoding: str = "utf-8") -> Iterator[Named]:
    """What its items are: rows where they are known before it is run, and tasks where they are not.

    Args:
        loaded: The file.
        encoding: One that names can be told in.
    """
    names = Names(encoding)
    for part in loaded.checked.parts:
        below = "$" if part.place is None else f"$.tasks[{part.place}]"
        if loaded.has_extensions or part.rows is None:
            yield Named(names.only(inert(part.id or "suite")), TaskKey(part.id), below)
            continue
        steps = part.prepared.steps
        places = _places(part)
        for step, name in zip(steps, row_names(steps, part.id, names), strict=True):
            path = steps.path_of(places[step.index]).removeprefix("$")
            yield Named(name, RowKey(part.id, step.test_idx, step.prompt_idx), f"{below}{path}")


def line_of(suite: Suite, path: str) -> int | None:
    """The line of a suite file, from 1, in which something stands; None if that is not known."""
    if suite.place is None or suite.file is None:
        return None
    found = suite.place(Problem(path, ""))
    if found.file is None or Path(found.file).absolute() != suite.file.absolute():
        return None
    return found.line


def _places(part: PreparedTask) -> list[int]:
    """The place of the test of each step."""
    found: list[int] = []
    for span in part.prepared.steps.spans:
        each = (span.stop - span.start) // len(span.places)
        for place in span.places:
            found += [place] * each
    return found


def _checked(
    suite: Suite, *, environ: Mapping[str, str], max_concurrency: int | None
) -> PreparedSuite:
    tasks = (
        attrs.evolve(task, suite=attrs.evolve(task.suite, extensions=())) for task in suite.tasks
    )
    bare = attrs.evolve(suite, extensions=(), tasks=tuple(tasks))
    return prepare(bare, environ=environ, max_concurrency=max_concurrency)


def _environ(suite: Suite) -> Mapping[str, str]:
    """The environment of the process, with what files say in place of what is not set; later files win."""
    found = read_own_env_files(suite)
    if not found:
        return os.environ
    return {**os.environ, **found, **{key: value for key, value in os.environ.items() if value}}
