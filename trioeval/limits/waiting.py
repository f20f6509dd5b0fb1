# Apart from `limits.memory`: plain data, which knows nothing of Trio or of who keeps the limits.
"""Who, of those that wait for shares of several limits, may start.

**The problem.** One line for all would let a call of one provider wait for a limit of another. A line for
each limit would let a small request overtake a large one for ever: whatever becomes free is taken before it
is enough.

**The rule.** Every waiter has an arrival number and needs so much of each of its keys. It may start when

* there is room for it on all of its keys,
* no earlier waiter needs just the same keys, and
* after its start every earlier waiter would still find its room on every key that both need.

The last is one inequality, `room - mine ≥ its`, for two demands: nothing is taken of a key that an earlier
waiter is short of, and no earlier waiter is made short of one. Room is left for each of them, not for all
together: else a hundred that wait for one full key would keep everybody from another, of which they could
use but a little at a time.

A waiter that needs a paused key is parked: it keeps its number, and holds back nobody until the key opens.

**What follows.** Who passes a waiter is never the reason why that waiter cannot start. So it starts at the
latest when all that started before it came, or stood before it, have given back what they took: a stream of
small requests does not starve a large one.

Whoever keeps the limits is asked for the room of a key, and nothing else is known of it here.
"""

import heapq
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

import attrs

Room: TypeAlias = Callable[[str], float | None]
"""How much of a key may be taken now; None while it is paused. Who knows of no bound says `math.inf`."""


@attrs.define(eq=False)
class Waiter:
    """One that waits."""

    needs: Mapping[str, int]
    """How much of which keys, of each at least 1."""
    keys: frozenset[str] = attrs.field(init=False)
    number: int = attrs.field(init=False, default=-1)
    """Of its arrival; see `Order.join`."""

    @keys.default
    def _keys_of_needs(self) -> frozenset[str]:
        return frozenset(self.needs)


W = TypeVar("W", bound=Waiter)


@attrs.define(eq=False)
class Order(Generic[W]):
    """Those that wait, in the order in which they came.

    Example:
        >>> order, room = Order(), {"tokens": 50, "calls": 1}.__getitem__
        >>> large = order.join(Waiter({"tokens": 90}))
        >>> order.obstacles({"tokens": 10}, room), order.obstacles({"calls": 1}, room)
        (('tokens',), ())
        >>> order.serve(room, print) == [(large, ("tokens",))]
        True
    """

    _lines: dict[frozenset[str], OrderedDict[int, W]] = attrs.field(factory=dict)
    """By key set: within one, only the first may start."""
    _arrivals: Iterator[int] = attrs.field(factory=itertools.count)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[W]:
        """By arrival."""
        waiters = (waiter for line in self._lines.values() for waiter in line.values())
        return iter(sorted(waiters, key=_number))

    def join(self, waiter: W) -> W:
        """Wait behind all that are there."""
        waiter.number = next(self._arrivals)
        self._lines.setdefault(waiter.keys, OrderedDict())[waiter.number] = waiter
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Wait no more, served or not; nothing of it is left."""
        line = self._lines[waiter.keys]
        del line[waiter.number]
        if not line:
            del self._lines[waiter.keys]

    def serve(self, room: Room, start: Callable[[W], None]) -> list[tuple[W, tuple[str, ...]]]:
        """Let all start that may, by arrival.

        Args:
            room: What there is before.
            start: Called with each; it has left the order, and takes what it needs.

        Returns:
            Of every key set the first one that may not, with the keys that keep it, as `held_back` says them.
        """
        rooms = _Rooms(room)
        held: list[tuple[W, tuple[str, ...]]] = []
        heads = [(head.number, head) for head in map(_head, self._lines.values())]
        heapq.heapify(heads)
        # Once is enough: a start makes no room, and opens the way for those of its own keys alone.
        while heads:
            _, waiter = heapq.heappop(heads)
            if keys := self.held_back(waiter, rooms.__getitem__):
                held.append((waiter, keys))
                continue
            line = self._lines[waiter.keys]
            self.leave(waiter)
            start(waiter)
            rooms.take(waiter.needs)
            if line:
                head = _head(line)
                heapq.heappush(heads, (head.number, head))
        return held

    def held_back(self, waiter: Waiter, room: Room) -> tuple[str, ...]:
        """The keys that keep one from starting; none if it may.

        These are the paused ones; if there are none, those that lack room; if there are none, those on which
        an earlier waiter would be passed.
        """
        return self._obstacles(waiter.needs, waiter.keys, waiter.number, room)

    def obstacles(self, needs: Mapping[str, int], room: Room) -> tuple[str, ...]:
        """The keys that keep one from starting who comes now, likewise; none if nobody is passed."""
        return self._obstacles(needs, frozenset(needs), math.inf, room)

    def _obstacles(
        self, needs: Mapping[str, int], keys: frozenset[str], number: float, room: Room
    ) -> tuple[str, ...]:
        left: dict[str, float] = {}
        paused: list[str] = []
        for key, amount in needs.items():
            there_is = room(key)
            if there_is is None:
                paused.append(key)
            else:
                left[key] = there_is - amount
        if short := paused or [key for key, rest in left.items() if rest < 0]:
            return tuple(short)
        for theirs, line in self._lines.items():
            head = _head(line)
            if head.number >= number or keys.isdisjoint(theirs):
                continue
            if theirs == keys:
                return self.held_back(head, room) or tuple(needs)
            if any(room(key) is None for key in theirs - keys):
                continue
            passed = _passed(line, number, left)
            if passed:
                return passed
        return ()


class _Rooms(dict[str, float | None]):
    """What there is of every key, asked for once."""

    def __init__(self, room: Room) -> None:
        super().__init__()
        self._room = room

    def __missing__(self, key: str) -> float | None:
        found = self[key] = self._room(key)
        return found

    def take(self, needs: Mapping[str, int]) -> None:
        """So much of it is taken."""
        for key, amount in needs.items():
            self[key] = (self[key] or 0) - amount


def _passed(line: OrderedDict[int, W], number: float, left: Mapping[str, float]) -> tuple[str, ...]:
    """On which keys a start that leaves so much would pass one of a line that came before it."""
    for earlier in line.values():
        if earlier.number >= number:
            break
        passed = tuple(key for key, rest in left.items() if rest < earlier.needs.get(key, 0))
        if passed:
            return passed
    return ()


def _head(line: OrderedDict[int, W]) -> W:
    return next(iter(line.values()))


def _number(waiter: Waiter) -> int:
    return waiter.number
