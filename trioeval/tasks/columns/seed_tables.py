"""Files that seeds are read from, row by row: CSV, JSON lines and Parquet.

A file of a million rows must not have to be in memory. One pass finds where each row of CSV or JSON lines
begins: eight bytes of memory for each, and the rows that are wanted are read again when they are wanted. Of a
Parquet file nothing is kept; a row group of consecutive rows is read by their numbers, rows in random order by a
walk through the columns that are wanted.

CSV is read strictly: a quote that is out of place is a mistake, blank lines are none, and a cell has up to
131,072 characters.

All of it blocks, and may be called in any thread.
"""

import csv
import datetime
import decimal
import io
import itertools
import math
import os
import threading
import uuid
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import attrs
import orjson

from trioeval.grading import quote
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.sources.jsonl_tests import Lines, read_line

Row: TypeAlias = Mapping[str, Any]
Line: TypeAlias = int | None
"""Where a row begins, from 1; None where rows have no lines."""

_BOM = b"\xef\xbb\xbf"
_ROWS = 1000  # fetched at once


class Table(Protocol):
    """Rows of a file, by their places from 0."""

    @property
    def columns(self) -> Sequence[str] | None:
        """What there is in every row; None if each row may have others."""
        ...

    def __len__(self) -> int: ...

    def walk(self) -> Iterator[tuple[Line, Row | MistakenError]]:
        """All rows, each with its line; a row that is wrong is its mistake."""
        ...

    def read(self, places: Sequence[int]) -> Sequence[Row]:
        """Some rows, in the order that is asked for.

        Raises:
            MistakenError: The file cannot be read any more, or has changed.
        """
        ...


def open_table(file: Path, columns: Sequence[str]) -> Table:
    """A file, by its ending.

    Args:
        file: Absolute.
        columns: Those that are looked at; other ones need not be read.

    Raises:
        MistakenError: It cannot be read.
    """
    try:
        match file.suffix.lower():
            case ".csv":
                return CsvTable.of(file)
            case ".jsonl" | ".ndjson":
                return JsonlTable.of(file)
            case ".parquet":
                return ParquetTable.of(file, columns)
            case _:
                hint = "write a .csv, .jsonl or .parquet file"
                raise MistakenError(Mistake(f"{quote(file.name)} is no table", hint))
    except OSError as error:
        raise MistakenError(Mistake(f"cannot be read: {error.strerror or error}")) from None


@attrs.define(eq=False)
class CsvTable:
    """A CSV file with a header; all cells are text."""

    file: Path
    columns: Sequence[str]
    _state: tuple[int, int]
    _starts: "array[int]" = attrs.field(factory=lambda: array("Q"))
    _bad: dict[int, tuple[int, MistakenError]] = attrs.field(factory=dict)
    """By place: rows that are wrong, each with its line."""
    _lines: "array[int]" = attrs.field(factory=lambda: array("Q"))

    @classmethod
    def of(cls, file: Path) -> "CsvTable":
        """Look through a file.

        Raises:
            MistakenError: It has no header.
            OSError: It cannot be read.
        """
        with file.open("rb") as opened:
            state = _state(opened.fileno())
            lines = _TextLines(opened)
            reader = csv.reader(lines, strict=True)
            header = _next(reader, lines)
            if isinstance(header, MistakenError):
                raise header
            if header is None:
                raise MistakenError(Mistake("is empty", "its first line names the columns"))
            table = cls(file, [name.strip() for name in header], state)
            table._look_through(reader, lines)
        return table

    def _look_through(self, reader: Any, lines: "_TextLines") -> None:
        width = len(self.columns)
        while True:
            start, line = lines.at, lines.number + 1
            cells = _next(reader, lines)
            if cells is None:
                return
            if isinstance(cells, MistakenError):
                self._bad[len(self._starts)] = line, cells
                self._starts.append(start)
                if lines.ended:
                    return
            elif cells:
                if len(cells) != width:
                    message = f"has {len(cells)} cells, and the header has {width}"
                    self._bad[len(self._starts)] = line, MistakenError(Mistake(message))
                self._starts.append(start)

    def __len__(self) -> int:
        return len(self._starts)

    def walk(self) -> Iterator[tuple[Line, Row | MistakenError]]:
        """Those that are wrong alone: nothing is to be found out about the others."""
        yield from self._bad.values()

    def read(self, places: Sequence[int]) -> Sequence[Row]:
        """Some rows."""
        found: list[Row] = []
        for first, last in _runs(places):
            stop = self._starts[last + 1] if last + 1 < len(self) else None
            content = _read(self.file, self._state, self._starts[first], stop)
            text = io.StringIO(content.decode("utf-8-sig"), newline="")
            rows = (cells for cells in csv.reader(text, strict=True) if cells)
            found += [dict(zip(self.columns, cells, strict=True)) for cells in rows]
        return found
