# Separate from `limits.remote`: together they exceed 600 lines.
"""The order in which the calls of one program request leases from a remote backend.

**The problem.** The backend knows no order: it decides about each request as it arrives. Two calls of one
program that need the same limit would overtake each other, and small ones could for ever take what a large
one needs. Only the backend knows how much room there is, so the order cannot depend on room.

**The rule.** A waiter *claims* limits: all that it needs while its request is pending, those that denied it
while it waits. It may send a request when no earlier waiter claims a limit that it needs. So waiters that
need the same limit proceed in the order of their arrival, those that share no limit never delay each other,
and none takes what an earlier one lacks. A waiter whose limit is paused claims only that limit.

**The length of a claim.** A waiter that is denied repeatedly claims the limits that were lacking each time:
another limit would not help it, and would stay idle for as long as the first one is full. If finally no limit
was lacking each time, limits that are full by turns keep it out. It then claims all of them, so that the
leases of this program in its way end without successors. But leases of other programs may be in its way, so
it does so for a bounded time: `KEPT` seconds, and twice as long each further time. Of what other calls of
this program could take in the long run, only that is lost for which the waiter had a chance and missed it,
and it waits at most a few times as long as their calls take. A long wait, whose length is known, ends all
claims but those of its cause.

Rejected: one queue for all limits (a full limit would stop every lane), and all requests at once in one
message (the second would be granted what the first was denied).
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import attrs
import trio

KEPT = 10.0
"""Seconds for which a waiter first claims all limits that denied it by turns."""


@attrs.define(eq=False, repr=False)
class RequestTurn:
    """A waiter; created by `RequestTurns.join`."""

    number: int
    """The number of its arrival."""
    keys: frozenset[str]
    """The limits that it needs."""
    _on_waiting: Callable[[frozenset[str]], None]
    """Called with the limits that an earlier waiter keeps from it."""
    claims: frozenset[str] = frozenset()
    """The limits that no later waiter may request."""
    is_asking: bool = False
    is_unanswered: bool = False
    """True while its request takes longer because the backend does not answer."""
    wants: bool = True
    """True if it would send a request if it could."""
    news: set[str] | None = attrs.field(factory=set)
    """The limits that got room since it sent its request; None for all limits."""
    _behind: frozenset[str] = frozenset()
    _keeps_until: float = math.inf
    """The end of its claim on all limits that denied it by turns; inf while it has no such claim."""
    _keeps_for: float = KEPT
    """Seconds of its next such claim."""
    _called: trio.Event = attrs.field(factory=trio.Event)

    async def wait(self) -> None:
        """Sleep until it may send a request. A checkpoint."""
        await self._called.wait()

    def call(self) -> None:
        """Allow it to send a request."""
        self.is_asking, self.is_unanswered, self.wants, self.news = True, False, False, set()
        self._behind = frozenset()
        self._called.set()

    def report_behind(self, keys: frozenset[str]) -> None:
        """Report the limits that earlier waiters keep from it, if they have changed."""
        if keys and keys != self._behind:
            self._on_waiting(keys)
        self._behind = keys

    def rest(self, short: frozenset[str], now: float, *, is_long: bool) -> None:
        """End its request, denied at these limits, and wait."""
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


@attrs.define(eq=False, repr=False)
class RequestTurns:
    """The waiters, in the order of their arrival.

    Example:
        >>> turns = RequestTurns()
        >>> first, second = turns.join({"a", "b"}, print), turns.join({"b", "c"}, print)
        >>> first.is_asking, second.is_asking
        (True, False)
        >>> turns.denied(first, {"a"}, now=0.0, is_long=False)
        >>> second.is_asking
        True
        >>> third = turns.join({"a"}, print)
        frozenset({'a'})
    """

    _turns: dict[int, RequestTurn] = attrs.field(factory=dict)
    _arrivals: Iterator[int] = attrs.field(factory=itertools.count)

    def __len__(self) -> int:
        return len(self._turns)

    def join(
        self, keys: Iterable[str], on_waiting: Callable[[frozenset[str]], None]
    ) -> RequestTurn:
        """Add a waiter behind all others; it may send a request at once if nothing is in its way.

        Args:
            keys: The limits that it needs.
            on_waiting: Called synchronously, also in this step, with the limits that earlier waiters keep
                from it, whenever these change.
        """
        turn = RequestTurn(next(self._arrivals), frozenset(keys), on_waiting)
        self._turns[turn.number] = turn
        self._call()
        return turn

    def leave(self, turn: RequestTurn) -> None:
        """Remove a waiter, served or not."""
        del self._turns[turn.number]
        self._call()

    def denied(self, turn: RequestTurn, keys: Iterable[str], now: float, *, is_long: bool) -> None:
        """Record a denial; if one of these limits got room meanwhile, the waiter retries.

        Args:
            turn: The waiter whose request was denied.
            keys: The limits that lack room; none means all that it needs.
            now: The instant, in seconds on any monotonic clock.
            is_long: True for a long wait: then it claims only these limits.
        """
        short = frozenset(keys) & turn.keys or turn.keys
        turn.wants = turn.news is None or not turn.news.isdisjoint(short)
        turn.rest(short, now, is_long=is_long)
        self._call()

    def mark_unanswered(self, turn: RequestTurn) -> None:
        """Record that a request is not answered yet."""
        turn.is_unanswered = True
        self._call()

    def want(self, turn: RequestTurn) -> None:
        """Let a waiter send a request as soon as it may."""
        if not turn.is_asking:
            turn.wants = True
            self._call()

    def notify_room(self, keys: Iterable[str]) -> None:
        """Report room of these limits, or of all without any: waiters that lack one of them retry."""
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
        for turn in self._turns.values():  # in the order of their arrival
            if turn.wants and claimed.isdisjoint(turn.keys):
                turn.call()
            elif turn.wants:
                turn.report_behind(turn.keys & waited_for)
            claimed |= turn.keys if turn.is_asking else turn.claims
            if not turn.is_asking:
                waited_for |= turn.claims
            elif turn.is_unanswered:
                waited_for |= turn.keys
