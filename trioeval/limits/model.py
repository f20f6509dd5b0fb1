"""What is limited, and how much of it there is.

Amounts are whole numbers (money in millionths of a dollar), so no decision depends on floating point.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import attrs

from trioeval.errors import LimitError

# Names of leases, made by who asks: 26 letters and digits that sort by the time they were made.
#
# 48 bits of milliseconds, then 80 bits of chance: two programs that never heard of each other make the
# same one with a chance of 1 : 2⁸⁰ in the same millisecond. The alphabet is Crockford's base 32, which
# has no letters that are taken for digits.


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_BITS, _CHANCE_BITS, _LETTER_BITS, _LETTERS = 48, 80, 5, 26


def lease_id(utc_ms: int, chance: int) -> str:
    """The id of a moment and a number drawn at random.

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
    """What makes a new id whenever it is called.

    Args:
        utc: Tells the seconds since 1970.
        bits: Draws a number of so many bits.

    Example:
        >>> import random, time
        >>> new = lease_ids(time.time, random.getrandbits)
        >>> new() != new()
        True
    """
    return lambda: lease_id(int(utc() * 1000), bits(_CHANCE_BITS))


# What is said between who asks for a share of a limit and who keeps it.
#
# A *lease* is asked for under an id that the asker makes. An answer that never came leaves open whether it
# was granted: the same id asks again without being granted twice. After a denial a new id is needed.


TerminalReason: TypeAlias = Literal[
    "invalid_request",
    "unknown_limit_key",
    "exceeds_capacity",
    "budget_exhausted",
    "lease_completed",
    "lease_expired",
]
"""Why a lease is never granted, however often it is asked for."""
TransientReason: TypeAlias = Literal["no_capacity", "limit_decreasing"]
"""Why a lease is not granted now."""


@attrs.frozen
class Requirement:
    """So much of one limit."""

    key: str
    amount: int
    """≥ 1; a concurrency limit takes one hold, whatever it says."""


@attrs.frozen
class Ask:
    """One request for a lease: all of its requirements or none."""

    lease_id: str
    job_id: str
    """For people and logs."""
    requirements: tuple[Requirement, ...]
    """1 to 32, of different keys."""


@attrs.frozen
class Granted:
    """The lease is granted."""

    reserved_at: float
    """On the clock of whoever keeps the limit, in seconds; of the first grant where it is asked again."""


@attrs.frozen
class Denied:
    """The lease is not granted, and nothing is taken."""

    reason: TerminalReason | TransientReason
    terminal: bool
    retry_after: float = 0.0
    """Seconds until it is worth asking again, with a new id; of a transient denial."""
    keys: tuple[str, ...] = ()
    """The limits that it failed at."""
    message: str = ""


@attrs.frozen
class Unknown:
    """Nobody knows whether it was granted: ask again with the same id."""

    message: str


Decision: TypeAlias = Granted | Denied | Unknown


@attrs.frozen
class Actual:
    """So much of one limit was really used."""

    key: str
    amount: int
    """≥ 0."""


@attrs.frozen
class Settlement:
    """A lease is over."""

    lease_id: str
    job_id: str
    actuals: tuple[Actual, ...] = ()
    """Of keys that are not among them the whole reservation is used."""


Kind: TypeAlias = Literal["rolling", "concurrency", "budget"]
Overage: TypeAlias = Literal["debt", "deny"]
Unit: TypeAlias = Literal["requests", "tokens", "cost_micro", "slots"]


@attrs.frozen
class LimitKey:
    """A limit that the calls of a lane count against."""

    key: str
    unit: Unit
    """What of a call counts; where the file says nothing, it is told from the end of the key."""


MOST = 2**53 - 1
"""The largest amount: all parties, JavaScript and Lua among them, count exactly up to it."""

MOST_SECONDS = 10**9
"""The longest span, some 31 years: all parties count exactly in its millionths from now."""

LONGEST_PAUSE = 7 * 86_400
"""Seconds, a week: a pause is said again sooner than one that was never meant is noticed."""

LONGEST_NAME = 256
"""Characters of a key, or of a lease id; what is remembered of them is bounded by it."""


KEY = "key"
"""Metadata of a field: its key in JSON; None if it is not in JSON; by default its name in camelCase."""
MISSING = "missing"
"""Metadata of a field: the hint of the problem that its key is missing."""


Positive: TypeAlias = Annotated[int, 1]
"""A whole number from 1 to `MOST`."""
NotNegative: TypeAlias = Annotated[int, 0]
Instant: TypeAlias = Annotated[float, "Unix time"]
"""In files a date and time with an offset."""

_LONGEST_QUOTE = 60


def seen(value: Any) -> str:
    """A value as messages show it.

    Example:
        >>> seen("a"), seen(float("nan")), seen({})
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
"""A broken rule: the field, what is wrong with it, and what would be right."""


@attrs.frozen(kw_only=True)
class Limit:
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
    """Seconds, > 0; of a rolling limit, and of no other."""
    timeout: float | None = attrs.field(
        default=None,
        metadata={
            KEY: "timeoutSeconds",
            MISSING: "a concurrency limit needs the seconds until a lost hold comes back",
        },
    )
    """Seconds after which a hold that nobody extends is given back, > 0; of a concurrency limit, and of no
    other."""
    reset: float | None = attrs.field(default=None, metadata={KEY: "resetSeconds"})
    """Seconds after which a budget begins anew, > 0; None never. Of a budget, and of no other."""
    overage: Overage = "debt"
    """What becomes of what a call used beyond its reservation: it counts (`debt`), or not (`deny`)."""
    unit: str = ""
    """What is counted, for people."""
    description: str = ""

    @property
    def span(self) -> float | None:
        """Seconds of its window, timeout or period; None if it has none."""
        return self.window or self.timeout or self.reset

    @classmethod
    def broken_rules(cls, given: Mapping[str, Any]) -> Iterator[Rule]:
        """The rules that a definition breaks, besides types and ranges of its fields.

        Args:
            given: The values of the fields that are given, by field name; of any type.
        """
        key, kind, fields = given.get("key"), given.get("kind"), attrs.fields_dict(cls)
        if isinstance(key, str):
            if not key.strip():
                yield "key", "is blank", "a name"
            elif key != key.strip():
                yield "key", f"{seen(key)} has blanks around it", seen(key.strip())
            elif len(key) > LONGEST_NAME:
                yield "key", f"has {len(key):,} characters", f"a name of at most {LONGEST_NAME}"
        if isinstance(kind, str) and (span := SPANS.get(kind)) is not None:
            for name in SPANS.values():
                if name in given and name != span:
                    hint = f"it may have {fields[span].metadata[KEY]}"
                    yield name, f"is not for a {kind} limit", hint
            if span not in given and (needed := fields[span].metadata.get(MISSING)):
                yield span, "is missing", needed
        if kind == "concurrency" and "overage" in given:
            hint = "a hold is one, whatever was used: leave it out"
            yield "overage", "is not for a concurrency limit", hint

    def check(self) -> None:
        """Refuse a definition that not every backend can keep.

        Raises:
            LimitError: `invalid_request`.

        Example:
            >>> Limit(key="m:rpm", kind="rolling", capacity=1, window=1e10).check()
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


def too_long(what: str, text: str) -> str:
    """The message about a name of too many characters."""
    return f"{what} has {len(text):,} characters, at most {LONGEST_NAME} are allowed"


@attrs.frozen(kw_only=True)
class LimitState:
    """A limit, and how it stands."""

    limit: Limit = attrs.field(metadata={KEY: None})
    status: Literal["active", "decreasing"] = "active"
    pending_capacity: Positive | None = None
    """What the capacity becomes as soon as so much of it is free; None unless it is decreasing."""
    used: NotNegative = 0
    """In the window; or holds; or of a budget what is settled."""
    outstanding: NotNegative = 0
    """Of a budget: reserved and not settled."""
    debt: NotNegative = 0
    """Used beyond reservation and window; told, and without effect on admission."""
    paused_until: float | None = attrs.field(default=None, metadata={KEY: None})
    """Instant before which nothing is granted, on the clock of whoever keeps the limit; None if open."""
    paused_for: float | None = attrs.field(default=None, eq=False, metadata={KEY: "pausedSeconds"})
    """Seconds until it opens; None if it is open, or that is not known. Two states that differ in nothing
    else are equal: this runs by itself."""
    began_at: Instant | None = None
    """Instant at which the period of a budget began, on the same clock (of one that is read from a file, of
    Unix time); None if it has no periods, or that is not known."""

    def broken_rules(self) -> Iterator[Rule]:
        """The rules that a state breaks, whose values have the right types and ranges."""
        limit, pending = self.limit, self.pending_capacity
        if (self.status == "decreasing") != (pending is not None):
            hint = "a limit is decreasing while it has a pendingCapacity, and otherwise active"
            message = f"{seen(self.status)} does not go with the pending capacity"
            yield "status", message, hint
        if pending is not None and pending >= limit.capacity:
            hint = f"less than the capacity, {limit.capacity}"
            yield "pending_capacity", f"{pending} is no decrease", hint
        if self.outstanding and limit.kind != "budget":
            yield "outstanding", f"is not for a {limit.kind} limit", "write it in used"
        if self.began_at is not None and limit.reset is None:
            yield "began_at", "is only for a budget that begins anew", "give it resetSeconds"
