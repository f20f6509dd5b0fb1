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
