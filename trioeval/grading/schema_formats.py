# Separate from `grading.schemas`: formats say what a text is, whatever checks a whole value.
"""The formats of JSON Schema, as common JavaScript validators read them.

Some are looser than their standards (a date-time may have a space in the middle), some stricter (an email
needs a dot after the @).
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

_INT32 = 2**31
NUMBER_FORMATS: Mapping[str, Any] = {
    "int32": {"type": "integer", "minimum": -_INT32, "maximum": _INT32 - 1},
    "int64": {"type": "integer"},
    "float": True,
    "double": True,
}
"""Formats of numbers, as schemas."""


def _matches(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> Callable[[str], bool]:
    compiled = re.compile(pattern, flags | re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


_ATOM = r"[a-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_EMAIL = rf"{_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}\.)+{_LABEL}"
_UUID = r"(?:urn:uuid:)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_DURATION = (
    r"P(?!$)(?:(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?|(?:\d+W)?)"
)
_URL = rf"(?:https?|ftp)://(?:[^\s:@/]+(?::[^\s:@/]*)?@)?(?P<host>(?:{_LABEL}\.)+[a-z]{{2,}}|\d+(?:\.\d+){{3}})(?::\d{{2,5}})?(?:/\S*)?"
_POINTER = r"(?:/(?:[^~/]|~0|~1)*)*"
_FRAGMENT = r"#(?:/(?:[a-z0-9_\-.!$&'()*+,;:=@]|%[0-9a-f]{2}|~0|~1)*)*"
_CLOCK = re.compile(
    r"(\d\d):(\d\d):(\d\d(?:\.\d+)?)(z|([+-])(\d\d)(?::?(\d\d))?)?", re.IGNORECASE | re.ASCII
)
_MIDDLE = re.compile(r"[t\s]", re.IGNORECASE)


def _is_date(text: str) -> bool:
    try:
        return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None and bool(
            date.fromisoformat(text)
        )
    except ValueError:
        return False


def _is_time(text: str, *, zoned: bool) -> bool:
    match = _CLOCK.fullmatch(text)
    if match is None or (zoned and not match[4]):
        return False
    hours, minutes, seconds = int(match[1]), int(match[2]), float(match[3])
    away = int(match[6] or 0), int(match[7] or 0)
    if away > (23, 59) or away[1] > 59:  # noqa: PLR2004 - minutes
        return False
    if hours <= 23 and minutes <= 59 and seconds < 60:  # noqa: PLR2004 - a clock
        return True
    back = (away[0] * 60 + away[1]) * (-1 if match[5] == "-" else 1)
    is_last_minute = (hours * 60 + minutes - back) % 1440 == 1439  # noqa: PLR2004 - of a day, in UTC
    return is_last_minute and hours <= 23 and minutes <= 59 and seconds < 61  # noqa: PLR2004 - a leap second


def _is_date_time(text: str, *, zoned: bool) -> bool:
    parts = _MIDDLE.split(text)
    return len(parts) == 2 and _is_date(parts[0]) and _is_time(parts[1], zoned=zoned)  # noqa: PLR2004


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


_is_host = _matches(rf"{_LABEL}(?:\.{_LABEL})*\.?", re.IGNORECASE)

TEXT_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "binary": lambda _: True,
    "byte": _is_base64,
    "date": _is_date,
    "date-time": lambda text: _is_date_time(text, zoned=True),
    "duration": _matches(_DURATION),
    "email": _matches(_EMAIL, re.IGNORECASE),
    "hostname": lambda text: len(text) <= 253 and _is_host(text),  # noqa: PLR2004 - of the standard
    "iso-date-time": lambda text: _is_date_time(text, zoned=False),
    "iso-time": lambda text: _is_time(text, zoned=False),
    "json-pointer": _matches(_POINTER),
    "json-pointer-uri-fragment": _matches(_FRAGMENT, re.IGNORECASE),
    "password": lambda _: True,
    "time": lambda text: _is_time(text, zoned=True),
    "url": _matches(_URL, re.IGNORECASE),
    "uuid": _matches(_UUID, re.IGNORECASE),
}
"""Formats of texts that are checked here; the validator checks the others."""

FORMATS = frozenset(
    (
        *TEXT_FORMATS,
        *NUMBER_FORMATS,
        *("ipv4", "ipv6", "regex", "relative-json-pointer", "uri", "uri-reference", "uri-template"),
        *("idn-email", "idn-hostname", "iri", "iri-reference"),
    )
)
"""All formats that can be checked."""
