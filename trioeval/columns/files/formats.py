"""Conversion of values for files: each type has the same form in all formats, and is read back equal.

Numbers are exact: whole numbers have 64 bits, others are finite. A lone surrogate is not a character and
cannot be stored as text: it is written as its JSON escape, with a backslash.
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from trioeval.columns.cell_types import ColumnType, fits
from trioeval.errors import DatasetError

NumberedRows: TypeAlias = Sequence[tuple[int, Mapping[str, Any]]]
"""Row numbers with their rows."""

_LISTED = 5  # listed mistakes
_LONGEST = 60  # characters of a value in a message

_HALF = re.compile("[\ud800-\udfff]")

encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""Returns the JSON text of a value.

Raises:
    TypeError, ValueError, RecursionError: It is not valid JSON.
"""


def file_columns(
    rows: NumberedRows, columns: Mapping[str, ColumnType], texts: Collection[str] = ()
) -> Mapping[str, Sequence[Any]]:
    r"""Return the values of all rows by column; values of `json` as JSON text. Missing values are None.

    Args:
        rows: The rows.
        columns: Their columns.
        texts: Further columns to return as JSON text.

    Raises:
        DatasetError: Values do not fit their columns.

    Example:
        >>> file_columns(
        ...     [(0, {"a": 1, "b": {"x": "ü\ud800"}}), (1, {})], {"a": "float", "b": "json"}
        ... )
        {'a': [1.0, None], 'b': ['{"x":"ü\\\\ud800"}', None]}
        >>> file_columns([(7, {"a": "2"})], {"a": "int"})
        Traceback (most recent call last):
            ...
        trioeval.errors.DatasetError: row 7, column 'a': '2' is not a whole number of 64 bits (type int)
    """
    mistakes: list[str] = []
    found: dict[str, list[Any]] = {}
    for name, kind in columns.items():
        values = found[name] = []
        change = _KINDS[kind].change
        if name in texts and kind != "json":
            change = partial(_json_of, change)
        for number, row in rows:
            value = row.get(name)
            if value is None:
                values.append(None)
            elif fits(value, kind):
                values.append(change(value))
            else:
                mistakes.append(f"row {number}, column {name!r}: {_misfit(value, kind)}")
                if len(mistakes) > _LISTED:
                    raise DatasetError("\n".join([*mistakes[:_LISTED], "… and more"]))
    if mistakes:
        raise DatasetError("\n".join(mistakes))
    return found


def as_read(value: Any, kind: ColumnType) -> Any:
    r"""Return a value as it is read from files: a resumed run sees the same values as the first execution.

    Args:
        value: A value that fits the type, and is not None.
        kind: The type.

    Example:
        >>> as_read(1, "float"), as_read("a\ud800", "text"), as_read({"a": [1]}, "json")
        (1.0, 'a\\ud800', {'a': [1]})
    """
    match kind:
        case "json":
            return value if _is_as_read(value) else json.loads(_json(value))
        case "vector" if {*map(type, value)} == {float}:
            return value
        case _:
            return _KINDS[kind].change(value)


_ATOMS = frozenset({int, float, bool, type(None)})


def _is_as_read(value: Any) -> bool:
    """Return True if all parts have plain classes, and no text has lone surrogates."""
    parts = [value]
    while parts:
        part = parts.pop()
        kind = type(part)
        if kind is str:
            if mended(part) is not part:
                return False
        elif kind is list:
            parts += part
        elif kind is dict:
            parts += part
            parts += part.values()
        elif kind not in _ATOMS:
            return False
    return True


def _json_of(change: Callable[[Any], Any], value: Any) -> str:
    return encode_json(change(value))


def _text(value: str) -> str:
    return mended(str.__str__(value))  # `str` of an enumeration is its name


def _bool(value: bool) -> bool:  # noqa: FBT001 - it is the value
    return value


def _vector(value: Sequence[float]) -> Sequence[float]:
    return [*map(float, value)]


def _json(value: Any) -> str:
    return mended(encode_json(value), is_json=True)


def mended(text: str, *, is_json: bool = False) -> str:
    r"""Return a text with lone surrogates escaped; two that form a pair become one character.

    Args:
        text: The text.
        is_json: True for JSON text: the text that is read from it is escaped then.

    Example:
        >>> print(mended("a\ud800b"), mended("\ud83d\ude00") == "😀")
        a\ud800b True
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        slashes = 2 * "\\" if is_json else "\\"
        return _HALF.sub(lambda half: f"{slashes}u{ord(half[0]):04x}", paired)
    return text


@attrs.frozen
class _FormatKind:
    change: Callable[[Any], Any]
    """Converts a valid value to its form in files."""
    wanted: str


_KINDS: Mapping[ColumnType, _FormatKind] = {
    "text": _FormatKind(_text, "not text"),
    "int": _FormatKind(int, "not a whole number of 64 bits"),
    "float": _FormatKind(float, "not a finite number"),
    "bool": _FormatKind(_bool, "neither true nor false"),
    "vector": _FormatKind(_vector, "not a list of finite numbers"),
    "json": _FormatKind(_json, "not JSON"),
}


def _misfit(value: Any, kind: ColumnType) -> str:
    why = f": {_json_trouble(value)}" if kind == "json" else ""
    return f"{_shown(value)} is {_KINDS[kind].wanted} (type {kind}){why}"


def _json_trouble(value: Any) -> str:
    try:
        encode_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return "keys must be texts, sequences must be lists, and it must not be nested too deeply"


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - `repr` of users' objects may raise anything, and so do huge numbers
        shown = type(value).__name__
    shown = mended(shown)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def read_rows(
    columns: Mapping[str, ColumnType],
    lines: Sequence[Sequence[Any]],
    readers: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Iterator[Mapping[str, Any]]:
    """Yield rows from lines in the form of `file_columns`, in the order of the columns.

    Args:
        columns: The columns.
        lines: The lines.
        readers: Functions that convert values of columns with another type in the file to JSON data.

    Raises:
        ValueError: A text is not valid JSON.
    """
    readers = readers or {}
    json_columns = [
        name for name, kind in columns.items() if kind == "json" and name not in readers
    ]
    for line in lines:
        row = dict(zip(columns, line, strict=True))
        for name in json_columns:
            if row[name] is not None:
                row[name] = json.loads(row[name])
        for name, read in readers.items():
            if row[name] is not None:
                row[name] = as_read(read(row[name]), columns[name])
        yield row


# JSON lines: one object per row, with its columns in order.


def write_jsonl(
    path: Path, columns: Mapping[str, ColumnType], values: Mapping[str, Sequence[Any]]
) -> None:
    """Write a file of values as `file_columns` makes them.

    Raises:
        OSError: It cannot be written.
    """
    heads = [f"{encode_json(name)}:" for name in columns]
    texts = [_texts(values[name], kind) for name, kind in columns.items()]
    with path.open("wb") as file:
        for line in zip(*texts, strict=True):
            members = ",".join(map(str.__add__, heads, line))
            file.write(f"{{{members}}}\n".encode())


def read_jsonl(content: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file.

    Raises:
        ValueError: A line is not valid JSON.
    """
    for line in content.splitlines():  # of bytes: not at Unicode line separators
        yield json.loads(line)


def _texts(values: Sequence[Any], kind: ColumnType) -> Iterator[str]:
    if kind == "json":
        return ("null" if value is None else value for value in values)
    return map(encode_json, values)


# Parquet, by DuckDB: columns with types, compressed, readable by every program for tables.
#
# `text` is VARCHAR, `int` BIGINT, `float` DOUBLE, `bool` BOOLEAN, `vector` a list of DOUBLE, so that every
# number is read as it was written, and `json` VARCHAR with JSON text. Columns from a Parquet file keep their
# types (`STRUCT(a BIGINT)[]`, `TIMESTAMP`, …): their values, which are JSON in between, are cast when they
# are written. All others are passed as parameters, one list per column, so that no text must be parsed. This
# takes 4 to 8 ms for 1,000 rows of 6 columns, and 60 ms with vectors of 384 numbers.
#
# One thread and fixed settings: the same rows result in the same bytes.


_SQL: Mapping[ColumnType, str] = {
    "text": "VARCHAR",
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "vector": "DOUBLE[]",
    "json": "VARCHAR",
}
_SETTINGS = {  # no downloads
    "threads": "1",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_INSTANT = "TIMESTAMP WITH TIME ZONE"
_FINE = "TIMESTAMP_NS"
_AS_TEXT = re.compile(f"{_INSTANT}|{_FINE}")
"""Types whose values have no Python class, or lose digits in it."""
_KEPT = re.compile(
    r"(U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|FLOAT|DOUBLE|BOOLEAN|VARCHAR|UUID|DATE|TIME"
    r"|TIMESTAMP(_NS|_MS|_S| WITH TIME ZONE)?|DECIMAL\(\d+,\d+\))"
)
"""Types of single values that can be written from text."""
_FILES = "read_parquet(?, hive_partitioning = false)"
_NAME, _TEXT = '"', "'"
_OPTIONS = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880, USE_TMP_FILE false"


def parquet_trouble(columns: Mapping[str, ColumnType]) -> str | None:
    """Return why a dataset with these columns cannot be written as Parquet, with a hint; None if it can."""
    try:
        import duckdb  # noqa: F401 - an extra
    except ImportError:
        return "Parquet files need the extra `parquet`: pip install 'trioeval[parquet]', or set format: jsonl"
    seen: dict[str, str] = {}
    for name in columns:
        if not name:
            return "a column of a Parquet file needs a name; set format: jsonl"
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            return (
                f"columns {other!r} and {name!r} differ only in case, which Parquet does not support; "
                "rename one of them, or set format: jsonl"
            )
    return None


def open_duckdb() -> Any:
    """Return a connection that reads and writes local files, in UTC."""
    import duckdb

    connection = duckdb.connect(":memory:", config=dict(_SETTINGS))
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


@attrs.define(eq=False, repr=False)
class Parquet:
    """Reads and writes Parquet files, one at a time, from any thread."""

    _connection: Any = attrs.field(init=False, factory=open_duckdb)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def write(
        self,
        path: Path,
        columns: Mapping[str, ColumnType],
        values: Mapping[str, Sequence[Any]],
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        """Write a file of values from `file_columns`.

        Args:
            path: The file.
            columns: Their types.
            values: By column; JSON text for those in `kinds`.
            kinds: DuckDB's types of columns that keep another type; see `kept_kind`.

        Raises:
            OSError: The file cannot be written, or a value does not fit its kept type.
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
        """Concatenate the rows of other files with the same columns into one file.

        Raises:
            OSError: A file cannot be read or written.
        """
        target = _quoted(str(path), _TEXT)
        self._run(
            f"COPY (SELECT * FROM {_FILES}) TO {target} ({_OPTIONS})",  # noqa: S608 - a quoted path
            [[glob.escape(str(part)) for part in parts]],
        )

    def read(self, path: Path) -> tuple[Mapping[str, str], Sequence[Sequence[Any]]]:
        """Return the columns of a file with DuckDB's names of their types, and its rows.

        Raises:
            OSError: It cannot be read.
        """
        file = [glob.escape(str(path))]
        described = self._run(f"DESCRIBE FROM {_FILES}", file)
        kinds = {name: str(kind) for name, kind, *_ in described}
        names = ", ".join(read_as(name, kind) for name, kind in kinds.items())
        return kinds, self._run(f"SELECT {names} FROM {_FILES}", file)  # noqa: S608 - they are quoted

    def _run(self, statement: str, parameters: Sequence[Any]) -> Any:
        import duckdb

        with self._lock:
            try:
                return self._connection.execute(statement, parameters).fetchall()
            except duckdb.Error as error:
                raise OSError(str(error).splitlines()[0]) from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def need_parquet(columns: Mapping[str, ColumnType]) -> Parquet:
    """Return a reader and writer of Parquet.

    Raises:
        DatasetError: Parquet is not available.
    """
    trouble = parquet_trouble(columns)
    if trouble is not None:
        raise DatasetError(trouble)
    return Parquet()


def _quoted(text: str, mark: str) -> str:
    return f"{mark}{text.replace(mark, 2 * mark)}{mark}"


def is_kept(kind: str, name: str, columns: Mapping[str, ColumnType]) -> bool:
    """Return True if a column of a file has another type than columns of a dataset have."""
    return kind != _SQL[columns[name]]


def kept_kind(kind: str, own: ColumnType) -> str | None:
    """Return the type that a column of a Parquet file keeps; None if its values are written as any others.

    Args:
        kind: DuckDB's name of the type.
        own: The type of its values in the dataset.

    Example:
        >>> kept_kind("DATE", "text"), kept_kind("VARCHAR", "text"), kept_kind("BIT", "text")
        ('DATE', None, None)
    """
    if kind == _SQL[own]:
        return None
    nested = ("BLOB" not in kind and kind.startswith(("STRUCT(", "MAP("))) or kind.endswith("]")
    return kind if nested or kind == "BLOB" or _KEPT.fullmatch(kind) else None


def read_as(name: str, kind: str) -> str:
    """Return the expression that reads a column: types without a Python class are read as text."""
    quoted = _quoted(name, _NAME)
    if _AS_TEXT.search(kind) is None:
        return quoted
    return f"CAST({quoted} AS {_AS_TEXT.sub('VARCHAR', kind)})"


def as_json(value: Any, kind: str) -> Any:
    """Return a value of a Parquet file as JSON data.

    A decimal becomes a number if that keeps all of its digits, otherwise text. Bytes become Base64.

    Args:
        value: The value that was read by `read_as`.
        kind: DuckDB's name of its type.

    Raises:
        ValueError: It has no JSON form; the message names it.
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
            raise ValueError(f"{shown}, which is not valid JSON")


def _written(own: str, kept: str | None) -> str:
    """Return the SQL expression for the values of a column from a parameter."""
    if kept is None:
        return f"unnest(?::{own}[])"
    text = "unnest(?::VARCHAR[])"
    if kept == "BLOB":
        return f"from_base64({text}::JSON ->> '$')"
    if _KEPT.fullmatch(kept):
        return f"CAST({text}::JSON ->> '$' AS {kept})"
    return f"CAST({text}::JSON AS {kept})"
