"""JSON values as text, printed the way JavaScript prints them, so that verdicts agree with promptfoo's."""

import itertools
import json
import math
import re
import reprlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

KEY = "key"
"""Metadata key of an attrs field: its key in files, None if it is not in files; by default its name in
camelCase."""


@attrs.frozen
class Computed:
    """A value that a function in a file computes when a row is judged."""

    file: Path
    """The absolute path; its suffix determines the language."""
    function: str | None
    """The name; None takes the function that such a file is expected to have."""
    written: str
    """The text in the suite."""


class AsWritten(str):
    """A text that came from a file: it is compared as it is, without rendering.

    Example:
        >>> AsWritten("{{x}}") == "{{x}}"
        True
    """

    __slots__ = ()


# Values that are data wherever they are used: never rendered as a template, never taken for a file or for
# code.
#
# The mark is on the value, not in the places that use it. Code that renders, opens or runs texts checks the
# mark; all other code sees an ordinary text, list or object. A text that is rendered with a value of a model
# gets the model's mark itself.
#
# There are two marks. `Verbatim` says that a text is final, from any source: a prompt that was rendered, a
# cell of a dataset. `FromModel` says that a model wrote it, or a part of it: it must not become code, an
# argument of a program or a path either, which a suite may do with its own cells.


class Verbatim:
    """A value that is not a template and contains none."""

    __slots__ = ()


class FromModel(Verbatim):
    """A value that a model wrote, completely or in part."""

    __slots__ = ()


class _Text(Verbatim, str):
    __slots__ = ()


class _List(Verbatim, list[Any]):
    __slots__ = ()


class _Object(Verbatim, dict[str, Any]):
    __slots__ = ()


class _ModelText(FromModel, str):
    __slots__ = ()


class _ModelList(FromModel, list[Any]):
    __slots__ = ()


class _ModelObject(FromModel, dict[str, Any]):
    __slots__ = ()


def verbatim(value: Any) -> Any:
    """Return the value as data; a value with a mark keeps it.

    Example:
        >>> found = verbatim({"a": ["{{ x }}", 1]})
        >>> found == {"a": ["{{ x }}", 1]}, isinstance(found["a"][0], Verbatim)
        (True, True)
    """
    match value:
        case Verbatim():
            return value
        case str():
            return _Text(value)
        case Mapping():
            return _Object((name, verbatim(part)) for name, part in value.items())
        case list() | tuple():
            return _List(map(verbatim, value))
        case _:
            return value


def from_model(value: Any) -> Any:
    """Return the value marked as written by a model.

    Example:
        >>> isinstance(from_model("x"), FromModel), isinstance(from_model(verbatim("x")), FromModel)
        (True, True)
    """
    match value:
        case FromModel():
            return value
        case str():
            return _ModelText(value)
        case Mapping():
            return _ModelObject((name, from_model(part)) for name, part in value.items())
        case list() | tuple():
            return _ModelList(map(from_model, value))
        case _:
            return value


_POINT_UP_TO = 21
"""Numbers with more digits before the point are printed with an exponent."""
_ZEROS_UP_TO = 6
"""Numbers with more zeros after the point are printed with an exponent."""
_DIGITS_UP_TO = 4300
"""Python refuses to read integers with more digits."""
_QUOTED = 80  # characters
_PLAIN = re.compile(r"[ !#-\[\]-~]*")
"""Texts that are quoted as they are."""
_DECIMALS = 3
_EXACT = 17  # digits that distinguish any two floats

_encode = json.JSONEncoder(ensure_ascii=False).encode


def number_text(value: float) -> str:
    """Return the shortest decimal text of a number; whole numbers have no point.

    Integers keep all of their digits. Not a number and the infinities have JavaScript's names.

    Example:
        >>> number_text(1.0), number_text(1e-7), number_text(1e21)
        ('1', '1e-7', '1e+21')
    """
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    sign, figures, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, figures))
    point = len(digits) + int(exponent)
    if len(digits) <= point <= _POINT_UP_TO:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= _POINT_UP_TO:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -_ZEROS_UP_TO < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        fraction = f".{digits[1:]}" if digits[1:] else ""
        text = f"{digits[0]}{fraction}e{point - 1:+}"
    return f"-{text}" if sign else text


def score_text(value: float, threshold: float | None = None) -> str:
    """Return a measured number for a reason: rounded, but never onto or across its threshold.

    Three decimals, or as many as show three figures.

    Args:
        value: The number.
        threshold: The number to which it is compared.

    Example:
        >>> score_text(0.9560869948472828), score_text(0.0000123456), score_text(0.79996, 0.8)
        ('0.956', '0.0000123', '0.79996')
    """
    if isinstance(value, int) or not math.isfinite(value) or value == 0:
        return number_text(value)
    least = max(_DECIMALS, _DECIMALS - 1 - math.floor(math.log10(abs(value))))
    for decimals in range(least, least + _EXACT):
        rounded = round(value, decimals)
        if threshold is None or _side(rounded, threshold) == _side(value, threshold):
            return number_text(rounded)
    return number_text(value)


def _side(value: float, threshold: float) -> int:
    return (value > threshold) - (value < threshold)


def json_text(value: Any) -> str:
    """Return compact JSON with keys in insertion order.

    Numbers that JSON does not know are `null`, as in JavaScript.

    Raises:
        TypeError: A part of it is not JSON data.
        RecursionError: It is nested too deeply, or contains itself.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _encode(value)
        case int() | float():
            return number_text(value) if -math.inf < value < math.inf else "null"
        case list() | tuple():
            return f"[{','.join(map(json_text, value))}]"
        case Mapping():
            members = (
                f"{json_text(output_text(key))}:{json_text(member)}"
                for key, member in value.items()
            )
            return f"{{{','.join(members)}}}"
        case _:
            msg = f"a value of type {type(value).__name__} is not JSON data"
            raise TypeError(msg)


def output_text(output: Any) -> str:
    """Return an output as text: a text is unchanged, any other value becomes compact JSON.

    Raises:
        TypeError: It is not JSON data.
        RecursionError: It is nested too deeply, or contains itself.

    Example:
        >>> output_text("a b"), output_text({"b": 1.0, "a": [True, None]})
        ('a b', '{"b":1,"a":[true,null]}')
    """
    return output if isinstance(output, str) else json_text(output)


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, by the standard: NaN and infinities are refused.

    Raises:
        ValueError: It is not JSON, or nested too deeply to be read; the message says why.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=read_integer)
    except json.JSONDecodeError as error:
        msg = f"line {error.lineno}, column {error.colno}: {error.msg[0].lower()}{error.msg[1:]}"
        raise ValueError(msg) from None
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None


def _refuse_constant(constant: str) -> Any:
    msg = f"{constant} is not JSON"
    raise ValueError(msg)


def read_integer(digits: str) -> float:
    """Return the value of decimal digits; infinity if there are too many to compute with."""
    return int(digits) if len(digits) <= _DIGITS_UP_TO else float(digits)


def same_json(one: Any, other: Any) -> bool:
    """Return whether JSON data is deeply equal: 1 equals 1.0, true is not a number, keys have no order.

    Two numbers that are not both integers are compared as floats.

    Example:
        >>> same_json({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}), same_json(True, 1)
        (True, False)
    """
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        match left, right:
            case (list() | tuple(), list() | tuple()):
                if len(left) != len(right):
                    return False
                pairs += zip(left, right, strict=True)
            case (Mapping(), Mapping()):
                if left.keys() != right.keys():
                    return False
                pairs += ((member, right[key]) for key, member in left.items())
            case _:
                if isinstance(left, bool) is not isinstance(right, bool) or not _equal(left, right):
                    return False
    return True


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, int):
        left, right = right, left
    if isinstance(left, int) and isinstance(right, float):
        # As floats: a float of 20 digits is printed with zeros that it does not have.
        return abs(left) <= sys.float_info.max and float(left) == right
    return bool(left == right)


def is_template(value: object) -> bool:
    """Return whether a value is known only in a row: a text to be rendered, or a computed value.

    Text with an unclosed tag is not rendered, nor is text from a file.

    Example:
        >>> is_template("{{name}}"), is_template("{{name"), is_template(["{{name}}"])
        (True, False, False)
    """
    if isinstance(value, str) and not isinstance(value, AsWritten):
        return (
            ("{{" in value and "}}" in value)
            or ("{%" in value and "%}" in value)
            or ("{#" in value and "#}" in value)
        )
    return isinstance(value, Computed)


def counted(count: int, noun: str, plural: str = "", *, grouped: bool = False) -> str:
    """Return a number with its noun in the right form.

    Args:
        count: The number.
        noun: The noun for one.
        plural: The noun for several, if it does not only end with `s`.
        grouped: Separate thousands.

    Example:
        >>> counted(1, "row"), counted(2, "row"), counted(0, "reply", "replies")
        ('1 row', '2 rows', '0 replies')
        >>> counted(12345, "row", grouped=True)
        '12,345 rows'
    """
    number = f"{count:,}" if grouped else str(count)
    return f"{number} {noun if count == 1 else plural or f'{noun}s'}"


def quote(value: object, limit: int = _QUOTED) -> str:
    """Return a value for a message: as JSON on one line, cut at `limit` characters. Never fails.

    Example:
        >>> quote("a b"), quote([1.0, None]), quote("long text", limit=6)
        ('"a b"', '[1,null]', '"long…')
    """
    if type(value) is str and len(value) < limit - 1 and _PLAIN.fullmatch(value):  # most values
        return f'"{value}"'
    if isinstance(value, float) and not math.isfinite(value):
        return number_text(value)
    if isinstance(value, int) and value.bit_length() > sys.int_info.str_digits_check_threshold:
        return "a number with very many digits"
    try:
        text = json_text(_beginning(value, [limit + 1]))
    except (TypeError, ValueError, RecursionError):
        text = reprlib.repr(value)
    # Half of a surrogate pair cannot be printed.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _beginning(value: Any, room: list[int]) -> Any:
    """Return as much of a value as fills a message: its parts in order, each at least one character long."""
    room[0] -= 1
    match value:
        case str():
            return value[: max(0, room[0]) + 1]
        case list() | tuple():
            return [_beginning(part, room) for part in _while_room(value, room)]
        case Mapping():
            return {key: _beginning(part, room) for key, part in _while_room(value.items(), room)}
        case _:
            return value


def _while_room(parts: Iterable[Any], room: list[int]) -> Iterator[Any]:
    return itertools.takewhile(lambda _: room[0] > 0, parts)


_ROW_NUMBER = re.compile(r"Row #\d+")


def own_description(description: Any) -> Any:
    """Return the description that the author of a test wrote; None without one.

    Tests of files without a description get `Row #1` and so on, as in promptfoo, for filters to match. Such
    a default identifies no test.

    Example:
        >>> own_description("Adds"), own_description("Row #3"), own_description("")
        ('Adds', None, None)
    """
    if not description or _ROW_NUMBER.fullmatch(str(description)):
        return None
    return description
