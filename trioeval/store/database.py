"""Opening a database file, with a clear word about each thing that may be wrong with it.

Whatever a path leads to is looked at before anything is changed: a file that is no database, one of
another program, and one of a newer version are left exactly as they are.

A link is followed, and all files beside it stand beside what it leads to: two names of one database are one.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import quote

import attrs
import trio
from filelock import FileLock, Timeout

from trioeval.errors import StoreError, UsageError
from trioeval.open_files import is_out_of_files, too_many_open_files

Durability: TypeAlias = Literal["normal", "full"]
"""What a loss of power may take: the last commits, or nothing. A killed process loses nothing either way."""

OWN_FOLDER = ".trioeval"
"""A folder of this name is made with a `.gitignore` that leaves all of it out."""

IN_MEMORY = Path(":memory:")
"""The name of a database in memory in messages; a path of users is always that of a file."""

_SMALLEST = 512  # bytes of a database that holds anything
_PAGE = 8192  # bytes; a row of 2 kB wastes less of it than of smaller ones
_LARGEST_CHECKED = 32 * 2**20  # bytes of a database whose pages are looked at as it is opened
_KEPT_LOG = 64 * 2**20  # bytes of the write-ahead log that stay on disk after a checkpoint


@attrs.frozen(kw_only=True)
class DatabaseKind:
    """What a database holds, and how it came to be what it is."""

    name: str
    """What messages call it."""
    application_id: int
    """What tells it from databases of other programs."""
    migrations: Sequence[Sequence[str]]
    """Statements that lead from each version of its tables to the next; how many there are is the version."""
    hint: str
    """How another file is chosen."""


class BusyError(StoreError):
    """Another program keeps the database locked."""


class DamagedError(StoreError):
    """The file does not hold what was written to it; nothing can be relied upon."""


def real_path(path: Path) -> Path:
    """The absolute path of the file that a path leads to."""
    return Path(os.path.realpath(path))


def open_database(
    path: Path,
    kind: DatabaseKind,
    *,
    durability: Durability = "normal",
    busy_s: float = 0.25,
    wal: bool | None = None,
) -> sqlite3.Connection:
    """Open a database to write to, and make it or bring it up to date where that is needed.

    The connection commits nothing by itself, and may be used by one thread at a time.

    Args:
        path: Of the file. Folders that are missing are made.
        kind: What it is to be.
        durability: See `Durability`.
        busy_s: Seconds that a statement waits for other programs.
        wal: Whether it has a write-ahead log; None leaves it as it is, and gives one to a new file.

    Raises:
        BusyError: Another program keeps it locked.
        StoreError: It cannot be used.
    """
    real = real_path(path)
    _make_folder(real.parent, path, kind)
    _check_file(real, path, kind)
    try:
        connection = _connect(real, "rwc", busy_s)
    except sqlite3.Error as error:
        raise store_error(path, kind, error) from error
    try:
        version = _look(connection, path, kind)
        if version is None:
            connection.execute(f"PRAGMA page_size = {_PAGE}")
        wal = True if wal is None and version is None else wal
        change = "" if wal is None else " = WAL" if wal else " = DELETE"
        journal = connection.execute(f"PRAGMA journal_mode{change}").fetchone()[0]
        # Without shared memory there is no such log, and a commit is safe only if it is waited for.
        level = "FULL" if durability == "full" or journal != "wal" else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {level}")
        connection.execute("PRAGMA temp_store = MEMORY")  # no file that could not be opened later
        connection.execute(f"PRAGMA journal_size_limit = {_KEPT_LOG}")
        _migrate(connection, path, kind)
    except sqlite3.Error as error:
        connection.close()
        raise store_error(path, kind, error) from error
    except StoreError:
        connection.close()
        raise
    return connection


def open_memory(kind: DatabaseKind) -> sqlite3.Connection:
    """Open an empty database in memory, for the thread and the connection that open it.

    The connection commits each statement by itself, unless a transaction is begun.
    """
    connection = sqlite3.connect(IN_MEMORY, isolation_level=None)
    _migrate(connection, IN_MEMORY, kind)
    return connection


def open_reading(path: Path, kind: DatabaseKind, *, busy_s: float = 5.0) -> sqlite3.Connection:
    """Open a database that is there, to read it. It may be written meanwhile.

    Also from a medium that cannot be written, if whoever wrote it has closed it.

    Raises:
        BusyError: Another program keeps it locked.
        StoreError: It is not there, or cannot be used.
    """
    real = real_path(path)
    if not real.exists():
        raise StoreError(f"{path}: there is no {kind.name} here; {kind.hint}")
    _check_file(real, path, kind)
    log = Path(f"{real}-wal")
    failure: sqlite3.Error | None = None
    # What a killed process left is first put in order, which takes the right to write.
    for mode in ("rw", "ro", "ro&immutable=1"):
        if mode.endswith("=1") and log.exists() and log.stat().st_size:
            break
        try:
            return _reading(real, path, kind, mode, busy_s)
        except sqlite3.Error as error:
            if not _is_refused(error):
                raise store_error(path, kind, error) from error
            failure = error
    raise StoreError(
        f"{path}: the {kind.name} was not closed by whoever wrote it, and cannot be put in order where it "
        f"may not be written; copy it together with {log.name} to a folder that you may write to"
    ) from failure


def _reading(
    real: Path, path: Path, kind: DatabaseKind, mode: str, busy_s: float
) -> sqlite3.Connection:
    connection = _connect(real, mode, busy_s)
    try:
        if _look(connection, path, kind) is None:
            raise StoreError(f"{path}: there is no {kind.name} here; {kind.hint}")  # noqa: TRY301
        connection.execute("PRAGMA query_only = 1")
    except (sqlite3.Error, StoreError):
        connection.close()
        raise
    return connection


def store_error(path: Path, kind: DatabaseKind, error: sqlite3.Error) -> StoreError:
    """What an error of the database means for a person: which file, what is wrong, and what helps."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is detail
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return BusyError(
                f"{path}: the {kind.name} is locked by another program; end that program, or {kind.hint}"
            )
        case sqlite3.SQLITE_FULL:
            what, help_ = "has no room left on its disk", "make room, or "
        case sqlite3.SQLITE_IOERR:
            what, help_ = f"cannot be read or written ({error})", "look after its disk, or "
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            what, help_ = "may not be written", "change its permissions, or "
        case sqlite3.SQLITE_CANTOPEN if is_out_of_files():  # which passes, as a lock does
            return BusyError(f"{path}: the {kind.name} cannot be opened: {too_many_open_files()}")
        case sqlite3.SQLITE_CANTOPEN:
            what = f"cannot be opened ({error})"
            help_ = "see whether you may write to its folder, or "
        case sqlite3.SQLITE_CORRUPT:
            return _damaged(path, kind, error)
        case sqlite3.SQLITE_NOTADB:
            return _no_database(path, kind)
        case _:
            what, help_ = f"cannot be used ({error})", ""
    return StoreError(f"{path}: the {kind.name} {what}; {help_}{kind.hint}")


def check_pages(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> None:
    """See that all pages of a small database are whole; of a large one, nothing is looked at.

    It takes about 0.7 ms a megabyte, so 25 ms at the most; the reading is what costs. A large one tells
    what is wrong with it when that is met.

    Raises:
        DamagedError: They are not.
        StoreError: They cannot be read.
    """
    try:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        size = pages * connection.execute("PRAGMA page_size").fetchone()[0]
        if size > _LARGEST_CHECKED:
            return
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise store_error(path, kind, error) from error
    if found != "ok":
        raise _damaged(path, kind, " ".join(found.split()))


def _damaged(path: Path, kind: DatabaseKind, what: object) -> DamagedError:
    return DamagedError(
        f"{path}: the {kind.name} is damaged ({what}); rescue what is in it with "
        f"`sqlite3 FILE .recover`, and move it away, or {kind.hint}"
    )


def _connect(real: Path, mode: str, busy_s: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(os.fsencode(real))}?mode={mode}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
    )


def _is_refused(error: sqlite3.Error) -> bool:
    """Whether a mode that asks for less may do."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
    )


def _make_folder(folder: Path, path: Path, kind: DatabaseKind) -> None:
    if folder.is_dir():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name == OWN_FOLDER:
            (folder / ".gitignore").write_text("*\n")
    except OSError as error:
        raise StoreError(
            f"{path}: the folder {folder} cannot be made: {error.strerror}; {kind.hint}"
        ) from error


def _check_file(real: Path, path: Path, kind: DatabaseKind) -> None:
    """See that what is there, if anything, is a file.

    It is not opened: as that was closed, the system would take away all locks that connections of this
    process have on it. Test: test_kill_9_costs_nothing_that_was_said_to_be_safe.
    """
    try:
        if not real.exists():
            return
        size = real.stat().st_size if real.is_file() else None
    except OSError as error:
        raise StoreError(
            f"{path}: the {kind.name} cannot be read: {error.strerror}; {kind.hint}"
        ) from error
    if size is None:
        what = "a folder" if real.is_dir() else "no file"
        raise StoreError(f"{path}: this is {what}, not a {kind.name}; {kind.hint}")
    if 0 < size < _SMALLEST:  # which SQLite would take for an empty one
        raise _no_database(path, kind)


def _no_database(path: Path, kind: DatabaseKind) -> StoreError:
    return StoreError(
        f"{path}: this is no SQLite database, and is left as it is; if it was one, restore it from a copy, "
        f"or {kind.hint}"
    )


def _look(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> int | None:
    """See `_check_kind`, of one moment: another process may be making the database just now."""
    connection.execute("BEGIN")
    try:
        return _check_kind(connection, path, kind)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check_kind(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> int | None:
    """The version of its tables; None of a database that holds nothing at all. In a transaction."""
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if owner == kind.application_id:
        if version > len(kind.migrations):
            raise StoreError(
                f"{path}: the {kind.name} was written by a newer trioeval (its tables have version "
                f"{version}, this one knows {len(kind.migrations)}); upgrade trioeval, or {kind.hint}"
            )
        return version
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner == version == tables == 0:
        return None
    raise StoreError(
        f"{path}: this is an SQLite database of another program, and is left as it is; {kind.hint}"
    )


def _migrate(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> None:
    """Bring the tables up to date in one transaction; where they are, see that it can be written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _check_kind(connection, path, kind) or 0  # another process may have been quicker
        if version < len(kind.migrations):
            for statements in kind.migrations[version:]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {kind.application_id}")
        # In any case: a transaction that writes nothing succeeds where nothing may be written.
        connection.execute(f"PRAGMA user_version = {len(kind.migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# Who runs a run: a file beside the database that is locked as long as somebody does.
#
# The system frees the lock when the process ends, however it ends. So a run that is not finished, and whose
# lock is free, has died.


_SHORT = 0.5  # seconds; whoever only looks whether it is free holds it for much less


@attrs.frozen(eq=False)
class RunLock:
    """A lock that is held."""

    _lock: FileLock = attrs.field(repr=False)
    path: Path

    def release(self) -> None:
        """Free it, and take its file away."""
        # While it is held: whoever waits for this very file sees that it is gone, and makes a new one.
        with contextlib.suppress(OSError):  # some systems keep open files
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def leave(self) -> None:
        """Free it, and leave its file."""
        self._lock.release()


def lock_path(database: Path, run_id: str) -> Path:
    """The file that is locked.

    Example:
        >>> lock_path(Path("/x/results.db"), "eval-1").name
        'results.db-eval-1.lock'
    """
    real = real_path(database)
    return real.with_name(f"{real.name}-{_file_name(run_id)}.lock")


def lock_run(database: Path, run_id: str) -> RunLock:
    """Take the lock of a run.

    Raises:
        UsageError: Somebody else runs it.
        StoreError: The lock cannot be made.
    """
    path = lock_path(database, run_id)
    lock = FileLock(path, timeout=_SHORT, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise UsageError(
            f"{database}: the run {run_id} is being run by another process; wait until it is over, or end it"
        ) from error
    except OSError as error:
        raise StoreError(
            f"{database}: the run {run_id} cannot be locked: {error.strerror or error} ({path})"
        ) from error
    return RunLock(lock, path)


def is_running(database: Path, run_id: str) -> bool:
    """Whether somebody runs it now."""
    path = lock_path(database, run_id)
    if not path.exists():
        return False
    lock = FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:  # it may not even be opened: nobody of ours has made it
        return False
    lock.release()
    return False


def _file_name(run_id: str) -> str:
    """The id of a run, as far as it may stand in the name of a file."""
    return "".join(one if one.isalnum() or one in "-_." else "_" for one in run_id)[:100]


# Opening a database that another program may keep locked for a moment.


T = TypeVar("T")

_WARN_AFTER = 2.0
_RETRY = 0.1


async def open_patiently(
    open_: Callable[[], T],
    path: Path,
    kind: DatabaseKind,
    *,
    patience_s: float,
    on_warning: Callable[[str], None] | None = None,
) -> T:
    """What opens a database gives, in a thread and as often as it is locked.

    Args:
        open_: Opens it, or raises `BusyError` and leaves nothing open.
        path: Of the file, for messages.
        kind: What it is, for messages.
        patience_s: Seconds that another program may keep it locked, ≥ 0; with 0 it is tried once.
        on_warning: Told once if that takes long.

    Raises:
        BusyError: It is still locked.
        StoreError: It cannot be used.
    """
    begun = trio.current_time()
    is_told = False
    while True:
        try:
            return await trio.to_thread.run_sync(open_)
        except BusyError:
            waited = trio.current_time() - begun
            if waited >= patience_s:
                raise
            if waited >= _WARN_AFTER and not is_told and on_warning is not None:
                is_told = True
                on_warning(
                    f"{path}: the {kind.name} is locked by another program; "
                    f"waiting for it, at most {patience_s:g} s"
                )
        await trio.sleep(_RETRY)
