"""How long a provider asks to wait, read from its headers or its words.

Preference: `retry-after-ms`, `retry-after` (seconds or an HTTP date), then the text of the message.
    What
cannot be read with certainty is no hint: a wrong wait is worse than none.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

NUMBER = re.compile(r"\d+(?:\.\d+)?")

EPOCH_FROM = 1e9
"""A bare number from here on is an instant, not a duration; as a wait it means nothing."""

YEAR = 366 * 86400.0
"""Dates further away than this (in seconds) are mistakes."""

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


def read_retry_after(headers: Mapping[str, str], text: str | None = None) -> float | None:
    """The wait in seconds, at least 0 and finite, or None if nothing was asked for.

    Args:
        headers: Names in lower case. A date counts from the reply's own `date`, so that neither
            clock nor time zone of this machine matters.
        text: A message that may say "try again in 1.5s"; None where words must not be trusted.

    Example:
        >>> read_retry_after({"retry-after-ms": "1500", "retry-after": "2"})
        1.5
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    delay = _number(value)
    if delay is None:
        delay = _until(value, headers.get("date", ""))
    if delay is None and text is not None:
        delay = _asked(text)
    return delay


def _number(text: str) -> float | None:
    if NUMBER.fullmatch(text.strip()) is None:
        return None
    number = float(text)
    return number if number < EPOCH_FROM else None


def _until(then: str, now: str) -> float | None:
    start, end = _date(now), _date(then)
    if start is None or end is None:
        return None
    seconds = (end - start).total_seconds()
    return max(seconds, 0.0) if abs(seconds) <= YEAR else None


def _date(text: str) -> datetime | None:
    try:
        instant = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def _asked(text: str) -> float | None:
    asked = ASKED.search(text)
    if asked is None:
        return None
    total, at, found = 0.0, asked.end(), False
    while (part := PART.match(text, at)) is not None:
        total += float(part[1]) * SECONDS_BY_UNIT[part[2].lower()]
        at, found = part.end(), True
    return total if found and total < EPOCH_FROM else None
