"""How a run stands: what its rows and lanes tell, put together on demand."""

from collections import Counter
from collections.abc import Callable

import attrs
import trio

from trioeval.kernel import Lanes
from trioeval.report.activity import Activity
from trioeval.report.run_state import RunState, eta_s, lane_states
from trioeval.tasks import Status
from trioeval.tasks.columns.making import OWN_LANES


@attrs.define(kw_only=True)
class Picture:
    """Collects what is known of a run while it goes on. `add` gets its rows."""

    total: int
    """Rows of the run, as far as they are known."""
    lanes: Lanes
    activity: Activity
    kept: Callable[[], int]
    """Rows that are there already and whose turn has not come."""
    stopping: Callable[[], bool]
    """Whether no more rows are started."""
    counts: Counter[Status] = attrs.field(factory=Counter)
    _there: int = attrs.field(init=False)
    """Rows that were there when it began."""

    def __attrs_post_init__(self) -> None:
        self._there = self.kept()

    def add(self, status: Status) -> None:
        """Take note of a row."""
        self.counts[status] += 1

    def state(self) -> RunState:
        """The picture of this moment. Inside of `trio.run`; not a checkpoint."""
        now = trio.current_time()
        kept, elapsed = self.kept(), now - self.activity.began_at
        done = self.counts.total() + kept
        passed, failed, errors = (self.counts[status] for status in Status)
        return RunState(
            elapsed_s=elapsed,
            total=self.total,
            done=done,
            kept=kept,
            passed=passed,
            failed=failed,
            errors=errors,
            eta_s=eta_s(done - self._there, self.total - self._there, elapsed),
            stopping=self.stopping(),
            lanes=lane_states(self.lanes.statistics(), self.activity, now, hidden=OWN_LANES),
        )
