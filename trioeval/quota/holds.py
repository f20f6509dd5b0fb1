"""Concurrency limits: the number of leases that hold one is at most the capacity.

A hold counts until it is given back, or until nobody has put off its end for the limit's timeout. Like
those of a window, holds keep the instant from which the timeout runs and stand in that order. One that
belongs to a scope of this process has no such end: the scope gives it back.
"""

import math
from collections import OrderedDict
from collections.abc import Collection

import attrs

from trioeval.quota.counter import Counter, Share
from trioeval.quota.limits import LimitState


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
        share = Share(self, 1, now, held)
        self.put(share)
        self.streak = 0
        return share

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
