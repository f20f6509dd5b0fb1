"""What is limited, and how much of it there is.

Amounts are whole numbers (money in millionths of a dollar), so no decision depends on floating point.
"""

from typing import Literal, TypeAlias

import attrs

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
