"""The specification of a dataset that is to be built; made when its task is opened."""

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.graph import ColumnGraph, RowGrouping
from trioeval.columns.makers.base import CellError, Maker
from trioeval.columns.model import ColumnsSettings, Skip
from trioeval.columns.result import Cause

# Processors, which change all rows of a group or of the dataset at one stage, and their rules.
#
# A processor gets rows with their numbers and returns rows with their numbers. It may change values and
# remove rows. It must not add rows or change their order: a returned row is identified by its number.


Rows: TypeAlias = Sequence[tuple[int, Mapping[str, Any]]]
"""Row numbers with values, ascending."""


@attrs.frozen
class Processed:
    """The output of a processor."""

    rows: Rows
    aside: Rows = ()
    """Columns that it removed and that are stored beside the dataset, by row."""
    left_out: frozenset[str] = frozenset()
    """The names of the columns that it removed."""


Process: TypeAlias = Callable[[int | None, Rows], Awaitable[Processed]]
"""Gets the number of a group (None for all rows of the dataset) and a copy of its rows."""


@attrs.frozen(kw_only=True)
class StageProcessor:
    """One processor of one stage, ready to be called."""

    name: str
    """The name in messages: `processors[2]`."""
    run: Process
    on_error: Literal["abort", "drop_group"] = "abort"


@attrs.frozen(kw_only=True)
class Stages:
    """The processors of a dataset, in the order of its settings."""

    before_batch: tuple[StageProcessor, ...] = ()
    after_batch: tuple[StageProcessor, ...] = ()
    after_generation: tuple[StageProcessor, ...] = ()


def mistake(given: Rows, back: Rows) -> str | None:
    """Return the error in the rows that a processor returned; None if they are valid.

    Example:
        >>> mistake([(0, {}), (1, {})], [(1, {})])
        >>> mistake([(0, {}), (1, {})], [(1, {}), (0, {})])
        'it changed the order of rows: row 0 comes after row 1'
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
                return f"it returned row {row} twice"
            return f"it changed the order of rows: row {row} comes after row {last}"
        last = row
    return None


Condition: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""A condition over a row; raises if it cannot be evaluated."""


@attrs.frozen(kw_only=True)
class ProducerSetup:
    """The maker of the columns of one producer, with the rules for their values."""

    maker: Maker
    kind: str
    """`seed`, `sampler`, …; for the profile."""
    digest: str
    """The digest of everything that the values depend on, see `fingerprints`."""
    is_recorded: bool = False
    """True if its results are recorded: those that cost money or time, and cannot be computed again."""
    leaves_out: bool = False
    """True if it may leave out rows, which are then dropped: expressions."""
    skip: Skip = attrs.field(factory=Skip)
    skip_when: Condition | None = None
    """`skip.when`, compiled."""
    drops: Sequence[tuple[Cause, Condition]] = ()
    """Conditions that drop a row with its new values: `dropWhen`, and a validation with `drop`."""
    weight: float = 1.0
    """Its share of its lane, > 0: configured parallelism."""

    def skips(
        self, upstream: Sequence[int], skipped: Collection[int] | None, values: Mapping[str, Any]
    ) -> bool:
        """Return True if a cell is skipped.

        Args:
            upstream: The producers that it needs.
            skipped: The producers that skipped its row; None if none did.
            values: The values of the row.

        Raises:
            CellError: The condition cannot be evaluated.
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
            raise CellError(f"skip.when cannot be evaluated: {error}") from error


@attrs.frozen(eq=False, kw_only=True)
class DatasetPart:
    """Some groups of a dataset that another process builds: that process keeps its account."""

    groups: frozenset[int]
    """The groups that are made here."""
    on_costs: Callable[[int, Mapping[str, Any]], None]
    """Called with the producer and the costs of each round of a job, as `JobCosts.json` returns them."""
    on_call_end: Callable[[str, bool, bool], None]
    """Called with each end of a job that makes calls or runs code of the suite: its lane, and whether it
    failed permanently, or transiently."""


@attrs.frozen(kw_only=True)
class DatasetSpec:
    """A dataset that is to be built."""

    task: str | None
    settings: ColumnsSettings
    graph: ColumnGraph
    makings: Sequence[ProducerSetup]
    """One for each producer, in the order of the graph."""
    types: Mapping[str, ColumnType]
    """The types of all columns, including side-effect columns and columns that are not written."""
    columns: Sequence[str]
    """The columns that are written, in order."""
    grouping: RowGrouping
    fingerprint: Mapping[str, str] = attrs.field(factory=dict)
    """See `Header.fingerprint`."""
    stages: Stages = attrs.field(factory=Stages)
    timeout: float = math.inf
    """The timeout of a job that makes calls, in seconds of working time."""
    origin: "DatasetSpec | None" = None
    """The dataset as its suite describes it, if other processes make its groups: then the only producer here
    is that of finished groups."""
    part: DatasetPart | None = None
    """The groups that are made, if another process builds the dataset; None makes all of them."""

    @property
    def described(self) -> "DatasetSpec":
        """The dataset as its suite describes it: costs and failures are those of its producers."""
        return self.origin or self
