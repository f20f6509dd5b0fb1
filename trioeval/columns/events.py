"""What the observer of a dataset is told: frozen records, each at the instant that it describes.

As with the events of the kernel: an observer is synchronous and returns at once, and one that raises is
logged and not called again.
"""

from collections.abc import Callable
from typing import TypeAlias

import attrs

from trioeval.columns.files import GroupFile
from trioeval.columns.result import DroppedRow


@attrs.frozen
class DatasetBegun:
    """A dataset is begun, or gone on with."""

    at: float
    """Seconds on the Trio clock."""
    written: int
    """Rows that earlier executions have written."""
    dropped: int
    """Rows of the same groups that are not there."""


@attrs.frozen
class GroupOpened:
    """A group was admitted."""

    at: float
    """Seconds on the Trio clock."""
    group: int
    restored: int
    """Cells and groups of it that an earlier execution has made."""


@attrs.frozen
class RowDropped:
    """A row is gone."""

    at: float
    group: int
    row: DroppedRow


@attrs.frozen
class GroupWritten:
    """A group is written."""

    at: float
    group: GroupFile


@attrs.frozen
class GroupGivenUp:
    """A group was closed unfinished: something of it is not made in this run."""

    at: float
    group: int
    reason: str
    """As in `DatasetResult.not_run`."""


@attrs.frozen
class ShutDown:
    """So many calls have failed for good that nothing new is begun."""

    at: float


@attrs.frozen
class ProcessorBegun:
    """A processor begins."""

    at: float
    name: str
    group: int | None
    """None of the whole dataset."""


@attrs.frozen
class ProcessorEnded:
    """A processor is over."""

    at: float
    name: str
    group: int | None
    error: str | None = None
    """What it failed with."""


@attrs.frozen
class ManyMishaps:
    """Half of the last calls have failed by mishap."""

    at: float


DatasetEvent: TypeAlias = (
    DatasetBegun
    | GroupOpened
    | RowDropped
    | GroupWritten
    | GroupGivenUp
    | ShutDown
    | ProcessorBegun
    | ProcessorEnded
    | ManyMishaps
)
DatasetObserver: TypeAlias = Callable[[DatasetEvent], None]
