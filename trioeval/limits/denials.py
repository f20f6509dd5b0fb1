"""The messages of denied leases: the same for every backend."""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import LimitError
from trioeval.limits.model import (
    LONGEST_NAME,
    LONGEST_PAUSE,
    MOST,
    Denied,
    Kind,
    LeaseRequest,
    SharedLimit,
    TransientReason,
    too_long,
)

PlainReason: TypeAlias = (
    Literal["unknown_limit_key", "lease_completed", "lease_expired"] | TransientReason
)
"""The reasons for a denial that do not depend on the amount."""

MAX_REQUIREMENTS = 32
"""The largest number of limits of one lease."""

_TRANSIENT: frozenset[PlainReason] = frozenset({"no_capacity", "limit_decreasing"})
_WORDS: dict[PlainReason, str] = {
    "unknown_limit_key": "unknown limit",
    "lease_completed": "the lease is over: use a new id",
    "lease_expired": "the lease was not extended in time: use a new id",
}


@attrs.frozen
class Lack:
    """A requirement that its limit can never meet."""

    key: str
    amount: int
    """≥ 1."""
    capacity: int
    """Or the smaller one that is pending."""
    left: int
    """The unsettled part of a budget, ≥ 0."""
    reset_in: float = math.inf
    """Seconds until a budget resets."""


def terminal_denial(
    reason: Literal["exceeds_capacity", "budget_exhausted"], lacks: Sequence[Lack]
) -> Denied:
    """Deny a lease for good because it requires more than a limit has.

    Example:
        >>> terminal_denial("exceeds_capacity", [Lack("llm:tpm", 2087, 1000, 1000)]).message
        'exceeds_capacity:llm:tpm: 2,087 of llm:tpm requested, the capacity is 1,000'
        >>> denial_error(
        ...     terminal_denial("budget_exhausted", [Lack("daily", 150, 1000, 100, 3600.0)])
        ... ).message
        'daily: 150 of daily requested, 100 of 1,000 left, resets in 3,600 s'
    """
    keys = tuple(lack.key for lack in lacks)
    shortfalls = "; ".join(_lacking(lack, only_left=reason == "budget_exhausted") for lack in lacks)
    return Denied(
        reason, terminal=True, keys=keys, message=f"{reason}:{','.join(keys)}: {shortfalls}"
    )


def _lacking(lack: Lack, *, only_left: bool) -> str:
    has = (
        f"{lack.left:,} of {lack.capacity:,} left"
        if only_left
        else f"the capacity is {lack.capacity:,}"
    )
    # A rounding error must not add a second.
    seconds = math.inf if lack.reset_in == math.inf else math.ceil(round(lack.reset_in, 3))
    again = f", resets in {seconds:,} s" if only_left and seconds < math.inf else ""
    return f"{lack.amount:,} of {lack.key} requested, {has}{again}"


def denied(reason: PlainReason, keys: Sequence[str] = (), retry_after: float = 0.0) -> Denied:
    """Deny a lease for a reason that does not depend on the amount.

    Example:
        >>> denied("unknown_limit_key", ["llm:rpm"]).message
        'unknown_limit_key:llm:rpm: unknown limit'
    """
    if reason in _TRANSIENT:
        return Denied(reason, terminal=False, retry_after=retry_after, keys=tuple(keys))
    code = ":".join(filter(None, [reason, ",".join(keys)]))
    return Denied(reason, terminal=True, keys=tuple(keys), message=f"{code}: {_WORDS[reason]}")


def request_denial(ask: LeaseRequest) -> Denied | None:
    """Return the reason why a request is invalid under any limits; None if it is valid.

    Example:
        >>> request_denial(LeaseRequest("lease-1", "job-1", ())).message
        'invalid_request: 0 requirements, 1 to 32 are allowed'
    """
    requirements = ask.requirements
    count = len(requirements)
    if not ask.lease_id.strip():
        return invalid("the lease id is blank")
    if len(ask.lease_id) > LONGEST_NAME:
        return invalid(too_long("the lease id", ask.lease_id))
    if not 1 <= count <= MAX_REQUIREMENTS:
        return invalid(f"{count} requirements, 1 to {MAX_REQUIREMENTS} are allowed")
    for one in requirements:
        if not one.key.strip():
            return invalid("a key is blank")
        if len(one.key) > LONGEST_NAME:
            return invalid(too_long("a key", one.key))
        if not 1 <= one.amount <= MOST:
            return invalid(f"the amount of {one.key} is {one.amount}, 1 to 2^53-1 are allowed")
    if count > 1 and len({one.key for one in requirements}) < count:
        keys = [one.key for one in requirements]
        twice = dict.fromkeys(key for key in keys if keys.count(key) > 1)
        return invalid(f"{', '.join(twice)}: more than one requirement for the same limit")
    return None


def check_pause(key: str, seconds: float) -> None:
    """Raise if a pause is out of range.

    Raises:
        LimitError: `invalid_request`.

    Example:
        >>> check_pause("m:rpm", float("inf"))
        Traceback (most recent call last):
        ...
        trioeval.errors.LimitError: invalid_request: m:rpm: a pause of inf s; 0 to 604,800 are allowed
    """
    if not 0 <= seconds <= LONGEST_PAUSE:
        message = f"{key}: a pause of {seconds:g} s; 0 to {LONGEST_PAUSE:,} are allowed"
        raise LimitError("invalid_request", message, keys=(key,))


def denial_error(denial: Denied) -> LimitError:
    """Return the error for a call whose lease is denied for good.

    Raises:
        ValueError: The denial is transient.

    Example:
        >>> denial_error(denied("unknown_limit_key", ["llm:rpm"]))
        LimitError('unknown_limit_key: llm:rpm: unknown limit')
    """
    reason = denial.reason
    if reason == "no_capacity" or reason == "limit_decreasing":  # noqa: PLR1714 - narrows
        msg = f"{reason} is transient and not an error"
        raise ValueError(msg)
    message = denial.message.removeprefix(f"{reason}:").lstrip()
    return LimitError(reason, message, keys=denial.keys)


def requirements_mismatch(lease_id: str) -> Denied:
    """Deny a repeated request whose requirements differ from those of the first one."""
    return invalid(f"lease {lease_id} was granted for different requirements")


def unavailable(message: str) -> LimitError:
    """Return the error for a request whose outcome is unknown."""
    return LimitError("limiter_unavailable", message)


def unknown_limit(key: str) -> LimitError:
    """Return the error for a limit that does not exist."""
    return LimitError("unknown_limit_key", f"unknown limit {key!r}", keys=(key,))


def duplicate_key(key: str) -> LimitError:
    """Return the error for two definitions of one limit."""
    return LimitError("invalid_request", f"two limits have the key {key!r}", keys=(key,))


def kind_mismatch(limit: SharedLimit, kind: Kind) -> LimitError:
    """Return the error for a limit whose kind would change."""
    message = f"{limit.key!r} is a {kind} limit and cannot become a {limit.kind} one"
    return LimitError("invalid_request", message, keys=(limit.key,))


def invalid(problem: str) -> Denied:
    """Deny an invalid request.

    Args:
        problem: What is wrong with it, for messages.
    """
    return Denied("invalid_request", terminal=True, message=f"invalid_request: {problem}")
