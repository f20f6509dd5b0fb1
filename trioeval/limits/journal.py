# Apart from `limits.file`: the format of the file is one idea, how limits use it another.
"""A journal of a book of limits: a file from which the book can be made again as it was.

It begins with a snapshot of the book; then each operation that has changed the book stands in it, with its
instant. The book is a function of these, so carrying them out again leads to the same state.

A line is a checksum (CRC-32 of zlib, eight hex digits), a blank, JSON and a newline. A line of operations is
written and synced to the disk as one; the last line may be torn by a crash, and what it says was never
answered. The snapshot replaces the file when the operations take more room than it, and after a failure:
what a failed write has left is unknown.

Rejected: a database (one writer, one reader at the start, nothing is looked up), and syncing now and then
(what was granted in between would be granted twice after a loss of power).
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import uuid4
from zlib import crc32

import attrs
import trio

from trioeval.errors import OutputError, Problem, SuiteError
from trioeval.limits.json import from_json
from trioeval.limits.ledger import Book, Snapshot
from trioeval.limits.limits_file import sync_folder
from trioeval.limits.model import Actual, Ask, Limit, Requirement, Settlement

VERSION = 1
_PARTS = ("limits", "leases", "completed")
_CHUNK = 1000  # leases of one line of a snapshot
_LEAST_REWRITTEN = 1024 * 1024  # bytes of operations for which no snapshot is made
_CHECKSUM = 8  # digits
_sync = getattr(os, "fdatasync", os.fsync)

Operation: TypeAlias = Literal["reserve", "complete", "extend", "define", "pause", "remove"]
Entry: TypeAlias = list[Any]
"""One operation: its name, its instant, and what it was given; see `_carry_out`."""


def amounts_data(amounts: Iterable[Requirement | Actual]) -> list[list[Any]]:
    """Amounts of limits as they stand in an entry."""
    return [[one.key, one.amount] for one in amounts]


@attrs.frozen
class Recorded:
    """What stands in a journal."""

    book: Book
    at: float
    """The last instant of it."""


def read_journal(path: Path) -> Recorded | None:
    """The book that a journal leads to; None if there is no journal.

    Raises:
        SuiteError: It cannot be read, or is damaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, None, error.strerror or str(error)) from None
    return _recorded(path, _lines_of(path, data))


def _lines_of(path: Path, data: bytes) -> Iterator[tuple[int, Any]]:
    """The lines that are whole, with their numbers."""
    *lines, torn = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        text = line[_CHECKSUM + 1 :]
        if line[:_CHECKSUM] != b"%08x" % crc32(text):
            if number < len(lines) or torn:
                raise _unusable(path, number, "the line is damaged")
            return
        yield number, json.loads(text)


def _recorded(path: Path, lines: Iterator[tuple[int, Any]]) -> Recorded:
    head = next(lines, (1, None))[1]
    if not isinstance(head, dict) or head.get("journal") != VERSION:
        raise _unusable(path, 1, f"is not a journal of version {VERSION}")
    at = head["at"]
    parts: dict[str, list[Any]] = {name: [] for name in _PARTS}
    for _number, (name, rows) in lines:
        if name == "end":
            break
        parts[name] += rows
    else:
        raise _unusable(path, None, "its snapshot is not whole")
    book = Book.of_snapshot(Snapshot(at, **parts))
    for _number, entries in lines:
        for entry in entries:
            at = entry[1]
            _carry_out(book, entry)
    return Recorded(book, at)


def _carry_out(book: Book, entry: Entry) -> None:
    match entry:
        case ["reserve", at, lease_id, needs]:
            requirements = tuple(Requirement(key, amount) for key, amount in needs)
            book.reserve(Ask(lease_id, "", requirements), at)
        case ["complete", at, lease_id, used]:
            actuals = tuple(Actual(key, amount) for key, amount in used)
            book.complete(Settlement(lease_id, "", actuals), at)
        case ["extend", at, lease_ids]:
            book.extend(lease_ids, at)
        case ["define", at, data]:
            book.define(from_json(data, Limit), at)
        case ["pause", at, key, until]:
            book.pause(key, until, at)
        case ["remove", at, key]:
            book.remove(key, at)


@attrs.define(eq=False)
class Journal:
    """The journal of one book.

    Args:
        path: Its file.
        snapshot: Takes a snapshot of the book, in which everything that was appended is included.
    """

    _path: Path
    _snapshot: Callable[[], Snapshot]
    _file: int | None = None
    """Its descriptor; None before it is written anew."""
    _entries: list[Entry] = attrs.field(factory=list)
    """Those that are not written."""
    _appended: int = 0
    _durable: int = 0
    """How many of those that were appended are on the disk."""
    _snapshot_size: int = 0
    _size: int = 0
    """Bytes of the operations after the snapshot."""
    _writing: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)

    def append(self, operation: Operation, at: float, *given: Any) -> None:
        """Take up an operation that was carried out. Synchronous; nothing is written.

        Args:
            operation: Its name; that of a reserve stands for a lease that was granted, or known already.
            at: Its instant.
            *given: JSON data of what it was given.
        """
        self._entries.append([operation, at, *given])
        self._appended += 1

    async def commit(self) -> None:
        """Return when everything that was appended is on the disk. A checkpoint.

        Those who wait at once share one write: the first writes for all that have come by then.

        Raises:
            OutputError: It cannot be written; the next call tries all of it again.
        """
        wanted = self._appended
        async with self._writing:
            if self._durable < wanted:
                await self._write()

    async def _write(self) -> None:
        entries, self._entries = self._entries, []
        file, appended, is_written = self._file, self._appended, False
        self._file = None  # until it is known to be sound
        try:
            # The disk is waited for in any case; what is half written would be worth nothing.
            with trio.CancelScope(shield=True):
                if file is None or self._size > max(_LEAST_REWRITTEN, self._snapshot_size):
                    lines = _snapshot_lines(self._snapshot())
                    new = await trio.to_thread.run_sync(_replace, self._path, lines)
                    self._file, self._snapshot_size, self._size = *new, 0
                else:
                    self._size += await trio.to_thread.run_sync(_append, file, [entries])
                    self._file, file = file, None
            is_written = True
        except OSError as error:
            msg = f"{self._path}: leases cannot be written: {error.strerror or error}"
            raise OutputError(msg) from error
        finally:
            if file is not None:
                os.close(file)
            if is_written:
                self._durable = appended

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def remove(self) -> None:
        """Let the file go, and remove it.

        Raises:
            OutputError: It cannot be removed.
        """
        self.close()
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            msg = f"{self._path} cannot be removed: {error.strerror or error}"
            raise OutputError(msg) from error


def _snapshot_lines(snapshot: Snapshot) -> Iterator[object]:
    yield {"journal": VERSION, "at": snapshot.at}
    for name in _PARTS:
        rows = getattr(snapshot, name)
        for start in range(0, len(rows), _CHUNK):
            yield [name, rows[start : start + _CHUNK]]
    yield ["end", []]


def _replace(path: Path, lines: Iterable[object]) -> tuple[int, int]:
    """Put a file of these in the place of what is there; its descriptor, and its size."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
    is_there = False
    try:
        size = _append(file, lines)
        temporary.replace(path)
        sync_folder(path.parent)
        is_there = True
    finally:
        if not is_there:
            os.close(file)
            temporary.unlink(missing_ok=True)
    return file, size


def _append(file: int, lines: Iterable[object]) -> int:
    """Write lines, and wait until they are on the disk; how many bytes they are."""
    size = 0
    for line in lines:
        text = json.dumps(line, separators=(",", ":")).encode()
        data = memoryview(b"%08x %b\n" % (crc32(text), text))
        while data:
            written = os.write(file, data)
            size, data = size + written, data[written:]
    _sync(file)
    return size


def _unusable(path: Path, line: int | None, reason: str) -> SuiteError:
    hint = (
        "what is in use is known only there; remove it to begin with what the file of limits says"
    )
    return SuiteError([Problem("$", reason, hint, str(path), line)], files=[path])
