"""Looks for a pattern in an output for a bounded time.

Some patterns take longer than anybody can wait, on outputs that nobody foresaw: the time of `(a+)+$` doubles
with each `a`. A search may first take so little time that nobody waits for it, and then, where it
disturbs nobody, the time after which it is given up. The package counts processor time, of all threads
together; therefore long searches are made one after another.
"""

import threading

from trioeval.errors import GradingError
from trioeval.grading.regex import Pattern
from trioeval.grading.text import quote

AT_ONCE = 0.01  # seconds
LONGEST = 1.0  # seconds
_ALONE = threading.Lock()


def found_at_once(pattern: Pattern, text: str) -> bool | None:
    """Whether a pattern is found in a text; None if that takes longer than `AT_ONCE`."""
    try:
        return pattern.search(text, timeout=AT_ONCE) is not None
    except TimeoutError:
        return None


def found_in_time(pattern: Pattern, text: str, *, written: str) -> bool:
    """Whether a pattern is found in a text. Blocks, and other threads go on meanwhile.

    Args:
        pattern: What to look for.
        text: Where to look.
        written: The pattern as it stands in the suite.

    Raises:
        GradingError: That takes longer than `LONGEST`.
    """
    try:
        with _ALONE:
            return pattern.search(text, timeout=LONGEST, concurrent=True) is not None
    except TimeoutError:
        msg = f"looking for {quote(written)} took longer than {LONGEST:g} second on this output"
        raise GradingError(msg) from None
    except MemoryError:
        msg = f"looking for {quote(written)} took too much memory on this output"
        raise GradingError(msg) from None
