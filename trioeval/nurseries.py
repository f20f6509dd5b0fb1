"""A nursery for a block of library users: exceptions of the block are not wrapped in a group."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_plain_nursery() -> AsyncGenerator[trio.Nursery]:
    """Open a nursery whose block raises its own exceptions unwrapped, after all tasks have ended.

    So does Ctrl-C in the block: a caller of `trio.run` catches `KeyboardInterrupt` as in any program.

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
    failure: Exception | KeyboardInterrupt | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised below, unwrapped
            failure = error
    if failure is not None:
        raise failure
