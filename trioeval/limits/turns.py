# Apart from `limits.remote`: together they exceed 600 lines.
"""Who, of those of one program that wait for leases, may ask whoever keeps the limits.

**The problem.** The keeper knows no order: it decides about each request as it comes. Two calls of one
program that need the same limit would overtake each other, and a small one could take for ever what a
large one needs. How much room there is the keeper alone knows, so the order cannot be one of room.

**The rule.** A waiter *claims* limits: all that it needs while it asks, those that it was denied at
while it waits. It may ask when nobody who came before it claims a limit that it needs. So those that
need the same go in the order in which they came, those that share nothing never delay each other, and
nobody takes what an earlier one is short of. A waiter whose limit is paused claims nothing but that.

**How long a claim lasts.** One that is denied again and again claims what was lacking each time: to keep
another limit for it would not help it, and leave that idle for as long as the first one is full. When
at last nothing has lacked each time, it is kept out by limits that are full by turns, and claims all of
them, so that the leases of this program which are in its way end and are not followed by others. But
what is in its way may belong to others, so it does so for a bounded time: `KEPT` seconds, and twice as
long each time. So of what others of this program could take in a long run only that is lost for which it
had a chance and missed it, and it waits at most some times as long as their calls take. A long wait, whose
length is known, ends all claims but those that it is for.

Rejected: one line for all (a full limit would stop every lane), and to ask for all at once in one
message (the second would be granted what the first was denied).
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import attrs
import trio

KEPT = 10.0
"""Seconds for which one claims at first all limits that it was denied at by turns."""


@attrs.define(eq=False)
class Turn:
    """One that waits; made by `Turns.join`."""

    number: int
    """Of its arrival."""
    keys: frozenset[str]
    """The limits that it needs."""
    _told: Callable[[frozenset[str]], None]
    """Called with limits that it has to wait for because an earlier one waits."""
    claims: frozenset[str] = frozenset()
    """Those that nobody who came later may ask for."""
    is_asking: bool = False
    is_unheard: bool = False
    """Whether it asks for longer, because nobody answers."""
    wants: bool = True
    """Whether it would ask if it could."""
    news: set[str] | None = attrs.field(factory=set)
    """The limits that are said to have room again since it began to ask; None: any."""
    _behind: frozenset[str] = frozenset()
    _keeps_until: float = math.inf
    """Until when it claims all that it was denied at by turns; inf while it claims what lacked each time."""
    _keeps_for: float = KEPT
    """Seconds of the next time that it does."""
    _called: trio.Event = attrs.field(factory=trio.Event)

    async def wait(self) -> None:
        """Sleep until it may ask. A checkpoint."""
        await self._called.wait()

    def call(self) -> None:
        """It may ask from now on."""
        self.is_asking, self.is_unheard, self.wants, self.news = True, False, False, set()
        self._behind = frozenset()
        self._called.set()

    def stand_behind(self, keys: frozenset[str]) -> None:
        """It would ask if others did not wait for these; told when they are others than before."""
        if keys and keys != self._behind:
            self._told(keys)
        self._behind = keys

    def rest(self, short: frozenset[str], now: float, *, is_long: bool) -> None:
        """It was denied at these limits, asks no more, and waits."""
        self.is_asking = False
        self._called = trio.Event()
        if is_long or now >= self._keeps_until or not self.claims:
            self.claims, self._keeps_until = short, math.inf
        elif self._keeps_until < math.inf:
            self.claims |= short
        elif each_time := self.claims & short:
            self.claims = each_time
        else:
            self.claims |= short
            self._keeps_until = now + self._keeps_for
            self._keeps_for *= 2


@attrs.define(eq=False)
class Turns:
    """Those that wait, in the order in which they came.

    Example:
        >>> turns = Turns()
        >>> first, second = turns.join({"a", "b"}, print), turns.join({"b", "c"}, print)
        >>> first.is_asking, second.is_asking
        (True, False)
        >>> turns.denied(first, {"a"}, now=0.0, is_long=False)
        >>> second.is_asking
        True
        >>> third = turns.join({"a"}, print)
        frozenset({'a'})
    """

    _turns: dict[int, Turn] = attrs.field(factory=dict)
    _arrivals: Iterator[int] = attrs.field(factory=itertools.count)

    def __len__(self) -> int:
        return len(self._turns)

    def join(self, keys: Iterable[str], told: Callable[[frozenset[str]], None]) -> Turn:
        """Wait behind all that are there; it may ask at once if nobody is in its way.

        Args:
            keys: The limits that it needs.
            told: Called synchronously, also in this step, with those of them that an earlier one waits
                for, whenever these are what it waits for and are others than before.
        """
        turn = Turn(next(self._arrivals), frozenset(keys), told)
        self._turns[turn.number] = turn
        self._call()
        return turn

    def leave(self, turn: Turn) -> None:
        """Wait no more, served or not."""
        del self._turns[turn.number]
        self._call()

    def denied(self, turn: Turn, keys: Iterable[str], now: float, *, is_long: bool) -> None:
        """It has asked in vain; if there was news of these limits meanwhile, it wants to ask again.

        Args:
            turn: It is asking.
            keys: The limits that lack room; none means all that it needs.
            now: The instant, in seconds on any clock that does not go back.
            is_long: Whether it waits long: then it claims just these.
        """
        short = frozenset(keys) & turn.keys or turn.keys
        turn.wants = turn.news is None or not turn.news.isdisjoint(short)
        turn.rest(short, now, is_long=is_long)
        self._call()

    def unheard(self, turn: Turn) -> None:
        """It asks, and nobody has answered yet."""
        turn.is_unheard = True
        self._call()

    def want(self, turn: Turn) -> None:
        """It wants to ask, and does as soon as it may."""
        if not turn.is_asking:
            turn.wants = True
            self._call()

    def tell(self, keys: Iterable[str]) -> None:
        """These limits may have room again, all of them if none is named: who lacks one wants to ask."""
        keys = frozenset(keys)
        for turn in self._turns.values():
            if turn.is_asking:
                if not keys:
                    turn.news = None
                elif turn.news is not None:
                    turn.news |= keys
            elif not keys or not turn.claims.isdisjoint(keys):
                turn.wants = True
        self._call()

    def _call(self) -> None:
        claimed: set[str] = set()
        waited_for: set[str] = set()
        for turn in self._turns.values():  # by arrival
            if turn.wants and claimed.isdisjoint(turn.keys):
                turn.call()
            elif turn.wants:
                turn.stand_behind(turn.keys & waited_for)
            claimed |= turn.keys if turn.is_asking else turn.claims
            if not turn.is_asking:
                waited_for |= turn.claims
            elif turn.is_unheard:
                waited_for |= turn.keys
