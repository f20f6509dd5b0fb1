"""What the headers of a reply say of a server's limits, in the spellings that services use.

Pure. Each service names the same few facts differently: a limit, what remains of it, and when all of it is
back, for requests or tokens, over some window. The names are read by one grammar, so that a service that
nobody has listed is understood if it writes as the others do. What cannot be read with certainty says
nothing: a wrong rate is worse than none, and a timestamp that is read by its leading digits is a wrong one.

Instants count from the reply's own `date`, so that neither clock nor time zone of this machine matters; a
reply that came without one has the date of its arrival (see `wire.dated`).
Where several limits of one dimension are told (per minute and per day, input and output tokens), the hint
keeps the one of which the smallest share is left, because that one will stop the lane first.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import attrs

from trioeval.rates.throttle import Allowance, RateHint

EPOCH_FROM = 1e9
"""A bare number from here on is an instant in seconds, not a duration."""

EPOCH_MS_FROM = 1e10
"""From here on it is one in milliseconds."""

YEAR = 366 * 86400.0
"""Instants further away than this (in seconds) are mistakes."""

SECONDS_BY_PERIOD: Mapping[str, float] = {
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "month": 30 * 86400.0,
}

WINDOW_BY_HOST: Mapping[str, Mapping[str, float]] = {"api.groq.com": {"requests": 86400.0}}
"""Seconds that a limit speaks of whose name does not say it, where that is no minute; by dimension."""

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
class _Told:
    """What has been read of one limit so far."""

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
        """The smaller, the sooner it stops a lane, or the longer; one that tells no share comes last."""
        if self.remaining == 0:
            return 0.0, -(self.reset_after or 0.0)
        if self.remaining is None or self.limit is None:
            return 2.0, self.window
        return self.remaining / self.limit, self.window

    def allowance(self) -> Allowance:
        return Allowance(self.limit, self.remaining, self.reset_after, self.window)


def read_hints(headers: Mapping[str, str], *, host: str = "") -> RateHint:
    """What a reply says of the limits; empty if it says nothing.

    Args:
        headers: Names in lower case.
        host: Who replied; a few services leave out what their numbers mean.

    Example:
        >>> read_hints(
        ...     {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2s"}
        ... ).requests
        Allowance(limit=None, remaining=0.0, reset_after=2.0, window=60.0)
    """
    told = _read(headers, host)
    if not told:
        return RateHint()
    return RateHint(
        requests=_scarcest(one for one in told if not one.is_tokens),
        tokens=_scarcest(one for one in told if one.is_tokens),
    )


def read_hint(headers: Mapping[str, str], *, host: str = "") -> RateHint | None:
    """The same, or None if a reply says nothing."""
    hint = read_hints(headers, host=host)
    return None if hint == RateHint() else hint


def read_spent_reset(headers: Mapping[str, str]) -> float | None:
    """Seconds until a limit is back of which nothing remains; the longest, if there are several.

    None if none is spent, or if it is not said when it is back. A reset of a limit that is not spent is
    only the time until it is full again, and no reason to wait.
    """
    resets = [
        one.reset_after
        for one in _read(headers, "")
        if one.remaining == 0 and one.reset_after is not None
    ]
    return max(resets, default=None)


def read_duration(text: str) -> float | None:
    """Seconds of a duration with units, such as `1h2m3.5s`, `6m0s` or `500ms`; None for anything else."""
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
    """A bare number, ≥ 0; None for anything else, also for what only begins with one."""
    stripped = text.strip()  # also of signs that `float` takes for no space
    return float(stripped) if _NUMBER.fullmatch(stripped) else None


def read_until(text: str, date: str) -> float | None:
    """Seconds from an HTTP date to another one, at least 0; None if one of them is none."""
    start, end = _http_date(date), _http_date(text)
    return None if start is None or end is None else _between(start, end)


def _read(headers: Mapping[str, str], host: str) -> list[_Told]:
    """Each limit that is told, once."""
    told: dict[tuple[str, str], _Told] = {}
    for name, text in headers.items():
        if "limit" not in name:
            continue
        found = _read_name(name)
        if found is None:
            continue
        fact, dimension, period = found
        one = told.get((dimension, period))
        if one is None:
            window = WINDOW_BY_HOST.get(host, {}).get(dimension, 60.0)
            one = _Told(dimension, SECONDS_BY_PERIOD.get(period, window))
            told[dimension, period] = one
        match fact:
            case "limit":
                one.limit = _count(text) or None
            case "remaining":
                one.remaining = _count(text)
            case _:
                one.reset_after = _reset(text, headers.get("date", ""))
    return [*told.values(), *_read_policies(headers)]


@functools.lru_cache(256)  # replies have the same few headers, each time
def _read_name(name: str) -> tuple[str, str, str] | None:
    """The fact, the dimension and the period ("" if none) that a header speaks of; None if of no limit."""
    found = next((match for form in _NAMES if (match := form.fullmatch(name))), None)
    if found is None:
        return None
    parts = found.groupdict()
    dimension = {"req": "requests", "token": "tokens", None: "requests"}.get(
        parts["dimension"], parts["dimension"]
    )
    return parts["fact"], dimension, (parts.get("period") or "").rpartition("-")[2]


def _read_policies(headers: Mapping[str, str]) -> Iterator[_Told]:
    """The limits of the IETF draft: `"name";r=50;t=30`, and what each name means in another header."""
    if "ratelimit" not in headers:
        return
    policies = dict(_items(headers.get("ratelimit-policy", "")))
    for name, left in _items(headers["ratelimit"]):
        policy = policies.get(name, {})
        if policy.get("qu", "requests").strip('"') != "requests":
            continue
        yield _Told(
            "requests",
            window=_count(policy.get("w", "")) or 60.0,
            limit=_count(policy.get("q", "")) or None,
            remaining=_count(left.get("r", "")),
            reset_after=_count(left.get("t", "")),
        )


def _items(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Names with their parameters."""
    for item in text.split(","):
        found = _POLICY.fullmatch(item)
        if found is not None:
            pairs = (part.partition("=") for part in found[2].split(";"))
            yield found[1], {key.strip().lower(): value.strip() for key, _, value in pairs}


def _scarcest(told: Iterable[_Told]) -> Allowance | None:
    known = [
        one for one in told if (one.limit, one.remaining, one.reset_after) != (None, None, None)
    ]
    return min(known, key=lambda one: one.rank).allowance() if known else None


def _count(text: str) -> float | None:
    """A whole number, the first one of a list."""
    first = text.partition(",")[0].strip()
    return float(first) if _COUNT.fullmatch(first) else None


def _reset(text: str, date: str) -> float | None:
    """Seconds from the reply to the reset, however it is written."""
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
    """Like `read_until`, for the dates of RFC 3339 too."""
    now, text = _http_date(date), text.strip()
    if now is None or _DATE_TIME.fullmatch(text) is None:
        return read_until(text, date)
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        return None
    # The grammar wants an offset; an instant without one could mean any.
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
