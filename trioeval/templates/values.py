"""Values with the semantics of JavaScript: text, truth, addition and comparison.

Theory. Python and JavaScript agree on most of what templates do with JSON data, and silently disagree on the
rest: an empty list is true in JavaScript, `1 == "1"` holds, `"5" - 2` is 3. Unsurprising behaviour is done as
in JavaScript; behaviour that depends on conversions is refused with `NunjucksOnlyError`, so that no template
means something else than in its origin. Nothing is refused if both languages give the same result:
`1 == "one"` is false in both.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trioeval.templates.faults import RenderError
from trioeval.templates.limits import check_size
from trioeval.text import json_text, number_text, quote

OBJECT = "[object Object]"
_EXACT_BELOW = 2**53  # whole numbers below this are exact in JavaScript
_DECIMAL = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_WITH_BASE = re.compile(r"0(?:[xX][0-9a-fA-F]{1,250}|[oO][0-7]{1,250}|[bB][01]{1,250})")


class NunjucksOnlyError(RenderError):
    """A feature of nunjucks that is not supported; the message names it, `hint` its replacement."""

    def __init__(self, construct: str, hint: str, line: int | None = None) -> None:
        super().__init__(construct)
        self.message = construct
        self.hint = hint
        self.line = line


class UndefinedValue:
    """The mark of undefined values; their behaviour is that of `undefined`, which needs jinja2."""

    __slots__ = ()


def is_nothing(value: Any) -> bool:
    """Return whether a value is null or undefined."""
    return value is None or isinstance(value, UndefinedValue)


class AsJson:
    """Objects and lists that print as JSON instead of as JavaScript prints them; see `as_json`."""


class _JsonObject(AsJson, dict[str, Any]):
    pass


class _JsonList(AsJson, list[Any]):
    pass


def as_json(value: Any) -> Any:
    """Return a copy of JSON data whose objects and lists print as JSON.

    Example:
        >>> found = as_json({"a": [1, {"b": None}]})
        >>> text_of(found), text_of(found["a"][1]), text_of(as_json("a"))
        ('{"a":[1,{"b":null}]}', '{"b":null}', 'a')
    """
    match value:
        case Mapping():
            return _JsonObject((name, as_json(part)) for name, part in value.items())
        case list() | tuple():
            return _JsonList(map(as_json, value))
        case _:
            return value


def text_of(value: Any) -> str:
    """Return the text of a value as `String(value)` does, for all JSON data.

    Raises:
        RenderError: It is very long, or is a function.

    Example:
        >>> text_of(True), text_of(None), text_of([1.0, [None, "x"]]), text_of({"a": 1})
        ('true', 'null', '1,,x', '[object Object]')
    """
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, UndefinedValue):
        return str(value) or "undefined"
    return str(printed(value))


def printed(value: Any) -> Any:
    """Return what is printed for a value; a text or an undefined value is returned unchanged.

    Raises:
        RenderError: It is very long, or is a function.

    Example:
        >>> printed(True), printed(None), printed([1.0, "x"]), printed({"a": 1})
        ('true', '', '1,x', '[object Object]')
    """
    match value:
        case str() | UndefinedValue():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number_text(value)
        case AsJson():
            text = json_text(value)
            check_size(len(text))
            return text
        case Mapping():
            return OBJECT
        case Iterable():
            return ",".join(_leaves(value))
        case _ if callable(value):
            msg = f"a function is printed, {getattr(value, '__name__', 'without a name')}: call it"
            raise RenderError(msg)
        case _:
            return value


def _leaves(value: Iterable[Any]) -> Iterator[str]:
    """Yield the texts of all members on all levels; an empty list counts as an empty text."""
    waiting = [iter(value)]
    size = 0
    while waiting:
        for one in waiting[-1]:
            if isinstance(one, list | tuple) and one:
                waiting.append(iter(one))
                break
            text = "" if isinstance(one, list | tuple) else str(printed(one))
            size += len(text) + 1
            check_size(size)
            yield text
        else:
            waiting.pop()


def truth(value: Any) -> bool:
    """Return whether a value is true in JavaScript: lists and objects are, NaN is not.

    Example:
        >>> [truth(value) for value in ([], {}, "", "0", 0, None, float("nan"))]
        [True, True, False, True, False, False, False]
    """
    if isinstance(value, list | tuple | Mapping):
        return True
    return bool(value) and value == value  # noqa: PLR0124, the test for NaN


def condition(value: Any) -> Any:
    """Return a value that is used as a condition.

    Raises:
        NunjucksOnlyError: It is true in one of the languages only.
    """
    kind = value.__class__
    if kind is bool or kind is str:
        return value
    if isinstance(value, list | tuple | Mapping) and not value:
        construct = "an empty object" if isinstance(value, Mapping) else "an empty list"
        raise NunjucksOnlyError(
            f"{construct} as a condition, which counts as true", "write `x | length`"
        )
    if isinstance(value, float) and math.isnan(value):
        raise NunjucksOnlyError("NaN as a condition", "write `x is number`")
    return value


def is_number(value: Any) -> bool:
    """Return whether a value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_of(value: Any) -> float:
    """Return the number that JavaScript converts a value to; NaN if it cannot.

    Example:
        >>> number_of("3.5"), number_of(" "), number_of(True), number_of("x")
        (3.5, 0, 1, nan)
    """
    match value:
        case bool():
            return int(value)
        case int() | float():
            return value
        case None:
            return 0
        case str():
            return _read(value.strip())
        case list() | tuple():
            return number_of(text_of(value))
        case _:
            return math.nan


def _read(text: str) -> float:
    if not text:
        return 0
    if _DECIMAL.fullmatch(text):
        number = float(text)
    else:
        found = _WITH_BASE.fullmatch(text)
        number = float(int(text, 0)) if found else math.nan
    return int(number) if number.is_integer() and abs(number) < _EXACT_BELOW else number


def plus(left: Any, right: Any) -> Any:
    """Implement `+`: the sum of two numbers, or the concatenation of two texts.

    Raises:
        NunjucksOnlyError: One of them is neither, or their types differ.
    """
    if isinstance(left, str) and isinstance(right, str):
        check_size(len(left) + len(right))
        return str(left) + str(right)
    if isinstance(left, str) or isinstance(right, str):
        construct = f"text + another value, {_shown(left)} + {_shown(right)}"
        raise NunjucksOnlyError(construct, "write `a ~ b`")
    return calculated("+", operator.add, left, right)


def calculated(sign: str, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return the result of an operator for two numbers; as float if a whole number is too large to be exact.

    Raises:
        NunjucksOnlyError: One of them is not a number.
    """
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        construct = (
            f"`{sign}` with a value that is not a number, {_shown(left)} {sign} {_shown(right)}"
        )
        raise NunjucksOnlyError(construct, "write `x | float` where a text is a number")
    if left.__class__ is int and right.__class__ is int and sign != "**":
        result = function(left, right)
    else:
        result = function(float(left), float(right))
    if isinstance(result, int) and abs(result) >= _EXACT_BELOW:
        return float(result)
    return result


def _divide(left: float, right: float) -> float:
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left)
    return left / right


def _floor_divide(left: float, right: float) -> float:
    quotient = _divide(left, right)
    return math.floor(quotient) if math.isfinite(quotient) else quotient


def _remainder(left: float, right: float) -> float:
    if right == 0 or math.isinf(left):
        return math.nan
    result = math.fmod(left, right)
    return int(result) if result.is_integer() and isinstance(left, int) else result


def _power(left: float, right: float) -> float:
    try:
        result = math.pow(left, right)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan if left else math.inf
    return result


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "//": _floor_divide,
    "%": _remainder,
    "**": _power,
}


def same(left: Any, right: Any) -> bool:
    """Implement `==` where it equals `===`, which is nearly everywhere.

    Raises:
        NunjucksOnlyError: The values are equal in one of the languages only.

    Example:
        >>> same(1, 1.0), same("a", "b"), same(1, "one"), same(None, "")
        (True, False, False, False)
    """
    if left.__class__ is right.__class__ and left.__class__ is str:
        return bool(left == right)
    if is_nothing(left) or is_nothing(right):
        return is_nothing(left) and is_nothing(right)
    if isinstance(left, str) and isinstance(right, str):
        return str(left) == str(right)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    return _alike(left, right)


def _alike(left: Any, right: Any) -> bool:
    """Compare two values of different types, or lists and objects."""
    hint = "compare values of the same type: `x | string` or `x | float`"
    both = _is_compound(left) + _is_compound(right)
    if both == 2:  # noqa: PLR2004, both of them
        if left is not right and left == right:
            hint = "compare their texts: `a | dump == b | dump`"
            raise NunjucksOnlyError("`==` of two lists or objects, which are never equal", hint)
        return left is right
    # A list is converted to text first, and that to a number only next to a number.
    by_text = both and (isinstance(left, str) or isinstance(right, str))
    convert = text_of if by_text else number_of
    if convert(left) == convert(right):
        raise NunjucksOnlyError(f"{quote(left)} == {quote(right)}", hint)
    return bool(left == right)


def identical(left: Any, right: Any) -> bool:
    """Implement `===`: equal and of the same type; lists and objects only if they are identical.

    Example:
        >>> identical(1, 1.0), identical(1, True), identical([], [])
        (True, False, False)
    """
    if isinstance(left, UndefinedValue) or isinstance(right, UndefinedValue):
        return isinstance(left, UndefinedValue) and isinstance(right, UndefinedValue)
    if _is_compound(left) or _is_compound(right):
        return left is right
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def less(left: Any, right: Any) -> bool:
    """Implement `<` for two numbers or two texts; nothing is less than an undefined value.

    Raises:
        NunjucksOnlyError: Their types differ.
    """
    if isinstance(left, str) and isinstance(right, str):
        return str(left) < str(right)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left < right
    if isinstance(left, UndefinedValue) or isinstance(right, UndefinedValue):
        return False
    construct = f"an order of values of different types, {quote(left)} and {quote(right)}"
    raise NunjucksOnlyError(construct, "compare numbers with numbers: `x | float`")


def contains(holder: Any, member: Any) -> bool:
    """Implement `in`: a part of a text, a member of a list, a key of an object.

    Raises:
        RenderError: The holder is none of these.
    """
    if isinstance(holder, str):
        return text_of(member) in holder
    if isinstance(holder, list | tuple):
        return any(identical(member, one) for one in holder)
    if isinstance(holder, Mapping):
        return text_of(member) in holder
    msg = f"`in` requires a text, a list or an object on its right, got {_shown(holder)}"
    raise RenderError(msg)


def _is_compound(value: Any) -> bool:
    return isinstance(value, list | tuple | Mapping)


def _shown(value: Any) -> str:
    return str(value) or "undefined" if isinstance(value, UndefinedValue) else quote(value)
