"""The journal of a dataset: what is recorded while it is built, and read when its run is resumed."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from trioeval.columns.files import GroupFile
from trioeval.columns.graph import RowGrouping
from trioeval.columns.result import DroppedRow


@attrs.frozen(kw_only=True)
class MadeRecord:
    """The result of one job."""

    producer: str
    """The name of the producer."""
    unit: int
    """The row of a cell; the group of a producer that makes whole groups."""
    digest: str
    """The digest of the producer's settings and inputs, see `fingerprints`: a record with another digest is
    ignored."""
    values: Mapping[int, Mapping[str, Any]]
    """The values by row; JSON."""
    skipped: tuple[int, ...] = ()
    """Rows whose cells were skipped."""
    tally: Mapping[str, Any] = attrs.field(factory=dict)
    """The costs, in the form of `JobCosts.json`, so that a profile is the same after a resume."""


@attrs.frozen(kw_only=True)
class RestoredGroup:
    """The records of an earlier execution for one group."""

    made: Sequence[MadeRecord] = ()
    dropped: Sequence[DroppedRow] = ()


class DatasetJournal(Protocol):
    """The journal of one dataset. The synchronous methods never wait or raise."""

    @property
    def resumed(self) -> bool:
        """True if an earlier execution has written records."""
        ...

    @property
    def grouping(self) -> RowGrouping | None:
        """The grouping of an earlier execution; None if there was none."""
        ...

    def on_start(self, grouping: RowGrouping, fingerprint: Mapping[str, str], /) -> None:
        """Record what the dataset is, before anything of it is made."""
        ...

    def on_made(self, record: MadeRecord, /) -> None:
        """Record the result of a job, in the same step in which the result becomes known."""
        ...

    def on_dropped(self, row: DroppedRow, /) -> None:
        """Record that a row was dropped."""
        ...

    def on_written(self, group: GroupFile, /) -> None:
        """Record that a group was written."""
        ...

    def on_stage(self, name: str, state: str, /) -> None:
        """Record that a stage of the whole dataset has started or ended (`after_generation`)."""
        ...

    def stages(self) -> Mapping[str, str]:
        """Return the recorded states of these stages."""
        ...

    def groups(self) -> Sequence[GroupFile]:
        """Return the groups that were written, without those of `again`."""
        ...

    def groups_to_rewrite(self) -> frozenset[int]:
        """Return the groups to write again because their lost rows are retried."""
        ...

    def restored(self, group: int, rows: range, /) -> RestoredGroup:
        """Return the records of a group: to continue it, or to count its costs if it is written."""
        ...

    async def durable(self) -> None:
        """Return when all records so far are durable, or cannot be made durable."""
        ...
