"""What the process that leads the workers of xdist does: it tells them when to stop, and tidies up."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import attrs
import pytest

STOPPED = "stopped"
"""A file in what workers share: no more rows are to be started."""

_NAME = "trioeval-leader"


def shared_folder(run: str) -> Path:
    """What the workers of a session share, by what xdist calls their run. The first suite makes it."""
    return Path(tempfile.gettempdir()) / f"trioeval-{run}"


def lead(config: pytest.Config, run: str) -> None:
    """Lead a worker; the first one makes a plugin of the session for all of them."""
    if not config.pluginmanager.has_plugin(_NAME):
        config.pluginmanager.register(Leader(shared_folder(run)), _NAME)


@attrs.define(eq=False)
class Leader:
    """A plugin of a session that leads workers.

    Those know nothing of failures elsewhere, and would run to the end what they have begun.
    """

    folder: Path
    """What the workers share."""
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
        shutil.rmtree(self.folder, ignore_errors=True)

    def _stop(self) -> None:
        with suppress(OSError):  # without a suite there is no folder
            (self.folder / STOPPED).touch()
