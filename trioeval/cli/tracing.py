"""`--trace FILE`: what lanes and calls did, and when, for a viewer of traces."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trioeval.kernel import Observer


@contextmanager
def open_trace(
    path: Path | None, began_at: float, warn: Callable[[str], None]
) -> Iterator[Observer | None]:
    """Write down everything that an observer is told, for as long as the block; a whole file in any case.

    Args:
        path: The file; None writes nothing.
        began_at: When the run began, on the Trio clock: the zero of the trace.
        warn: Told of the first thing that cannot be written; the run goes on.

    Raises:
        OutputError: The file cannot be begun; nothing was called.
    """
    yield None
