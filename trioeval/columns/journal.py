"""What is written down of a dataset while it is built, and found again when its run is resumed."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from trioeval.columns.files import GroupFile
from trioeval.columns.graph import Grouping
from trioeval.columns.result import DroppedRow


@attrs.frozen(kw_only=True)
class MadeRecord:
    """What one job has made."""

    producer: str
    """Its name."""
    unit: int
    """The row of a cell; the group of a producer that makes whole groups."""
    digest: str
    """Of everything that the producer is and needs, see `fingerprints`: a record with another one does not
    count."""
    values: Mapping[int, Mapping[str, Any]]
    """What was made, by row; JSON."""
    skipped: tuple[int, ...] = ()
    """Rows among them that were left out."""
    tally: Mapping[str, Any] = attrs.field(factory=dict)
    """What it cost, as `Tally` counts, so that a profile is the same after a resume."""


@attrs.frozen(kw_only=True)
class Restored:
    """What an earlier execution has written down of one group."""

    made: Sequence[MadeRecord] = ()
    dropped: Sequence[DroppedRow] = ()


class DatasetJournal(Protocol):
    """Where the run writes down one dataset. Nothing synchronous here waits or raises."""

    @property
    def resumed(self) -> bool:
        """Whether there is anything to find."""
        ...

    @property
    def grouping(self) -> Grouping | None:
        """How rows were grouped before; None if nothing was begun."""
        ...

    def begin(self, grouping: Grouping, fingerprint: Mapping[str, str], /) -> None:
        """What the dataset is, before anything is made of it."""
        ...

    def made(self, record: MadeRecord, /) -> None:
        """Write down what a job has made; in the step in which it becomes known."""
        ...

    def dropped(self, row: DroppedRow, /) -> None:
        """Write down that a row is gone."""
        ...

    def written(self, group: GroupFile, /) -> None:
        """Write down that a group is written."""
        ...

    def stage(self, name: str, state: str, /) -> None:
        """Write down that a stage of the whole dataset has begun, or is over (`after_generation`)."""
        ...

    def stages(self) -> Mapping[str, str]:
        """What was written down of such stages."""
        ...

    def groups(self) -> Sequence[GroupFile]:
        """The groups that were written, without those of `again`."""
        ...

    def again(self) -> frozenset[int]:
        """The groups that are to be written anew, since lost rows of them are tried again."""
        ...

    def restored(self, group: int, rows: range, /) -> Restored:
        """What was written down of a group: to go on with it, or to count what it cost if it is written."""
        ...

    async def durable(self) -> None:
        """Return when everything until now is safe, or cannot be made so."""
        ...
