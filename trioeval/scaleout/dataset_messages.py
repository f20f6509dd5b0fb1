"""The messages about datasets between the coordinator and its workers: groups to make, and what is made."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.graph import RowGrouping
from trioeval.columns.groups import ProcessedElsewhere
from trioeval.columns.journal import MadeRecord, RestoredGroup
from trioeval.columns.result import DroppedRow
from trioeval.columns.spec import Rows
from trioeval.scaleout.placed import PlacedWork


@attrs.frozen(kw_only=True)
class SeedPart:
    """The rows of an earlier task that are seeds of some groups; as in `RowsSource`."""

    types: Mapping[str, ColumnType]
    digest: str
    length: int
    """The number of all rows of the task."""
    rows: Mapping[int, Mapping[str, Any]]
    """The values of the columns of the dataset, by the number of the row of the task."""


@attrs.frozen(kw_only=True)
class DatasetShard(PlacedWork):
    """Groups of one dataset that a worker makes."""

    grouping: RowGrouping
    """The groups of the whole dataset."""
    fingerprint: Mapping[str, str]
    """See `DatasetSpec.fingerprint`. A worker that has read other files makes nothing."""
    groups: Mapping[int, RestoredGroup]
    """The groups to make, each with what is recorded of it."""
    seeds: Mapping[str, SeedPart] = attrs.field(factory=dict)
    """By the name of the first column of a seed whose rows are those of an earlier task."""
    is_resumed: bool = False
    """True if some group may have been started before: by an earlier execution, or by another worker."""

    @property
    def rows(self) -> tuple[int, ...]:
        """The numbers of its groups."""
        return tuple(self.groups)


@attrs.frozen
class JobCost:
    """The costs of one round of a job, whatever its result."""

    producer: int
    costs: Mapping[str, Any]
    """See `JobCosts.json`."""


@attrs.frozen
class CallEnd:
    """The end of a job that made calls or ran code of the suite; see `DatasetProgress.call_ended`."""

    lane: str
    failed: bool
    transient: bool


@attrs.frozen
class MadeGroup:
    """A group in which every remaining row has every column, after its processors."""

    group: int
    rows: Rows
    """The columns that are written."""
    processed: ProcessedElsewhere
    skipped: Mapping[int, frozenset[int]]
    """By row, the producers that skipped it."""


@attrs.frozen
class UnfinishedGroup:
    """A group that this placement does not finish."""

    group: int
    reasons: Mapping[int, str]
    """The reason for each remaining row, a key of `DatasetResult.not_run`."""


@attrs.frozen
class DatasetFault:
    """The whole dataset cannot be built."""

    text: str


DatasetNews: TypeAlias = (
    MadeRecord | DroppedRow | JobCost | CallEnd | MadeGroup | UnfinishedGroup | DatasetFault
)
"""The reports of a worker about a dataset, each sent as soon as it happens."""


@attrs.frozen
class DatasetMessage:
    """News of a dataset from the worker that runs one of its shards."""

    shard: int
    task: str | None
    news: DatasetNews
