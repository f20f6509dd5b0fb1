"""A folder is opened to be written: what is there is looked at before anything is changed."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from trioeval.columns.files.folder import DatasetFolder
from trioeval.columns.files.formats import Parquet, need_parquet
from trioeval.columns.files.layout import (
    FINAL,
    LINES,
    NOTE,
    Disk,
    Format,
    GroupFile,
    Header,
    Note,
    differences,
    digest_of,
    is_of,
    is_ours,
    is_part,
    is_processed,
    lock_folder,
    make_safely,
    names_beside,
    old_final,
    part_name,
    processed_folder,
    put_file,
    read_group_lines,
    read_note,
    unlock_folder,
    unwritable,
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


def open_folder(
    path: Path,
    header: Header,
    *,
    file_format: Format,
    existing: Existing,
    known: Iterable[GroupFile] = (),
    again: Collection[int] = (),
    helps: str = HELPS,
    kinds: Mapping[str, str] | None = None,
    disk: Disk | None = None,
) -> DatasetFolder:
    """Open a folder, which is made if it is not there. Nobody else may write to it meanwhile.

    A file that is whole but noted nowhere, because its process was killed in between, is left alone:
    whoever makes the group again writes the same bytes in its place, or finds that its digest is known.

    Args:
        path: The folder.
        header: What the dataset is to be. If it goes on from fewer rows, its grouping may say so, or have
            only the last target.
        file_format: Of its files; that of what is there wins where it is gone on with.
        existing: What is done where there is a dataset already. `if_possible` moves one that does not fit
            to a name beside it, and never deletes a file.
        known: Groups that a journal knows to be written.
        again: Groups that are written anew: they count as not written, whatever is there.
        helps: What is said to help where a dataset does not fit and must.
        kinds: As of `kinds` of the folder.
        disk: What is done to files.

    Raises:
        DatasetError: It is not empty and nobody said to go on with it; it is of another configuration
            (every difference is named), of another group size, or has more rows; its header cannot be
            read; it cannot be written, or the format not be had; another process writes to it.
    """
    if not header.columns:
        raise DatasetError(f"{path}: no column of the dataset would be written; keep one of them")
    _check_folder(path)
    disk = disk or Disk()
    moved = None
    try:
        with ExitStack() as undo:
            make_safely(path, disk)
            lock = lock_folder(path)
            undo.callback(unlock_folder, lock, path)
            found, trouble = _look(path, header, existing, helps)
            if trouble is not None:
                moved = _move_away(path, disk)
                undo.pop_all()
                unlock_folder(lock, moved)
                make_safely(path, disk)
                lock = lock_folder(path)
                undo.callback(unlock_folder, lock, path)
            note = found or Note(header=header, format=file_format)
            folder = DatasetFolder(
                path,
                note.header,
                note.format,
                moved=moved,
                kinds=kinds or {},
                disk=disk,
                file_lock=lock,
                parquet=_parquet(path, note),
            )
            standing = _sort_groups(folder, (*note.groups.values(), *known), again)
            # What is written again may be another, and what was made of all of it as well.
            stays = not again and not folder.damaged
            folder.is_processed = stays and is_processed(path, note.header)
            if stays and (folder.is_processed or not _was_processed(path)):
                folder.result = note.result
            _tidy(folder, standing, disk, is_new=found is None)
            undo.pop_all()
    except OSError as error:
        raise unwritable(path, error) from error
    return folder


def _parquet(path: Path, note: Note) -> Parquet | None:
    """What writes the files of a dataset, if they are Parquet."""
    if note.format != "parquet":
        return None
    try:
        return need_parquet(note.header.columns)
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from None


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


def _sort_groups(
    folder: DatasetFolder, groups: Iterable[GroupFile], again: Collection[int]
) -> Mapping[int, GroupFile]:
    """Sort what was ever told of groups by whether the files are as they were written.

    Returns:
        Those of `again` that are: what is there can be read until they are written anew.
    """
    told: dict[int, list[GroupFile]] = {}
    for group in groups:
        if is_of(group, folder.header.grouping):
            told.setdefault(group.group, []).append(group)
    standing: dict[int, GroupFile] = {}
    damaged = []
    for number, several in sorted(told.items()):
        digests: Mapping[str | None, str | None] = {
            file: digest_of(folder.path / file)
            for file in {one.file for one in several}
            if file is not None
        }
        whole = [one for one in several if digests.get(one.file) == one.digest]
        if whole:
            (standing if number in again else folder.written)[number] = whole[-1]
        else:
            damaged.append(several[-1])
    folder.damaged = tuple(damaged)
    return standing


def _tidy(
    folder: DatasetFolder, standing: Mapping[int, GroupFile], disk: Disk, *, is_new: bool
) -> None:
    """Note in one file what is there, and remove what a killed process left half done."""
    path = folder.path
    final, old = path / FINAL, old_final(path)
    if folder.is_processed and processed_folder(path) == old:
        disk.remove(final)  # what is left of it holds no dataset
        disk.rename(old, final)
        disk.settle(path)
    for one in path.iterdir():
        if is_part(one.name) and (one != old or folder.is_processed):
            disk.remove(one)
    content = folder.note({**standing, **folder.written}, folder.result)
    if is_new or (path / NOTE).read_bytes() != content:
        put_file(path / NOTE, content, disk)
    if (path / LINES).exists():
        disk.remove(path / LINES)
    if not folder.is_processed:  # only now: nobody takes what is left for the whole of it
        _drop_final(path, disk)


def _drop_final(path: Path, disk: Disk) -> None:
    """Remove processed rows; at no time are they half there."""
    part = path / part_name(f"dropped-{FINAL}")
    for one in (old_final(path), path / FINAL):
        if one.exists():
            disk.rename(one, part)
            disk.settle(path)
            disk.remove(part)
