"""What an observer of a run is told.

An observer is a synchronous callable. It gets each record at the instant it describes (`at`, seconds on
the Trio clock) and must return at once. Without an observer no record is made. An observer that raises is
logged and not called again: watching a run can never break it.
"""

import enum
import logging
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from trioeval.kernel.outcomes import Outcome

_log = logging.getLogger("trioeval.kernel")


class Why(enum.Enum):
    """What a call waits for."""

    GATE = "gate"
    """The serial gate: a serial job runs, or one waits until nothing else does."""
    TURN = "turn"
    """Earlier calls of the same lane that wait as well."""
    SLOT = "slot"
    """A free slot of the lane."""
    PACE = "pace"
    """The lane's rate or least gap."""


@attrs.frozen
class Admitted:
    """A job was started."""

    at: float
    index: int
    lane: str


@attrs.frozen
class Waiting:
    """A call, or the next job of a lane, has to wait."""

    at: float
    lane: str
    why: Why
    until: float | None
    """When the wait ends, where that is known."""
    index: int | None
    """The job that waits; None for the lane's next job, which is not started yet."""


@attrs.frozen
class CallStarted:
    """A call took a slot and is in flight."""

    at: float
    index: int
    lane: str


@attrs.frozen
class CallEnded:
    """A call is over, in whatever way, and its slot is free."""

    at: float
    index: int
    lane: str


@attrs.frozen
class Finished:
    """A job has its outcome."""

    at: float
    outcome: Outcome[Any]


Event: TypeAlias = Admitted | Waiting | CallStarted | CallEnded | Finished
Observer: TypeAlias = Callable[[Event], None]


def guarded(observe: Observer | None) -> Observer | None:
    """The same observer, dropped with a log record at its first exception; None stays None."""
    if observe is None:
        return None
    target: Observer | None = observe

    def tell(event: Event) -> None:
        nonlocal target
        if target is None:
            return
        try:
            target(event)
        except Exception:  # noqa: BLE001 - a stranger's callback must not reach the run
            target = None
            _log.exception("an observer raised and is not called again")

    return tell
