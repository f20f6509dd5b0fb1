"""Whether files are as they were written."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import attrs

from trioeval.datasets.files.header import Note, read_group_lines, read_note
from trioeval.datasets.files.names import LINES, NOTE, processed_folder

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


def is_processed(path: Path, note: Note) -> bool:
    """Whether the processed rows of a dataset are there, as they were written, and are those of this dataset.

    Args:
        path: The folder of the dataset.
        note: What is known of the dataset itself.
    """
    folder = processed_folder(path)
    final = None if folder is None else _note_of(folder)
    if folder is None or final is None:
        return False
    same = attrs.evolve(final.header, columns=note.header.columns) == note.header
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
    return not processed or is_processed(path, note)


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
