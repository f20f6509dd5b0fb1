"""The counts and costs of a dataset while it is built, from which its result is made."""

from bisect import insort
from collections import Counter
from collections.abc import Sequence

import attrs

from trioeval.columns.files import GroupFile
from trioeval.columns.graph import FINISH, PREPARE, ColumnGraph, MakeJob
from trioeval.columns.makers.base import JobCosts
from trioeval.columns.result import SHOWN_FAILURES, Cause, DroppedRow
from trioeval.usage import Usage

# Counting of rows that were not made. Pure.


_STAGES = {PREPARE: "its processors", FINISH: "its end"}
_SHOWN = 5  # jobs that a message names


def failed_producer(graph: ColumnGraph, row: DroppedRow) -> int | None:
    """Return the producer whose failure dropped a row; None if the row was dropped for another cause."""
    if row.cause != "failed" or row.column is None:
        return None
    return graph.maker.get(row.column)


def pop_seen_by_processors(
    graph: ColumnGraph, dropped: dict[int, DroppedRow]
) -> Sequence[DroppedRow]:
    """Remove and return the rows that processors of the first stage dropped or had seen.

    These processors may look at all rows of a group, so they must see the same rows as in the first
    execution.
    """
    scratch = {
        column for column, place in graph.maker.items() if graph.producers[place].scope == "scratch"
    }
    seen = [one for one in dropped.values() if one.column not in scratch]
    for one in seen:
        del dropped[one.row]
    return seen


def stuck(graph: ColumnGraph, group: int, needed: Sequence[MakeJob]) -> str:
    """Return the message for a group in which no job can start although no job that it needs is lost."""
    named = [
        (_STAGES.get(job.producer) or f"column {graph.producers[job.producer].name!r}")
        + ("" if job.row is None else f" of row {job.row}")
        for job in needed[:_SHOWN]
    ]
    more = f", and {len(needed) - _SHOWN} more" if len(needed) > _SHOWN else ""
    shown = ", ".join(named)
    return f"group {group} waits for jobs that will never end: {shown}{more}; please report this"


@attrs.define(eq=False, repr=False)
class ProducerCosts:
    """The costs of the columns of one producer, as in `ColumnProfile`."""

    calls: int = 0
    recalled: int = 0
    """Cells that an earlier execution made."""
    failed: int = 0
    """Cells that could not be made."""
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    seconds: float = 0.0

    def add(self, tally: JobCosts) -> None:
        """Add the costs of a job, or of one round of it."""
        self.calls += tally.calls
        self.seconds += tally.seconds
        if tally.usages:
            self.usage = Usage.sum((self.usage, *tally.usages))
        if tally.cost is not None:
            self.cost = (self.cost or 0.0) + tally.cost


@attrs.define(eq=False, repr=False)
class DatasetCounts:
    """The counts and costs of one dataset."""

    spent: list[ProducerCosts]
    """By producer."""
    written: int = 0
    groups: int = 0
    dropped: Counter[Cause] = attrs.field(factory=Counter)
    not_run: Counter[str] = attrs.field(factory=Counter)
    partial: set[int] = attrs.field(factory=set)
    early_shutdown: bool = False
    failures: list[DroppedRow] = attrs.field(factory=list)
    """The dropped rows with the lowest numbers."""
    first_error: str | None = None

    def drop(self, row: DroppedRow, producer: int | None) -> None:
        """Count a dropped row.

        Args:
            row: The row and the cause.
            producer: The producer that failed, if a failure is the cause.
        """
        self.dropped[row.cause] += 1
        self.remember(row, producer)

    def remember(self, row: DroppedRow, producer: int | None) -> None:
        """List a dropped row without counting it; the arguments are those of `drop`."""
        insort(self.failures, row, key=lambda one: one.row)
        del self.failures[SHOWN_FAILURES:]
        if row.cause == "failed":
            if self.first_error is None:
                column = "" if row.column is None else f", column {row.column!r}"
                self.first_error = f"row {row.row}{column}: {row.error}"
            if producer is not None:
                self.spent[producer].failed += 1

    def add_written(self, file: GroupFile) -> None:
        """Count a group that was written."""
        self.written += file.count
        self.groups += 1
        if file.count and file.dropped.get("early_shutdown"):
            self.partial.add(file.group)

    def add_earlier(self, file: GroupFile) -> None:
        """Count a group that an earlier execution wrote."""
        self.add_written(file)
        for cause, count in file.dropped.items():
            self.dropped[cause] += count  # type: ignore[index]  # a cause as it was recorded

    def left_out_at_last(self, rows: int) -> None:
        """Count written rows that a processor after generation removed."""
        self.written -= rows
        self.dropped["processor"] += rows
