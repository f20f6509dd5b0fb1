"""The state of a run in progress, computed from its rows and lanes on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from trioeval.columns.lanes import OWN_LANES
from trioeval.evaluation.journal import ReusedRows
from trioeval.kernel import Lanes, LaneStatistics
from trioeval.report.activity import Activity
from trioeval.report.row_pace import RowPace, all_left_s
from trioeval.report.run_state import LaneState, RunSnapshot, lane_states
from trioeval.report.worker_lanes import WorkerLanes
from trioeval.run import PreparedSuite, Status
from trioeval.session.collector import Collector


@attrs.define(eq=False, repr=False, kw_only=True)
class RunStateSource:
    """The data of the state of a run. `add` gets each row as soon as it ends."""

    total: int
    """Rows of the run, as far as they are known."""
    lanes: Lanes
    activity: Activity
    kept: Callable[[], int]
    """Rows of earlier executions whose turn has not come."""
    stopping: Callable[[], bool]
    """True if no more rows are started."""
    workers: WorkerLanes | None = None
    """The lanes of the workers of a run on several machines."""
    counts: Counter[Status] = attrs.field(factory=Counter)
    _paces: dict[str, RowPace] = attrs.field(factory=dict)
    """The progress of rows by lane."""

    @classmethod
    def of(
        cls,
        prepared: PreparedSuite,
        lanes: Lanes,
        collector: Collector,
        stopping: Callable[[], bool],
        now: float,
        *,
        on_workers: bool = False,
    ) -> RunStateSource:
        """Return the source of the state of a run that starts now, without the rows that it expects.

        Args:
            prepared: The suite.
            lanes: The lanes of this process.
            collector: The collector of rows.
            stopping: Returns whether no more rows are started.
            now: The present instant.
            on_workers: Whether rows run on several machines.
        """
        activity = Activity(now, labels=prepared.lane_labels)
        found = cls(
            total=prepared.size,
            lanes=lanes,
            activity=activity,
            kept=lambda: collector.kept_left,
            stopping=stopping,
            workers=WorkerLanes(activity) if on_workers else None,
        )
        activity.limit_of = found.limit
        return found

    def expect(self, rows: Mapping[str, int]) -> None:
        """Add rows that will be run, by lane."""
        for lane, count in rows.items():
            self._pace(lane).expected += count

    def add(self, status: Status, lane: str) -> None:
        """Count a finished row of a lane."""
        self.counts[status] += 1
        self._pace(lane).add(trio.current_time())

    def add_kept(self, status: Status) -> None:
        """Count a row of an earlier execution, when its turn comes."""
        self.counts[status] += 1

    def statistics(self) -> Mapping[str, LaneStatistics]:
        """Return the lanes, as the sums over all workers if there are any."""
        own = self.lanes.statistics()
        return own if self.workers is None else self.workers.statistics(own)

    def limit(self, lane: str) -> int | None:
        """Return the present limit of a lane; None for a lane that is not one of the run's."""
        found = self.lanes.by_name.get(lane)
        if found is None:
            return None
        own = {lane: found.statistics()}
        return (own if self.workers is None else self.workers.statistics(own))[lane].limit

    def state(self) -> RunSnapshot:
        """Return the present state. Inside of `trio.run`; not a checkpoint."""
        now = trio.current_time()
        kept, stopping = self.kept(), self.stopping()
        lanes = lane_states(
            self.statistics(), self.activity, now, hidden=OWN_LANES, paces=self._paces
        )
        return RunSnapshot(
            elapsed_s=now - self.activity.began_at,
            total=self.total,
            done=self.counts.total() + kept,
            kept=kept,
            passed=self.counts[Status.PASS],
            failed=self.counts[Status.FAIL],
            errors=self.counts[Status.ERROR],
            not_graded=self.counts[Status.NOT_GRADED],
            not_run=self.counts[Status.NOT_RUN],
            eta_s=None if stopping else self._eta_s(lanes, now),
            stopping=stopping,
            lanes=lanes,
            workers=() if self.workers is None else self.workers.states(now),
        )

    def _eta_s(self, lanes: Sequence[LaneState], now: float) -> float | None:
        open_ones = [lane for lane in lanes if lane.done < lane.rows]
        if any(lane.mood == "paused" for lane in open_ones):
            return None
        found = all_left_s(self._paces.values(), now)
        # A lane may have to wait longer than the rate of its rows suggests.
        return found and max([found, *(lane.eta_s for lane in open_ones if lane.eta_s is not None)])

    def _pace(self, lane: str) -> RowPace:
        found = self._paces.get(lane)
        if found is None:
            found = self._paces[lane] = RowPace(self.activity.began_at)
        return found


def rows_of_lanes(prepared: PreparedSuite, kept: ReusedRows) -> Mapping[str, int]:
    """Return the number of rows of each lane, without those of earlier executions."""
    steps, lanes = prepared.steps, prepared.lane_names
    used = {lanes[place] for place in steps.used_providers}
    if len(used) == 1:  # true for most suites; to look at each step takes some microseconds
        return {used.pop(): len(steps) - len(kept)}
    return Counter(lanes[step.provider_index] for step in steps if step.index not in kept)
