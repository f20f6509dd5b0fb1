"""One call for all callers that make equal calls at the same time.

The first caller leads: it makes the call. The others queue, and hold nothing meanwhile. The result of the
call decides what follows:

* a value is shared with all;
* a failure of the call itself (`CallError`) is shared too: retries belong to the lane, which has made them
  already;
* anything else concerns the leader alone, such as its cancellation, its timeout or its budget: the next in
  the queue leads. Only that one is woken, so many waiters cost one step each, however often a leader ends.

A leader that is woken and cancelled at the same instant still leads, for a moment: its call ends at its first
checkpoint, and the next takes over. So no key is left with a queue and without a leader.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import attrs
import trio

from trioeval.errors import CallError

V = TypeVar("V")
E = TypeVar("E", bound=BaseException)


@attrs.frozen
class SharedResult(Generic[V]):
    """The result of a call."""

    value: V
    is_own: bool
    """True if the call was the caller's own, not that of another one with equal arguments."""


@attrs.define(eq=False, repr=False)
class _QueuedCaller:
    """A position in the queue."""

    woken: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, repr=False)
class _SharedCall(Generic[V]):
    """A call that is in progress, or about to be."""

    line: dict[_QueuedCaller, None] = attrs.field(factory=dict)
    """The waiters, first come, first served."""
    landing: SharedResult[V] | None = None
    failure: CallError | None = None

    @property
    def is_over(self) -> bool:
        return self.landing is not None or self.failure is not None


@attrs.define(eq=False, repr=False)
class SingleFlight(Generic[V]):
    """The calls in progress, by key."""

    _by_key: dict[bytes, _SharedCall[V]] = attrs.field(factory=dict)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    async def join(
        self,
        key: bytes,
        fetch: Callable[[], Awaitable[V]],
        waiting: Callable[[], AbstractContextManager[object]],
    ) -> SharedResult[V]:
        """Return the result of the call in progress, or else call `fetch`, which others may join.

        A checkpoint if it has to wait, or `fetch` is one.

        Raises:
            CallError: The call that was joined failed; a copy for each.
            Exception: Any that the caller's own `fetch` raised.
        """
        flight = self._by_key.get(key)
        if flight is None:
            flight = self._by_key[key] = _SharedCall()
        else:
            await self._wait(key, flight, waiting)
            if flight.failure is not None:
                raise again(flight.failure)
            if flight.landing is not None:
                return attrs.evolve(flight.landing, is_own=False)
        return await self._lead(key, flight, fetch)

    async def _wait(
        self,
        key: bytes,
        flight: _SharedCall[V],
        waiting: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Wait until the call is over, or the caller is to lead."""
        seat = _QueuedCaller()
        flight.line[seat] = None
        has_come = False
        try:
            with waiting():
                await seat.woken.wait()
            has_come = True
        finally:
            flight.line.pop(seat, None)
            if seat.woken.is_set() and not has_come and not flight.is_over:
                self._hand_over(key, flight)  # this one was to lead, and cannot

    async def _lead(
        self, key: bytes, flight: _SharedCall[V], fetch: Callable[[], Awaitable[V]]
    ) -> SharedResult[V]:
        try:
            landing = flight.landing = SharedResult(await fetch(), is_own=True)
        except CallError as error:
            flight.failure = error
            raise
        finally:
            if flight.is_over:
                del self._by_key[key]
                for seat in flight.line:
                    seat.woken.set()
            else:
                self._hand_over(key, flight)
        return landing

    def _hand_over(self, key: bytes, flight: _SharedCall[V]) -> None:
        """Let the next in the queue lead, if there is one."""
        seat = next(iter(flight.line), None)
        if seat is None:
            del self._by_key[key]
            return
        del flight.line[seat]
        seat.woken.set()


def again(error: E) -> E:
    """Return a copy of an error, to raise elsewhere: an error raised twice mixes up two tracebacks.

    Example:
        >>> from trioeval.errors import ProviderError
        >>> first = ProviderError("server", "down", status=503)
        >>> second = again(first)
        >>> second is first, second.status, str(second)
        (False, 503, 'server: down')
    """
    other = type(error).__new__(type(error), *error.args)
    other.__dict__.update(error.__dict__)
    return other
