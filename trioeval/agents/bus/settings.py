"""How a bus is written."""

from typing import Literal

import attrs


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
    """Seconds before the second try; doubled before each further one."""
    fsync: Literal["never", "batch", "always"] | None = None
    """Whether a batch of messages is written through to the disk, or each message; None does so with batches
    that hold a type of `DURABLE`."""
