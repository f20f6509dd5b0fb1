"""The rows of suites as items of pytest."""

import hashlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from trioeval.errors import SuiteError, TrioevalError
from trioeval.pytest_plugin.host import Host, Session, WantedFile
from trioeval.pytest_plugin.keys import Key
from trioeval.pytest_plugin.loading import (
    CollectedSuite,
    line_of,
    load_file,
    named_items,
    read_settings,
)
from trioeval.report.formats.markdown import without_commands
from trioeval.text_safety import inert_lines

# The process that leads the workers of xdist: it stops them, and cleans up.


STOPPED = "stopped"
"""A file in the shared folder of workers: start no more rows."""

_INPUT = "trioeval_session"
_NAME = "trioeval-leader"


def new_session() -> str:
    """Return a unique name of a session."""
    return secrets.token_hex(12)


def session_of_worker(config: pytest.Config) -> str | None:
    """Return the name of the session of this worker; None if this process is not a worker."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    found: str | None = given.get(_INPUT)
    return found


def shared_folder(session: str) -> Path:
    """Return the folder that the workers of a session share. The first suite creates it."""
    return Path(tempfile.gettempdir()) / f"trioeval-{session}"


def lead(node: Any) -> None:
    """Lead a worker of xdist; the first call registers the plugin of the session for all of them."""
    plugins = node.config.pluginmanager
    leader = plugins.get_plugin(_NAME)
    if leader is None:
        leader = ControllerPlugin(new_session())
        plugins.register(leader, _NAME)
    node.workerinput[_INPUT] = leader.name


@attrs.define(eq=False, repr=False)
class ControllerPlugin:
    """A plugin of a session that leads workers.

    Workers do not know about failures elsewhere, and would complete all that they have started.
    """

    name: str
    """The name of the session. Not that of xdist, which a flag may set to the same name again."""
    _session: pytest.Session | None = attrs.field(init=False, default=None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Stop the workers if the session is aborted."""
        self._session = session
        is_whole = False
        try:
            done = yield
            is_whole = True
            return done
        finally:
            if not is_whole:
                self._stop()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self) -> None:
        """Stop the workers when there are too many failures, so that they finish before the session ends."""
        session = self._session
        if session is not None and (session.shouldfail or session.shouldstop):
            self._stop()

    def pytest_unconfigure(self) -> None:
        """Remove the shared folder."""
        shutil.rmtree(shared_folder(self.name), ignore_errors=True)

    def _stop(self) -> None:
        with suppress(OSError):  # without a suite the folder does not exist
            (shared_folder(self.name) / STOPPED).touch()


# The state that the suites of one pytest session share, from the first collected suite to the end.


_SESSION_NAME = "trioeval-session"
_LETTERS = 12  # characters of the id of a session in the ids of its runs


@attrs.define(eq=False, repr=False)
class SuiteSession:
    """A plugin of a session with suites."""

    terms: Session
    host: Host | None = attrs.field(init=False, default=None)
    """The host of suites, once one was requested."""
    _own_folder: Path | None = None
    """The folder to remove at the end; None if it is shared."""
    _is_whole: bool = attrs.field(init=False, default=False)
    """True if all items were run."""

    def begin(self, host: Host) -> Host:
        """Use this host from now on."""
        if self.host is not None:
            self.host.close(at_once=False)
        self.host = host
        return host

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
    terms = Session(
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
        host = self._host()
        result = host.wait(self.loaded, self.key)
        # A plugin that repeats failed tests gets the same result again.
        new = [one for one in result.properties if one not in self.user_properties]
        self.user_properties += new
        while not host.warnings.empty():
            self._warn(host.warnings.get())
        if result.ending == "failed":
            pytest.fail(result.text, pytrace=False)
        if result.ending == "skipped":
            raise pytest.skip.Exception(result.text, _use_item_location=True)

    def reportinfo(self) -> tuple[str, int, str]:
        """Return the location and the name."""
        line = line_of(self.loaded.suite, self.place)
        return str(self.path), 0 if line is None else line - 1, self.name

    @property
    def obj(self) -> Callable[[], None]:
        """Attributes that other plugins expect, as if all items were functions."""
        return self.runtest

    def _warn(self, warning: str) -> None:
        try:
            self.warn(pytest.PytestWarning(_plain(warning)))
        except pytest.PytestWarning as error:  # if warnings are errors
            pytest.fail(str(error), pytrace=False)

    def _host(self) -> Host:
        """Return the host of all selected items."""
        host = self.suites.host
        if host is None or not host.has(self.loaded, self.key):
            items = (one for one in (*self.session.items, self) if isinstance(one, SuiteItem))
            host = self.suites.begin(Host(self.suites.terms, _wanted_files(items)))
        return host


def items_of(file: pytest.File) -> Iterator[SuiteItem]:
    """Return the items of a suite file.

    Raises:
        CollectError: The suite or a setting is not valid; all problems.
    """
    try:
        suites = session_of(file.config)
        loaded = load_file(
            file.path,
            suites.terms.settings.max_concurrency,
            plans=bool(file.config.option.collectonly),
        )
        for warning in loaded.checked.warnings:
            file.warn(pytest.PytestWarning(_plain(warning)))
    except (SuiteError, pytest.UsageError, pytest.PytestWarning) as error:
        # The warning is an exception if warnings are errors.
        raise file.CollectError(_plain(error)) from None
    except (TrioevalError, OSError) as error:
        raise file.CollectError(_plain(f"{file.path}: {error}")) from None
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
