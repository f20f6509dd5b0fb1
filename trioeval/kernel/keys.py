"""Jobs that share a key: in index order, one at a time, while others run freely.

For conversations and registers, where a job needs what the one before it left. A key that is taken holds
its later jobs as integers.
"""

import heapq
from collections.abc import Hashable

import attrs


@attrs.define(eq=False)
class Keys:
    """Who has each key, and who waits for it."""

    _holder: dict[Hashable, int] = attrs.field(factory=dict)
    _waiting: dict[Hashable, list[int]] = attrs.field(factory=dict)
    """Heaps of indices, of which some may be over: blocked before their turn."""
    _key_of: dict[int, Hashable] = attrs.field(factory=dict)
    """Of jobs that have or want one."""

    @property
    def waiting(self) -> int:
        """Jobs that wait for their key."""
        return len(self._key_of) - len(self._holder)

    def take(self, index: int, key: Hashable) -> bool:
        """Give a job its key, if it has not got it, or let it wait for it."""
        self._key_of[index] = key
        if self._holder.setdefault(key, index) == index:
            return True
        heapq.heappush(self._waiting.setdefault(key, []), index)
        return False

    def over(self, index: int) -> int | None:
        """A job has its outcome, whether it had its key or not; returns the job that has the key now."""
        if index not in self._key_of:
            return None
        key = self._key_of.pop(index)
        if self._holder[key] != index:
            return None
        waiting = self._waiting.get(key)
        while waiting:
            heir = heapq.heappop(waiting)
            if heir in self._key_of:
                self._holder[key] = heir
                return heir
        del self._holder[key]
        self._waiting.pop(key, None)
        return None

    def waits(self, index: int) -> bool:
        """Whether a job wants a key that another one has."""
        return index in self._key_of and self._holder[self._key_of[index]] != index
