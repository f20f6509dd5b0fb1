"""How slow the machine is just now, so that a bound in seconds means the same on a slow one."""

import time

USUAL = 0.012
"""Seconds of a processor that `work` takes where nothing else runs."""


def work() -> int:
    """Something that takes a little while, of the kind that the tests measure."""
    found = dict[str, int]()
    for number in range(100_000):
        found[str(number % 5000)] = number
    return len(found)


def slowness() -> float:
    """How many times slower than usual; at least 1. To be asked right after what was measured."""
    began = time.process_time()
    work()
    return max(1.0, (time.process_time() - began) / USUAL)
