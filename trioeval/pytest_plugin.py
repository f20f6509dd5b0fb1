"""Collects suites as tests of pytest, a row each.

It is loaded in every session of everybody who has trioeval installed: before the items of a suite are wanted,
nothing else of trioeval is imported. That a file lies in a folder of which others are wanted is not enough.
"""

import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

_SUFFIXES = (".trioeval.json", ".trioeval.yaml", ".trioeval.yml")
STOPPED = "stopped"
"""A file in what workers share: no more rows are to be started."""
_RUN = pytest.StashKey[str]()
"""In the process that leads workers: the id of what they run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the settings known."""
    parser.addini("trioeval_max_concurrency", "calls in flight that no lane of a suite may exceed")
    parser.addini(
        "trioeval_cache",
        "file of the cache of replies, `memory`, or `off` (default: .trioeval/cache.db)",
    )
    parser.addini("trioeval_db", "database that keeps the runs of suites (default: none does)")


class SuiteFile(pytest.File):
    """A suite, as a file of tests."""

    def collect(self) -> Iterator[pytest.Item]:
        """Its items. Nobody is asked anything.

        Raises:
            CollectError: The suite is wrong, or a setting; all that is.
        """
        from trioeval.pytest_support.items import items_of  # noqa: PLC0415 - see above

        return items_of(self)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
    """Collect a suite."""
    if not file_path.name.endswith(_SUFFIXES):
        return None
    file: SuiteFile = SuiteFile.from_parent(parent, path=file_path)
    return file


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker of xdist begins."""
    node.config.stash[_RUN] = node.workerinput["testrunuid"]


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Where this process leads workers, tell them if it breaks off: they would run all they have begun."""
    is_whole = False
    try:
        done = yield
        is_whole = True
        return done
    finally:
        run = session.config.stash.get(_RUN, None)
        if run is not None and not is_whole:
            with suppress(OSError):  # without a suite there is no folder
                (shared_folder(run) / STOPPED).touch()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what workers have shared."""
    if (run := config.stash.get(_RUN, None)) is None:
        return
    folder = shared_folder(run)
    if folder.exists():
        import shutil  # noqa: PLC0415 - rarely needed

        shutil.rmtree(folder, ignore_errors=True)


def shared_folder(run: str) -> Path:
    """What the workers of a session share, by what xdist calls their run."""
    return Path(tempfile.gettempdir()) / f"trioeval-{run}"
