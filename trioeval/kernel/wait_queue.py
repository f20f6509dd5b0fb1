"""The wait for one's turn at a lane: from a place in its line to the step in which nothing is in the way.

Whoever waits looks when it is first in line and something may have changed for it, and says what is in the
way. What kind of thing that is decides how it waits on: for an instant, for a call, among the lanes that
want a part of the cap, or with a question for its permit.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

import attrs
import trio

from trioeval.errors import LaneClosedError, PlanError
from trioeval.kernel.events import Observer, Reserving, Waiting, Why
from trioeval.kernel.reservations import Need, Permit, Permits, Shortage
from trioeval.rates import Breaker, Follower

# A bound on the calls of all lanes together.
#
# It is taken last and given back first, so that a lane that waits for it holds nothing. Lanes that wait for
# it stand in a queue of their own, and one that does not wait yet passes nobody: a busy lane cannot keep
# the cap to itself.


@attrs.define(eq=False)
class Cap:
    """The slots of all lanes together; made by `Lanes`."""

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


# Who waits at a lane, in which order.
#
# Retries stand before everything else, by the index of their jobs; what is new stands behind them, first
# come first served. Who asks for a permit is first, and stays so. Only the first in line looks at the lane.
# It is called when something may have changed for it; the others sleep until they are first.
#
# A lock that hands the turn over in order of arrival cannot let a retry pass; a heap of timers would wake
# waiters that cannot start.


_HELD = (-1, 0, 0)


@attrs.define(eq=False)
class Place:
    """One waiter in the line."""

    rank: tuple[int, int, int]
    """The least is the first."""
    _called: trio.Event = attrs.field(factory=trio.Event)

    def call(self) -> None:
        """Tell the waiter to look again. Synchronous, may come for nothing."""
        self._called.set()

    def rearm(self) -> None:
        """Forget earlier calls; before the waiter looks, so that none of what follows is missed."""
        self._called = trio.Event()

    async def wait_called(self, until: float = math.inf) -> None:
        """Sleep until somebody has called, or until an instant. A checkpoint."""
        if until == math.inf:
            await self._called.wait()
        else:
            with trio.move_on_at(until):
                await self._called.wait()


@attrs.define(eq=False)
class Line:
    """The waiters of one lane."""

    places: list[Place] = attrs.field(factory=list)
    """In order; to be looked at only."""
    asking: trio.CancelScope | None = None
    """What the first in line asks for its permit in, or did so last."""
    _arrivals: Iterator[int] = attrs.field(factory=itertools.count)

    @property
    def first(self) -> Place | None:
        """Whose turn it is."""
        return self.places[0] if self.places else None

    def join(self, retry_of: int | None = None) -> Place:
        """Stand in line; `retry_of` is the index of the job whose call is made again."""
        arrival = next(self._arrivals)
        place = Place((1, arrival, 0) if retry_of is None else (0, retry_of, arrival))
        bisect.insort(self.places, place, key=_rank)
        return place

    def leave(self, place: Place) -> None:
        """Go, served or not; it is the next one's turn."""
        at = bisect.bisect_left(self.places, place.rank, key=_rank)
        del self.places[at]
        if at == 0:
            self.call_first()

    def call_first(self) -> None:
        """Something may have changed for the first in line."""
        if self.places:
            self.places[0].call()

    def hold(self, place: Place) -> None:
        """Nobody passes the first in line any more, until it leaves."""
        place.rank = _HELD

    def dismiss(self) -> None:
        """Nobody is served any more: all look again, and who asks for a permit does so for nothing."""
        for place in self.places:
            place.call()
        if self.asking is not None:
            self.asking.cancel("nobody in line is served any more")


def _rank(place: Place) -> tuple[int, int, int]:
    return place.rank


# How a call comes by a permit, on a lane that counts against limits which others share too.
#
# The problem: a permit may be a message away, or a minute, and whoever has one uses up what others wait for.
# So a call must not take a slot before it has its permit, and must not take a permit before it could use it.
# The rule: only the first in line asks, and only when nothing else is in its way. It keeps its place, and no
# slot. With the answer it looks at its lane once more. If that is blocked by now, it gives the permit back
# unused and asks again later.
#
# Two things make that fair. Who asks stays first, also before calls that are made again: a question under
# way is not taken back for them. And it keeps its place among the lanes that wait for the cap over all lanes,
# until it is told that it has to wait: or else, on a full cap, the time that the answer takes would cost it
# its turn again and again.
#
# Rejected: to ask with a slot in hand (a slot would wait), to ask for everybody in line (permits of calls
# that their lane does not let start), to keep a permit while the lane is blocked (others would wait for
# nothing).
#
# Law: LEASE.


class Caller(Protocol):
    """A job that makes a call, as its lane knows it."""

    @property
    def index(self) -> int:
        """Of the job."""
        ...

    def tell_reserving(self, lane: str, now: float) -> None:
        """Its call has asked for a permit."""
        ...


@attrs.define(eq=False)
class Asking:
    """One call in line, and what it asks for whenever it is its turn."""

    _permits: Permits
    _lane: str
    _index: int
    _need: Need
    _observe: Observer | None
    _short: Callable[[], None]
    """Called when it turns out that the permit has to be waited for."""
    _permit: Permit | None = None

    async def ask(self, line: Line, place: Place) -> None:
        """Get the permit; without one if the line is dismissed meanwhile. A checkpoint.

        Args:
            line: Where the call stands.
            place: It is the first there, and stays it.

        Raises:
            QuotaError: There will never be one.
        """
        line.hold(place)
        with trio.CancelScope() as line.asking:
            if self._observe is not None:
                self._observe(Reserving(trio.current_time(), self._index, self._lane))
            self._permit = await self._permits.take(
                self._index, self._need.tokens, self._need.money, self._told
            )

    def hand_over(self) -> Permit | None:
        """The permit, if it is there; it is the caller's from now on."""
        permit, self._permit = self._permit, None
        return permit

    def give_back(self) -> None:
        """A permit that is still here is not used."""
        if (permit := self.hand_over()) is not None:
            permit.give_back()

    def _told(self, shortage: Shortage) -> None:
        self._short()
        if self._observe is not None:
            now = trio.current_time()
            until, index = shortage.until, self._index
            self._observe(Waiting(now, self._lane, Why.QUOTA, until, index, shortage))


Obstacle: TypeAlias = tuple[Why, float]
"""What is in the way of a start, and until when; infinite where that is not known."""


@attrs.define(eq=False)
class Turns:
    """Who waits at one lane, and for what."""

    _lane: str
    """The lane's name."""
    _breaker: Breaker
    """Of the lane: it tells whether it is closed."""
    _cap: Cap | None
    line: Line
    why: Why | None = None
    """What the first in line was found to wait for."""

    def notify(self) -> None:
        """Something changed that the first in line may wait for: a budget, or the cap over all lanes."""
        self.line.call_first()

    async def stand(
        self,
        place: Place,
        look: Callable[[float], Obstacle | None],
        index: int | None,
        observe: Observer | None,
        asking: Asking | None = None,
    ) -> float:
        """Stand in line until `look` finds no obstacle; returns that instant. A checkpoint.

        Args:
            place: In the line; it is left at the end.
            look: Asked when it is the place's turn.
            index: Of the job that waits; None for the lane's next job.
            observe: Told of every wait.
            asking: Where the permit comes from, where `look` may find that it lacks.

        Raises:
            LaneClosedError: The lane serves no more calls.
            Exception: What `look` and `asking` raise.
        """
        told: Obstacle | None = None
        try:
            while True:
                if (reason := self._breaker.reason) is not None:
                    await trio.lowlevel.checkpoint()
                    raise LaneClosedError(self._lane, reason)
                now = trio.current_time()
                obstacle: Obstacle | None = (Why.TURN, math.inf)
                # Before the look: whoever is told of it may change the lane in that very moment.
                place.rearm()
                if self.line.first is place:
                    obstacle = look(now)
                    self.why = None if obstacle is None else obstacle[0]
                if obstacle is None:
                    return now
                self._queue_for_cap(obstacle[0])
                if asking is not None:
                    asking.give_back()
                    if obstacle[0] is Why.QUOTA:
                        told = None
                        await asking.ask(self.line, place)
                        continue
                if observe is not None and obstacle != told:
                    told, (why, until) = obstacle, obstacle
                    known = None if until == math.inf else until
                    observe(Waiting(now, self._lane, why, known, index))
                await place.wait_called(obstacle[1])
        finally:
            if asking is not None:
                asking.give_back()
            self.line.leave(place)
            if not self.line.places:
                self.leave_cap()

    def leave_cap(self) -> None:
        """The first in line waits for something else than the cap."""
        if self._cap is not None:
            self._cap.leave(self)

    def _queue_for_cap(self, why: Why) -> None:
        if self._cap is None or why is Why.TURN:
            return
        # Who asks for a permit keeps its turn until it is told to wait.
        if why in (Why.CAP, Why.QUOTA):
            self._cap.join(self)
        else:
            self._cap.leave(self)
