"""The estimated time left, by the slowest lane and by the present rate."""

from collections.abc import Mapping

import pytest
import trio

from trioeval.kernel import Lanes, LaneSpec
from trioeval.report.activity import Activity
from trioeval.report.row_pace import RowPace, all_left_s
from trioeval.report.run_state import RunSnapshot
from trioeval.run import Status
from trioeval.session.progress import RunStateSource
from trioeval.testing import run_virtual


@pytest.mark.parametrize(
    ("there", "expected", "now", "left"),
    [(0, 9, 1.0, None), (2, 9, 1.0, None), (3, 9, 1.5, 3.0), (9, 9, 4.0, 0.0), (0, 0, 0.0, 0.0)],
)
def test_the_time_left_is_estimated_after_three_rows(
    there: int, expected: int, now: float, left: float | None
) -> None:
    """It is unknown before."""
    assert RowPace(0.0, expected, there).left_s(now) == left
    assert all_left_s([RowPace(0.0, expected, there)], now) == left


def test_an_early_burst_does_not_count() -> None:
    """A pause does not count: rows of the last minute determine the rate if they are many."""
    pace = RowPace(0.0, expected=1000)
    for _ in range(500):
        pace.add(1.0)
    for second in range(2, 300):
        pace.add(float(second))
    assert pace.left_s(299.5) == pytest.approx(pace.left, rel=0.02)  # one a second


def test_a_lane_without_data_is_estimated_like_the_others() -> None:
    """A fast lane does not speed up a slower one."""
    slow, new = RowPace(0.0, 20, 10), RowPace(0.0, 20)
    assert all_left_s([slow, new], 10.0) == 30.0
    assert all_left_s([new], 10.0) is None


def state_of(done: Mapping[str, int], rows: Mapping[str, int], *, paused: str = "") -> RunSnapshot:
    """Return the pace of a run of ten seconds."""

    async def main() -> RunSnapshot:
        lanes = Lanes([LaneSpec(name) for name in rows])
        source = RunStateSource(
            total=sum(rows.values()) + 7,
            lanes=lanes,
            activity=Activity(trio.current_time()),
            kept=lambda: 7,
            stopping=lambda: False,
        )
        source.expect(rows)
        await trio.sleep(10)
        for name, count in done.items():
            for _ in range(count):
                source.add(Status.PASS, name)
        if paused:
            lanes[paused].pause()
        return source.state()

    return run_virtual(main)


def test_the_slowest_lane_determines_the_time_left() -> None:
    """Each lane has its own progress; rows of earlier executions count as done."""
    state = state_of({"fast": 100, "slow": 10}, {"fast": 100, "slow": 100})
    assert (state.done, state.total, state.eta_s) == (117, 207, 90.0)
    assert [(lane.done, lane.rows, lane.eta_s) for lane in state.lanes] == [
        (100, 100, 0.0),
        (10, 100, 90.0),
    ]


def test_a_paused_lane_has_no_estimate() -> None:
    """It needs none if none of its rows are left."""
    state = state_of({"a": 5, "b": 5}, {"a": 10, "b": 10}, paused="b")
    assert (state.eta_s, state.lanes[1].eta_s) == (None, None)
    assert state_of({"a": 5, "b": 10}, {"a": 10, "b": 10}, paused="b").eta_s == 10.0
