"""What kind of values a column has, the same in all groups: null is one of every kind."""

import math
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

ColumnType: TypeAlias = Literal["text", "int", "float", "bool", "vector", "json"]
"""`int` has 64 bits; numbers are finite; `vector` is a list of numbers of an embedding; `json` is any JSON,
written as JSON text where files have no such values."""

_LEAST, _MOST = -(2**63), 2**63 - 1


def fits(value: Any, wanted: ColumnType) -> bool:
    """Whether a value is of a type. None is of each; whole numbers are floats as well; true is no number.

    Example:
        >>> fits(1, "float"), fits(True, "int"), fits(None, "text")
        (True, False, True)
        >>> fits(2**64, "int"), fits(float("nan"), "float"), fits({1, 2}, "json")
        (False, False, False)
    """
    if value is None:
        return True
    match wanted:
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
    """The narrowest type of all values of an iterable; `text` of none, or of nulls alone.

    Lists are `json`, also those of numbers: nothing but who makes a vector knows that it is one.

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
    """Whether all parts are JSON; without recursion, because a value may be deep."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            if not all(isinstance(key, str) for key in part):
                return False
            parts += part.values()
        elif isinstance(part, float):
            if not math.isfinite(part):
                return False
        elif part is not None and not isinstance(part, str | int):
            return False
    return True
