"""Lets cases go on in the order in which they came, whatever each of them has to do before."""

from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import attrs
import trio

from trioeval.agents.terms import Slots

R = TypeVar("R")


@attrs.define(eq=False)
class Place:
    """The place of one case. Made by `Procession.join`."""

    _procession: "Procession" = attrs.field(repr=False)
    is_first: trio.Event = attrs.field(init=False, factory=trio.Event)
    has_left: bool = attrs.field(init=False, default=False)

    async def come_first(self) -> None:
        """Return when all that came before have left. A checkpoint."""
        await self.is_first.wait()

    def leave(self) -> None:
        """Let the next one go on. Said twice, the first time counts."""
        self.has_left = True
        self._procession.advance()


@attrs.define(eq=False)
class Procession:
    """Cases that get ready at the same time, and go on one after another."""

    _places: deque[Place] = attrs.field(init=False, factory=deque)

    @contextmanager
    def join(self) -> Generator[Place]:
        """Take the last place, until it is left or the block is over."""
        place = Place(self)
        self._places.append(place)
        self.advance()
        try:
            yield place
        finally:
            place.leave()

    def advance(self) -> None:
        """Forget those at the front who have left, and tell who is first now."""
        while self._places and self._places[0].has_left:
            self._places.popleft()
        if self._places:
            self._places[0].is_first.set()


@attrs.frozen
class InOrder:
    """Slots; whoever asks for one makes way for the next case."""

    slots: Slots
    place: Place

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run something in a slot, when it is its turn."""
        self.place.leave()
        return await self.slots(run)
