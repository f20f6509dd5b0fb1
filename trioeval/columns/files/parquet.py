"""Parquet, by DuckDB: columns with types, compressed, for every program that reads tables.

`text` is VARCHAR, `int` BIGINT, `float` DOUBLE, `bool` BOOLEAN, `vector` a list of DOUBLE, so that every
number is read as it was written, and `json` VARCHAR with JSON text. Columns of a Parquet file keep their
types (`STRUCT(a BIGINT)[]`, `TIMESTAMP`, …): values, which are JSON on the way, are cast when they are
written. All others are handed over as parameters, a list for each column: there is no text between that would
have to be read again. It costs 4 to 8 ms for 1,000 rows of 6 columns, and 60 ms with vectors of 384 numbers.

One thread and fixed settings: the same rows make the same bytes.
"""

import base64
import datetime as dt
import decimal
import glob
import json
import math
import re
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.columns.cell_types import ColumnType
from trioeval.errors import DatasetError

_SQL: Mapping[ColumnType, str] = {
    "text": "VARCHAR",
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "vector": "DOUBLE[]",
    "json": "VARCHAR",
}
_SETTINGS = {  # nothing is fetched from anywhere
    "threads": "1",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_INSTANT = "TIMESTAMP WITH TIME ZONE"
_FINE = "TIMESTAMP_NS"
_AS_TEXT = re.compile(f"{_INSTANT}|{_FINE}")
"""Types whose values are no objects of Python, or lose digits as such."""
_KEPT = re.compile(
    r"(U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|FLOAT|DOUBLE|BOOLEAN|VARCHAR|UUID|DATE|TIME"
    r"|TIMESTAMP(_NS|_MS|_S| WITH TIME ZONE)?|DECIMAL\(\d+,\d+\))"
)
"""Types of one value that can be written from a text."""
_FILES = "read_parquet(?, hive_partitioning = false)"
_NAME, _TEXT = '"', "'"
_OPTIONS = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880, USE_TMP_FILE false"


def parquet_trouble(columns: Mapping[str, ColumnType]) -> str | None:
    """Why a dataset with these columns cannot be written as Parquet here, and what helps; None if it can."""
    try:
        import duckdb  # noqa: F401, PLC0415 - an extra
    except ImportError:
        return "Parquet files need the extra `parquet`: pip install 'trioeval[parquet]', or set format: jsonl"
    seen: dict[str, str] = {}
    for name in columns:
        if not name:
            return "a column of a Parquet file needs a name; set format: jsonl"
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            return (
                f"columns {other!r} and {name!r} of a Parquet file must differ in more than upper and lower "
                "case; rename one of them, or set format: jsonl"
            )
    return None


@attrs.define(eq=False)
class Parquet:
    """Writes and reads files, one at a time, from any thread."""

    _connection: Any = attrs.field(init=False)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        import duckdb  # noqa: PLC0415 - an extra

        self._connection = duckdb.connect(":memory:", config=dict(_SETTINGS))
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")

    def write(
        self,
        path: Path,
        columns: Mapping[str, ColumnType],
        values: Mapping[str, Sequence[Any]],
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        """Write a file of values as `file_columns` makes them.

        Args:
            path: The file.
            columns: Their types.
            values: By column; of those in `kinds` as JSON text.
            kinds: What DuckDB calls the types of columns that keep others; see `kept_kind`.

        Raises:
            OSError: It cannot be written, or a value does not fit its kept type.
        """
        kinds = kinds or {}
        chosen = ", ".join(
            f"{_written(_SQL[kind], kinds.get(name))} AS {_quoted(name, _NAME)}"
            for name, kind in columns.items()
        )
        target = _quoted(str(path), _TEXT)
        self._run(
            f"COPY (SELECT {chosen}) TO {target} ({_OPTIONS})", [values[name] for name in columns]
        )

    def join(self, path: Path, parts: Sequence[Path]) -> None:
        """Write a file of the lines of others, which have the same columns, in their order.

        Raises:
            OSError: One cannot be read, or it cannot be written.
        """
        target = _quoted(str(path), _TEXT)
        self._run(
            f"COPY (SELECT * FROM {_FILES}) TO {target} ({_OPTIONS})",  # noqa: S608 - a quoted path
            [[glob.escape(str(part)) for part in parts]],
        )

    def read(self, path: Path) -> tuple[Mapping[str, str], Sequence[Sequence[Any]]]:
        """The columns of a file with what DuckDB calls their types, and its lines.

        Raises:
            OSError: It cannot be read.
        """
        file = [glob.escape(str(path))]
        described = self._run(f"DESCRIBE FROM {_FILES}", file)
        kinds = {name: str(kind) for name, kind, *_ in described}
        names = ", ".join(read_as(name, kind) for name, kind in kinds.items())
        return kinds, self._run(f"SELECT {names} FROM {_FILES}", file)  # noqa: S608 - they are quoted

    def _run(self, statement: str, parameters: Sequence[Any]) -> Any:
        import duckdb  # noqa: PLC0415 - an extra

        with self._lock:
            try:
                return self._connection.execute(statement, parameters).fetchall()
            except duckdb.Error as error:
                raise OSError(str(error).splitlines()[0]) from error

    def close(self) -> None:
        """Give back what it holds."""
        self._connection.close()


def need_parquet(columns: Mapping[str, ColumnType]) -> Parquet:
    """What writes and reads Parquet.

    Raises:
        DatasetError: It cannot be had.
    """
    trouble = parquet_trouble(columns)
    if trouble is not None:
        raise DatasetError(trouble)
    return Parquet()


def _quoted(text: str, mark: str) -> str:
    return f"{mark}{text.replace(mark, 2 * mark)}{mark}"


def is_kept(kind: str, name: str, columns: Mapping[str, ColumnType]) -> bool:
    """Whether a column of a file has another type than columns of a dataset have."""
    return kind != _SQL[columns[name]]


def kept_kind(kind: str, own: ColumnType) -> str | None:
    """The type of a column of a Parquet file that its values keep; None if they are written as any others.

    Args:
        kind: What DuckDB calls it.
        own: The type that its values have in the dataset.

    Example:
        >>> kept_kind("DATE", "text"), kept_kind("VARCHAR", "text"), kept_kind("BIT", "text")
        ('DATE', None, None)
    """
    if kind == _SQL[own]:
        return None
    nested = ("BLOB" not in kind and kind.startswith(("STRUCT(", "MAP("))) or kind.endswith("]")
    return kind if nested or kind == "BLOB" or _KEPT.fullmatch(kind) else None


def read_as(name: str, kind: str) -> str:
    """What a column is read by: types that Python lacks are read as text."""
    quoted = _quoted(name, _NAME)
    if _AS_TEXT.search(kind) is None:
        return quoted
    return f"CAST({quoted} AS {_AS_TEXT.sub('VARCHAR', kind)})"


def as_json(value: Any, kind: str) -> Any:
    """A value of a Parquet file as JSON data.

    A decimal is a number if that number has all of its digits, and else a text. Bytes are Base64.

    Args:
        value: As it was read by `read_as`.
        kind: What DuckDB calls its type.

    Raises:
        ValueError: There is no such value; says which.
    """
    if isinstance(value, str) and kind in ("JSON", _INSTANT, _FINE):
        return _of_text(value, kind)
    return _plain(value)


def _of_text(value: str, kind: str) -> Any:
    if kind == "JSON":
        return json.loads(value) if value else value
    if kind == _FINE:
        return value.replace(" ", "T")
    try:
        return dt.datetime.fromisoformat(value).isoformat()
    except ValueError:  # beyond the years of Python, or infinite
        return value


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_plain(one) for one in value]
        case Mapping():
            return {str(key): _plain(one) for key, one in value.items()}
        case decimal.Decimal() if value.is_finite():
            if value == value.to_integral_value():
                return int(value)
            number = float(value)
            return number if decimal.Decimal(repr(number)) == value else str(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            shown = (
                str(value)
                if isinstance(value, float)
                else f"a value of type {type(value).__name__}"
            )
            raise ValueError(f"{shown}, which is no JSON")


def _written(own: str, kept: str | None) -> str:
    """What makes the values of a column of a parameter."""
    if kept is None:
        return f"unnest(?::{own}[])"
    text = "unnest(?::VARCHAR[])"
    if kept == "BLOB":
        return f"from_base64({text}::JSON ->> '$')"
    if _KEPT.fullmatch(kept):
        return f"CAST({text}::JSON ->> '$' AS {kept})"
    return f"CAST({text}::JSON AS {kept})"
