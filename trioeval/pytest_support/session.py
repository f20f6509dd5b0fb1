"""What one session of pytest shares among its suites, from the first one that is collected to its end."""

import os
import shutil
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import attrs
import pytest

from trioeval.pytest_support.host import Host, Session
from trioeval.pytest_support.leading import STOPPED, new_session, session_of_worker, shared_folder
from trioeval.pytest_support.settings import read_settings

_NAME = "trioeval-session"
_LETTERS = 12  # of the id of a session, in that of its runs


@attrs.define(eq=False)
class SuiteSession:
    """A plugin of a session that has suites."""

    terms: Session
    host: Host | None = attrs.field(init=False, default=None)
    """What runs them, once one was asked for."""
    _own_folder: Path | None = None
    """What is removed at the end; None where it is not ours alone."""
    _is_whole: bool = attrs.field(init=False, default=False)
    """Whether it has come to the end of its items."""

    def begin(self, host: Host) -> Host:
        """Run suites by this host from now on."""
        if self.host is not None:
            self.host.close(at_once=False)
        self.host = host
        return host

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """See whether it comes to an end by itself."""
        # What pytest says of that at the end of a session is wrong if it was interrupted twice.
        done = yield
        self._is_whole = True
        return done

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End what still runs; where nothing has gone wrong, other workers may wait for it."""
        if self.host is None:
            return
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if exitstatus == pytest.ExitCode.INTERRUPTED and reporter is not None:
            reporter.write_line("")
            reporter.write_line(
                "trioeval: rows under way may finish; interrupt again to cancel them"
            )
        # Interrupted once more, it has cancelled them: pytest is to say how all others ended.
        with suppress(KeyboardInterrupt):
            self.host.close(at_once=not self._is_whole)

    def pytest_unconfigure(self) -> None:
        """Leave nothing behind."""
        if self.host is not None:
            self.host.close(at_once=True)
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)


def session_of(config: pytest.Config) -> SuiteSession:
    """That of a configuration; made when it is first asked for.

    Raises:
        UsageError: A setting means nothing.
    """
    found = config.pluginmanager.get_plugin(_NAME)
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
    config.pluginmanager.register(session, _NAME)
    return session
