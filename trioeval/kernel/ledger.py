"""Where outcomes are recorded, and how they come out in index order.

`record` is synchronous and cannot fail, so nothing can come between a result and its record: not a
deadline, not a cancelled scope, not a slow consumer. The ledger holds what is ahead of its prefix and
hands each completed stretch to a memory channel; `Sink` reads that channel outside the scope that the
deadline cancels. What never got an outcome is made up by the sink at the end, one at a time, so that a
million jobs that were not run are never a million objects; or as one range, where the consumer takes that.

Rejected: sending the result from the job with `await`. Cancelled there, it is lost.

Laws: TOTAL, ORDER, PROMPT.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Generic

import attrs
import trio

from trioeval.kernel.outcomes import Cut, NotRun, Outcome, V

_YIELD_EVERY = 256  # outcomes that the sink passes on between two looks at the rest of the world


class Ledger(Generic[V]):
    """The outcomes of one run. Knows the order, not the meaning."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.cut = Cut.CANCEL
        """Why jobs without an outcome have none; set before `close`."""
        self.reason: str | None = None
        """More about it."""
        self.recorded = 0
        """Outcomes so far."""
        self._next = 0
        self._held: dict[int, Outcome[V]] = {}
        self._ahead: list[int] | None = None
        """Their indices after `close`, descending."""
        # Unbounded, but never more than `size` items over its whole life.
        self._ordered, self.ordered = trio.open_memory_channel[Outcome[V]](math.inf)

    def record(self, outcome: Outcome[V]) -> None:
        """Take the one outcome of a job. Synchronous; never waits.

        Raises:
            RuntimeError: The job has one already: a fault of the kernel.
        """
        index = outcome.index
        if index < self._next or index in self._held:
            msg = f"job {index} got a second outcome; please report this fault of trioeval"
            raise RuntimeError(msg)
        self.recorded += 1
        if index != self._next:
            self._held[index] = outcome
            return
        following: Outcome[V] | None = outcome
        while following is not None:
            self._ordered.send_nowait(following)
            self._next += 1
            following = self._held.pop(self._next, None)

    def close(self) -> None:
        """No outcome will follow. What is missing was not run, because of `cut`."""
        self._ordered.close()

    def never_ran(self, index: int) -> range:
        """After `close`: the jobs from `index` on that have no outcome, up to the next one that has."""
        if self._ahead is None:
            self._ahead = sorted(self._held, reverse=True)
        while self._ahead and self._ahead[-1] < index:
            self._ahead.pop()
        return range(index, self._ahead[-1] if self._ahead else self.size)

    def take_rest(self, index: int) -> Outcome[V]:
        """After `close`: the outcome of `index`, which is NotRun unless one was recorded out of order."""
        return self._held.pop(index, None) or NotRun(index, self.cut, self.reason)


@attrs.define(eq=False)
class Sink(Generic[V]):
    """Awaits `emit` once for each outcome of a ledger, in index order."""

    _ledger: Ledger[V]
    _emit: Callable[[Outcome[V]], Awaitable[None]]
    _passed: Callable[[int], None] | None = None
    """Told how many the consumer has taken."""
    _never_ran: Callable[[range, NotRun], Awaitable[None]] | None = None
    """Awaited in place of `_emit` with jobs that the run never came to."""
    emitted: int = 0
    counts: dict[type, int] = attrs.field(factory=dict)
    """Outcomes passed on so far, by their class."""

    async def drain(self) -> None:
        """Pass everything on; returns when the ledger is closed and nothing is left."""
        # The channel's end stays open also when `emit` raises: `record` must not fail for it.
        async for outcome in self._ledger.ordered:
            await self._emit(outcome)
            self._count(outcome)
            # Without a hop through the scheduler for each, which would cost more than all else here.
            for _ in range(_YIELD_EVERY):
                try:
                    following = self._ledger.ordered.receive_nowait()
                except (trio.WouldBlock, trio.EndOfChannel):
                    break
                await self._emit(following)
                self._count(following)
        while self.emitted < self._ledger.size:
            if self._never_ran is not None and (left := self._ledger.never_ran(self.emitted)):
                outcome = NotRun(left.start, self._ledger.cut, self._ledger.reason)
                await self._never_ran(left, outcome)
                self.emitted = left.stop
                self.counts[NotRun] = self.counts.get(NotRun, 0) + len(left)
                continue
            if self.emitted % _YIELD_EVERY == 0:
                await trio.lowlevel.checkpoint()
            rest = self._ledger.take_rest(self.emitted)
            await self._emit(rest)
            self._count(rest)

    def _count(self, outcome: Outcome[V]) -> None:
        self.emitted += 1
        kind = type(outcome)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self._passed is not None:
            self._passed(self.emitted)
