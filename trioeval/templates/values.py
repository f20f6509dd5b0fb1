"""Values as JavaScript writes them, and as JSON for the engine.

JSON has no NaN, no infinities, and in JavaScript no whole numbers of 2^53 and more; such a number goes in and
out as an object with one key. Anything that is not JSON data goes in as its text.
"""

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trioeval.templates.limits import Meter, TooMuchError, check_size
from trioeval.text import json_text, number_text

OBJECT = "[object Object]"
EXACT_BELOW = 2**53  # whole numbers below this are exact in JavaScript


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
        RenderError: It is very long.

    Example:
        >>> text_of(True), text_of(None), text_of([1.0, [None, "x"]]), text_of({"a": 1})
        ('true', 'null', '1,,x', '[object Object]')
    """
    return "null" if value is None else printed(value)


def printed(value: Any) -> str:
    """Return what is printed for a value.

    Raises:
        RenderError: It is very long.

    Example:
        >>> printed(True), printed(None), printed([1.0, "x"]), printed({"a": 1})
        ('true', '', '1,x', '[object Object]')
    """
    match value:
        case str():
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
        case _:
            return str(value)


def _leaves(value: Iterable[Any]) -> Iterator[str]:
    """Yield the texts of all members on all levels; an empty list counts as an empty text."""
    waiting = [iter(value)]
    size = 0
    while waiting:
        for one in waiting[-1]:
            if isinstance(one, list | tuple) and one:
                waiting.append(iter(one))
                break
            text = "" if isinstance(one, list | tuple) else printed(one)
            size += len(text) + 1
            check_size(size)
            yield text
        else:
            waiting.pop()


# Values of variables and of expressions, between Python and the engine.

_SPECIAL = "\0special"
_WRITTEN_SPECIAL = '"\\u0000special"'
_SIMPLE = (str, bool, type(None))
_write = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def carried(values: Mapping[str, Any]) -> tuple[str, bool]:
    r"""Return variables as JSON for the engine, and whether they contain numbers that JSON lacks.

    Raises:
        TooMuchError: They have too many members, or are nested too deeply.

    Example:
        >>> carried({"a": "\ud800", "b": [1.0]}), carried({"n": 2**60})
        (('{"a":"\\ud800","b":[1.0]}', False), ('{"n":{"\\u0000special":"1152921504606846976"}}', True))
    """
    left = Meter()
    is_special = False
    for value in values.values():
        if not isinstance(value, _SIMPLE) and _has_special(value, left):
            is_special = True
    try:
        return _write(_marked(values) if is_special else values), is_special
    except (RecursionError, ValueError):  # the latter if it contains itself
        raise TooMuchError("a value is nested too deeply") from None


def _has_special(value: Any, meter: Meter) -> bool:
    """Count the members of a value, and return whether one of them is not carried by JSON as it is.

    A member that is contained twice counts twice, because it is written twice.
    """
    found = False
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, _SIMPLE):
            continue
        if isinstance(part, int | float):
            found = found or not -EXACT_BELOW < part < EXACT_BELOW
        elif isinstance(part, list | tuple):
            meter.take(len(part))
            parts += part
        elif isinstance(part, Mapping):
            meter.take(len(part))
            found = found or not isinstance(part, dict) or any(map(_is_no_text, part))
            parts += part.values()
        else:
            found = True
    return found


def _is_no_text(name: Any) -> bool:
    return not isinstance(name, str)


def _marked(value: Any) -> Any:
    match value:
        case str() | bool() | None:
            return value
        case int():
            return value if abs(value) < EXACT_BELOW else {_SPECIAL: str(value)}
        case float():
            if value.is_integer() and abs(value) >= EXACT_BELOW:
                return value
            return value if math.isfinite(value) else {_SPECIAL: number_text(value)}
        case Mapping():
            return {text_of(name): _marked(part) for name, part in value.items()}
        case Iterable():
            return list(map(_marked, value))
        case _:
            return str(value)


def brought(text: str) -> Any:
    """Return a value from the engine's JSON."""
    value = json.loads(text)
    return _unmarked(value) if _WRITTEN_SPECIAL in text else value


def _unmarked(value: Any) -> Any:
    match value:
        case {"\0special": str(text)}:
            return float(text.replace("Infinity", "inf"))
        case dict():
            return {name: _unmarked(part) for name, part in value.items()}
        case list():
            return list(map(_unmarked, value))
        case _:
            return value


# JSON as `JSON.stringify` writes it, for prompts.

_SURROGATE = re.compile("[\ud800-\udfff]")
_INDEX_BELOW = 2**32 - 1
_INDEX_DIGITS = 10


def dump(value: Any, step: str) -> str:
    r"""Return JSON data as `JSON.stringify` writes it with an indent.

    Args:
        value: The data, not nested deeply.
        step: The indent of a level.

    Raises:
        TooMuchError: It is very long.

    Example:
        >>> dump({"b": [1.0], "2": {}}, " ")
        '{\n "2": {},\n "b": [\n  1\n ]\n}'
    """
    size = 0
    pieces = []
    for piece in _pieces(value, step, "\n"):
        size += len(piece)
        check_size(size)
        pieces.append(piece)
    return "".join(pieces)


def _pieces(value: Any, step: str, line: str) -> Iterator[str]:
    """Yield the pieces of JSON; `line` is a line feed and the indent of the value."""
    match value:
        case str():
            written = json.dumps(value, ensure_ascii=False)
            yield _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", written)
        case dict():
            colon = ": " if step else ":"
            names = sorted(value, key=_rank)
            heads = [f"{json.dumps(name, ensure_ascii=False)}{colon}" for name in names]
            yield from _members("{}", [value[name] for name in names], heads, (step, line))
        case list():
            yield from _members("[]", value, itertools.repeat(""), (step, line))
        case _:
            yield json_text(value)


def _members(
    brackets: str, members: Sequence[Any], heads: Iterable[str], indent: tuple[str, str]
) -> Iterator[str]:
    if not members:
        yield brackets
        return
    step, line = indent
    below = line + step if step else ""
    for place, (head, part) in enumerate(zip(heads, members, strict=False)):
        yield ("," if place else brackets[0]) + below + head
        yield from _pieces(part, step, line + step)
    yield (line if step else "") + brackets[1]


def _rank(key: str) -> tuple[bool, int]:
    """Order keys as JavaScript does: array indices come before all others."""
    is_index = key.isascii() and key.isdigit() and len(key) <= _INDEX_DIGITS
    is_index = is_index and (key == "0" or key[0] != "0") and int(key) < _INDEX_BELOW
    return not is_index, int(key) if is_index else 0
