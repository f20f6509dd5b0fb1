"""How much of one limit is taken, and what a lease may take of it.

A lease takes a *share* of each of its limits. What becomes of one is different for windows, holds and
budgets, and said there; how a capacity changes, a limit pauses and one is told to wait is the same for all.

Whatever has ended is found when a limit is looked at (`refresh`), never by a timer; so a smaller capacity,
which waits until so much is free, is taken on there too. No method may be given an instant before that of
an earlier one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection

import attrs

from trioeval.quota.limits import Limit, LimitState

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
        return _span(self.limit)

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
        self.span = _span(limit)

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

    @abstractmethod
    def take(self, amount: int, now: float, *, held: bool) -> Share:
        """Take a share, for which there is room.

        Args:
            amount: So much.
            now: The instant.
            held: A hold does not end by itself.
        """

    @abstractmethod
    def put(self, share: Share) -> None:
        """Count a share that was taken at its instant, after all that are counted already."""

    def listed(self) -> Collection[Share]:
        """The shares that end by themselves, in the order in which they do."""
        return ()

    @abstractmethod
    def settle(self, share: Share, actual: int | None) -> None:
        """So much of it was really used, ≥ 0; None all of it."""

    def give_back(self, share: Share) -> None:
        """It was not used."""
        self.settle(share, 0)

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

    @abstractmethod
    def fits(self, amount: int) -> bool:
        """Whether there is room."""

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


def _span(limit: Limit) -> float:
    return limit.window or limit.timeout or limit.reset or math.inf
