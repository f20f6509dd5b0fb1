# Separate from `templates.sandbox`: together they exceed 600 lines.
"""Filters of nunjucks for lists, objects and numbers, with the same positional arguments."""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trioeval.templates.checks import check_named
from trioeval.templates.faults import RenderError
from trioeval.templates.limits import check_count, check_size
from trioeval.templates.text_filters import Safe, string
from trioeval.templates.undefined import Lenient
from trioeval.templates.values import (
    UndefinedValue,
    is_nothing,
    less,
    number_of,
    plus,
    printed,
    text_of,
    truth,
)
from trioeval.text import quote

_INTEGER = re.compile(r"\s*([+-]?)(0[xX])?([0-9a-zA-Z]*)")
_FLOAT = re.compile(r"\s*([+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))")
_BASES = range(2, 37)
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_HEXADECIMAL = 16
UNDEFINED = Lenient()


def _list(value: Any, name: str, *, texts: bool = True) -> Sequence[Any]:
    """Return the members that a filter works on; those of a text are its characters, if texts are allowed."""
    if isinstance(value, list | tuple) or (texts and isinstance(value, str)):
        return value
    shown = "undefined" if isinstance(value, UndefinedValue) else quote(value)
    hint = "; `x | list` makes one" if isinstance(value, str) else ""
    msg = f"`{name}` needs a list, got {shown}{hint}"
    raise RenderError(msg)


def _member(value: Any, name: Any) -> Any:
    """Return `value[name]`, of own members only."""
    if isinstance(value, Mapping):
        return value.get(name if isinstance(name, str) else text_of(name), UNDEFINED)
    if isinstance(value, list | tuple) and isinstance(name, int) and 0 <= name < len(value):
        return value[name]
    return UNDEFINED


def _path(value: Any, path: Any) -> Any:
    for part in path.split(".") if isinstance(path, str) else [path]:
        value = _member(value, part)
    return value


def absolute(value: Any) -> float:
    """Return the number without its sign."""
    return abs(number_of(value))


def batch(value: Any, size: Any, fill: Any = None) -> list[list[Any]]:
    """Return lists of the given number of members each."""
    members = list(_list(value, "batch"))
    size = max(1, int(number_of(size) or len(members) or 1))
    rows = [members[start : start + size] for start in range(0, len(members), size)]
    if rows and fill is not None and truth(fill):
        check_count(size)
        rows[-1] += [fill] * (size - len(rows[-1]))
    return rows


def default(value: Any, instead: Any = UNDEFINED, falsy: Any = None) -> Any:
    """Return a replacement for an undefined value or, with true as second argument, for any falsy value."""
    if truth(falsy):
        return value if truth(value) else instead
    return instead if isinstance(value, UndefinedValue) else value


def dictsort(value: Any, case_sensitive: Any = None, by: Any = "key") -> list[list[Any]]:
    """Return the pairs of an object in the order of their keys, or of their values."""
    if not isinstance(value, Mapping):
        msg = f"`dictsort` needs an object, got {quote(value)}"
        raise RenderError(msg)
    if by not in {"key", "value"}:
        msg = f'`dictsort` sorts by "key" or "value", got {quote(by)}'
        raise RenderError(msg)
    pairs = [[text_of(key), part] for key, part in value.items()]
    place = int(by == "value")

    def key(pair: list[Any]) -> Any:
        part = pair[place]
        return part.upper() if isinstance(part, str) and not truth(case_sensitive) else part

    return _sorted(pairs, key, backwards=False)


def _sorted(members: Iterable[Any], key: Callable[[Any], Any], *, backwards: bool) -> list[Any]:
    def order(one: Any, other: Any) -> int:
        return less(other, one) - less(one, other)

    return sorted(
        members, key=lambda member: functools.cmp_to_key(order)(key(member)), reverse=backwards
    )


def first(value: Any) -> Any:
    """Return the first member; undefined if there is none."""
    if isinstance(value, Mapping):
        return value.get("0", UNDEFINED)
    members = _list(value, "first")
    return members[0] if members else UNDEFINED


def last(value: Any) -> Any:
    """Return the last member; undefined if there is none."""
    members = _list(value, "last")
    return members[-1] if members else UNDEFINED


def groupby(value: Any, attribute: Any) -> dict[str, list[Any]]:
    """Return an object with a list of members for each value of an attribute."""
    groups: dict[str, list[Any]] = {}
    for member in _list(value, "groupby"):
        groups.setdefault(text_of(_path(member, attribute)), []).append(member)
    return groups


def items(value: Any) -> list[list[Any]]:
    """Return the pairs of an object in order. Not in nunjucks."""
    if not isinstance(value, Mapping):
        msg = f"`items` needs an object, got {quote(value)}"
        raise RenderError(msg)
    return [[key, part] for key, part in value.items()]


def join(value: Any, separator: Any = "", attribute: Any = None) -> str:
    """Return the members as one text."""
    members: Iterable[Any] = _list(value, "join", texts=False)
    if not is_nothing(attribute) and truth(attribute):
        members = [_member(member, attribute) for member in members]
    between = text_of(separator) if truth(separator) else ""
    texts = [str(printed(member)) for member in members]
    check_size(sum(map(len, texts)) + len(between) * len(texts))
    return between.join(texts)


def length(value: Any) -> Any:
    """Return the number of members, or of UTF-16 units; undefined for a number."""
    if is_nothing(value) or value is False:
        return 0
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value) + len(_ASTRAL.findall(value))
    return len(value) if isinstance(value, list | tuple | Mapping) else UNDEFINED


def listed(value: Any) -> list[Any]:
    """Return the members of a list, the characters of a text, or the pairs of an object as objects."""
    if isinstance(value, Mapping):
        return [{"key": text_of(key), "value": part} for key, part in value.items()]
    return list(_list(value, "list"))


def mapped(value: Any, attribute: Any) -> list[Any]:
    """Return an attribute of each member. Not in nunjucks."""
    return [_path(member, attribute) for member in _list(value, "map", texts=False)]


def select(value: Any, name: Any = "truthy", argument: Any = UNDEFINED) -> list[Any]:
    """Return the members that pass a test."""
    holds = check_named(name)
    return [member for member in _list(value, "select") if holds(member, argument)]


def reject(value: Any, name: Any = "truthy", argument: Any = UNDEFINED) -> list[Any]:
    """Return the members that fail a test."""
    holds = check_named(name)
    return [member for member in _list(value, "reject") if not holds(member, argument)]


def selectattr(value: Any, attribute: Any) -> list[Any]:
    """Return the members with an attribute that is true."""
    return [
        one for one in _list(value, "selectattr", texts=False) if truth(_member(one, attribute))
    ]


def rejectattr(value: Any, attribute: Any) -> list[Any]:
    """Return the members with an attribute that is not true."""
    return [
        one for one in _list(value, "rejectattr", texts=False) if not truth(_member(one, attribute))
    ]


def reverse(value: Any) -> Any:
    """Return the reverse; a value that is neither text nor list has no members."""
    if isinstance(value, str):
        return Safe(value[::-1]) if isinstance(value, Safe) else value[::-1]
    return list(value)[::-1] if isinstance(value, list | tuple) else []


def rounded(value: Any, digits: Any = None, method: Any = "common") -> float:
    """Round to a number of digits, half up; or up with "ceil", down with "floor"."""
    factor = 10.0 ** max(-300, min(300, number_of(digits) if truth(digits) else 0))
    scaled = number_of(value) * factor
    if not math.isfinite(scaled):
        return scaled
    match method:
        case "ceil":
            whole = math.ceil(scaled)
        case "floor":
            whole = math.floor(scaled)
        case _:
            low = math.floor(scaled)
            whole = low + (scaled - low >= 0.5)  # noqa: PLR2004, half
    return whole / factor


def sliced(value: Any, count: Any, fill: Any = None) -> list[Sequence[Any]]:
    """Return a number of parts of equal length, the first ones longer if there is a remainder."""
    filled = fill is not None and truth(fill)
    members = _list(value, "slice", texts=not filled)
    count = number_of(count)
    check_count(count)
    count = max(0, math.ceil(count)) if math.isfinite(count) else 0
    size, extra = divmod(len(members), count) if count else (0, 0)
    rows: list[Sequence[Any]] = []
    start = 0
    for place in range(count):
        end = start + size + (place < extra)
        row = members[start:end]
        rows.append([*row, fill] if filled and place >= extra else row)
        start = end
    return rows


def sort(
    value: Any, reverse: Any = None, case_sensitive: Any = None, attribute: Any = None
) -> list[Any]:
    """Return the members in order, ignoring case unless case counts."""
    if is_nothing(value):
        return []

    def key(member: Any) -> Any:
        part = member if is_nothing(attribute) else _path(member, attribute)
        return part.lower() if isinstance(part, str) and not truth(case_sensitive) else part

    return _sorted(_list(value, "sort"), key, backwards=truth(reverse))


def summed(value: Any, attribute: Any = None, start: Any = 0) -> Any:
    """Return the sum of the members, or of an attribute of them."""
    members = _list(value, "sum", texts=False)
    if not is_nothing(attribute) and truth(attribute):
        members = [_member(member, attribute) for member in members]
    return plus(start, functools.reduce(plus, members, 0))


def to_float(value: Any, default: Any = UNDEFINED) -> Any:
    """Return the number at the beginning of a text."""
    found = _FLOAT.match(text_of(value))
    return number_of(found[1]) if found else default


def to_int(value: Any, default: Any = UNDEFINED, base: Any = 10) -> Any:
    """Return the whole number at the beginning of a text, in a base from 2 to 36."""
    found = _INTEGER.match(text_of(value))
    base = int(number_of(base) or 10)
    if found is None or base not in _BASES:
        return default
    sign, prefix, rest = found.groups()
    if prefix and base == _HEXADECIMAL:
        prefix = ""
    digits = ""
    for digit in (prefix or "") + rest:
        if int(digit, 36) >= base:
            break
        digits += digit
    if not digits:
        return default
    check_size(len(digits) * 10_000)  # reading many digits is slow
    number = int(digits, base)
    return -number if sign == "-" else number


LIST_FILTERS: Mapping[str, Callable[..., Any]] = {
    "abs": absolute,
    "batch": batch,
    "d": default,
    "default": default,
    "dictsort": dictsort,
    "first": first,
    "float": to_float,
    "groupby": groupby,
    "int": to_int,
    "items": items,
    "join": join,
    "last": last,
    "length": length,
    "list": listed,
    "map": mapped,
    "reject": reject,
    "rejectattr": rejectattr,
    "reverse": reverse,
    "round": rounded,
    "select": select,
    "selectattr": selectattr,
    "slice": sliced,
    "sort": sort,
    "string": string,
    "sum": summed,
}
