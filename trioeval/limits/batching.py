"""A backend that combines requests made at about the same time into batches.

The first item opens a batch; the batch is sent when it is full, or `flush` seconds later. Reserves and
completes are collected separately. A batch keeps the order of its items, and answers are matched by position:
if a batch gets no answer, or the wrong number of answers, the outcome of every item is unknown.

Several batches may be in flight at once. Rejected: one after another, because each request would wait for the
round trip of the previous one, which halves the rate of a lane far from its server.

A caller that is cancelled withdraws an item that was not sent yet. An item that was sent stays sent, because
others share its batch; its caller treats the outcome as unknown.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Generic, TypeVar

import attrs
import trio

from trioeval.errors import LimitError
from trioeval.limits.backend import Backend
from trioeval.limits.denials import unavailable
from trioeval.limits.model import (
    Decision,
    LeaseRequest,
    LimitState,
    Settlement,
    SharedLimit,
    Unknown,
)
from trioeval.nurseries import open_plain_nursery

CLOSE_GRACE = 5.0
"""Seconds that the last batches may take once the block is left."""

I = TypeVar("I")  # noqa: E741 - an item
A = TypeVar("A")  # its answer


@asynccontextmanager
async def open_batching(
    backend: Backend, *, size: int = 128, flush: float = 0.002
) -> AsyncGenerator[Backend]:
    """Open a batching front of a backend.

    When the block is left, waiting items are sent at once, and every item is answered within `CLOSE_GRACE`
    seconds, also when the block is cancelled; until then, cancellation does not health batches in flight.

    Args:
        backend: The backend that decides.
        size: Most items of a batch, ≥ 1.
        flush: Seconds that an item waits for others, ≥ 0.

    Example:
        ```python
        async with open_batching(backend, size=128, flush=0.002) as batched:
            decisions = await batched.reserve([ask])
        ```
    """
    async with open_plain_nursery() as nursery:
        batching = _Batching(backend, size, flush)
        nursery.start_soon(batching.run)
        try:
            await batching.opened.wait()
            yield batching
        finally:
            batching.close()


@attrs.define(eq=False, repr=False)
class _Batching:
    """A `Backend` whose reserves and completes go through collectors.

    Batches are not cancelled with the block that requests them, but some time after its end.
    """

    _backend: Backend
    size: int
    flush: float
    opened: trio.Event = attrs.field(init=False, factory=trio.Event)
    _closed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _scope: trio.CancelScope = attrs.field(
        init=False, factory=lambda: trio.CancelScope(shield=True)
    )
    _nursery: trio.Nursery = attrs.field(init=False)
    _reserves: "_BatchCollector[LeaseRequest, Decision]" = attrs.field(init=False)
    _completes: "_BatchCollector[Settlement, None]" = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reserves = _BatchCollector(self, self._backend.reserve)
        self._completes = _BatchCollector(self, self._complete)

    async def run(self) -> None:
        # The shield ends: `close` is called however the block is left, and gives it a deadline.
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                self.opened.set()
                await self._closed.wait()

    def start(self, send: Callable[[], Awaitable[None]]) -> None:
        """Start a task that sends; the backend is not used before it is opened."""
        self._nursery.start_soon(send)

    def close(self) -> None:
        self._reserves.close()
        self._completes.close()
        self._scope.deadline = trio.current_time() + CLOSE_GRACE
        self._closed.set()

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        answers = await self._reserves.ask(asks)
        return [_decision(answer) for answer in answers]

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        for answer in await self._completes.ask(settlements):
            if isinstance(answer, LimitError):
                raise _own(answer)

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        return await self._backend.extend(lease_ids)

    async def states(self) -> Sequence[LimitState]:
        return await self._backend.states()

    async def define(self, limit: SharedLimit, /) -> LimitState:
        return await self._backend.define(limit)

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        return await self._backend.pause(key, seconds)

    async def remove(self, key: str, /) -> None:
        await self._backend.remove(key)

    async def _complete(self, settlements: Sequence[Settlement]) -> Sequence[None]:
        await self._backend.complete(settlements)
        return [None] * len(settlements)


@attrs.define(eq=False, repr=False)
class _Item(Generic[I, A]):
    value: I
    answer: A | LimitError = attrs.field(
        factory=lambda: unavailable("closed before an answer arrived")
    )
    answered: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, repr=False)
class _BatchCollector(Generic[I, A]):
    """Batches of one kind."""

    _batching: _Batching
    _send: Callable[[Sequence[I]], Awaitable[Sequence[A]]]
    _waiting: list[_Item[I, A]] = attrs.field(init=False, factory=list)
    _timer: trio.CancelScope | None = attrs.field(init=False, default=None)
    """The timer of the open batch; None if no batch is open."""
    _is_closed: bool = attrs.field(init=False, default=False)

    async def ask(self, values: Sequence[I]) -> list[A | LimitError]:
        """Submit items and wait for the answers, in the same order. A checkpoint.

        Raises:
            LimitError: It is closed.
        """
        if self._is_closed:
            raise unavailable("closed before the request was sent")
        items: list[_Item[I, A]] = [_Item(value) for value in values]
        for item in items:
            self._waiting.append(item)
            if len(self._waiting) >= self._batching.size:
                self._send_now()
        if self._waiting and self._timer is None:
            self._timer = trio.CancelScope()
            self._batching.start(partial(self._send_later, self._timer))
        try:
            for item in items:
                await item.answered.wait()
        finally:
            abandoned = {id(item) for item in items if not item.answered.is_set()}
            if abandoned:
                self._waiting = [item for item in self._waiting if id(item) not in abandoned]
        return [item.answer for item in items]

    def close(self) -> None:
        """Send what waits, and accept nothing more."""
        self._is_closed = True
        self._send_now()

    async def _send_later(self, timer: trio.CancelScope) -> None:
        with timer:
            await trio.sleep(self._batching.flush)
            self._send_now()

    def _send_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel("the batch is sent")
            self._timer = None
        if self._waiting:
            batch, self._waiting = self._waiting, []
            self._batching.start(partial(self._exchange, batch))

    async def _exchange(self, batch: list[_Item[I, A]]) -> None:
        problem = batch[0].answer  # the default: no answer
        answers: Sequence[A | LimitError] = ()
        try:
            answers = await self._send([item.value for item in batch])
            if len(answers) != len(batch):
                problem = unavailable(f"{len(answers)} answers for {len(batch)} requests")
        except LimitError as error:
            problem = error
        finally:
            # Synchronous, and reached after a cancellation too: every waiter gets an answer.
            if len(answers) != len(batch):
                answers = [problem] * len(batch)
            for item, answer in zip(batch, answers, strict=True):
                item.answer = answer
                item.answered.set()


def _decision(answer: Decision | LimitError) -> Decision:
    if not isinstance(answer, LimitError):
        return answer
    if answer.reason != "limiter_unavailable":
        raise _own(answer)
    return Unknown(answer.message)


def _own(error: LimitError) -> LimitError:
    """Copy an error for each of several receivers: a traceback belongs to one task."""
    return LimitError(error.reason, error.message, keys=error.keys)
