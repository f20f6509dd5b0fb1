# Separate from `scaleout.coordinator`: tested without workers.
"""The budget of a run on several workers, of which each shard has a lease.

The problem: a budget that each worker counted for itself would be spent once for each of them. The rule: a
shard may use what its lease grants, which the budget itself holds meanwhile, so that other runs with the same
budget use only the rest. At the end of the shard what it has not used is free again.

A lease is the part of what is left that its rows are of all rows that may run at once, or rather half of
that: leases of long rows are as large as when they were granted, and must leave enough for later ones. A
shard with too small a lease returns rows without a result, which run again, with the replies that they have;
then the parts double. A part of 1 is all that is left, and is granted only if nothing else is held: a row
that does not fit into it fits no more at all.

The lease of a shard whose end is not known, because its worker is lost, counts as used. Less might be too
little: the calls in flight are unknown.

Law: BUDGET.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal

import attrs
import trio

from trioeval.rates import Amounts, Budget, Hold
from trioeval.run.budgets import suite_budget
from trioeval.suite.model import Suite

_MILLION = 1_000_000
_ALL = 1.0
_SPARE = 2
"""The factor by which a lease is smaller than the part of its rows."""
REPORTED_WITHIN = 5.0
"""Seconds in which the report of a shard is awaited."""


@attrs.define(eq=False)
class _ShardLease:
    """The amounts that a shard may use."""

    most: Sequence[int]
    """Requests, tokens and millionths of money; 0 in a dimension without a bound."""
    hold: Hold
    part: float
    """The part of what was left."""
    is_all: bool
    """True if nothing else was left."""
    is_short: bool = False
    """True if a row did not fit."""
    expires_at: float = math.inf
    """Instant, on Trio's clock, at which the report of a cancelled shard is no longer awaited."""


def _ignore() -> None:
    """Do nothing."""


@attrs.define(eq=False, repr=False)
class BudgetLeases:
    """The leases of one execution of a run on its budget; a `Follower` of that.

    Args:
        budget: The budget, which other runs may share.
        on_release: Called when a lease that was not granted may be granted.

    Example:
        >>> budget = Budget(requests=16)
        >>> leases = BudgetLeases(budget)
        >>> [leases.grant(shard, 4, 8).spent.requests for shard in (1, 2)]
        [12, 12]
        >>> leases.settle(1, Amounts(requests=2))
        >>> budget.spent.requests, budget.reserved.requests
        (2, 4)
    """

    budget: Budget
    on_release: Callable[[], None] = _ignore
    is_shared: bool = False
    """True if other runs may use the budget after this one."""
    _live: dict[int, _ShardLease] = attrs.field(init=False, factory=dict)
    _cancelled: dict[int, _ShardLease] = attrs.field(init=False, factory=dict)
    """The leases of cancelled shards, whose reports are on their way."""
    _lost: dict[int, Sequence[int]] = attrs.field(init=False, factory=dict)
    """The leases of shards that have ended without a report, which count as used."""
    _reported: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when a report arrives; replaced before each wait for one."""
    _part: float = attrs.field(init=False, default=0.0)
    """The least part of what is left that a lease gets."""
    is_exhausted: bool = attrs.field(init=False, default=False)
    """True if a row did not fit into all that was left."""
    refusal: str | None = attrs.field(init=False, default=None)
    """The refusal of that row, if it is known."""

    @classmethod
    def of(
        cls, budget: Budget | None, suite: Suite, on_release: Callable[[], None]
    ) -> "BudgetLeases | None":
        """Return the leases of a run on the budget of its session, or else on that of its suite, if any."""
        if budget is not None:
            return cls(budget, on_release, is_shared=True)
        own = suite_budget(suite)
        return None if own is None else cls(own, on_release)

    def grant(self, shard: int, rows: int, at_once: int) -> Budget | None:
        """Grant a lease, and return the budget that the shard must keep; None if it has to wait.

        Args:
            shard: The number of the shard.
            rows: Its rows, ≥ 1.
            at_once: The rows of all shards that may run at once, ≥ 1.
        """
        part = max(self._part, min(_ALL, rows / at_once) / _SPARE)
        most, left, is_enough = [0, 0, 0], [0, 0, 0], True
        known_left = self._left()
        if self._is_overspent():
            # No call fits any more. Its refusal on the worker says so, once no report can change that.
            known_left, is_enough = {}, not self._live and not self._cancelled
        for place, known in known_left.items():
            all_left, free = (min(column) for column in zip(*known, strict=True))
            wanted = all_left if part >= _ALL else min(all_left, max(1, int(all_left * part)))
            most[place], left[place] = min(free, wanted), all_left
            # A lease of the little that is free would only return its rows.
            least = wanted if part >= _ALL else wanted / 2
            is_enough = is_enough and free >= least
        hold = self.budget.lend(_amounts(most)) if is_enough else None
        if hold is None:
            self.budget.follow(self)
            return None
        self._live[shard] = _ShardLease(most, hold, part, is_all=most == left)
        return _lent(self.budget, most)

    def refuse(self, shard: int | None, refusal: str | None = None) -> bool:
        """Handle a row that did not fit into the lease of its shard; return whether it fits no more at all.

        Args:
            shard: The number of the shard; None if that has ended, so that the row is to run again.
            refusal: What the budget of the shard said, if it is known.
        """
        lease = None if shard is None else self._live.get(shard)
        if lease is not None:
            lease.is_short = True
            self._part = max(self._part, min(_ALL, lease.part * 2))
            self.is_exhausted = self.is_exhausted or lease.is_all
            if lease.is_all:
                self.refusal = self.refusal or refusal
        return self.is_exhausted

    def settle(self, shard: int, used: Amounts) -> None:
        """Record what a shard has used, at its end or later."""
        lease = self._end(shard) or self._cancelled.pop(shard, None)
        if lease is not None:
            self._settle(lease, _units(used))
            self._reported.set()
        elif (lost := self._lost.pop(shard, None)) is not None:
            unused = zip(lost, _units(used), strict=True)
            self.budget.give_back(_amounts([most - own for most, own in unused]))

    def end(self, shard: int, *, is_cancelled: bool = False) -> None:
        """Handle the end of a shard; without a report, its lease counts as used.

        Args:
            shard: The number of the shard.
            is_cancelled: Whether its report is on its way; the lease is held until then, for a few seconds.
        """
        lease = self._end(shard)
        if lease is None:
            return
        if is_cancelled:
            self._cancelled[shard] = lease
            lease.expires_at = trio.current_time() + REPORTED_WITHIN
        else:
            self._lose(shard, lease)

    def expire(self) -> None:
        """Let the leases of cancelled shards count as used whose workers were lost, or had not begun them."""
        now = trio.current_time()
        for shard, lease in [*self._cancelled.items()]:
            if lease.expires_at <= now:
                self._lose(shard, self._cancelled.pop(shard))

    def _lose(self, shard: int, lease: _ShardLease) -> None:
        self._settle(lease, lease.most)
        self._lost[shard] = lease.most
        self._reported.set()

    async def close(self) -> None:
        """Return to other runs what is not used. Bounded: then leases count as used."""
        if not self.is_shared:
            return
        with trio.move_on_after(REPORTED_WITHIN):
            while self._live or self._cancelled:
                self._reported = trio.Event()
                await self._reported.wait()
        for lease in (*self._live.values(), *self._cancelled.values()):
            self._settle(lease, lease.most)
        self._live.clear()
        self._cancelled.clear()

    def notify(self) -> None:
        """Let shards ask again for leases."""
        self.on_release()

    def _end(self, shard: int) -> _ShardLease | None:
        """Return the lease of a shard that ends now; None if it has ended before."""
        lease = self._live.pop(shard, None)
        if lease is not None and not lease.is_short:
            self._part /= 2
        return lease

    def _settle(self, lease: _ShardLease, used: Sequence[int]) -> None:
        amounts = _amounts(used)
        self.budget.settle(
            lease.hold, requests=amounts.requests, tokens=amounts.tokens, money=amounts.money
        )

    def _is_overspent(self) -> bool:
        """Return whether calls have used more than a bound, because they were larger than they said."""
        return any(
            bound is not None and spent > bound
            for budget in _levels(self.budget)
            for bound, spent in zip(_bounds(budget), _units(budget.spent), strict=True)
        )

    def _left(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Return what is left, and what of it is free now, in each budget around the run, by dimension."""
        found: dict[int, list[tuple[int, int]]] = {}
        cancelled = [lease.most for lease in self._cancelled.values()]
        for budget in _levels(self.budget):
            spent, held = _units(budget.spent), _units(budget.reserved)
            for place, bound in enumerate(_bounds(budget)):
                if bound is not None:
                    unspent = bound - spent[place]
                    # A shard that was cancelled before it started may never report.
                    left = unspent - sum(most[place] for most in cancelled)
                    free = unspent - held[place]
                    found.setdefault(place, []).append((max(0, left), max(0, free)))
        return found


def _levels(budget: Budget | None) -> Iterator[Budget]:
    while budget is not None:
        yield budget
        budget = budget.within


def _lent(budget: Budget, most: Sequence[int]) -> Budget:
    """Return a budget of which only so much is left."""
    before = [
        0 if bound is None else max(0, bound - lent)
        for bound, lent in zip(_bounds(budget), most, strict=True)
    ]
    return Budget(
        budget.requests,
        budget.tokens,
        budget.money,
        used_before=_amounts(before),
        within=None if budget.within is None else _lent(budget.within, most),
    )


def _bounds(budget: Budget) -> Sequence[int | None]:
    usd = budget.money
    # Rounded down, as the budget itself does.
    return budget.requests, budget.tokens, None if usd is None else _floor(usd)


def _units(amounts: Amounts) -> Sequence[int]:
    return amounts.requests, amounts.tokens, round(amounts.money * _MILLION)


def _amounts(units: Sequence[int]) -> Amounts:
    requests, tokens, micros = units
    return Amounts(requests, tokens, micros / _MILLION)


def _floor(usd: float) -> int:
    return int((Decimal(repr(float(usd))) * _MILLION).to_integral_value(ROUND_FLOOR))
