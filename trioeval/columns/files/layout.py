"""The content of a dataset's folder: names, notes beside the rows, and the operations that change them."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import attrs
from filelock import FileLock, Timeout

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.graph import RowGrouping
from trioeval.errors import DatasetError
from trioeval.text import counted

# File operations, one step each: a crash may come between any two of them.


_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


class Disk:
    """The disk. Each method is one step: a killed process has done it, part of it, or nothing.

    All methods raise OSError if the system refuses.
    """

    def make_folder(self, path: Path) -> None:
        """Create a folder and its missing parents."""
        path.mkdir(parents=True, exist_ok=True)

    def fill(self, path: Path, write: Callable[[Path], None]) -> None:
        """Let a function write a file, and return when its bytes are on disk."""
        write(path)
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def append(self, path: Path, line: bytes) -> None:
        """Add a line to a file, which is created if needed, and return when the line is on disk.

        Existing content is never part of the line, even if it does not end with a newline.
        """
        with path.open("ab+") as file:
            if file.tell() and not _ends_a_line(file.fileno(), file.tell()):
                line = b"\n" + line
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, replacing an existing one; or a folder, to a name that does not exist."""
        old.replace(new)

    def settle(self, folder: Path) -> None:
        """Return when the names in a folder are on disk, if the system supports that."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _ends_a_line(descriptor: int, size: int) -> bool:
    return os.pread(descriptor, 1, size - 1) == b"\n"


# One process at a time in a folder.


LOCK = ".lock"
"""The name of the lock file; it only remains after its process was killed."""


def lock_folder(path: Path) -> FileLock:
    """Lock a folder against all other processes of this machine until `unlock_folder`.

    Raises:
        DatasetError: Another process has locked it.
        OSError: The folder cannot be written.
    """
    lock = FileLock(path / LOCK, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise DatasetError(
            f"{path}: another process is writing this dataset; wait until it ends, or use another folder"
        ) from None
    return lock


def unlock_folder(lock: FileLock, path: Path) -> None:
    """Unlock a folder, which may have been renamed."""
    # While the lock is held: a process that waits for this very file sees that it is gone, and makes a new
    # one.
    with suppress(OSError):  # some systems do not remove open files
        (path / LOCK).unlink()
    lock.release()


NOTE = "dataset.json"
LINES = "groups.jsonl"
ASIDE = "aside"
FINAL = "final"
"""The folder of the final rows after the whole dataset was processed."""

_PART = ".part"
_OLD_FINAL = f".old-{FINAL}{_PART}"


def batch_name(group: int, file_format: str) -> str:
    """Return the name of the file of a group.

    Example:
        >>> batch_name(3, "parquet")
        'batch_00003.parquet'
    """
    return f"batch_{group:05d}.{file_format}"


def part_name(name: str) -> str:
    """Return the name of a file or folder until it is complete."""
    return f".{name}{_PART}"


def is_ours(name: str) -> bool:
    """Return True for files that are only needed during writing: a killed process leaves them."""
    return name == LOCK or is_part(name)


def is_part(name: str) -> bool:
    """Return True for the name of an incomplete file or folder."""
    return name.startswith(".") and name.endswith(_PART)


def old_final(path: Path) -> Path:
    """Return the name of the processed rows while new ones replace them."""
    return path / _OLD_FINAL


def processed_folder(path: Path) -> Path | None:
    """Return the folder of the processed rows; None if there are none."""
    final = path / FINAL
    # Twice `final`: another process may rename both in between.
    for one in (final, old_final(path), final):
        if (one / NOTE).exists():
            return one
    return None


def data_folder(path: Path) -> Path:
    """Return the folder of the final rows of a dataset."""
    return processed_folder(path) or path


def names_beside(path: Path) -> Iterator[Path]:
    """Yield names to which a folder can be moved, in order."""
    number = 1
    while True:
        yield path.with_name(f"{path.name}-old-{number}")
        number += 1


def make_safely(path: Path, disk: Disk) -> None:
    """Create a folder and its missing parents, and return when their names are on disk."""
    made = [one for one in (path, *path.parents) if not one.exists()]
    disk.make_folder(path)
    for one in made:
        disk.settle(one.parent)


def put_file(path: Path, content: bytes | Callable[[Path], None], disk: Disk) -> None:
    """Write a file so that a crash leaves either the old or the new content.

    Args:
        path: The file.
        content: Its bytes, or a function that writes them to another path.
        disk: The disk.
    """
    part = path.with_name(part_name(path.name))

    def write(to: Path) -> None:
        if isinstance(content, bytes):
            to.write_bytes(content)
        else:
            content(to)

    try:
        disk.fill(part, write)
        disk.rename(part, path)
    except OSError:
        disk.remove(part)
        raise
    disk.settle(path.parent)


def unwritable(path: Path, error: OSError) -> DatasetError:
    """Return the error for the user of a system error."""
    return DatasetError(f"{path}: the dataset cannot be written: {error.strerror or error}")


# The notes about a dataset: `dataset.json` and `groups.jsonl`.


Format: TypeAlias = Literal["parquet", "jsonl"]

_VERSION = 1
_TYPES = frozenset(get_args(ColumnType))


@attrs.frozen(kw_only=True)
class Header:
    """The description of a dataset: folders with equal headers belong to the same dataset."""

    columns: Mapping[str, ColumnType]
    """The written columns, in order."""
    grouping: RowGrouping
    fingerprint: Mapping[str, str]
    """Digests of the inputs of the dataset by their names (`columns.question`, `seed`, …), so that a
    difference can be named."""


@attrs.frozen(kw_only=True)
class GroupFile:
    """A group that was written."""

    group: int
    rows: tuple[int, ...] | int
    """The numbers of its rows; only their count if no row of the group is missing."""
    file: str | None
    """The name of its file; None for a group without rows."""
    digest: str | None
    """The SHA-256 digest of its bytes."""
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    """The number of missing rows by cause; see `trioeval.columns.result.Cause`."""

    @property
    def count(self) -> int:
        """The number of its rows."""
        return self.rows if isinstance(self.rows, int) else len(self.rows)


@attrs.frozen(kw_only=True)
class DatasetNote:
    """The content of `dataset.json`."""

    header: Header
    format: Format
    groups: Mapping[int, GroupFile] = attrs.field(factory=dict)
    result: Mapping[str, Any] | None = None
    """The result of the dataset; None while it is built."""


def note_text(note: DatasetNote) -> str:
    """Return the text of `dataset.json`."""
    header = note.header
    data = {
        "version": _VERSION,
        "format": note.format,
        "groupSize": header.grouping.size,
        "targets": header.grouping.targets,
        "columns": dict(header.columns),
        "fingerprint": dict(header.fingerprint),
        "result": None if note.result is None else dict(note.result),
        "groups": [_group_json(note.groups[group]) for group in sorted(note.groups)],
    }
    return f"{json.dumps(data, indent=1)}\n"


def read_note(content: bytes) -> DatasetNote:
    """Return the content of `dataset.json`.

    Raises:
        ValueError: It is damaged, or was written by a newer version.
    """
    try:
        data = json.loads(content)
        if data["version"] != _VERSION:
            raise ValueError(f"it has version {data['version']!r}, not {_VERSION}")
        header = Header(
            columns=_columns(data["columns"]),
            grouping=_grouping(data["groupSize"], data["targets"]),
            fingerprint=_texts(data["fingerprint"]),
        )
        if data["format"] not in get_args(Format):
            raise ValueError(f"{data['format']!r} is not a valid format")
        groups = [_group(one) for one in data["groups"]]
        for group in groups:
            if not is_of(group, header.grouping):
                raise ValueError(
                    f"group {group.group} with its rows is not one of its"
                    f" {counted(len(header.grouping), 'group')}"
                )
        result = data["result"]
        if result is not None and not isinstance(result, dict):
            raise ValueError("its result must be an object")
        return DatasetNote(
            header=header,
            format=data["format"],
            groups={group.group: group for group in groups},
            result=result,
        )
    except KeyError as error:
        raise ValueError(f"{error} is missing") from error
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def group_line(group: GroupFile) -> bytes:
    """Return a line of `groups.jsonl`, without newline."""
    return json.dumps(_group_json(group)).encode()


def is_of(group: GroupFile, grouping: RowGrouping) -> bool:
    """Return True if a grouping contains a group with these rows.

    Example:
        >>> is_of(GroupFile(group=1, rows=1, file="a", digest="b"), RowGrouping(2, (3,)))
        True
        >>> is_of(GroupFile(group=1, rows=(3,), file="a", digest="b"), RowGrouping(2, (3,)))
        False
    """
    if group.group >= len(grouping):
        return False
    rows = grouping.rows_of(group.group)
    if isinstance(group.rows, int):
        return group.rows in {0, len(rows)}
    ascending = all(low < high for low, high in pairwise(group.rows))
    return ascending and all(row in rows for row in group.rows)


def read_group_lines(content: bytes, grouping: RowGrouping) -> Mapping[int, GroupFile]:
    """Return the groups of `groups.jsonl`, ignoring incomplete lines: a crash may leave one at the end.

    Groups that the grouping does not have are ignored as well.
    """
    found: dict[int, GroupFile] = {}
    for line in content.splitlines():
        try:
            group = _group(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if is_of(group, grouping):
            found[group.group] = group
    return found


def _group_json(group: GroupFile) -> Mapping[str, Any]:
    return {**attrs.asdict(group, recurse=False), "dropped": dict(sorted(group.dropped.items()))}


def _group(data: Any) -> GroupFile:
    rows = data["rows"]
    if isinstance(rows, list):
        rows = tuple(_count(row) for row in rows)
    else:
        _count(rows)
    file, digest = data["file"], data["digest"]
    if (file is None) != (digest is None) or not isinstance(file, str | None):
        raise ValueError("a group must have both a file and its digest, or neither")
    if file is not None and (not file or "/" in file or "\\" in file or file.startswith(".")):
        raise ValueError(f"{file!r} is not a valid file name of a group")
    dropped = {str(cause): _count(count) for cause, count in data["dropped"].items()}
    return GroupFile(
        group=_count(data["group"]), rows=rows, file=file, digest=digest, dropped=dropped
    )


def _grouping(size: Any, targets: Any) -> RowGrouping:
    try:
        return RowGrouping(_count(size), tuple(_count(target) for target in targets))
    except DatasetError as error:
        raise ValueError(str(error)) from error


def _columns(data: Any) -> Mapping[str, ColumnType]:
    if not isinstance(data, dict):
        raise TypeError("its columns must be an object")
    for name, kind in data.items():
        if kind not in _TYPES:
            raise ValueError(f"column {name!r}: {kind!r} is not a valid type")
    found: Mapping[str, ColumnType] = data
    return found


def _texts(data: Any) -> Mapping[str, str]:
    if not isinstance(data, dict) or not all(isinstance(text, str) for text in data.values()):
        raise ValueError("its fingerprint must be an object of texts")
    return data


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number of rows or groups")
    return value


def differences(found: Header, expected: Header) -> Iterable[str]:
    """Yield the differences between an existing dataset and the requested one, except in the grouping.

    Example:
        >>> one = Header(
        ...     columns={"a": "int"}, grouping=RowGrouping(2, (5,)), fingerprint={"seed": "x"}
        ... )
        >>> list(differences(one, attrs.evolve(one, fingerprint={"columns.a": "y"})))
        ['columns.a is new', 'seed is gone']
    """
    for name in dict.fromkeys((*expected.fingerprint, *found.fingerprint)):
        if name not in found.fingerprint:
            yield f"{name} is new"
        elif name not in expected.fingerprint:
            yield f"{name} is gone"
        elif found.fingerprint[name] != expected.fingerprint[name]:
            yield f"{name} has changed"
    if list(found.columns.items()) != list(expected.columns.items()):
        yield f"its columns are {_listed(found)}, not {_listed(expected)}"


def _listed(header: Header) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in header.columns.items())


# Checks that files are unchanged.


_CHUNK = 2**20


def digest_of(path: Path) -> str | None:
    """Return the SHA-256 digest of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest()


def is_processed(path: Path, header: Header) -> bool:
    """Return True if the processed rows of this dataset exist and are unchanged.

    Args:
        path: The folder of the dataset.
        header: The header of the dataset itself.
    """
    folder = processed_folder(path)
    final = None if folder is None else _note_of(folder)
    if folder is None or final is None:
        return False
    same = attrs.evolve(final.header, columns=header.columns) == header
    return same and _are_whole(folder, final)


def is_whole(
    path: Path, fingerprint: Mapping[str, str], rows: int, *, processed: bool = False
) -> bool:
    """Return True if a known dataset exists and is unchanged. Reads all of its files.

    Args:
        path: Its folder.
        fingerprint: The fingerprint in its header.
        rows: The minimum number of written rows.
        processed: True if the whole dataset had been processed.
    """
    note = _note_of(path)
    if note is None or note.header.fingerprint != fingerprint:
        return False
    if sum(group.count for group in note.groups.values()) < rows or not _are_whole(path, note):
        return False
    return not processed or is_processed(path, note.header)


def _note_of(folder: Path) -> DatasetNote | None:
    try:
        note = read_note((folder / NOTE).read_bytes())
        if (folder / LINES).exists():
            lines = read_group_lines((folder / LINES).read_bytes(), note.header.grouping)
            note = attrs.evolve(note, groups={**note.groups, **lines})
    except (OSError, ValueError):
        return None
    return note


def _are_whole(folder: Path, note: DatasetNote) -> bool:
    files = [group for group in note.groups.values() if group.file is not None]
    return all(digest_of(folder / str(group.file)) == group.digest for group in files)
