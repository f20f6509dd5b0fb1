"""What lies in the folder of a dataset: names, the notes beside its rows, and the steps that change them."""

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
from trioeval.columns.graph import Grouping
from trioeval.errors import DatasetError

# What is done to files, one step at a time: the place where a crash may come between.


_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


class Disk:
    """The disk. Each method is one step: a process that is killed has done it, has not, or did part of it.

    All of them raise OSError where the system refuses.
    """

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, where they are missing."""
        path.mkdir(parents=True, exist_ok=True)

    def fill(self, path: Path, write: Callable[[Path], None]) -> None:
        """Let somebody write a file, and return when its bytes are safe."""
        write(path)
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def append(self, path: Path, line: bytes) -> None:
        """Add a line to a file, which is made if need be, and return when it is safe.

        What stands there is never part of the line, also if its own end was lost.
        """
        with path.open("ab+") as file:
            if file.tell() and not _ends_a_line(file.fileno(), file.tell()):
                line = b"\n" + line
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, in place of whatever file has it; or a folder a name that nothing has."""
        old.replace(new)

    def settle(self, folder: Path) -> None:
        """Return when the names in a folder are safe, where the system can say so."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it; nothing is no error."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _ends_a_line(descriptor: int, size: int) -> bool:
    return os.pread(descriptor, 1, size - 1) == b"\n"


# One process at a time in a folder.


LOCK = ".lock"
"""The name of the file; it is gone when nobody writes to the folder, unless they were killed."""


def lock_folder(path: Path) -> FileLock:
    """Be the only one of all processes of this machine that writes to a folder, until `unlock_folder`.

    Raises:
        DatasetError: Somebody does.
        OSError: The folder cannot be written.
    """
    lock = FileLock(path / LOCK, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise DatasetError(
            f"{path}: another process writes this dataset; wait for its end, or name another folder"
        ) from None
    return lock


def unlock_folder(lock: FileLock, path: Path) -> None:
    """Let others write to a folder, which may have another name now."""
    # While it is held: whoever waits for this very file sees that it is gone, and makes a new one.
    with suppress(OSError):  # some systems keep open files
        (path / LOCK).unlink()
    lock.release()


NOTE = "dataset.json"
LINES = "groups.jsonl"
ASIDE = "aside"
FINAL = "final"
"""A folder of all rows as they are after the whole dataset was processed."""

_PART = ".part"
_OLD_FINAL = f".old-{FINAL}{_PART}"


def batch_name(group: int, file_format: str) -> str:
    """The name of the file of a group.

    Example:
        >>> batch_name(3, "parquet")
        'batch_00003.parquet'
    """
    return f"batch_{group:05d}.{file_format}"


def part_name(name: str) -> str:
    """What something is called until it is whole."""
    return f".{name}{_PART}"


def is_ours(name: str) -> bool:
    """Whether it is only of use while somebody writes: a killed process leaves it."""
    return name == LOCK or is_part(name)


def is_part(name: str) -> bool:
    """Whether something is not whole."""
    return name.startswith(".") and name.endswith(_PART)


def old_final(path: Path) -> Path:
    """What the processed rows of a dataset are called while others take their place."""
    return path / _OLD_FINAL


def processed_folder(path: Path) -> Path | None:
    """Where the processed rows of a dataset stand now; None if there are none."""
    final = path / FINAL
    # Once more at the end: another process may have renamed both in between.
    for one in (final, old_final(path), final):
        if (one / NOTE).exists():
            return one
    return None


def data_folder(path: Path) -> Path:
    """Where the rows of a dataset stand now."""
    return processed_folder(path) or path


def names_beside(path: Path) -> Iterator[Path]:
    """Names for a folder that must make room, one after the other."""
    number = 1
    while True:
        yield path.with_name(f"{path.name}-old-{number}")
        number += 1


def make_safely(path: Path, disk: Disk) -> None:
    """Make a folder and those above it, where they are missing, and return when their names are safe."""
    made = [one for one in (path, *path.parents) if not one.exists()]
    disk.make_folder(path)
    for one in made:
        disk.settle(one.parent)


def put_file(path: Path, content: bytes | Callable[[Path], None], disk: Disk) -> None:
    """Write a file so that it is there as it was or as it should be, whatever comes between.

    Args:
        path: The file.
        content: Its bytes, or what writes them to another path.
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
    """What an error of the system means for a person."""
    return DatasetError(f"{path}: the dataset cannot be written: {error.strerror or error}")


# What `dataset.json` and `groups.jsonl` tell of a dataset beside its rows.


Format: TypeAlias = Literal["parquet", "jsonl"]

_VERSION = 1
_TYPES = frozenset(get_args(ColumnType))


@attrs.frozen(kw_only=True)
class Header:
    """What a dataset is: two folders with equal headers go together."""

    columns: Mapping[str, ColumnType]
    """Those that are written, in order."""
    grouping: Grouping
    fingerprint: Mapping[str, str]
    """Digests of what the dataset is made of, by what it is (`columns.question`, `seed`, …), so that a
    difference can be named."""


@attrs.frozen(kw_only=True)
class GroupFile:
    """A group that is written."""

    group: int
    rows: tuple[int, ...] | int
    """The numbers of its rows; only how many, where none of the group is missing."""
    file: str | None
    """The name of its file; None of a group without rows."""
    digest: str | None
    """SHA-256 of its bytes."""
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    """How many of its rows are not there, by cause; see `trioeval.columns.result.Cause`."""

    @property
    def count(self) -> int:
        """How many rows it has."""
        return self.rows if isinstance(self.rows, int) else len(self.rows)


@attrs.frozen(kw_only=True)
class Note:
    """What `dataset.json` says."""

    header: Header
    format: Format
    groups: Mapping[int, GroupFile] = attrs.field(factory=dict)
    result: Mapping[str, Any] | None = None
    """How the dataset ended; None while it is built."""


def note_text(note: Note) -> str:
    """The text of `dataset.json`."""
    header = note.header
    told = {
        "version": _VERSION,
        "format": note.format,
        "groupSize": header.grouping.size,
        "targets": header.grouping.targets,
        "columns": dict(header.columns),
        "fingerprint": dict(header.fingerprint),
        "result": None if note.result is None else dict(note.result),
        "groups": [_told(note.groups[group]) for group in sorted(note.groups)],
    }
    return f"{json.dumps(told, indent=1)}\n"


def read_note(content: bytes) -> Note:
    """What `dataset.json` says.

    Raises:
        ValueError: It is damaged, or of a newer version of the program.
    """
    try:
        told = json.loads(content)
        if told["version"] != _VERSION:
            raise ValueError(f"it is of version {told['version']!r}, not {_VERSION}")
        header = Header(
            columns=_columns(told["columns"]),
            grouping=_grouping(told["groupSize"], told["targets"]),
            fingerprint=_texts(told["fingerprint"]),
        )
        if told["format"] not in get_args(Format):
            raise ValueError(f"there is no format {told['format']!r}")
        groups = [_group(one) for one in told["groups"]]
        for group in groups:
            if not is_of(group, header.grouping):
                raise ValueError(
                    f"group {group.group} with its rows is none of its {len(header.grouping)} groups"
                )
        result = told["result"]
        if result is not None and not isinstance(result, dict):
            raise ValueError("its result is no object")
        return Note(
            header=header,
            format=told["format"],
            groups={group.group: group for group in groups},
            result=result,
        )
    except KeyError as error:
        raise ValueError(f"it does not say {error}") from error
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def group_line(group: GroupFile) -> bytes:
    """A line of `groups.jsonl`, without its end."""
    return json.dumps(_told(group)).encode()


def is_of(group: GroupFile, grouping: Grouping) -> bool:
    """Whether a grouping has such a group, with such rows.

    Example:
        >>> is_of(GroupFile(group=1, rows=1, file="a", digest="b"), Grouping(2, (3,)))
        True
        >>> is_of(GroupFile(group=1, rows=(3,), file="a", digest="b"), Grouping(2, (3,)))
        False
    """
    if group.group >= len(grouping):
        return False
    rows = grouping.rows_of(group.group)
    if isinstance(group.rows, int):
        return group.rows in {0, len(rows)}
    ascending = all(low < high for low, high in pairwise(group.rows))
    return ascending and all(row in rows for row in group.rows)


def read_group_lines(content: bytes, grouping: Grouping) -> Mapping[int, GroupFile]:
    """The groups of `groups.jsonl`. Lines that are not whole say nothing: a crash leaves such a last one.

    Neither do those of groups that the grouping does not have.
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


def _told(group: GroupFile) -> Mapping[str, Any]:
    return {**attrs.asdict(group, recurse=False), "dropped": dict(sorted(group.dropped.items()))}


def _group(told: Any) -> GroupFile:
    rows = told["rows"]
    if isinstance(rows, list):
        rows = tuple(_count(row) for row in rows)
    else:
        _count(rows)
    file, digest = told["file"], told["digest"]
    if (file is None) != (digest is None) or not isinstance(file, str | None):
        raise ValueError("a group has a file and its digest, or neither")
    if file is not None and (not file or "/" in file or "\\" in file or file.startswith(".")):
        raise ValueError(f"{file!r} is no name of a file of a group")
    dropped = {str(cause): _count(count) for cause, count in told["dropped"].items()}
    return GroupFile(
        group=_count(told["group"]), rows=rows, file=file, digest=digest, dropped=dropped
    )


def _grouping(size: Any, targets: Any) -> Grouping:
    try:
        return Grouping(_count(size), tuple(_count(target) for target in targets))
    except DatasetError as error:
        raise ValueError(str(error)) from error


def _columns(told: Any) -> Mapping[str, ColumnType]:
    if not isinstance(told, dict):
        raise TypeError("its columns are no object")
    for name, kind in told.items():
        if kind not in _TYPES:
            raise ValueError(f"column {name!r} has no type {kind!r}")
    found: Mapping[str, ColumnType] = told
    return found


def _texts(told: Any) -> Mapping[str, str]:
    if not isinstance(told, dict) or not all(isinstance(text, str) for text in told.values()):
        raise ValueError("its fingerprint is no object of texts")
    return told


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no number of rows or groups")
    return value


def differences(found: Header, wanted: Header) -> Iterable[str]:
    """What tells a dataset that is there from the one that is wanted, but for its grouping.

    Example:
        >>> one = Header(
        ...     columns={"a": "int"}, grouping=Grouping(2, (5,)), fingerprint={"seed": "x"}
        ... )
        >>> list(differences(one, attrs.evolve(one, fingerprint={"columns.a": "y"})))
        ['columns.a is new', 'seed is gone']
    """
    for name in dict.fromkeys((*wanted.fingerprint, *found.fingerprint)):
        if name not in found.fingerprint:
            yield f"{name} is new"
        elif name not in wanted.fingerprint:
            yield f"{name} is gone"
        elif found.fingerprint[name] != wanted.fingerprint[name]:
            yield f"{name} is another"
    if list(found.columns.items()) != list(wanted.columns.items()):
        yield f"its columns are {_listed(found)}, not {_listed(wanted)}"


def _listed(header: Header) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in header.columns.items())


# Whether files are as they were written.


_CHUNK = 2**20


def digest_of(path: Path) -> str | None:
    """SHA-256 of a file; None if there is none that can be read."""
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest()


def is_processed(path: Path, header: Header) -> bool:
    """Whether the processed rows of a dataset are there, as they were written, and are those of this dataset.

    Args:
        path: The folder of the dataset.
        header: Of the dataset itself.
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
    """Whether a dataset is there as somebody knows it. Reads all of its files.

    Args:
        path: Its folder.
        fingerprint: As in its header.
        rows: How many were written at least.
        processed: Whether the whole of it was processed then.
    """
    note = _note_of(path)
    if note is None or note.header.fingerprint != fingerprint:
        return False
    if sum(group.count for group in note.groups.values()) < rows or not _are_whole(path, note):
        return False
    return not processed or is_processed(path, note.header)


def _note_of(folder: Path) -> Note | None:
    try:
        note = read_note((folder / NOTE).read_bytes())
        if (folder / LINES).exists():
            lines = read_group_lines((folder / LINES).read_bytes(), note.header.grouping)
            note = attrs.evolve(note, groups={**note.groups, **lines})
    except (OSError, ValueError):
        return None
    return note


def _are_whole(folder: Path, note: Note) -> bool:
    files = [group for group in note.groups.values() if group.file is not None]
    return all(digest_of(folder / str(group.file)) == group.digest for group in files)
