"""The important events of a run as records of Python's `logging`, under `trioeval.run`."""

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
from trioeval.report.trace import error_kind
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

_log = logging.getLogger("trioeval.run")
_MOST = 200  # characters of a foreign text


def log_events(event: Event) -> None:
    """Log an event of the kernel; an observer of `run_suite`.

    A closed lane is a warning. Refusals, failures, final retry rounds and changed limits are information.
    Waits are debug messages. No record has a prompt or a reply.

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
    _log.warning(
        "lane %s is closed: %s",
        escape_control_characters(event.lane, _MOST),
        escape_control_characters(event.reason, _MOST),
    )


def _throttled(event: Throttled) -> None:
    rest = "" if event.retry_after is None else f"; it asks to wait {event.retry_after:g} s"
    _log.info(
        "lane %s refused a call of job %d%s",
        escape_control_characters(event.lane, _MOST),
        event.index,
        rest,
    )


def _ended(event: CallEnded) -> None:
    if event.error is not None:
        where, kind = escape_control_characters(event.lane, _MOST), error_kind(event.error)
        _log.info("lane %s: a call of job %d failed: %s", where, event.index, kind)


def _limited(event: LimitChanged) -> None:
    _log.info(
        "lane %s: at most %d calls at once",
        escape_control_characters(event.lane, _MOST),
        event.limit,
    )


def _salvaged(event: Salvaged) -> None:
    jobs = counted(len(event.indices), "job")
    _log.info("final retry round: running %s with transient failures again", jobs)


def _waiting(event: Waiting) -> None:
    if _log.isEnabledFor(logging.DEBUG):
        waiter = "the next job" if event.index is None else f"job {event.index}"
        lane = (
            "no lane"
            if event.lane is None
            else f"lane {escape_control_characters(event.lane, _MOST)}"
        )
        _log.debug("%s: %s waits for %s", lane, waiter, event.why.value)


_WRITES: Mapping[type, Callable[[Any], None]] = {
    LaneClosed: _closed,
    Throttled: _throttled,
    CallEnded: _ended,
    LimitChanged: _limited,
    Salvaged: _salvaged,
    Waiting: _waiting,
}
