"""The record of outcomes, emitted in index order.

`record` is synchronous and cannot fail, so nothing can come between a result and its record: no deadline, no
cancelled scope, no slow consumer. The ledger holds outcomes that are ahead of the complete prefix and queues
each completed stretch; `drain` takes from that queue outside the scope that the deadline cancels. Outcomes of
jobs that never ran are made at the end, one at a time, so that a million of them are never a million objects;
or as one range, if the consumer accepts ranges.

Rejected: sending the result from the job with `await`. If the job is cancelled there, the result is lost.

Laws: TOTAL, ORDER, PROMPT.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic

import trio

from trioeval.kernel.arguments import not_awaitable
from trioeval.kernel.outcomes import NotRun, Outcome, StopReason, V

_YIELD_EVERY = 256
"""Outcomes emitted between two checkpoints."""


class Ledger(Generic[V]):
    """The outcomes of one run. Knows their order, not their meaning."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.cut = StopReason.CANCEL
        """The reason why jobs without an outcome have none; set before `close`."""
        self.reason: str | None = None
        """Details of `cut`."""
        self.recorded = 0
        """Number of outcomes recorded so far."""
        self.emitted = 0
        """Number of outcomes that the consumer has taken."""
        self.counts: dict[type, int] = {}
        """Numbers of emitted outcomes by class."""
        self._next = 0
        self._held: dict[int, Outcome[V]] = {}
        # One consumer and no bound: a memory channel would cost more than everything else here.
        self._ordered: deque[Outcome[V]] = deque()
        self._news = trio.Event()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of outcomes whose turn has come, and that the consumer has not taken."""
        return len(self._ordered)

    def record(self, outcome: Outcome[V]) -> None:
        """Record the one outcome of a job. Synchronous; never waits.

        Raises:
            RuntimeError: The job already has one: a bug in the kernel.
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
            self._ordered.append(following)
            self._next += 1
            following = self._held.pop(self._next, None)
        self._news.set()

    def close(self) -> None:
        """End the record: no outcome will follow. Missing ones become `NotRun` with `cut`."""
        self._closed = True
        self._news.set()

    async def drain(
        self,
        emit: Callable[[Outcome[V]], Awaitable[None]],
        never_ran: Callable[[range, NotRun], Awaitable[None]] | None,
        passed: Callable[[], None],
    ) -> None:
        """Emit every outcome in index order; return when the ledger is closed and nothing is left.

        Args:
            emit: Awaited once for each outcome.
            never_ran: Awaited instead of `emit` with ranges of jobs that were never started.
            passed: Called after each outcome that the consumer has taken.
        """

        async def pass_on(outcome: Outcome[V]) -> None:
            emitting = emit(outcome)
            if not hasattr(emitting, "__await__"):
                wrong = not_awaitable("emit", emit, emitting)
                if wrong is not None:
                    raise wrong
            await emitting
            self._count(type(outcome))
            passed()
            if self.emitted % _YIELD_EVERY == 0:
                await trio.lowlevel.checkpoint()

        while not self._closed or self._ordered:
            # Without a trip through the scheduler for each.
            while self._ordered:
                await pass_on(self._ordered.popleft())
            if not self._closed:
                self._news = trio.Event()
                await self._news.wait()
        await self._drain_rest(pass_on, never_ran)

    async def _drain_rest(
        self,
        pass_on: Callable[[Outcome[V]], Awaitable[None]],
        never_ran: Callable[[range, NotRun], Awaitable[None]] | None,
    ) -> None:
        """Emit, after `close`, the outcomes that came out of order and `NotRun` for the jobs between them."""
        for index in (*sorted(self._held), self.size):
            missing = range(self.emitted, index)
            if missing and never_ran is not None:
                await never_ran(missing, NotRun(missing.start, self.cut, self.reason))
                self._count(NotRun, len(missing))
            else:
                for absent in missing:
                    await pass_on(NotRun(absent, self.cut, self.reason))
            if index in self._held:
                await pass_on(self._held.pop(index))

    def _count(self, kind: type, number: int = 1) -> None:
        self.emitted += number
        self.counts[kind] = self.counts.get(kind, 0) + number
