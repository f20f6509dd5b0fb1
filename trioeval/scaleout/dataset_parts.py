# Separate from `scaleout.worker`: a part of a dataset can be built without a session.
"""The part of a dataset that a worker makes: some of its groups, without files.

A shard of groups is a run of the same dataset that is restricted to them. Everything else is as in any run:
its jobs, lanes, retries and last rounds. Each result, drop and cost is sent in the step in which it happens,
and the rows of a group when it is complete. The coordinator writes the files, and keeps the account.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.columns.events import DatasetEvent, GroupAbandoned, GroupWritten, RowDropped
from trioeval.columns.files import GroupFile
from trioeval.columns.finish import MemoryOutput
from trioeval.columns.graph import RowGrouping
from trioeval.columns.groups import ProcessedElsewhere
from trioeval.columns.journal import DatasetJournal, MadeRecord, RestoredGroup
from trioeval.columns.makers.seeds import RowsSource, Source
from trioeval.columns.options import DatasetOptions
from trioeval.columns.result import DroppedRow
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import DatasetPart, DatasetSpec, Rows
from trioeval.errors import DatasetError, TrioevalError
from trioeval.scaleout.dataset_messages import (
    CallEnd,
    DatasetFault,
    DatasetMessage,
    DatasetNews,
    DatasetShard,
    JobCost,
    MadeGroup,
    UnfinishedGroup,
)
from trioeval.sequences import LazySequence


@attrs.define(eq=False, repr=False)
class _EndingGroup:
    """A complete group whose processors have run."""

    rows: Rows
    aside: Rows
    dropped: list[DroppedRow] = attrs.field(factory=list)
    """The rows that its processors dropped."""


@attrs.define(eq=False, repr=False)
class ForwardedPart:
    """The groups of one shard; the `DatasetPlace` of its dataset, and the observer of it."""

    _shard: DatasetShard
    _send: Callable[[DatasetMessage], None]
    _run: DatasetRun | None = attrs.field(init=False, default=None)
    _failing: str | None = attrs.field(init=False, default=None)
    """The lane because of which nothing new starts."""
    _ending: dict[int, _EndingGroup] = attrs.field(init=False, factory=dict)

    @property
    def options(self) -> DatasetOptions:
        """The options of its dataset."""
        return DatasetOptions(place=self, on_event=self.on_event)

    def seeds(self) -> Mapping[str, Source]:
        """Return the seeds that came with the shard."""
        return {
            name: RowsSource(
                {column: column for column in seed.types},
                seed.types,
                seed.digest,
                _SomeRows(seed.length, seed.rows),
            )
            for name, seed in self._shard.seeds.items()
        }

    def output(self, grouping: RowGrouping) -> MemoryOutput:
        """Return an output that sends the rows of finished groups."""
        return _ForwardedOutput(grouping, on_group=self._on_group)

    def adapt(self, spec: DatasetSpec) -> DatasetSpec:
        """Return the dataset with the groups of the shard only.

        Raises:
            DatasetError: This worker has read other files than the coordinator.
        """
        if dict(spec.fingerprint) != dict(self._shard.fingerprint):
            raise DatasetError(
                "its files (seeds, code or providers of the dataset) differ from those of the run"
            )
        return attrs.evolve(
            spec,
            stages=attrs.evolve(spec.stages, after_generation=()),
            part=DatasetPart(
                groups=frozenset(self._shard.groups),
                on_costs=lambda producer, costs: self.send(JobCost(producer, costs)),
                on_call_end=lambda *facts: self.send(CallEnd(*facts)),
            ),
        )

    def on_open(self, run: DatasetRun) -> None:
        """Remember the dataset."""
        self._run = run
        if self._failing is not None:
            run.progress.request_shut_down(self._failing)

    def shut_down(self, lane: str) -> None:
        """Start nothing new, because too many calls of a lane failed permanently."""
        self._failing = lane
        if self._run is not None:
            self._run.progress.request_shut_down(lane)

    def journal(self) -> DatasetJournal:
        """Return the journal of the dataset, which sends its records."""
        return _ForwardingDatasetJournal(self._shard, self)

    def on_event(self, _task: str | None, event: DatasetEvent) -> None:
        """Send the loss of a row, and the end of a group."""
        match event:
            case RowDropped() if event.group in self._ending:
                # Recorded with its group: an earlier record would hide it from processors that run again.
                self._ending[event.group].dropped.append(event.row)
            case RowDropped():
                self.send(event.row)
            case GroupWritten():
                self._send_group(event.group.group)
            case GroupAbandoned():
                self.send(UnfinishedGroup(event.group, event.reasons))

    def end(self) -> None:
        """Send the failure of the whole dataset, if it failed."""
        failure = None if self._run is None else self._run.failure
        if isinstance(failure, TrioevalError):
            self.send(DatasetFault(str(failure)))

    def _on_group(self, number: int, rows: Rows, aside: Rows) -> None:
        self._ending[number] = _EndingGroup(rows, aside)

    def _send_group(self, number: int) -> None:
        ending = self._ending.pop(number)
        opened = None if self._run is None else self._run.progress.groups[number]
        skipped = {} if opened is None else opened.skipped
        self.send(
            MadeGroup(
                number,
                ending.rows,
                ProcessedElsewhere(ending.aside, tuple(ending.dropped)),
                {row: frozenset(by) for row, by in skipped.items()},
            )
        )

    def send(self, news: DatasetNews) -> None:
        """Send news of the dataset."""
        self._send(DatasetMessage(self._shard.number, self._shard.task, news))


@attrs.frozen
class _SomeRows(LazySequence[Mapping[str, Any]]):
    """The rows of a task, of which only some are known."""

    length: int
    known: Mapping[int, Mapping[str, Any]]

    def __len__(self) -> int:
        return self.length

    def entry(self, index: int) -> Mapping[str, Any]:
        return self.known[index]


def _keep_none(_group: int, _rows: Rows, _aside: Rows) -> None:
    """Ignore a group."""


@attrs.define(eq=False, repr=False)
class _ForwardedOutput(MemoryOutput):
    """An output that passes groups on, and keeps nothing."""

    on_group: Callable[[int, Rows, Rows], None] = _keep_none

    async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
        """Pass the rows of a group on. Always a checkpoint."""
        self.on_group(group, rows, self.aside.pop(group, ()))
        await trio.lowlevel.cancel_shielded_checkpoint()
        return GroupFile(group=group, rows=len(rows), file=None, digest=None, dropped=dropped)


@attrs.frozen(eq=False, repr=False)
class _ForwardingDatasetJournal:
    """The journal of a shard; its records are those of the coordinator."""

    _shard: DatasetShard
    _part: ForwardedPart

    @property
    def resumed(self) -> bool:
        """True if some of its groups may have been started before."""
        return self._shard.is_resumed

    @property
    def grouping(self) -> RowGrouping | None:
        """The grouping of the coordinator."""
        return self._shard.grouping

    def on_start(self, _grouping: RowGrouping, _fingerprint: Mapping[str, str], /) -> None:
        """Do nothing: the coordinator has recorded it."""

    def on_made(self, record: MadeRecord, /) -> None:
        """Send the result of a job."""
        self._part.send(record)

    def on_dropped(self, _row: DroppedRow, /) -> None:
        """Do nothing: the event is sent."""

    def on_written(self, _group: GroupFile, /) -> None:
        """Do nothing: the coordinator writes the group."""

    def on_stage(self, _name: str, _state: str, /) -> None:
        """Do nothing: no stage of the whole dataset runs here."""

    def stages(self) -> Mapping[str, Any]:
        """Return no states."""
        return {}

    def groups(self) -> Sequence[GroupFile]:
        """Return no groups: those that are written are not part of the shard."""
        return ()

    def groups_to_rewrite(self) -> frozenset[int]:
        """Return no groups."""
        return frozenset()

    def restored(self, group: int, _rows: range, /) -> RestoredGroup:
        """Return the records that came with the shard."""
        return self._shard.groups.get(group, RestoredGroup())

    async def durable(self) -> None:
        """Return at once: the coordinator makes its records durable. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
