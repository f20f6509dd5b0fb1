"""Rolling limits: the sum of what was taken within the last window is at most the capacity.

A share counts until the window has passed over the instant at which it was taken, whatever becomes of its
lease; only its amount changes when it is known what was really used.

Shares keep that instant, not the one of their end: a window whose length is changed holds for all of them
at once, and they stay in the order in which they end. So looking for what has ended looks at the first one
alone.
"""

import math
from collections import deque
from collections.abc import Collection

import attrs

from trioeval.quota.counter import Counter, Share, until
from trioeval.quota.limits import LimitState


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

    def fits(self, amount: int) -> bool:
        """Whether there is room."""
        return self.used + amount <= self.limit.capacity

    def take(self, amount: int, now: float, *, held: bool) -> Share:
        """Take a share, for which there is room."""
        share = Share(self, amount, now, held)
        self.put(share)
        self.streak = 0
        return share

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
