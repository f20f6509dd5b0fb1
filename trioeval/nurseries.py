"""A nursery for a block of library users: exceptions of the block are not wrapped in a group."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_plain_nursery() -> AsyncGenerator[trio.Nursery]:
    """Open a nursery whose block raises its own exceptions unwrapped, after all tasks have ended.

    Errors of the tasks come in a group, as in any nursery. The end of the block waits for the tasks.

    Example:
        >>> async def main():
        ...     async with open_plain_nursery() as nursery:
        ...         nursery.start_soon(trio.sleep, 0)
        ...         raise ValueError("no")
        >>> trio.run(main)
        Traceback (most recent call last):
        ...
        ValueError: no
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as error:  # noqa: BLE001 - raised below, where no nursery wraps it
            failure = error
    if failure is not None:
        raise failure
