"""Limits, leases, and the requests and answers about them.

Amounts are whole numbers (money in millionths of a dollar), so no decision depends on floating point.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import attrs

from trioeval.errors import LimitError

# Lease ids, made by the client: 26 letters and digits that sort by creation time.
#
# 48 bits of milliseconds, then 80 random bits: two independent programs make the same id in the same
# millisecond with a probability of 1 : 2⁸⁰. The alphabet is Crockford's base 32, without letters that look
# like digits.


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_BITS, _CHANCE_BITS, _LETTER_BITS, _LETTERS = 48, 80, 5, 26


def lease_id(utc_ms: int, chance: int) -> str:
    """Return the id of a millisecond and a random number.

    Args:
        utc_ms: Milliseconds since 1970; of a larger number the last 48 bits count.
        chance: From 0 to 2⁸⁰ - 1.

    Raises:
        ValueError: `chance` is out of its range.

    Example:
        >>> lease_id(1_700_000_000_000, 1)
        '01HF7YAT000000000000000001'
    """
    if not 0 <= chance < 1 << _CHANCE_BITS:
        msg = f"chance must be from 0 to 2**{_CHANCE_BITS} - 1, got {chance!r}"
        raise ValueError(msg)
    number = (utc_ms % (1 << _TIME_BITS)) << _CHANCE_BITS | chance
    places = range((_LETTERS - 1) * _LETTER_BITS, -1, -_LETTER_BITS)
    return "".join([_ALPHABET[number >> place & 31] for place in places])


def lease_ids(utc: Callable[[], float], bits: Callable[[int], int]) -> Callable[[], str]:
    """Return a function that makes a new id on each call.

    Args:
        utc: Returns the seconds since 1970.
        bits: Draws a number of so many bits.

    Example:
        >>> import random, time
        >>> new = lease_ids(time.time, random.getrandbits)
        >>> new() != new()
        True
    """
    return lambda: lease_id(int(utc() * 1000), bits(_CHANCE_BITS))


# The requests of clients and the decisions of backends.
#
# A *lease* is requested under an id that the client makes. A lost answer leaves the outcome unknown: a
# request with the same id is never granted twice. After a denial a new id is needed.


TerminalReason: TypeAlias = Literal[
    "invalid_request",
    "unknown_limit_key",
    "exceeds_capacity",
    "budget_exhausted",
    "lease_completed",
    "lease_expired",
]
"""The reasons for which a lease is never granted."""
TransientReason: TypeAlias = Literal["no_capacity", "limit_decreasing"]
"""The reasons for which a lease is not granted now."""


@attrs.frozen
class Requirement:
    """The required amount of one limit."""

    key: str
    amount: int
    """≥ 1; a concurrency limit takes one hold, whatever the amount."""


@attrs.frozen
class LeaseRequest:
    """One request for a lease: all of its requirements or none."""

    lease_id: str
    job_id: str
    """For messages and logs."""
    requirements: tuple[Requirement, ...]
    """1 to 32, of different keys."""


@attrs.frozen
class Granted:
    """The lease is granted."""

    reserved_at: float
    """In seconds on the backend's clock; a repeated request gets the instant of the first grant."""


@attrs.frozen
class Denied:
    """The lease is not granted, and nothing is taken."""

    reason: TerminalReason | TransientReason
    terminal: bool
    retry_after: float = 0.0
    """Seconds after which a request with a new id may succeed; of a transient denial."""
    keys: tuple[str, ...] = ()
    """The limits that caused the denial."""
    message: str = ""


@attrs.frozen
class Unknown:
    """The outcome is unknown: repeat the request with the same id."""

    message: str


Decision: TypeAlias = Granted | Denied | Unknown


@attrs.frozen
class Actual:
    """The amount of one limit that was actually used."""

    key: str
    amount: int
    """≥ 0."""


@attrs.frozen
class Settlement:
    """The end of a lease."""

    lease_id: str
    job_id: str
    actuals: tuple[Actual, ...] = ()
    """Limits that are not among them count as fully used."""


Kind: TypeAlias = Literal["rolling", "concurrency", "budget"]
Overage: TypeAlias = Literal["debt", "deny"]
Unit: TypeAlias = Literal["requests", "tokens", "cost_micro", "slots"]


@attrs.frozen
class LimitKey:
    """A limit that the calls of a lane count against."""

    key: str
    unit: Unit
    """The unit of a call that counts; by default derived from the end of the key."""


MOST = 2**53 - 1
"""The largest amount: all parties, JavaScript and Lua among them, count exactly up to it."""

MOST_SECONDS = 10**9
"""The longest span, some 31 years: all parties count exactly in millionths of a second from now."""

LONGEST_PAUSE = 7 * 86_400
"""Seconds, a week; a longer pause is probably a mistake, and can be renewed."""

LONGEST_NAME = 256
"""The most characters of a key or a lease id; bounds the memory that they need."""


KEY = "key"
"""Metadata of a field: its key in JSON, by default its name in camelCase; None if it is not in JSON."""
MISSING = "missing"
"""Metadata of a field: the hint for a missing key."""


Positive: TypeAlias = Annotated[int, 1]
"""A whole number from 1 to `MOST`."""
NotNegative: TypeAlias = Annotated[int, 0]
Instant: TypeAlias = Annotated[float, "Unix time"]
"""In files a date and time with an offset."""

_LONGEST_QUOTE = 60


def value_text(value: Any) -> str:
    """Return a value as messages show it.

    Example:
        >>> value_text("a"), value_text(float("nan")), value_text({})
        ('"a"', 'nan', 'an object')
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    match value:
        case None | bool() | int() | float() | str():
            text = json.dumps(value, ensure_ascii=False)
            return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a value of type {type(value).__name__}"


SPANS: Mapping[str, str] = {"rolling": "window", "concurrency": "timeout", "budget": "reset"}
"""The field with the span of each kind of limit."""

Rule: TypeAlias = tuple[str, str, str]
"""A broken rule: the field, the problem, and a valid value."""


@attrs.frozen(kw_only=True)
class SharedLimit:
    """One limit."""

    key: str = attrs.field(metadata={MISSING: "a name"})
    kind: Kind = attrs.field(metadata={MISSING: "one of rolling, concurrency, budget"})
    capacity: Positive = attrs.field(
        metadata={MISSING: "how much there is: a whole number from 1 to 2^53-1"}
    )
    """≥ 1."""
    window: float | None = attrs.field(
        default=None,
        metadata={
            KEY: "windowSeconds",
            MISSING: "a rolling limit needs the length of its window, in seconds",
        },
    )
    """Seconds, > 0; only of a rolling limit."""
    timeout: float | None = attrs.field(
        default=None,
        metadata={
            KEY: "timeoutSeconds",
            MISSING: "a concurrency limit needs the seconds after which a lost hold is returned",
        },
    )
    """Seconds after which a hold without an extension is returned, > 0; only of a concurrency limit."""
    reset: float | None = attrs.field(default=None, metadata={KEY: "resetSeconds"})
    """Seconds after which a budget resets, > 0; None for never. Only of a budget."""
    overage: Overage = "debt"
    """Treatment of usage beyond the reservation: it counts (`debt`) or not (`deny`)."""
    unit: str = ""
    """The unit of its amounts, for people."""
    description: str = ""

    @property
    def span(self) -> float | None:
        """Seconds of its window, timeout or period; None without one."""
        return self.window or self.timeout or self.reset

    @classmethod
    def broken_rules(cls, given: Mapping[str, Any]) -> Iterator[Rule]:
        """Yield the rules that a definition breaks, besides types and ranges of its fields.

        Args:
            given: The values of the fields that are set, by field name; of any type.
        """
        key, kind, fields = given.get("key"), given.get("kind"), attrs.fields_dict(cls)
        if isinstance(key, str):
            if not key.strip():
                yield "key", "is blank", "a name"
            elif key != key.strip():
                yield "key", f"{value_text(key)} has blanks around it", value_text(key.strip())
            elif len(key) > LONGEST_NAME:
                yield "key", f"has {len(key):,} characters", f"a name of at most {LONGEST_NAME}"
        if isinstance(kind, str) and (span := SPANS.get(kind)) is not None:
            for name in SPANS.values():
                if name in given and name != span:
                    hint = f"it may have {fields[span].metadata[KEY]}"
                    yield name, f"is not allowed for a {kind} limit", hint
            if span not in given and (needed := fields[span].metadata.get(MISSING)):
                yield span, "is missing", needed
        if kind == "concurrency" and "overage" in given:
            hint = "a hold is one, whatever was used: leave it out"
            yield "overage", "is not allowed for a concurrency limit", hint

    def check(self) -> None:
        """Raise if a definition exceeds what every backend can store.

        Raises:
            LimitError: `invalid_request`.

        Example:
            >>> SharedLimit(key="m:rpm", kind="rolling", capacity=1, window=1e10).check()
            Traceback (most recent call last):
            ...
            trioeval.errors.LimitError: invalid_request: m:rpm: 1e+10 s are too long, at most 1,000,000,000
        """
        if len(self.key) > LONGEST_NAME:
            raise LimitError("invalid_request", too_long("the key of a limit", self.key))
        for span in (self.window, self.timeout, self.reset):
            if span is not None and not span <= MOST_SECONDS:
                message = f"{self.key}: {span:g} s are too long, at most {MOST_SECONDS:,}"
                raise LimitError("invalid_request", message, keys=(self.key,))


def too_long(field: str, text: str) -> str:
    """Return the message about a name of too many characters."""
    return f"{field} has {len(text):,} characters, at most {LONGEST_NAME} are allowed"


@attrs.frozen(kw_only=True)
class LimitState:
    """A limit and its usage."""

    limit: SharedLimit = attrs.field(metadata={KEY: None})
    status: Literal["active", "decreasing"] = "active"
    pending_capacity: Positive | None = None
    """The capacity that takes effect once that much is free; None unless it is decreasing."""
    used: NotNegative = 0
    """In the window; as holds; or the settled amount of a budget."""
    outstanding: NotNegative = 0
    """The reserved and unsettled amount of a budget."""
    debt: NotNegative = 0
    """Usage beyond reservation and window; informative, without effect on admission."""
    paused_until: float | None = attrs.field(default=None, metadata={KEY: None})
    """Instant before which nothing is granted, on the backend's clock; None if it is not paused."""
    paused_for: float | None = attrs.field(default=None, eq=False, metadata={KEY: "pausedSeconds"})
    """Seconds until the pause ends; None if it is not paused, or unknown. States that differ only in this are
    equal, because it runs by itself."""
    began_at: Instant | None = None
    """Start of a budget's period, on the same clock (in Unix time if read from a file); None without periods,
    or if unknown."""

    def broken_rules(self) -> Iterator[Rule]:
        """Yield the rules that a state breaks whose values have the right types and ranges."""
        limit, pending = self.limit, self.pending_capacity
        if (self.status == "decreasing") != (pending is not None):
            hint = "a limit is decreasing while it has a pendingCapacity, and otherwise active"
            message = f"{value_text(self.status)} contradicts the pending capacity"
            yield "status", message, hint
        if pending is not None and pending >= limit.capacity:
            hint = f"less than the capacity, {limit.capacity}"
            yield "pending_capacity", f"{pending} is not a decrease", hint
        if self.outstanding and limit.kind != "budget":
            yield "outstanding", f"is not allowed for a {limit.kind} limit", "write it in used"
        if self.began_at is not None and limit.reset is None:
            yield "began_at", "is only for a budget that resets", "give it resetSeconds"
