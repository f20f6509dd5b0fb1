"""Everything that a dataset is made with: put together by whoever opens the task."""

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.graph import ColumnGraph, Grouping
from trioeval.columns.makers.base import CellError, Maker
from trioeval.columns.model import ColumnsSettings, Skip
from trioeval.columns.result import Cause

# What is done with all rows of a group, or of the dataset, at one stage: processors, and what they may do.
#
# A processor gets rows with their numbers and gives back rows with their numbers. It may change values and
# leave out rows. It may not add rows, nor change their order: what it gives back belongs to a row by its
# number.


Rows: TypeAlias = Sequence[tuple[int, Mapping[str, Any]]]
"""Numbers with values, ascending."""


@attrs.frozen
class Processed:
    """What a processor gives back."""

    rows: Rows
    aside: Rows = ()
    """Columns that it has left out and that are kept beside the dataset, by row."""
    left_out: frozenset[str] = frozenset()
    """The names of columns that it has left out."""


Process: TypeAlias = Callable[[int | None, Rows], Awaitable[Processed]]
"""Gets the number of a group, or None with all rows of the dataset, and the rows, copied."""


@attrs.frozen(kw_only=True)
class StageProcessor:
    """One processor of one stage, ready to be called."""

    name: str
    """For messages: `processors[2]`, and what it is."""
    run: Process
    on_error: Literal["abort", "drop_group"] = "abort"


@attrs.frozen(kw_only=True)
class Stages:
    """The processors of a dataset, in the order of its settings."""

    before_batch: tuple[StageProcessor, ...] = ()
    after_batch: tuple[StageProcessor, ...] = ()
    after_generation: tuple[StageProcessor, ...] = ()


def mistake(given: Rows, back: Rows) -> str | None:
    """What is wrong with what a processor gave back; None if nothing is.

    Example:
        >>> mistake([(0, {}), (1, {})], [(1, {})])
        >>> mistake([(0, {}), (1, {})], [(1, {}), (0, {})])
        'it changed the order of rows: row 0 stands behind row 1'
        >>> mistake([(0, {})], [(0, {}), (7, {})])
        'it added row 7'
    """
    known = {row for row, _ in given}
    last: int | None = None
    for row, _ in back:
        if row not in known:
            return f"it added row {row}"
        if last is not None and row <= last:
            if row == last:
                return f"it gave row {row} twice"
            return f"it changed the order of rows: row {row} stands behind row {last}"
        last = row
    return None


Condition: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Says something of a row; raises where it cannot."""


@attrs.frozen(kw_only=True)
class Making:
    """What makes the columns of one producer, and what holds for their values."""

    maker: Maker
    kind: str
    """`seed`, `sampler`, …; for the profile."""
    digest: str
    """Of all that the values depend on, see `fingerprints`."""
    is_recorded: bool = False
    """Whether what it makes is written down: what costs money or time, and cannot be computed again."""
    leaves_out: bool = False
    """Whether it may leave out rows, which are dropped then: expressions."""
    skip: Skip = attrs.field(factory=Skip)
    skip_when: Condition | None = None
    """`skip.when`, compiled."""
    drops: Sequence[tuple[Cause, Condition]] = ()
    """When a row is dropped, with its new values: `dropWhen`, and a validation that says so."""
    weight: float = 1.0
    """Its share of its lane, > 0: configured parallelism."""

    def skips(
        self, upstream: Sequence[int], skipped: Collection[int] | None, values: Mapping[str, Any]
    ) -> bool:
        """Whether a cell is left out.

        Args:
            upstream: The producers that it needs.
            skipped: Those that left out its row; None if none did.
            values: Of the row.

        Raises:
            CellError: It cannot be said.
        """
        if skipped and self.skip.propagate and not set(upstream).isdisjoint(skipped):
            return True
        if self.skip_when is None:
            return False
        try:
            return bool(self.skip_when(values))
        except Exception as error:
            if self.skip.on_error == "skip":
                return True
            raise CellError(f"skip.when cannot be told: {error}") from error


@attrs.frozen(kw_only=True)
class DatasetSpec:
    """A dataset that is to be built."""

    task: str | None
    settings: ColumnsSettings
    graph: ColumnGraph
    makings: Sequence[Making]
    """One for each producer, in the order of the graph."""
    types: Mapping[str, ColumnType]
    """Of all columns, side-effect columns and those that are not written among them."""
    columns: Sequence[str]
    """Those that are written, in order."""
    grouping: Grouping
    fingerprint: Mapping[str, str] = attrs.field(factory=dict)
    """As of `Header`."""
    stages: Stages = attrs.field(factory=Stages)
    timeout: float = math.inf
    """Seconds of working time of a job that calls somebody."""
