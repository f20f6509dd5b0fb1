# Separate from `scaleout.datasets`: together they exceed 600 lines.
"""The groups of a dataset that are sent to workers, each with everything that is recorded of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.columns.journal import MadeRecord, RestoredGroup
from trioeval.columns.makers.seeds import RowsSource
from trioeval.columns.result import DroppedRow
from trioeval.evaluation.journal import CallKey, RecordedReply
from trioeval.scaleout.dataset_messages import MadeGroup, SeedPart


@attrs.define(eq=False, repr=False)
class SentGroup:
    """A group that a worker makes, or will make."""

    number: int
    rows: range
    is_open: bool = False
    """True if its job waits for it."""
    ended: trio.Event = attrs.field(factory=trio.Event)
    made: MadeGroup | None = None
    failure: Exception | None = None
    """The reason why it ended without its rows."""
    shard: int | None = None
    """Its latest placement."""
    losses: int = 0
    """The workers that were lost with it, one after another, without a new cell of it."""
    records: dict[tuple[str, int], MadeRecord] = attrs.field(factory=dict)
    dropped: dict[int, DroppedRow] = attrs.field(factory=dict)
    replies: dict[CallKey, RecordedReply] = attrs.field(factory=dict)
    """The replies that arrived in this execution."""
    seeds: dict[str, SeedPart] = attrs.field(factory=dict)
    """See `DatasetShard.seeds`."""

    def add(self, restored: RestoredGroup) -> None:
        """Add what earlier executions recorded."""
        self.records.update(((one.producer, one.unit), one) for one in restored.made)
        self.dropped.update((one.row, one) for one in restored.dropped)

    @property
    def restored(self) -> RestoredGroup:
        """Everything that is recorded of it."""
        return RestoredGroup(
            made=tuple(self.records.values()), dropped=tuple(self.dropped.values())
        )

    def end(self, failure: Exception | None = None) -> None:
        """Let its job continue."""
        self.failure = failure
        self.ended.set()


def seed_part(source: RowsSource, rows: Mapping[int, Mapping[str, Any]]) -> SeedPart:
    """Return some rows of a seed, by their numbers in its task."""
    return SeedPart(types=source.types, digest=source.digest, length=len(source), rows=rows)


def joined_seeds(several: Sequence[Mapping[str, SeedPart]]) -> Mapping[str, SeedPart]:
    """Return the rows of the seeds of several groups, all of which have the same seeds."""
    return {
        name: attrs.evolve(
            first, rows={place: row for one in several for place, row in one[name].rows.items()}
        )
        for name, first in several[0].items()
    }
