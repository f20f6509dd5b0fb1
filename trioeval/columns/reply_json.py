"""What the values of rows are read as: members behind dotted names, and texts as numbers or JSON."""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, assert_never

from trioeval.columns.cell_types import ColumnType, fits
from trioeval.columns.makers.base import CellError
from trioeval.documents.mistakes import nearest
from trioeval.grading import output_text, quote
from trioeval.text import parse_json

AsType: TypeAlias = Literal["text", "int", "float", "bool", "json"]

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TRUTHS = {"true": True, "false": False}
DEEPEST = 100
"""Levels of objects and lists in a value that others can still work with."""
TOO_DEEP = f"a value is nested more than {DEEPEST} levels deep"

_LONGEST = 4300
"""Digits of a whole number: Python reads no more, because that takes so long."""


def member(row: Mapping[str, Any], name: str) -> Any:
    """The value of a name in a row: of a column, or with dots of what is inside of it.

    Raises:
        LookupError: There is none; the text says what there is.

    Example:
        >>> member({"vars": {"q": 1}, "a.b": 2}, "vars.q"), member({"a.b": 2}, "a.b")
        (1, 2)
    """
    if name in row:
        return row[name]
    found: Any = row
    parts = name.split(".")
    for place, part in enumerate(parts):
        if not isinstance(found, Mapping):
            inside = ".".join(parts[:place])
            msg = f"{quote(inside)} is {quote(found)}, and has no {quote(part)}"
            raise LookupError(msg)  # noqa: TRY004 - not the fault of a type
        if part not in found:
            inside = f" in {quote('.'.join(parts[:place]))}" if place else ""
            raise LookupError(
                f"there is no {quote(part)}{inside}; {nearest(part, map(str, found))}"
            )
        found = found[part]
    return found


def is_deep(value: Any) -> bool:
    """Whether JSON is nested more than `DEEPEST` levels deep; without recursion.

    Example:
        >>> is_deep({"a": [1]}), is_deep(parse_json("[" * 101 + "]" * 101))
        (False, True)
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        level = [
            part
            for one in level
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, dict | list)
        ]
        if not level:
            return False
    return True


def read_text_as(text: str, wanted: AsType) -> Any:
    r"""The value that a text stands for, with or without space around it.

    Raises:
        CellError: It stands for none.

    Example:
        >>> read_text_as(" 12\n", "int"), read_text_as("1e3", "float"), read_text_as("[1]", "json")
        (12, 1000.0, [1])
    """
    if wanted == "text":
        return text
    bare = text.strip()
    match wanted:
        case "int":
            if _WHOLE.fullmatch(bare) and len(bare) <= _LONGEST:
                return _fitting(int(bare), wanted)
            raise CellError(f"{quote(text)} is no whole number")
        case "float":
            if _NUMBER.fullmatch(bare) and math.isfinite(number := float(bare)):
                return number
            raise CellError(f"{quote(text)} is no finite number")
        case "bool":
            if bare.lower() in _TRUTHS:
                return _TRUTHS[bare.lower()]
            raise CellError(f"{quote(text)} is neither true nor false")
        case "json":
            try:
                return _data(parse_json(bare))
            except ValueError as error:
                raise CellError(f"{quote(text)} is not JSON: {error}") from None
    assert_never(wanted)


def read_value_as(value: Any, wanted: AsType) -> Any:
    """The value that a value stands for: of a text what it says, of all else itself, if it is of the type.

    Raises:
        CellError: It stands for none.

    Example:
        >>> read_value_as(3.0, "int"), read_value_as("x", "json"), read_value_as(3, "text")
        (3, 'x', '3')
    """
    if value is None:
        return value
    if wanted == "json":
        return _data(value)
    if wanted == "text":
        return output_text(value)
    if isinstance(value, str):
        return read_text_as(value, wanted)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match wanted:
        case "bool" if isinstance(value, bool):
            return value
        case "int" if is_number and isinstance(number := _whole(value), int):
            return _fitting(number, wanted)
        case "float" if is_number:
            return _fitting(_float(value), wanted)
        case _:
            what = {
                "int": "no whole number",
                "float": "no number",
                "bool": "neither true nor false",
            }
            raise CellError(f"{quote(value)} is {what[wanted]}")


def as_column(value: Any, kind: ColumnType) -> Any:
    """A value of JSON as it stands in a column: a whole number may be written with a point, and the reverse.

    Raises:
        CellError: It is not of the column's type, or nested too deeply.

    Example:
        >>> as_column(5.0, "int"), as_column(5, "float"), as_column(5.0, "json")
        (5, 5.0, 5.0)
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and kind in ("int", "float"):
        value = _whole(value) if kind == "int" else _float(value)
    if value is not None and not fits(value, kind):
        raise CellError(f"{quote(value)} is no value of a column of type {kind}")
    if is_deep(value):
        raise CellError(TOO_DEEP)
    return value


def _fitting(number: float, wanted: Literal["int", "float"]) -> float:
    if not fits(number, wanted):
        raise CellError(f"{quote(number)} is too large for a column of type {wanted}")
    return number


def _data(value: Any) -> Any:
    if not fits(value, "json"):
        raise CellError(f"{quote(value)} holds a number that is not finite")
    if is_deep(value):
        raise CellError(TOO_DEEP)
    return value


def _whole(value: Any) -> Any:
    """The whole number that a number is; itself if it is none."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _float(value: float) -> float:
    """The float that a number is; infinite if there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
