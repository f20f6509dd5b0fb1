"""The order of jobs on a lane."""

import doctest
import heapq
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.columns import buffer as fair
from trioeval.columns.buffer import FairQueue

FEWER = settings(max_examples=settings().max_examples // 2)


class Lane:
    """Starts the ready job of the lowest rank, then that of the lowest number."""

    def __init__(self) -> None:
        self.line = FairQueue()
        self.ready: list[tuple[tuple[float, float], int, int, int]] = []
        self.number = 0

    def add(self, column: int, group: int = 0, weight: float = 1.0, jobs: int = 1) -> None:
        for _ in range(jobs):
            rank = self.line.rank(column, group, weight)
            heapq.heappush(self.ready, (rank, self.number, column, group))
            self.number += 1

    def start(self) -> tuple[int, int]:
        """Return the column and the group of the next job."""
        rank, _, column, group = heapq.heappop(self.ready)
        self.line.started(rank)
        return column, group


def test_the_example_holds() -> None:
    assert doctest.testmod(fair).failed == 0


@given(
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=2, max_size=4),
    history=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=20),
    starts=st.integers(1, 60),
)
@FEWER
def test_co_55_columns_that_are_always_ready_share_by_weight(
    weights: list[float], history: list[tuple[int, int]], starts: int
) -> None:
    """No column is ever ahead of another by more than one job of each."""
    lane = Lane()
    for column, before in history:
        lane.add(column % len(weights), weight=weights[column % len(weights)], jobs=3)
        for _ in range(min(before, len(lane.ready))):
            lane.start()
    for column, weight in enumerate(weights):
        lane.add(column, weight=weight, jobs=starts)
    started: Counter[int] = Counter()
    for _ in range(starts):
        column, _ = lane.start()
        started[column] += 1
        served = [started[one] / weight for one, weight in enumerate(weights)]
        for f, of_f in enumerate(served):
            for m, of_m in enumerate(served):
                assert abs(of_f - of_m) <= 1 / weights[f] + 1 / weights[m] + 1e-9


def test_co_55_a_hot_column_and_its_peer_converge_to_two_and_two() -> None:
    """Of four slots, the hot column alone has all; within one round of its peer it has two."""
    lane = Lane()
    running: list[int] = []
    lane.add(column=0, jobs=100)
    for _ in range(20):
        running = [*running[-3:], lane.start()[0]]
    assert running == [0, 0, 0, 0]
    lane.add(column=1, jobs=50)
    for _ in range(4):
        running = [*running[-3:], lane.start()[0]]
    assert sorted(running) == [0, 0, 1, 1]
    for _ in range(40):
        running = [*running[-3:], lane.start()[0]]
        assert sorted(running) == [0, 0, 1, 1]


def test_co_53_the_first_starts_contain_all_columns() -> None:
    lane = Lane()
    for column in range(3):
        lane.add(column, jobs=12)
    assert {lane.start()[0] for _ in range(4)} == {0, 1, 2}


def test_co_54_jobs_that_become_ready_later_do_not_run_last() -> None:
    """Each job of column 0 that has started makes one of column 1 ready."""
    lane = Lane()
    started: list[int] = []
    lane.add(column=0, jobs=100)
    while lane.ready:
        started.append(lane.start()[0])
        if started[-1] == 0:
            lane.add(column=1)
    assert len(started) == 200
    assert started.index(1) <= 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=40))
@FEWER
def test_older_groups_come_first(jobs: list[tuple[int, int]]) -> None:
    lane = Lane()
    for column, group in jobs:
        lane.add(column, group)
        if group == 3:
            ready = min(group for *_, group in lane.ready)
            assert lane.start()[1] == ready
    rest = [lane.start()[1] for _ in range(len(lane.ready))]
    assert rest == sorted(rest)


def test_work_in_a_later_group_costs_no_share_in_an_older_one() -> None:
    lane = Lane()
    lane.add(column=0, group=1, jobs=50)
    for _ in range(50):
        lane.start()
    lane.add(column=1, group=0, jobs=10)
    lane.add(column=0, group=0, jobs=10)
    assert {lane.start()[0] for _ in range(2)} == {0, 1}


def test_closed_groups_are_forgotten() -> None:
    line = FairQueue()
    for group in range(10):
        rank = line.rank(0, group)
        line.close(group)
        line.started(rank)  # it was withdrawn after its start
        line.close(group)
    assert not line._groups
