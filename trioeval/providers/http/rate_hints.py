"""Rate limits in the headers of a reply, in the spellings of all services.

Pure. Each service has its own names for the same few facts: a limit, what remains of it, and when all of it
is available again, for requests or tokens, over some window. One grammar reads all names, so that an unknown
service that follows the usual style is understood too. An ambiguous value is ignored: a wrong rate is worse
than none, and a timestamp that is read by its leading digits is a wrong one.

Instants count from the reply's own `date`, so that clock and time zone of this machine do not matter; a reply
without one has the date of its arrival (see `wire.dated`). If a reply reports several limits of one dimension
(per minute and per day, input and output tokens), the hint contains the one with the smallest remaining
share, because that one will stop the lane first.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import attrs

from trioeval.rates.throttle import Allowance, RateHint

EPOCH_FROM = 1e9
"""Bare numbers from here on are instants in seconds, not durations."""

EPOCH_MS_FROM = 1e10
"""From here on they are instants in milliseconds."""

YEAR = 366 * 86400.0
"""Instants further away than this (in seconds) are errors."""

SECONDS_BY_PERIOD: Mapping[str, float] = {
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "month": 30 * 86400.0,
}

WINDOW_BY_HOST: Mapping[str, Mapping[str, float]] = {"api.groq.com": {"requests": 86400.0}}
"""Windows in seconds of limits whose name does not say it and which are not per minute; by dimension."""

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
_COUNT = re.compile(r"[0-9]{1,15}")
_DURATION = re.compile(
    r"(?=[0-9])(?:([0-9.]+)h)?(?:([0-9.]+)m(?!s))?(?:([0-9.]+)s)?(?:([0-9.]+)ms)?", re.IGNORECASE
)
_UNITS = (3600.0, 60.0, 1.0, 0.001)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d.*")
_DIMENSION = "requests|req|tokens|input-tokens|output-tokens"
_NAMES = (
    re.compile(
        rf"(?:x-)?ratelimit-(?P<fact>limit|remaining|reset)(?:-(?P<dimension>{_DIMENSION}))?"
        rf"(?P<period>-(?:per-)?(?:{'|'.join(SECONDS_BY_PERIOD)}))?"
    ),
    re.compile(rf"anthropic-ratelimit-(?P<dimension>{_DIMENSION})-(?P<fact>limit|remaining|reset)"),
    re.compile(r"x-(?P<dimension>token)limit-(?P<fact>limit|remaining|reset)"),
)
_POLICY = re.compile(r'\s*"?([^";]*)"?\s*((?:;[^;]*)*)')


@attrs.define
class _LimitValues:
    """The values of one limit that have been read so far."""

    dimension: str
    window: float
    limit: float | None = None
    remaining: float | None = None
    reset_after: float | None = None

    @property
    def is_tokens(self) -> bool:
        return "token" in self.dimension

    @property
    def rank(self) -> tuple[float, float]:
        """Order of limits: the smallest stops a lane first, or for longest; without a share it is last."""
        if self.remaining == 0:
            return 0.0, -(self.reset_after or 0.0)
        if self.remaining is None or self.limit is None:
            return 2.0, self.window
        return self.remaining / self.limit, self.window

    def allowance(self) -> Allowance:
        return Allowance(self.limit, self.remaining, self.reset_after, self.window)


def read_hints(headers: Mapping[str, str], *, host: str = "") -> RateHint:
    """Return the limits that a reply reports; empty if it reports none.

    Args:
        headers: Names in lower case.
        host: The host that replied; a few services do not specify the meaning of their numbers.

    Example:
        >>> read_hints(
        ...     {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2s"}
        ... ).requests
        Allowance(limit=None, remaining=0.0, reset_after=2.0, window=60.0)
    """
    limits = _read(headers, host)
    if not limits:
        return RateHint()
    return RateHint(
        requests=_scarcest(one for one in limits if not one.is_tokens),
        tokens=_scarcest(one for one in limits if one.is_tokens),
    )


def read_hint(headers: Mapping[str, str], *, host: str = "") -> RateHint | None:
    """Return the limits that a reply reports, or None if it reports none."""
    hint = read_hints(headers, host=host)
    return None if hint == RateHint() else hint


def read_spent_reset(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until an exhausted limit is available again; the longest, if there are several.

    None if no limit is exhausted, or if its reset time is unknown. The reset of a limit that is not exhausted
    is only the time until it is full again, and not a reason to wait.
    """
    resets = [
        one.reset_after
        for one in _read(headers, "")
        if one.remaining == 0 and one.reset_after is not None
    ]
    return max(resets, default=None)


def read_duration(text: str) -> float | None:
    """Return the seconds of a duration with units: `1h2m3.5s`, `6m0s`, `500ms`; None for other texts."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    parts = [part for part in found.groups() if part is not None]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    seconds = sum(
        float(part) * unit
        for part, unit in zip(found.groups(), _UNITS, strict=True)
        if part is not None
    )
    return seconds if seconds < EPOCH_FROM else None


def read_number(text: str) -> float | None:
    """Return a bare number, ≥ 0; None for anything else, including texts that only begin with one."""
    stripped = text.strip()  # also of characters that `float` does not accept as space
    return float(stripped) if _NUMBER.fullmatch(stripped) else None


def read_until(text: str, date: str) -> float | None:
    """Return the seconds from an HTTP date to another one, at least 0; None if one of them is invalid."""
    start, end = _http_date(date), _http_date(text)
    return None if start is None or end is None else _between(start, end)


def _read(headers: Mapping[str, str], host: str) -> list[_LimitValues]:
    """Return each limit in the headers once."""
    limits: dict[tuple[str, str], _LimitValues] = {}
    for name, text in headers.items():
        if "limit" not in name:
            continue
        found = _read_name(name)
        if found is None:
            continue
        fact, dimension, period = found
        one = limits.get((dimension, period))
        if one is None:
            window = WINDOW_BY_HOST.get(host, {}).get(dimension, 60.0)
            one = _LimitValues(dimension, SECONDS_BY_PERIOD.get(period, window))
            limits[dimension, period] = one
        match fact:
            case "limit":
                one.limit = _count(text) or None
            case "remaining":
                one.remaining = _count(text)
            case _:
                one.reset_after = _reset(text, headers.get("date", ""))
    return [*limits.values(), *_read_policies(headers)]


@functools.lru_cache(256)  # most replies have the same few headers
def _read_name(name: str) -> tuple[str, str, str] | None:
    """Return fact, dimension and period ("" if none) of a header; None if it describes no limit."""
    found = next((match for form in _NAMES if (match := form.fullmatch(name))), None)
    if found is None:
        return None
    parts = found.groupdict()
    dimension = {"req": "requests", "token": "tokens", None: "requests"}.get(
        parts["dimension"], parts["dimension"]
    )
    return parts["fact"], dimension, (parts.get("period") or "").rpartition("-")[2]


def _read_policies(headers: Mapping[str, str]) -> Iterator[_LimitValues]:
    """Yield the limits of the IETF draft: `"name";r=50;t=30`, with the policies in another header."""
    if "ratelimit" not in headers:
        return
    policies = dict(_items(headers.get("ratelimit-policy", "")))
    for name, left in _items(headers["ratelimit"]):
        policy = policies.get(name, {})
        if policy.get("qu", "requests").strip('"') != "requests":
            continue
        yield _LimitValues(
            "requests",
            window=_count(policy.get("w", "")) or 60.0,
            limit=_count(policy.get("q", "")) or None,
            remaining=_count(left.get("r", "")),
            reset_after=_count(left.get("t", "")),
        )


def _items(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield names with their parameters."""
    for item in text.split(","):
        found = _POLICY.fullmatch(item)
        if found is not None:
            pairs = (part.partition("=") for part in found[2].split(";"))
            yield found[1], {key.strip().lower(): value.strip() for key, _, value in pairs}


def _scarcest(limits: Iterable[_LimitValues]) -> Allowance | None:
    known = [
        one for one in limits if (one.limit, one.remaining, one.reset_after) != (None, None, None)
    ]
    return min(known, key=lambda one: one.rank).allowance() if known else None


def _count(text: str) -> float | None:
    """Return a whole number, the first one of a list."""
    first = text.partition(",")[0].strip()
    return float(first) if _COUNT.fullmatch(first) else None


def _reset(text: str, date: str) -> float | None:
    """Return the seconds from the reply to the reset, in any notation."""
    number = read_number(text)
    if number is None:
        duration = read_duration(text)
        return duration if duration is not None else _until_any(text, date)
    if number < EPOCH_FROM:
        return number
    now = _http_date(date)
    if now is None:
        return None
    return _within_a_year(number / (1000 if number >= EPOCH_MS_FROM else 1) - now.timestamp())


def _until_any(text: str, date: str) -> float | None:
    """Return the same as `read_until`, also for the dates of RFC 3339."""
    now, text = _http_date(date), text.strip()
    if now is None or _DATE_TIME.fullmatch(text) is None:
        return read_until(text, date)
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        return None
    # The grammar requires an offset; an instant without one is ambiguous.
    return _between(now, then) if then.tzinfo is not None else None


def _http_date(text: str) -> datetime | None:
    try:
        instant = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def _between(start: datetime, end: datetime) -> float | None:
    return _within_a_year((end - start).total_seconds())


def _within_a_year(seconds: float) -> float | None:
    return max(seconds, 0.0) if abs(seconds) <= YEAR else None
