"""How long work takes, on machines that stand still now and then."""

import time
from collections.abc import Callable


def takes_less(seconds: float, work: Callable[[], object]) -> bool:
    """Whether work takes less of this process's processor time: the least of three times.

    Virtual machines also count what others took of the processor. That makes work longer, never shorter.
    """
    for _ in range(3):
        began = time.process_time()
        work()
        if time.process_time() - began < seconds:
            return True
    return False


_USUAL = 0.012
"""Seconds of a processor that `_work` takes where nothing else runs."""


def slowness() -> float:
    """How many times slower than usual the machine is; at least 1. Ask right after what was measured.

    For what cannot be measured alone, such as the longest step of a loop.
    """
    began = time.process_time()
    _work()
    return max(1.0, (time.process_time() - began) / _USUAL)


def _work() -> None:
    found = dict[str, int]()
    for number in range(100_000):
        found[str(number % 5000)] = number
