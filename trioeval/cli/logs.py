# Apart from `cli.run.run`: what the library logs is shown by any command, not only by runs.
"""`--log LEVEL`: what the library logs, on stderr."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from trioeval.cli.flags import LogLevel
from trioeval.cli.terminal import say
from trioeval.inert import inert_lines

_MOST = 4000  # characters of a record, with its traceback


@contextmanager
def shown_logs(level: LogLevel | None) -> Iterator[None]:
    """Show records of `trioeval` from a level on, for as long as the block; None shows none."""
    if level is None:
        yield
        return
    logger, handler = logging.getLogger("trioeval"), _Lines()
    before = logger.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Say it; names and reasons of others stand in it."""
        say(inert_lines(self.format(record), _MOST))
