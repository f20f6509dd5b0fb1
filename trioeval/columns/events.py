"""The events that the observer of a dataset receives: frozen records, each sent when it happens.

As with the events of the kernel, an observer is synchronous and must return at once; one that raises is
logged and not called again.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from trioeval.columns.files import GroupFile
from trioeval.columns.result import DroppedRow


@attrs.frozen
class DatasetStarted:
    """A dataset is started or resumed."""

    at: float
    """Seconds on the Trio clock."""
    written: int
    """Rows that earlier executions wrote."""
    dropped: int
    """Rows of the same groups that were dropped."""


@attrs.frozen
class GroupOpened:
    """A group was opened."""

    at: float
    """Seconds on the Trio clock."""
    group: int
    restored: int
    """Cells and groups of it that an earlier execution made."""


@attrs.frozen
class RowDropped:
    """A row was dropped."""

    at: float
    group: int
    row: DroppedRow


@attrs.frozen
class GroupWritten:
    """A group was written."""

    at: float
    group: GroupFile


@attrs.frozen
class GroupAbandoned:
    """A group was closed unfinished: some of its jobs are not run in this execution."""

    at: float
    group: int
    reason: str
    """A key of `DatasetResult.not_run`."""
    reasons: Mapping[int, str] = attrs.field(factory=dict)
    """The reason for each of its remaining rows."""


@attrs.frozen
class DatasetShutDown:
    """Too many calls have failed permanently: nothing new is started."""

    at: float


@attrs.frozen
class ProcessorStarted:
    """A processor starts."""

    at: float
    name: str
    group: int | None
    """None for the whole dataset."""


@attrs.frozen
class ProcessorEnded:
    """A processor has ended."""

    at: float
    name: str
    group: int | None
    error: str | None = None
    """The reason of the failure, if it failed."""


@attrs.frozen
class ManyTransientFailures:
    """Half of the last calls have failed transiently."""

    at: float


DatasetEvent: TypeAlias = (
    DatasetStarted
    | GroupOpened
    | RowDropped
    | GroupWritten
    | GroupAbandoned
    | DatasetShutDown
    | ProcessorStarted
    | ProcessorEnded
    | ManyTransientFailures
)
DatasetObserver: TypeAlias = Callable[[DatasetEvent], None]
