"""What writing to a bus has cost."""

import math
import operator
from bisect import bisect_left
from collections import Counter

import attrs

LOCK_WAIT_BOUNDS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, math.inf)
"""Seconds by which waits for the lock are told apart."""

_LARGEST = frozenset({"largest_batch", "longest_lock_wait_s"})


@attrs.define
class BusStats:
    """What writing to a bus has cost so far, of one writer."""

    appends: int = 0
    """Messages that were written."""
    batches: int = 0
    largest_batch: int = 0
    """Messages."""
    bytes: int = 0
    lock_attempts: int = 0
    """Times that somebody began to wait for the lock."""
    retries: int = 0
    """Those of them after one that came to nothing."""
    timeouts: int = 0
    lock_wait_s: float = 0.0
    """In all."""
    longest_lock_wait_s: float = 0.0
    lock_waits: Counter[float] = attrs.field(factory=Counter)
    """By each of `LOCK_WAIT_BOUNDS`, how many waits were so long, and longer than the one before."""
    rotations: int = 0
    repaired: int = 0
    """Torn ends of files that were cut off."""

    def waited(self, seconds: float) -> None:
        """Somebody has waited for the lock, and has it or has given up."""
        self.lock_wait_s += seconds
        self.longest_lock_wait_s = max(self.longest_lock_wait_s, seconds)
        self.lock_waits[LOCK_WAIT_BOUNDS[bisect_left(LOCK_WAIT_BOUNDS, seconds)]] += 1

    def add(self, other: "BusStats") -> None:
        """Count what another writer has cost, too."""
        for field in attrs.fields(BusStats):
            together = max if field.name in _LARGEST else operator.add
            both = together(getattr(self, field.name), getattr(other, field.name))
            setattr(self, field.name, both)
