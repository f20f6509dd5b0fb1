"""A small run that can be watched and controlled."""

import attrs
import trio

from trioeval.kernel import Lanes, LaneSpec
from trioeval.report.activity import Activity
from trioeval.report.run_state import RunSnapshot, lane_states
from trioeval.web.live import Steering

RUN = "eval-20260115T093000-5f0c21"


@attrs.define(eq=False)
class WatchedRun:
    """Its lanes, and the commands that it received."""

    lanes: Lanes
    id: str = RUN
    done: int = 0
    stops: int = 0
    askers: list[int | None] = attrs.field(factory=list)
    """The processes that have stopped or cancelled the run."""
    cancelled: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    activity: Activity = attrs.field(factory=lambda: Activity(trio.current_time()))
    states: int = 0
    """The number of requests for the state."""

    def state(self) -> RunSnapshot:
        self.states += 1
        now = trio.current_time()
        return RunSnapshot(
            elapsed_s=now - self.activity.began_at,
            total=10,
            done=self.done,
            kept=0,
            passed=self.done,
            failed=0,
            errors=0,
            eta_s=None,
            stopping=self.stops > 0,
            lanes=lane_states(self.lanes.statistics(), self.activity, now, hidden={"local"}),
        )

    def stop(self, process: int | None) -> None:
        self.stops += 1
        self.askers.append(process)

    def cancel(self, process: int | None) -> None:
        self.cancelled.cancel()
        self.askers.append(process)

    def steering(self) -> Steering:
        return Steering(
            run_id=self.id,
            state=self.state,
            lanes=self.lanes,
            stop=self.stop,
            cancel=self.cancel,
        )


def watched_run(*specs: LaneSpec, run_id: str = RUN) -> WatchedRun:
    """Must be called inside of `trio.run`."""
    return WatchedRun(Lanes(specs or [LaneSpec("a", 4, rpm=60, tpm=600), LaneSpec("b")]), run_id)
