"""Opening of database files, with a specific message for each problem.

The target of a path is examined before anything is changed: a file that is not a database, one of another
program, and one of a newer version are left exactly as they are.

Links are followed, and all auxiliary files are beside the target: two names of one database are one.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import attrs
from filelock import FileLock, Timeout

from trioeval.errors import StoreError, UsageError
from trioeval.open_files import is_out_of_files, too_many_open_files

Durability: TypeAlias = Literal["normal", "full"]
"""The loss at a power failure: the last commits, or nothing. A killed process loses nothing in either mode.
"""

OWN_FOLDER = ".trioeval"
"""A folder of this name is created with a `.gitignore` that excludes its contents."""

IN_MEMORY = Path(":memory:")
"""The name of a database in memory in messages; paths of users always mean files."""

_SMALLEST = 512  # bytes of a database that contains anything
_PAGE = 8192  # bytes; a row of 2 kB wastes less of it than of smaller pages
_LARGEST_CHECKED = 32 * 2**20  # bytes of a database whose pages are checked when it is opened
_KEPT_LOG = 64 * 2**20  # bytes of the write-ahead log that stay on disk after a checkpoint


@attrs.frozen(kw_only=True)
class DatabaseKind:
    """A kind of database: its contents and their versions."""

    name: str
    """The name in messages."""
    application_id: int
    """The number that distinguishes it from databases of other programs."""
    migrations: Sequence[Sequence[str]]
    """The statements that lead from each version of its tables to the next; their number is the version."""
    hint: str
    """The advice to choose another file."""
    functions: Mapping[str, Callable[[Any], bool]] = attrs.field(factory=dict)
    """Functions of one argument that migrations call, by name."""


def media_folder(database: Path) -> Path:
    """Return the folder for the media of a database.

    Example:
        >>> [media_folder(Path(name)).name for name in ("results.db", "my.db")]
        ['media', 'my-media']
    """
    return database.with_name("media" if database.stem == "results" else f"{database.stem}-media")


class BusyError(StoreError):
    """Another program keeps the database locked."""


class DamagedError(StoreError):
    """The file does not contain what was written to it; nothing can be relied upon."""


def real_path(path: Path) -> Path:
    """Return the absolute path of the file that a path leads to."""
    return Path(os.path.realpath(path))


def open_database(
    path: Path,
    kind: DatabaseKind,
    *,
    durability: Durability = "normal",
    busy_s: float = 0.25,
    wal: bool | None = None,
) -> sqlite3.Connection:
    """Open a database for writing, and create or migrate it if needed.

    The connection commits nothing by itself, and may be used by one thread at a time.

    Args:
        path: The path of the file. Missing folders are created.
        kind: The kind of database.
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
        # A write-ahead log needs shared memory; without it, only a synchronous commit is safe.
        level = "FULL" if durability == "full" or journal != "wal" else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {level}")
        connection.execute("PRAGMA temp_store = MEMORY")  # a file could not always be opened later
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
    """Open an existing database for reading. It may be written meanwhile.

    Also from a read-only medium, if the program that wrote it has closed it.

    Raises:
        BusyError: Another program keeps it locked.
        StoreError: It does not exist, or cannot be used.
    """
    real = real_path(path)
    if not real.exists():
        raise StoreError(f"{path}: {kind.name} not found; {kind.hint}")
    _check_file(real, path, kind)
    log = Path(f"{real}-wal")
    failure: sqlite3.Error | None = None
    # The log of a killed process is recovered first, which requires write access.
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
        f"{path}: the {kind.name} was not closed by its writer, and recovering it needs write access; "
        f"copy it together with {log.name} to a writable folder"
    ) from failure


def _reading(
    real: Path, path: Path, kind: DatabaseKind, mode: str, busy_s: float
) -> sqlite3.Connection:
    connection = _connect(real, mode, busy_s)
    try:
        if _look(connection, path, kind) is None:
            raise StoreError(f"{path}: {kind.name} not found; {kind.hint}")  # noqa: TRY301
        connection.execute("PRAGMA query_only = 1")
    except (sqlite3.Error, StoreError):
        connection.close()
        raise
    return connection


def store_error(path: Path, kind: DatabaseKind, error: sqlite3.Error) -> StoreError:
    """Return a database error for people: which file, what is wrong, and the remedy."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is detail
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return BusyError(
                f"{path}: the {kind.name} is locked by another program; end that program, or {kind.hint}"
            )
        case sqlite3.SQLITE_FULL:
            problem, help_ = "has no room left on its disk", "make room, or "
        case sqlite3.SQLITE_IOERR:
            problem, help_ = f"cannot be read or written ({error})", "look after its disk, or "
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            problem, help_ = "may not be written", "change its permissions, or "
        case sqlite3.SQLITE_CANTOPEN if is_out_of_files():  # temporary, like a lock
            return BusyError(f"{path}: the {kind.name} cannot be opened: {too_many_open_files()}")
        case sqlite3.SQLITE_CANTOPEN:
            problem = f"cannot be opened ({error})"
            help_ = "check that you may write to its folder, or "
        case sqlite3.SQLITE_CORRUPT:
            return _damaged(path, kind, error)
        case sqlite3.SQLITE_NOTADB:
            return _no_database(path, kind)
        case _:
            problem, help_ = f"cannot be used ({error})", ""
    return StoreError(f"{path}: the {kind.name} {problem}; {help_}{kind.hint}")


def check_pages(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> None:
    """Check all pages of a small database; a large one is not checked.

    It takes about 0.7 ms per megabyte, so 25 ms at most, mainly for reading. Damage of a large one is
    reported when it is met.

    Raises:
        DamagedError: A page is damaged.
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


def _damaged(path: Path, kind: DatabaseKind, detail: object) -> DamagedError:
    return DamagedError(
        f"{path}: the {kind.name} is damaged ({detail}); recover its contents with "
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
    """Return whether a less demanding mode may succeed."""
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
            f"{path}: the folder {folder} cannot be created: {error.strerror}; {kind.hint}"
        ) from error


def _check_file(real: Path, path: Path, kind: DatabaseKind) -> None:
    """Check that the target, if it exists, is a file.

    It is not opened: closing it would release all locks that connections of this process hold on it. Test:
    test_kill_9_loses_no_row_that_was_reported_as_durable.
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
        kind_of_file = "a folder" if real.is_dir() else "a special file"
        raise StoreError(f"{path}: this is {kind_of_file}, not a {kind.name}; {kind.hint}")
    if 0 < size < _SMALLEST:  # SQLite would take it for an empty one
        raise _no_database(path, kind)


def _no_database(path: Path, kind: DatabaseKind) -> StoreError:
    return StoreError(
        f"{path}: this is not an SQLite database, and is left unchanged; if it was one, restore it from a "
        f"copy, or {kind.hint}"
    )


def _look(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> int | None:
    """Run `_check_kind` in one transaction: another process may be creating the database at the moment."""
    connection.execute("BEGIN")
    try:
        return _check_kind(connection, path, kind)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check_kind(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> int | None:
    """Return the version of its tables; None for an empty database. In a transaction."""
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if owner == kind.application_id:
        if version > len(kind.migrations):
            raise StoreError(
                f"{path}: the {kind.name} was written by a newer trioeval (its tables have version "
                f"{version}, this one supports {len(kind.migrations)}); upgrade trioeval, or {kind.hint}"
            )
        return version
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner == version == tables == 0:
        return None
    raise StoreError(
        f"{path}: this is an SQLite database of another program, and is left unchanged; {kind.hint}"
    )


def _migrate(connection: sqlite3.Connection, path: Path, kind: DatabaseKind) -> None:
    """Migrate the tables in one transaction; if they are current, check that the file can be written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _check_kind(connection, path, kind) or 0  # another process may have been faster
        if version < len(kind.migrations):
            for name, function in kind.functions.items():
                connection.create_function(name, 1, function, deterministic=True)
            for statements in kind.migrations[version:]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {kind.application_id}")
        # In any case: a transaction that writes nothing succeeds even on a read-only file.
        connection.execute(f"PRAGMA user_version = {len(kind.migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# The lock of a run: a file beside the database that is locked while the run is in progress.
#
# The system frees the lock when the process ends, however it ends. So a run that is not finished, and whose
# lock is free, has died.


_SHORT = 0.5  # seconds; a check for a free lock holds it for much less


@attrs.frozen(eq=False, repr=False)
class RunLock:
    """A held lock."""

    _lock: FileLock
    path: Path

    def release(self) -> None:
        """Release it, and delete its file."""
        # Deleted while held: a process that waits for this file sees that it is gone, and creates a new one.
        with contextlib.suppress(OSError):  # some systems do not delete open files
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def leave(self) -> None:
        """Release it, and leave its file."""
        self._lock.release()


def lock_path(database: Path, run_id: str) -> Path:
    """Return the file that is locked.

    Example:
        >>> lock_path(Path("/x/results.db"), "eval-1").name
        'results.db-eval-1.lock'
    """
    real = real_path(database)
    return real.with_name(f"{real.name}-{_file_name(run_id)}.lock")


def lock_run(database: Path, run_id: str) -> RunLock:
    """Take the lock of a run.

    Raises:
        UsageError: Another process runs it.
        StoreError: The lock cannot be created.
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
    """Return whether a process runs it now."""
    path = lock_path(database, run_id)
    if not path.exists():
        return False
    lock = FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:  # not accessible: it is not a lock of this user
        return False
    lock.release()
    return False


def _file_name(run_id: str) -> str:
    """Return the id of a run as a part of a file name."""
    return "".join(one if one.isalnum() or one in "-_." else "_" for one in run_id)[:100]


# Opening of a database that another program may keep locked for a moment.


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
    """Call the function that opens a database, in a thread, again while it is locked; return its result.

    Args:
        open_: Opens it, or raises `BusyError` and leaves nothing open.
        path: The path of the file, for messages.
        kind: The kind of database, for messages.
        patience_s: Seconds that another program may keep it locked, ≥ 0; with 0 there is one attempt.
        on_warning: Called once if that takes long.

    Raises:
        BusyError: It is still locked.
        StoreError: It cannot be used.
    """
    import trio  # the list of runs is shown without it

    started_at = trio.current_time()
    has_warned = False
    while True:
        try:
            return await trio.to_thread.run_sync(open_)
        except BusyError:
            waited = trio.current_time() - started_at
            if waited >= patience_s:
                raise
            if waited >= _WARN_AFTER and not has_warned and on_warning is not None:
                has_warned = True
                on_warning(
                    f"{path}: the {kind.name} is locked by another program; "
                    f"waiting for it, at most {patience_s:g} s"
                )
        await trio.sleep(_RETRY)
