"""Waits for the first of several things."""

import math
from collections.abc import Awaitable, Callable

import trio


async def first_of(*waits: Callable[[], Awaitable[None]], seconds: float = math.inf) -> None:
    """Return when one of some waits is over, or so many seconds are; the others are cancelled. A checkpoint.

    Raises:
        Exception: What one of them raised, by itself.
    """
    failures: list[Exception] = []

    async def one(wait: Callable[[], Awaitable[None]]) -> None:
        try:
            await wait()
        except Exception as error:  # noqa: BLE001 - raised below: no group around it
            failures.append(error)
        nursery.cancel_scope.cancel("one of the waits is over")

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for wait in waits:
                nursery.start_soon(one, wait)
    if failures:
        raise failures[0]
