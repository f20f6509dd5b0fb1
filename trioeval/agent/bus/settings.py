"""How a bus is written."""

import math
from bisect import bisect_left
from collections import Counter
from typing import Literal

import attrs

from trioeval.errors import UsageError

# What writing to a bus has cost.


LOCK_WAIT_BOUNDS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, math.inf)
"""Seconds by which waits for the lock are told apart."""


@attrs.define
class BusStats:
    """What writing to a bus has cost so far, of one writer or of several that share it."""

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


_LONGEST_PAUSE = 10.0  # seconds
_DOUBLINGS = 100  # what is not 10 seconds after these never is


@attrs.frozen(kw_only=True)
class BusSettings:
    """How a bus is written.

    Raises:
        UsageError: A number is out of its range.
    """

    rotate_bytes: int | None = None
    """Size at which a file is closed and the next one begun, > 0; None never does."""
    keep_segments: int | None = None
    """Files that are kept, ≥ 1, the newest; None keeps all. Only a rotation removes any."""
    lock_timeout: float = 10.0
    """Seconds of one try to get the lock, > 0."""
    append_attempts: int = 3
    """Tries to get it, ≥ 1."""
    retry_delay: float = 0.1
    """Seconds before the second try, at most; doubled before each further one, up to 10."""
    fsync: Literal["never", "batch", "always"] | None = None
    """Whether a batch of messages is written through to the disk, or each message; None does so with batches
    that hold a type of `DURABLE`. A file that a rotation closes is written through unless this is never."""

    def pause(self, tries: int) -> float:
        """Seconds before the next try, at most; after so many of them, ≥ 1.

        Example:
            >>> [BusSettings().pause(tries) for tries in (1, 2, 9999)]
            [0.1, 0.2, 10.0]
        """
        return min(_LONGEST_PAUSE, self.retry_delay * 2.0 ** min(tries - 1, _DOUBLINGS))

    def __attrs_post_init__(self) -> None:
        wishes = {
            "rotate_bytes": (self.rotate_bytes is None or self.rotate_bytes > 0, "> 0, or none"),
            "keep_segments": (
                self.keep_segments is None or self.keep_segments >= 1,
                "1 or more, or none",
            ),
            "lock_timeout": (0 < self.lock_timeout < math.inf, "> 0"),
            "append_attempts": (self.append_attempts >= 1, "1 or more"),
            "retry_delay": (0 <= self.retry_delay < math.inf, "0 or more"),
            "fsync": (
                self.fsync in (None, "never", "batch", "always"),
                "never, batch, always, or none",
            ),
        }
        problems = [
            f"{name}: {getattr(self, name)!r} must be {right}"
            for name, (is_right, right) in wishes.items()
            if not is_right
        ]
        if problems:
            raise UsageError("the settings of a message bus: " + "; ".join(problems))
