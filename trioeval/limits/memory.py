"""Limits kept in this process: waiting calls are served in the very step in which room appears.

Every step that may make room (a lease ends, a limit is changed or resumed, a share expires) serves the
waiters before it returns: it takes their leases for them and wakes exactly these. So nothing polls, no
wake-up is wasted, and no lease is free while a waiter could have it. Room that appears by itself needs a
timer: the first waiter has it, so no timer runs while nothing waits.

The lease of a permit belongs to its call. Its holds do not expire while the call runs, however long that
takes, and end in the step in which the call ends.

Rejected: a background task (it would need an owner), and a condition that wakes all waiters to look (512
waiters would look 512 times for each of 512 leases).

Laws: LEASE, EAGER.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import attrs
import trio

from trioeval.errors import LimitError
from trioeval.kernel import Permits, Shortage
from trioeval.limits.backend import LanePermits, nothing_of, requirements_of
from trioeval.limits.denials import check_pause, denial_error, request_denial
from trioeval.limits.ledger import LimitLedger
from trioeval.limits.model import (
    Actual,
    Decision,
    Denied,
    Granted,
    LeaseRequest,
    LimitKey,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
)
from trioeval.limits.waiting import LimitWaiter, Room, WaitingOrder

# A call that waits for its lease, in a queue that other tasks serve.
#
# The task that makes room sets the end of the wait, and the waiter finds it when it wakes. One of the waiters
# also has a timer, for room that appears by itself; it can be set while that waiter sleeps.


@attrs.define(eq=False, repr=False)
class LeaseWaiter(LimitWaiter):
    """A call that waits for its lease."""

    job_id: str
    requirements: tuple[Requirement, ...]
    _on_shortage: Callable[[Shortage], None]
    reported: Shortage | None = None
    """The last reported reason for waiting."""
    end: LeaseRequest | LimitError | None = None
    """The granted request, or the terminal error; None while it waits."""
    wake_at: float = math.inf
    """The instant at which it looks for expired shares on behalf of all waiters."""
    _over: trio.Event = attrs.field(factory=trio.Event)
    _scope: trio.CancelScope | None = None

    def set_timer(self, wake_at: float) -> None:
        """Let this waiter look for expired shares at an instant."""
        if wake_at != self.wake_at:
            self.wake_at = wake_at
            if self._scope is not None:
                self._scope.deadline = wake_at

    def report(self, shortage: Shortage) -> None:
        """Report the reason for waiting."""
        self.reported = shortage
        self._on_shortage(shortage)

    def serve(self, end: LeaseRequest | LimitError) -> None:
        """End the wait."""
        self.end = end
        self._over.set()

    async def wait(self) -> LeaseRequest | LimitError | None:
        """Sleep until the wait is over; None when the timer fires. A checkpoint."""
        with trio.CancelScope(deadline=self.wake_at) as self._scope:
            await self._over.wait()
        # Does not check how the sleep ended: the waiter may have been served in that very step.
        return self.end


@attrs.frozen
class MemoryStatistics:
    """A snapshot of a `MemoryLimits`."""

    leases: int
    """Permits that are neither settled nor given back."""
    waiting: int
    """Calls that wait for a permit."""
    granted: int
    """Permits granted so far."""


class MemoryLimits:
    """The limits of this process, for its own lanes, and a `Backend` for servers.

    Must be used within one `trio.run`.

    Args:
        states: The limits, with their usage if known. Earlier usage counts from now on.
        now: The instant of these states, in seconds on the Trio clock; None for the current one.

    Raises:
        LimitError: `invalid_request`: two limits have the same key.

    Example:
        >>> async def main():
        ...     limits = MemoryLimits(
        ...         [SharedLimit(key="calls", kind="concurrency", capacity=1, timeout=60)]
        ...     )
        ...     permits = limits.permits("model", [LimitKey("calls", "slots")])
        ...     permit = await permits.take(0, 0, 0.0, print)
        ...     assert permits.take_nowait(1, 0, 0.0) is None
        ...     permit.settle(0, 0.0)
        ...     return limits
        >>> trio.run(main)
        <MemoryLimits: 0 leases, 0 waiting>
    """

    def __init__(
        self, states: Iterable[LimitState | SharedLimit] = (), *, now: float | None = None
    ) -> None:
        known = [one if isinstance(one, LimitState) else LimitState(limit=one) for one in states]
        self._ledger = LimitLedger(known, trio.current_time() if now is None else now)
        self._order = WaitingOrder[LeaseWaiter]()
        self._waiting: OrderedDict[LeaseWaiter, None] = OrderedDict()
        """By arrival; the first has the timer."""
        self._awaited: set[str] = set()
        """Keys that a call waits for."""
        self._leases = self._granted = 0

    def __repr__(self) -> str:
        return f"<MemoryLimits: {self._leases} leases, {len(self._waiting)} waiting>"

    def statistics(self) -> MemoryStatistics:
        """Return a snapshot. Not a checkpoint."""
        return MemoryStatistics(self._leases, len(self._waiting), self._granted)

    def permits(self, lane: str, keys: Sequence[LimitKey]) -> Permits:
        """Return the permits that the calls of one lane acquire; see `SharedLimits`.

        Raises:
            LimitError: `invalid_request`: a key is blank or occurs twice, or there are none or too many.
        """
        wrong = request_denial(LeaseRequest("a call of it", lane, requirements_of(keys, 0, 0.0)))
        if wrong is not None:
            raise denial_error(wrong)
        return LanePermits(self, lane, tuple(keys))

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        """Decide about each request. A checkpoint. See `Backend`.

        A lease that would overtake a waiter of this process is denied.
        """
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        return [self._ledger.reserve(ask, now, behind=self._passed(now)) for ask in asks]

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        """End leases. A checkpoint. See `Backend`."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        for settlement in settlements:
            self._news(self._ledger.complete(settlement, now), now)

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        """Postpone the expiry of the holds of leases. A checkpoint. See `Backend`."""
        await trio.lowlevel.checkpoint()
        return self._ledger.extend(lease_ids, trio.current_time())

    async def states(self) -> Sequence[LimitState]:
        """Return all limits, by key. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return self._ledger.states(trio.current_time())

    async def define(self, limit: SharedLimit, /) -> LimitState:
        """Create or change a limit. A checkpoint. See `Backend`.

        Raises:
            LimitError: `invalid_request`: it exists with another kind, or it is out of range.
        """
        await trio.lowlevel.checkpoint()
        limit.check()
        now = trio.current_time()
        state = self._ledger.define(limit, now)
        self._refuse({limit.key}, now)
        self._serve(now, anew=True)
        return state

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        """Grant nothing of a limit for `seconds`; 0 resumes it. A checkpoint.

        Raises:
            LimitError: `unknown_limit_key`; `invalid_request`: `seconds` is out of range.
        """
        await trio.lowlevel.checkpoint()
        check_pause(key, seconds)
        now = trio.current_time()
        state = self._ledger.pause(key, now + seconds, now)
        self._serve(now)
        return state

    async def remove(self, key: str, /) -> None:
        """Remove a limit; its waiters are denied. A checkpoint. See `Backend`."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        self._ledger.remove(key, now)
        self._refuse({key}, now)
        self._serve(now)

    def take_nowait(
        self, job_id: str, requirements: tuple[Requirement, ...]
    ) -> LeaseRequest | None:
        """Return a lease that is available at once without overtaking a waiter, or None; for permits.

        Raises:
            LimitError: It will never be granted.
        """
        now = trio.current_time()
        denied = self._ledger.check(requirements, now)
        if denied is not None:
            if denied.terminal:
                raise denial_error(denied)
            return None
        if self._waiting and self._order.obstacles(self._needs(requirements), self._room(now)):
            return None
        return self._take(job_id, requirements, now)

    async def take(
        self,
        job_id: str,
        requirements: tuple[Requirement, ...],
        on_shortage: Callable[[Shortage], None],
    ) -> LeaseRequest:
        """Wait for a lease, for a permit. A checkpoint; a cancelled call keeps nothing.

        Raises:
            LimitError: It will never be granted.
        """
        now = trio.current_time()
        denied = self._ledger.check(requirements, now)
        if denied is not None and denied.terminal:
            await trio.lowlevel.checkpoint()
            raise denial_error(denied)
        waiter = LeaseWaiter(self._needs(requirements), job_id, requirements, on_shortage)
        keys = self._order.obstacles(waiter.needs, self._room(now))
        self._waiting[self._order.join(waiter)] = None
        handed_over = False
        try:
            if keys:
                self._await(keys, now)
                waiter.report(self._shortage(denied, keys, now))
            else:
                self._order.leave(waiter)
                self._start(waiter, now)
            while (end := await waiter.wait()) is None:
                self._news(self._awaited, trio.current_time())
            if isinstance(end, LimitError):
                raise end
            handed_over = True
            return end
        finally:
            if not handed_over:
                self._withdraw(waiter)

    def end(self, ask: LeaseRequest, actuals: tuple[Actual, ...]) -> None:
        """End the lease of a permit. Not a checkpoint."""
        self._leases -= 1
        now = trio.current_time()
        self._news(self._ledger.complete(Settlement(ask.lease_id, ask.job_id, actuals), now), now)

    def _take(self, job_id: str, requirements: tuple[Requirement, ...], now: float) -> LeaseRequest:
        """Take a lease, for which there must be room."""
        ask = LeaseRequest(f"this process/{self._granted}", job_id, requirements)
        decision = self._ledger.reserve(ask, now, is_held=True)
        if not isinstance(decision, Granted):
            msg = f"the room for {requirements} was not granted: {decision}; please report this"
            raise RuntimeError(msg)  # noqa: TRY004 - no argument is wrong
        self._leases += 1
        self._granted += 1
        return ask

    def _start(self, waiter: LeaseWaiter, now: float) -> None:
        """Grant the lease of a waiter that has left the queue."""
        del self._waiting[waiter]
        waiter.serve(self._take(waiter.job_id, waiter.requirements, now))

    def _withdraw(self, waiter: LeaseWaiter) -> None:
        """Remove a cancelled waiter without trace."""
        if isinstance(waiter.end, LeaseRequest):  # granted in the step in which it was cancelled
            self.end(waiter.end, nothing_of(waiter.requirements))
        elif waiter in self._waiting:
            self._drop(waiter)
            self._serve(trio.current_time())

    def _drop(self, waiter: LeaseWaiter) -> None:
        self._order.leave(waiter)
        del self._waiting[waiter]

    def _news(self, keys: Iterable[str], now: float) -> None:
        """Serve the waiters after some limits got more room, or a budget got less."""
        if self._waiting:
            self._refuse(set(filter(self._is_budget, keys)), now)
            self._serve(now)

    def _refuse(self, keys: set[str], now: float) -> None:
        """Deny the waiters for these limits that can never be granted any more."""
        if not keys:
            return
        for waiter in list(self._waiting):
            if waiter.keys.isdisjoint(keys):
                continue
            denied = self._ledger.check(waiter.requirements, now)
            if denied is not None and denied.terminal:
                self._drop(waiter)
                waiter.serve(denial_error(denied))

    def _serve(self, now: float, *, anew: bool = False) -> None:
        """Grant all leases that may be granted; report to the other waiters why they wait."""
        blocked = self._order.serve(self._room(now), partial(self._start, now=now))
        self._awaited.clear()
        self._await({key for _, keys in blocked for key in keys}, now)
        for waiter, keys in blocked:
            self._report(waiter, keys, now, anew=anew)

    def _await(self, keys: Iterable[str], now: float) -> None:
        """Set the timer of the first waiter to the instant at which one of these limits may get room.

        Limits of leases that are granted later are not included, because no call waits for them.
        """
        new = set(keys) - self._awaited
        if not self._waiting:
            return
        first = next(iter(self._waiting))
        wake_at = self._ledger.next_at(now, new) if new else math.inf
        first.set_timer(min(wake_at, first.wake_at) if self._awaited else wake_at)
        self._awaited |= new

    def _report(
        self, waiter: LeaseWaiter, keys: tuple[str, ...], now: float, *, anew: bool
    ) -> None:
        """Report why a call waits, if that has changed, or if it was not served at its announced instant."""
        reported = waiter.reported
        due = reported is not None and reported.until is not None and reported.until <= now
        # A limit starts to decrease when it is redefined, and at no other time.
        if (
            reported is not None
            and reported.keys == keys
            and reported.kind == "rate_limit"
            and not anew
            and not due
        ):
            return
        shortage = self._shortage(self._ledger.check(waiter.requirements, now), keys, now)
        if reported is None or due or (reported.kind, reported.keys) != (shortage.kind, keys):
            waiter.report(shortage)

    def _shortage(self, denied: Denied | None, keys: tuple[str, ...], now: float) -> Shortage:
        if denied is None:
            return Shortage("rate_limit", keys)  # only earlier waiters are in its way
        kind: Literal["limit_decreasing", "rate_limit"]
        kind = "limit_decreasing" if denied.reason == "limit_decreasing" else "rate_limit"
        until = now + denied.retry_after if all(self._is_timed(key, now) for key in keys) else None
        return Shortage(kind, keys, until)

    def _is_timed(self, key: str, now: float) -> bool:
        """Return whether the time of the next room of a limit is known, if nothing is returned before."""
        limit = self._ledger.limit(key)
        return (limit is not None and limit.kind == "rolling") or self._ledger.room(
            key, now
        ) is None

    def _is_budget(self, key: str) -> bool:
        limit = self._ledger.limit(key)
        return limit is not None and limit.kind == "budget"

    def _passed(self, now: float) -> Callable[[Sequence[Requirement]], tuple[str, ...]] | None:
        """Return a function that names the limits on which another lease would overtake a waiter."""
        if not self._waiting:
            return None
        room = self._room(now)
        return lambda requirements: self._order.obstacles(self._needs(requirements), room)

    def _room(self, now: float) -> Room:
        return partial(self._ledger.room, now=now)

    def _needs(self, requirements: Iterable[Requirement]) -> dict[str, int]:
        """Return the amounts that a lease takes: one hold of a concurrency limit, whatever it requests."""
        return {one.key: self._amount(one) for one in requirements}

    def _amount(self, requirement: Requirement) -> int:
        limit = self._ledger.limit(requirement.key)
        return 1 if limit is not None and limit.kind == "concurrency" else requirement.amount
