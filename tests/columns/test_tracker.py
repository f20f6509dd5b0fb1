"""Readiness of jobs, by example; the law over all graphs is in `test_tracker_law`."""

import tracemalloc

import pytest
from made_graphs import producer
from naive_tracker import Change, Tracker

from trioeval.columns.graph import FINISH, PREPARE, ColumnGraph, JobNumbering, MakeJob, RowGrouping

DIAMOND = ColumnGraph.of(
    [producer("a"), producer("b", "a"), producer("c", "a"), producer("d", "b", "c")]
)
FAN_IN = ColumnGraph.of([producer("a"), producer("b"), producer("c"), producer("d", "a", "b", "c")])
LIST_OF_ALL = ColumnGraph.of([producer("a"), producer("b", "a", scope="full")])
ORDERED = ColumnGraph.of([producer("a", scope="scratch", ordered=True)])


def make(tracker: Tracker, *jobs: MakeJob) -> Change:
    """Start and complete jobs; return the last change."""
    change = Change()
    for job in jobs:
        tracker.begin(job)
        change = tracker.complete(job)
    return change


def test_co_01_a_diamond_is_made_in_dependency_order() -> None:
    tracker = Tracker(DIAMOND, RowGrouping(1, (1,)))
    a, b, c, d = (MakeJob(place, 0, 0) for place in range(4))
    assert tracker.admit(0) == Change(ready=(a,))
    assert make(tracker, a) == Change(ready=(b, c))
    assert make(tracker, c) == Change()
    assert make(tracker, b) == Change(ready=(d,))
    assert make(tracker, d) == Change(ready=(MakeJob(FINISH, 0),))


def test_co_04_a_cell_waits_for_the_cells_of_its_row_that_it_needs() -> None:
    tracker = Tracker(FAN_IN, RowGrouping(4, (4,)))
    assert len(tracker.admit(0).ready) == 12
    assert make(tracker, MakeJob(0, 0, 1), MakeJob(1, 0, 1), MakeJob(2, 0, 3)) == Change()
    assert make(tracker, MakeJob(2, 0, 1)) == Change(ready=(MakeJob(3, 0, 1),))


def test_co_05_a_full_column_stops_waiting_for_a_dropped_row() -> None:
    tracker = Tracker(LIST_OF_ALL, RowGrouping(3, (3,)))
    tracker.admit(0)
    assert make(tracker, MakeJob(0, 0, 0), MakeJob(0, 0, 2)) == Change()
    assert tracker.drop([1]) == Change(ready=(MakeJob(1, 0),), removed=(MakeJob(0, 0, 1),))
    assert tracker.left(0) == (0, 2)


def test_co_06_a_started_job_is_not_offered_again() -> None:
    tracker = Tracker(DIAMOND, RowGrouping(2, (2,)))
    first, second = tracker.admit(0).ready
    tracker.begin(first)
    tracker.begin(first)  # it failed transiently, and is retried
    assert tracker.drop([0, 1]).removed == (second,)
    assert tracker.active(0) == 1  # only the last stage
    with pytest.raises(RuntimeError, match=r"row=0\) cannot be completed: it was dropped"):
        tracker.complete(first)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (MakeJob(0, 0), "does not exist"),  # a batch of a cell column
        (MakeJob(1, 0, 0), "does not exist"),  # a cell of a full column
        (MakeJob(0, 0, 3), "does not exist"),  # a row of another group
        (MakeJob(2, 0), "does not exist"),  # no such column
        (MakeJob(-3, 0), "does not exist"),  # no such stage
        (MakeJob(PREPARE, 0), "it is complete"),  # an unused stage
        (MakeJob(0, 1, 3), "group 1 is not open"),
        (MakeJob(0, 9, 3), "group 9 is not open"),
        (MakeJob(1, 0), "it waits"),
    ],
)
def test_co_07_a_job_that_is_not_ready_is_refused(job: MakeJob, message: str) -> None:
    tracker = Tracker(LIST_OF_ALL, RowGrouping(3, (6,)))
    tracker.admit(0)
    with pytest.raises(RuntimeError, match=message):
        tracker.begin(job)
    with pytest.raises(RuntimeError, match=message):
        tracker.complete(job)


def test_co_07_nothing_is_reported_twice_or_in_a_wrong_order() -> None:
    tracker = Tracker(LIST_OF_ALL, RowGrouping(3, (6,)))
    tracker.admit(0)
    job = MakeJob(0, 0, 0)
    with pytest.raises(RuntimeError, match="cannot be completed: it is ready"):
        tracker.complete(job)
    make(tracker, job)
    for again in (tracker.begin, tracker.complete, tracker.lose):
        with pytest.raises(RuntimeError, match="it is complete; please report this"):
            again(job)
    for group in (0, 2, -1):
        with pytest.raises(RuntimeError, match=f"group {group} cannot be opened"):
            tracker.admit(group)
    with pytest.raises(RuntimeError, match="group 1 is not open"):
        tracker.drop([0, 3])
    assert tracker.left(0) == (0, 1, 2)  # nothing was dropped
    with pytest.raises(RuntimeError, match="row 2 is not of group 1"):
        tracker.admit(1, dropped=[3, 2])
    assert tracker.left(1) == (3, 4, 5)


def test_co_08_a_group_without_remaining_rows_is_finished_at_once() -> None:
    tracker = Tracker(LIST_OF_ALL, RowGrouping(2, (2,)), prepares=True)
    finish = MakeJob(FINISH, 0)
    assert tracker.admit(0) == Change(ready=(MakeJob(PREPARE, 0),))
    assert tracker.drop([0, 1]) == Change(
        ready=(finish,),
        removed=(MakeJob(PREPARE, 0),),
        never=(MakeJob(0, 0, 0), MakeJob(0, 0, 1), MakeJob(1, 0)),
    )
    assert make(tracker, finish) == Change()
    assert not tracker.is_stuck(0)
    assert tracker.close(0) == Change()
    assert tracker.open == ()


def test_a_group_may_be_opened_without_a_row() -> None:
    tracker = Tracker(ORDERED, RowGrouping(2, (4,)))
    assert tracker.admit(0, dropped=[0, 1]).ready == (MakeJob(FINISH, 0),)
    assert tracker.admit(1).ready == (MakeJob(0, 1),)


def test_prepare_runs_between_scratch_columns_and_all_others() -> None:
    graph = ColumnGraph.of([producer("b"), producer("a", scope="scratch")])
    tracker = Tracker(graph, RowGrouping(1, (1,)), prepares=True)
    assert tracker.admit(0).ready == (MakeJob(1, 0),)
    assert make(tracker, MakeJob(1, 0)).ready == (MakeJob(PREPARE, 0),)
    assert make(tracker, MakeJob(PREPARE, 0)).ready == (MakeJob(0, 0, 0),)


def test_an_ordered_producer_makes_one_group_after_another() -> None:
    tracker = Tracker(ORDERED, RowGrouping(1, (4,)))
    jobs = [MakeJob(0, group) for group in range(4)]
    assert [tracker.admit(group).ready for group in range(4)] == [(jobs[0],), (), (), ()]
    assert not tracker.is_stuck(1)  # its turn will come
    assert make(tracker, jobs[0]).ready == (jobs[1], MakeJob(FINISH, 0))[::-1]
    assert tracker.drop([2]).ready == (MakeJob(FINISH, 2),)  # without a row it finishes
    assert make(tracker, jobs[1]).ready == (jobs[3], MakeJob(FINISH, 1))[::-1]
    assert tracker.standing == 0


def test_a_group_skipped_by_an_ordered_producer_keeps_its_turn() -> None:
    """Otherwise another run would make it after later groups."""
    for is_closed in (True, False):
        tracker = Tracker(ORDERED, RowGrouping(1, (4,)))
        jobs = [MakeJob(0, group) for group in range(4)]
        for group in range(3):
            tracker.admit(group)
        assert make(tracker, jobs[0]).ready == (jobs[1], MakeJob(FINISH, 0))[::-1]
        assert not tracker.is_stuck(2)
        if is_closed:
            assert tracker.close(1) == Change(removed=(jobs[1],), never=(MakeJob(FINISH, 1),))
        else:
            assert tracker.lose(jobs[1]) == Change()
            assert tracker.is_stuck(1)
            assert tracker.needed(1) == (jobs[1], MakeJob(FINISH, 1))
        assert tracker.standing == 1
        assert tracker.is_stuck(2)
        assert tracker.admit(3) == Change()
        assert tracker.is_stuck(3)
        if not is_closed:  # its row is gone: no other group depends on it
            assert tracker.drop([1]).ready == (jobs[2], MakeJob(FINISH, 1))[::-1]
            assert tracker.standing == 0


def test_a_group_with_a_loss_continues_until_it_is_stuck() -> None:
    tracker = Tracker(LIST_OF_ALL, RowGrouping(2, (2,)))
    tracker.admit(0)
    tracker.lose(MakeJob(0, 0, 0))
    assert not tracker.is_stuck(0)
    assert make(tracker, MakeJob(0, 0, 1)) == Change()
    assert tracker.is_stuck(0)
    assert tracker.drop([0]).ready == (MakeJob(1, 0),)


def test_a_job_lost_before_it_was_ready_is_never_offered() -> None:
    tracker = Tracker(DIAMOND, RowGrouping(1, (1,)))
    tracker.admit(0)
    tracker.lose(MakeJob(1, 0, 0))
    assert make(tracker, MakeJob(0, 0, 0)).ready == (MakeJob(2, 0, 0),)
    assert make(tracker, MakeJob(2, 0, 0)) == Change()
    assert tracker.is_stuck(0)
    assert tracker.close(0).never == (MakeJob(3, 0, 0), MakeJob(FINISH, 0))


def test_a_group_with_the_turn_is_stuck_if_it_lacks_another_job() -> None:
    graph = ColumnGraph.of([producer("a"), producer("b", "a", scope="full", ordered=True)])
    tracker = Tracker(graph, RowGrouping(1, (2,)))
    for group in range(2):
        tracker.admit(group)
        tracker.lose(MakeJob(0, group, group))
    assert [tracker.is_stuck(group) for group in range(2)] == [True, True]
    assert tracker.close(0).ready == ()
    assert tracker.is_stuck(1)


def test_a_dropped_row_with_its_cell_does_not_count_as_missing() -> None:
    tracker = Tracker(LIST_OF_ALL, RowGrouping(3, (3,)))
    tracker.admit(0)
    make(tracker, MakeJob(0, 0, 0), MakeJob(0, 0, 1))
    assert tracker.drop([0, 0]) == Change(never=())
    assert make(tracker, MakeJob(0, 0, 2)).ready == (MakeJob(1, 0),)


def test_co_09_groups_that_are_not_open_use_no_memory() -> None:
    """With a million groups, three of them open, less than 5 MB are used in addition to the open rows."""
    tracemalloc.start()
    try:
        grouping = RowGrouping(1000, (10**9,))
        numbering = JobNumbering(LIST_OF_ALL, grouping, range(100_000))
        tracker = Tracker(LIST_OF_ALL, grouping)
        for group in range(500_000, 500_020):
            tracker.admit(group)
            if len(tracker.open) > 3:
                tracker.close(tracker.open[0])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(grouping) == 1_000_000
    assert len(numbering) == 900_000 * 1002
    assert numbering.job(numbering.index(MakeJob(0, 999_999, 10**9 - 1))).group == 999_999
    assert held < 5_000_000
