"""What a call counts against its limits: before it, at most; after it, really.

Amounts are whole numbers: money counts in millionths, and what is counted at most is rounded up.
"""

import math
from collections.abc import Iterable

from trioeval.quota.backend import KeyUse
from trioeval.quota.leases import Actual, Requirement
from trioeval.quota.limits import MOST, Unit

_MICRO = 1_000_000


def requirements_of(keys: Iterable[KeyUse], tokens: int, money: float) -> tuple[Requirement, ...]:
    """What a request takes at most of each limit, 1 at least.

    Args:
        keys: What it counts against.
        tokens: The most that it may use, ≥ 0.
        money: Likewise, ≥ 0.

    Example:
        >>> keys = KeyUse("m:rpm", "requests"), KeyUse("m:tpm", "tokens")
        >>> [one.amount for one in requirements_of(keys, 512, 0.0)]
        [1, 512]
    """
    return tuple(Requirement(use.key, max(1, _amount(use.unit, tokens, money))) for use in keys)


def actuals_of(keys: Iterable[KeyUse], tokens: int, money: float) -> tuple[Actual, ...]:
    """What it has used; of requests and slots nothing is said: they keep what they took.

    Args:
        keys: What it counts against.
        tokens: What it used; less than nothing is taken as nothing.
        money: Likewise.

    Example:
        >>> keys = KeyUse("m:rpm", "requests"), KeyUse("team:cost_micro", "cost_micro")
        >>> actuals_of(keys, 512, 0.0125)
        (Actual(key='team:cost_micro', amount=12500),)
    """
    return tuple(
        Actual(use.key, _amount(use.unit, tokens, money))
        for use in keys
        if use.unit in {"tokens", "cost_micro"}
    )


def nothing_of(requirements: Iterable[Requirement]) -> tuple[Actual, ...]:
    """What a request has used that was never made."""
    return tuple(Actual(one.key, 0) for one in requirements)


def _amount(unit: Unit, tokens: int, money: float) -> int:
    if unit == "tokens":
        return max(0, min(tokens, MOST))
    if unit == "cost_micro":
        # A float times a million is off by so little that it must not cost a millionth more.
        return MOST if money >= MOST / _MICRO else max(0, math.ceil(round(money * _MICRO, 3)))
    return 1
