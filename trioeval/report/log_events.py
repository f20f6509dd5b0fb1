"""What matters of a run as records of Python's `logging`, under `trioeval.run`."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from trioeval.kernel.events import (
    CallEnded,
    Event,
    LaneClosed,
    LimitChanged,
    Salvaged,
    Throttled,
    Waiting,
)
from trioeval.report.inert import inert
from trioeval.report.trace import error_kind

_log = logging.getLogger("trioeval.run")
_MOST = 200  # characters of a text of somebody else's


def log_events(event: Event) -> None:
    """Log an event of the kernel; an observer of `run_suite`.

    A lane that is closed is a warning. Refusals, failures, salvage and other limits are information. What
    is waited for is for debugging. No prompt and no reply is in any of it.

    Example:
        >>> import sys
        >>> handler = logging.StreamHandler(sys.stdout)
        >>> _log.addHandler(handler)
        >>> log_events(LaneClosed(1.0, "openai", "auth: the key is wrong"))
        lane openai is closed: auth: the key is wrong
        >>> _log.removeHandler(handler)
    """
    write = _WRITES.get(type(event))
    if write is not None:
        write(event)


def _closed(event: LaneClosed) -> None:
    _log.warning("lane %s is closed: %s", inert(event.lane, _MOST), inert(event.reason, _MOST))


def _throttled(event: Throttled) -> None:
    rest = "" if event.retry_after is None else f"; it asks to wait {event.retry_after:g} s"
    _log.info("lane %s refused a call of job %d%s", inert(event.lane, _MOST), event.index, rest)


def _ended(event: CallEnded) -> None:
    if event.error is not None:
        where, kind = inert(event.lane, _MOST), error_kind(event.error)
        _log.info("lane %s: a call of job %d failed: %s", where, event.index, kind)


def _limited(event: LimitChanged) -> None:
    _log.info("lane %s: at most %d calls at once", inert(event.lane, _MOST), event.limit)


def _salvaged(event: Salvaged) -> None:
    _log.info("%d jobs that failed by mishap are run again", len(event.indices))


def _waiting(event: Waiting) -> None:
    if _log.isEnabledFor(logging.DEBUG):
        who = "the next job" if event.index is None else f"job {event.index}"
        _log.debug("lane %s: %s waits for %s", inert(event.lane, _MOST), who, event.why.value)


_WRITES: Mapping[type, Callable[[Any], None]] = {
    LaneClosed: _closed,
    Throttled: _throttled,
    CallEnded: _ended,
    LimitChanged: _limited,
    Salvaged: _salvaged,
    Waiting: _waiting,
}
