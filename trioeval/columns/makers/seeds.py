"""Seed columns: rows of a file, or of an earlier task.

Row r of a dataset is row r of its source, which repeats from its start if it is too short. If shuffled, each
round has its own order, which follows from the seed and the number of the round. So a row does not depend on
what was made before, and an extended dataset continues where it ended.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import trio

from trioeval.columns.cell_types import ColumnType, common_type
from trioeval.columns.files.formats import kept_kind
from trioeval.columns.lanes import LOCAL
from trioeval.columns.makers.base import GroupOrder, Made
from trioeval.columns.makers.samplers import stream
from trioeval.columns.makers.seed_tables import (
    CsvTable,
    JsonlTable,
    ParquetTable,
    Row,
    Table,
    Walked,
)
from trioeval.columns.model import SeedColumns
from trioeval.columns.reply_json import member
from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.documents.placing import first_mistakes
from trioeval.errors import DatasetError, Problem, SuiteError
from trioeval.grading import quote
from trioeval.kernel import Calls
from trioeval.text import counted

AT_ONCE = 10_000
"""The maximum rows of a source in memory that are read without a thread."""

_ROUNDS = 2  # orders in memory: a row group may have rows of two rounds
_LISTED = 20  # listed mistakes in the rows of a task


@attrs.define(eq=False, repr=False)
class FileSource:
    """The rows of a file; made by `open_seed_file`."""

    file: Path
    columns: Mapping[str, str]
    """The columns of the dataset, each with its name in the file."""
    types: Mapping[str, ColumnType]
    """The narrowest type for all rows, by column of the dataset."""
    digest: str
    """The digest of its content."""
    _table: Table
    _empty: str | None = ""
    """The replacement for empty text."""

    @property
    def kinds(self) -> Mapping[str, str]:
        """The types that columns keep in Parquet, with DuckDB's names."""
        if not isinstance(self._table, ParquetTable):
            return {}
        known = self._table.kinds
        found = (
            (name, kept_kind(known[source], self.types[name]))
            for name, source in self.columns.items()
            if source in known
        )
        return {name: kind for name, kind in found if kind is not None}

    @property
    def blocks(self) -> bool:
        """True: files are read in a thread."""
        return True

    def __len__(self) -> int:
        return len(self._table)

    def read(self, places: Sequence[int]) -> Sequence[Row]:
        """Return some rows, in the requested order.

        Raises:
            DatasetError: They can no longer be read.
        """
        try:
            found = [_picked(row, self.columns) for row in self._table.read(places)]
        except (MistakenError, LookupError, ValueError) as error:
            raise DatasetError(f"{self.file}: {error}") from error
        if self._empty is None:
            return [{name: value or None for name, value in row.items()} for row in found]
        return found


@attrs.define(eq=False, repr=False)
class RowsSource:
    """The rows of an earlier task; made by `seed_rows`. It has the members of `FileSource`."""

    columns: Mapping[str, str]
    types: Mapping[str, ColumnType]
    digest: str
    _rows: Sequence[Row]
    kinds: Mapping[str, str] = attrs.field(factory=dict)
    """Empty: no types are known."""

    @property
    def blocks(self) -> bool:
        """True if they must be read in a thread: there are many, or they are in files."""
        return not isinstance(self._rows, list | tuple) or len(self._rows) > AT_ONCE

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, places: Sequence[int]) -> Sequence[Row]:
        """Return some rows."""
        # In their order, so that a file with several of them is read once.
        found = {place: _picked(self._rows[place], self.columns) for place in sorted({*places})}
        return [found[place] for place in places]


Source: TypeAlias = FileSource | RowsSource
"""The rows of a seed, by the names of its columns in the dataset."""


def open_seed_file(
    file: Path, columns: Mapping[str, str], path: str = "$", *, empty_as_null: bool = False
) -> FileSource:
    """Return the rows of a file, after a check of all of them. Blocks: call it in a thread.

    Args:
        file: Absolute: CSV, JSON lines or Parquet, by its extension.
        columns: The columns of the dataset, each with its name in the file; dotted names select members of
            values in JSON and Parquet.
        path: The place in the suite that names the file, for messages.
        empty_as_null: True if empty cells of CSV become null.

    Raises:
        SuiteError: The file cannot be read, has no rows, lacks a column, or has invalid rows (the first ones
            are listed with their lines).
    """
    try:
        return _opened(file, columns, None if empty_as_null else "")
    except MistakenError as error:
        raise SuiteError([_problem(part, file, path) for part in error.parts]) from None
    except OSError as error:
        mistake = Mistake(f"cannot be read: {error.strerror or error}")
        raise SuiteError([_problem(mistake, file, path)]) from None


def _opened(file: Path, columns: Mapping[str, str], empty: str | None) -> FileSource:
    table = _open_table(file, list(columns.values()))
    lacking = [table.lacks(name) for name in dict.fromkeys(columns.values())]
    if any(lacking):
        raise MistakenError(*filter(None, lacking))
    types = _Types(columns)
    mistakes = [mistake for one in table.walk() if (mistake := types.add(one)) is not None]
    if mistakes:
        raise MistakenError(*first_mistakes(mistakes, file))
    if not len(table):
        raise MistakenError(Mistake("has no rows"))
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    empty = empty if isinstance(table, CsvTable) else ""
    return FileSource(file, columns, types.found, digest, table, empty)


def seed_rows(rows: Sequence[Row], columns: Mapping[str, str], source: str) -> RowsSource:
    """Return the rows of an earlier task, after a check of all of them. Slow if they are many or in files.

    Args:
        rows: JSON; they do not change.
        columns: The columns of the dataset, each with its name in the rows; dotted names select members of
            values.
        source: Their name in messages.

    Raises:
        DatasetError: The task has no rows, or some lack a column; the first of them are listed.
    """
    types, digest = _Types(columns), hashlib.sha256()
    messages: list[str] = []
    count = 0
    for number, row in enumerate(rows):
        mistake = types.add((None, row))
        if mistake is None:
            picked = _picked(row, columns)
            digest.update(json.dumps(picked, sort_keys=True, default=str).encode() + b"\n")
            continue
        count += 1
        if count <= _LISTED:
            hint = f"; {mistake.hint}" if mistake.hint else ""
            messages.append(f"row {number} of {source}: {mistake.message}{hint}")
    if count > _LISTED:
        messages.append(f"… and {counted(count - _LISTED, 'more row')}")
    if messages:
        raise DatasetError("\n".join(messages))
    if not len(rows):
        raise DatasetError(f"{source} has no rows")
    return RowsSource(columns, types.found, digest.hexdigest(), rows)


def permutation(count: int, seed: int, column: str, turn: int) -> Sequence[int]:
    """Return the order of the rows of a source in one round.

    Example:
        >>> list(permutation(5, 0, "name", 0)), list(permutation(5, 0, "name", 1))
        ([4, 3, 2, 1, 0], [4, 0, 1, 2, 3])
    """
    order = array("Q", range(count))
    random = stream(seed, column, turn).random
    for last in range(count - 1, 0, -1):
        other = int(random() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


@attrs.define(eq=False, repr=False)
class SeedMaker:
    """Makes the columns of a seed."""

    column: SeedColumns
    source: Source
    seed: int
    """The seed of the dataset, for a column without its own."""
    _orders: dict[int, Sequence[int]] = attrs.field(init=False, factory=dict)
    """The orders by round."""

    lane = LOCAL

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:  # noqa: ARG002 - it makes no calls
        """Return the values of the requested rows. A checkpoint if they are read in a thread."""
        if not self.source.blocks:
            return self._made(order.rows)
        # Abandoned when cancelled: it only reads.
        return await trio.to_thread.run_sync(self._made, order.rows, abandon_on_cancel=True)

    def _made(self, rows: Sequence[int]) -> Made:
        if not rows:
            return []
        return list(zip(rows, self.source.read(list(map(self.place, rows))), strict=True))

    def place(self, row: int) -> int:
        """Return the index of the source row for a row."""
        turn, place = divmod(row, len(self.source))
        if self.column.order == "ordered":
            return place
        order = self._orders.get(turn)
        if order is None:
            seed = self.seed if self.column.seed is None else self.column.seed
            order = permutation(len(self.source), seed, self.column.name, turn)
            for old in list(self._orders)[: 1 - _ROUNDS or None]:
                self._orders.pop(old, None)  # another thread may have been first
            self._orders[turn] = order
        return order[place]


@attrs.define(eq=False, repr=False)
class _Types:
    """The types of columns in the rows that were checked."""

    _columns: Mapping[str, str]
    _kinds: dict[str, set[ColumnType]] = attrs.field(init=False)

    @_kinds.default
    def _none(self) -> dict[str, set[ColumnType]]:
        return {name: set() for name in self._columns}

    def add(self, walked: Walked) -> Mistake | None:
        """Check a row; return its mistake, if it has one."""
        line, row = walked
        place = None if line is None else (line, 1)
        if isinstance(row, Mistake):
            column = row.place[1] if row.place else 1
            return attrs.evolve(row, place=None if line is None else (line, column))
        try:
            for name, source in self._columns.items():
                value = row[source] if source in row else member(row, source)
                if value.__class__ is str:
                    self._kinds[name].add("text")
                elif value is not None:
                    self._kinds[name].add(common_type((value,)))
        except LookupError as error:
            return Mistake(str(error), place=place)
        return None

    @property
    def found(self) -> Mapping[str, ColumnType]:
        """The types by column."""
        return {name: _narrowest(kinds) for name, kinds in self._kinds.items()}


def _narrowest(kinds: Iterable[ColumnType]) -> ColumnType:
    match sorted(kinds):
        case []:
            return "text"
        case [one]:
            return one
        case ["float", "int"]:
            return "float"
        case _:
            return "json"


def _open_table(file: Path, names: Sequence[str]) -> Table:
    match file.suffix.lower():
        case ".csv":
            return CsvTable.of(file)
        case ".jsonl":
            return JsonlTable.of(file)
        case ".parquet":
            return ParquetTable.of(file, names)
        case _:
            message = f"{quote(file.name)} is not a supported table"
            raise MistakenError(Mistake(message, "use a .csv, .jsonl or .parquet file"))


def _picked(row: Row, columns: Mapping[str, str]) -> Row:
    return {
        name: row[source] if source in row else member(row, source)
        for name, source in columns.items()
    }


def _problem(mistake: Mistake, file: Path, path: str) -> Problem:
    line, column = mistake.place or (None, None)
    shown = str(mistake.file or file)
    return Problem(path, mistake.message, mistake.hint, shown, line, column)
