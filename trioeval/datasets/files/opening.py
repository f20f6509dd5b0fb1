"""A folder is opened to be written: what is there is looked at before anything is changed."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
from filelock import FileLock

from trioeval.datasets.files.disk import Disk
from trioeval.datasets.files.existing import Existing, joined
from trioeval.datasets.files.header import (
    Format,
    GroupFile,
    Header,
    Note,
    note_text,
    read_group_lines,
    read_note,
)
from trioeval.datasets.files.names import (
    FINAL,
    LINES,
    NOTE,
    is_ours,
    is_part,
    names_beside,
    part_name,
)
from trioeval.datasets.files.only_one import lock_folder, unlock_folder
from trioeval.errors import DatasetError

HELPS = "name another folder (outputDir), or set resume: ifPossible to move it away"

_CHUNK = 2**20


@attrs.define(kw_only=True)
class Opened:
    """A folder that nobody else writes to."""

    lock: FileLock
    note: Note
    """What it says now."""
    written: dict[int, GroupFile] = attrs.field(factory=dict)
    damaged: tuple[GroupFile, ...] = ()
    moved: Path | None = None
    """Where the dataset is that was there and did not fit."""


def open_folder(
    path: Path,
    header: Header,
    *,
    file_format: Format,
    existing: Existing,
    known: Iterable[GroupFile],
    helps: str,
    disk: Disk,
) -> Opened:
    """See `DatasetFolder.open`.

    Raises:
        DatasetError: It cannot be used so; nothing is locked.
    """
    if not header.columns:
        raise DatasetError(f"{path}: no column of the dataset would be written; keep one of them")
    if path.exists() and not path.is_dir():
        raise DatasetError(f"{path} is a file, and the folder of a dataset should be there")
    lock: FileLock | None = None
    try:
        disk.make_folder(path)
        lock = lock_folder(path)
        found, trouble = _look(path, header, existing, helps)
        moved = None
        if trouble is not None:
            moved = _move_away(path, disk)
            unlock_folder(lock, moved)
            lock = None
            disk.make_folder(path)
            lock = lock_folder(path)
        opened = Opened(
            lock=lock, note=found or Note(header=header, format=file_format), moved=moved
        )
        _check_groups(path, opened, known)
        _tidy(path, opened, found, disk)
    except OSError as error:
        if lock is not None:
            unlock_folder(lock, path)
        raise unwritable(path, error) from error
    except DatasetError:
        if lock is not None:
            unlock_folder(lock, path)
        raise
    return opened


def _look(
    path: Path, header: Header, existing: Existing, helps: str
) -> tuple[Note | None, str | None]:
    """What is there and fits, if anything; or why it does not, and is to be moved away."""
    if all(is_ours(one.name) for one in path.iterdir()):
        return None, None
    if existing == "never":
        if _is_bare(path):
            return None, None
        raise DatasetError(
            f"{path} is not empty: name another folder (outputDir), or say with resume: always or ifPossible "
            "that a dataset that is there is gone on with"
        )
    if not (path / NOTE).exists():
        raise DatasetError(
            f"{path} is not empty and holds no dataset: name another folder (outputDir)"
        )
    try:
        note = read_note((path / NOTE).read_bytes())
        fitting = joined(note.header, header, processed=(path / FINAL).exists())
    except ValueError as error:
        trouble = f"{path / NOTE} cannot be read: {error}"
    except DatasetError as error:
        trouble = f"{path} holds another dataset than the one that is wanted: {error}"
    else:
        groups = note.groups
        if (path / LINES).exists():
            groups = {**groups, **read_group_lines((path / LINES).read_bytes())}
        result = note.result if fitting == note.header else None
        return attrs.evolve(note, header=fitting, groups=groups, result=result), None
    if existing == "always":
        raise DatasetError(f"{trouble}\n{helps}")
    return None, trouble


def _is_bare(path: Path) -> bool:
    """Whether a dataset was begun, and nothing of it was ever written: its process was killed at once."""
    if any(one.name != NOTE and not is_ours(one.name) for one in path.iterdir()):
        return False
    try:
        note = read_note((path / NOTE).read_bytes())
    except ValueError:
        return False
    return not note.groups and note.result is None


def _move_away(path: Path, disk: Disk) -> Path:
    path = path.absolute()
    beside = next(one for one in names_beside(path) if not one.exists())
    disk.rename(path, beside)
    disk.settle(path.parent)
    return beside


def _check_groups(path: Path, opened: Opened, known: Iterable[GroupFile]) -> None:
    """Sort what was ever told of groups by whether the files are as they were written."""
    told: dict[int, list[GroupFile]] = {}
    for group in (*opened.note.groups.values(), *known):
        told.setdefault(group.group, []).append(group)
    damaged = []
    for number, groups in sorted(told.items()):
        digests: Mapping[str | None, str | None] = {
            file: digest_of(path / file)
            for file in {one.file for one in groups}
            if file is not None
        }
        whole = [one for one in groups if digests.get(one.file) == one.digest]
        if whole:
            opened.written[number] = whole[-1]
        else:
            damaged.append(groups[-1])
    opened.damaged = tuple(damaged)


def _tidy(path: Path, opened: Opened, found: Note | None, disk: Disk) -> None:
    """Note in one file what is there, and remove what a killed process left half done."""
    for one in path.iterdir():
        if is_part(one.name):
            disk.remove(one)
    result = None if opened.damaged else opened.note.result
    opened.note = attrs.evolve(opened.note, groups=dict(opened.written), result=result)
    content = note_text(opened.note).encode()
    if found is None or (path / NOTE).read_bytes() != content:
        put_file(path / NOTE, content, disk)
    if (path / LINES).exists():
        disk.remove(path / LINES)


def put_file(path: Path, content: bytes, disk: Disk) -> None:
    """Write a file so that it is there as it was or as it should be, whatever comes between."""
    part = path.with_name(part_name(path.name))

    def write(to: Path) -> None:
        to.write_bytes(content)

    disk.fill(part, write)
    disk.rename(part, path)
    disk.settle(path.parent)


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


def unwritable(path: Path, error: OSError) -> DatasetError:
    """What an error of the system means for a person."""
    return DatasetError(f"{path}: the dataset cannot be written: {error.strerror or error}")
