"""A bound on the calls of all lanes together.

It is taken last and given back first, so that a lane that waits for it holds nothing. Lanes that wait for
it stand in a queue of their own, and one that does not wait yet passes nobody: a busy lane cannot keep
the cap to itself.
"""

import attrs
import trio

from trioeval.errors import PlanError
from trioeval.rates import Follower


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
