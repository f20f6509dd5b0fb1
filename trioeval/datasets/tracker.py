"""What may be made next: counters for each open group, and never a search. Pure.

A *job* makes all outputs of one producer for one row (`cell`) or for one group (`scratch`, `full`), or is one of
the stages of a group: `PREPARE` after its scratch columns and before all others (only where the dataset has
processors for that), and `FINISH` when every row that is left has every column.

Groups are opened one after another by whoever keeps the budget, and closed when they are written or given up.
Only open groups cost memory.

Each change returns what it has made ready and what is no longer to be made, in the order of graph, then row.
Misuse is an error and never ignored.
"""

from collections.abc import Iterable
from typing import NamedTuple

import attrs

from trioeval.datasets.graph import ColumnGraph
from trioeval.datasets.grouping import Grouping

PREPARE = -1
FINISH = -2


class MakeJob(NamedTuple):
    """One thing to be made."""

    producer: int
    """Its place in the graph, or `PREPARE`, or `FINISH`."""
    group: int
    row: int | None = None
    """Of a cell; None of a whole group."""


@attrs.frozen
class Change:
    """What something that happened has changed."""

    ready: tuple[MakeJob, ...] = ()
    """May be made now; each job is named once."""
    removed: tuple[MakeJob, ...] = ()
    """Were named as ready, are not begun, and are not to be made any more."""


class Tracker:
    """What is made and what is to be made of the open groups.

    Args:
        graph: Who makes what.
        grouping: Which rows make which group.
        prepares: Whether each group has a stage `PREPARE`.
    """

    def __init__(self, graph: ColumnGraph, grouping: Grouping, *, prepares: bool = False) -> None:
        raise NotImplementedError

    @property
    def open(self) -> tuple[int, ...]:
        """Groups that are open, in the order in which they were opened."""
        raise NotImplementedError

    def admit(self, group: int, dropped: Iterable[int] = ()) -> Change:
        """Open a group, some of whose rows may be dropped already."""
        raise NotImplementedError

    def begin(self, job: MakeJob) -> None:
        """A job that is ready has been begun. It may be begun again until it is over."""
        raise NotImplementedError

    def complete(self, job: MakeJob) -> Change:
        """A job that was begun has made what it makes.

        The outcome of a job whose row was dropped meanwhile is not to be told.
        """
        raise NotImplementedError

    def drop(self, rows: Iterable[int]) -> Change:
        """Rows are gone, whatever of them is made. Those that are gone already change nothing."""
        raise NotImplementedError

    def lose(self, job: MakeJob) -> Change:
        """A job is not made in this run, and nothing that needs it. Its group can no longer finish."""
        raise NotImplementedError

    def is_stuck(self, group: int) -> bool:
        """Whether nothing of an open group is ready or begun, and it has not finished."""
        raise NotImplementedError

    def needed(self, group: int) -> tuple[MakeJob, ...]:
        """What keeps a group that is stuck from its end, for messages."""
        raise NotImplementedError

    def is_dropped(self, row: int) -> bool:
        """Whether a row of an open group is gone."""
        raise NotImplementedError

    def left(self, group: int) -> tuple[int, ...]:
        """The rows of an open group that are not dropped; ascending."""
        raise NotImplementedError

    def unfinished(self, group: int, producers: Iterable[int]) -> tuple[int, ...]:
        """The rows that are left and lack the cell of one of these producers, begun or not; ascending."""
        raise NotImplementedError

    def close(self, group: int) -> None:
        """Forget a group: it is written, or given up."""
        raise NotImplementedError
