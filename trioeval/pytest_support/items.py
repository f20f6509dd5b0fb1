"""The rows of suites as items of pytest."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from trioeval.errors import SuiteError, TrioevalError
from trioeval.pytest_support.host import Host, WantedFile
from trioeval.pytest_support.keys import Key
from trioeval.pytest_support.loading import LoadedFile, line_of, load_file, named_items
from trioeval.pytest_support.session import SuiteSession, session_of
from trioeval.report.github import without_commands
from trioeval.report.inert import inert_lines

_PROBLEMS = 20_000  # characters


class SuiteItem(pytest.Item):
    """A row of a suite, or a task whose rows are not known before it is run."""

    suites: SuiteSession
    loaded: LoadedFile
    key: Key
    place: str
    """Where it stands in the suite."""

    def runtest(self) -> None:
        """Have its file run, if it was not, and end as the row did."""
        host = self._host()
        told = host.wait(self.loaded, self.key)
        # Whoever repeats tests that fail gets the same answer once more.
        new = [one for one in told.properties if one not in self.user_properties]
        self.user_properties += new
        while not host.warnings.empty():
            self._warn(host.warnings.get())
        if told.ending == "failed":
            pytest.fail(told.text, pytrace=False)
        if told.ending == "skipped":
            raise pytest.skip.Exception(told.text, _use_item_location=True)

    def reportinfo(self) -> tuple[str, int, str]:
        """Where it stands, and what it is called."""
        line = line_of(self.loaded.suite, self.place)
        return str(self.path), 0 if line is None else line - 1, self.name

    @property
    def obj(self) -> Callable[[], None]:
        """What other plugins look at, as if all items were functions."""
        return self.runtest

    def _warn(self, warning: str) -> None:
        try:
            self.warn(pytest.PytestWarning(_plain(warning)))
        except pytest.PytestWarning as error:  # where warnings are errors
            pytest.fail(str(error), pytrace=False)

    def _host(self) -> Host:
        """What runs it, with everything that is not deselected."""
        host = self.suites.host
        if host is None or not host.has(self.loaded, self.key):
            items = (one for one in (*self.session.items, self) if isinstance(one, SuiteItem))
            host = self.suites.begin(Host(self.suites.terms, _wanted(items)))
        return host


def items_of(file: pytest.File) -> Iterator[SuiteItem]:
    """The items of a suite file.

    Raises:
        CollectError: The suite is wrong, or a setting; all that is.
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
        # A warning is raised where warnings are errors.
        raise file.CollectError(_plain(error)) from None
    except (TrioevalError, OSError) as error:
        raise file.CollectError(_plain(f"{file.path}: {error}")) from None
    for named in named_items(loaded, sys.getfilesystemencoding()):
        item: SuiteItem = SuiteItem.from_parent(file, name=named.name)
        item.suites, item.loaded = suites, loaded
        item.key, item.place = named.key, named.path
        yield item


def _plain(text: object) -> str:
    """What a log may show."""
    return without_commands(inert_lines(text, _PROBLEMS))


def _wanted(items: Iterable[SuiteItem]) -> Mapping[LoadedFile, WantedFile]:
    """What is wanted of each file. All workers of a session come to the same."""
    keys: dict[LoadedFile, set[Key]] = {}
    names: dict[LoadedFile, str] = {}
    for item in items:
        keys.setdefault(item.loaded, set()).add(item.key)
        names[item.loaded] = item.nodeid.partition("::")[0]
    return {
        loaded: WantedFile(loaded, _digest(names[loaded], found), frozenset(found))
        for loaded, found in keys.items()
    }


def _digest(name: str, keys: Iterable[Key]) -> str:
    """What tells apart runs of other files, and of other rows."""
    said = "\n".join([name, *sorted(map(repr, keys))])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:8]
