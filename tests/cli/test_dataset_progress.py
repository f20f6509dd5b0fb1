"""The progress of datasets on a terminal."""

import pytest

from trioeval.cli.progress.tasks import TaskProgress, event_line
from trioeval.columns.events import (
    DatasetEvent,
    DatasetShutDown,
    DatasetStarted,
    GroupAbandoned,
    GroupOpened,
    GroupWritten,
    ManyTransientFailures,
    ProcessorEnded,
    ProcessorStarted,
    RowDropped,
)
from trioeval.columns.files import GroupFile
from trioeval.columns.result import DroppedRow

FILE = GroupFile(group=0, rows=25, file="batch_00000.parquet", digest="d")
LOST = DroppedRow(row=30, cause="failed", column="text", error="no\x1b[2J", attempts=2)


def test_a_line_counts_rows_and_groups_of_each_dataset() -> None:
    """It is shown from the first group of the dataset to its end."""
    progress = TaskProgress(print, {"problems": 100, "more": None})
    assert progress.lines() == []
    for group in range(3):
        progress.observe(GroupOpened(1.0, group, 0), "problems")
    progress.observe(GroupOpened(1.0, 0, 0), "more")
    progress.observe(GroupWritten(2.0, FILE), "problems")
    progress.observe(RowDropped(2.5, 1, LOST), "problems")
    progress.observe(GroupAbandoned(2.5, 2, "deadline"), "problems")
    assert progress.lines() == [
        "  problems: 25/100 rows written, 1 open group, 1 dropped",
        "  more: 0 rows written, 1 open group",
    ]
    progress.observe(ProcessorStarted(3.0, "clean", None), "more")
    assert progress.lines()[1].endswith("1 open group, processor clean")
    progress.observe(ProcessorEnded(3.0, "clean", None), "more")
    progress.ended("problems")
    assert progress.lines() == ["  more: 0 rows written, 1 open group"]


def test_rows_of_earlier_executions_are_counted() -> None:
    """In a continued run all rows are written in the end."""
    progress = TaskProgress(print, {"problems": 100})
    progress.observe(DatasetStarted(1.0, 75, 2), "problems")
    assert progress.lines() == ["  problems: 75/100 rows written, 0 open groups, 2 dropped"]
    progress.observe(GroupWritten(2.0, FILE), "problems")
    assert progress.lines() == ["  problems: 100/100 rows written, 0 open groups, 2 dropped"]


def test_warnings_are_shown_at_once() -> None:
    """This includes modes that draw no lines."""
    lines: list[str] = []
    progress = TaskProgress(lines.append)
    progress.observe(DatasetShutDown(1.0), "a")
    progress.observe(ManyTransientFailures(1.0), "a")
    assert lines == [
        "dataset a: too many permanent failures; no further rows are started",
        "dataset a: half of the last calls failed and are repeated",
    ]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (DatasetStarted(12.0, 0, 0), "it is begun"),
        (DatasetStarted(12.0, 50, 1), "it is begun, 50 of its rows exist already"),
        (GroupOpened(12.0, 3, 7), "group 3 starts, 7 of its jobs are done already"),
        (GroupWritten(12.0, FILE), "group 0 is written: 25 rows, batch_00000.parquet"),
        (
            GroupWritten(12.0, GroupFile(group=1, rows=(), file=None, digest=None)),
            "group 1 is written: 0 rows, no file",
        ),
        (GroupAbandoned(12.0, 2, "budget_exceeded"), "group 2 is not finished: budget exceeded"),
        (RowDropped(12.0, 1, LOST), "row 30: text failed after 2 calls: no [2J"),
        (ProcessorStarted(12.0, "clean", 4), "processor clean begins, group 4"),
        (ProcessorEnded(12.0, "clean", None, "bad\nrow"), "processor clean is over: bad row"),
        (DatasetShutDown(12.0), "too many permanent failures; no further rows are started"),
        (ManyTransientFailures(12.0), "half of the last calls failed and are repeated"),
    ],
)
def test_each_event_is_a_line(event: DatasetEvent, line: str) -> None:
    """With `--verbose` each event is a line; texts of models and functions cannot control a terminal."""
    assert event_line(event, 10.0, "p") == f"2.000 s p: {line}"
    lines: list[str] = []
    TaskProgress(print, print_line=lines.append, began_at=10.0).observe(event, "p")
    assert lines == [f"2.000 s p: {line}"]
