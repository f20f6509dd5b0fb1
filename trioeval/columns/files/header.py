"""What is known of a dataset beside its rows, and how `dataset.json` and `groups.jsonl` tell it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import attrs

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.files.paths import LINES, NOTE, processed_folder
from trioeval.columns.graph import Grouping
from trioeval.errors import DatasetError

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
