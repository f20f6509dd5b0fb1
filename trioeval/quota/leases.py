"""What is said between who asks for a share of a limit and who keeps it.

A *lease* is asked for under an id that the asker makes. An answer that never came leaves open whether it was
granted: the same id asks again without being granted twice. After a denial a new id is needed.
"""

from typing import Literal, TypeAlias

import attrs

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
