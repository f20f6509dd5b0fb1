"""The processes of a session with xdist: the workers, and the one that leads them.

The leading process imports this module in every session with workers, and nothing else of trioeval.
"""

import json
import secrets
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

STOPPED = "stopped"
"""A file in the shared folder of workers: start no more rows."""

_INPUT = "trioeval_session"
_NAME = "trioeval-leader"
_GROUPS = "groups.json"


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


def write_groups(folder: Path, groups: Sequence[Sequence[int]]) -> None:
    """Send the leading process the groups of items that belong into one worker each.

    All workers collect the same items, so each of them writes the same file.

    Args:
        folder: The shared folder.
        groups: The indices of the items of each group.

    Raises:
        OSError: The file cannot be written.
    """
    part = folder / f"{secrets.token_hex(8)}.part"
    part.write_text(json.dumps(groups), "utf-8")
    part.replace(folder / _GROUPS)


def read_groups(config: pytest.Config) -> list[list[int]]:
    """Return the groups that the workers of this session have written; none without suites."""
    leader = config.pluginmanager.get_plugin(_NAME)
    if leader is None:
        return []
    try:
        text = (shared_folder(leader.name) / _GROUPS).read_text("utf-8")
    except OSError:  # no suite was collected, or the workers are on another machine
        return []
    groups: list[list[int]] = json.loads(text)
    return groups


def lead(node: Any) -> None:
    """Lead a worker of xdist; the first call registers the plugin of the session for all of them."""
    plugins = node.config.pluginmanager
    leader = plugins.get_plugin(_NAME)
    if leader is None:
        leader = ControllerPlugin(new_session())
        plugins.register(leader, _NAME)
    node.workerinput[_INPUT] = leader.name


class ControllerPlugin:
    """A plugin of a session that leads workers.

    Workers do not know about failures elsewhere, and would complete all that they have started.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        """The name of the session. Not that of xdist, which a flag may set to the same name again."""
        self._session: pytest.Session | None = None

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
