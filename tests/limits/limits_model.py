"""A reference model of limits and leases: everything that was ever taken is kept, and summed each time.

It is deliberately simple, so that it can be checked against the rules by reading.
"""

import math

import attrs

from trioeval.limits import Denied, Granted, LeaseRequest, LimitState, Settlement, SharedLimit

MIN_RETENTION = 600
"""Seconds for which leases are remembered at least."""


@attrs.define(eq=False)
class Taken:
    """The share of a limit that a lease has taken."""

    key: str
    holder: "Known"
    amount: int
    at: float
    state: str = "counted"
    """Or `settled` (of a budget), or `over`."""
    settled_at: float = 0.0


@attrs.define(eq=False)
class Known:
    """The record of a lease."""

    needs: dict[str, int]
    answer: Granted | Denied
    requested_at: float
    is_open: bool
    lost_hold: bool = False
    taken: list[Taken] = attrs.field(factory=list)


@attrs.define(eq=False)
class Kept:
    """A limit."""

    limit: SharedLimit
    began_at: float
    pending: int | None = None
    paused_until: float = -math.inf
    debt: int = 0


@attrs.define(eq=False)
class Expected:
    """The expected answer to a reserve."""

    granted_at: float | None = None
    reason: str = ""
    keys: tuple[str, ...] = ()
    least_wait: float = 0.0
    most_wait: float = 0.0
    same: Denied | None = None
    """The earlier denial, which must be returned unchanged."""


class Model:
    """The state of all limits."""

    def __init__(self) -> None:
        self.kept: dict[str, Kept] = {}
        self.taken: list[Taken] = []
        self.known: dict[str, Known] = {}

    @property
    def retention(self) -> float:
        """Seconds for which a lease is remembered after its last request."""
        limits = [kept.limit for kept in self.kept.values()]
        return max([MIN_RETENTION, *(one.window or one.timeout or 0 for one in limits)])

    def advance(self, now: float) -> None:
        """End everything that is due. Called first at an instant."""
        for lease_id, known in list(self.known.items()):
            if known.requested_at + self.retention <= now:
                del self.known[lease_id]
                self._abandon(known)
        for one in self.taken:
            limit = self.kept[one.key].limit
            span = limit.window or limit.timeout
            if one.state == "counted" and span is not None and one.at + span <= now:
                one.state = "over"
                one.holder.lost_hold |= limit.kind == "concurrency"
        for key, kept in self.kept.items():
            while kept.limit.reset is not None and kept.began_at + kept.limit.reset <= now:
                kept.began_at += kept.limit.reset
                for one in self._settled(key):
                    if one.settled_at < kept.began_at:
                        one.state = "over"
        self._decrease()

    def expect(self, ask: LeaseRequest, now: float) -> Expected:
        """Return the expected answer to a reserve."""
        needs = {one.key: one.amount for one in ask.requirements}
        if not _has_sense(ask):
            return Expected(reason="invalid_request")
        if (known := self.known.get(ask.lease_id)) is not None:
            return _repeated(known, needs)
        return self._expect_anew(needs, now)

    def _expect_anew(self, needs: dict[str, int], now: float) -> Expected:
        if unknown := [key for key in needs if key not in self.kept]:
            return Expected(reason="unknown_limit_key", keys=tuple(unknown))
        counted = {key: n for key, n in needs.items() if self.kind(key) != "concurrency"}
        if large := [key for key, n in counted.items() if n > self.target(key)]:
            return Expected(reason="exceeds_capacity", keys=tuple(large))
        if spent := [
            key
            for key, n in needs.items()
            if self.kind(key) == "budget" and self.settled(key) + n > self.target(key)
        ]:
            return Expected(reason="budget_exhausted", keys=tuple(spent))
        short = [key for key, n in needs.items() if not self.has_room(key, n, now)]
        if not short:
            return Expected(granted_at=now)
        decreasing = [key for key in needs if self.kept[key].pending is not None]
        exact = [self.exact_wait(key, needs[key], now) for key in short]
        return Expected(
            reason="limit_decreasing" if decreasing else "no_capacity",
            keys=tuple(decreasing or short),
            least_wait=max([wait for wait in exact if wait is not None], default=0.0),
            most_wait=max(2.0 if wait is None else wait for wait in exact),
        )

    def reserved(self, ask: LeaseRequest, answer: Granted | Denied, now: float) -> None:
        """Record an answer that was as expected."""
        if isinstance(answer, Denied) and answer.reason == "invalid_request":
            return
        known = self.known.get(ask.lease_id)
        if known is not None:
            if isinstance(answer, Granted):
                known.requested_at = now
            return
        needs = {one.key: one.amount for one in ask.requirements}
        granted = isinstance(answer, Granted)
        holder = self.known[ask.lease_id] = Known(needs, answer, now, is_open=granted)
        if granted:
            for key, amount in needs.items():
                size = 1 if self.kind(key) == "concurrency" else amount
                holder.taken.append(Taken(key, holder, size, now))
            self.taken += holder.taken

    def complete(self, settlement: Settlement, now: float) -> None:
        """End a lease."""
        known = self.known.get(settlement.lease_id)
        if known is None or not known.is_open:
            return
        known.is_open, known.requested_at = False, now
        actuals = {actual.key: actual.amount for actual in settlement.actuals}
        for one in known.taken:
            self._settle(one, actuals.get(one.key, one.amount), now)
        self._decrease()

    def extend(self, lease_id: str, now: float) -> bool:
        """Extend the holds of a lease."""
        known = self.known.get(lease_id)
        if known is None or not known.is_open or known.lost_hold:
            return False
        known.requested_at = now
        for one in known.taken:
            if self.kind(one.key) == "concurrency":
                one.at = now
        return True

    def forget_denials(self) -> None:
        """Forget denials, so that their ids may be used again."""
        for lease_id, known in list(self.known.items()):
            if isinstance(known.answer, Denied):
                del self.known[lease_id]

    def define(self, limit: SharedLimit, now: float) -> None:
        """Create or change a limit, except for its kind."""
        kept = self.kept.get(limit.key)
        if kept is None:
            self.kept[limit.key] = Kept(limit, now)
            return
        if limit.reset != kept.limit.reset:
            kept.began_at = now
        if limit.capacity >= kept.limit.capacity:
            kept.limit, kept.pending = limit, None
        else:
            kept.pending = limit.capacity
            kept.limit = attrs.evolve(limit, capacity=kept.limit.capacity)
        self.advance(now)

    def state(self, key: str, now: float) -> LimitState:
        """Return the state of a limit."""
        kept = self.kept[key]
        is_budget = kept.limit.kind == "budget"
        return LimitState(
            limit=kept.limit,
            status="active" if kept.pending is None else "decreasing",
            pending_capacity=kept.pending,
            used=self.settled(key) if is_budget else self.used(key),
            outstanding=self.used(key) - self.settled(key) if is_budget else 0,
            debt=kept.debt,
            paused_until=kept.paused_until if kept.paused_until > now else None,
            began_at=None if kept.limit.reset is None else kept.began_at,
        )

    def kind(self, key: str) -> str:
        """Return the kind of a limit."""
        return self.kept[key].limit.kind

    def used(self, key: str) -> int:
        """Return the sum of the amounts that count."""
        return sum(one.amount for one in self.taken if one.key == key and one.state != "over")

    def settled(self, key: str) -> int:
        """Return the settled amount of a budget."""
        return sum(one.amount for one in self._settled(key))

    def target(self, key: str) -> int:
        """Return the pending capacity, or else the one in effect."""
        kept = self.kept[key]
        return kept.limit.capacity if kept.pending is None else kept.pending

    def has_room(self, key: str, amount: int, now: float) -> bool:
        """Return whether an amount can be taken now."""
        kept = self.kept[key]
        size = 1 if kept.limit.kind == "concurrency" else amount
        fits = self.used(key) + size <= kept.limit.capacity
        return fits and kept.pending is None and kept.paused_until <= now

    def exact_wait(self, key: str, amount: int, now: float) -> float | None:
        """Return the seconds until there is room by itself; None if unknown."""
        kept = self.kept[key]
        pause = max(0.0, kept.paused_until - now)
        size = 1 if kept.limit.kind == "concurrency" else amount
        if kept.pending is None and self.used(key) + size <= kept.limit.capacity:
            return pause
        if kept.limit.window is None:
            return None if pause <= 2.0 else pause
        ends = sorted(
            one.at + kept.limit.window
            for one in self.taken
            if one.key == key and one.state != "over"
        )
        for instant in ends:
            left = sum(
                one.amount
                for one in self.taken
                if one.key == key and one.state != "over" and one.at + kept.limit.window > instant
            )
            if left + size <= self.target(key):
                return max(pause, instant - now)
        raise AssertionError("a window that never has room")

    def _abandon(self, known: Known) -> None:
        for one in known.taken:
            if self.kind(one.key) == "budget" and one.state == "counted":
                one.state, one.settled_at = "settled", known.requested_at + self.retention

    def _settled(self, key: str) -> list[Taken]:
        return [one for one in self.taken if one.key == key and one.state == "settled"]

    def _settle(self, one: Taken, actual: int, now: float) -> None:
        kept = self.kept[one.key]
        if kept.limit.overage == "deny":
            actual = min(actual, one.amount)
        if kept.limit.kind == "concurrency":
            one.state = "over"
        elif kept.limit.kind == "budget":
            if one.state == "counted":
                one.amount, one.state, one.settled_at = actual, "settled", now
        elif actual > one.amount:
            excess = actual - one.amount
            room = max(0, kept.limit.capacity - self.used(one.key))
            fits = min(excess, room) if one.state == "counted" else 0
            one.amount += fits
            kept.debt += excess - fits
        else:
            one.amount = actual

    def _decrease(self) -> None:
        for key, kept in self.kept.items():
            if kept.pending is not None and self.used(key) <= kept.pending:
                kept.limit = attrs.evolve(kept.limit, capacity=kept.pending)
                kept.pending = None


def _has_sense(ask: LeaseRequest) -> bool:
    keys = [one.key for one in ask.requirements]
    return (
        bool(ask.lease_id.strip())
        and 1 <= len(keys) <= 32
        and len({*keys}) == len(keys)
        and all(key.strip() for key in keys)
        and all(1 <= one.amount <= 2**53 - 1 for one in ask.requirements)
    )


def _repeated(known: Known, needs: dict[str, int]) -> Expected:
    if isinstance(known.answer, Denied):
        return Expected(reason=known.answer.reason, same=known.answer)
    if not known.is_open:
        return Expected(reason="lease_completed")
    if known.lost_hold:
        return Expected(reason="lease_expired")
    if known.needs != needs:
        return Expected(reason="invalid_request")
    return Expected(granted_at=known.answer.reserved_at)
