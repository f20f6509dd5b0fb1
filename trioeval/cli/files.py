"""The files that a command line names: none of them may stand for two things.

What is written would destroy what is read, or what else is written, before anybody has seen it.
"""

import os
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path

from trioeval.errors import UsageError


def check_files(named: Iterable[tuple[str, Path]]) -> None:
    """Refuse a file that is named twice, by whatever paths and links. Opens nothing.

    Args:
        named: What each file is called in messages, and its path.

    Raises:
        UsageError: Two of them are the same file.
    """
    called: dict[Hashable, str] = {}
    for name, path in named:
        for mark in _marks(path):
            if mark in called:
                raise UsageError(f"{name} {path} is the same file as {called[mark]}")
        called |= dict.fromkeys(_marks(path), f"{name} {path}")


def check_spared(written: Iterable[tuple[str, Path]], read: Iterable[Path]) -> None:
    """Refuse to write over what a suite is made of. Opens nothing.

    Args:
        written: What each file is called in messages, and its path.
        read: Files of the suite; one of them may stand there twice.

    Raises:
        UsageError: One file is both.
    """
    sources = {mark: path for path in read for mark in _marks(path)}
    for name, path in written:
        for mark in _marks(path):
            if mark in sources:
                raise UsageError(f"{name} {path} is the same file as the suite's {sources[mark]}")


def _marks(path: Path) -> Iterator[Hashable]:
    """What two paths of one file have in common: where it is, and which one it is if it is there."""
    yield os.path.realpath(path)
    try:
        found = path.stat()
    except OSError:
        return
    yield found.st_dev, found.st_ino
