"""Whoever keeps the limits, and for how long nobody has answered there.

All that a program asks goes through here, so that one that waits knows what others have found out:
after a long outage not every call has to wait for its own patience to end. Any answer ends an outage.
One begins only with what is asked again until there is an answer; else nobody might ever hear one.
"""

import math
from collections.abc import Iterable, Sequence

import attrs
import trio

from trioeval.errors import QuotaError
from trioeval.limits.backend import Backend
from trioeval.limits.denials import other_kind, two_of_one_key
from trioeval.limits.json import limit_data
from trioeval.limits.model import Ask, Decision, Limit, LimitState, Settlement, Unknown

# When a client asks again: after a denial, and after no answer.


SPREAD = 0.025
"""Most seconds that chance adds to a wait that the keeper named: who was denied together comes back apart."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""Seconds between two attempts to get an answer, at first and at most."""


def after_denial(retry_after: float, spread: float) -> float:
    """Seconds until it is worth asking with a new id.

    Args:
        retry_after: What the denial says, in seconds, ≥ 0.
        spread: By chance, from 0 to 1 without 1.

    Example:
        >>> after_denial(10.0, 0.5), after_denial(0.0, 0.5)
        (10.0125, 0.0125)
    """
    return retry_after + spread * (min(SPREAD, retry_after) or SPREAD)


def after_silence(failures: int, spread: float) -> float:
    """Seconds until the same is asked again, with the same id: half of the bound at least.

    Not down to nothing: whoever keeps the limits for everybody is asked by all of them.

    Args:
        failures: Attempts in a row without an answer, ≥ 1.
        spread: By chance, from 0 to 1 without 1.

    Example:
        >>> [after_silence(failures, 0.0) for failures in (1, 2, 7, 2000)]
        [0.05, 0.1, 2.5, 2.5]
    """
    bound = min(LONGEST_WAIT, math.ldexp(FIRST_WAIT, min(failures - 1, 64)))
    return bound * (1 + spread) / 2


# Making limits where somebody else keeps them: those that are not there yet.
#
# What is there already stays as others have made it.


_WORDS = frozenset({"key", "kind", "unit", "description"})
"""Of a definition, what is the same anyway or decides nothing."""


def made_of(states: Iterable[LimitState]) -> list[Limit]:
    """What has to be made so that limits become as they are to be, where nothing of them is in use.

    Raises:
        QuotaError: `invalid_request`: two of them have the same key.
    """
    made: dict[str, Limit] = {}
    for state in states:
        key, pending = state.limit.key, state.pending_capacity
        if key in made:
            raise two_of_one_key(key)
        limit = state.limit
        made[key] = limit if pending is None else attrs.evolve(limit, capacity=pending)
    return list(made.values())


async def make_missing(backend: Backend, limits: Sequence[Limit]) -> list[str]:
    """Make the limits that are not there yet; those that are keep what others have made of them.

    Returns:
        Warnings of those that are there and are not as they are given.

    Raises:
        QuotaError: `invalid_request`: one is there of another kind; or as the backend says.
    """
    there = {state.limit.key: state for state in await backend.states()}
    for limit in limits:
        if (state := there.get(limit.key)) is not None and state.limit.kind != limit.kind:
            raise other_kind(limit, state.limit.kind)
    warnings = []
    for limit in limits:
        if (state := there.get(limit.key)) is None:
            await backend.define(limit)
        elif (warning := difference(state, limit)) is not None:
            warnings.append(warning)
    return warnings


def difference(kept: LimitState, given: Limit) -> str | None:
    """A warning, if a limit that is kept does not allow what it is given to allow.

    Example:
        >>> daily = Limit(key="daily", kind="budget", capacity=60)
        >>> difference(LimitState(limit=daily), daily)
        >>> difference(LimitState(limit=attrs.evolve(daily, capacity=9)), daily)
        "the limit 'daily' stays as it is kept (capacity 9), not as it is given here (capacity 60)"
    """
    [limit] = made_of([kept])
    stands, wanted = _definition(limit), _definition(given)
    if stands == wanted:
        return None
    return f"the limit {given.key!r} stays as it is kept ({stands}), not as it is given here ({wanted})"


def _definition(limit: Limit) -> str:
    """All that decides, in words; equal numbers are written alike, whoever sent them."""
    said = (
        f"{name} {int(value) if isinstance(value, float) and value.is_integer() else value}"
        for name, value in limit_data(limit).items()
        if name not in _WORDS
    )
    return ", ".join(said)


@attrs.define(eq=False)
class Reach:
    """A backend, and whether it answers."""

    _backend: Backend
    patience: float
    """Seconds after which an outage is taken as one that lasts, ≥ 0."""
    since: float | None = None
    """Instant of the first failure after the last answer; None while all is well."""
    reason: str = "nobody was asked"
    """Of the last failure, with who failed."""

    @property
    def lasts_at(self) -> float:
        """The instant from which on the outage lasts if nobody answers before; inf while all is well."""
        return math.inf if self.since is None else self.since + self.patience

    async def reserve(self, asks: Sequence[Ask]) -> Sequence[Decision]:
        """Decide about each, in order; `Unknown` about all of them if there is no answer.

        Raises:
            QuotaError: The backend refuses altogether.
        """
        try:
            decisions = await self._backend.reserve(asks)
        except QuotaError as error:
            if not self._is_outage(error):
                raise
            return [Unknown(error.message)] * len(asks)
        if len(decisions) != len(asks):
            decisions = [Unknown(f"{len(decisions)} answers to {len(asks)} requests")] * len(asks)
        unknown = [one for one in decisions if isinstance(one, Unknown)]
        if unknown and len(unknown) == len(decisions):
            self._failed(unknown[-1].message)
        else:
            self._answered()
        return decisions

    async def complete(self, settlements: Sequence[Settlement]) -> None:
        """End leases.

        Raises:
            QuotaError: As the backend says.
        """
        try:
            await self._backend.complete(settlements)
        except QuotaError as error:
            self._is_outage(error)
            raise
        self._answered()

    async def extend(self, lease_ids: Sequence[str]) -> Sequence[bool]:
        """Put off the expiry of holds.

        Raises:
            QuotaError: As the backend says.
        """
        try:
            answers = await self._backend.extend(lease_ids)
        except QuotaError as error:
            self._is_outage(error)
            raise
        self._answered()
        return answers

    async def states(self) -> Sequence[LimitState]:
        """All limits, by key. Without an answer it begins no outage: nobody need ask that again.

        Raises:
            QuotaError: As the backend says.
        """
        states = await self._backend.states()
        self._answered()
        return states

    async def make_missing(self, limits: Sequence[Limit]) -> list[str]:
        """Make the limits that are not there yet, likewise; returns warnings.

        Raises:
            QuotaError: As `trioeval.limits.availability.make_missing` does.
        """
        warnings = await make_missing(self._backend, limits)
        self._answered()
        return warnings

    def _is_outage(self, error: QuotaError) -> bool:
        is_outage = error.reason == "limiter_unavailable"
        if is_outage:
            self._failed(error.message)
        else:
            self._answered()
        return is_outage

    def _failed(self, reason: str) -> None:
        self.reason = reason
        if self.since is None:
            self.since = trio.current_time()

    def _answered(self) -> None:
        self.since = None
