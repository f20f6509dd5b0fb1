"""What a terminal is told of datasets while they are built."""

import pytest

from trioeval.cli.progress.columns import DatasetProgress, event_line
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
from trioeval.columns.result import DatasetResult, DroppedRow

FILE = GroupFile(group=0, rows=25, file="batch_00000.parquet", digest="d")
LOST = DroppedRow(row=30, cause="failed", column="text", error="no\x1b[2J", attempts=2)


def test_a_line_counts_rows_and_groups_of_each_dataset() -> None:
    """From its first group to its end."""
    progress = DatasetProgress(print, {"problems": 100, "more": None})
    assert progress.lines() == []
    for group in range(3):
        progress.observe("problems", GroupOpened(1.0, group, 0))
    progress.observe("more", GroupOpened(1.0, 0, 0))
    progress.observe("problems", GroupWritten(2.0, FILE))
    progress.observe("problems", RowDropped(2.5, 1, LOST))
    progress.observe("problems", GroupGivenUp(2.5, 2, "deadline"))
    assert progress.lines() == [
        "  problems: 25/100 rows written, 1 open groups, 1 dropped",
        "  more: 0 rows written, 1 open groups",
    ]
    progress.observe("more", ProcessorBegun(3.0, "clean", None))
    assert progress.lines()[1].endswith("1 open groups, processor clean")
    progress.observe("more", ProcessorEnded(3.0, "clean", None))
    progress.ended(DatasetResult(task="problems", requested=100, written=99))
    assert progress.lines() == ["  more: 0 rows written, 1 open groups"]


def test_rows_that_are_there_already_are_counted() -> None:
    """Of a run that is gone on with, all come to be written in the end."""
    progress = DatasetProgress(print, {"problems": 100})
    progress.observe("problems", DatasetBegun(1.0, 75, 2))
    assert progress.lines() == ["  problems: 75/100 rows written, 0 open groups, 2 dropped"]
    progress.observe("problems", GroupWritten(2.0, FILE))
    assert progress.lines() == ["  problems: 100/100 rows written, 0 open groups, 2 dropped"]


def test_what_somebody_should_know_is_told_at_once() -> None:
    """Also where no line is ever drawn."""
    told: list[str] = []
    progress = DatasetProgress(told.append)
    progress.observe("a", ShutDown(1.0))
    progress.observe("a", ManyMishaps(1.0))
    assert told == [
        "dataset a: too many calls fail for good; nothing new begins",
        "dataset a: half of the last calls failed, and are made again",
    ]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (DatasetBegun(12.0, 0, 0), "it is begun"),
        (DatasetBegun(12.0, 50, 1), "it is begun, 50 of its rows are there already"),
        (GroupOpened(12.0, 3, 7), "group 3 is begun, 7 of its jobs are there already"),
        (GroupWritten(12.0, FILE), "group 0 is written: 25 rows, batch_00000.parquet"),
        (
            GroupWritten(12.0, GroupFile(group=1, rows=(), file=None, digest=None)),
            "group 1 is written: 0 rows, no file",
        ),
        (GroupGivenUp(12.0, 2, "budget_exceeded"), "group 2 is left unfinished: budget exceeded"),
        (RowDropped(12.0, 1, LOST), "row 30: text failed after 2 calls: no [2J"),
        (ProcessorBegun(12.0, "clean", 4), "processor clean begins, group 4"),
        (ProcessorEnded(12.0, "clean", None, "bad\nrow"), "processor clean is over: bad row"),
        (ShutDown(12.0), "too many calls fail for good; nothing new begins"),
        (ManyMishaps(12.0), "half of the last calls failed, and are made again"),
    ],
)
def test_each_event_is_a_line(event: DatasetEvent, line: str) -> None:
    """For `--verbose`; what models and functions said does nothing to a terminal."""
    assert event_line("p", event, 10.0) == f"2.000 s p: {line}"
    told: list[str] = []
    DatasetProgress(print, tell=told.append, began_at=10.0).observe("p", event)
    assert told == [f"2.000 s p: {line}"]
