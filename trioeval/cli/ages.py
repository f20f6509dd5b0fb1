"""How long ago, as a flag says it. Pure."""

import re

from trioeval.errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])", re.ASCII)


def read_age(text: str, flag: str) -> float:
    """Seconds of an age with its unit: `90s`, `45m`, `12h`, `30d` or `8w`.

    Raises:
        UsageError: It is none.

    Example:
        >>> read_age("1.5h", "--older-than")
        5400.0
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"{flag} must be an age such as 12h, 30d or 8w, got {text!r}")
    return float(found[1]) * _SECONDS[found[2]]
