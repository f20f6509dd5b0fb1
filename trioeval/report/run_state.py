"""The state of a run and its lanes at one instant, for all views of a run in progress."""

import math
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.kernel import LaneStatistics, WaitReason
from trioeval.rates import BreakerState
from trioeval.report.activity import Activity
from trioeval.report.formats.json import record_json
from trioeval.report.row_pace import RowPace

LaneMood: TypeAlias = Literal["open", "paused", "probing", "closed"]
"""The state of a lane; `probing` lanes recover and admit few calls."""

_NO_PACES: Mapping[str, RowPace] = {}


@attrs.frozen(kw_only=True)
class LaneState:
    """The state of a lane. Its texts are foreign: views make them inert."""

    name: str
    mood: LaneMood
    max_concurrency: int
    """The maximum number of calls in flight."""
    limit: int
    """The present limit of calls in flight; 0 while the lane is paused or closed."""
    in_flight: int
    queued: int
    """Calls in line, next jobs of runs, and calls in their back-off."""
    rpm: float | None
    """Requests per minute of its pace; None without a pace."""
    tpm: float | None
    used_rpm: int
    """Requests that started in the last minute."""
    used_tpm: int
    why: WaitReason | None
    """The reason of the wait of the first in line; None if it does not wait."""
    wait_s: float | None
    """Seconds until the wait ends; None if that is unknown."""
    reason: str | None
    """The reason why it is closed."""
    calls: int
    refused: int
    """Calls that the provider refused because of a rate limit."""
    retried: int
    tokens: int
    cost: float
    """US dollars, as far as prices are known."""
    rows: int = 0
    """Rows of the lane in this execution, as far as they are known."""
    done: int = 0
    """Finished rows of the lane."""
    eta_s: float | None = None
    """Seconds until all of its rows are finished, at the present rate; None if that is unknown."""
    label: str | None = None
    """The label of its provider; None if it has none."""

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        rounded = {"waitS": _rounded(self.wait_s, 3), "etaS": _rounded(self.eta_s, 1)}
        return {**record_json(self), **rounded}


@attrs.frozen(kw_only=True)
class WorkerState:
    """The state of a worker of a run on several machines. Its texts are foreign."""

    name: str
    rows: int
    """Rows that it has finished."""
    lanes: tuple[LaneState, ...]
    """The lanes that it has used, without the numbers of rows."""

    @property
    def in_flight(self) -> int:
        """Its calls in flight."""
        return sum(lane.in_flight for lane in self.lanes)

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {
            "name": self.name,
            "rows": self.rows,
            "inFlight": self.in_flight,
            "lanes": [lane.json() for lane in self.lanes],
        }


@attrs.frozen(kw_only=True)
class RunSnapshot:
    """The state of a run."""

    elapsed_s: float
    total: int
    """Rows, as far as they are known."""
    done: int
    """Finished rows, those of earlier executions included."""
    kept: int
    """Rows of earlier executions whose turn has not come: their statuses are not counted yet."""
    passed: int
    failed: int
    errors: int
    not_graded: int = 0
    """Rows with a reply that nothing graded."""
    not_run: int = 0
    """Rows that were stopped before their end."""
    eta_s: float | None
    """Seconds until all rows are finished, at the present rate; None if that is unknown."""
    stopping: bool
    lanes: tuple[LaneState, ...]
    workers: tuple[WorkerState, ...] = ()
    """The workers of a run on several machines; `lanes` are the sums over them."""

    @property
    def tokens(self) -> int:
        """Tokens of all calls of this execution."""
        return sum(lane.tokens for lane in self.lanes)

    @property
    def cost(self) -> float:
        """US dollars of all calls of this execution."""
        return sum(lane.cost for lane in self.lanes)

    @property
    def pass_rate(self) -> float | None:
        """The percentage of the ended rows that passed; None without such rows."""
        counted = self.passed + self.failed + self.errors
        return 100 * self.passed / counted if counted else None

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {
            **record_json(self),
            "elapsedS": round(self.elapsed_s, 3),
            "etaS": _rounded(self.eta_s, 1),
            "tokens": self.tokens,
            "cost": self.cost,
            "lanes": [lane.json() for lane in self.lanes],
            "workers": [worker.json() for worker in self.workers],
        }


def _rounded(seconds: float | None, digits: int) -> float | None:
    return None if seconds is None else round(seconds, digits)


def lane_states(
    statistics: Mapping[str, LaneStatistics],
    activity: Activity,
    now: float,
    *,
    hidden: Collection[str] = (),
    paces: Mapping[str, RowPace] = _NO_PACES,
) -> tuple[LaneState, ...]:
    """Return the states of the lanes of a run.

    Args:
        statistics: The statistics of the lanes.
        activity: Their activity.
        now: The instant, on the Trio clock.
        hidden: Lanes without providers, by name.
        paces: The progress of the rows of lanes, by name.
    """
    return tuple(
        _lane_state(lane, activity, now, paces.get(name) or RowPace(now))
        for name, lane in statistics.items()
        if name not in hidden
    )


def _lane_state(lane: LaneStatistics, activity: Activity, now: float, pace: RowPace) -> LaneState:
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


def _eta_s(pace: RowPace, now: float, mood: LaneMood, wait_s: float | None) -> float | None:
    """Return the seconds left; None for a paused lane, whose pause may take any time."""
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
