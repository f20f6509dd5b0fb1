"""The rows of suites as items of pytest."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from trioeval.errors import SuiteError, TrioevalError
from trioeval.pytest_plugin.keys import Key
from trioeval.pytest_plugin.loading import (
    CollectedSuite,
    PytestSession,
    WantedFile,
    line_of,
    linked,
    load_file,
    named_items,
    read_settings,
)
from trioeval.pytest_plugin.outcome import Ending
from trioeval.pytest_plugin.workers import (
    STOPPED,
    new_session,
    session_of_worker,
    shared_folder,
    write_groups,
)
from trioeval.report.formats.markdown import without_commands
from trioeval.text_safety import inert_lines

if TYPE_CHECKING:
    from trioeval.pytest_plugin.host import Host

# The state that the suites of one pytest session share, from the first collected suite to the end.


_SESSION_NAME = "trioeval-session"
_LETTERS = 12  # characters of the id of a session in the ids of its runs


@attrs.define(eq=False, repr=False)
class SuiteSession:
    """A plugin of a session with suites."""

    terms: PytestSession
    host: "Host | None" = attrs.field(init=False, default=None)
    """The host of suites, once one was requested."""
    _own_folder: Path | None = None
    """The folder to remove at the end; None if it is shared."""
    _is_whole: bool = attrs.field(init=False, default=False)
    """True if all items were run."""

    def begin(self, host: "Host") -> "Host":
        """Use this host from now on."""
        if self.host is not None:
            self.host.close(at_once=False)
        self.host = host
        return host

    @pytest.hookimpl(tryfirst=True)  # before the worker reports that it has collected
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Send the leading process the groups of items whose suites share lanes."""
        if self.terms.stopped is None:
            return
        items: dict[CollectedSuite, list[int]] = {}
        for index, item in enumerate(session.items):
            if isinstance(item, SuiteItem) and not item.loaded.lacks:
                items.setdefault(item.loaded, []).append(index)
        groups = [
            sorted(one for suite in suites for one in items[suite]) for suites in linked(items)
        ]
        # Without the file rows are distributed as other tests are; each is still run once.
        with suppress(OSError):
            write_groups(self.terms.folder, groups)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Detect whether the session ends normally."""
        # At the end of a session pytest reports it wrongly if it was interrupted twice.
        done = yield
        self._is_whole = True
        return done

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End what is still running; after a normal end, other workers may wait for it."""
        if self.host is None:
            return
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if exitstatus == pytest.ExitCode.INTERRUPTED and reporter is not None:
            reporter.write_line("")
            reporter.write_line("trioeval: running rows may finish; interrupt again to cancel them")
        # A further interrupt has cancelled them: pytest shall report all other results.
        with suppress(KeyboardInterrupt):
            self.host.close(at_once=not self._is_whole)

    def pytest_unconfigure(self) -> None:
        """Remove the folder."""
        if self.host is not None:
            self.host.close(at_once=True)
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)


def session_of(config: pytest.Config) -> SuiteSession:
    """Return the session of a configuration; made on the first call.

    Raises:
        UsageError: A setting is not valid.
    """
    found = config.pluginmanager.get_plugin(_SESSION_NAME)
    if isinstance(found, SuiteSession):
        return found
    settings = read_settings(config, os.environ)
    led = session_of_worker(config)
    name = led or new_session()
    folder = shared_folder(name)
    folder.mkdir(mode=0o700, exist_ok=True)
    terms = PytestSession(
        folder, f"pytest-{name[:_LETTERS]}", settings, folder / STOPPED if led else None
    )
    session = SuiteSession(terms, None if led else folder)
    config.pluginmanager.register(session, _SESSION_NAME)
    return session


_PROBLEMS = 20_000  # characters


class SuiteItem(pytest.Item):
    """A row of a suite, or a task whose rows are not known before it runs."""

    suites: SuiteSession
    loaded: CollectedSuite
    key: Key
    place: str
    """The location in the suite file."""

    def runtest(self) -> None:
        """Run its file if that was not started, and end as the row did."""
        if self.loaded.lacks:
            self._end(self.suites.terms.settings.missing_key, _plain(self.loaded.lacks))
        host = self._host()
        result = host.wait(self.loaded, self.key)
        # A plugin that repeats failed tests gets the same result again.
        new = [one for one in result.properties if one not in self.user_properties]
        self.user_properties += new
        while not host.warnings.empty():
            self._warn(host.warnings.get())
        self._end(result.ending, result.text)

    def reportinfo(self) -> tuple[str, int, str]:
        """Return the location and the name."""
        line = line_of(self.loaded.suite, self.place)
        return str(self.path), 0 if line is None else line - 1, self.name

    @property
    def obj(self) -> Callable[[], None]:
        """Attributes that other plugins expect, as if all items were functions."""
        return self.runtest

    def _end(self, ending: Ending, text: str) -> None:
        if ending == "failed":
            pytest.fail(text, pytrace=False)
        if ending == "skipped":
            raise pytest.skip.Exception(text, _use_item_location=True)

    def _warn(self, warning: str) -> None:
        try:
            self.warn(pytest.PytestWarning(_plain(warning)))
        except pytest.PytestWarning as error:  # if warnings are errors
            pytest.fail(str(error), pytrace=False)

    def _host(self) -> "Host":
        """Return the host of all selected items."""
        from trioeval.pytest_plugin.host import Host

        host = self.suites.host
        if host is None or not host.has(self.loaded, self.key):
            items = (one for one in (*self.session.items, self) if isinstance(one, SuiteItem))
            host = self.suites.begin(Host(self.suites.terms, _wanted_files(items)))
        return host


class InvalidSuiteItem(pytest.Item):
    """A suite that cannot be run: an error of its own, which does not stop the session."""

    problems: str
    line: int
    """From 0."""

    def setup(self) -> None:
        """Report all problems."""
        pytest.fail(self.problems, pytrace=False)

    def runtest(self) -> None:
        """Do nothing: the setup has failed."""

    def reportinfo(self) -> tuple[str, int, str]:
        """Return the location of the first problem, and the name."""
        return str(self.path), self.line, self.name

    @property
    def obj(self) -> Callable[[], None]:
        """Attributes that other plugins expect, as if all items were functions."""
        return self.runtest


def items_of(file: pytest.File) -> Iterator[pytest.Item]:
    """Return the items of a suite file; a suite that cannot be run is an item that reports its problems.

    Raises:
        CollectError: A setting is not valid; or the suite is not, and its items are listed or requested by
            name: then no item would report the problems.
    """
    try:
        suites = session_of(file.config)
    except (pytest.UsageError, OSError) as error:
        raise file.CollectError(_plain(error)) from None
    line = 0
    try:
        loaded = load_file(
            file.path,
            suites.terms.settings.max_concurrency,
            plans=bool(file.config.option.collectonly),
        )
        for warning in loaded.checked.warnings:
            file.warn(pytest.PytestWarning(_plain(warning)))
    except SuiteError as error:
        problems = _plain(error)
        line = next((one.line - 1 for one in error.problems if one.line is not None), 0)
    except pytest.PytestWarning as error:  # if warnings are errors
        problems = _plain(error)
    except (TrioevalError, OSError) as error:
        problems = _plain(f"{file.path}: {error}")
    else:
        yield from _items(file, suites, loaded)
        return
    if file.config.option.collectonly or _has_requested_items(file):
        raise file.CollectError(problems)
    item: InvalidSuiteItem = InvalidSuiteItem.from_parent(file, name="suite")
    item.problems, item.line = problems, line
    yield item


def _has_requested_items(file: pytest.File) -> bool:
    """Return whether an argument of pytest is the id of an item of this file."""
    config = file.config
    named = (arg.partition("::") for arg in config.args)
    return any(part and config.invocation_params.dir / path == file.path for path, part, _ in named)


def _items(file: pytest.File, suites: SuiteSession, loaded: CollectedSuite) -> Iterator[SuiteItem]:
    for named in named_items(loaded, sys.getfilesystemencoding()):
        item: SuiteItem = SuiteItem.from_parent(file, name=named.name)
        item.suites, item.loaded = suites, loaded
        item.key, item.place = named.key, named.path
        yield item


def _plain(text: object) -> str:
    """Return a message without terminal controls."""
    return without_commands(inert_lines(text, _PROBLEMS))


def _wanted_files(items: Iterable[SuiteItem]) -> Mapping[CollectedSuite, WantedFile]:
    """Return the requested items of each file. All workers of a session get the same result."""
    keys: dict[CollectedSuite, set[Key]] = {}
    names: dict[CollectedSuite, str] = {}
    for item in items:
        if item.loaded.lacks:
            continue
        keys.setdefault(item.loaded, set()).add(item.key)
        names[item.loaded] = item.nodeid.partition("::")[0]
    return {
        loaded: WantedFile(loaded, _digest(names[loaded], found), frozenset(found))
        for loaded, found in keys.items()
    }


def _digest(name: str, keys: Iterable[Key]) -> str:
    """Return a digest that distinguishes runs of other files, and of other rows."""
    joined = "\n".join([name, *sorted(map(repr, keys))])
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:8]
