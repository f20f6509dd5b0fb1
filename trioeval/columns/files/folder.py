"""The folder while a dataset is built."""

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
    Disk,
    Format,
    GroupFile,
    Header,
    Note,
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
    wanted: Literal["auto", "parquet", "jsonl"], columns: Mapping[str, ColumnType]
) -> Format:
    """The format of a new dataset: `auto` is Parquet where it can be had, or else JSON lines.

    Raises:
        DatasetError: Parquet is wanted and cannot be had.
    """
    if wanted == "jsonl":
        return "jsonl"
    trouble = parquet_trouble(columns)
    if trouble is None:
        return "parquet"
    if wanted == "parquet":
        raise DatasetError(trouble)
    return "jsonl"


@attrs.define(eq=False)
class DatasetFolder:
    """A folder that files are written to. Made by `open_folder`; closed when nothing more is written.

    It may be used from several threads; files are written one at a time.
    """

    path: Path
    header: Header
    """Of what is written: the wanted one, with the groups of what was there before."""
    format: Format
    written: dict[int, GroupFile] = attrs.field(factory=dict)
    """Groups that are there, each with a file that is as it was written."""
    damaged: tuple[GroupFile, ...] = ()
    """Groups that were written and whose files are not as they were; to be written again."""
    is_processed: bool = False
    """Whether `final` is there. One whose files were not as they were written is gone since it was opened."""
    moved: Path | None = None
    """Where a dataset is now that was there and did not fit."""
    result: Mapping[str, Any] | None = None
    """How the dataset ended, if it was complete when it was opened."""
    kinds: Mapping[str, str] = attrs.field(factory=dict)
    """What DuckDB calls the types that columns keep in Parquet files, by name; see `kept_kind`."""
    _disk: Disk = attrs.field(factory=Disk, repr=False)
    _file_lock: FileLock | None = attrs.field(default=None, repr=False)
    _parquet: Parquet | None = attrs.field(default=None, repr=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, repr=False)

    @property
    def data(self) -> Path:
        """Where the files of the rows stand: the folder, or `final` in it once all of it was processed."""
        return data_folder(self.path)

    def write(
        self, group: int, rows: NumberedRows, dropped: Mapping[str, int] | None = None
    ) -> GroupFile:
        """Write the rows of a group, by number in ascending order; none makes no file.

        What a row has beside the columns of the header is left out; what it lacks is null.

        Args:
            group: Its number.
            rows: Numbers and values.
            dropped: How many of its rows are not there, by cause; noted with it.

        Raises:
            DatasetError: It cannot be written, or a value does not fit its column.
        """
        wanted = self.header.grouping.rows_of(group)
        name = batch_name(group, self.format)
        with self._lock:
            try:
                if rows:
                    part = self.path / part_name(name)
                    done = self._fill(part, group, rows, self.header.columns, len(wanted))
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
        """Write a file under a name that it does not keep; it is gone if that fails."""
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
        """Write columns that a processor has left out, in the format of the dataset, with row numbers.

        In Parquet the numbers are the column `row`, with `_` appended as long as a column is called so.

        Args:
            group: Its number.
            rows: Numbers, and values of what is left out.
            columns: The types of all columns of the dataset.
            final: Whether it was left out of the whole: what was left out of groups before stays.

        Raises:
            DatasetError: It cannot be written, or a value is no JSON or does not fit its column.
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
        """Write all groups anew into the folder `final`, which from one rename on is the dataset.

        What was written before stays as it was beside it: it is what this can be done from again. What is
        killed meanwhile leaves what was there: no `final`, or the one of a time before.

        Args:
            groups: The rows of each group that has any.
            columns: Those that are written, if they are others now.

        Raises:
            DatasetError: It cannot be written, or a value does not fit its column.
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
                note = Note(header=header, format=self.format, groups=done)
                put_file(part / NOTE, note_text(note).encode(), disk)
                self._put_final(part)
            except OSError as error:
                raise unwritable(final, error) from error
            self.is_processed = True

    def _put_final(self, part: Path) -> None:
        """Let a folder take the place of processed rows of a time before, if there are any.

        Until it is there, they are read by the name that they get meanwhile.
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
        """The dataset is complete: note all of it, with what became of its rows (without times).

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
        """The content of `dataset.json`."""
        note = Note(header=self.header, format=self.format, groups=groups, result=result)
        return note_text(note).encode()

    def close(self) -> None:
        """Let others write to the folder. Nothing is written after it."""
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
