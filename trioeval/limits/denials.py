"""The words in which leases are denied: the same, whoever keeps the limits."""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import LimitError
from trioeval.limits.model import (
    LONGEST_NAME,
    LONGEST_PAUSE,
    MOST,
    Ask,
    Denied,
    Kind,
    Limit,
    TransientReason,
    too_long,
)

PlainReason: TypeAlias = (
    Literal["unknown_limit_key", "lease_completed", "lease_expired"] | TransientReason
)
"""Why a lease is denied, where it does not matter how much it asks for."""

MOST_REQUIREMENTS = 32
"""Most limits of one lease."""

_TRANSIENT: frozenset[PlainReason] = frozenset({"no_capacity", "limit_decreasing"})
_WORDS: dict[PlainReason, str] = {
    "unknown_limit_key": "there is no such limit",
    "lease_completed": "the lease is over: a new one needs another id",
    "lease_expired": "nobody has extended the lease in time: a new one needs another id",
}


@attrs.frozen
class Lack:
    """What is asked for of a limit that will never have so much."""

    key: str
    amount: int
    """≥ 1."""
    capacity: int
    """Or the smaller one that is to come."""
    left: int
    """What of a budget is not settled, ≥ 0."""
    anew: float = math.inf
    """Seconds until a budget begins anew."""


def never(reason: Literal["exceeds_capacity", "budget_exhausted"], lacks: Sequence[Lack]) -> Denied:
    """A denial of more than there is.

    Example:
        >>> never("exceeds_capacity", [Lack("llm:tpm", 2087, 1000, 1000)]).message
        'exceeds_capacity:llm:tpm: asks for 2,087 of llm:tpm, which has 1,000'
        >>> refusal(never("budget_exhausted", [Lack("daily", 150, 1000, 100, 3600.0)])).message
        'daily: asks for 150 of daily, which has 100 of 1,000 left and begins anew in 3,600 s'
    """
    keys = tuple(lack.key for lack in lacks)
    said = "; ".join(_lacking(lack, only_left=reason == "budget_exhausted") for lack in lacks)
    return Denied(reason, terminal=True, keys=keys, message=f"{reason}:{','.join(keys)}: {said}")


def _lacking(lack: Lack, *, only_left: bool) -> str:
    has = f"{lack.left:,} of {lack.capacity:,} left" if only_left else f"{lack.capacity:,}"
    # What rounding adds to a second must not make two of it.
    seconds = math.inf if lack.anew == math.inf else math.ceil(round(lack.anew, 3))
    again = f" and begins anew in {seconds:,} s" if only_left and seconds < math.inf else ""
    return f"asks for {lack.amount:,} of {lack.key}, which has {has}{again}"


def denied(reason: PlainReason, keys: Sequence[str] = (), retry_after: float = 0.0) -> Denied:
    """A denial, with its words.

    Example:
        >>> denied("unknown_limit_key", ["llm:rpm"]).message
        'unknown_limit_key:llm:rpm: there is no such limit'
    """
    if reason in _TRANSIENT:
        return Denied(reason, terminal=False, retry_after=retry_after, keys=tuple(keys))
    told = ":".join(filter(None, [reason, ",".join(keys)]))
    return Denied(reason, terminal=True, keys=tuple(keys), message=f"{told}: {_WORDS[reason]}")


def wrong_ask(ask: Ask) -> Denied | None:
    """Why a request means nothing, whatever the limits are; None if it means something.

    Example:
        >>> wrong_ask(Ask("lease-1", "job-1", ())).message
        'invalid_request: 0 requirements, 1 to 32 are allowed'
    """
    requirements = ask.requirements
    count = len(requirements)
    if not ask.lease_id.strip():
        return invalid("the lease id is blank")
    if len(ask.lease_id) > LONGEST_NAME:
        return invalid(too_long("the lease id", ask.lease_id))
    if not 1 <= count <= MOST_REQUIREMENTS:
        return invalid(f"{count} requirements, 1 to {MOST_REQUIREMENTS} are allowed")
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
        return invalid(f"{', '.join(twice)} is there more than once")
    return None


def check_pause(key: str, seconds: float) -> None:
    """Refuse a pause that is too long to be meant.

    Raises:
        LimitError: `invalid_request`.

    Example:
        >>> check_pause("m:rpm", float("inf"))
        Traceback (most recent call last):
        ...
        trioeval.errors.LimitError: invalid_request: m:rpm: a pause of inf s, 0 to 604,800 are allowed
    """
    if not 0 <= seconds <= LONGEST_PAUSE:
        message = f"{key}: a pause of {seconds:g} s, 0 to {LONGEST_PAUSE:,} are allowed"
        raise LimitError("invalid_request", message, keys=(key,))


def refusal(said: Denied) -> LimitError:
    """A denial that no waiting helps against, for the call that is not made.

    Raises:
        ValueError: It is one that passes.

    Example:
        >>> refusal(denied("unknown_limit_key", ["llm:rpm"]))
        LimitError('unknown_limit_key: llm:rpm: there is no such limit')
    """
    reason = said.reason
    if reason == "no_capacity" or reason == "limit_decreasing":  # noqa: PLR1714 - narrows
        msg = f"{reason} passes, and is no reason to give up"
        raise ValueError(msg)
    message = said.message.removeprefix(f"{reason}:").lstrip()
    return LimitError(reason, message, keys=said.keys)


def other_requirements(lease_id: str) -> Denied:
    """A lease is asked for again with other requirements than it was granted for."""
    return invalid(f"lease {lease_id} was granted for other requirements")


def unavailable(message: str) -> LimitError:
    """Nobody knows what became of a request."""
    return LimitError("limiter_unavailable", message)


def no_such_limit(key: str) -> LimitError:
    """There is no limit of a key."""
    return LimitError("unknown_limit_key", f"there is no limit {key!r}", keys=(key,))


def two_of_one_key(key: str) -> LimitError:
    """Limits are given of which two have the same key."""
    return LimitError("invalid_request", f"two limits have the key {key!r}", keys=(key,))


def other_kind(limit: Limit, kind: Kind) -> LimitError:
    """A limit is to be made where one of another kind is."""
    message = f"{limit.key!r} is a {kind} limit and cannot become a {limit.kind} one"
    return LimitError("invalid_request", message, keys=(limit.key,))


def invalid(what: str) -> Denied:
    """A request that means nothing.

    Args:
        what: What is wrong with it, for a person.
    """
    return Denied("invalid_request", terminal=True, message=f"invalid_request: {what}")
