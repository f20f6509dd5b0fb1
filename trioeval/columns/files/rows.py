"""The rows of a written dataset, read on access."""

import hashlib
import os
import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import attrs

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.files.formats import (
    Parquet,
    as_json,
    is_kept,
    need_parquet,
    read_jsonl,
    read_rows,
)
from trioeval.columns.files.layout import (
    LINES,
    NOTE,
    DatasetNote,
    Format,
    GroupFile,
    Header,
    data_folder,
    read_group_lines,
    read_note,
)
from trioeval.errors import DatasetError
from trioeval.sequences import LazySequence
from trioeval.text import counted


class DatasetRows(LazySequence[Mapping[str, Any]]):
    """The rows of a folder, in order; dropped rows have no index.

    One group is in memory at a time. Changed files are detected when they are read.
    Several threads may read.
    As a context manager, or with `close`, it releases its resources; it cannot be read afterwards.

    Args:
        path: The folder.
        processed: Read the rows that processors of the whole dataset returned, if there are any.

    Raises:
        DatasetError: It contains no dataset, or a file is missing or has changed.
    """

    def __init__(self, path: str | os.PathLike[str], *, processed: bool = True) -> None:
        path = Path(path)
        self._path = path
        self._folder = data_folder(path) if processed else path
        self._note = _read_note(path, self._folder)
        groups = self._note.groups
        self._groups = [groups[group] for group in sorted(groups) if groups[group].file is not None]
        self._ends = list(accumulate(group.count for group in self._groups))
        for group in self._groups:
            if not self._file(group).is_file():
                raise _damaged(self._file(group), "file not found")
        self._parquet: Parquet | None = None
        if self.format == "parquet":
            self._parquet = need_parquet({})
        self._held: tuple[int, Sequence[Mapping[str, Any]]] = (-1, ())
        self._lock = threading.Lock()

    def close(self) -> None:
        """Release its resources."""
        self._held = (-1, ())
        if self._parquet is not None:
            self._parquet.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The folder."""
        return self._path

    @property
    def header(self) -> Header:
        """The description of the dataset."""
        return self._note.header

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Its columns, in order."""
        return self._note.header.columns

    @property
    def format(self) -> Format:
        """The format of its files."""
        return self._note.format

    @property
    def files(self) -> Sequence[Path]:
        """The files that contain its rows, in order."""
        return [self._file(group) for group in self._groups]

    @property
    def result(self) -> Mapping[str, Any] | None:
        """The result in its header; None while it is built."""
        return self._note.result

    @property
    def dropped(self) -> Mapping[str, int]:
        """The number of missing rows of written groups, by cause."""
        found = Counter[str]()
        for group in self._note.groups.values():
            found.update(group.dropped)
        return found

    def number(self, place: int) -> int:
        """Return the number of a row, which never changes.

        Args:
            place: Its index, 0 to `len(rows)` - 1.
        """
        index = bisect_right(self._ends, place)
        group = self._groups[index]
        behind = place - (self._ends[index] - group.count)
        if isinstance(group.rows, int):
            return self.header.grouping.rows_of(group.group)[behind]
        return group.rows[behind]

    def place(self, number: int) -> int | None:
        """Return the index of the row with a number; None if the row is missing."""
        place = bisect_left(range(len(self)), number, key=self.number)
        return place if place < len(self) and self.number(place) == number else None

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __repr__(self) -> str:
        rows, columns = counted(len(self), "row"), counted(len(self.columns), "column")
        return f"<DatasetRows {self._path}: {rows} of {columns}>"

    def entry(self, index: int) -> Mapping[str, Any]:
        """Return one row."""
        group = bisect_right(self._ends, index)
        begin = self._ends[group] - self._groups[group].count
        return self._rows_of(group)[index - begin]

    def _rows_of(self, group: int) -> Sequence[Mapping[str, Any]]:
        with self._lock:
            if self._held[0] != group:
                self._held = (-1, ())  # one at a time
                self._held = (group, self._read(self._groups[group]))
            return self._held[1]

    def _file(self, group: GroupFile) -> Path:
        return self._folder / str(group.file)

    def _read(self, group: GroupFile) -> Sequence[Mapping[str, Any]]:
        path = self._file(group)
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != group.digest:
                raise _damaged(path, "it has changed since it was written")
            if self._parquet is None:
                rows = list(read_jsonl(content))
            else:
                kinds, lines = self._parquet.read(path)
                readers = {
                    name: partial(as_json, kind=kind)
                    for name, kind in kinds.items()
                    if is_kept(kind, name, self.columns)
                }
                rows = list(read_rows(self.columns, lines, readers))
        except (OSError, ValueError) as error:
            raise _damaged(path, str(error)) from error
        if len(rows) != group.count:
            raise _damaged(path, f"it has {counted(len(rows), 'row')}, not {group.count}")
        return rows


def _read_note(path: Path, folder: Path) -> DatasetNote:
    try:
        content, lines = _contents(folder)
    except OSError as error:
        raise DatasetError(
            f"{path} contains no readable dataset ({NOTE}: {error.strerror or error})"
        ) from error
    try:
        note = read_note(content)
    except ValueError as error:
        raise DatasetError(f"{folder / NOTE} cannot be read: {error}") from error
    more = read_group_lines(lines, note.header.grouping)
    return attrs.evolve(note, groups={**note.groups, **more})


def _contents(folder: Path) -> tuple[bytes, bytes]:
    """Return the header and its lines consistently: a writer may replace the header at any time."""
    before = (folder / NOTE).read_bytes()
    while True:
        try:
            lines = (folder / LINES).read_bytes()
        except FileNotFoundError:
            lines = b""
        content = (folder / NOTE).read_bytes()
        if content == before:
            return content, lines
        before = content


def _damaged(path: Path, detail: str) -> DatasetError:
    return DatasetError(f"{path}: a file of the dataset is missing or damaged: {detail}")
