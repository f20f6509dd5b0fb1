"""Measurements of processor time on machines that are busy at times."""

import time
from collections.abc import Callable


def takes_less(seconds: float, work: Callable[[], object]) -> bool:
    """Return whether work takes less processor time of this process; the least of three measurements counts.

    Virtual machines also count processor time that others took. That makes work longer, never shorter.
    """
    for _ in range(3):
        began = time.process_time()
        work()
        if time.process_time() - began < seconds:
            return True
    return False


_USUAL = 0.012
"""Processor seconds that `_work` takes on an idle machine."""


def slowness() -> float:
    """Return how much slower than usual the machine is, at least 1. Call it directly after the measurement.

    It is for measurements that cannot be isolated, such as the longest step of a loop.
    """
    began = time.process_time()
    _work()
    return max(1.0, (time.process_time() - began) / _USUAL)


def _work() -> None:
    found = dict[str, int]()
    for number in range(100_000):
        found[str(number % 5000)] = number
