"""Collects suites as tests of pytest, a row each.

It is loaded in every session of everybody who has trioeval installed: before the items of a suite are wanted,
nothing else of trioeval is imported. That a file lies in a folder of which others are wanted is not enough.
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
        with _unchanged():
            from trioeval.pytest_plugin.items import items_of  # noqa: PLC0415 - see above

        return items_of(self)


class _Unchanged(MetaPathFinder):
    """Finds our modules as they are.

    pytest would rewrite the assertions in all modules of whoever has a plugin, which takes seconds wherever
    it may not keep what comes of that.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Where a module of ours is; None for all others."""
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
    """A worker of xdist begins."""
    from trioeval.pytest_plugin.items import lead  # noqa: PLC0415 - see above

    lead(node)
