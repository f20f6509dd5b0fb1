"""JSON text of values that JSON cannot always hold, and of documents too large to hold."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

DEEPEST = 100
"""Lists and objects in each other that are written; parsers of many languages give up not far beyond."""
TOO_DEEP = f"[nested more than {DEEPEST} levels deep]"
"""What stands for those that are nested deeper."""

_NESTS = (dict, list, tuple)
_LEAVES = frozenset({str, int, float, bool, type(None)})
"""Most of what there is: known at once to be no list and no object."""


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON text: numbers that JSON does not have become null, foreign objects their text."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), ensure_ascii=False, indent=indent, default=str)


def compact(value: Any) -> str:
    """JSON text without any spaces, as quickly as can be.

    Numbers that JSON does not have become null. What only this language can write as JSON, such as lone
    surrogates and numbers beyond 64 bits, is written all the same, more slowly.

    Example:
        >>> compact({"a": [1.5, None]})
        '{"a":[1.5,null]}'
    """
    return _quick_text(value, indent=False) or to_json(value)


def indented(value: Any, margin: str = "\n") -> str:
    """JSON text on many lines, two spaces a level; otherwise as `compact`."""
    text = _quick_text(value, indent=True) or to_json(value, indent=2)
    # No text of JSON has a line break in it: all that there are separate its parts.
    return text.replace("\n", margin)


def _quick_text(value: Any, *, indent: bool) -> str | None:
    """Made by orjson; None of what it refuses, and of what it would write in its own way."""
    import orjson  # noqa: PLC0415 - 20 ms that most commands do not need

    option = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    try:
        return orjson.dumps(value, option=option | orjson.OPT_INDENT_2 * indent).decode()
    except TypeError:
        return None


def finite(value: Any) -> Any:
    """The same value with null for numbers that JSON does not have, as JavaScript writes them."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: finite(part) for key, part in value.items()}
        case list() | tuple():
            return [finite(part) for part in value]
        case _:
            return value


def shallow(value: Any) -> Any:
    """The same value with `TOO_DEEP` in place of what is nested deeper than `DEEPEST`.

    Everything that walks through values, writers of files included, would break at some depth, and one
    reply must not cost the results of a whole run.

    Example:
        >>> deep: list[object] = []
        >>> for _ in range(100_000):
        ...     deep = [deep]
        >>> to_json(shallow(deep)) == "[" * DEEPEST + to_json(TOO_DEEP) + "]" * DEEPEST
        True
    """
    return value if _is_flat(value) or not _is_deep(value) else _cut(value, DEEPEST)


def _is_flat(value: Any) -> bool:
    """A quick look that is enough for most of what there is."""
    kind = type(value)
    return kind in _LEAVES or (kind is dict and _LEAVES.issuperset(map(type, value.values())))


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, _NESTS) else []
    for _ in range(DEEPEST):
        if not level:
            return False
        level = [
            part
            for whole in level
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if type(part) not in _LEAVES and isinstance(part, _NESTS)
        ]
    return bool(level)


def _cut(value: Any, levels: int) -> Any:
    match value:
        case dict() | list() | tuple() if not levels:
            return TOO_DEEP
        case dict():
            return {key: _cut(part, levels - 1) for key, part in value.items()}
        case list() | tuple():
            return [_cut(part, levels - 1) for part in value]
        case _:
            return value


def json_chunks(document: Any, margin: str = "\n") -> Iterator[str]:
    """The indented JSON text of a document piece by piece, as `indented` makes it.

    Args:
        document: Iterators in it stand for lists, and are read as the text is.
        margin: What begins a line at the level of the document.

    Example:
        >>> print("".join(json_chunks({"rows": iter([1, 2])})))
        {
          "rows": [
            1,
            2
          ]
        }
    """
    match document:
        case dict() if has_stream(document):
            between = "{"
            for key, part in document.items():
                yield f"{between}{margin}  {to_json(key)}: "
                yield from json_chunks(part, margin + "  ")
                between = ","
            yield margin + "}"
        case Iterator():
            yield from _list_chunks(document, margin)
        case _:
            yield indented(document, margin)


def has_stream(document: Any) -> bool:
    """Whether a document holds an iterator, itself or in objects of objects."""
    match document:
        case dict():
            return any(has_stream(part) for part in document.values())
        case _:
            return isinstance(document, Iterator)


def _list_chunks(parts: Iterable[Any], margin: str) -> Iterator[str]:
    between = "["
    for part in parts:
        yield f"{between}{margin}  " + indented(part, margin + "  ")
        between = ","
    yield "[]" if between == "[" else margin + "]"
