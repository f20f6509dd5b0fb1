"""How a run and its lanes stand at one instant: the one picture that every way of watching shows."""

import math
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.kernel import LaneStatistics, Why
from trioeval.rates import BreakerState
from trioeval.report.activity import Activity, Pace
from trioeval.report.formats.json import record_json

LaneMood: TypeAlias = Literal["open", "paused", "probing", "closed"]
"""`probing`: it recovers, and lets few calls through."""

_NO_PACES: Mapping[str, Pace] = {}


@attrs.frozen(kw_only=True)
class LaneState:
    """How a lane stands. Texts are foreign: whoever shows them makes them inert."""

    name: str
    mood: LaneMood
    max_concurrency: int
    """Calls in flight at most."""
    limit: int
    """Calls that may be in flight now; 0 while it is paused or closed."""
    in_flight: int
    queued: int
    """Calls, and next jobs of runs, that stand in line, and calls in their back-off."""
    rpm: float | None
    """Requests per minute that it allows itself; None sets no rate."""
    tpm: float | None
    used_rpm: int
    """Requests that started in the last minute."""
    used_tpm: int
    why: Why | None
    """What its first in line waits for; None if it does not wait."""
    wait_s: float | None
    """Seconds that this takes from now; None where that is not known."""
    reason: str | None
    """Why it is closed."""
    calls: int
    refused: int
    """Calls that were refused because there were too many."""
    retried: int
    tokens: int
    cost: float
    """US dollars, as far as prices are known."""
    rows: int = 0
    """Rows that are asked of it in this execution, as far as they are known."""
    done: int = 0
    """Those of them that are over."""
    eta_s: float | None = None
    """Seconds until all of them are, if it goes on like this; None where that is not known."""
    label: str | None = None
    """The label of its provider; None if it has none."""

    def json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        rounded = {"waitS": _rounded(self.wait_s, 3), "etaS": _rounded(self.eta_s, 1)}
        return {**record_json(self), **rounded}


@attrs.frozen(kw_only=True)
class RunState:
    """How a run stands."""

    elapsed_s: float
    total: int
    """Rows, as far as they are known."""
    done: int
    """Rows that are there, those of earlier executions among them."""
    kept: int
    """Those of earlier executions whose turn has not come: how they ended is not counted yet."""
    passed: int
    failed: int
    errors: int
    not_run: int = 0
    """Rows that were stopped before their end."""
    not_graded: int = 0
    """Rows that succeeded and have no assertion; `passed` does not count them."""
    eta_s: float | None
    """Seconds until all rows are there, if it goes on like this; None where that is not known."""
    stopping: bool
    lanes: tuple[LaneState, ...]

    @property
    def tokens(self) -> int:
        """Of all calls of this execution."""
        return sum(lane.tokens for lane in self.lanes)

    @property
    def cost(self) -> float:
        """Likewise, in US dollars."""
        return sum(lane.cost for lane in self.lanes)

    @property
    def pass_rate(self) -> float | None:
        """Percent of the rows that came to an end and were counted; None of none."""
        counted = self.passed + self.failed + self.errors
        return 100 * self.passed / counted if counted else None

    def json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        return {
            **record_json(self),
            "elapsedS": round(self.elapsed_s, 3),
            "etaS": _rounded(self.eta_s, 1),
            "tokens": self.tokens,
            "cost": self.cost,
            "lanes": [lane.json() for lane in self.lanes],
        }


def _rounded(seconds: float | None, digits: int) -> float | None:
    return None if seconds is None else round(seconds, digits)


def lane_states(
    statistics: Mapping[str, LaneStatistics],
    activity: Activity,
    now: float,
    *,
    hidden: Collection[str] = (),
    paces: Mapping[str, Pace] = _NO_PACES,
) -> tuple[LaneState, ...]:
    """How the lanes of a run stand.

    Args:
        statistics: What they say of themselves.
        activity: What they did.
        now: The instant, on the Trio clock.
        hidden: Lanes on which nobody is asked, by name.
        paces: How the rows of lanes come, by name.
    """
    return tuple(
        _lane_state(lane, activity, now, paces.get(name) or Pace(now))
        for name, lane in statistics.items()
        if name not in hidden
    )


def _lane_state(lane: LaneStatistics, activity: Activity, now: float, pace: Pace) -> LaneState:
    did = activity.lane(lane.name)
    used_rpm, used_tpm = did.rates(now)
    wait = did.waits_for(now)
    why = lane.why if wait is None or lane.why is not None else wait.why
    until = None if wait is None or wait.why is not why else wait.until
    wait_s = None if until is None or math.isinf(until) else max(0.0, until - now)
    mood = _mood(lane)
    return LaneState(
        name=lane.name,
        mood=mood,
        max_concurrency=lane.max_concurrency,
        limit=lane.limit,
        in_flight=lane.in_flight,
        queued=lane.waiting + lane.resting,
        rpm=lane.rpm,
        tpm=lane.tpm,
        used_rpm=used_rpm,
        used_tpm=used_tpm,
        why=why,
        wait_s=wait_s,
        reason=lane.reason,
        calls=did.calls,
        refused=did.refused,
        retried=lane.retried,
        tokens=did.tokens,
        cost=did.money,
        rows=pace.expected,
        done=pace.there,
        eta_s=_eta_s(pace, now, mood, wait_s),
        label=activity.labels.get(lane.name),
    )


def _eta_s(pace: Pace, now: float, mood: LaneMood, wait_s: float | None) -> float | None:
    """None of a lane that somebody paused: nobody knows for how long."""
    if mood == "paused" and pace.left:
        return None
    found = pace.left_s(now)
    return found if not found or wait_s is None else max(found, wait_s)


def _mood(lane: LaneStatistics) -> LaneMood:
    if lane.reason is not None:
        return "closed"
    if lane.paused:
        return "paused"
    return "probing" if lane.state is BreakerState.HALF_OPEN else "open"
