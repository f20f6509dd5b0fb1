# Separate from `limits.ledger`: together they exceed 600 lines.
"""The usage of one limit, and the shares that leases take of it.

A lease takes a *share* of each of its limits. How a share ends differs between windows, holds and budgets;
changes of the capacity, pauses and retry hints are common to all.

Expired shares are found when a limit is read (`refresh`), never by a timer; a smaller capacity, which waits
until that much is free, takes effect there too. The instants given to methods must never decrease.
"""

import math
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Collection

import attrs

from trioeval.limits.model import LimitState, SharedLimit

HINT = 0.05
"""First retry hint in seconds, where the time of the next release is unknown."""
LONGEST_HINT = 2.0


@attrs.define(eq=False, repr=False)
class LeaseShare:
    """The amount of one limit that a lease has taken."""

    counter: "Counter"
    amount: int
    at: float
    """The instant at which it was taken, or at which its hold was last extended."""
    is_held: bool = False
    """A hold that does not expire by itself."""
    counted: bool = True
    """False once its window has passed or its hold has ended."""


@attrs.define(eq=False, repr=False)
class Counter(ABC):
    """The usage of one limit, as far as all kinds have it in common."""

    limit: SharedLimit
    """With the capacity in effect."""
    pending: int | None = None
    """The smaller capacity that takes effect once that much is free."""
    debt: int = 0
    paused_until: float = -math.inf
    """Nothing is granted before it."""
    streak: int = 0
    """Number of consecutive denials that it caused."""
    used: int = 0
    """In the window, as holds, or settled and outstanding."""
    span: float = attrs.field(init=False)
    """Seconds of its window, timeout or period; infinite without one."""

    @span.default
    def _span_of_limit(self) -> float:
        return self.limit.span or math.inf

    @property
    def target(self) -> int:
        """The pending capacity, or else the one in effect."""
        return self.limit.capacity if self.pending is None else self.pending

    def define(self, limit: SharedLimit, now: float) -> None:  # noqa: ARG002 - of importance to budgets
        """Apply another definition of the same kind; a smaller capacity once that much is free."""
        if limit.capacity >= self.limit.capacity:
            self.limit, self.pending = limit, None
        else:
            self.pending = limit.capacity
            self.limit = attrs.evolve(limit, capacity=self.limit.capacity)
        self.span = limit.span or math.inf

    def decrease(self) -> None:
        """Apply the pending capacity if that much is free."""
        if self.pending is not None and self.used <= self.pending:
            self.limit, self.pending = attrs.evolve(self.limit, capacity=self.pending), None

    def hint(self) -> float:
        """Seconds after which a retry may succeed, where the time of the next release is unknown."""
        # Six doublings already exceed the bound; a streak may have any length.
        return min(HINT * 2.0 ** min(self.streak, 6), LONGEST_HINT, self.span)

    @abstractmethod
    def refresh(self, now: float) -> None:
        """Drop what has ended by now. Must be called first at each instant."""

    def take(self, amount: int, now: float, *, is_held: bool) -> LeaseShare:
        """Take a share, for which there must be room.

        Args:
            amount: Its amount.
            now: The instant.
            is_held: True for a hold that does not expire by itself.
        """
        share = LeaseShare(self, amount, now, is_held)
        self.put(share)
        self.streak = 0
        return share

    @abstractmethod
    def put(self, share: LeaseShare) -> None:
        """Count a share that was taken at its instant, after all shares counted so far."""

    def listed(self) -> Collection[LeaseShare]:
        """Return the shares that expire by themselves, in the order of their expiry."""
        return ()

    @abstractmethod
    def settle(self, share: LeaseShare, actual: int | None) -> None:
        """Record the actual usage of a share, ≥ 0; None for all of it."""

    def extend(self, share: LeaseShare, now: float) -> None:  # noqa: B027 - only holds can
        """Postpone the expiry of a share, if its kind allows it."""

    def abandon(self, share: LeaseShare, at: float) -> None:  # noqa: B027 - a window passes anyway
        """Mark a share whose lease was dropped unsettled at an instant."""

    @abstractmethod
    def restore(self, state: LimitState, now: float) -> None:
        """Count what was already in use."""

    @abstractmethod
    def next_at(self) -> float:
        """The instant of the next expiry; infinite without one."""

    def state(self, now: float) -> LimitState:
        """Return the state of the limit."""
        return LimitState(
            limit=self.limit,
            status="active" if self.pending is None else "decreasing",
            pending_capacity=self.pending,
            used=self.used,
            debt=self.debt,
            paused_until=self.paused_until if self.paused_until > now else None,
            paused_for=self.paused_until - now if self.paused_until > now else None,
        )

    def fits(self, amount: int) -> bool:
        """Return whether there is room now."""
        return self.used + amount <= self.limit.capacity

    def is_beyond(self, amount: int) -> bool:
        """Return whether an amount exceeds the capacity."""
        return amount > self.target

    def may_fit(self, amount: int) -> bool:  # noqa: ARG002 - others come back of themselves
        """Return whether there would be room if all outstanding shares were returned unused."""
        return True

    @property
    def left(self) -> int:
        """Amount that is left if all outstanding shares are returned unused, ≥ 0."""
        return self.target

    @property
    def resets_at(self) -> float:
        """The instant at which it resets; infinite if it never does."""
        return math.inf

    def wait(self, amount: int, now: float) -> float:
        """Return the seconds after which a retry may succeed; 0 if there is room now."""
        is_short = self.pending is not None or not self.fits(amount)
        again = self._retry_after(amount, now) if is_short else 0.0
        return max(again, until(self.paused_until, now), 0.0)

    def _retry_after(self, amount: int, now: float) -> float:  # noqa: ARG002 - unknown
        """Return an estimate of the seconds until there is room."""
        return self.hint()


def until(instant: float, now: float) -> float:
    """Return the seconds from now to an instant, rounded so that their sum is never before it.

    Example:
        >>> 0.2 + (0.9 - 0.2) < 0.9 <= 0.2 + until(0.9, 0.2)
        True
    """
    wait = instant - now
    while now + wait < instant:  # the difference was rounded down
        wait = math.nextafter(wait, math.inf)
    return wait


# Concurrency limits: the number of leases that hold one is at most the capacity.
#
# A hold counts until it is returned, or until its timeout passes without an extension. Like the shares of a
# window, holds store the instant from which the timeout runs, and are ordered by it. A hold that belongs to a
# scope of this process has no timeout: the scope returns it.


@attrs.define(eq=False, repr=False)
class ConcurrencyCounter(Counter):
    """A concurrency limit: the number of leases that have one of its holds."""

    _timed: OrderedDict[LeaseShare, None] = attrs.field(init=False, factory=OrderedDict)
    """Holds with a timeout, in the order of their expiry."""

    def refresh(self, now: float) -> None:
        """Drop holds that were not extended in time."""
        timed = self._timed
        while timed:
            share = next(iter(timed))
            if share.at + self.span > now:
                break
            self._drop(share)
        if self.pending is not None:
            self.decrease()

    def fits(self, amount: int) -> bool:  # noqa: ARG002 - one hold, whatever is asked for
        """Return whether a hold is free."""
        return self.used < self.limit.capacity

    def is_beyond(self, amount: int) -> bool:  # noqa: ARG002 - see `fits`
        """Return False: the capacity is at least one hold."""
        return False

    def take(self, amount: int, now: float, *, is_held: bool) -> LeaseShare:  # noqa: ARG002 - see `fits`
        """Take a hold, which must be free."""
        return super().take(1, now, is_held=is_held)

    def put(self, share: LeaseShare) -> None:
        """Count a hold whose timeout runs from its instant."""
        if not share.is_held:
            self._timed[share] = None
        self.used += share.amount

    def listed(self) -> Collection[LeaseShare]:
        """Return the holds with a timeout, in the order of their expiry."""
        return self._timed

    def extend(self, share: LeaseShare, now: float) -> None:
        """Restart the timeout of a hold that is counted."""
        if not share.is_held:
            share.at = now
            self._timed.move_to_end(share)

    def settle(self, share: LeaseShare, actual: int | None) -> None:  # noqa: ARG002 - see `fits`
        """Return a hold, if it has not ended."""
        if share.counted:
            self._drop(share)

    def abandon(self, share: LeaseShare, at: float) -> None:  # noqa: ARG002 - see `settle`
        """Return the hold of a dropped lease, if it has not ended."""
        self.settle(share, None)

    def _drop(self, share: LeaseShare) -> None:
        share.counted = False
        if not share.is_held:
            del self._timed[share]
        self.used -= share.amount

    def next_at(self) -> float:
        """The instant at which the first hold expires; infinite without one."""
        return next(iter(self._timed)).at + self.span if self._timed else math.inf

    def restore(self, state: LimitState, now: float) -> None:
        """Count earlier holds until their timeout: no lease is left that could return them."""
        if state.used:
            self.put(LeaseShare(self, state.used, now, is_held=False))


# Budgets: settled and outstanding amounts together are at most the capacity.
#
# A share is outstanding until its lease is settled; from then on the actual usage counts, even beyond the
# capacity, until the budget resets: at whole periods after its creation, or after its period was changed.
# Moving it to another backend starts no period. What is outstanding at a reset counts in the period in which
# it is settled.


@attrs.define(eq=False, repr=False)
class BudgetCounter(Counter):
    """A budget: settled and outstanding amounts since its last reset."""

    outstanding: int = 0
    _began_at: float = 0.0

    def define(self, limit: SharedLimit, now: float) -> None:
        """Apply another definition; a period of another length starts now."""
        if limit.reset != self.limit.reset:
            self._began_at = now
        super().define(limit, now)

    def refresh(self, now: float) -> None:
        """Reset the budget if it is due. Outstanding shares count in the period in which they are settled."""
        if self._began_at + self.span <= now:
            # At least one: the quotient may be rounded down.
            self._began_at += max(1, (now - self._began_at) // self.span) * self.span
            self.used = self.outstanding
        if self.pending is not None:
            self.decrease()

    def may_fit(self, amount: int) -> bool:
        """Return whether there would be room if all outstanding shares were returned unused."""
        return amount <= self.left

    @property
    def left(self) -> int:
        """Amount that is not settled, ≥ 0."""
        return max(0, self.target - (self.used - self.outstanding))

    @property
    def resets_at(self) -> float:
        """The instant at which its next period starts."""
        return self._began_at + self.span

    def put(self, share: LeaseShare) -> None:
        """Count an outstanding share."""
        self.used += share.amount
        self.outstanding += share.amount

    def settle(self, share: LeaseShare, actual: int | None) -> None:
        """Record the actual usage, which may exceed the share; None for all of it."""
        if actual is None or (actual > share.amount and self.limit.overage == "deny"):
            actual = share.amount
        self.outstanding -= share.amount
        self.used += actual - share.amount

    def abandon(self, share: LeaseShare, at: float) -> None:
        """Count the whole share of a dropped lease as used, if it was dropped in this period."""
        self.settle(share, None if at >= self._began_at else 0)

    def next_at(self) -> float:
        """The instant of the next reset; infinite without one, or if nothing has been used."""
        return math.inf if self.used == self.outstanding else self.resets_at

    def restore(self, state: LimitState, now: float) -> None:
        """Count earlier usage; outstanding shares count as settled, since no lease is left to return them."""
        # Not after now: it may come from a clock that was set back.
        self._began_at = now if state.began_at is None else min(state.began_at, now)
        self.used = state.used + state.outstanding

    def state(self, now: float) -> LimitState:
        """Return the state of the limit."""
        return attrs.evolve(
            super().state(now),
            used=self.used - self.outstanding,
            outstanding=self.outstanding,
            began_at=None if self.limit.reset is None else self._began_at,
        )


# Rolling limits: the sum of what was taken within the last window is at most the capacity.
#
# A share counts until the window has passed the instant at which it was taken, however its lease ends; only
# its amount changes once the actual usage is known.
#
# Shares store that instant, not the one of their expiry: a change of the window then applies to all of them
# at once, and they stay in the order of their expiry. So only the first share must be checked for expiry.


@attrs.define(eq=False, repr=False)
class WindowCounter(Counter):
    """A rolling limit: the sum of what was taken within the last window."""

    _shares: deque[LeaseShare] = attrs.field(init=False, factory=deque)
    """The counted shares, in the order in which they were taken."""

    def refresh(self, now: float) -> None:
        """Drop what the window has passed."""
        shares, length = self._shares, self.span
        while shares and shares[0].at + length <= now:
            share = shares.popleft()
            share.counted = False
            self.used -= share.amount
        if self.pending is not None:
            self.decrease()

    def put(self, share: LeaseShare) -> None:
        """Count a share that was taken at its instant."""
        self._shares.append(share)
        self.used += share.amount

    def listed(self) -> Collection[LeaseShare]:
        """Return the counted shares, in the order in which they were taken."""
        return self._shares

    def settle(self, share: LeaseShare, actual: int | None) -> None:
        """Record the actual usage; None for all of it.

        Usage beyond the share counts in its window as far as there is room; the rest is debt.
        """
        if actual is None:
            return
        change = actual - share.amount
        if change > 0:
            if self.limit.overage == "deny":
                return
            room = max(0, self.limit.capacity - self.used) if share.counted else 0
            self.debt += max(0, change - room)
            change = min(change, room)
        if share.counted:
            share.amount += change
            self.used += change
            self._trim()

    def _trim(self) -> None:
        """Remove empty shares at both ends, where finding them costs nothing."""
        shares = self._shares
        while shares and shares[0].amount == 0:
            shares.popleft()
        while shares and shares[-1].amount == 0:
            shares.pop()

    def _retry_after(self, amount: int, now: float) -> float:
        """Return the seconds until there is room if nothing is settled before."""
        missing = self.used + amount - self.target
        ends_at = now
        for share in self._shares:
            if missing <= 0:
                break
            missing -= share.amount
            ends_at = share.at + self.span
        return until(ends_at, now)

    def next_at(self) -> float:
        """The instant at which the first share expires; infinite without one."""
        return self._shares[0].at + self.span if self._shares else math.inf

    def restore(self, state: LimitState, now: float) -> None:
        """Count earlier usage of the window as if it were taken now."""
        if state.used:
            self.take(state.used, now, is_held=False)
