"""Files that a glob pattern matches, found with a bound on the work.

`glob` of the standard library reports nothing about the entries it compares: a pattern that matches nothing
returns only after the whole disk has been read. So the walk is made here, by the rules of that module with
`recursive=True`: `*`, `?` and `[…]` match within a name, `**` any folders, and none of them a leading dot.
"""

import fnmatch
import os
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

MOST_ENTRIES = 1_000_000
"""The maximum number of folder entries a pattern is compared with; takes a second or two."""

_ANY_FOLDERS = "**"
_MAGIC = frozenset("*?[")


class TooFarError(Exception):
    """A pattern has been compared with the maximum number of folder entries."""


def is_glob(path: str) -> bool:
    """Return whether a path is a glob pattern.

    Example:
        >>> is_glob("tests/*.csv"), is_glob("tests.csv")
        (True, False)
    """
    return not _MAGIC.isdisjoint(path)


def files_matching(directory: Path, pattern: str, *, most: int = MOST_ENTRIES) -> Iterator[Path]:
    """Yield the files that a pattern matches, in any order, each as often as links lead to it. Blocks.

    Args:
        directory: The base of a relative pattern; its own name is not a pattern.
        pattern: May be absolute.
        most: The maximum number of entries it is compared with.

    Raises:
        TooFarError: There are more entries.
    """
    walk = _GlobWalk(most)
    parts = [part for part in Path(pattern).parts if part != os.sep]
    steps = tuple(
        part
        for before, part in zip(["", *parts], parts, strict=False)
        if not before == part == _ANY_FOLDERS
    )
    waiting = [(os.sep if Path(pattern).is_absolute() else str(directory), steps)]
    while waiting:
        folder, (step, *rest) = waiting.pop()
        if step == _ANY_FOLDERS:
            waiting += ((path, (step, *rest)) for path in walk.folders(folder))
        if step == _ANY_FOLDERS and rest:
            waiting.append((folder, tuple(rest)))
            continue
        for path in walk.found(folder, step):
            if rest:
                waiting.append((path, tuple(rest)))
            elif os.path.isfile(path):  # noqa: PTH113 - many of them
                yield Path(path)


@attrs.define(eq=False, repr=False)
class _GlobWalk:
    """The entries that one pattern has been compared with."""

    most: int
    passed: int = 0

    def found(self, folder: str, step: str) -> Iterator[str]:
        """Yield the entries of a folder that a step of a pattern matches."""
        if not is_glob(step):
            self._pass()
            yield os.path.join(folder, step)  # noqa: PTH118 - keeps ".."
            return
        pattern = re.compile(fnmatch.translate("*" if step == _ANY_FOLDERS else step))
        for entry in self._entries(folder):
            is_hidden = entry.name.startswith(".") and not step.startswith(".")
            if pattern.match(entry.name) and not is_hidden:
                yield entry.path

    def folders(self, folder: str) -> Iterator[str]:
        """Yield the folders in a folder, links to folders included."""
        for entry in self._entries(folder):
            try:
                if entry.is_dir() and not entry.name.startswith("."):
                    yield entry.path
            except OSError:  # a cycle of links
                continue

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._pass()
                    yield entry
        except (
            OSError,
            ValueError,
        ):  # not a folder, or not readable: nothing matches
            return

    def _pass(self) -> None:
        self.passed += 1
        if self.passed > self.most:
            raise TooFarError
