"""Parquet files that seeds are read from, by DuckDB; see `seed_tables`."""

import glob
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.datasets.files.parquet import as_json, read_as
from trioeval.grading import quote
from trioeval.suite.mistakes import Mistake, MistakenError, nearest
from trioeval.tasks.columns.seed_tables import Row, Walked, changed, state_of

_SETTINGS = {  # nothing is fetched from anywhere
    "threads": "1",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_ROWS = 1000  # fetched at once
_NUMBER = "file_row_number"
_TABLE = "read_parquet(?, hive_partitioning = false)"
_NUMBERED = f"read_parquet(?, hive_partitioning = false, {_NUMBER} = true)"


@attrs.define(eq=False)
class ParquetTable:
    """A Parquet file."""

    file: Path
    kinds: Mapping[str, str]
    """What DuckDB calls the types of its columns."""
    _wanted: Sequence[str]
    _count: int
    _state: tuple[int, int]
    _connection: Any = attrs.field(repr=False)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock, repr=False)

    @classmethod
    def of(cls, file: Path, names: Sequence[str]) -> "ParquetTable":
        """Look at a file.

        Args:
            file: Absolute.
            names: Columns that are looked at, or what is inside of them, with dots.

        Raises:
            MistakenError: It is no Parquet file, or the extra is not installed.
        """
        try:
            import duckdb  # noqa: PLC0415 - an extra
        except ImportError:
            message = f"{quote(file.name)} needs the extra parquet"
            raise MistakenError(Mistake(message, "pip install 'trioeval[parquet]'")) from None
        connection = duckdb.connect(":memory:", config=dict(_SETTINGS))
        try:
            connection.execute("SET GLOBAL TimeZone = 'UTC'")
            described = connection.execute(f"DESCRIBE SELECT * FROM {_TABLE}", [_literal(file)])  # noqa: S608
            kinds = {name: str(kind) for name, kind, *_ in described.fetchall()}
            counted = connection.execute(f"SELECT count(*) FROM {_TABLE}", [_literal(file)])  # noqa: S608
            count = counted.fetchall()[0][0]
        except duckdb.Error as error:
            raise _not_parquet(error) from None
        wanted = [name for name in kinds if any(_is_of(one, name) for one in names)]
        return cls(file, kinds, wanted, count, state_of(file), connection)

    def __len__(self) -> int:
        return self._count

    def lacks(self, name: str) -> Mistake | None:
        """What is wrong with the name of a column."""
        if any(_is_of(name, one) for one in self.kinds):
            return None
        return Mistake(f"there is no column {quote(name)}", nearest(name, self.kinds))

    def walk(self) -> Iterator[Walked]:
        """All rows."""
        import duckdb  # noqa: PLC0415 - an extra

        place = 0
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
        """Some rows."""
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
        """What the number of a row is called: as no column of the file is."""
        taken = {name.casefold() for name in self.kinds}
        name = _NUMBER
        while name in taken:
            name += "_"
        return name

    def _select(self, where: str) -> str:
        table, number = _NUMBERED, self._number
        if number != _NUMBER:  # rows come in their order, and are counted
            table = f"(SELECT *, row_number() OVER () - 1 AS {number} FROM {_TABLE})"  # noqa: S608
        names = [read_as(name, self.kinds[name]) for name in self._wanted]
        return f"SELECT {', '.join([*names, number])} FROM {table} WHERE {where}"  # noqa: S608 - they are quoted

    def _fetch(self, where: str, numbers: Sequence[Any]) -> Sequence[Sequence[Any]]:
        import duckdb  # noqa: PLC0415 - an extra

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
        for name, value in zip(self._wanted, values, strict=True):
            try:
                found[name] = as_json(value, self.kinds[name])
            except ValueError as error:
                raise ValueError(f"the column {quote(name)} holds {error}") from None
        return found


def _literal(file: Path) -> str:
    """A path in which no sign stands for others."""
    return glob.escape(str(file))


def _not_parquet(error: Exception) -> MistakenError:
    return MistakenError(Mistake(f"cannot be read as Parquet: {str(error).splitlines()[0]}"))


def _fetched(cursor: Any) -> Sequence[Sequence[Any]]:
    import duckdb  # noqa: PLC0415 - an extra

    try:
        rows: Sequence[Sequence[Any]] = cursor.fetchmany(_ROWS)
    except duckdb.Error as error:
        raise _not_parquet(error) from None
    return rows


def _is_of(name: str, column: str) -> bool:
    return name == column or name.startswith(f"{column}.")
