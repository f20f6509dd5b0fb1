"""A limit that lanes share, on the virtual clock, to test lanes that need permits.

It models only what a lane sees of a real limiter: a permit is granted at once, or late, or never, and
requests for permits may fail. Waiters are served in order of arrival, when there is room.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial

import attrs
import trio

from trioeval.errors import LimitError
from trioeval.kernel import Permit, Permits, Shortage
from trioeval.testing.scenario import SharedLimitScript
from trioeval.testing.trace import GrantedPermit, PermitEnd


@attrs.define(eq=False, repr=False)
class PermitServer:
    """The limiter of one shared limit; records every permit."""

    shared: SharedLimitScript
    _ticks: Iterator[int]
    lent: list[GrantedPermit] = attrs.field(factory=list)
    """All permits so far."""
    _open: int = 0
    _taken_until: list[float] = attrs.field(factory=list)
    """Of used permits: the instants at which their room is free."""
    _queue: list[trio.Event] = attrs.field(factory=list)

    def permits(self, lane: str) -> Permits:
        """Return the permits for the calls of one lane."""
        return _ModelLanePermits(self, lane)

    def left_over(self) -> str:
        """Return a description of what is not over; empty is correct."""
        waiting = f"{len(self._queue)} waiting for permits" if self._queue else ""
        return f"{self._open} open permits" if self._open else waiting

    def grant_nowait(self, lane: str, index: int, tokens: int) -> Permit | None:
        """Return a permit if there is room and the queue is empty.

        Raises:
            LimitError: It will never be granted.
        """
        self._refuse(tokens)
        late = self.shared.delay or not self.shared.at_once
        if late or self._silent or self._queue or not self._room:
            return None
        return self._grant(lane, index, tokens)

    async def grant(
        self, lane: str, index: int, tokens: int, on_shortage: Callable[[Shortage], None]
    ) -> Permit:
        """Return a permit as soon as there is room. A checkpoint.

        Raises:
            LimitError: It will never be granted, or the limiter does not respond.
        """
        self._refuse(tokens)
        await trio.sleep(self.shared.delay)
        if self._silent:
            raise LimitError("limiter_unavailable", "the limiter does not respond")
        call = trio.Event()
        self._queue.append(call)
        reported: Shortage | None = None
        try:
            while not self._room or self._queue[0] is not call:
                first = self._queue[0] is call
                until = min(self._taken_until, default=math.inf) if first else math.inf
                shortage = Shortage("rate_limit", until=None if until == math.inf else until)
                if shortage != reported:
                    on_shortage(shortage)
                    reported = shortage
                with trio.move_on_at(until):
                    await call.wait()
                if call.is_set():
                    place = self._queue.index(call)
                    self._queue[place] = call = trio.Event()
        finally:
            self._queue.remove(call)
            self._wake()
        return self._grant(lane, index, tokens)

    @property
    def _silent(self) -> bool:
        begin, end = self.shared.silent
        return begin <= trio.current_time() < end

    @property
    def _room(self) -> bool:
        now = trio.current_time()
        self._taken_until = [until for until in self._taken_until if until > now]
        return self._open + len(self._taken_until) < self.shared.room

    def _refuse(self, tokens: int) -> None:
        most = self.shared.most
        if most is not None and tokens > most:
            raise LimitError("exceeds_capacity", f"{tokens} tokens exceed the limit of {most}")

    def _grant(self, lane: str, index: int, tokens: int) -> Permit:
        lent = GrantedPermit(index, lane, tokens, trio.current_time(), next(self._ticks))
        self.lent.append(lent)
        self._open += 1
        return _ModelPermit(partial(self._end, lent))

    def _end(self, lent: GrantedPermit, used: int | None) -> None:
        now = trio.current_time()
        lent.ends.append(PermitEnd(now, next(self._ticks), used))
        self._open -= 1
        until = lent.granted_at + self.shared.lasts
        if used is not None and until > now:
            self._taken_until.append(until)
        self._wake()

    def _wake(self) -> None:
        if self._queue:
            self._queue[0].set()


@attrs.frozen
class _ModelLanePermits:
    _keeper: PermitServer
    _lane: str

    def take_nowait(self, index: int, tokens: int, money: float) -> Permit | None:  # noqa: ARG002
        return self._keeper.grant_nowait(self._lane, index, tokens)

    async def take(
        self,
        index: int,
        tokens: int,
        money: float,  # noqa: ARG002
        on_shortage: Callable[[Shortage], None],
    ) -> Permit:
        return await self._keeper.grant(self._lane, index, tokens, on_shortage)


@attrs.frozen
class _ModelPermit:
    _end: Callable[[int | None], None]

    def settle(self, tokens: int, money: float) -> None:  # noqa: ARG002
        self._end(tokens)

    def give_back(self) -> None:
        self._end(None)
