"""The events that an observer of a run receives.

An observer is a synchronous callable. It gets each record at the instant it describes (`at`, seconds on the
Trio clock) and must return at once. Without an observer no record is made. An observer that raises is logged
and not called again: observing a run can never break it.
"""

import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import attrs

from trioeval.kernel.outcomes import Outcome

_log = logging.getLogger("trioeval.kernel")


class WaitReason(enum.Enum):
    """The reason why a call, or the next job of a lane, waits."""

    GATE = "gate"
    """The serial gate: a serial job runs, or one waits until nothing else does."""
    WINDOW = "window"
    """The reorder window: too many outcomes wait for an earlier one."""
    TURN = "turn"
    """Waiters before it in the queue of its lane."""
    PAUSED = "paused"
    """The lane was paused by a user."""
    BLOCKED = "blocked"
    """The provider asked to wait, or reported that nothing is left until its reset."""
    PACE = "pace"
    """The lane's rate of requests."""
    DELAY = "delay"
    """The least gap between two starts on the lane."""
    TOKENS = "tokens"
    """The lane's rate of tokens."""
    SLOT = "slot"
    """A free slot of the lane."""
    BUDGET = "budget"
    """Amounts that calls in flight have reserved and may give back."""
    CAP = "cap"
    """A free slot among those of all lanes together."""
    SHARED_LIMIT = "shared_limit"
    """A permit of a shared limit."""
    BACKOFF = "backoff"
    """The back-off of a failed call before its retry."""


@attrs.frozen
class Admitted:
    """A job was started."""

    at: float
    index: int
    lane: str | None
    """None for a job on no lane."""


@attrs.frozen
class Shortage:
    """The reason why a permit is not granted yet."""

    kind: Literal["rate_limit", "limit_decreasing", "limiter_error"]
    keys: tuple[str, ...] = ()
    """The limits that lack room."""
    until: float | None = None
    """The instant of the next attempt on the Trio clock; None if the permit follows as soon as there is room.
    """
    message: str = ""


@attrs.frozen
class Waiting:
    """A call, or the next job of a lane, has to wait."""

    at: float
    lane: str | None
    """None for a job on no lane."""
    why: WaitReason
    until: float | None
    """The end of the wait, where it is known."""
    index: int | None
    """The job that waits; None for the lane's next job, which is not started yet."""
    shortage: Shortage | None = None
    """The reason why its permit is not granted yet, if it waits for one."""


@attrs.frozen
class Reserving:
    """A call requests its permit."""

    at: float
    index: int
    lane: str


@attrs.frozen
class Noted:
    """The body of a job reports what it does."""

    at: float
    index: int
    what: str
    details: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class CallStarted:
    """A call took a slot and is in flight."""

    at: float
    index: int
    lane: str


@attrs.frozen
class CallEnded:
    """A call is over, successful or not, and its slot is free."""

    at: float
    index: int
    lane: str
    error: Exception | None = None
    """The failure; None if it succeeded or was cancelled."""
    tokens: int = 0
    """Tokens that it used as far as known, else the number reserved; ≥ 0."""
    money: float = 0.0
    """Cost as far as known, else the amount reserved; ≥ 0."""
    is_reported: bool = True
    """True if the amounts are known, not those reserved."""


@attrs.frozen
class Throttled:
    """A provider refused a call because there were too many."""

    at: float
    index: int
    lane: str
    retry_after: float | None
    """Seconds that the provider asked to wait."""
    blocked_until: float
    """The instant before which nothing starts on the lane; -inf if it is not blocked."""


@attrs.frozen
class LimitChanged:
    """The number of calls that a lane allows in flight changed."""

    at: float
    lane: str
    limit: int
    """Less than the adaptive limit while the lane recovers; 0 when it is closed."""
    adaptive: int
    """The adaptive limit."""


@attrs.frozen
class LaneClosed:
    """A lane's breaker opened: it serves no more calls."""

    at: float
    lane: str
    reason: str


@attrs.frozen
class Salvaged:
    """Jobs that had failed transiently are run again."""

    at: float
    indices: Sequence[int]


@attrs.frozen
class Finished:
    """A job has its outcome."""

    at: float
    outcome: Outcome[Any]


Event: TypeAlias = (
    Admitted
    | Waiting
    | Reserving
    | Noted
    | CallStarted
    | CallEnded
    | Throttled
    | LimitChanged
    | LaneClosed
    | Salvaged
    | Finished
)
Observer: TypeAlias = Callable[[Event], None]

E = TypeVar("E")


def guarded(observe: Callable[[E], None] | None) -> Callable[[E], None] | None:
    """Return the same observer, dropped with a log record at its first exception; None stays None."""
    if observe is None:
        return None
    target: Callable[[E], None] | None = observe

    def notify(event: E) -> None:
        nonlocal target
        if target is None:
            return
        try:
            target(event)
        except Exception:  # noqa: BLE001 - an observer must not break the run
            target = None
            _log.exception("an observer raised and is not called again")

    return notify
