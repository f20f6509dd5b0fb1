# Apart from `limits.ledger`: together they exceed 600 lines.
"""How much of one limit is taken, and what a lease may take of it.

A lease takes a *share* of each of its limits. What becomes of one is different for windows, holds and
budgets, and said there; how a capacity changes, a limit pauses and one is told to wait is the same for all.

Whatever has ended is found when a limit is looked at (`refresh`), never by a timer; so a smaller capacity,
which waits until so much is free, is taken on there too. No method may be given an instant before that of
an earlier one.
"""

import math
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Collection

import attrs

from trioeval.limits.model import Limit, LimitState

HINT = 0.05
"""Seconds that one is told to wait at first for what comes back at an unknown instant."""
LONGEST_HINT = 2.0


@attrs.define(eq=False)
class Share:
    """So much of one limit, taken by a lease."""

    counter: "Counter"
    amount: int
    at: float
    """The instant at which it was taken, or at which a hold was put off last."""
    held: bool
    """Whether it is a hold that does not end by itself."""
    counted: bool = True
    """False when its window has passed, or its hold has ended."""


@attrs.define(eq=False)
class Counter(ABC):
    """One limit, and how much of it is taken: what all kinds have in common."""

    limit: Limit
    """With the capacity that holds now."""
    pending: int | None = None
    """The smaller capacity that is to come."""
    debt: int = 0
    paused_until: float = -math.inf
    """Nothing is granted before it."""
    streak: int = 0
    """How often in a row it was what a lease was denied for."""
    used: int = 0
    """In the window, as holds, or settled and outstanding."""
    span: float = attrs.field(init=False)
    """Seconds of its window, timeout or period; infinite if it has none."""

    @span.default
    def _span_of_limit(self) -> float:
        return self.limit.span or math.inf

    @property
    def target(self) -> int:
        """The capacity, or the one that is to come."""
        return self.limit.capacity if self.pending is None else self.pending

    def define(self, limit: Limit, now: float) -> None:  # noqa: ARG002 - of importance to budgets
        """Take on another definition of the same kind; a smaller capacity when so much of it is free."""
        if limit.capacity >= self.limit.capacity:
            self.limit, self.pending = limit, None
        else:
            self.pending = limit.capacity
            self.limit = attrs.evolve(limit, capacity=self.limit.capacity)
        self.span = limit.span or math.inf

    def decrease(self) -> None:
        """Take on the smaller capacity if so much is free."""
        if self.pending is not None and self.used <= self.pending:
            self.limit, self.pending = attrs.evolve(self.limit, capacity=self.pending), None

    def hint(self) -> float:
        """Seconds after which it may be worth asking again, where nobody knows."""
        # Six doublings are beyond the bound already; a streak may be of any length.
        return min(HINT * 2.0 ** min(self.streak, 6), LONGEST_HINT, self.span)

    @abstractmethod
    def refresh(self, now: float) -> None:
        """Let go what has ended by now. Must be called before anything else is asked at an instant."""

    def take(self, amount: int, now: float, *, held: bool) -> Share:
        """Take a share, for which there is room.

        Args:
            amount: So much.
            now: The instant.
            held: A hold does not end by itself.
        """
        share = Share(self, amount, now, held)
        self.put(share)
        self.streak = 0
        return share

    @abstractmethod
    def put(self, share: Share) -> None:
        """Count a share that was taken at its instant, after all that are counted already."""

    def listed(self) -> Collection[Share]:
        """The shares that end by themselves, in the order in which they do."""
        return ()

    @abstractmethod
    def settle(self, share: Share, actual: int | None) -> None:
        """So much of it was really used, ≥ 0; None all of it."""

    def extend(self, share: Share, now: float) -> None:  # noqa: B027 - only holds can
        """Put off its end, if it can be put off."""

    def abandon(self, share: Share, at: float) -> None:  # noqa: B027 - a window passes anyway
        """Nobody will settle it, and that is so since an instant."""

    @abstractmethod
    def restore(self, state: LimitState, now: float) -> None:
        """Count what was in use before."""

    @abstractmethod
    def next_at(self) -> float:
        """The instant at which something ends by itself; infinite if nothing does."""

    def state(self, now: float) -> LimitState:
        """How it stands."""
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
        """Whether there is room."""
        return self.used + amount <= self.limit.capacity

    def is_beyond(self, amount: int) -> bool:
        """Whether it is more than there ever is."""
        return amount > self.target

    def may_fit(self, amount: int) -> bool:  # noqa: ARG002 - others come back of themselves
        """Whether there would be room if nothing of what is outstanding were used."""
        return True

    @property
    def left(self) -> int:
        """What of it there would be if nothing of what is outstanding were used, ≥ 0."""
        return self.target

    @property
    def anew_at(self) -> float:
        """The instant at which it begins anew; infinite if it never does."""
        return math.inf

    def wait(self, amount: int, now: float) -> float:
        """Seconds after which it is worth asking again; 0 if there is room now."""
        is_short = self.pending is not None or not self.fits(amount)
        again = self._retry_after(amount, now) if is_short else 0.0
        return max(again, until(self.paused_until, now), 0.0)

    def _retry_after(self, amount: int, now: float) -> float:  # noqa: ARG002 - nobody knows
        """Seconds until there is room, or so."""
        return self.hint()


def until(instant: float, now: float) -> float:
    """Seconds from now to an instant, so that `now` and they are not before it.

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
# A hold counts until it is given back, or until nobody has put off its end for the limit's timeout. Like
# those of a window, holds keep the instant from which the timeout runs and stand in that order. One that
# belongs to a scope of this process has no such end: the scope gives it back.


@attrs.define(eq=False)
class Holds(Counter):
    """A concurrency limit: the number of leases that have one of its holds."""

    _timed: OrderedDict[Share, None] = attrs.field(init=False, factory=OrderedDict)
    """Those that end by themselves, in the order in which they do."""

    def refresh(self, now: float) -> None:
        """Take back what nobody has put off."""
        timed = self._timed
        while timed:
            share = next(iter(timed))
            if share.at + self.span > now:
                break
            self._drop(share)
        if self.pending is not None:
            self.decrease()

    def fits(self, amount: int) -> bool:  # noqa: ARG002 - one hold, whatever is asked for
        """Whether a hold is free."""
        return self.used < self.limit.capacity

    def is_beyond(self, amount: int) -> bool:  # noqa: ARG002 - see `fits`
        """Never: there is one at least."""
        return False

    def take(self, amount: int, now: float, *, held: bool) -> Share:  # noqa: ARG002 - see `fits`
        """Take a hold, which is free."""
        return super().take(1, now, held=held)

    def put(self, share: Share) -> None:
        """Count a hold whose timeout runs from its instant."""
        if not share.held:
            self._timed[share] = None
        self.used += share.amount

    def listed(self) -> Collection[Share]:
        """The holds that end by themselves, in the order in which they do."""
        return self._timed

    def extend(self, share: Share, now: float) -> None:
        """Put off the end of a hold that is counted."""
        if not share.held:
            share.at = now
            self._timed.move_to_end(share)

    def settle(self, share: Share, actual: int | None) -> None:  # noqa: ARG002 - see `fits`
        """Give a hold back, if it has not ended."""
        if share.counted:
            self._drop(share)

    def abandon(self, share: Share, at: float) -> None:  # noqa: ARG002 - see `settle`
        """Likewise."""
        self.settle(share, None)

    def _drop(self, share: Share) -> None:
        share.counted = False
        if not share.held:
            del self._timed[share]
        self.used -= share.amount

    def next_at(self) -> float:
        """The instant at which the first hold ends by itself; infinite if none does."""
        return next(iter(self._timed)).at + self.span if self._timed else math.inf

    def restore(self, state: LimitState, now: float) -> None:
        """Count the holds that there were, until their timeout: nobody can give them back."""
        if state.used:
            self.put(Share(self, state.used, now, held=False))


# Budgets: what is settled and what is outstanding are together at most the capacity.
#
# A share is outstanding until its lease is settled; what was really used counts from then on, also where it
# is more than there is, until the budget begins anew: at whole periods after it was made, or after the length
# of its period was changed. That somebody else keeps it from now on does not begin a period. What is
# outstanding then counts in the period in which it is settled.


@attrs.define(eq=False)
class Purse(Counter):
    """A budget: what is settled, and what is outstanding, since it began anew."""

    outstanding: int = 0
    _began_at: float = 0.0

    def define(self, limit: Limit, now: float) -> None:
        """Take on another definition; periods of another length are counted from now."""
        if limit.reset != self.limit.reset:
            self._began_at = now
        super().define(limit, now)

    def refresh(self, now: float) -> None:
        """Begin anew when it is time. What is outstanding counts in the period in which it is settled."""
        if self._began_at + self.span <= now:
            # At least one: the quotient may be rounded to less.
            self._began_at += max(1, (now - self._began_at) // self.span) * self.span
            self.used = self.outstanding
        if self.pending is not None:
            self.decrease()

    def may_fit(self, amount: int) -> bool:
        """Whether there would be room if nothing of what is outstanding were used."""
        return amount <= self.left

    @property
    def left(self) -> int:
        """What is not settled, ≥ 0."""
        return max(0, self.target - (self.used - self.outstanding))

    @property
    def anew_at(self) -> float:
        """The instant at which its next period begins."""
        return self._began_at + self.span

    def put(self, share: Share) -> None:
        """Count a share that is outstanding."""
        self.used += share.amount
        self.outstanding += share.amount

    def settle(self, share: Share, actual: int | None) -> None:
        """So much of it was really used, which may be more than there is; None all of it."""
        if actual is None or (actual > share.amount and self.limit.overage == "deny"):
            actual = share.amount
        self.outstanding -= share.amount
        self.used += actual - share.amount

    def abandon(self, share: Share, at: float) -> None:
        """Nobody will settle it: from then on all of it is taken as used, if that was in this period."""
        self.settle(share, None if at >= self._began_at else 0)

    def next_at(self) -> float:
        """The instant at which it begins anew; infinite if it never does, or has nothing to forget."""
        return math.inf if self.used == self.outstanding else self.anew_at

    def restore(self, state: LimitState, now: float) -> None:
        """Count what was settled before, and as settled what was outstanding: nobody can give it back."""
        # Not after now: it may come from a clock that was set back.
        self._began_at = now if state.began_at is None else min(state.began_at, now)
        self.used = state.used + state.outstanding

    def state(self, now: float) -> LimitState:
        """How it stands."""
        return attrs.evolve(
            super().state(now),
            used=self.used - self.outstanding,
            outstanding=self.outstanding,
            began_at=None if self.limit.reset is None else self._began_at,
        )


# Rolling limits: the sum of what was taken within the last window is at most the capacity.
#
# A share counts until the window has passed over the instant at which it was taken, whatever becomes of its
# lease; only its amount changes when it is known what was really used.
#
# Shares keep that instant, not the one of their end: a window whose length is changed holds for all of them
# at once, and they stay in the order in which they end. So looking for what has ended looks at the first one
# alone.


@attrs.define(eq=False)
class Window(Counter):
    """A rolling limit: the sum of what was taken within the last window."""

    _shares: deque[Share] = attrs.field(init=False, factory=deque)
    """Those that are counted, in the order in which they were taken."""

    def refresh(self, now: float) -> None:
        """Let go what the window has passed."""
        shares, length = self._shares, self.span
        while shares and shares[0].at + length <= now:
            share = shares.popleft()
            share.counted = False
            self.used -= share.amount
        if self.pending is not None:
            self.decrease()

    def put(self, share: Share) -> None:
        """Count a share that was taken at its instant."""
        self._shares.append(share)
        self.used += share.amount

    def listed(self) -> Collection[Share]:
        """The shares that are counted, in the order in which they were taken."""
        return self._shares

    def settle(self, share: Share, actual: int | None) -> None:
        """So much of it was really used; None all of it.

        What was used beyond the share is counted in its window as far as there is room, the rest is debt.
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
        """Forget shares of nothing, at both ends, where they cost nothing to find."""
        shares = self._shares
        while shares and shares[0].amount == 0:
            shares.popleft()
        while shares and shares[-1].amount == 0:
            shares.pop()

    def _retry_after(self, amount: int, now: float) -> float:
        """Seconds until there is room if nothing is settled before."""
        missing = self.used + amount - self.target
        ends_at = now
        for share in self._shares:
            if missing <= 0:
                break
            missing -= share.amount
            ends_at = share.at + self.span
        return until(ends_at, now)

    def next_at(self) -> float:
        """The instant at which the first share ends; infinite if there is none."""
        return self._shares[0].at + self.span if self._shares else math.inf

    def restore(self, state: LimitState, now: float) -> None:
        """Count what was in the window before, as if it were taken now."""
        if state.used:
            self.take(state.used, now, held=False)
