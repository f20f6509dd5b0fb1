"""Values as files hold them: of each type one form, in all formats, so that what is read is the same.

Numbers are exact: whole ones have 64 bits, the others are finite. A half of a surrogate pair stands for no
character and no file can hold it as text: it is written as JSON would escape it, with a backslash.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
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
