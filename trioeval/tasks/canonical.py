"""JSON texts that are the same for the same data, in every process and version."""

import json
from typing import Any

from trioeval.suite.plain_form import plain_data

_SIMPLE = frozenset({str, bool, int, type(None)})
"""What has one text in JSON."""
_NAMES = frozenset({str})
_DELETE = b"\x7f"
"""The only character of ASCII that not all write alike."""
_NO_JSON = '"no JSON"'
"""In place of what cannot be written; only a suite made in Python has it."""
_EXACT = 2**53


def canonical(value: Any) -> str:
    """JSON text that is the same for what is the same when it is written as JSON and read again.

    Example:
        >>> canonical({10: (1.0, float("nan")), 2: "e"})
        '{"10":[1,null],"2":"e"}'
    """
    try:
        if _is_simple(value):
            return _quick_text(value) or encode(value)
        return encode(_as_read(value))
    except (ValueError, RecursionError):
        return _NO_JSON


def _is_simple(value: Any) -> bool:
    """Whether it is known to be what is read when it was written."""
    return (
        type(value) is dict
        and _SIMPLE.issuperset(map(type, value.values()))
        and _NAMES.issuperset(map(type, value))
    )


def _quick_text(value: dict[str, Any]) -> str | None:
    """The text that `_encode` makes of simple data, quicker; None where orjson writes another one."""
    import orjson  # noqa: PLC0415 - 20 ms that most commands do not need

    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # of large numbers, and halves of surrogate pairs
        return None
    return text.decode() if text.isascii() and _DELETE not in text else None


def _as_read(value: Any) -> Any:
    try:
        return _decode(_write(value))
    except TypeError:  # of a key
        return _decode(_write(plain_data(value)))


def _number(text: str) -> float | int:
    """A number as JavaScript writes it."""
    number = float(text)
    return int(number) if abs(number) <= _EXACT and number.is_integer() else number


def _nothing(_name: str) -> None:
    return None


_write = json.JSONEncoder(default=str).encode
encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str).encode
"""JSON text with its keys in order; what is no JSON as its text."""
_decode = json.JSONDecoder(parse_float=_number, parse_constant=_nothing).decode
