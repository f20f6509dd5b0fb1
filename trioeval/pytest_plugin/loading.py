"""A suite file for pytest: its items, and its problems."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import attrs
import pytest

from trioeval.errors import Problem, SuiteError
from trioeval.loading.load import load_suite
from trioeval.loading.own_files import read_own_env_files
from trioeval.providers.secrets import is_secret_name
from trioeval.pytest_plugin.keys import Key, RowKey, TaskKey
from trioeval.report.formats.json import shallow
from trioeval.report.formats.markdown import without_commands
from trioeval.run import PreparedSuite, PreparedTask, prepare
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.model import Suite
from trioeval.text_safety import escape_control_characters

# The names of items: the test and the provider, unique in their file.


_TITLE = 80  # characters of the title of a test
_LABEL = 60  # characters of the name of a provider or prompt
_SEPARATOR = re.compile(r"::+")
"""The separator of the parts of names of items."""


@attrs.define
class Names:
    """A registry of unique names: a repeated name gets a number."""

    encoding: str = "utf-8"
    """The encoding of names; other characters are escaped, as names become environment variables."""
    _taken: dict[str, int] = attrs.field(init=False, factory=dict)

    def only(self, name: str) -> str:
        """Return the name, or the name with a number if it is taken.

        Example:
            >>> names = Names()
            >>> names.only("a::b"), names.only("a::b")
            ('a:b', 'a:b#2')
        """
        plain = without_commands(_SEPARATOR.sub(":", name))
        plain = plain.encode(self.encoding, "backslashreplace").decode(self.encoding)
        while True:
            count = self._taken[plain] = self._taken.get(plain, 0) + 1
            if count == 1:
                return plain
            plain = f"{plain}#{count}"


def row_names(steps: Expansion, task: str | None, names: Names) -> Iterator[str]:
    """Yield the names of the rows of a task.

    Args:
        steps: Its rows.
        task: The id of the task, which precedes the test; None if the suite has only one.
        names: The registry of names.

    Example:
        >>> from trioeval.suite.expand import expand
        >>> from trioeval import parse_suite
        >>> tests = [{"vars": {"x": ["1", "2"]}}, {"description": "greets", "vars": {}}]
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["a", "b"], "tests": tests})
        >>> [*row_names(expand(suite), None, Names())][1:5]
        ['x:1[echo-b]', 'x:2[echo-a]', 'x:2[echo-b]', 'greets[echo-a]']
    """
    several = len({column.prompt.label for column in steps.columns}) > 1
    before = "" if task is None else f"{escape_control_characters(task, _LABEL)}: "
    for step in steps:
        entry = steps.providers[step.provider_index]
        parts = [escape_control_characters(entry.name, _LABEL)]
        if several:
            parts.append(escape_control_characters(step.column.prompt.label, _LABEL))
        if step.repeat_index:
            parts.append(f"repeat {step.repeat_index + 1}")
        yield names.only(f"{before}{_title(step)}[{'-'.join(parts)}]")


def _title(step: Step) -> str:
    test = step.test
    named = None if test.extra is None else test.extra.name
    title = named or test.description
    if not title:
        # No equals sign: `-k` does not accept one.
        title = ", ".join(f"{name}:{shallow(value)}" for name, value in step.vars.items())
    return escape_control_characters(title, _TITLE) or "test"


# The settings of suites in the configuration of pytest.


_OFF = frozenset({"off", "false", "no", "0"})
_ON = frozenset({"", "on", "true", "yes", "1"})
_MISSING_KEY: Mapping[str, Literal["skipped", "failed"]] = {"skip": "skipped", "fail": "failed"}


@attrs.frozen(kw_only=True)
class PluginSettings:
    """The settings of suites."""

    max_concurrency: int | None = None
    """The most calls in flight of each lane, ≥ 1; None uses the suites' values."""
    missing_key: Literal["skipped", "failed"] = "skipped"
    """The result of the items of a suite without its key."""
    is_cached: bool = True
    """True if replies are cached."""
    cache: Path | None = None
    """The file of the cache; None is a cache in memory."""
    db: Path | None = None
    """The database of runs; None stores them for the session only."""


def read_settings(config: pytest.Config, environ: Mapping[str, str]) -> PluginSettings:
    """Return the settings; paths are relative to the root of the session.

    Args:
        config: The configuration of the session.
        environ: The environment, which sets the cache unless the settings do.

    Raises:
        UsageError: A setting is not valid.
    """
    width = str(config.getini("trioeval_max_concurrency") or "").strip()
    if width and not (width.isascii() and width.isdigit() and int(width) >= 1):
        msg = f"trioeval_max_concurrency must be a whole number of at least 1, got {width!r}"
        raise pytest.UsageError(msg)
    missing = str(config.getini("trioeval_missing_key") or "").strip() or "skip"
    if missing not in _MISSING_KEY:
        msg = f"trioeval_missing_key must be skip or fail, got {missing!r}"
        raise pytest.UsageError(msg)
    db = str(config.getini("trioeval_db") or "").strip()
    is_cached, cache = _cache(config, environ)
    return PluginSettings(
        max_concurrency=int(width) if width else None,
        missing_key=_MISSING_KEY[missing],
        is_cached=is_cached,
        cache=cache,
        db=config.rootpath / db if db else None,
    )


def _cache(config: pytest.Config, environ: Mapping[str, str]) -> tuple[bool, Path | None]:
    setting = str(config.getini("trioeval_cache") or "").strip()
    if not setting:
        setting = _variable(environ, "CACHE_ENABLED") or ""
    if setting.lower() in _OFF:
        return False, None
    if setting.lower() == "memory" or (
        setting.lower() in _ON and _variable(environ, "CACHE_TYPE") == "memory"
    ):
        return True, None
    if setting.lower() not in _ON:
        return True, config.rootpath / setting
    given = _variable(environ, "CACHE_PATH")
    if given is None:
        folder = _variable(environ, "CONFIG_DIR") or ".trioeval"
        return True, config.rootpath / folder / "cache.db"
    path = config.rootpath / given
    return True, path if path.suffix == ".db" and not path.is_dir() else path / "cache.db"


def _variable(environ: Mapping[str, str], name: str) -> str | None:
    return environ.get(f"TRIOEVAL_{name}") or environ.get(f"PROMPTFOO_{name}") or None


@attrs.frozen(eq=False)
class CollectedSuite:
    """A suite whose rows can be run."""

    path: Path
    suite: Suite = attrs.field(repr=False)
    environ: Mapping[str, str] = attrs.field(repr=False)
    max_concurrency: int | None
    checked: PreparedSuite = attrs.field(repr=False)
    """The suite before its extensions change it: those are called for runs, not for collecting."""
    has_extensions: bool
    """True if its rows are only known after it was started."""
    lacks: str = ""
    """The API keys that are missing; then its rows cannot be run. "" if there are all."""

    def prepared(self) -> PreparedSuite:
        """Return the suite to run, after the extensions' hooks for the start of a run.

        Raises:
            SuiteError: An extension is not valid, or the suite that it returns.
        """
        if not self.has_extensions:
            return self.checked
        return prepare(self.suite, environ=self.environ, max_concurrency=self.max_concurrency)


@attrs.frozen(eq=False)
class PytestSession:
    """The facts that all processes of a session share."""

    folder: Path
    """The folder that its processes share."""
    id: str
    """The prefix of the ids of its runs."""
    settings: PluginSettings
    stopped: Path | None = None
    """A file that exists once the leading process starts no more rows; None without a leading process."""


@attrs.frozen(eq=False)
class WantedFile:
    """The requested items of a file."""

    loaded: CollectedSuite
    name: str
    """A digest that distinguishes its run from those of other files."""
    keys: frozenset[Key]


@attrs.frozen
class Named:
    """The data of one item."""

    name: str
    key: Key
    path: str
    """The location in the suite."""


def load_file(path: Path, max_concurrency: int | None, *, plans: bool = False) -> CollectedSuite:
    """Load and check a suite; no provider is called.

    A suite whose only problems are missing API keys is loaded: its items are known, but cannot be run.

    Args:
        path: The file.
        max_concurrency: The most calls in flight of each lane.
        plans: Whether no code of the suite runs; tasks with rows from code are then one item each.

    Raises:
        SuiteError: As for `load_suite`, and for `prepare`.
        UsageError: An environment file is not valid.
    """
    suite = load_suite(path, plans=plans)
    environ = _environ(suite)
    # With any text in place of its keys the rows are known, unless something else is wrong.
    missing: dict[str, str] = {}
    problems: dict[Problem, None] = {}
    while True:
        stand_ins = {**environ, **dict.fromkeys(missing, "missing")} if missing else environ
        try:
            checked = _checked(suite, environ=stand_ins, max_concurrency=max_concurrency)
            break
        except SuiteError as error:
            problems |= dict.fromkeys(error.problems)
            found = missing_keys(error.problems)
            if found.keys() <= missing.keys():
                raise SuiteError(problems, files=error.files) from None
            missing |= found
    return CollectedSuite(
        path,
        suite,
        environ,
        max_concurrency,
        checked,
        bool(suite.unknown)
        or any(part.extensions for part in (suite, *(task.suite for task in suite.tasks))),
        "; ".join(dict.fromkeys(missing.values())),
    )


_UNSET = re.compile(r"set (\w+(?: or \w+)*)(?: in the environment\b.*)?")
"""A hint that names variables of the environment: one of them must be set."""


def missing_keys(problems: Iterable[Problem]) -> Mapping[str, str]:
    """Return the variables that lack the keys of a suite, each with a sentence about it.

    Args:
        problems: The problems of the suite.

    Returns:
        One variable for each key; nothing if a problem is another one than a missing key.

    Example:
        >>> hint = "set A_KEY or B_KEY in the environment or in a file"
        >>> key = Problem("$.providers[0].config.apiKey", "a:b needs an API key", hint)
        >>> missing_keys([key])
        {'A_KEY': 'a:b needs an API key: set A_KEY or B_KEY'}
        >>> missing_keys([key, Problem("$.promts", "unknown")])
        {}
    """
    found: dict[str, str] = {}
    for problem in problems:
        names = _UNSET.fullmatch(problem.hint or "")
        if names is None:
            return {}
        first = names[1].partition(" ")[0]
        if not (problem.path.endswith(_KEY_PATHS) or is_secret_name(first)):
            return {}
        is_named = first in problem.message
        found[first] = problem.message if is_named else f"{problem.message}: set {names[1]}"
    return found


_KEY_PATHS = (".apiKey", ".apiKeyEnvar")


def linked(suites: Iterable[CollectedSuite]) -> list[list[CollectedSuite]]:
    """Return groups of suites: those that share a lane, directly or by others, are in one group."""
    groups: list[tuple[set[str], list[CollectedSuite]]] = []
    for suite in suites:
        lanes = {spec.name for spec in suite.checked.lane_specs}
        members = [suite]
        apart: list[tuple[set[str], list[CollectedSuite]]] = []
        for names, others in groups:
            if lanes.isdisjoint(names):
                apart.append((names, others))
            else:
                lanes |= names
                members = [*others, *members]
        groups = [*apart, (lanes, members)]
    return [members for _, members in groups]


def named_items(loaded: CollectedSuite, encoding: str = "utf-8") -> Iterator[Named]:
    """Yield its items: rows if they are known before the run, otherwise tasks.

    Args:
        loaded: The suite.
        encoding: The encoding of names.
    """
    names = Names(encoding)
    for part in loaded.checked.parts:
        below = "$" if part.place is None else f"$.tasks[{part.place}]"
        if loaded.has_extensions or part.rows is None:
            yield Named(
                names.only(escape_control_characters(part.id or "suite")), TaskKey(part.id), below
            )
            continue
        steps = part.prepared.steps
        places = _places(part)
        for step, name in zip(steps, row_names(steps, part.id, names), strict=True):
            path = steps.path_of(places[step.index]).removeprefix("$")
            yield Named(name, RowKey(part.id, step.test_idx, step.prompt_idx), f"{below}{path}")


def line_of(suite: Suite, path: str) -> int | None:
    """Return the line of a location in a suite file, from 1; None if it is unknown."""
    if suite.place is None or suite.file is None:
        return None
    found = suite.place(Problem(path, ""))
    if found.file is None or Path(found.file).absolute() != suite.file.absolute():
        return None
    return found.line


def _places(part: PreparedTask) -> list[int]:
    """Yield the position of the test of each step."""
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
    """Return the environment, completed by files; later files override earlier ones."""
    found = read_own_env_files(suite)
    if not found:
        return os.environ
    return {**os.environ, **found, **{key: value for key, value in os.environ.items() if value}}
