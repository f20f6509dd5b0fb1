"""Runs on a virtual clock: hours of waiting take milliseconds, and a deadlock fails at once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio
import trio.testing

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_DEADLOCK_AFTER = (
    1e7  # virtual seconds: far beyond any scenario, reached at once when nothing can happen
)


def run_virtual(main: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R:
    """Run `main(*args)` in its own Trio run, whose clock starts at 0 and jumps over every wait.

    Inside, no threads, sockets or child processes: the clock does not wait for them.

    Returns:
        The result of `main`.

    Raises:
        trio.TooSlowError: Every task waits for ever: a deadlock or a lost wake-up.

    Example:
        >>> async def an_hour():
        ...     await trio.sleep(3600)
        ...     return trio.current_time()
        >>> run_virtual(an_hour)
        3600.0
    """

    async def bounded() -> R:
        with trio.fail_after(_DEADLOCK_AFTER):
            return await main(*args)

    return trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))
