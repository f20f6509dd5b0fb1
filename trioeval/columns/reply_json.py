"""The conversion of values of rows: members of dotted names, and texts as numbers or JSON."""

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
"""The maximum levels of objects and lists in a value that can still be processed."""
TOO_DEEP = f"a value is nested more than {DEEPEST} levels deep"

_LONGEST = 4300
"""The maximum digits of a whole number: Python reads no more, because that would be slow."""


def member(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a name in a row: of a column, or of a member of its value if the name has dots.

    Raises:
        LookupError: It does not exist; the message names the nearest ones.

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
            msg = f"{quote(inside)} is {quote(found)}, which has no member {quote(part)}"
            raise LookupError(msg)  # noqa: TRY004 - the name is wrong, not a type
        if part not in found:
            inside = f" in {quote('.'.join(parts[:place]))}" if place else ""
            level = "member" if place else "column"
            raise LookupError(
                f"{level} {quote(part)} does not exist{inside}; {nearest(part, map(str, found))}"
            )
        found = found[part]
    return found


def is_deep(value: Any) -> bool:
    """Return True if JSON is nested more than `DEEPEST` levels deep; without recursion.

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


def read_text_as(text: str, as_type: AsType) -> Any:
    r"""Return the value that a text represents; surrounding space is ignored.

    Raises:
        CellError: The text is not of the type.

    Example:
        >>> read_text_as(" 12\n", "int"), read_text_as("1e3", "float"), read_text_as("[1]", "json")
        (12, 1000.0, [1])
    """
    if as_type == "text":
        return text
    bare = text.strip()
    match as_type:
        case "int":
            if _WHOLE.fullmatch(bare) and len(bare) <= _LONGEST:
                return _fitting(int(bare), as_type)
            raise CellError(f"{quote(text)} is not a whole number")
        case "float":
            if _NUMBER.fullmatch(bare) and math.isfinite(number := float(bare)):
                return number
            raise CellError(f"{quote(text)} is not a finite number")
        case "bool":
            if bare.lower() in _TRUTHS:
                return _TRUTHS[bare.lower()]
            raise CellError(f"{quote(text)} is neither true nor false")
        case "json":
            try:
                return _data(parse_json(bare))
            except ValueError as error:
                raise CellError(f"{quote(text)} is not JSON: {error}") from None
    assert_never(as_type)


def read_value_as(value: Any, as_type: AsType) -> Any:
    """Return a value converted to a type: texts are parsed, other values must be of the type.

    Raises:
        CellError: The value is not of the type.

    Example:
        >>> read_value_as(3.0, "int"), read_value_as("x", "json"), read_value_as(3, "text")
        (3, 'x', '3')
    """
    if value is None:
        return value
    if as_type == "json":
        return _data(value)
    if as_type == "text":
        return output_text(value)
    if isinstance(value, str):
        return read_text_as(value, as_type)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match as_type:
        case "bool" if isinstance(value, bool):
            return value
        case "int" if is_number and isinstance(number := _whole(value), int):
            return _fitting(number, as_type)
        case "float" if is_number:
            return _fitting(_float(value), as_type)
        case _:
            problems = {
                "int": "not a whole number",
                "float": "not a number",
                "bool": "neither true nor false",
            }
            raise CellError(f"{quote(value)} is {problems[as_type]}")


def as_column(value: Any, kind: ColumnType) -> Any:
    """Return a JSON value as it is stored in a column: 5.0 is valid as a whole number, and 5 as a float.

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
        raise CellError(f"{quote(value)} is not valid in a column of type {kind}")
    if is_deep(value):
        raise CellError(TOO_DEEP)
    return value


def _fitting(number: float, as_type: Literal["int", "float"]) -> float:
    if not fits(number, as_type):
        raise CellError(f"{quote(number)} is too large for a column of type {as_type}")
    return number


def _data(value: Any) -> Any:
    if not fits(value, "json"):
        raise CellError(f"{quote(value)} contains a number that is not finite")
    if is_deep(value):
        raise CellError(TOO_DEEP)
    return value


def _whole(value: Any) -> Any:
    """Return the whole number that a float is equal to; otherwise the value itself."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _float(value: float) -> float:
    """Return the float of a number; infinite if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
