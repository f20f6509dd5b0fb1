"""Parquet files that seeds are read from, by DuckDB; see `seed_tables`."""

import datetime as dt
import decimal
import json
import math
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

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
_TABLE = f"read_parquet(?, hive_partitioning = false, {_NUMBER} = true)"


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
            described = connection.execute(f"DESCRIBE SELECT * FROM {_TABLE}", [str(file)])  # noqa: S608
            kinds = {name: str(kind) for name, kind, *_ in described.fetchall()}
            del kinds[_NUMBER]
            counted = connection.execute(f"SELECT count(*) FROM {_TABLE}", [str(file)])  # noqa: S608
            count = counted.fetchall()[0][0]
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise MistakenError(Mistake(f"cannot be read as Parquet: {reason}")) from None
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
        place = 0
        cursor = self._connection.cursor().execute(self._select("true"), [str(self.file)])
        while rows := cursor.fetchmany(_ROWS):
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
            chosen = f"{_NUMBER} IN (SELECT unnest(?::BIGINT[]))"
            rows = self._fetch(chosen, [list(places)])
            found = {number: row for *row, number in rows}
        return [self._row(found[place]) for place in places]

    def _some(self, begin: int, end: int) -> Sequence[Sequence[Any]]:
        chosen = f"{_NUMBER} >= ? AND {_NUMBER} < ? ORDER BY {_NUMBER}"
        return [row[:-1] for row in self._fetch(chosen, [begin, end])]

    def _select(self, where: str) -> str:
        names = ['"{}"'.format(name.replace('"', '""')) for name in self._wanted]
        return f"SELECT {', '.join([*names, _NUMBER])} FROM {_TABLE} WHERE {where}"  # noqa: S608 - they are quoted

    def _fetch(self, where: str, numbers: Sequence[Any]) -> Sequence[Sequence[Any]]:
        import duckdb  # noqa: PLC0415 - an extra

        with self._lock:
            try:
                if state_of(self.file) != self._state:
                    raise changed(self.file)
                found: Sequence[Sequence[Any]] = self._connection.execute(
                    self._select(where), [str(self.file), *numbers]
                ).fetchall()
            except (duckdb.Error, OSError) as error:
                message = f"cannot be read any more: {str(error).splitlines()[0]}"
                raise MistakenError(Mistake(message, file=self.file)) from None
        return found

    def _row(self, values: Sequence[Any]) -> Row:
        return {
            name: _plain(json.loads(value) if self.kinds[name] == "JSON" and value else value, name)
            for name, value in zip(self._wanted, values, strict=True)
        }


def _is_of(name: str, column: str) -> bool:
    return name == column or name.startswith(f"{column}.")


def _plain(value: Any, name: str) -> Any:
    """A value as JSON has it.

    Raises:
        ValueError: There is no such value.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_plain(one, name) for one in value]
        case Mapping():
            return {str(key): _plain(one, name) for key, one in value.items()}
        case decimal.Decimal() if value.is_finite():
            return int(value) if value == value.to_integral_value() else float(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case _:
            raise ValueError(f"the column {quote(name)} holds {_shown(value)}, which is no JSON")


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, float) else f"a value of type {type(value).__name__}"
