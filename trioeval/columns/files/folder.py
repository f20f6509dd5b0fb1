"""The folder of a dataset during its construction."""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import attrs
from filelock import FileLock

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.files.formats import (
    NumberedRows,
    Parquet,
    encode_json,
    file_columns,
    mended,
    parquet_trouble,
    write_jsonl,
)
from trioeval.columns.files.layout import (
    ASIDE,
    FINAL,
    LINES,
    NOTE,
    DatasetNote,
    Disk,
    Format,
    GroupFile,
    Header,
    batch_name,
    data_folder,
    digest_of,
    group_line,
    make_safely,
    note_text,
    old_final,
    part_name,
    put_file,
    unlock_folder,
    unwritable,
)
from trioeval.errors import DatasetError


def chosen_format(
    setting: Literal["auto", "parquet", "jsonl"], columns: Mapping[str, ColumnType]
) -> Format:
    """Return the format of a new dataset: `auto` is Parquet if it is available, otherwise JSON lines.

    Raises:
        DatasetError: Parquet was requested and is not available.
    """
    if setting == "jsonl":
        return "jsonl"
    trouble = parquet_trouble(columns)
    if trouble is None:
        return "parquet"
    if setting == "parquet":
        raise DatasetError(trouble)
    return "jsonl"


@attrs.define(eq=False, repr=False)
class DatasetFolder:
    """A folder for the files of a dataset. Made by `open_folder`; closed after the last write.

    It may be used from several threads; files are written one at a time.
    """

    path: Path
    header: Header
    """The header of the files: the requested one, with the groups of an existing dataset."""
    format: Format
    written: dict[int, GroupFile] = attrs.field(factory=dict)
    """Written groups whose files are unchanged."""
    damaged: tuple[GroupFile, ...] = ()
    """Written groups whose files have changed; to be written again."""
    is_processed: bool = False
    """True if `final` exists and is unchanged; a changed one is removed on opening."""
    moved: Path | None = None
    """The new location of an existing dataset that did not fit."""
    result: Mapping[str, Any] | None = None
    """The result of the dataset, if it was complete when the folder was opened."""
    kinds: Mapping[str, str] = attrs.field(factory=dict)
    """DuckDB's names of the types that columns keep in Parquet files, by column; see `kept_kind`."""
    _disk: Disk = attrs.field(factory=Disk)
    _file_lock: FileLock | None = attrs.field(default=None)
    _parquet: Parquet | None = attrs.field(default=None)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    @property
    def data(self) -> Path:
        """The folder of the final rows: the folder itself, or `final` in it after processing."""
        return data_folder(self.path)

    def write(
        self, group: int, rows: NumberedRows, dropped: Mapping[str, int] | None = None
    ) -> GroupFile:
        """Write the rows of a group, by number in ascending order; no rows make no file.

        Columns that the header does not have are left out; missing ones become null.

        Args:
            group: Its number.
            rows: Numbers and values.
            dropped: The number of missing rows by cause; noted with the group.

        Raises:
            DatasetError: The group cannot be written, or a value does not fit its column.
        """
        numbers = self.header.grouping.rows_of(group)
        name = batch_name(group, self.format)
        with self._lock:
            try:
                if rows:
                    part = self.path / part_name(name)
                    done = self._fill(part, group, rows, self.header.columns, len(numbers))
                    self._disk.rename(part, self.path / name)
                else:
                    done = GroupFile(group=group, rows=0, file=None, digest=None)
                    self._disk.remove(self.path / name)
                done = attrs.evolve(done, dropped=dict(dropped or {}))
                self._disk.settle(self.path)
                is_first = not (self.path / LINES).exists()
                self._disk.append(self.path / LINES, group_line(done))
                if is_first:
                    self._disk.settle(self.path)
            except OSError as error:
                raise unwritable(self.path / name, error) from error
            self.written[group] = done
            self.damaged = tuple(one for one in self.damaged if one.group != group)
            return done

    def _fill(
        self,
        part: Path,
        group: int,
        rows: NumberedRows,
        columns: Mapping[str, ColumnType],
        full: int,
    ) -> GroupFile:
        """Write a file under a temporary name; remove it on failure."""
        parquet = self._parquet
        kinds = {} if parquet is None else self.kinds
        try:
            values = file_columns(rows, columns, kinds)
        except DatasetError as error:
            raise DatasetError(f"{self.path}: group {group} cannot be written:\n{error}") from None

        def write(path: Path) -> None:
            if parquet is None:
                write_jsonl(path, columns, values)
            else:
                parquet.write(path, columns, values, kinds)

        try:
            self._disk.fill(part, write)
        except OSError:
            self._disk.remove(part)
            raise
        return GroupFile(
            group=group,
            rows=len(rows) if len(rows) == full else tuple(number for number, _ in rows),
            file=batch_name(group, self.format),
            digest=digest_of(part),
        )

    def write_aside(
        self,
        group: int,
        rows: NumberedRows,
        columns: Mapping[str, ColumnType],
        *,
        final: bool = False,
    ) -> None:
        """Write columns that a processor removed, in the format of the dataset, with row numbers.

        In Parquet the numbers are in the column `row`, with `_` appended while that name is taken.

        Args:
            group: Its number.
            rows: Numbers, and values of the removed columns.
            columns: The types of all columns of the dataset.
            final: True if they were removed from the whole dataset: files of single groups remain.

        Raises:
            DatasetError: The file cannot be written, or a value is not JSON or does not fit its column.
        """
        path = self.path / ASIDE / (FINAL if final else "") / batch_name(group, self.format)
        content: bytes | Callable[[Path], None]
        try:
            if self._parquet is None:
                content = _aside_lines(rows)
            else:
                content = self._aside_parquet(self._parquet, rows, columns)
        except (DatasetError, TypeError, ValueError, RecursionError) as error:
            between = "\n" if isinstance(error, DatasetError) else " "
            raise DatasetError(f"{path}: the columns cannot be written:{between}{error}") from error
        with self._lock:
            try:
                make_safely(path.parent, self._disk)
                put_file(path, content, self._disk)
            except OSError as error:
                raise unwritable(path, error) from error

    def _aside_parquet(
        self, parquet: Parquet, rows: NumberedRows, columns: Mapping[str, ColumnType]
    ) -> Callable[[Path], None]:
        left_out = {name for _, values in rows for name in values}
        number, taken = "row", {name.casefold() for name in left_out}
        while number in taken:
            number += "_"
        kinds: dict[str, ColumnType] = {number: "int"}
        kinds |= {name: kind for name, kind in columns.items() if name in left_out}
        values = file_columns([(row, {**one, number: row}) for row, one in rows], kinds, self.kinds)
        return lambda path: parquet.write(path, kinds, values, self.kinds)

    def replace(
        self,
        groups: Iterable[tuple[int, NumberedRows]],
        *,
        columns: Mapping[str, ColumnType] | None = None,
    ) -> None:
        """Write all groups again into the folder `final`, which one rename makes the content of the dataset.

        The earlier files stay unchanged, so that this can be repeated. A killed process leaves the previous
        state: no `final`, or the old one.

        Args:
            groups: The rows of each group that has any.
            columns: The written columns, if they differ now.

        Raises:
            DatasetError: A file cannot be written, or a value does not fit its column.
        """
        columns = self.header.columns if columns is None else columns
        final, part = self.path / FINAL, self.path / part_name(FINAL)
        header = attrs.evolve(self.header, columns=columns)
        disk = self._disk
        with self._lock:
            try:
                disk.remove(part)
                disk.make_folder(part)
                done = {
                    group: self._fill(
                        part / batch_name(group, self.format),
                        group,
                        rows,
                        columns,
                        len(header.grouping.rows_of(group)),
                    )
                    for group, rows in groups
                }
                note = DatasetNote(header=header, format=self.format, groups=done)
                put_file(part / NOTE, note_text(note).encode(), disk)
                self._put_final(part)
            except OSError as error:
                raise unwritable(final, error) from error
            self.is_processed = True

    def _put_final(self, part: Path) -> None:
        """Replace existing processed rows by a folder.

        Until it is in place, the old rows are read under a temporary name.
        """
        disk, final, old = self._disk, self.path / FINAL, old_final(self.path)
        try:
            if final.exists():
                disk.remove(old)
                disk.rename(final, old)
            disk.rename(part, final)
        except OSError:
            if old.exists() and not final.exists():
                disk.rename(old, final)
            raise
        disk.settle(self.path)
        disk.remove(old)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Note that the dataset is complete, with its result (without times).

        Raises:
            DatasetError: It cannot be written.
        """
        with self._lock:
            try:
                put_file(self.path / NOTE, self.note(self.written, result), self._disk)
                self._disk.remove(self.path / LINES)
            except OSError as error:
                raise unwritable(self.path / NOTE, error) from error

    def note(self, groups: Mapping[int, GroupFile], result: Mapping[str, Any] | None) -> bytes:
        """Return the content of `dataset.json`."""
        note = DatasetNote(header=self.header, format=self.format, groups=groups, result=result)
        return note_text(note).encode()

    def close(self) -> None:
        """Release the lock of the folder. Nothing is written afterwards."""
        if self._parquet is not None:
            self._parquet.close()
            self._parquet = None
        if self._file_lock is not None:
            unlock_folder(self._file_lock, self.path)
            self._file_lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _aside_lines(rows: NumberedRows) -> bytes:
    lines = (encode_json({"row": row, "columns": dict(values)}) for row, values in rows)
    return "".join(f"{mended(line, is_json=True)}\n" for line in lines).encode()
