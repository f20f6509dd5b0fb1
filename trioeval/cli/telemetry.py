"""`--otel`: a run as spans and events of OpenTelemetry."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trioeval.telemetry.spans import Telemetry


@contextmanager
def open_telemetry(
    *, on: bool, run_id: str, description: str | None, warn: Callable[[str], None]
) -> Iterator["Telemetry | None"]:
    """Send what happens in a run to OpenTelemetry, for as long as the block; flush at its end.

    Args:
        on: Whether it is asked for.
        run_id: Of the run.
        description: Of the suite.
        warn: Told of what cannot be sent.

    Raises:
        UsageError: The extra `otel`, or whatever should export, is not installed; nothing was called.
    """
    yield None
