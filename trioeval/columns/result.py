"""The result of a dataset."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.text import KEY
from trioeval.usage import Usage

Cause: TypeAlias = Literal[
    "failed", "filtered", "expression", "validation", "processor", "early_shutdown"
]
"""The reason why a row is missing: a cell of it could not be made; its `dropWhen` was true; an expression
dropped it; it did not pass a validation; a processor removed it; too many calls failed permanently."""

FILTERS: frozenset[Cause] = frozenset({"filtered", "expression", "validation", "processor"})
"""Causes that the suite asks for: not errors."""

LOST: frozenset[Cause] = frozenset({"failed", "early_shutdown"})
"""The other causes: such a row may be made when it is retried."""

DatasetOutcome: TypeAlias = Literal["complete", "incomplete", "failed"]

SHOWN_FAILURES = 100
"""The maximum number of dropped rows that a result lists."""


@attrs.frozen(kw_only=True)
class DroppedRow:
    """A missing row and the reason."""

    row: int
    cause: Cause
    column: str | None = None
    """The column of the cell or condition."""
    error: str | None = None
    kind: str | None = None
    """The kind of the provider's error, see `ProviderErrorKind`."""
    attempts: int = 0
    """Requests that were made for the cell."""


@attrs.frozen(kw_only=True)
class Histogram:
    """The numbers of values in ranges."""

    edges: tuple[float, ...]
    """Ascending; bin i includes `edges[i]` and excludes `edges[i + 1]`; the last bin includes both."""
    counts: tuple[int, ...]
    """One fewer than edges."""


@attrs.frozen(kw_only=True)
class ColumnProfile:
    """The statistics of a column over the rows that were written."""

    name: str
    kind: str
    """`seed`, `sampler`, …"""
    type: str
    """The types of its values, joined by ` | `: `text`, `int`, `float`, `bool`, `list`, `object`, `null`."""
    values: int
    """Rows."""
    nulls: int
    skipped: int
    distinct: int
    """Exact up to 1,000 distinct values; above that an estimate, see `is_estimate`."""
    is_estimate: bool = False
    lengths: Histogram | None = None
    """Characters of texts, members of lists; None for other values."""
    numbers: Mapping[str, float] = attrs.field(factory=dict)
    """`min`, `max`, `mean`, `std` of numbers; empty for other values."""
    common: tuple[tuple[Any, int], ...] = ()
    """The most frequent values, at most five, if there are only a few distinct ones."""
    calls: int = 0
    """Requests that were made for it, including retries."""
    recalled: int = 0
    """Cells that an earlier execution made."""
    failed: int = 0
    """Cells that could not be made."""
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    """US dollars; None if no price is known."""
    seconds: float = 0.0
    """The total duration of its calls, without waits."""


@attrs.frozen(kw_only=True)
class DatasetResult:
    """The result of a dataset. Every row is written, dropped for one cause, or not run for one reason."""

    task: str | None
    requested: int
    written: int
    dropped: Mapping[Cause, int] = attrs.field(factory=dict)
    not_run: Mapping[str, int] = attrs.field(factory=dict)
    """By reason: `stop`, `deadline`, `cancel`, `lane`, `rate_limited`, `shared_limit`, `budget_exceeded`,
    `early_shutdown` (groups that were never started), `fault` (the whole dataset failed), `blocked` (a task
    that it depends on is not complete). If the number of rows was never known, a reason has 0."""
    unfinished: str | None = None
    """`cancel` or `deadline` if that cut off the processors of the whole dataset."""
    groups: int = 0
    """Groups that are written, including those without rows."""
    partial_groups: tuple[int, ...] = ()
    """Groups that are written without some rows because of an early shutdown."""
    early_shutdown: bool = False
    failures: tuple[DroppedRow, ...] = ()
    """The first `SHOWN_FAILURES` dropped rows, by their numbers."""
    first_error: str | None = None
    """The first permanent failure."""
    error: str | None = None
    """The reason why the whole dataset failed; None if it did not."""
    columns: tuple[ColumnProfile, ...] = ()
    folder: Path | None = None
    """The folder of its files; None for a preview."""
    format: Literal["parquet", "jsonl"] | None = None
    calls: int = 0
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    duration_s: float = attrs.field(default=0.0, metadata={KEY: "durationSeconds"})

    @property
    def outcome(self) -> DatasetOutcome:
        """`failed` if no row is written or the dataset failed, `incomplete` if something was not run."""
        if self.error is not None or (self.not_run == {} and self.written == 0):
            return "failed"
        return "incomplete" if self.not_run or self.unfinished else "complete"

    @property
    def is_left(self) -> bool:
        """True if a resumed run would continue it.

        Example:
            >>> DatasetResult(task="a", requested=2, written=1, not_run={"deadline": 1}).is_left
            True
        """
        return self.outcome == "incomplete" or bool(self.not_run) or self.error is not None

    @property
    def lost(self) -> int:
        """The number of rows that were dropped because of errors."""
        return sum(count for cause, count in self.dropped.items() if cause not in FILTERS)
