"""Opening of a folder for writing: its content is checked before anything is changed."""

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
    DatasetNote,
    Disk,
    Format,
    GroupFile,
    Header,
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
from trioeval.columns.graph import RowGrouping
from trioeval.errors import DatasetError
from trioeval.text import counted

# Decides if an existing dataset can be continued. Pure.


Existing: TypeAlias = Literal["never", "if_possible", "always"]
"""Treatment of an existing dataset. `never`: refuse it. `if_possible`: continue it if it fits, otherwise move
it away and start another. `always`: continue it or fail."""


def joined(found: Header, expected: Header, *, processed: bool = False) -> Header:
    """Return the header of a continued dataset: the same groups, and more if more rows are requested.

    Args:
        found: The existing header.
        expected: The requested header.
        processed: True if the existing dataset was processed as a whole.

    Raises:
        DatasetError: It cannot be continued; the message lists all reasons.

    Example:
        >>> there = Header(columns={"a": "int"}, grouping=RowGrouping(2, (5,)), fingerprint={})
        >>> joined(there, attrs.evolve(there, grouping=RowGrouping(2, (7,)))).grouping
        RowGrouping(size=2, targets=(5, 7))
    """
    troubles = list(differences(found, expected))
    old, new = found.grouping, expected.grouping
    if old.size != new.size:
        troubles.append(f"its groups have {counted(old.size, 'row')}, not {new.size}")
    if new.rows < old.rows:
        troubles.append(f"it has {counted(old.rows, 'row')}, which is more than {new.rows}")
    elif processed and new.rows > old.rows:
        troubles.append(
            f"its {counted(old.rows, 'row')} were processed as a whole, so no rows can be added"
        )
    targets = new.targets
    if len(targets) == 1 and new.rows > old.rows:
        targets = (*old.targets, new.rows)
    elif len(targets) == 1 and new.rows == old.rows:
        targets = old.targets
    if targets[: len(old.targets)] != old.targets and new.rows >= old.rows:
        troubles.append(
            f"it was made for {_then(old)}, not for {_then(new)}, which results in other groups"
        )
    if troubles:
        raise DatasetError("; ".join(troubles))
    return attrs.evolve(expected, grouping=RowGrouping(old.size, targets))


def _then(grouping: RowGrouping) -> str:
    first, *more = grouping.targets
    return ", then ".join([counted(first, "row"), *map(str, more)])


HELPS = "use another folder (outputDir), or set resume: ifPossible to move it away"


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
    """Open a folder, which is created if it does not exist. Only one process may write to it.

    A complete file that is not noted, because its process was killed before, is left unchanged: the next run
    writes the same bytes in its place, or its digest is already known.

    Args:
        path: The folder.
        header: The requested dataset. If an existing dataset with fewer rows is continued, the grouping may
            contain its targets, or only the last one.
        file_format: The format of its files; a continued dataset keeps its format.
        existing: Treatment of an existing dataset. `if_possible` moves one that does not fit to another name
            in the same folder, and never deletes a file.
        known: Groups that are written according to a journal.
        again: Groups to write again: they count as not written, whatever exists.
        helps: The hint for a dataset that must fit and does not.
        kinds: See `DatasetFolder.kinds`.
        disk: The file operations.

    Raises:
        DatasetError: The folder is not empty and may not be continued; it has another configuration (all
            differences are named), another group size, or more rows; its header cannot be read; it cannot be
            written, or the format is not available; another process is writing to it.
    """
    if not header.columns:
        raise DatasetError(f"{path}: the dataset would have no columns; keep at least one of them")
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
            note = found or DatasetNote(header=header, format=file_format)
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
            intact = _sort_groups(folder, (*note.groups.values(), *known), again)
            # Groups that are written again may differ, and so may results of the whole dataset.
            stays = not again and not folder.damaged
            folder.is_processed = stays and is_processed(path, note.header)
            if stays and (folder.is_processed or not _was_processed(path)):
                folder.result = note.result
            _tidy(folder, intact, disk, is_new=found is None)
            undo.pop_all()
    except OSError as error:
        raise unwritable(path, error) from error
    return folder


def _parquet(path: Path, note: DatasetNote) -> Parquet | None:
    """Return the writer of Parquet files, if the dataset has that format."""
    if note.format != "parquet":
        return None
    try:
        return need_parquet(note.header.columns)
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from None


def _look(
    path: Path, header: Header, existing: Existing, helps: str
) -> tuple[DatasetNote | None, str | None]:
    """Return the existing note if it fits; or the reason why the dataset must be moved away."""
    if all(is_ours(one.name) for one in path.iterdir()):
        return None, None
    if existing == "never":
        check_unused(path)
        return None, None
    if not (path / NOTE).exists():
        raise DatasetError(
            f"{path} is not empty and contains no dataset: use another folder (outputDir)"
        )
    try:
        note = read_note((path / NOTE).read_bytes())
        fitting = joined(note.header, header, processed=_was_processed(path))
    except ValueError as error:
        trouble = f"{path / NOTE} cannot be read: {error}"
    except DatasetError as error:
        trouble = f"{path} contains a different dataset: {error}"
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
        raise DatasetError(f"{path} is a file; the dataset needs a folder there")


def check_unused(path: Path) -> None:
    """Raise if a folder for a new dataset is not empty.

    Raises:
        DatasetError: It contains a dataset or other files, or is not a folder.
    """
    _check_folder(path)
    if not path.exists():
        return
    if not all(is_ours(one.name) for one in path.iterdir()) and not _is_bare(path):
        raise DatasetError(
            f"{path} is not empty: use another folder (outputDir), or set resume: always to continue the "
            "dataset in it; `trioeval resume` continues an interrupted run"
        )


def _is_bare(path: Path) -> bool:
    """Return True if a dataset was started without any written rows: its process was killed at once."""
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
    """Sort all recorded groups into written and damaged ones, by their digests.

    Returns:
        Intact groups of `again`: their files can be read until they are written again.
    """
    recorded: dict[int, list[GroupFile]] = {}
    for group in groups:
        if is_of(group, folder.header.grouping):
            recorded.setdefault(group.group, []).append(group)
    intact: dict[int, GroupFile] = {}
    damaged = []
    for number, several in sorted(recorded.items()):
        digests: Mapping[str | None, str | None] = {
            file: digest_of(folder.path / file)
            for file in {one.file for one in several}
            if file is not None
        }
        whole = [one for one in several if digests.get(one.file) == one.digest]
        if whole:
            (intact if number in again else folder.written)[number] = whole[-1]
        else:
            damaged.append(several[-1])
    folder.damaged = tuple(damaged)
    return intact


def _tidy(
    folder: DatasetFolder, intact: Mapping[int, GroupFile], disk: Disk, *, is_new: bool
) -> None:
    """Write the note of existing groups, and remove incomplete files of a killed process."""
    path = folder.path
    final, old = path / FINAL, old_final(path)
    if folder.is_processed and processed_folder(path) == old:
        disk.remove(final)  # it is incomplete
        disk.rename(old, final)
        disk.settle(path)
    for one in path.iterdir():
        if is_part(one.name) and (one != old or folder.is_processed):
            disk.remove(one)
    content = folder.note({**intact, **folder.written}, folder.result)
    if is_new or (path / NOTE).read_bytes() != content:
        put_file(path / NOTE, content, disk)
    if (path / LINES).exists():
        disk.remove(path / LINES)
    if not folder.is_processed:  # last: until then the unprocessed rows must not count as final
        _drop_final(path, disk)


def _drop_final(path: Path, disk: Disk) -> None:
    """Remove processed rows so that they are never half visible."""
    part = path / part_name(f"dropped-{FINAL}")
    for one in (old_final(path), path / FINAL):
        if one.exists():
            disk.rename(one, part)
            disk.settle(path)
            disk.remove(part)
