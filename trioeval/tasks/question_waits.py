"""What questions wait for, in the words of their events.

A wait is named by its cause. That a limit or a rate has no room is `waiting_rate_limit`, and so is the rest
of a call that was refused as one too many; what else a lane makes a call wait for is `waiting_lane`, with the
kernel's word for it. A call that stands behind another one waits for what that one was last found to wait
for, so it is named like that one, with `why: turn`. Of the next question of a lane, which is not started yet,
nothing is told until it is: then it is told for how long that was so, and which limits held up the line.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import attrs

from trioeval.kernel import Admitted, CallStarted, Event, Waiting
from trioeval.kernel.events import Finished, Throttled, Why
from trioeval.kernel.permits import Shortage

_LANE, _RATE = "waiting_lane", "waiting_rate_limit"
_SHORT: Mapping[str, str] = {
    "rate_limit": _RATE,
    "limit_decreasing": "waiting_limit_decreasing",
    "limiter_error": "waiting_limiter_error",
}
_RATES = frozenset({Why.PACE, Why.DELAY, Why.TOKENS, Why.BLOCKED})
_BEHIND = frozenset({Why.TURN, Why.BACKOFF, Why.GATE, Why.WINDOW})
"""What is waited for without holding up the line of a lane."""


@attrs.frozen
class Wait:
    """What one question waits for."""

    name: str
    """Of its event."""
    details: Mapping[str, Any]
    reason: Hashable
    """What makes it another one than the one before."""
    keys: tuple[str, ...] = ()
    """The limits that lack room."""


@attrs.define(eq=False)
class QuestionWaits:
    """What the calls of one task wait for on their lanes. Jobs are those of the kernel."""

    _fronts: dict[str, dict[int | None, Wait]] = attrs.field(init=False, factory=dict)
    """By lane and job, None being its next one: of those that hold up its line."""
    _refused: set[int] = attrs.field(init=False, factory=set)
    """Jobs whose last request was one too many."""
    _ahead: dict[str, dict[str, None]] = attrs.field(init=False, factory=dict)
    """By lane: the limits that its next job has stood behind."""

    def of(self, event: Waiting) -> Wait:
        """What a call waits for from now on, or the next job of a lane."""
        lane, job = event.lane, event.index
        found = self._named(event)
        fronts = self._fronts.setdefault(lane, {})
        fronts.pop(job, None)
        if event.why not in _BEHIND:
            fronts[job] = found
        if job is None and event.why is Why.TURN:
            self._ahead.setdefault(lane, {})
        if lane in self._ahead:
            self._ahead[lane].update(dict.fromkeys(found.keys))
        return found

    def note(self, event: Event) -> None:
        """Take note of what refuses a call, or ends its wait."""
        match event:
            case Throttled():
                self._refused.add(event.index)
            case CallStarted():
                self._over(event.index)
            case Finished():
                self._over(event.outcome.index)
            case _:
                pass

    def before(self, event: Admitted, waited: Mapping[str, float]) -> Mapping[str, Any]:
        """What is told of how long a question was the next one of its lane; nothing if it did not wait.

        Args:
            event: It is started.
            waited: Seconds by reason.
        """
        keys = self._ahead.pop(event.lane, {})
        self._fronts.get(event.lane, {}).pop(None, None)
        if not waited:
            return {}
        told = {"waited_ms": sum(waited.values()) * 1000, "reasons": list(waited)}
        return {**told, "keys": list(keys)} if keys else told

    def _named(self, event: Waiting) -> Wait:
        details: dict[str, Any] = {}
        if event.until is not None:
            details["retry_after_ms"] = max(0.0, (event.until - event.at) * 1000)
        short = event.shortage
        if event.why is Why.QUOTA and short is not None:
            said = {**details, **_lacks(short)}
            return Wait(_SHORT[short.kind], said, (short.kind, short.keys), short.keys)
        details |= {"lane": event.lane, "why": event.why.value}
        name, keys = _LANE, tuple[str, ...]()
        if event.why in _RATES or (event.why is Why.BACKOFF and event.index in self._refused):
            name = _RATE
        elif event.why is Why.TURN and (front := self._front(event.lane)) is not None:
            name, keys = front.name, front.keys
        if keys:
            details["keys"] = list(keys)
        return Wait(name, details, (event.lane, event.why, keys), keys)

    def _front(self, lane: str) -> Wait | None:
        """What was last found to hold up the line of a lane, if anything does."""
        fronts = self._fronts.get(lane)
        return fronts[next(reversed(fronts))] if fronts else None

    def _over(self, job: int) -> None:
        self._refused.discard(job)
        for fronts in self._fronts.values():
            fronts.pop(job, None)


def _lacks(short: Shortage) -> dict[str, Any]:
    keys = {"keys": list(short.keys)} if short.keys else {}
    return {**keys, **({"message": short.message} if short.message else {})}
