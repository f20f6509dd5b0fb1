"""What writing to a bus has cost."""

import attrs


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
    rotations: int = 0
    repaired: int = 0
    """Torn ends of files that were cut off."""
