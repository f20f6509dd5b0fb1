"""The queue of a lane, from the arrival of a waiter to the step in which nothing blocks it.

Retries go before everything else, ordered by the index of their jobs; new calls follow, first come, first
served. Only the first waiter looks at the lane, when something may have changed for it; the others sleep
until they are first. The obstacle decides how it waits: until an instant, until it is notified, among the
lanes that want a part of the cap, or for the reply to its request for a permit.

A lock that hands over in order of arrival cannot let a retry pass; a heap of timers would wake waiters that
cannot start.

**Permits** of shared limits. A permit may take one message, or a minute, and its holder uses up what others
wait for. So a call must not take a slot before it has its permit, and must not take a permit before it could
use it. The rule: only the first in the queue requests one, and only when it has no other obstacle. It keeps
its place, and holds no slot. With the permit it looks at its lane once more. If the lane is blocked by then,
it gives the permit back unused and requests one again later.

Two rules make that fair. A waiter that has requested a permit stays first, also before retries: they do not
cancel its request. And it keeps its place among the lanes that wait for the cap over all lanes, until it
learns that it has to wait: on a full cap, the time of the request would otherwise cost it its turn again and
again.

Rejected: requesting with a slot in hand (a slot would wait), requesting for all waiters (permits of calls
that their lane does not let start), keeping a permit while the lane is blocked (others would wait for
nothing).

Laws: BUDGET, LEASE.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import attrs
import trio

from trioeval.errors import LaneClosedError, PlanError
from trioeval.kernel.events import Observer, Reserving, Shortage, Waiting, WaitReason
from trioeval.kernel.reservations import CallRequest, Permits
from trioeval.rates import Breaker, Follower


@attrs.define(eq=False, repr=False)
class Cap:
    """The slots of all lanes together; created by `Lanes`.

    It is taken last and released first, so that a lane that waits for it holds nothing. Lanes that wait for
    it have their own queue, and a lane outside that queue passes none in it: a busy lane cannot keep the cap
    to itself.
    """

    total: int
    """The bound, ≥ 1."""
    _limiter: trio.CapacityLimiter = attrs.field(init=False)
    _queue: list[Follower] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        if type(self.total) is not int or self.total < 1:
            msg = f"cap must be a whole number of at least 1, got {self.total!r}"
            raise PlanError(msg)
        self._limiter = trio.CapacityLimiter(self.total)

    @property
    def idle(self) -> bool:
        """True if no call holds a part of it and no lane waits for one."""
        return not self._limiter.borrowed_tokens and not self._queue

    def admits(self, lane: Follower) -> bool:
        """Return whether a call of `lane` may start now: the lanes before it need not the last free slots."""
        before = self._queue.index(lane) if lane in self._queue else len(self._queue)
        return self._limiter.available_tokens > before

    @property
    def free(self) -> bool:
        """True if a slot is free, regardless of waiting lanes."""
        return self._limiter.available_tokens > 0

    def join(self, lane: Follower, *, again: bool = False) -> None:
        """Queue a lane whose first waiter waits for the cap and for nothing else.

        Args:
            lane: The lane.
            again: Whether it has just had its turn and could not use it: it is the next one then.
        """
        if lane not in self._queue:
            self._queue.insert(0 if again else len(self._queue), lane)

    def leave(self, lane: Follower) -> None:
        """Remove a lane from the queue."""
        if lane in self._queue:
            self._queue.remove(lane)
            self._call()

    def take(self, call: object) -> None:
        """Take a slot for `call`; only after `admits`, in the same step."""
        self._limiter.acquire_on_behalf_of_nowait(call)

    def release(self, call: object) -> None:
        """Release the slot of `call`."""
        self._limiter.release_on_behalf_of(call)
        self._call()

    def _call(self) -> None:
        for lane in self._queue[: max(0, int(self._limiter.available_tokens))]:
            lane.notify()


Obstacle: TypeAlias = tuple[WaitReason, float]
"""The reason why a start is not possible, and the instant until which; infinite if unknown."""

_HELD = (-1, 0, 0)


@attrs.define(eq=False, repr=False)
class Waiter:
    """A call, or a next job, in the queue."""

    rank: tuple[int, int, int]
    """The smallest is first."""
    called: trio.Event = attrs.field(factory=trio.Event)
    """Set to make it check again, possibly without a result."""


def _rank(waiter: Waiter) -> tuple[int, int, int]:
    return waiter.rank


@attrs.define(eq=False, repr=False)
class WaitQueue:
    """The waiters of one lane."""

    _lane: str
    """The name of the lane."""
    _breaker: Breaker
    """The lane's breaker; its reason is set when the lane is closed."""
    _cap: Cap | None
    permits: Permits | None
    """The source of permits; None if calls need none."""
    waiters: list[Waiter] = attrs.field(factory=list)
    """In order; read-only for others."""
    why: WaitReason | None = None
    """The reason why the first waiter waits."""
    until: float = math.inf
    """The instant until which it sleeps if it is not notified; infinite if it waits for a notification."""
    _asking: trio.CancelScope | None = None
    """The scope of the first waiter's latest request for a permit."""
    _arrivals: Iterator[int] = attrs.field(factory=itertools.count)

    def notify(self) -> None:
        """Wake the first waiter: the lane, a budget or the cap over all lanes may have changed."""
        if self.waiters:
            self.waiters[0].called.set()

    def dismiss(self) -> None:
        """Wake all waiters because the lane is closed, and cancel a request for a permit."""
        for waiter in self.waiters:
            waiter.called.set()
        if self._asking is not None:
            self._asking.cancel("the lane is closed")

    async def wait(
        self,
        look: Callable[[float], Obstacle | None],
        observe: Observer | None,
        call: CallRequest | None = None,
        *,
        passes: bool = False,
    ) -> float:
        """Wait until `look` finds no obstacle; return that instant. A checkpoint.

        Args:
            look: Called when the waiter is the first.
            observe: Notified of every wait.
            call: The call that waits; None for the lane's next job.
            passes: Whether the call goes before new calls.

        Raises:
            LaneClosedError: The lane serves no more calls.
            Exception: Any that `look` or the permits raise.
        """
        index = None if call is None else call.index
        waiter = self._join(index if passes else None)
        reported: Obstacle | None = None
        obstacle: Obstacle | None = (WaitReason.TURN, math.inf)
        try:
            while True:
                if (reason := self._breaker.reason) is not None:
                    await trio.lowlevel.checkpoint()
                    raise LaneClosedError(self._lane, reason)
                now = trio.current_time()
                obstacle = (WaitReason.TURN, math.inf)
                # Before the look: an observer may change the lane at the moment in which it is notified.
                waiter.called = trio.Event()
                if self.waiters[0] is waiter:
                    obstacle = look(now)
                    self.why, self.until = (None, math.inf) if obstacle is None else obstacle
                if obstacle is None:
                    return now
                self._queue_for_cap(obstacle[0])
                if call is not None:
                    call.give_back_permit()
                    if obstacle[0] is WaitReason.SHARED_LIMIT and self.permits is not None:
                        reported = None
                        await self._ask(self.permits, waiter, call)
                        continue
                if observe is not None and obstacle != reported:
                    reported, (why, until) = obstacle, obstacle
                    known = None if until == math.inf else until
                    observe(Waiting(now, self._lane, why, known, index))
                if (
                    obstacle[1] == math.inf
                ):  # most waits; entering a scope costs as much as the wait
                    await waiter.called.wait()
                    continue
                with trio.move_on_at(obstacle[1]):
                    await waiter.called.wait()
        finally:
            if call is not None and obstacle is not None:
                call.give_back_permit()
            self._leave(waiter)

    def _join(self, retry_of: int | None) -> Waiter:
        """Insert a waiter; `retry_of` is the index of the job whose call is made again."""
        arrival = next(self._arrivals)
        waiter = Waiter((1, arrival, 0) if retry_of is None else (0, retry_of, arrival))
        bisect.insort(self.waiters, waiter, key=_rank)
        return waiter

    def _leave(self, waiter: Waiter) -> None:
        """Remove a waiter, whether served or not; it is the next one's turn."""
        at = bisect.bisect_left(self.waiters, waiter.rank, key=_rank)
        del self.waiters[at]
        if at == 0:
            self.notify()
        if not self.waiters and self._cap is not None:
            self._cap.leave(self)

    async def _ask(self, permits: Permits, waiter: Waiter, call: CallRequest) -> None:
        """Get a permit for the first waiter; none if the queue is dismissed meanwhile. A checkpoint.

        Raises:
            LimitError: A permit for the call can never be granted.
        """
        waiter.rank = _HELD
        with trio.CancelScope() as self._asking:
            if call.observe is not None:
                call.observe(Reserving(trio.current_time(), call.index, self._lane))
            on_shortage = partial(self._on_shortage, call)
            call.permit = await permits.take(call.index, call.tokens, call.money, on_shortage)

    def _on_shortage(self, call: CallRequest, shortage: Shortage) -> None:
        """Note that the permit has to be waited for."""
        if self._cap is not None:
            self._cap.leave(self)
        if call.observe is not None:
            now = trio.current_time()
            until, index = shortage.until, call.index
            call.observe(Waiting(now, self._lane, WaitReason.SHARED_LIMIT, until, index, shortage))

    def _queue_for_cap(self, why: WaitReason) -> None:
        if self._cap is None or why is WaitReason.TURN:
            return
        # A waiter that requests a permit keeps its turn until it learns that it has to wait.
        if why in (WaitReason.CAP, WaitReason.SHARED_LIMIT):
            self._cap.join(self)
        else:
            self._cap.leave(self)
