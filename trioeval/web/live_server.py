"""The running side: a socket of the file system on which a run can be watched and steered.

Nobody but the user who started the run can open it. It costs nothing while nobody is connected.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from trioeval.web.steering import Steering


@asynccontextmanager
async def serve_live(
    steering: Steering | None, warn: Callable[[str], None]
) -> AsyncIterator[Callable[[int | None, str | None], None]]:
    """Let a run be watched and steered, for as long as the block.

    Args:
        steering: The run; None lets nobody.
        warn: Told where it cannot be; the run goes on all the same.

    Yields:
        What to call when there is a new row, with its index and task.
    """
    yield lambda _index, _task: None
