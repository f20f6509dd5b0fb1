"""A folder is opened to be written: what is there is looked at before anything is changed."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import attrs
from filelock import FileLock

from trioeval.columns.files.header import (
    Format,
    GroupFile,
    Header,
    Note,
    differences,
    digest_of,
    is_of,
    is_processed,
    note_text,
    read_group_lines,
    read_note,
)
from trioeval.columns.files.paths import (
    FINAL,
    LINES,
    NOTE,
    Disk,
    is_ours,
    is_part,
    lock_folder,
    names_beside,
    old_final,
    part_name,
    processed_folder,
    unlock_folder,
)
from trioeval.columns.graph import Grouping
from trioeval.errors import DatasetError

# A dataset that is there already: whether it is gone on with. Pure.


Existing: TypeAlias = Literal["never", "if_possible", "always"]
"""Whether a dataset that is there is gone on with: never, so there must be none; if it fits, or else it is
moved away and another is begun; always, so it must fit."""


def joined(found: Header, wanted: Header, *, processed: bool = False) -> Header:
    """The header of a dataset that is gone on with: the same groups, and more behind them if more is wanted.

    Args:
        found: What is there.
        wanted: What is to be.
        processed: Whether what is there was changed after all of it had been made.

    Raises:
        DatasetError: It cannot be gone on with: every reason is told.

    Example:
        >>> there = Header(columns={"a": "int"}, grouping=Grouping(2, (5,)), fingerprint={})
        >>> joined(there, attrs.evolve(there, grouping=Grouping(2, (7,)))).grouping
        Grouping(size=2, targets=(5, 7))
    """
    troubles = list(differences(found, wanted))
    old, new = found.grouping, wanted.grouping
    if old.size != new.size:
        troubles.append(f"its groups have {old.size} rows, not {new.size}")
    if new.rows < old.rows:
        troubles.append(f"it has {old.rows} rows, which is more than {new.rows}")
    elif processed and new.rows > old.rows:
        troubles.append(
            f"its {old.rows} rows were processed when all of them were there, so it cannot get more"
        )
    targets = new.targets
    if len(targets) == 1 and new.rows > old.rows:
        targets = (*old.targets, new.rows)
    elif len(targets) == 1 and new.rows == old.rows:
        targets = old.targets
    if targets[: len(old.targets)] != old.targets and new.rows >= old.rows:
        troubles.append(
            f"it was made for {_then(old)} rows, not for {_then(new)}, which makes other groups"
        )
    if troubles:
        raise DatasetError("; ".join(troubles))
    return attrs.evolve(wanted, grouping=Grouping(old.size, targets))


def _then(grouping: Grouping) -> str:
    return ", then ".join(map(str, grouping.targets))


HELPS = "name another folder (outputDir), or set resume: ifPossible to move it away"


@attrs.define(kw_only=True)
class Opened:
    """A folder that nobody else writes to."""

    lock: FileLock
    note: Note
    """What it says now."""
    written: dict[int, GroupFile] = attrs.field(factory=dict)
    damaged: tuple[GroupFile, ...] = ()
    standing: dict[int, GroupFile] = attrs.field(factory=dict)
    """Groups that are written anew: what is there can be read until then."""
    is_processed: bool = False
    """Whether the whole of it was processed, and the files of that are as they were written."""
    moved: Path | None = None
    """Where the dataset is that was there and did not fit."""


def open_folder(
    path: Path,
    header: Header,
    *,
    file_format: Format,
    existing: Existing,
    known: Iterable[GroupFile],
    again: Collection[int],
    helps: str,
    disk: Disk,
) -> Opened:
    """See `DatasetFolder.open`.

    Raises:
        DatasetError: It cannot be used so; nothing is locked.
    """
    if not header.columns:
        raise DatasetError(f"{path}: no column of the dataset would be written; keep one of them")
    _check_folder(path)
    lock: FileLock | None = None
    try:
        make_safely(path, disk)
        lock = lock_folder(path)
        found, trouble = _look(path, header, existing, helps)
        moved = None
        if trouble is not None:
            moved = _move_away(path, disk)
            unlock_folder(lock, moved)
            lock = None
            make_safely(path, disk)
            lock = lock_folder(path)
        opened = Opened(
            lock=lock, note=found or Note(header=header, format=file_format), moved=moved
        )
        _check_groups(path, opened, known, again)
        # What is written again may be another, and what was made of all of it as well.
        stays = not again and not opened.damaged
        opened.is_processed = stays and is_processed(path, opened.note)
        if again:
            opened.note = attrs.evolve(opened.note, result=None)
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
        check_unused(path)
        return None, None
    if not (path / NOTE).exists():
        raise DatasetError(
            f"{path} is not empty and holds no dataset: name another folder (outputDir)"
        )
    try:
        note = read_note((path / NOTE).read_bytes())
        fitting = joined(note.header, header, processed=_was_processed(path))
    except ValueError as error:
        trouble = f"{path / NOTE} cannot be read: {error}"
    except DatasetError as error:
        trouble = f"{path} holds another dataset than the one that is wanted: {error}"
    else:
        groups = note.groups
        if (path / LINES).exists():
            lines = read_group_lines((path / LINES).read_bytes(), note.header.grouping)
            groups = {**groups, **lines}
        result = note.result if fitting == note.header else None
        return attrs.evolve(note, header=fitting, groups=groups, result=result), None
    if existing == "always":
        raise DatasetError(f"{trouble}\n{helps}")
    return None, trouble


def _check_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise DatasetError(f"{path} is a file, and the folder of a dataset should be there")


def check_unused(path: Path) -> None:
    """Refuse a folder in which something stands already, if it may hold none.

    Raises:
        DatasetError: Something does, or what is there is no folder.
    """
    _check_folder(path)
    if not path.exists():
        return
    if not all(is_ours(one.name) for one in path.iterdir()) and not _is_bare(path):
        raise DatasetError(
            f"{path} is not empty: name another folder (outputDir), or set resume: always to go on with the "
            "dataset that is in it; a run that was cut off goes on with `trioeval resume`"
        )


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


def _was_processed(path: Path) -> bool:
    return (path / FINAL).exists() or old_final(path).exists()


def _check_groups(
    path: Path, opened: Opened, known: Iterable[GroupFile], again: Collection[int]
) -> None:
    """Sort what was ever told of groups by whether the files are as they were written."""
    told: dict[int, list[GroupFile]] = {}
    grouping = opened.note.header.grouping
    for group in (*opened.note.groups.values(), *known):
        if is_of(group, grouping):
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
            (opened.standing if number in again else opened.written)[number] = whole[-1]
        else:
            damaged.append(groups[-1])
    opened.damaged = tuple(damaged)


def _tidy(path: Path, opened: Opened, found: Note | None, disk: Disk) -> None:
    """Note in one file what is there, and remove what a killed process left half done."""
    final, old = path / FINAL, old_final(path)
    if opened.is_processed and processed_folder(path) == old:
        disk.remove(final)  # what is left of it holds no dataset
        disk.rename(old, final)
        disk.settle(path)
    for one in path.iterdir():
        if is_part(one.name) and (one != old or opened.is_processed):
            disk.remove(one)
    is_damaged = opened.damaged or (_was_processed(path) and not opened.is_processed)
    result = None if is_damaged else opened.note.result
    groups = {**opened.standing, **opened.written}
    opened.note = attrs.evolve(opened.note, groups=groups, result=result)
    content = note_text(opened.note).encode()
    if found is None or (path / NOTE).read_bytes() != content:
        put_file(path / NOTE, content, disk)
    if (path / LINES).exists():
        disk.remove(path / LINES)
    if not opened.is_processed:  # only now: nobody takes what is left for the whole of it
        _drop_final(path, disk)


def _drop_final(path: Path, disk: Disk) -> None:
    """Remove processed rows; at no time are they half there."""
    part = path / part_name(f"dropped-{FINAL}")
    for one in (old_final(path), path / FINAL):
        if one.exists():
            disk.rename(one, part)
            disk.settle(path)
            disk.remove(part)


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
