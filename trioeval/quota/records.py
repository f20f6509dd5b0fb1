"""What is remembered of leases, and for how long.

Whoever asked may ask again about the same lease because an answer was lost, so the answer is kept: for the
longest window or timeout of all limits, and for ten minutes at least, after the lease was last heard of.
Then it is dropped, whatever became of it, and memory is bounded by what happens in such a time. By then all
holds of a lease have ended and its windows have passed.

A lease that belongs to a scope of this process is another matter: the scope ends it, however long that
takes, and nobody asks for it again. It is kept until then and not a moment longer.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeAlias

import attrs

from trioeval.quota.counter import Share
from trioeval.quota.holds import Holds
from trioeval.quota.leases import Denied, Granted, Requirement

LEAST_RETENTION = 600.0
"""Seconds for which a lease is remembered at least."""


@attrs.define(eq=False)
class Lease:
    """One that is granted and not over."""

    requirements: tuple[Requirement, ...]
    granted: Granted
    shares: list[Share]
    """In the order of the requirements."""
    held: bool
    """Whether it belongs to a scope of this process."""
    heard_at: float

    @property
    def keys(self) -> tuple[str, ...]:
        """The limits that it has shares of."""
        return tuple([one.key for one in self.requirements])

    @property
    def has_expired(self) -> bool:
        """Whether one of its holds has ended."""
        return any(not share.counted and type(share.counter) is Holds for share in self.shares)


@attrs.define(eq=False)
class Closed:
    """One that is over, or was denied."""

    answer: Denied
    """What whoever asks for it is told."""
    heard_at: float


Record: TypeAlias = Lease | Closed


@attrs.define(eq=False)
class Records:
    """Those that are remembered, by lease id."""

    _retention: float = attrs.field(init=False, default=LEAST_RETENTION)
    """Seconds after which one is dropped that was not heard of."""
    _retained_at: float = attrs.field(init=False, default=-math.inf)
    """Since when that holds; nothing was due by it before."""
    _due_at: float = attrs.field(init=False, default=-math.inf)
    """Before this instant nothing is to be dropped."""
    _held: dict[str, Lease] = attrs.field(init=False, factory=dict)
    _live: OrderedDict[str, Lease] = attrs.field(init=False, factory=OrderedDict)
    """Those that are not held, in the order in which they were heard of last."""
    _closed: OrderedDict[str, Closed] = attrs.field(init=False, factory=OrderedDict)
    """Likewise."""

    def __len__(self) -> int:
        return len(self._held) + len(self._live) + len(self._closed)

    @property
    def live(self) -> Mapping[str, Lease]:
        """Those that are not held and not over, in the order in which they were heard of last."""
        return self._live

    @property
    def closed(self) -> Mapping[str, Closed]:
        """Those that are over or were denied, in the same order."""
        return self._closed

    def find(self, lease_id: str) -> Record | None:
        """What is remembered of a lease. Those that are due must be dropped before."""
        return self._closed.get(lease_id) or self.lease(lease_id)

    def lease(self, lease_id: str) -> Lease | None:
        """Likewise, if it is not over."""
        return self._live.get(lease_id) or self._held.get(lease_id)

    def add(self, lease_id: str, lease: Lease) -> None:
        """Remember a lease that is granted now."""
        if lease.held:
            self._held[lease_id] = lease
        else:
            self._live[lease_id] = lease

    def hear(self, lease_id: str, lease: Lease, now: float) -> None:
        """Remember it for longer."""
        if not lease.held:
            lease.heard_at = now
            self._live.move_to_end(lease_id)

    def close(self, lease_id: str, lease: Lease, answer: Denied, now: float) -> None:
        """It is over; whoever asks for it is told so."""
        if lease.held:
            del self._held[lease_id]
        else:
            del self._live[lease_id]
            self.deny(lease_id, answer, now)

    def deny(self, lease_id: str, answer: Denied, now: float) -> None:
        """Remember that a lease was denied."""
        self._closed[lease_id] = Closed(answer, now)

    def retain(self, retention: float, now: float) -> None:
        """From now on, keep what is not heard of for so many seconds."""
        self._retention, self._retained_at, self._due_at = retention, now, -math.inf

    def left_at(self) -> float:
        """The instant at which the next lease is dropped that nobody has ended; infinite if there is none."""
        return _first_heard_at(self._live) + self._retention

    def drop(self, now: float) -> list[tuple[Lease, float]]:
        """Drop what is due; gives the leases among it that nobody has ended, and since when each was due."""
        left: list[tuple[Lease, float]] = []
        if now < self._due_at:
            return left
        live, closed, retention = self._live, self._closed, self._retention
        while _first_heard_at(closed) + retention <= now:
            closed.popitem(last=False)
        while _first_heard_at(live) + retention <= now:
            _, lease = live.popitem(last=False)
            left.append((lease, max(lease.heard_at + retention, self._retained_at)))
        # What is not here yet will be heard of now or later.
        self._due_at = min(now, _first_heard_at(live), _first_heard_at(closed)) + retention
        return left


def _first_heard_at(records: OrderedDict[str, Lease] | OrderedDict[str, Closed]) -> float:
    return records[next(iter(records))].heard_at if records else math.inf
