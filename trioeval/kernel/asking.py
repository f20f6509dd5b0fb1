"""How a call comes by a permit, on a lane that counts against limits which others share too.

The problem: a permit may be a message away, or a minute, and whoever has one uses up what others wait for.
So a call must not take a slot before it has its permit, and must not take a permit before it could use it.
The rule: only the first in line asks, and only when nothing else is in its way. It keeps its place, and no
slot. With the answer it looks at its lane once more. If that is blocked by now, it gives the permit back
unused and asks again later.

Two things make that fair. Who asks stays first, also before calls that are made again: a question under
way is not taken back for them. And it keeps its place among the lanes that wait for the cap over all lanes,
until it is told that it has to wait: or else, on a full cap, the time that the answer takes would cost it
its turn again and again.

Rejected: to ask with a slot in hand (a slot would wait), to ask for everybody in line (permits of calls that
their lane does not let start), to keep a permit while the lane is blocked (others would wait for nothing).

Law: LEASE.
"""

from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from trioeval.kernel.events import Observer, Reserving, Waiting, Why
from trioeval.kernel.line import Line, Place
from trioeval.kernel.needs import Need
from trioeval.kernel.permits import Permit, Permits, Shortage


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
