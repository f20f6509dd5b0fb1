"""How a run stands: what its rows and lanes tell, put together on demand."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from trioeval.kernel import Lanes
from trioeval.report.activity import Activity
from trioeval.report.pace import Pace, all_left_s
from trioeval.report.run_state import LaneState, RunState, lane_states
from trioeval.tasks import Status
from trioeval.tasks.columns.making import OWN_LANES


@attrs.define(kw_only=True)
class Picture:
    """Collects what is known of a run while it goes on. `add` gets its rows as soon as each is over."""

    total: int
    """Rows of the run, as far as they are known."""
    lanes: Lanes
    activity: Activity
    kept: Callable[[], int]
    """Rows that are there already and whose turn has not come."""
    stopping: Callable[[], bool]
    """Whether no more rows are started."""
    counts: Counter[Status] = attrs.field(factory=Counter)
    _paces: dict[str, Pace] = attrs.field(factory=dict)
    """How rows come, by lane."""

    def expect(self, rows: Mapping[str, int]) -> None:
        """So many more rows are to be run, by lane."""
        for lane, count in rows.items():
            self._pace(lane).expected += count

    def add(self, status: Status, lane: str) -> None:
        """Take note of a row that is over, and was asked of a lane."""
        self.counts[status] += 1
        self._pace(lane).add(trio.current_time())

    def add_kept(self, status: Status) -> None:
        """Take note of a row that was there already, and whose turn it is."""
        self.counts[status] += 1

    def state(self) -> RunState:
        """The picture of this moment. Inside of `trio.run`; not a checkpoint."""
        now = trio.current_time()
        kept, stopping = self.kept(), self.stopping()
        passed, failed, errors, not_run = (self.counts[status] for status in Status)
        lanes = lane_states(
            self.lanes.statistics(), self.activity, now, hidden=OWN_LANES, paces=self._paces
        )
        return RunState(
            elapsed_s=now - self.activity.began_at,
            total=self.total,
            done=self.counts.total() + kept,
            kept=kept,
            passed=passed,
            failed=failed,
            errors=errors,
            not_run=not_run,
            eta_s=None if stopping else self._eta_s(lanes, now),
            stopping=stopping,
            lanes=lanes,
        )

    def _eta_s(self, lanes: Sequence[LaneState], now: float) -> float | None:
        open_ones = [lane for lane in lanes if lane.done < lane.rows]
        if any(lane.mood == "paused" for lane in open_ones):
            return None
        found = all_left_s(self._paces.values(), now)
        # A lane may have to wait longer than it goes on like this.
        return found and max([found, *(lane.eta_s for lane in open_ones if lane.eta_s is not None)])

    def _pace(self, lane: str) -> Pace:
        found = self._paces.get(lane)
        if found is None:
            found = self._paces[lane] = Pace(self.activity.began_at)
        return found
