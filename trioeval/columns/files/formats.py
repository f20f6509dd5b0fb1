"""Values as files hold them: of each type one form, in all formats, so that what is read is the same.

Numbers are exact: whole ones have 64 bits, the others are finite. A half of a surrogate pair stands for no
character and no file can hold it as text: it is written as JSON would escape it, with a backslash.
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
"""Rows with their numbers."""

_TOLD = 5  # mistakes
_LONGEST = 60  # characters of a value in a message

_HALF = re.compile("[\ud800-\udfff]")

encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""JSON text of a value.

Raises:
    TypeError, ValueError, RecursionError: It is no JSON.
"""


def file_columns(
    rows: NumberedRows, columns: Mapping[str, ColumnType], texts: Collection[str] = ()
) -> Mapping[str, Sequence[Any]]:
    r"""The values of all rows, by column; of `json` their JSON text. What a row lacks is None.

    Args:
        rows: The rows.
        columns: Their columns.
        texts: Columns of which JSON text is wanted as well.

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
        trioeval.errors.DatasetError: row 7, column 'a': '2' is no whole number of 64 bits (type int)
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
                mistakes.append(f"row {number}, column {name!r}: {_told(value, kind)}")
                if len(mistakes) > _TOLD:
                    raise DatasetError("\n".join([*mistakes[:_TOLD], "… and more"]))
    if mistakes:
        raise DatasetError("\n".join(mistakes))
    return found


def as_read(value: Any, kind: ColumnType) -> Any:
    r"""A value as it is read from files: who goes on with a dataset sees no other one than who began it.

    Args:
        value: One that fits the type, and is not None.
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
    """Whether all parts are of plain classes, and texts without halves of characters."""
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
    return mended(str.__str__(value))  # that of an enumeration is its name


def _bool(value: bool) -> bool:  # noqa: FBT001 - it is the value
    return value


def _vector(value: Sequence[float]) -> Sequence[float]:
    return [*map(float, value)]


def _json(value: Any) -> str:
    return mended(encode_json(value), is_json=True)


def mended(text: str, *, is_json: bool = False) -> str:
    r"""A text with halves of surrogate pairs escaped; two that belong together are one character.

    Args:
        text: The text.
        is_json: Whether it is JSON text: what is read from it is escaped then.

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
class _Kind:
    change: Callable[[Any], Any]
    """The value as files hold it, if it fits."""
    wanted: str


_KINDS: Mapping[ColumnType, _Kind] = {
    "text": _Kind(_text, "no text"),
    "int": _Kind(int, "no whole number of 64 bits"),
    "float": _Kind(float, "no finite number"),
    "bool": _Kind(_bool, "neither true nor false"),
    "vector": _Kind(_vector, "no list of finite numbers"),
    "json": _Kind(_json, "no JSON"),
}


def _told(value: Any, kind: ColumnType) -> str:
    why = f": {_json_trouble(value)}" if kind == "json" else ""
    return f"{_shown(value)} is {_KINDS[kind].wanted} (type {kind}){why}"


def _json_trouble(value: Any) -> str:
    try:
        encode_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return "its keys must be texts, its lists be lists, and it not be too deep"


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - objects of users may do anything when looked at; huge numbers too
        shown = type(value).__name__
    shown = mended(shown)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def read_rows(
    columns: Mapping[str, ColumnType],
    lines: Sequence[Sequence[Any]],
    kept: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Iterator[Mapping[str, Any]]:
    """Rows again, of lines that have the form of `file_columns`, in the order of the columns.

    Args:
        columns: The columns.
        lines: The lines.
        kept: How values of columns that have another type in the file are read as JSON data.

    Raises:
        ValueError: A text that should be JSON is none.
    """
    kept = kept or {}
    json_columns = [name for name, kind in columns.items() if kind == "json" and name not in kept]
    for line in lines:
        row = dict(zip(columns, line, strict=True))
        for name in json_columns:
            if row[name] is not None:
                row[name] = json.loads(row[name])
        for name, read in kept.items():
            if row[name] is not None:
                row[name] = as_read(read(row[name]), columns[name])
        yield row


# JSON lines: an object for each row, with its columns in order.


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
            told = ",".join(map(str.__add__, heads, line))
            file.write(f"{{{told}}}\n".encode())


def read_jsonl(content: bytes) -> Iterator[Mapping[str, Any]]:
    """The rows of a file.

    Raises:
        ValueError: It holds something else.
    """
    for line in content.splitlines():  # of bytes: only what ends a line, not what Unicode calls so
        yield json.loads(line)


def _texts(values: Sequence[Any], kind: ColumnType) -> Iterator[str]:
    if kind == "json":
        return ("null" if value is None else value for value in values)
    return map(encode_json, values)


# Parquet, by DuckDB: columns with types, compressed, for every program that reads tables.
#
# `text` is VARCHAR, `int` BIGINT, `float` DOUBLE, `bool` BOOLEAN, `vector` a list of DOUBLE, so that every
# number is read as it was written, and `json` VARCHAR with JSON text. Columns of a Parquet file keep their
# types (`STRUCT(a BIGINT)[]`, `TIMESTAMP`, …): values, which are JSON on the way, are cast when they are
# written. All others are handed over as parameters, a list for each column: there is no text between that
# would have to be read again. It costs 4 to 8 ms for 1,000 rows of 6 columns, and 60 ms with vectors of 384
# numbers.
#
# One thread and fixed settings: the same rows make the same bytes.


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


def open_duckdb() -> Any:
    """A connection that reads and writes files of this machine, in UTC."""
    import duckdb  # noqa: PLC0415 - an extra

    connection = duckdb.connect(":memory:", config=dict(_SETTINGS))
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


@attrs.define(eq=False)
class Parquet:
    """Writes and reads files, one at a time, from any thread."""

    _connection: Any = attrs.field(init=False, factory=open_duckdb)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

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
