# Separate from `cli.run.run`: logs are shown by any command, not only by runs.
"""`--log LEVEL`: the log of the library on stderr."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from trioeval.cli.flags import LogLevel
from trioeval.cli.terminal import say
from trioeval.text_safety import inert_lines

_MOST = 4000  # characters of a record, with its traceback


@contextmanager
def shown_logs(level: LogLevel | None) -> Iterator[None]:
    """Show log records of `trioeval` from a level on while the block runs; None shows none."""
    if level is None:
        yield
        return
    logger, handler = logging.getLogger("trioeval"), _StderrHandler()
    before = logger.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Print a record as harmless text, since it may contain foreign names and messages."""
        say(inert_lines(self.format(record), _MOST))
