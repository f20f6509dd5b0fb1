"""The settings and statistics of writing a bus."""

import math
from bisect import bisect_left
from collections import Counter
from typing import Literal

import attrs

from trioeval.errors import UsageError

# Statistics of writing.


LOCK_WAIT_BOUNDS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, math.inf)
"""Upper bounds of the histogram of waits for the lock, in seconds."""


@attrs.define
class BusStats:
    """The cost of writing a bus so far, for one writer or for several that share it."""

    appends: int = 0
    """Number of written messages."""
    batches: int = 0
    largest_batch: int = 0
    """Number of messages."""
    bytes: int = 0
    lock_attempts: int = 0
    """Number of waits for the lock."""
    retries: int = 0
    """Number of waits after a failed one."""
    timeouts: int = 0
    lock_wait_s: float = 0.0
    """Total."""
    longest_lock_wait_s: float = 0.0
    lock_waits: Counter[float] = attrs.field(factory=Counter)
    """Number of waits up to each of `LOCK_WAIT_BOUNDS`, and longer than the one before."""
    rotations: int = 0
    repaired: int = 0
    """Number of incomplete records that were removed at the end of files."""

    def waited(self, seconds: float) -> None:
        """Count a wait for the lock, successful or not."""
        self.lock_wait_s += seconds
        self.longest_lock_wait_s = max(self.longest_lock_wait_s, seconds)
        self.lock_waits[LOCK_WAIT_BOUNDS[bisect_left(LOCK_WAIT_BOUNDS, seconds)]] += 1


_LONGEST_PAUSE = 10.0  # seconds
_DOUBLINGS = 100  # enough to reach the longest pause from any delay


@attrs.frozen(kw_only=True)
class BusSettings:
    """The settings for writing a bus.

    Raises:
        UsageError: A number is out of range.
    """

    rotate_bytes: int | None = None
    """Size at which a file is closed and the next one started, > 0; None means never."""
    keep_segments: int | None = None
    """Number of newest files that are kept, ≥ 1; None keeps all. Only a rotation removes files."""
    lock_timeout: float = 10.0
    """Timeout of one attempt to take the lock in seconds, > 0."""
    append_attempts: int = 3
    """Maximum number of attempts, ≥ 1."""
    retry_delay: float = 0.1
    """Maximum seconds before the second attempt; doubled before each further one, up to 10."""
    fsync: Literal["never", "batch", "always"] | None = None
    """Flushes to the disk: none, each batch of messages, or each message; None flushes batches that contain a
    type of `DURABLE`. A file that a rotation closes is flushed unless this is never."""

    def pause(self, tries: int) -> float:
        """Return the maximum seconds before the next attempt, after a number of attempts, ≥ 1.

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
