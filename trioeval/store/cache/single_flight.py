"""One call for all who ask the same at the same time.

Whoever asks first leads: it makes the call. The others wait in line, and hold nothing meanwhile. What comes
of the call decides how it goes on:

* a value is everybody's;
* a failure of the call itself (`CallError`) is everybody's too: asking again is the lane's affair, and it
  has done so already;
* anything else concerns the leader alone, such as its cancellation, its time or its budget: the next in line
  leads. Only that one is woken, so a crowd of waiters costs one step each, however often a leader goes.

A leader that is woken and cancelled at the same instant still leads, for a moment: its call ends at its
first checkpoint, and the next takes over. So no key is ever left with a line and nobody who leads.
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
class Landing(Generic[V]):
    """What came of a call."""

    value: V
    is_own: bool
    """Whether the call was one's own, and not that of somebody else who asked the same."""


@attrs.define(eq=False)
class _Seat:
    """A place in line."""

    woken: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class _Flight(Generic[V]):
    """A call that is under way, or about to be."""

    line: dict[_Seat, None] = attrs.field(factory=dict)
    """Who waits, first come first."""
    landing: Landing[V] | None = None
    failure: CallError | None = None

    @property
    def is_over(self) -> bool:
        return self.landing is not None or self.failure is not None


@attrs.define(eq=False)
class Flights(Generic[V]):
    """The calls that are under way, by their key."""

    _by_key: dict[bytes, _Flight[V]] = attrs.field(factory=dict)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    async def join(
        self,
        key: bytes,
        fetch: Callable[[], Awaitable[V]],
        waiting: Callable[[], AbstractContextManager[object]],
    ) -> Landing[V]:
        """What the call that is under way gives, or else `fetch`, which others may join.

        A checkpoint if one has to wait, or `fetch` is one.

        Raises:
            CallError: The call that was joined failed; a copy for each.
            Exception: Whatever one's own `fetch` raised.
        """
        flight = self._by_key.get(key)
        if flight is None:
            flight = self._by_key[key] = _Flight()
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
        flight: _Flight[V],
        waiting: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Wait until the call is over, or one is to lead."""
        seat = _Seat()
        flight.line[seat] = None
        has_come = False
        try:
            with waiting():
                await seat.woken.wait()
            has_come = True
        finally:
            flight.line.pop(seat, None)
            if seat.woken.is_set() and not has_come and not flight.is_over:
                self._hand_over(key, flight)  # one was to lead, and cannot

    async def _lead(
        self, key: bytes, flight: _Flight[V], fetch: Callable[[], Awaitable[V]]
    ) -> Landing[V]:
        try:
            landing = flight.landing = Landing(await fetch(), is_own=True)
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

    def _hand_over(self, key: bytes, flight: _Flight[V]) -> None:
        """Let the next in line lead; without a line there is nothing to lead."""
        seat = next(iter(flight.line), None)
        if seat is None:
            del self._by_key[key]
            return
        del flight.line[seat]
        seat.woken.set()


def again(error: E) -> E:
    """The same error, to be raised elsewhere too: one that is raised twice mixes up two tracebacks.

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
