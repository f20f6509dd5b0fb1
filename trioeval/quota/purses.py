"""Budgets: what is settled and what is outstanding are together at most the capacity.

A share is outstanding until its lease is settled; what was really used counts from then on, also where it
is more than there is, until the budget begins anew: at whole periods after it was made, or after the length
of its period was changed. That somebody else keeps it from now on does not begin a period. What is
outstanding then counts in the period in which it is settled.
"""

import math

import attrs

from trioeval.quota.counter import Counter, Share
from trioeval.quota.limits import Limit, LimitState


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

    def fits(self, amount: int) -> bool:
        """Whether there is room."""
        return self.used + amount <= self.limit.capacity

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

    def take(self, amount: int, now: float, *, held: bool) -> Share:
        """Take a share, for which there is room."""
        share = Share(self, amount, now, held)
        self.put(share)
        self.streak = 0
        return share

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
