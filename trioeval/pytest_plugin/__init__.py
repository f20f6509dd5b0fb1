"""Collects suites as tests of pytest, an item for each row.

The plugin is loaded in every session of every user of trioeval: nothing else of trioeval is imported until
items of a suite are requested. A suite file in a folder with other requested files is not enough.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_SUFFIXES = (".trioeval.json", ".trioeval.yaml", ".trioeval.yml")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the settings."""
    parser.addini("trioeval_max_concurrency", "the most calls in flight of each lane")
    parser.addini(
        "trioeval_cache",
        "file of the cache of replies, `memory`, or `off` (default: .trioeval/cache.db)",
    )
    parser.addini(
        "trioeval_missing_key",
        "`skip` or `fail`: the result of the items of a suite without its API key (default: skip)",
    )
    parser.addini("trioeval_db", "database that stores the runs of suites (default: none)")


class SuiteFile(pytest.File):
    """A suite as a file of tests."""

    def collect(self) -> Iterator[pytest.Item]:
        """Return its items. No provider is called.

        Raises:
            CollectError: A setting is not valid; or the suite is not, and its items are listed or requested
                by name.
        """
        with _unchanged():
            from trioeval.pytest_plugin.items import items_of

        return items_of(self)


class _Unchanged(MetaPathFinder):
    """An importer that loads our modules unchanged.

    pytest would rewrite the assertions in all modules of a plugin's package, which takes seconds if it cannot
    cache the result.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return the specification of one of our modules; None for all others."""
        return PathFinder.find_spec(name, path, target) if name.startswith("trioeval.") else None


@contextmanager
def _unchanged() -> Iterator[None]:
    finder = _Unchanged()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
    """Collect a suite."""
    if not file_path.name.endswith(_SUFFIXES):
        return None
    file: SuiteFile = SuiteFile.from_parent(parent, path=file_path)
    return file


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Handle the start of a worker of xdist."""
    with _unchanged():
        from trioeval.pytest_plugin.workers import lead

    lead(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that gives suites with a common lane to one worker; None for other modes."""
    if config.getvalue("dist") != "load":
        return None
    with _unchanged():
        from trioeval.pytest_plugin.scheduler import LaneScheduling

    return LaneScheduling(config, log)
