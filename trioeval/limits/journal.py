# Separate from `limits.file`: the format of the journal is separate from its use.
"""The journal of a limit ledger: a file from which the ledger can be restored.

It starts with a snapshot of the ledger; each operation that changed the ledger follows, with its instant. The
ledger is a function of these, so replaying them leads to the same state.

A line is a checksum (CRC-32 of zlib, eight hex digits), a blank, JSON and a newline. A line of operations is
written and synced to disk as one; a crash may tear the last line, whose operations were then never answered.
A new snapshot replaces the file when the operations take more room than the snapshot, and after a failure,
because the state of the file after a failed write is unknown.

Rejected: a database (one writer, one reader at the start, nothing is looked up), and syncing periodically
(leases granted in between would be granted twice after a loss of power).
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
from trioeval.limits.ledger import LimitLedger, Snapshot
from trioeval.limits.limits_file import sync_folder
from trioeval.limits.model import Actual, LeaseRequest, Requirement, Settlement, SharedLimit

VERSION = 1
_PARTS = ("limits", "leases", "completed")
_CHUNK = 1000  # leases per line of a snapshot
_MIN_REWRITTEN = 1024 * 1024  # bytes of operations below which no new snapshot is written
_CHECKSUM = 8  # digits
_sync = getattr(os, "fdatasync", os.fsync)

Operation: TypeAlias = Literal["reserve", "complete", "extend", "define", "pause", "remove"]
Entry: TypeAlias = list[Any]
"""One operation: its name, its instant and its arguments; see `_replay`."""


def amounts_data(amounts: Iterable[Requirement | Actual]) -> list[list[Any]]:
    """Return amounts of limits as an entry has them."""
    return [[one.key, one.amount] for one in amounts]


@attrs.frozen
class ReplayedJournal:
    """The content of a journal."""

    ledger: LimitLedger
    at: float
    """Its last instant."""


def read_journal(path: Path) -> ReplayedJournal | None:
    """Return the ledger that a journal leads to; None if the file does not exist.

    Raises:
        SuiteError: It cannot be read, or is damaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, None, error.strerror or str(error)) from None
    return _replayed(path, _lines_of(path, data))


def _lines_of(path: Path, data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the complete lines, with their numbers."""
    *lines, torn = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        text = line[_CHECKSUM + 1 :]
        if line[:_CHECKSUM] != b"%08x" % crc32(text):
            if number < len(lines) or torn:
                raise _unusable(path, number, "the line is damaged")
            return
        yield number, json.loads(text)


def _replayed(path: Path, lines: Iterator[tuple[int, Any]]) -> ReplayedJournal:
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
        raise _unusable(path, None, "its snapshot is incomplete")
    ledger = LimitLedger.of_snapshot(Snapshot(at, **parts))
    for _number, entries in lines:
        for entry in entries:
            at = entry[1]
            _replay(ledger, entry)
    return ReplayedJournal(ledger, at)


def _replay(ledger: LimitLedger, entry: Entry) -> None:
    match entry:
        case ["reserve", at, lease_id, needs]:
            requirements = tuple(Requirement(key, amount) for key, amount in needs)
            ledger.reserve(LeaseRequest(lease_id, "", requirements), at)
        case ["complete", at, lease_id, used]:
            actuals = tuple(Actual(key, amount) for key, amount in used)
            ledger.complete(Settlement(lease_id, "", actuals), at)
        case ["extend", at, lease_ids]:
            ledger.extend(lease_ids, at)
        case ["define", at, data]:
            ledger.define(from_json(data, SharedLimit), at)
        case ["pause", at, key, until]:
            ledger.pause(key, until, at)
        case ["remove", at, key]:
            ledger.remove(key, at)


@attrs.define(eq=False, repr=False)
class LimitJournal:
    """The journal of one ledger.

    Args:
        path: Its file.
        snapshot: Takes a snapshot of the ledger, which includes everything that was appended.
    """

    _path: Path
    _snapshot: Callable[[], Snapshot]
    _file: int | None = None
    """Its descriptor; None before it is rewritten."""
    _entries: list[Entry] = attrs.field(factory=list)
    """The entries that are not written yet."""
    _appended: int = 0
    _durable: int = 0
    """The number of appended entries that are on disk."""
    _snapshot_size: int = 0
    _size: int = 0
    """Bytes of the operations after the snapshot."""
    _writing: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)

    def append(self, operation: Operation, at: float, *given: Any) -> None:
        """Append an operation that was carried out. Synchronous; nothing is written.

        Args:
            operation: Its name; `reserve` is a lease that was granted, or already known.
            at: Its instant.
            *given: JSON data of its arguments.
        """
        self._entries.append([operation, at, *given])
        self._appended += 1

    async def commit(self) -> None:
        """Return when everything that was appended is on disk. A checkpoint.

        Concurrent callers share one write: the first writes all entries appended by then.

        Raises:
            OutputError: It cannot be written; the next call retries all of it.
        """
        end = self._appended
        async with self._writing:
            if self._durable < end:
                await self._write()

    async def _write(self) -> None:
        entries, self._entries = self._entries, []
        file, appended, is_written = self._file, self._appended, False
        self._file = None  # until the write has succeeded
        try:
            # Not abandoned on cancellation: a partial write would be worth nothing.
            with trio.CancelScope(shield=True):
                if file is None or self._size > max(_MIN_REWRITTEN, self._snapshot_size):
                    lines = _snapshot_lines(self._snapshot())
                    new = await trio.to_thread.run_sync(_replace, self._path, lines)
                    self._file, self._snapshot_size, self._size = *new, 0
                else:
                    self._size += await trio.to_thread.run_sync(_append, file, [entries])
                    self._file, file = file, None
            is_written = True
        except OSError as error:
            msg = f"{self._path}: cannot write leases: {error.strerror or error}"
            raise OutputError(msg) from error
        finally:
            if file is not None:
                os.close(file)
            if is_written:
                self._durable = appended

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def remove(self) -> None:
        """Close the file and remove it.

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
    """Replace a file by these lines; return its descriptor and its size."""
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
    """Write lines and wait until they are on disk; return their size in bytes."""
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
    hint = "only the journal has the current usage; remove it to start from the file of limits"
    return SuiteError([Problem("$", reason, hint, str(path), line)], files=[path])
