"""Values as files hold them: of each type one form, in all formats, so that what is read is the same.

Numbers are exact: whole ones have 64 bits, the others are finite. A half of a surrogate pair stands for no
character and no file can hold it as text: U+FFFD is written in its place.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from trioeval.datasets.types import ColumnType
from trioeval.errors import DatasetError

NumberedRows: TypeAlias = Sequence[tuple[int, Mapping[str, Any]]]
"""Rows with their numbers."""

_LEAST, _MOST = -(2**63), 2**63 - 1
_TOLD = 5  # mistakes
_LONGEST = 60  # characters of a value in a message

encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""JSON text of a value.

Raises:
    TypeError, ValueError, RecursionError: It is no JSON.
"""


def file_columns(
    rows: NumberedRows, columns: Mapping[str, ColumnType]
) -> Mapping[str, Sequence[Any]]:
    r"""The values of all rows, by column; of `json` their JSON text. What a row lacks is None.

    Raises:
        DatasetError: Values do not fit their columns.

    Example:
        >>> file_columns(
        ...     [(0, {"a": 1, "b": {"x": "ü\ud800"}}), (1, {})], {"a": "float", "b": "json"}
        ... )
        {'a': [1.0, None], 'b': ['{"x":"ü�"}', None]}
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
        for number, row in rows:
            try:
                value = row.get(name)
                values.append(None if value is None else change(value))
            except (TypeError, ValueError, RecursionError, OverflowError) as error:
                mistakes.append(f"row {number}, column {name!r}: {_told(row[name], kind, error)}")
                if len(mistakes) > _TOLD:
                    raise DatasetError("\n".join([*mistakes[:_TOLD], "… and more"])) from None
    if mistakes:
        raise DatasetError("\n".join(mistakes))
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return mended(value)


def _whole(value: Any) -> int:
    if type(value) is not int or not _LEAST <= value <= _MOST:
        raise TypeError
    return value


def _finite(value: Any) -> float:
    if type(value) is float:
        if math.isfinite(value):
            return value
    elif type(value) is int:
        return float(value)
    raise TypeError


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError
    return value


def _vector(value: Any) -> Sequence[float]:
    if not isinstance(value, list | tuple):
        raise TypeError
    return [_finite(number) for number in value]


def _json(value: Any) -> str:
    return mended(encode_json(value))


def mended(text: str) -> str:
    r"""A text without halves of surrogate pairs; two that belong together are one character.

    Example:
        >>> mended("a\ud800b"), mended("\ud83d\ude00") == "😀"
        ('a�b', True)
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


@attrs.frozen
class _Kind:
    change: Callable[[Any], Any]
    """The value as files hold it. Anything that it raises means that it does not fit."""
    wanted: str


_KINDS: Mapping[ColumnType, _Kind] = {
    "text": _Kind(_text, "no text"),
    "int": _Kind(_whole, "no whole number of 64 bits"),
    "float": _Kind(_finite, "no finite number"),
    "bool": _Kind(_bool, "neither true nor false"),
    "vector": _Kind(_vector, "no list of finite numbers"),
    "json": _Kind(_json, "no JSON"),
}


def _told(value: Any, kind: ColumnType, error: Exception) -> str:
    why = f": {error}" if kind == "json" else ""
    return f"{_shown(value)} is {_KINDS[kind].wanted} (type {kind}){why}"


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - objects of users may do anything when looked at; huge numbers too
        shown = type(value).__name__
    shown = mended(shown)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def read_rows(
    columns: Mapping[str, ColumnType], lines: Sequence[Sequence[Any]]
) -> Iterator[Mapping[str, Any]]:
    """Rows again, of lines that have the form of `file_columns`, in the order of the columns.

    Raises:
        ValueError: A text that should be JSON is none.
    """
    json_columns = [name for name, kind in columns.items() if kind == "json"]
    for line in lines:
        row = dict(zip(columns, line, strict=True))
        for name in json_columns:
            if row[name] is not None:
                row[name] = json.loads(row[name])
        yield row
