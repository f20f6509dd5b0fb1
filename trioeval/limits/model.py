"""What is limited, and how much of it there is.

Amounts are whole numbers (money in millionths of a dollar), so no decision depends on floating point.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import attrs

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

MOST = 2**53 - 1
"""The largest amount: all parties, JavaScript and Lua among them, count exactly up to it."""

MOST_SECONDS = 10**9
"""The longest span, some 31 years: all parties count exactly in its millionths from now."""

LONGEST_PAUSE = 7 * 86_400
"""Seconds, a week: a pause is said again sooner than one that was never meant is noticed."""

LONGEST_NAME = 256
"""Characters of a key, or of a lease id; what is remembered of them is bounded by it."""


@attrs.frozen(kw_only=True)
class Limit:
    """One limit."""

    key: str
    kind: Kind
    capacity: int
    """≥ 1."""
    window: float | None = None
    """Seconds, > 0; of a rolling limit, and of no other."""
    timeout: float | None = None
    """Seconds after which a hold that nobody extends is given back, > 0; of a concurrency limit, and of no
    other."""
    reset: float | None = None
    """Seconds after which a budget begins anew, > 0; None never. Of a budget, and of no other."""
    overage: Overage = "debt"
    """What becomes of what a call used beyond its reservation: it counts (`debt`), or not (`deny`)."""
    unit: str = ""
    """What is counted, for people."""
    description: str = ""


@attrs.frozen(kw_only=True)
class LimitState:
    """A limit, and how it stands."""

    limit: Limit
    status: Literal["active", "decreasing"] = "active"
    pending_capacity: int | None = None
    """What the capacity becomes as soon as so much of it is free; None unless it is decreasing."""
    used: int = 0
    """In the window; or holds; or of a budget what is settled."""
    outstanding: int = 0
    """Of a budget: reserved and not settled."""
    debt: int = 0
    """Used beyond reservation and window; told, and without effect on admission."""
    paused_until: float | None = None
    """Instant before which nothing is granted, on the clock of whoever keeps the limit; None if open."""
    paused_for: float | None = attrs.field(default=None, eq=False)
    """Seconds until it opens; None if it is open, or that is not known. Two states that differ in nothing
    else are equal: this runs by itself."""
    began_at: float | None = None
    """Instant at which the period of a budget began, on the same clock (of one that is read from a file, of
    Unix time); None if it has no periods, or that is not known."""
