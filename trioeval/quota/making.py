"""Making limits where somebody else keeps them: those that are not there yet.

What is there already stays as others have made it.
"""

from collections.abc import Iterable, Sequence

import attrs

from trioeval.quota.backend import Backend
from trioeval.quota.denials import other_kind, two_of_one_key
from trioeval.quota.limit_json import limit_data
from trioeval.quota.limits import Limit, LimitState

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
