"""What a terminal is told of datasets while they are built."""

import pytest

from trioeval.cli.progress.tasks import TaskProgress, event_line
from trioeval.columns.events import (
    DatasetBegun,
    DatasetEvent,
    GroupGivenUp,
    GroupOpened,
    GroupWritten,
    ManyMishaps,
    ProcessorBegun,
    ProcessorEnded,
    RowDropped,
    ShutDown,
)
from trioeval.columns.files import GroupFile
from trioeval.columns.result import DroppedRow

FILE = GroupFile(group=0, rows=25, file="batch_00000.parquet", digest="d")
LOST = DroppedRow(row=30, cause="failed", column="text", error="no\x1b[2J", attempts=2)


def test_a_line_counts_rows_and_groups_of_each_dataset() -> None:
    """From its first group to its end."""
    progress = TaskProgress(print, {"problems": 100, "more": None})
    assert progress.lines() == []
    for group in range(3):
        progress.observe(GroupOpened(1.0, group, 0), "problems")
    progress.observe(GroupOpened(1.0, 0, 0), "more")
    progress.observe(GroupWritten(2.0, FILE), "problems")
    progress.observe(RowDropped(2.5, 1, LOST), "problems")
    progress.observe(GroupGivenUp(2.5, 2, "deadline"), "problems")
    assert progress.lines() == [
        "  problems: 25/100 rows written, 1 open group, 1 dropped",
        "  more: 0 rows written, 1 open group",
    ]
    progress.observe(ProcessorBegun(3.0, "clean", None), "more")
    assert progress.lines()[1].endswith("1 open group, processor clean")
    progress.observe(ProcessorEnded(3.0, "clean", None), "more")
    progress.ended("problems")
    assert progress.lines() == ["  more: 0 rows written, 1 open group"]


def test_rows_that_are_there_already_are_counted() -> None:
    """Of a run that is gone on with, all come to be written in the end."""
    progress = TaskProgress(print, {"problems": 100})
    progress.observe(DatasetBegun(1.0, 75, 2), "problems")
    assert progress.lines() == ["  problems: 75/100 rows written, 0 open groups, 2 dropped"]
    progress.observe(GroupWritten(2.0, FILE), "problems")
    assert progress.lines() == ["  problems: 100/100 rows written, 0 open groups, 2 dropped"]


def test_what_somebody_should_know_is_told_at_once() -> None:
    """Also where no line is ever drawn."""
    told: list[str] = []
    progress = TaskProgress(told.append)
    progress.observe(ShutDown(1.0), "a")
    progress.observe(ManyMishaps(1.0), "a")
    assert told == [
        "dataset a: too many permanent failures; no further rows are started",
        "dataset a: half of the last calls failed and are repeated",
    ]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (DatasetBegun(12.0, 0, 0), "it is begun"),
        (DatasetBegun(12.0, 50, 1), "it is begun, 50 of its rows exist already"),
        (GroupOpened(12.0, 3, 7), "group 3 starts, 7 of its jobs are done already"),
        (GroupWritten(12.0, FILE), "group 0 is written: 25 rows, batch_00000.parquet"),
        (
            GroupWritten(12.0, GroupFile(group=1, rows=(), file=None, digest=None)),
            "group 1 is written: 0 rows, no file",
        ),
        (GroupGivenUp(12.0, 2, "budget_exceeded"), "group 2 is not finished: budget exceeded"),
        (RowDropped(12.0, 1, LOST), "row 30: text failed after 2 calls: no [2J"),
        (ProcessorBegun(12.0, "clean", 4), "processor clean begins, group 4"),
        (ProcessorEnded(12.0, "clean", None, "bad\nrow"), "processor clean is over: bad row"),
        (ShutDown(12.0), "too many permanent failures; no further rows are started"),
        (ManyMishaps(12.0), "half of the last calls failed and are repeated"),
    ],
)
def test_each_event_is_a_line(event: DatasetEvent, line: str) -> None:
    """For `--verbose`; what models and functions said does nothing to a terminal."""
    assert event_line(event, 10.0, "p") == f"2.000 s p: {line}"
    told: list[str] = []
    TaskProgress(print, tell=told.append, began_at=10.0).observe(event, "p")
    assert told == [f"2.000 s p: {line}"]
