# Separate from `columns.makers.seeds`: together they exceed 600 lines.
"""Seed files, read row by row: CSV, JSON lines and Parquet.

A file of a million rows must not have to fit into memory. One pass finds the start of each row of CSV or JSON
lines, which needs eight bytes per row; requested rows are read from there. Nothing is stored for Parquet
files: consecutive rows are read by their numbers without reading the others, and rows in random order by a
scan of the requested columns.

CSV is read strictly: a misplaced quote is a mistake, blank lines are ignored, and a cell has at most 131,072
characters.

All functions block, and may be called in any thread.
"""

import csv
import glob
import io
import itertools
import os
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import attrs

from trioeval.columns.files.formats import as_json, open_duckdb, read_as
from trioeval.documents.mistakes import Mistake, MistakenError, kind, nearest
from trioeval.grading import quote
from trioeval.suite.sources.jsonl_tests import JsonlFile, read_line
from trioeval.text import counted

Row: TypeAlias = Mapping[str, Any]
Walked: TypeAlias = tuple[int | None, Row | Mistake]
"""The line of a row, from 1 if rows have lines, with the row or its mistake."""

_BOM = b"\xef\xbb\xbf"
_ROWS = 1000  # read at once


@attrs.define(eq=False, repr=False)
class CsvTable:
    """A CSV file with a header; all cells are text."""

    file: Path
    header: Sequence[str]
    _state: tuple[int, int]
    _starts: "array[int]" = attrs.field(init=False, factory=lambda: array("Q"))
    _wrong: list[Walked] = attrs.field(init=False, factory=list)

    @classmethod
    def of(cls, file: Path) -> "CsvTable":
        """Scan a file.

        Raises:
            MistakenError: It has no header.
            OSError: It cannot be read.
        """
        with file.open("rb") as opened:
            lines = _TextLines(opened)
            cells = csv.reader(lines, strict=True)
            header = _next_row(cells)
            if header is None:
                raise MistakenError(Mistake("is empty", "its first line must name the columns"))
            if isinstance(header, Mistake):
                raise MistakenError(attrs.evolve(header, place=(1, 1)))
            table = cls(file, [name.strip() for name in header], state_of(opened.fileno()))
            table._look_through(cells, lines)
        return table

    def _look_through(self, rows: Iterator[list[str]], lines: "_TextLines") -> None:
        width = len(self.header)
        while True:
            start, line = lines.at, lines.number + 1
            row = _next_row(rows)
            if row is None:
                return
            if isinstance(row, Mistake):
                self._wrong.append((line, row))
            elif row and len(row) != width:
                cells, of = counted(len(row), "cell"), counted(width, "cell")
                message = f"the row has {cells}, but the header has {of}"
                self._wrong.append((line, Mistake(message)))
            elif row:
                self._starts.append(start)

    def __len__(self) -> int:
        return len(self._starts)

    def lacks(self, name: str) -> Mistake | None:
        """Return the mistake in the name of a column, independent of the rows; None if it is valid."""
        times = self.header.count(name)
        if times == 1:
            return None
        if times:
            message = f"{times} columns are named {quote(name)}"
            return Mistake(message, "rename them", place=(1, 1))
        message = f"column {quote(name)} does not exist"
        return Mistake(message, nearest(name, self.header), place=(1, 1))

    def walk(self) -> Iterator[Walked]:
        """Yield all rows whose types must be found, and all mistakes: all cells of CSV are text."""
        return iter(self._wrong)

    def read(self, places: Sequence[int]) -> Sequence[Row]:
        """Return some rows by their indices, in the requested order.

        Raises:
            MistakenError: The file cannot be read any more, or has changed.
        """
        found: list[Row] = []
        for first, last in _runs(places):
            content = _read(self.file, self._state, self._starts, first, last)
            rows = csv.reader(io.StringIO(content.decode(), newline=""), strict=True)
            cells = itertools.islice(filter(None, rows), last - first + 1)
            found += [dict(zip(self.header, row, strict=True)) for row in cells]
        return found


@attrs.define(eq=False, repr=False)
class JsonlTable:
    """A file with one JSON object per line."""

    _lines: JsonlFile
    _starts: Sequence[int]

    @classmethod
    def of(cls, file: Path) -> "JsonlTable":
        """Find the lines of a file.

        Raises:
            MistakenError: It cannot be read.
        """
        lines = JsonlFile(file)
        starts, _ = lines.scan()
        return cls(lines, starts)

    def __len__(self) -> int:
        return len(self._starts)

    def lacks(self, _name: str) -> Mistake | None:
        """Return None: each line has its own members."""
        return None

    def walk(self) -> Iterator[Walked]:
        """Yield all lines."""
        for begin in range(0, len(self), _ROWS):
            places = range(begin, min(begin + _ROWS, len(self)))
            for place, line in zip(places, self._some(places), strict=True):
                number = self._lines.number(place, self._starts[place])
                try:
                    row = read_line(line.rstrip())
                except MistakenError as error:
                    yield number, error.parts[0]
                    continue
                if isinstance(row, dict):
                    yield number, row
                else:
                    yield number, Mistake(f"must be an object, got {kind(row)}")

    def read(self, places: Sequence[int]) -> Sequence[Row]:
        """Return some rows."""
        return [read_line(line.rstrip()) for line in self._some(places)]

    def _some(self, places: Sequence[int]) -> Iterator[bytes]:
        starts = self._starts
        for first, last in _runs(places):
            begin = starts[first]
            stop = starts[last + 1] if last + 1 < len(starts) else None
            content = self._lines.read(begin, stop)
            for place in range(first, last + 1):
                end = starts[place + 1] - begin if place < last else len(content)
                yield content[starts[place] - begin : end]


@attrs.define(eq=False, repr=False)
class _TextLines:
    """The lines of a file as text, and the start of the next line."""

    _file: BinaryIO
    at: int = attrs.field(init=False, default=0)
    """The offset in bytes."""
    number: int = attrs.field(init=False, default=0)
    """The number of the last line that was read, from 1."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline()
        if not line:
            raise StopIteration
        self.at += len(line)
        self.number += 1
        return (line.removeprefix(_BOM) if self.number == 1 else line).decode()


def _next_row(rows: Iterator[list[str]]) -> list[str] | Mistake | None:
    """Return the next row (without cells if its line is blank), its mistake, or None at the end."""
    try:
        return next(rows, None)
    except csv.Error as error:
        about_quotes = "expected after" in str(error) or "unexpected end" in str(error)
        hint = 'write a quote inside of a quoted cell as ""' if about_quotes else None
        return Mistake(f"not CSV: {error}", hint)
    except UnicodeDecodeError as error:
        message = f"byte {error.start} of the line (0x{error.object[error.start]:02x}) is not UTF-8"
        return Mistake(message, "save the file as UTF-8")


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of each run of consecutive indices.

    Example:
        >>> list(_runs([3, 4, 5, 0, 1, 9]))
        [(3, 5), (0, 1), (9, 9)]
    """
    first = last = -1
    for place in places:
        if first >= 0 and place == last + 1:
            last = place
            continue
        if first >= 0:
            yield first, last
        first = last = place
    if first >= 0:
        yield first, last


def state_of(file: Path | int) -> tuple[int, int]:
    """Return the size and the modification time of a file, by path or descriptor."""
    found = os.fstat(file) if isinstance(file, int) else file.stat()
    return found.st_size, found.st_mtime_ns


def changed(file: Path) -> MistakenError:
    """Return the error of a file that has changed since it was opened."""
    message = "the file has changed since the suite was loaded"
    return MistakenError(Mistake(message, "load the suite again", file=file))


def _read(
    file: Path, state: tuple[int, int], starts: Sequence[int], first: int, last: int
) -> bytes:
    try:
        with file.open("rb", buffering=0) as opened:
            if state_of(opened.fileno()) != state:
                raise changed(file)
            opened.seek(starts[first])
            stop = starts[last + 1] if last + 1 < len(starts) else state[0]
            return opened.read(stop - starts[first])
    except OSError as error:
        message = f"cannot be read any more: {error.strerror}"
        raise MistakenError(Mistake(message, file=file)) from None


# Parquet seed files, read by DuckDB; see the top of the module.


_SEED_PARQUET_ROWS = 1000  # fetched at once
_NUMBER = "file_row_number"
_TABLE = "read_parquet(?, hive_partitioning = false)"
_NUMBERED = f"read_parquet(?, hive_partitioning = false, {_NUMBER} = true)"


@attrs.define(eq=False, repr=False)
class ParquetTable:
    """A Parquet file."""

    file: Path
    kinds: Mapping[str, str]
    """The types of its columns, with DuckDB's names."""
    _names: Sequence[str]
    _count: int
    _state: tuple[int, int]
    _connection: Any
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    @classmethod
    def of(cls, file: Path, names: Sequence[str]) -> "ParquetTable":
        """Open a file and read its columns.

        Args:
            file: Absolute.
            names: The needed columns, or with dots members of their values.

        Raises:
            MistakenError: It is not a Parquet file, or the extra is not installed.
        """
        try:
            import duckdb
        except ImportError:
            message = f"{quote(file.name)} needs the extra parquet"
            raise MistakenError(Mistake(message, "pip install 'trioeval[parquet]'")) from None
        connection = open_duckdb()
        try:
            described = connection.execute(f"DESCRIBE SELECT * FROM {_TABLE}", [_literal(file)])  # noqa: S608
            kinds = {name: str(kind) for name, kind, *_ in described.fetchall()}
            counted = connection.execute(f"SELECT count(*) FROM {_TABLE}", [_literal(file)])  # noqa: S608
            count = counted.fetchall()[0][0]
        except duckdb.Error as error:
            raise _not_parquet(error) from None
        selected = [name for name in kinds if any(_is_of(one, name) for one in names)]
        return cls(file, kinds, selected, count, state_of(file), connection)

    def __len__(self) -> int:
        return self._count

    def lacks(self, name: str) -> Mistake | None:
        """Return the mistake in the name of a column; None if it is valid."""
        if any(_is_of(name, one) for one in self.kinds):
            return None
        return Mistake(f"column {quote(name)} does not exist", nearest(name, self.kinds))

    def walk(self) -> Iterator[Walked]:
        """Yield all rows."""
        import duckdb

        place = -1
        cursor = self._connection.cursor()
        try:
            cursor.execute(self._select("true"), [_literal(self.file)])
        except duckdb.Error as error:
            raise _not_parquet(error) from None
        while rows := _fetched(cursor):
            for *row, _ in rows:
                place += 1
                try:
                    yield None, self._row(row)
                except ValueError as error:
                    yield None, Mistake(f"row {place}: {error}")

    def read(self, places: Sequence[int]) -> Sequence[Row]:
        """Return some rows."""
        least, most = min(places), max(places)
        if most - least < len(places):
            found = dict(enumerate(self._some(least, most + 1), least))
        else:
            chosen = f"{self._number} IN (SELECT unnest(?::BIGINT[]))"
            rows = self._fetch(chosen, [list(places)])
            found = {number: row for *row, number in rows}
        return [self._row(found[place]) for place in places]

    def _some(self, begin: int, end: int) -> Sequence[Sequence[Any]]:
        number = self._number
        chosen = f"{number} >= ? AND {number} < ? ORDER BY {number}"
        return [row[:-1] for row in self._fetch(chosen, [begin, end])]

    @property
    def _number(self) -> str:
        """A name for the row number that no column of the file has."""
        taken = {name.casefold() for name in self.kinds}
        name = _NUMBER
        while name in taken:
            name += "_"
        return name

    def _select(self, where: str) -> str:
        table, number = _NUMBERED, self._number
        if number != _NUMBER:  # the rows come in order, and are counted
            table = f"(SELECT *, row_number() OVER () - 1 AS {number} FROM {_TABLE})"  # noqa: S608
        names = [read_as(name, self.kinds[name]) for name in self._names]
        return f"SELECT {', '.join([*names, number])} FROM {table} WHERE {where}"  # noqa: S608 - they are quoted

    def _fetch(self, where: str, numbers: Sequence[Any]) -> Sequence[Sequence[Any]]:
        import duckdb

        with self._lock:
            try:
                if state_of(self.file) != self._state:
                    raise changed(self.file)
                found: Sequence[Sequence[Any]] = self._connection.execute(
                    self._select(where), [_literal(self.file), *numbers]
                ).fetchall()
            except (duckdb.Error, OSError) as error:
                message = f"cannot be read any more: {str(error).splitlines()[0]}"
                raise MistakenError(Mistake(message, file=self.file)) from None
        return found

    def _row(self, values: Sequence[Any]) -> Row:
        found: dict[str, Any] = {}
        for name, value in zip(self._names, values, strict=True):
            try:
                found[name] = as_json(value, self.kinds[name])
            except ValueError as error:
                raise ValueError(f"column {quote(name)} contains {error}") from None
        return found


def _literal(file: Path) -> str:
    """Return a path without wildcards."""
    return glob.escape(str(file))


def _not_parquet(error: Exception) -> MistakenError:
    return MistakenError(Mistake(f"cannot be read as Parquet: {str(error).splitlines()[0]}"))


def _fetched(cursor: Any) -> Sequence[Sequence[Any]]:
    import duckdb

    try:
        rows: Sequence[Sequence[Any]] = cursor.fetchmany(_SEED_PARQUET_ROWS)
    except duckdb.Error as error:
        raise _not_parquet(error) from None
    return rows


def _is_of(name: str, column: str) -> bool:
    return name == column or name.startswith(f"{column}.")


Table: TypeAlias = CsvTable | JsonlTable | ParquetTable
"""The rows of a file, by their indices."""
