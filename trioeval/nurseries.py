"""A nursery for a block of library users: exceptions of the block are not wrapped in a group."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_plain_nursery() -> AsyncGenerator[trio.Nursery]:
    """Open a nursery whose block raises its own exceptions unwrapped, after all tasks have ended.

    The same holds for an exit of the program and for Ctrl-C in the block, which cancel the tasks. Errors of
    the tasks come in a group, as in any nursery. The end of the block waits for the tasks.

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
    ending: KeyboardInterrupt | SystemExit | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except Exception as error:  # noqa: BLE001 - raised below, where no nursery wraps it
                failure = error
            except (KeyboardInterrupt, SystemExit) as error:
                ending = error
                raise
    except BaseExceptionGroup as group:
        if ending is not None and group.exceptions == (ending,):
            raise ending from None
        raise
    if failure is not None:
        raise failure
