"""What became of a dataset."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.text import KEY
from trioeval.usage import Usage

Cause: TypeAlias = Literal[
    "failed", "filtered", "expression", "validation", "processor", "early_shutdown"
]
"""Why a row is not there: a cell of it could not be made; its `dropWhen` is true; an expression left it out;
it did not pass; a processor left it out; too much failed for good."""

FILTERS: frozenset[Cause] = frozenset({"filtered", "expression", "validation", "processor"})
"""Causes that somebody wanted: no error."""

LOST: frozenset[Cause] = frozenset({"failed", "early_shutdown"})
"""The others: such a row may be there when it is tried again."""

DatasetOutcome: TypeAlias = Literal["complete", "incomplete", "failed"]

SHOWN_FAILURES = 100
"""Dropped rows that a result tells of one by one."""


@attrs.frozen(kw_only=True)
class DroppedRow:
    """A row that is not there, and why."""

    row: int
    cause: Cause
    column: str | None = None
    """Whose cell it was, or whose condition."""
    error: str | None = None
    kind: str | None = None
    """How the provider failed, see `ProviderErrorKind`."""
    attempts: int = 0
    """Requests that were made for the cell."""


@attrs.frozen(kw_only=True)
class Histogram:
    """How often values lie in which range."""

    edges: tuple[float, ...]
    """Ascending; bin i is from `edges[i]` up to, but without, `edges[i + 1]`; the last one has its end."""
    counts: tuple[int, ...]
    """One fewer than edges."""


@attrs.frozen(kw_only=True)
class ColumnProfile:
    """What is in a column, over the rows that were written."""

    name: str
    kind: str
    """`seed`, `sampler`, …"""
    type: str
    """Of its values: `text`, `int`, `float`, `bool`, `list`, `object`, `null`, or several joined by ` | `."""
    values: int
    """Rows."""
    nulls: int
    skipped: int
    distinct: int
    """Exact up to 1,000 different values; an estimate above, see `is_estimate`."""
    is_estimate: bool = False
    lengths: Histogram | None = None
    """Characters of texts, members of lists; None of other values."""
    numbers: Mapping[str, float] = attrs.field(factory=dict)
    """`min`, `max`, `mean`, `std` of numbers; empty of other values."""
    common: tuple[tuple[Any, int], ...] = ()
    """The most frequent values, at most five, where there are few different ones."""
    calls: int = 0
    """Requests that were made for it, retries among them."""
    recalled: int = 0
    """Cells that an earlier execution had made."""
    failed: int = 0
    """Cells that could not be made."""
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    """US dollars; None where no price is known."""
    seconds: float = 0.0
    """Time of its calls in all, without waits."""


@attrs.frozen(kw_only=True)
class DatasetResult:
    """How a dataset ended. Every row is written, dropped for one cause, or not run for one reason."""

    task: str | None
    requested: int
    written: int
    dropped: Mapping[Cause, int] = attrs.field(factory=dict)
    not_run: Mapping[str, int] = attrs.field(factory=dict)
    """By why: `stop`, `deadline`, `cancel`, `lane`, `rate_limited`, `shared_limit`, `budget_exceeded`,
    `early_shutdown` (of groups that were never begun), `fault` (the whole failed), `blocked` (a task that it
    depends on is not complete). Where it was never known how many rows there would be, a reason has 0."""
    unfinished: str | None = None
    """Why processors of the whole were cut off, although all rows are there: `cancel` or `deadline`."""
    groups: int = 0
    """Groups that are written, those without a row among them."""
    partial_groups: tuple[int, ...] = ()
    """Groups that are written without rows that an early end dropped."""
    early_shutdown: bool = False
    failures: tuple[DroppedRow, ...] = ()
    """The first `SHOWN_FAILURES` dropped rows, by their numbers."""
    first_error: str | None = None
    """The first failure for good."""
    error: str | None = None
    """Why the whole of it failed; None where it did not."""
    columns: tuple[ColumnProfile, ...] = ()
    folder: Path | None = None
    """Of its files; None of a preview."""
    format: Literal["parquet", "jsonl"] | None = None
    calls: int = 0
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    duration_s: float = attrs.field(default=0.0, metadata={KEY: "durationSeconds"})

    @property
    def outcome(self) -> DatasetOutcome:
        """`failed` if nothing is written or the whole failed, `incomplete` if something was not run."""
        if self.error is not None or (self.not_run == {} and self.written == 0):
            return "failed"
        return "incomplete" if self.not_run or self.unfinished else "complete"

    @property
    def is_left(self) -> bool:
        """Whether something of it is left for another time.

        Example:
            >>> DatasetResult(task="a", requested=2, written=1, not_run={"deadline": 1}).is_left
            True
        """
        return self.outcome == "incomplete" or bool(self.not_run) or self.error is not None

    @property
    def lost(self) -> int:
        """Rows that were dropped although nobody wanted it."""
        return sum(count for cause, count in self.dropped.items() if cause not in FILTERS)
