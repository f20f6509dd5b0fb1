"""All limits, their usage, and the live leases: decides at once, without waiting.

The backends of this process put this behind their waiting; the rules are only here. A lease gets all of its
requirements or none: first all are checked, then all are taken, with nothing in between. Terminal denials are
reported before transient ones.

Everything is synchronous and takes `now`, in seconds on one clock, which never decreases. Expired shares are
found when a limit is read; a lease costs O(its requirements).

Laws: a window, and the number of holds, never exceed their capacity; a denial takes nothing; the same request
gets the same answer and takes nothing again; a lease ends once.
"""

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from trioeval.limits.counters import (
    BudgetCounter,
    ConcurrencyCounter,
    Counter,
    LeaseShare,
    WindowCounter,
)
from trioeval.limits.denials import (
    Lack,
    denied,
    duplicate_key,
    kind_mismatch,
    request_denial,
    requirements_mismatch,
    terminal_denial,
    unknown_limit,
)
from trioeval.limits.json import from_json, state_data
from trioeval.limits.model import (
    Denied,
    Granted,
    Kind,
    LeaseRequest,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
)

# A client repeats a request whose answer was lost, so answers are kept: for the longest window or timeout of
# all limits, and at least for ten minutes, after the last request about the lease. Then they are dropped in
# any case, so memory is bounded by the requests of that time. By then all holds of a lease have ended, and
# its windows have passed.
#
# A lease that belongs to a scope of this process is kept until that scope ends, and no longer.

MIN_RETENTION = 600.0
"""Seconds for which a lease is remembered at least."""


@attrs.define(eq=False, repr=False)
class Lease:
    """A lease that is granted and not over."""

    requirements: tuple[Requirement, ...]
    granted: Granted
    shares: list[LeaseShare]
    """In the order of the requirements."""
    is_held: bool
    """True if it belongs to a scope of this process."""
    requested_at: float

    @property
    def keys(self) -> tuple[str, ...]:
        """The limits that it has shares of."""
        return tuple([one.key for one in self.requirements])

    @property
    def has_expired(self) -> bool:
        """True if one of its holds has ended."""
        return any(
            not share.counted and type(share.counter) is ConcurrencyCounter for share in self.shares
        )


@attrs.define(eq=False, repr=False)
class ClosedLease:
    """A lease that is over, or was denied."""

    answer: Denied
    """The answer to further requests about it."""
    requested_at: float


Record: TypeAlias = Lease | ClosedLease


@attrs.define(eq=False, repr=False)
class LeaseRecords:
    """The remembered leases, by id."""

    _retention: float = attrs.field(init=False, default=MIN_RETENTION)
    """Seconds without a request after which a lease is dropped."""
    _retained_at: float = attrs.field(init=False, default=-math.inf)
    """Start of that retention; nothing was due by it before."""
    _due_at: float = attrs.field(init=False, default=-math.inf)
    """Nothing is dropped before this instant."""
    _held_leases: dict[str, Lease] = attrs.field(init=False, factory=dict)
    _live: OrderedDict[str, Lease] = attrs.field(init=False, factory=OrderedDict)
    """Live leases that are not held, in the order of their last requests."""
    _closed: OrderedDict[str, ClosedLease] = attrs.field(init=False, factory=OrderedDict)
    """Closed leases, in the order of their last requests."""

    def __len__(self) -> int:
        return len(self._held_leases) + len(self._live) + len(self._closed)

    @property
    def live(self) -> Mapping[str, Lease]:
        """Live leases that are not held, in the order of their last requests."""
        return self._live

    @property
    def closed(self) -> Mapping[str, ClosedLease]:
        """Closed leases, in the order of their last requests."""
        return self._closed

    def find(self, lease_id: str) -> Record | None:
        """Return the record of a lease. Leases that are due must have been dropped."""
        return self._closed.get(lease_id) or self.lease(lease_id)

    def lease(self, lease_id: str) -> Lease | None:
        """Return a lease that is not over. Leases that are due must have been dropped."""
        return self._live.get(lease_id) or self._held_leases.get(lease_id)

    def add(self, lease_id: str, lease: Lease) -> None:
        """Add a lease that is granted now."""
        if lease.is_held:
            self._held_leases[lease_id] = lease
        else:
            self._live[lease_id] = lease

    def touch(self, lease_id: str, lease: Lease, now: float) -> None:
        """Restart the retention of a lease."""
        if not lease.is_held:
            lease.requested_at = now
            self._live.move_to_end(lease_id)

    def close(self, lease_id: str, lease: Lease, answer: Denied, now: float) -> None:
        """Close a lease; further requests about it get `answer`."""
        if lease.is_held:
            del self._held_leases[lease_id]
        else:
            del self._live[lease_id]
            self.deny(lease_id, answer, now)

    def deny(self, lease_id: str, answer: Denied, now: float) -> None:
        """Record that a lease was denied."""
        self._closed[lease_id] = ClosedLease(answer, now)

    def retain(self, retention: float, now: float) -> None:
        """Set the retention from now on."""
        self._retention, self._retained_at, self._due_at = retention, now, -math.inf

    def left_at(self) -> float:
        """Return the instant at which the next live lease is dropped; infinite without one."""
        return _first_requested_at(self._live) + self._retention

    def drop(self, now: float) -> list[tuple[Lease, float]]:
        """Drop what is due; return the live leases among it, and the instant since which each was due."""
        left: list[tuple[Lease, float]] = []
        if now < self._due_at:
            return left
        live, closed, retention = self._live, self._closed, self._retention
        while _first_requested_at(closed) + retention <= now:
            closed.popitem(last=False)
        while _first_requested_at(live) + retention <= now:
            _, lease = live.popitem(last=False)
            left.append((lease, max(lease.requested_at + retention, self._retained_at)))
        # Later records get requests now or later.
        self._due_at = min(now, _first_requested_at(live), _first_requested_at(closed)) + retention
        return left


def _first_requested_at(records: OrderedDict[str, Lease] | OrderedDict[str, ClosedLease]) -> float:
    return records[next(iter(records))].requested_at if records else math.inf


Json: TypeAlias = dict[str, Any]
_COUNTERS: Mapping[Kind, type[Counter]] = {
    "rolling": WindowCounter,
    "concurrency": ConcurrencyCounter,
    "budget": BudgetCounter,
}
_COMPLETED = denied("lease_completed")
_EXPIRED = denied("lease_expired")


@attrs.frozen
class Snapshot:
    """The state of a ledger, without denials, as plain data for JSON."""

    at: float
    """The instant at which it was taken."""
    limits: list[Json]
    """The state of each limit, its shares as amounts and instants, and `is_removed`: leases may still hold a
    share of a removed limit."""
    leases: list[list[Any]]
    """Id, instant of the grant, and of the last request; for each requirement the number of its limit, the
    amount, and its position among the shares of the limit, or None."""
    completed: list[list[Any]]
    """Id, and instant of the last request."""

    @property
    def is_plain(self) -> bool:
        """True if it adds nothing to the states of its limits."""
        is_used = any(one["shares"] or one["paused_until"] for one in self.limits)
        return not (is_used or self.leases or self.completed)


class LimitLedger:
    """The state of all limits.

    Args:
        states: The initial states. Earlier usage still counts: that of a window as if it were taken now,
            holds until their timeout, and outstanding amounts of a budget as settled.
        now: The instant of these states, in seconds.

    Raises:
        LimitError: `invalid_request`: two of them have the same key.

    Example:
        >>> rpm = SharedLimit(key="rpm", kind="rolling", capacity=1, window=60)
        >>> ledger, one = LimitLedger([LimitState(limit=rpm)]), (Requirement("rpm", 1),)
        >>> ledger.reserve(LeaseRequest("lease-1", "job-1", one), now=0)
        Granted(reserved_at=0)
        >>> ledger.reserve(LeaseRequest("lease-2", "job-2", one), now=15).retry_after
        45
    """

    def __init__(self, states: Iterable[LimitState] = (), now: float = 0.0) -> None:
        self._counters: dict[str, Counter] = {}
        self._records = LeaseRecords()
        for state in states:
            self.add(state, now)

    def reserve(
        self,
        ask: LeaseRequest,
        now: float,
        *,
        is_held: bool = False,
        behind: Callable[[Sequence[Requirement]], Sequence[str]] | None = None,
    ) -> Granted | Denied:
        """Grant or deny a lease. A repeated request gets the first answer again.

        Args:
            ask: The request.
            now: The instant.
            is_held: A scope of this process ends the lease: its holds do not expire, and it is forgotten as
                soon as it is over or denied.
            behind: Called before a grant; returns the limits at which earlier requests wait, which then
                count as full.
        """
        if (wrong := request_denial(ask)) is not None:
            return wrong
        self._drop(now)
        records, requirements = self._records, ask.requirements
        if (record := records.find(ask.lease_id)) is not None:
            return self._repeated(ask, record, now)
        refusal = self._refusal(requirements, now)
        if refusal is None and behind is not None and (keys := behind(requirements)):
            hint = max(self._counters[key].hint() for key in keys)
            refusal = denied("no_capacity", keys, hint)
        if refusal is not None:
            for key in () if refusal.terminal else refusal.keys:
                self._counters[key].streak += 1
            if not is_held:
                records.deny(ask.lease_id, refusal, now)
            return refusal
        counters = self._counters
        shares = [counters[one.key].take(one.amount, now, is_held=is_held) for one in requirements]
        granted = Granted(now)
        records.add(ask.lease_id, Lease(requirements, granted, shares, is_held, now))
        return granted

    def check(self, requirements: Sequence[Requirement], now: float) -> Denied | None:
        """Return the denial of a new lease with these requirements; None if it would be granted.

        Changes nothing. The requirements must be valid by themselves.
        """
        self._drop(now)
        return self._refusal(requirements, now)

    def complete(self, settlement: Settlement, now: float) -> tuple[str, ...]:
        """End a lease; one that is unknown or over is ignored.

        Actual amounts of limits that it has no share of are ignored.

        Returns:
            The limits that may have more room now.
        """
        actuals = {actual.key: actual.amount for actual in settlement.actuals}
        if (lease := self._close(settlement.lease_id, now)) is None:
            return ()
        for one, share in zip(lease.requirements, lease.shares, strict=True):
            share.counter.refresh(now)
            share.counter.settle(share, actuals.get(one.key))
        return lease.keys

    def extend(self, lease_ids: Iterable[str], now: float) -> list[bool]:
        """Restart the timeouts of all holds of leases.

        Returns:
            For each lease, in order: False if it is unknown or over, or one of its holds has ended.
        """
        self._drop(now)
        return [self._extend(lease_id, now) for lease_id in lease_ids]

    def add(self, state: LimitState, now: float) -> None:
        """Add a limit in a given state.

        Raises:
            LimitError: `invalid_request`: the key exists.
        """
        key = state.limit.key
        if key in self._counters:
            raise duplicate_key(key)
        self._counters[key] = _counter_of(state, now)
        self._retain(now)

    def define(self, limit: SharedLimit, now: float) -> LimitState:
        """Create or change a limit; a smaller capacity takes effect once that much is free.

        All other changes, such as of a window, apply at once to what is already taken.

        Raises:
            LimitError: `invalid_request`: the key exists with another kind.
        """
        self._drop(now)
        counter = self._counters.get(limit.key)
        if counter is None:
            counter = self._counters[limit.key] = _counter_of(LimitState(limit=limit), now)
        elif counter.limit.kind != limit.kind:
            raise kind_mismatch(limit, counter.limit.kind)
        else:
            counter.refresh(now)
            counter.define(limit, now)
            counter.refresh(now)
        self._retain(now)
        return counter.state(now)

    def pause(self, key: str, until: float, now: float) -> LimitState:
        """Grant nothing of a limit before an instant; an instant not after `now` resumes it.

        Raises:
            LimitError: `unknown_limit_key`.
        """
        counter = self._counter(key, now)
        counter.paused_until = until
        return counter.state(now)

    def remove(self, key: str, now: float) -> None:
        """Remove a limit. Shares of it end with their leases, and count nowhere.

        Raises:
            LimitError: `unknown_limit_key`.
        """
        self._counter(key, now)
        del self._counters[key]
        self._retain(now)

    def next_at(self, now: float, keys: Iterable[str] | None = None) -> float:
        """Return the earliest instant after `now` at which the answer to a lease may change by itself.

        A share expires, a pause ends, a budget resets, or an outstanding share counts as used because its
        lease is dropped. Infinite if no such change is due.

        Args:
            now: The instant.
            keys: The limits to look at; None for all. Unknown keys are ignored.
        """
        self._drop(now)
        found = math.inf
        for key in self._counters if keys is None else keys:
            if (counter := self._counters.get(key)) is not None:
                counter.refresh(now)
                paused = counter.paused_until
                found = min(found, counter.next_at(), paused if paused > now else math.inf)
                if isinstance(counter, BudgetCounter) and counter.outstanding:
                    found = min(found, self._records.left_at())
        return found

    def room(self, key: str, now: float) -> int | None:
        """Return the amount of a limit that could be taken now, ≥ 0; None while it is paused.

        Raises:
            LimitError: `unknown_limit_key`.
        """
        counter = self._counter(key, now)
        if counter.paused_until > now:
            return None
        return 0 if counter.pending is not None else max(0, counter.limit.capacity - counter.used)

    def limit(self, key: str) -> SharedLimit | None:
        """Return the definition of a limit; None for an unknown key."""
        counter = self._counters.get(key)
        return None if counter is None else counter.limit

    def states(self, now: float) -> list[LimitState]:
        """Return the states of all limits, by key."""
        self._drop(now)
        for counter in self._counters.values():
            counter.refresh(now)
        return [self._counters[key].state(now) for key in sorted(self._counters)]

    def __len__(self) -> int:
        """Return the number of remembered leases."""
        return len(self._records)

    def snapshot(self, now: float) -> Snapshot:
        """Return the limits, and the leases that belong to no scope of this process; without denials."""
        self._drop(now)
        leases = self._records.live
        taken = (share.counter for lease in leases.values() for share in lease.shares)
        counters = list(dict.fromkeys([*self._counters.values(), *taken]))
        limits: list[Json] = []
        place_by_share: dict[LeaseShare, int] = {}
        for counter in counters:
            counter.refresh(now)
            shares = counter.listed()
            place_by_share.update(zip(shares, itertools.count()))
            is_budget, state = counter.limit.kind == "budget", counter.state(now)
            reduced = attrs.evolve(state, used=state.used if is_budget else 0, outstanding=0)
            limits.append(
                {
                    "state": state_data(reduced),
                    "paused_until": state.paused_until,
                    "shares": [[share.amount, share.at] for share in shares],
                    "is_removed": self._counters.get(counter.limit.key) is not counter,
                }
            )
        number_by_counter = {counter: number for number, counter in enumerate(counters)}
        completed = self._records.closed.items()
        return Snapshot(
            now,
            limits,
            [
                [
                    lease_id,
                    lease.granted.reserved_at,
                    lease.requested_at,
                    [
                        [number_by_counter[share.counter], one.amount, place_by_share.get(share)]
                        for one, share in zip(lease.requirements, lease.shares, strict=True)
                    ],
                ]
                for lease_id, lease in leases.items()
            ],
            [[name, one.requested_at] for name, one in completed if one.answer is _COMPLETED],
        )

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> "LimitLedger":
        """Return the ledger in the state of a snapshot."""
        ledger = cls()
        counters: list[tuple[Counter, list[LeaseShare]]] = []
        for data in snapshot.limits:
            state = from_json(data["state"], LimitState)
            state = attrs.evolve(state, paused_until=data["paused_until"])
            counter = _counter_of(state, snapshot.at)
            shares = [LeaseShare(counter, amount, at) for amount, at in data["shares"]]
            for share in shares:
                counter.put(share)
            counters.append((counter, shares))
            if not data["is_removed"]:
                ledger._counters[state.limit.key] = counter
        for lease_id, reserved_at, requested_at, parts in snapshot.leases:
            requirements, shares = [], []
            for number, amount, place in parts:
                counter, listed = counters[number]
                requirements.append(Requirement(counter.limit.key, amount))
                if place is not None:
                    share = listed[place]
                else:
                    is_budget = isinstance(counter, BudgetCounter)
                    share = LeaseShare(counter, amount, reserved_at, counted=is_budget)
                    if is_budget:
                        counter.put(share)
                shares.append(share)
            granted = Granted(reserved_at)
            lease = Lease(
                tuple(requirements), granted, shares, is_held=False, requested_at=requested_at
            )
            ledger._records.add(lease_id, lease)
        for lease_id, requested_at in snapshot.completed:
            ledger._records.deny(lease_id, _COMPLETED, requested_at)
        ledger._retain(snapshot.at)
        return ledger

    def _repeated(self, ask: LeaseRequest, record: Record, now: float) -> Granted | Denied:
        if isinstance(record, ClosedLease):
            return record.answer
        for share in record.shares:
            share.counter.refresh(now)
        if record.has_expired:
            return _EXPIRED
        if _amounts(record.requirements) != _amounts(ask.requirements):
            return requirements_mismatch(ask.lease_id)
        self._records.touch(ask.lease_id, record, now)
        return record.granted

    def _refusal(self, requirements: Sequence[Requirement], now: float) -> Denied | None:
        for one in requirements:
            counter = self._counters.get(one.key)
            if counter is None:
                return self._denial(requirements, now)
            counter.refresh(now)
            if (
                counter.pending is not None
                or counter.paused_until > now
                or not counter.fits(one.amount)
            ):
                return self._denial(requirements, now)
        return None

    def _denial(self, requirements: Sequence[Requirement], now: float) -> Denied:
        """Return the denial of these requirements; terminal reasons come first."""
        counters = self._counters
        if unknown := [one.key for one in requirements if one.key not in counters]:
            return denied("unknown_limit_key", unknown)
        requested = [(one.key, counters[one.key], one.amount) for one in requirements]
        for _, counter, _ in requested:
            counter.refresh(now)
        if too_large := [one for one in requested if one[1].is_beyond(one[2])]:
            return terminal_denial("exceeds_capacity", [_lack(*one, now) for one in too_large])
        if spent := [one for one in requested if not one[1].may_fit(one[2])]:
            return terminal_denial("budget_exhausted", [_lack(*one, now) for one in spent])
        waits = {key: counter.wait(amount, now) for key, counter, amount in requested}
        if decreasing := [key for key, counter, _ in requested if counter.pending is not None]:
            return denied("limit_decreasing", decreasing, max(waits.values()))
        short = [key for key, wait in waits.items() if wait > 0]
        return denied("no_capacity", short, max(waits.values()))

    def _close(self, lease_id: str, now: float) -> Lease | None:
        """Close a live lease; its shares are still to be ended."""
        self._drop(now)
        lease = self._records.lease(lease_id)
        if lease is not None:
            self._records.close(lease_id, lease, _COMPLETED, now)
        return lease

    def _extend(self, lease_id: str, now: float) -> bool:
        lease = self._records.lease(lease_id)
        if lease is None:
            return False
        for share in lease.shares:
            share.counter.refresh(now)
        if lease.has_expired:
            return False
        for share in lease.shares:
            share.counter.extend(share, now)
        self._records.touch(lease_id, lease, now)
        return True

    def _drop(self, now: float) -> None:
        for lease, at in self._records.drop(now):
            for share in lease.shares:
                share.counter.refresh(now)
                share.counter.abandon(share, at)

    def _retain(self, now: float) -> None:
        limits = [counter.limit for counter in self._counters.values()]
        spans = [limit.window or limit.timeout or 0.0 for limit in limits]
        self._records.retain(max([MIN_RETENTION, *spans]), now)

    def _counter(self, key: str, now: float) -> Counter:
        counter = self._counters.get(key)
        if counter is None:
            raise unknown_limit(key)
        self._drop(now)
        counter.refresh(now)
        return counter


def _lack(key: str, counter: Counter, amount: int, now: float) -> Lack:
    return Lack(key, amount, counter.target, counter.left, counter.resets_at - now)


def _amounts(requirements: Sequence[Requirement]) -> dict[str, int]:
    return {one.key: one.amount for one in requirements}


def _counter_of(state: LimitState, now: float) -> Counter:
    counter = _COUNTERS[state.limit.kind](state.limit, state.pending_capacity, state.debt)
    if state.paused_until is not None:
        counter.paused_until = state.paused_until
    counter.restore(state, now)
    return counter
