# Separate from `limits.memory`: plain data, independent of Trio and of any backend.
"""The order in which requests that wait for shares of several limits may start.

**The problem.** One queue for all would let a call of one provider wait for a limit of another. A queue for
each limit would let small requests overtake a large one for ever: whatever becomes free is taken before it is
enough.

**The rule.** Every waiter has an arrival number and needs an amount of each of its keys. It may start when

* there is room for it on all of its keys,
* no earlier waiter needs exactly the same keys, and
* after its start every earlier waiter would still have its room on every key that both need.

The last condition is one inequality, `room - mine ≥ its`, for two demands: nothing is taken of a key that an
earlier waiter lacks, and no start makes an earlier waiter lack one. Room is reserved for each earlier waiter,
not for all together: otherwise a hundred that wait for one full key would keep all others from another, of
which they could use only a little at a time.

A waiter that needs a paused key is parked: it keeps its number, and holds back no other until the key is
resumed.

**The consequence.** A waiter that overtakes another is never the reason why that one cannot start. So each
starts at the latest when everything that started before it arrived, or was queued before it, has returned its
shares: a stream of small requests does not starve a large one.

The room of keys is the only information about the limits that is used here.
"""

import heapq
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

import attrs

Room: TypeAlias = Callable[[str], float | None]
"""Returns how much of a key may be taken now; None while it is paused, `math.inf` without a bound."""


@attrs.define(eq=False, repr=False)
class LimitWaiter:
    """A request that waits."""

    needs: Mapping[str, int]
    """The amounts that it needs by key, each at least 1."""
    keys: frozenset[str] = attrs.field(init=False)
    number: int = attrs.field(init=False, default=-1)
    """The number of its arrival; see `Order.join`."""

    @keys.default
    def _keys_of_needs(self) -> frozenset[str]:
        return frozenset(self.needs)


W = TypeVar("W", bound=LimitWaiter)


@attrs.define(eq=False, repr=False)
class WaitingOrder(Generic[W]):
    """The waiters, in the order of their arrival.

    Example:
        >>> order, room = WaitingOrder(), {"tokens": 50, "calls": 1}.__getitem__
        >>> large = order.join(LimitWaiter({"tokens": 90}))
        >>> order.obstacles({"tokens": 10}, room), order.obstacles({"calls": 1}, room)
        (('tokens',), ())
        >>> order.serve(room, print) == [(large, ("tokens",))]
        True
    """

    _lines: dict[frozenset[str], OrderedDict[int, W]] = attrs.field(factory=dict)
    """By set of keys: within one, only the first may start."""
    _arrivals: Iterator[int] = attrs.field(factory=itertools.count)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[W]:
        """Iterate over the waiters in the order of their arrival."""
        waiters = (waiter for line in self._lines.values() for waiter in line.values())
        return iter(sorted(waiters, key=_number))

    def join(self, waiter: W) -> W:
        """Add a waiter behind all others."""
        waiter.number = next(self._arrivals)
        self._lines.setdefault(waiter.keys, OrderedDict())[waiter.number] = waiter
        return waiter

    def leave(self, waiter: LimitWaiter) -> None:
        """Remove a waiter without trace, served or not."""
        line = self._lines[waiter.keys]
        del line[waiter.number]
        if not line:
            del self._lines[waiter.keys]

    def serve(self, room: Room, start: Callable[[W], None]) -> list[tuple[W, tuple[str, ...]]]:
        """Start all waiters that may start, in the order of their arrival.

        Args:
            room: The room before the call.
            start: Called with each; it has left the order, and takes what it needs.

        Returns:
            The first waiter of every set of keys that may not start, with the keys that hold it back; see
            `held_back`.
        """
        rooms = _Rooms(room)
        blocked: list[tuple[W, tuple[str, ...]]] = []
        heads = [(head.number, head) for head in map(_head, self._lines.values())]
        heapq.heapify(heads)
        # One pass is enough: a start makes no room, and opens the way only for waiters with the same keys.
        while heads:
            _, waiter = heapq.heappop(heads)
            if keys := self.held_back(waiter, rooms.__getitem__):
                blocked.append((waiter, keys))
                continue
            line = self._lines[waiter.keys]
            self.leave(waiter)
            start(waiter)
            rooms.take(waiter.needs)
            if line:
                head = _head(line)
                heapq.heappush(heads, (head.number, head))
        return blocked

    def held_back(self, waiter: LimitWaiter, room: Room) -> tuple[str, ...]:
        """Return the keys that hold back a waiter; none if it may start.

        These are the paused ones; without any, those that lack room; without any, those on which an earlier
        waiter would be overtaken.
        """
        return self._obstacles(waiter.needs, waiter.keys, waiter.number, room)

    def obstacles(self, needs: Mapping[str, int], room: Room) -> tuple[str, ...]:
        """Return the keys that would hold back a request that arrives now; see `held_back`."""
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
    """The room of every key, read once."""

    def __init__(self, room: Room) -> None:
        super().__init__()
        self._room = room

    def __missing__(self, key: str) -> float | None:
        found = self[key] = self._room(key)
        return found

    def take(self, needs: Mapping[str, int]) -> None:
        """Reduce the room by these amounts."""
        for key, amount in needs.items():
            self[key] = (self[key] or 0) - amount


def _passed(line: OrderedDict[int, W], number: float, left: Mapping[str, float]) -> tuple[str, ...]:
    """Return the keys on which a start that leaves `left` would overtake an earlier waiter of a queue."""
    for earlier in line.values():
        if earlier.number >= number:
            break
        passed = tuple(key for key, rest in left.items() if rest < earlier.needs.get(key, 0))
        if passed:
            return passed
    return ()


def _head(line: OrderedDict[int, W]) -> W:
    return next(iter(line.values()))


def _number(waiter: LimitWaiter) -> int:
    return waiter.number
