"""The types of the values of a column, the same in all groups; null is valid for every type."""

import math
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

ColumnType: TypeAlias = Literal["text", "int", "float", "bool", "vector", "json"]
"""`int` has 64 bits; numbers are finite; `vector` is a list of numbers of an embedding; `json` is any JSON of
at most 500 levels and with integers of at most 14,000 bits (beyond that, some programs can write it and few
can read it), stored as JSON text in file formats without such values."""

_LEAST, _MOST = -(2**63), 2**63 - 1
_DEEPEST = 500
_BITS = 14_000  # 4,214 digits: Python reads and writes 4,300


def fits(value: Any, kind: ColumnType) -> bool:
    """Return True if a value is of a type.

    None is valid for every type; a whole number is also a valid float; true is not a number. A value of a
    subclass of one of these types is valid as well. A valid value can be written to files.

    Example:
        >>> fits(1, "float"), fits(True, "int"), fits(None, "text")
        (True, False, True)
        >>> fits(2**64, "int"), fits(float("nan"), "float"), fits({1, 2}, "json")
        (False, False, False)
    """
    if value is None:
        return True
    match kind:
        case "text":
            return isinstance(value, str)
        case "int":
            return _is_whole(value)
        case "float":
            return _is_number(value)
        case "bool":
            return isinstance(value, bool)
        case "vector":
            return isinstance(value, list) and all(map(_is_number, value))
        case "json":
            return _is_json(value)


def common_type(values: Iterable[Any]) -> ColumnType:
    """Return the narrowest type of all values of an iterable; `text` if there are none, or only nulls.

    Lists are `json`, also lists of numbers: only the maker of a vector can mark it as one.

    Example:
        >>> common_type([1, None, 2.5]), common_type([1, True]), common_type([[0.5]])
        ('float', 'json', 'json')
    """
    narrowest: ColumnType | None = None
    for value in values:
        if value is None:
            continue
        own = _type_of(value)
        if narrowest is None or narrowest == own:
            narrowest = own
        elif {narrowest, own} == {"int", "float"}:
            narrowest = "float"
        else:
            return "json"
    return narrowest or "text"


def _type_of(value: Any) -> ColumnType:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "bool"
    if _is_whole(value):
        return "int"
    return "float" if isinstance(value, float) and math.isfinite(value) else "json"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value <= _MOST


def _is_number(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else _is_whole(value)


def _is_json(value: Any) -> bool:
    """Return True if all parts of a value are JSON; without recursion, because it may be deep."""
    parts = [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for part in parts:
            if isinstance(part, list):
                inner += part
            elif isinstance(part, dict):
                if not all(isinstance(key, str) for key in part):
                    return False
                inner += part.values()
            elif not _is_plain(part):
                return False
        if not inner:
            return True
        parts = inner
    return False


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value.bit_length() <= _BITS
    return value is None or isinstance(value, str)
