# Separate from `scaleout.coordinator`: pure, and tested without workers.
"""The budget of a run on several workers, of which each shard has a lease. Pure.

The problem: a budget that each worker counted for itself would be spent once for each of them. The rule: a
shard may use what its lease grants, and at its end what it has not used is free again. The first leases are
small parts of what is left, so that all workers get one. A shard with too small a lease returns rows without
a result, which run again, with the replies that they have; then the parts double. A part of 1 is all that is
left, and is granted only if no other lease is out: a row that does not fit into it fits no more at all.

The lease of a shard whose end is not known, because its worker is lost, counts as used. Less might be too
little: the calls in flight are unknown.

Law: BUDGET.
"""

from collections.abc import Iterable
from decimal import ROUND_FLOOR, Decimal
from typing import TypeAlias

import attrs

from trioeval.rates import Amounts
from trioeval.suite.model import BudgetSettings

_MILLION = 1_000_000
_ALL = 1.0

_Units: TypeAlias = tuple[int, int, int]
"""Requests, tokens and millionths of money, so that sums are exact."""


@attrs.frozen
class _ShardLease:
    """The amounts that a shard may use."""

    most: _Units
    """All that it may use; 0 in a dimension without a bound."""
    is_all: bool
    """True if nothing else was left."""


@attrs.define(eq=False, repr=False)
class BudgetLeases:
    """The budget of one execution of a run.

    Args:
        settings: The bounds.

    Example:
        >>> leases = BudgetLeases(BudgetSettings(requests=10))
        >>> [leases.grant(shard, 2).requests for shard in (1, 2)]
        [5, 5]
        >>> leases.grant(3, 2) is None
        True
        >>> leases.settle(1, Amounts(requests=2))
        >>> leases.used, leases.grant(3, 2).requests
        (Amounts(requests=7, tokens=0, money=0.0), 7)
        >>> leases.used
        Amounts(requests=10, tokens=0, money=0.0)
    """

    settings: BudgetSettings
    _spent: _Units = attrs.field(init=False, default=(0, 0, 0))
    """The amounts that ended shards have used."""
    _live: dict[int, _ShardLease] = attrs.field(init=False, factory=dict)
    _lost: dict[int, _ShardLease] = attrs.field(init=False, factory=dict)
    """The leases of shards that have ended without a report."""
    _part: float = attrs.field(init=False, default=0.0)
    """The least part of what is left that a lease gets."""
    _latest: float = attrs.field(init=False, default=0.0)
    """The part of the latest lease."""
    is_exhausted: bool = attrs.field(init=False, default=False)
    """True if a row did not fit into all that was left."""

    @property
    def used(self) -> Amounts:
        """The amounts that are used, leased or lost."""
        return _amounts(self._used())

    def grant(self, shard: int, shards: int) -> Amounts | None:
        """Grant a lease, and return what the shard must regard as used; None if it has to wait.

        Args:
            shard: The number of the shard.
            shards: The shards that run at once, ≥ 1.
        """
        part = max(self._part, 1 / shards)
        if part >= _ALL and self._live:
            return None
        used, spent = self._used(), _sum([self._spent, *_leased(self._lost)])
        share: list[int] = []
        is_all = True
        for bound, gone, taken in zip(self._bounds(), spent, used, strict=True):
            if bound is None:
                share.append(0)
                continue
            left, free = max(0, bound - gone), max(0, bound - taken)
            wanted = left if part >= _ALL else min(free, max(1, int(left * part)))
            if self._live and not wanted:
                return None
            share.append(wanted)
            is_all = is_all and wanted == left
        first, second, third = share
        self._latest = part
        lease = self._live[shard] = _ShardLease((first, second, third), is_all and not self._live)
        return _amounts(
            tuple(
                0 if bound is None else max(0, bound - most)
                for bound, most in zip(self._bounds(), lease.most, strict=True)
            )
        )

    def is_final(self, shard: int) -> bool:
        """Return whether a row that does not fit into the lease of a shard fits no more at all."""
        lease = self._live.get(shard)
        return lease is not None and lease.is_all

    def settle(self, shard: int, used: Amounts) -> None:
        """Record what a shard has used, at its end or later."""
        lease = self._live.pop(shard, None) or self._lost.pop(shard, None)
        if lease is not None:
            self._spent = _sum([self._spent, _units(used)])

    def end(self, shard: int, *, is_short: bool) -> None:
        """Handle the end of a shard; without a report, its lease counts as used.

        Args:
            shard: The number of the shard.
            is_short: Whether rows did not fit into its lease.
        """
        lease = self._live.pop(shard, None)
        if lease is not None:
            self._lost[shard] = lease
        self._part = min(_ALL, self._latest * 2) if is_short else self._part / 2

    def exhaust(self) -> None:
        """Note that a row did not fit into all that was left."""
        self.is_exhausted = True

    def _used(self) -> _Units:
        return _sum([self._spent, *_leased(self._live), *_leased(self._lost)])

    def _bounds(self) -> tuple[int | None, int | None, int | None]:
        usd = self.settings.usd
        # Rounded down, as a budget itself does.
        return self.settings.requests, self.settings.tokens, None if usd is None else _floor(usd)


def _leased(leases: dict[int, _ShardLease]) -> Iterable[_Units]:
    return (one.most for one in leases.values())


def _sum(units: Iterable[_Units]) -> _Units:
    requests, tokens, micros = (sum(column) for column in zip(*units, strict=True))
    return requests, tokens, micros


def _units(amounts: Amounts) -> _Units:
    return amounts.requests, amounts.tokens, round(amounts.money * _MILLION)


def _amounts(units: Iterable[int]) -> Amounts:
    requests, tokens, micros = units
    return Amounts(requests, tokens, micros / _MILLION)


def _floor(usd: float) -> int:
    return int((Decimal(repr(float(usd))) * _MILLION).to_integral_value(ROUND_FLOOR))
