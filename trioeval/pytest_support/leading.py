"""What the process that leads the workers of xdist does: it tells them when to stop, and tidies up."""

import secrets
import shutil
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

STOPPED = "stopped"
"""A file in what workers share: no more rows are to be started."""

_INPUT = "trioeval_session"
_NAME = "trioeval-leader"


def new_session() -> str:
    """A name for a session that no other one has had."""
    return secrets.token_hex(12)


def session_of_worker(config: pytest.Config) -> str | None:
    """What the session is called that this process is a worker of; None if it is none."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    found: str | None = given.get(_INPUT)
    return found


def shared_folder(session: str) -> Path:
    """What the workers of a session share, by its name. The first suite makes it."""
    return Path(tempfile.gettempdir()) / f"trioeval-{session}"


def lead(node: Any) -> None:
    """Lead a worker of xdist; the first one makes a plugin of the session for all of them."""
    plugins = node.config.pluginmanager
    leader = plugins.get_plugin(_NAME)
    if leader is None:
        leader = Leader(new_session())
        plugins.register(leader, _NAME)
    node.workerinput[_INPUT] = leader.name


@attrs.define(eq=False)
class Leader:
    """A plugin of a session that leads workers.

    Those know nothing of failures elsewhere, and would run to the end what they have begun.
    """

    name: str
    """Of the session. Not what xdist calls it, which a flag may say, and say again another day."""
    _session: pytest.Session | None = attrs.field(init=False, default=None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Tell workers if it breaks off."""
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
        """Tell workers as soon as there are too many failures: they are let finish before it breaks off."""
        session = self._session
        if session is not None and (session.shouldfail or session.shouldstop):
            self._stop()

    def pytest_unconfigure(self) -> None:
        """Remove what workers have shared."""
        shutil.rmtree(shared_folder(self.name), ignore_errors=True)

    def _stop(self) -> None:
        with suppress(OSError):  # without a suite there is no folder
            (shared_folder(self.name) / STOPPED).touch()
