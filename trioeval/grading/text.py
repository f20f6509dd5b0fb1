"""Outputs as text, printed as JavaScript would print them, so that verdicts agree with promptfoo's."""

import json
import math
from typing import Any

_EXACT = 2**53
_FIXED_BELOW = 1e21  # from here on JavaScript prints numbers with an exponent


def output_text(output: Any) -> str:
    """Text stays; anything else becomes compact JSON with its keys in order.

    Example:
        >>> output_text({"b": 1.0, "a": [True, None]})
        '{"b":1,"a":[true,null]}'
    """
    return output if isinstance(output, str) else _json(output)


def _json(value: Any) -> str:
    match value:
        case dict():
            members = (f"{json.dumps(str(k), ensure_ascii=False)}:{_json(v)}" for k, v in value.items())
            return "{" + ",".join(members) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_json, value)) + "]"
        case float():
            return number_text(value)
        case bool() | int() | str() | None:
            return json.dumps(value, ensure_ascii=False)
        case _:
            return json.dumps(str(value), ensure_ascii=False)


def number_text(value: float) -> str:
    """A float as JavaScript prints it: `1` for 1.0, `1e+21` for 1e21, `null` where JSON has no number."""
    if not math.isfinite(value):
        return "null"
    if value == int(value) and abs(value) < _EXACT:
        return str(int(value))
    text = repr(value)
    mantissa, mark, exponent = text.partition("e")
    if not mark:
        return text
    power = int(exponent)
    if abs(value) >= _FIXED_BELOW or power < -6:  # noqa: PLR2004 - JavaScript's own bound
        return f"{mantissa}e{'+' if power > 0 else '-'}{abs(power)}"
    return f"{value:f}".rstrip("0") if power < 0 else str(int(value))
