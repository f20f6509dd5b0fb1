"""Jobs and indices."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_graphs import graphs, groupings, producer
from naive_tracker import NaiveTracker

from trioeval.columns.graph import FINISH, PREPARE, ColumnGraph, JobNumbering, MakeJob, RowGrouping


@given(
    graph=graphs(),
    grouping=groupings(most=9),
    prepares=st.booleans(),
    written=st.sets(st.integers(0, 12)),
)
@settings(max_examples=settings().max_examples // 2)
def test_indices_and_jobs_of_unwritten_groups_are_one_to_one(
    *, graph: ColumnGraph, grouping: RowGrouping, prepares: bool, written: set[int]
) -> None:
    written &= set(range(len(grouping)))
    numbering = JobNumbering(graph, grouping, written, prepares=prepares)
    naive = NaiveTracker(graph, grouping, prepares=prepares)
    groups = [group for group in range(len(grouping)) if group not in written]
    jobs = [numbering.job(index) for index in range(len(numbering))]
    assert sorted(jobs, key=str) == sorted(
        (job for group in groups for job in naive.of_group(group)), key=str
    )
    assert [numbering.index(job) for job in jobs] == list(range(len(jobs)))
    assert [job.group for job in jobs] == sorted(job.group for job in jobs)
    assert list(numbering.groups) == groups
    rows = sum(len(grouping.rows_of(group)) for group in groups)
    assert len(jobs) == graph.jobs(rows, len(groups)) + len(groups) * (1 + prepares)


def test_jobs_of_a_group_are_ordered_by_readiness_and_row() -> None:
    graph = ColumnGraph.of(
        [
            producer("a", scope="scratch"),
            producer("b", "a"),
            producer("c", "b", scope="full"),
            producer("d", "a"),
        ]
    )
    numbering = JobNumbering(graph, RowGrouping(2, (4,)), written=[0], prepares=True)
    assert [(job.producer, job.row) for job in map(numbering.job, range(len(numbering)))] == [
        (0, None), (PREPARE, None), (1, 2), (3, 2), (1, 3), (3, 3), (2, None), (FINISH, None),
    ]  # fmt: skip


def test_an_unknown_job_is_an_index_error() -> None:
    graph = ColumnGraph.of([producer("a"), producer("b", scope="full")])
    numbering = JobNumbering(graph, RowGrouping(2, (6,)), written=[1])
    for index in (-1, 8):
        with pytest.raises(IndexError, match=f"job {index} does not exist; there are 8"):
            numbering.job(index)
    for job in (
        MakeJob(0, 0),
        MakeJob(0, 0, 2),
        MakeJob(1, 0, 0),
        MakeJob(2, 0),
        MakeJob(PREPARE, 0),
        MakeJob(FINISH, 1),
        MakeJob(FINISH, 3),
    ):
        with pytest.raises(IndexError, match="does not exist"):
            numbering.index(job)
    with pytest.raises(IndexError, match="group 3 does not exist"):
        JobNumbering(graph, RowGrouping(2, (6,)), written=[0, 3])
