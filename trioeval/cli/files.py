"""The files that a command line names: none of them may stand for two things.

What is written would destroy what is read, or what else is written, before anybody has seen it. So every
command that writes asks here first. A database is several files: its logs and locks stand beside it.
"""

import os
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from trioeval.errors import UsageError

Named: TypeAlias = tuple[str, Path]
"""What a file is called in messages, and its path."""

_DATABASE = b"SQLite format 3\0"
_BESIDE = ("-wal", "-shm", "-journal")


def check_files(
    read: Iterable[Named] = (),
    *,
    databases: Iterable[tuple[str, Path | None]] = (),
    written: Iterable[Named] = (),
) -> None:
    """Refuse a file that is named twice, by whatever paths and links, and to write over a database.

    To be called before any database is open: it looks into files that are written over, and to close one
    of them again takes away the locks that this process has on it.

    Args:
        read: Files that are only read.
        databases: Those of runs and of replies; None is one in memory.
        written: Files whose content is replaced.

    Raises:
        UsageError: Two of them are the same file, or one that is written is a database.
    """
    called: dict[Hashable, str] = {}

    def take(told: str, marks: Iterable[Hashable]) -> None:
        found = dict.fromkeys(marks, told)
        for mark in found:
            if mark in called:
                raise UsageError(f"{told} is the same file as {called[mark]}")
        called.update(found)

    for name, path in read:
        take(f"{name} {path}", _marks(path))
    for name, database in databases:
        if database is not None:
            take(f"{name} {database}", [*_marks(database), *_marks_beside(database)])
    for name, path in written:
        take(f"{name} {path}", _marks(path))
        if _is_database(path):
            raise UsageError(f"{name} {path} is a database, which is not written over")


def check_spared(written: Iterable[Named], read: Iterable[Path | str]) -> None:
    """Refuse to write over what a suite is made of. Opens nothing.

    Args:
        written: Files whose content is replaced.
        read: Files of the suite; one of them may stand there twice.

    Raises:
        UsageError: One file is both.
    """
    sources = {mark: path for path in read for mark in _marks(Path(path))}
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


def _marks_beside(database: Path) -> Iterator[Hashable]:
    """Those of what belongs to a database."""
    real = Path(os.path.realpath(database))
    for end in _BESIDE:
        yield from _marks(real.with_name(real.name + end))
    try:
        locks = [one for one in real.parent.iterdir() if one.name.startswith(f"{real.name}-")]
    except OSError:
        return
    for lock in locks:
        yield from _marks(lock)


def _is_database(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe may let one wait
            return False
        with path.open("rb") as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return False
