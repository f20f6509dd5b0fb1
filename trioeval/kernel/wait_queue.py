"""The queue of a lane: from the arrival of a waiter to the step in which nothing is in its way.

Retries stand before everything else, by the index of their jobs; what is new stands behind them, first
come first served. Only the first looks at the lane, when something may have changed for it; the others sleep
until they are first. What is in the way decides how it waits on: until an instant, until it is called, among
the lanes that want a part of the cap, or for the answer to its question for a permit.

A lock that hands the turn over in order of arrival cannot let a retry pass; a heap of timers would wake
waiters that cannot start.

**Permits**, of limits that others share too. A permit may be a message away, or a minute, and a holder of
one uses up what others wait for. So a call must not take a slot before it has its permit, and must not take
a permit before it could use it. The rule: only the first in the queue asks, and only when nothing else is in
its way. It keeps its place, and no slot. With the answer it looks at its lane once more. If that is blocked
by now, it gives the permit back unused and asks again later.

Two things make that fair. A waiter that asks stays first, also before calls that are made again: a question
under way is not taken back for them. And it keeps its place among the lanes that wait for the cap over all
lanes, until it learns that it has to wait: on a full cap, the time that the answer takes would otherwise
cost it its turn again and again.

Rejected: to ask with a slot in hand (a slot would wait), to ask for all waiters (permits of calls that their
lane does not let start), to keep a permit while the lane is blocked (others would wait for nothing).

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
from trioeval.kernel.events import Observer, Reserving, Shortage, Waiting, Why
from trioeval.kernel.reservations import CallRequest, Permits
from trioeval.rates import Breaker, Follower


@attrs.define(eq=False)
class Cap:
    """The slots of all lanes together; made by `Lanes`.

    It is taken last and given back first, so that a lane that waits for it holds nothing. Lanes that wait
    for it have a queue of their own, and one that does not wait yet passes no other: a busy lane cannot keep
    the cap to itself.
    """

    total: int
    """≥ 1."""
    _limiter: trio.CapacityLimiter = attrs.field(init=False)
    _queue: list[Follower] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        if type(self.total) is not int or self.total < 1:
            msg = f"cap must be a whole number of at least 1, got {self.total!r}"
            raise PlanError(msg)
        self._limiter = trio.CapacityLimiter(self.total)

    @property
    def idle(self) -> bool:
        """Whether no call holds a part of it and no lane waits for one."""
        return not self._limiter.borrowed_tokens and not self._queue

    def admits(self, lane: Follower) -> bool:
        """Whether a call of `lane` may start now: nobody before it in the queue waits for the last slots."""
        before = self._queue.index(lane) if lane in self._queue else len(self._queue)
        return self._limiter.available_tokens > before

    @property
    def free(self) -> bool:
        """Whether a part of it is free, whoever waits."""
        return self._limiter.available_tokens > 0

    def join(self, lane: Follower, *, again: bool = False) -> None:
        """The first in line of `lane` waits for the cap, and for nothing else.

        Args:
            lane: Whose.
            again: Whether it has just had its turn and could not use it: it is the next one then.
        """
        if lane not in self._queue:
            self._queue.insert(0 if again else len(self._queue), lane)

    def leave(self, lane: Follower) -> None:
        """It does so no more."""
        if lane in self._queue:
            self._queue.remove(lane)
            self._call()

    def take(self, call: object) -> None:
        """`call` starts; only after `admits`, in the same step."""
        self._limiter.acquire_on_behalf_of_nowait(call)

    def release(self, call: object) -> None:
        """`call` is over."""
        self._limiter.release_on_behalf_of(call)
        self._call()

    def _call(self) -> None:
        for lane in self._queue[: max(0, int(self._limiter.available_tokens))]:
            lane.notify()


Obstacle: TypeAlias = tuple[Why, float]
"""What is in the way of a start, and until when; infinite where that is not known."""

_HELD = (-1, 0, 0)


@attrs.define(eq=False)
class Waiter:
    """One that waits in the queue."""

    rank: tuple[int, int, int]
    """The least is the first."""
    called: trio.Event = attrs.field(factory=trio.Event)
    """Set to make it look again, perhaps for nothing."""


def _rank(waiter: Waiter) -> tuple[int, int, int]:
    return waiter.rank


@attrs.define(eq=False)
class WaitQueue:
    """The waiters of one lane."""

    _lane: str
    """The lane's name."""
    _breaker: Breaker
    """Of the lane: its reason is set when the lane is closed."""
    _cap: Cap | None
    permits: Permits | None
    """Where calls get their permits; None if they need none."""
    waiters: list[Waiter] = attrs.field(factory=list)
    """In order; to be looked at only."""
    why: Why | None = None
    """What the first was found to wait for."""
    _asking: trio.CancelScope | None = None
    """What the first asks for its permit in, or did so last."""
    _arrivals: Iterator[int] = attrs.field(factory=itertools.count)

    def notify(self) -> None:
        """Call the first: the lane, a budget or the cap over all lanes may have changed."""
        if self.waiters:
            self.waiters[0].called.set()

    def dismiss(self) -> None:
        """Call all, because the lane is closed; a question for a permit ends."""
        for waiter in self.waiters:
            waiter.called.set()
        if self._asking is not None:
            self._asking.cancel("nobody in line is served any more")

    async def wait(
        self,
        look: Callable[[float], Obstacle | None],
        observe: Observer | None,
        call: CallRequest | None = None,
        *,
        passes: bool = False,
    ) -> float:
        """Wait until `look` finds no obstacle; returns that instant. A checkpoint.

        Args:
            look: Asked when the waiter is the first.
            observe: Told of every wait.
            call: What waits; None for the lane's next job.
            passes: Whether the call stands before what is new.

        Raises:
            LaneClosedError: The lane serves no more calls.
            Exception: What `look` and the permits raise.
        """
        index = None if call is None else call.index
        waiter = self._join(index if passes else None)
        told: Obstacle | None = None
        obstacle: Obstacle | None = (Why.TURN, math.inf)
        try:
            while True:
                if (reason := self._breaker.reason) is not None:
                    await trio.lowlevel.checkpoint()
                    raise LaneClosedError(self._lane, reason)
                now = trio.current_time()
                obstacle = (Why.TURN, math.inf)
                # Before the look: whoever is told of it may change the lane in that very moment.
                waiter.called = trio.Event()
                if self.waiters[0] is waiter:
                    obstacle = look(now)
                    self.why = None if obstacle is None else obstacle[0]
                if obstacle is None:
                    return now
                self._queue_for_cap(obstacle[0])
                if call is not None:
                    call.give_back_permit()
                    if obstacle[0] is Why.SHARED_LIMIT and self.permits is not None:
                        told = None
                        await self._ask(self.permits, waiter, call)
                        continue
                if observe is not None and obstacle != told:
                    told, (why, until) = obstacle, obstacle
                    known = None if until == math.inf else until
                    observe(Waiting(now, self._lane, why, known, index))
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
        """Remove a waiter, served or not; it is the next one's turn."""
        at = bisect.bisect_left(self.waiters, waiter.rank, key=_rank)
        del self.waiters[at]
        if at == 0:
            self.notify()
        if not self.waiters and self._cap is not None:
            self._cap.leave(self)

    async def _ask(self, permits: Permits, waiter: Waiter, call: CallRequest) -> None:
        """Get the first its permit; none if the queue is dismissed meanwhile. A checkpoint.

        Raises:
            LimitError: There will never be one.
        """
        waiter.rank = _HELD
        with trio.CancelScope() as self._asking:
            if call.observe is not None:
                call.observe(Reserving(trio.current_time(), call.index, self._lane))
            told = partial(self._on_shortage, call)
            call.permit = await permits.take(call.index, call.tokens, call.money, told)

    def _on_shortage(self, call: CallRequest, shortage: Shortage) -> None:
        """The permit has to be waited for."""
        if self._cap is not None:
            self._cap.leave(self)
        if call.observe is not None:
            now = trio.current_time()
            until, index = shortage.until, call.index
            call.observe(Waiting(now, self._lane, Why.SHARED_LIMIT, until, index, shortage))

    def _queue_for_cap(self, why: Why) -> None:
        if self._cap is None or why is Why.TURN:
            return
        # Who asks for a permit keeps its turn until it is told to wait.
        if why in (Why.CAP, Why.SHARED_LIMIT):
            self._cap.join(self)
        else:
            self._cap.leave(self)
