"""How long a provider asks to wait, read from its headers, its body or its words.

Preference: `retry-after-ms`, `retry-after` (seconds or an HTTP date), the delay that the body names, the
reset of a limit of which nothing remains, then the text of the message. What cannot be read with certainty
is no hint: a wrong wait is worse than none.
"""

import re
from collections.abc import Mapping

from trioeval.providers.hints import EPOCH_FROM, read_number, read_spent_reset, read_until

ASKED = re.compile(r"(?:try again|retry)\s+(?:in|after)\s+", re.IGNORECASE)
SECONDS_BY_UNIT: Mapping[str, float] = {
    "millisecond": 0.001,
    "ms": 0.001,
    "second": 1.0,
    "sec": 1.0,
    "s": 1.0,
    "minute": 60.0,
    "min": 60.0,
    "m": 60.0,
    "hour": 3600.0,
    "h": 3600.0,
}
PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(SECONDS_BY_UNIT)})s?(?![a-z])\s*", re.IGNORECASE)


def read_retry_after(
    headers: Mapping[str, str], text: str | None = None, *, delay: float | None = None
) -> float | None:
    """The wait in seconds, at least 0 and finite, or None if nothing was asked for.

    Args:
        headers: Names in lower case. A date counts from the reply's `date`, which is that of its
            arrival where the server told none.
        text: A message that may say "try again in 1.5s"; None where words must not be trusted.
        delay: Seconds that a field of the body asks to wait.

    Example:
        >>> read_retry_after({"retry-after-ms": "1500", "retry-after": "2"})
        1.5
    """
    milliseconds = _duration(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    for wait in (_duration(value), read_until(value, headers.get("date", "")), delay):
        if wait is not None:
            return wait
    reset = read_spent_reset(headers)
    return _asked(text) if reset is None and text is not None else reset


def _duration(text: str) -> float | None:
    """A bare number; one that can only be an instant means nothing as a wait."""
    number = read_number(text)
    return number if number is not None and number < EPOCH_FROM else None


def _asked(text: str) -> float | None:
    asked = ASKED.search(text)
    if asked is None:
        return None
    total, at, found = 0.0, asked.end(), False
    while (part := PART.match(text, at)) is not None:
        total += float(part[1]) * SECONDS_BY_UNIT[part[2].lower()]
        at, found = part.end(), True
    return total if found and total < EPOCH_FROM else None
