"""The datasets of a run whose groups are made on workers.

The coordinator builds each dataset as a run of one process does, with one difference: its only column maker
makes whole groups, by asking workers. So the budget of open groups, the files, the processors of the whole
dataset, stop, deadline, resume and results are those of any dataset. What workers report is recorded in the
step in which it arrives. A group whose worker is lost is placed again, with everything that is recorded of
it, so that no recorded reply is requested twice.

A column that is made in the order of the groups, and may have state, needs one process: all groups of such a
dataset are one shard.

Laws: TOTAL, ONCE, RESUME, DRAIN.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs
import trio

from trioeval.columns.account import failed_producer
from trioeval.columns.graph import ColumnGraph, Producer, RowGrouping, Scope
from trioeval.columns.journal import MadeRecord
from trioeval.columns.lanes import LOCAL
from trioeval.columns.makers.base import GroupOrder, JobCosts, Made, NotMadeError
from trioeval.columns.makers.seeds import RowsSource, SeedMaker, Source
from trioeval.columns.progress import DatasetProgress
from trioeval.columns.result import DroppedRow
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import DatasetSpec, ProducerSetup, Stages
from trioeval.errors import DatasetError
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply
from trioeval.kernel import Calls
from trioeval.providers import Reply
from trioeval.scaleout.cluster import Cluster
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
from trioeval.scaleout.run_records import RunRecords
from trioeval.scaleout.sent_groups import SentGroup, joined_seeds, seed_part
from trioeval.scaleout.shards import next_groups
from trioeval.text import counted

_MOST_LOSSES = 3
"""Workers that may be lost with a group, one after another, without a new cell of it."""
_NAME = "all columns"


class GroupWorkers(Protocol):
    """The workers of a run, as datasets use them."""

    @property
    def cluster(self) -> Cluster:
        """The workers."""
        ...

    @property
    def records(self) -> RunRecords:
        """The records of the run."""
        ...

    @property
    def is_stopped(self) -> bool:
        """True if nothing new is to start."""
        ...

    def takers(self, task: str | None, /) -> Sequence[str]:
        """Return the workers that may make groups of a dataset."""
        ...

    def width(self, task: str | None, /) -> int:
        """Return the number of calls that a worker may make at once for a dataset."""
        ...

    def next_number(self) -> int:
        """Return the number of a new shard."""
        ...

    def send_soon(self) -> None:
        """Call `SentDatasets.send` soon."""
        ...


@attrs.define(eq=False, repr=False)
class _GroupShard:
    """A shard that a worker runs."""

    worker: str
    left: dict[int, SentGroup]
    """The groups that have not ended, by number."""


@attrs.define(eq=False, repr=False)
class SentDataset:
    """One dataset whose groups are made on workers; the maker of its groups."""

    spec: DatasetSpec
    """The dataset as its suite describes it."""
    workers: GroupWorkers
    run: DatasetRun | None = None
    lane = LOCAL
    is_ordered: bool = attrs.field(init=False)
    """True if a column is made in the order of the groups."""
    _scopes: Mapping[str, Scope] = attrs.field(init=False)
    """By the name of a producer."""
    _groups: dict[int, SentGroup] = attrs.field(init=False, factory=dict)
    _waiting: deque[SentGroup] = attrs.field(init=False, factory=deque)
    """The groups that no worker has."""
    _shards: dict[int, _GroupShard] = attrs.field(init=False, factory=dict)
    _fault: str | None = attrs.field(init=False, default=None)
    """The reason why the whole dataset failed on a worker."""

    @is_ordered.default
    def _has_ordered(self) -> bool:
        return any(producer.ordered for producer in self.spec.graph.producers)

    @_scopes.default
    def _find_scopes(self) -> Mapping[str, Scope]:
        return {producer.name: producer.scope for producer in self.spec.graph.producers}

    def adapted(self, workers: int) -> DatasetSpec:
        """Return the dataset as the coordinator builds it: one maker makes all columns of a group.

        Args:
            workers: The workers at the start of the run, each of which may have as many open groups as a
                process without workers.
        """
        spec, columns = self.spec, tuple(self.spec.columns)
        graph = ColumnGraph.of([Producer(name=_NAME, outputs=columns, scope="scratch")])
        cells = spec.settings.max_open_cells * max(1, workers)
        return attrs.evolve(
            spec,
            settings=attrs.evolve(spec.settings, max_open_cells=cells),
            graph=graph,
            makings=[ProducerSetup(maker=self, kind="group", digest="", leaves_out=True)],
            stages=Stages(after_generation=spec.stages.after_generation),
            origin=spec,
        )

    async def make(self, order: GroupOrder, _calls: Calls[Any], /) -> Made:
        """Wait until a worker has made a group, and return its rows without those that are dropped.

        Raises:
            NotMadeError: It is not finished in this execution.
            DatasetError: The whole dataset failed.
        """
        group, is_new = self._open(order.group)
        try:
            if is_new:
                await self._read_seeds()
                self._waiting.append(group)
                self.workers.send_soon()
            await group.ended.wait()
        finally:
            self._forget(group)
        if group.failure is not None:
            raise group.failure
        if group.made is None:
            return []
        made, opened = group.made, self.progress.groups[group.number]
        opened.skipped = {row: set(producers) for row, producers in made.skipped.items()}
        opened.processed = made.processed
        none = dict.fromkeys(self.spec.columns)
        return [*made.rows, *((one.row, none) for one in made.processed.dropped)]

    @property
    def progress(self) -> DatasetProgress:
        """The state of the dataset here."""
        if self.run is None:
            raise RuntimeError("a group is made before its dataset is open; please report this")
        return self.run.progress

    # ---- the groups that wait

    def _open(self, number: int) -> tuple[SentGroup, bool]:
        """Return a group whose job has started, and True if no worker can have it yet."""
        opened = self.progress.groups[number]
        group = self._groups.get(number)
        is_new = group is None
        if group is None:
            group = self._groups[number] = SentGroup(number, opened.rows)
            group.add(opened.restored)
            if self.is_ordered:  # all groups are one shard
                for later in self.progress.numbering.groups:
                    if later not in self._groups:
                        self._groups[later] = self._later_group(later)
        group.is_open = True
        if self._fault is not None:
            group.end(DatasetError(self._fault))
        for row in tuple(group.dropped.values()):  # those that arrived before it was opened
            self._drop(group, row)
        return group, is_new

    async def _read_seeds(self) -> None:
        """Read the rows of earlier tasks that are seeds of the groups. A checkpoint if there are any."""
        for making in self.spec.makings:
            maker = making.maker
            if isinstance(maker, SeedMaker) and isinstance(maker.source, RowsSource):
                for group in tuple(self._groups.values()):
                    if maker.column.name not in group.seeds:
                        places = sorted({maker.place(row) for row in group.rows})
                        read = functools.partial(maker.source.read, places)
                        rows = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
                        found = dict(zip(places, rows, strict=True))
                        group.seeds[maker.column.name] = seed_part(maker.source, found)

    def _forget(self, group: SentGroup) -> None:
        """Remove a group whose job has ended, and cancel its shard if that has no other group."""
        self._groups.pop(group.number, None)
        if group in self._waiting:
            self._waiting.remove(group)
        if group.shard is not None and self._leave_shard(group):
            self._cancel_if_empty(group.shard)

    def _leave_shard(self, group: SentGroup) -> bool:
        """Remove a group from its shard; return whether the shard still had it."""
        shard = None if group.shard is None else self._shards.get(group.shard)
        return shard is not None and shard.left.pop(group.number, None) is not None

    def _cancel_if_empty(self, number: int) -> None:
        if not self._shards[number].left:
            del self._shards[number]
            self.workers.cluster.cancel(number)

    # ---- placements

    def send(self) -> None:
        """Send groups to workers, until none can take more or no group waits."""
        if self.workers.is_stopped:
            self._end_waiting("stop")
        elif self.progress.account.early_shutdown:
            self._end_waiting("early_shutdown")
        elif self.is_ordered:
            self._send_all()
        else:
            while self._waiting and self._send_some():
                pass

    def _end_waiting(self, reason: str) -> None:
        while self._waiting:
            self._waiting.popleft().end(NotMadeError(reason))

    def _send_all(self) -> None:
        """Send all groups that are left, if no worker makes them."""
        takers = self.workers.takers(self.spec.task)
        if not self._waiting or self._shards or not takers:
            return
        self._waiting.clear()
        left = [self._groups[number] for number in sorted(self._groups)]
        self._submit(takers[0], [one for one in left if not one.ended.is_set()])

    def _later_group(self, number: int) -> SentGroup:
        """Return a group whose job has not started."""
        group = SentGroup(number, self.spec.grouping.rows_of(number))
        journal = self.progress.journal
        if journal is not None and journal.resumed:
            group.add(journal.restored(number, group.rows))
        return group

    def _send_some(self) -> bool:
        """Send a shard to the worker with the fewest rows; return whether that needs one."""
        takers = self.workers.takers(self.spec.task)
        if not takers:
            return False
        running = dict.fromkeys(takers, 0)
        for shard in self._shards.values():
            if shard.worker in running:
                running[shard.worker] += sum(len(group.rows) for group in shard.left.values())
        worker = min(running, key=running.__getitem__)
        count = next_groups(
            waiting=len(self._waiting),
            workers=len(takers),
            running=running[worker],
            group_rows=len(self._waiting[0].rows),
            width=self.workers.width(self.spec.task),
            most_rows=self.spec.settings.max_open_cells // max(1, len(self.spec.types)),
        )
        if count:
            self._submit(worker, [self._waiting.popleft() for _ in range(count)])
        return bool(count)

    def _submit(self, worker: str, groups: Sequence[SentGroup]) -> None:
        number, journal = self.workers.next_number(), self.progress.journal
        was_placed = any(group.shard is not None for group in groups)
        for group in groups:
            group.shard = number
        self._shards[number] = _GroupShard(worker, {group.number: group for group in groups})
        self.workers.cluster.submit(
            worker,
            DatasetShard(
                number=number,
                task=self.spec.task,
                grouping=self.spec.grouping,
                fingerprint=self.spec.fingerprint,
                groups={group.number: group.restored for group in groups},
                replies=tuple(reply for group in groups for reply in self._replies(group)),
                seeds=joined_seeds([group.seeds for group in groups]),
                is_resumed=was_placed or (journal is not None and journal.resumed),
            ),
        )

    def _replies(self, group: SentGroup) -> Sequence[tuple[CallKey, RecordedReply]]:
        """Return the recorded replies to cells of a group that may not be made."""
        before: list[tuple[CallKey, RecordedReply]] = []
        journal = self.progress.journal
        if journal is not None and journal.resumed:
            made = Counter(unit for _, unit in group.records)
            cells = sum(
                making.is_recorded and producer.scope == "cell"
                for making, producer in zip(
                    self.spec.makings, self.spec.graph.producers, strict=True
                )
            )
            for row in group.rows:
                if made[row] < cells:
                    before += self.workers.records.recorded_replies(self.spec.task, row)
        return [*before, *group.replies.items()]

    # ---- the events of workers

    def on_loss(self, worker: str) -> None:
        """Handle the loss of a worker: its groups are placed again."""
        for number, shard in [*self._shards.items()]:
            if shard.worker == worker:
                del self._shards[number]
                self.workers.cluster.cancel(
                    number
                )  # else a worker with the same address might run it
                for group in shard.left.values():
                    group.losses += 1
                self._place_again(shard)

    def on_shard_end(self, number: int) -> str | None:
        """Handle the end of a shard, after its messages; return its worker, None if it was given up."""
        shard = self._shards.pop(number, None)
        if shard is None:
            return None
        self._place_again(shard)
        return shard.worker

    def _place_again(self, shard: _GroupShard) -> None:
        """Let the groups of a shard wait again that have not ended."""
        for group in reversed(shard.left.values()):
            if group.losses >= _MOST_LOSSES and group.is_open:
                self._give_up(group)
            elif group.is_open or self.is_ordered:
                self._waiting.appendleft(group)
        self.workers.send_soon()

    def _give_up(self, group: SentGroup) -> None:
        """Drop the rows of a group whose workers are lost again and again."""
        crashed = f"{counted(group.losses, 'worker')} were lost while they made this row"
        opened = self.progress.groups[group.number]
        rows = [
            DroppedRow(row=row, cause="failed", error=crashed, kind="worker_crashed")
            for row in opened.rows_left()
        ]
        self.progress.drop(opened, rows)
        group.end()

    def on_call(self, call: CallRecord) -> None:
        """Keep the reply to a call for a group that may be placed again."""
        if isinstance(call.answer, Reply):
            group = self._groups.get(self.spec.grouping.group_of(call.key.index))
            if group is not None:
                reply = RecordedReply(call.answer, call.latency_ms, call.cached)
                group.replies[call.key] = reply

    def on_reject(self, key: CallKey) -> None:
        """Forget a reply that is not to be used again."""
        group = self._groups.get(self.spec.grouping.group_of(key.index))
        if group is not None:
            group.replies.pop(key, None)

    def on_news(self, shard: int, news: DatasetNews) -> None:
        """Record what a worker reports."""
        match news:
            case JobCost():  # also of a placement that is given up: it is paid
                self.progress.account.spent[news.producer].add(JobCosts.read(news.costs))
            case CallEnd():
                self._on_call_end(news)
            case DatasetFault():
                self._fail(news.text)
            case _:
                group = self._placed(shard, self._group_of(news))
                if group is not None:
                    self._on_group_news(group, news)

    def _on_group_news(
        self, group: SentGroup, news: MadeRecord | DroppedRow | MadeGroup | UnfinishedGroup
    ) -> None:
        match news:
            case MadeRecord():
                group.records[news.producer, news.unit] = news
                group.losses = 0
                if self.progress.journal is not None:
                    self.progress.journal.on_made(news)
            case DroppedRow():
                group.dropped[news.row] = news
                self._drop(group, news)
            case MadeGroup():
                group.made = news
                self._end(group)
            case UnfinishedGroup():
                self._on_unfinished(group, news)

    def _group_of(self, news: MadeRecord | DroppedRow | MadeGroup | UnfinishedGroup) -> int:
        grouping = self.spec.grouping
        match news:
            case MadeRecord():
                is_cell = self._scopes.get(news.producer) == "cell"
                return grouping.group_of(news.unit) if is_cell else news.unit
            case DroppedRow():
                return grouping.group_of(news.row)
            case _:
                return news.group

    def _placed(self, shard: int, number: int) -> SentGroup | None:
        """Return a group whose latest placement is a shard, and that has not ended."""
        group = self._groups.get(number)
        return (
            group
            if group is not None and group.shard == shard and not group.ended.is_set()
            else None
        )

    def _on_call_end(self, news: CallEnd) -> None:
        account = self.progress.account
        before = account.early_shutdown
        self.progress.call_ended(news.lane, failed=news.failed, transient=news.transient)
        if account.early_shutdown and not before:
            for number in self._shards:
                self.workers.cluster.shut_down(number, news.lane)
            self.workers.send_soon()

    def _drop(self, group: SentGroup, row: DroppedRow) -> None:
        opened = self.progress.groups.get(group.number)
        if group.is_open and opened is not None:
            self.progress.drop(opened, [row], failed_producer(self.spec.graph, row))
        elif self.progress.journal is not None:
            self.progress.journal.on_dropped(row)

    def _on_unfinished(self, group: SentGroup, news: UnfinishedGroup) -> None:
        reasons = Counter(news.reasons.values())
        if not reasons or "cancel" in reasons or "fault" in reasons:
            return  # its worker is closing, or failed: see the end of the shard
        if "stop" in reasons and not self.workers.is_stopped:
            return
        if group.is_open:
            self.progress.groups[group.number].reasons.update(news.reasons)
        self._end(group, NotMadeError(reasons.most_common(1)[0][0]))

    def _end(self, group: SentGroup, failure: Exception | None = None) -> None:
        self._leave_shard(group)
        group.end(failure)
        self.workers.send_soon()

    def _fail(self, text: str) -> None:
        self._fault = text
        for group in self._groups.values():
            if not group.ended.is_set():
                group.end(DatasetError(text))


@attrs.define(eq=False, repr=False)
class SentDatasets:
    """The datasets of a run whose groups are made on workers; their `DatasetPlace`."""

    _workers: GroupWorkers | None = attrs.field(init=False, default=None)
    _by_task: dict[str | None, SentDataset] = attrs.field(init=False, factory=dict)

    def connect(self, workers: GroupWorkers) -> None:
        """Set the workers, before a dataset is opened."""
        self._workers = workers

    def seeds(self) -> Mapping[str, Source]:
        """Return no seeds: rows of earlier tasks are known when these have ended."""
        return {}

    def output(self, _grouping: RowGrouping) -> None:
        """Return None: the rows go to the folder of the dataset."""

    def adapt(self, spec: DatasetSpec) -> DatasetSpec:
        """Return the dataset as it is built here.

        Raises:
            RuntimeError: Its workers are not known yet.
        """
        if self._workers is None:
            raise RuntimeError("a dataset is opened before its workers; please report this")
        sent = self._by_task[spec.task] = SentDataset(spec, self._workers)
        return sent.adapted(len(self._workers.takers(spec.task)))

    def on_open(self, run: DatasetRun) -> None:
        """Connect an open dataset with its workers."""
        self._by_task[run.spec.task].run = run

    def send(self) -> None:
        """Send groups to workers."""
        for one in self._by_task.values():
            one.send()

    def on_loss(self, worker: str) -> None:
        """Handle the loss of a worker."""
        for one in self._by_task.values():
            one.on_loss(worker)

    def on_message(self, message: DatasetMessage) -> None:
        """Handle a message of a worker."""
        self._by_task[message.task].on_news(message.shard, message.news)

    def on_call(self, call: CallRecord) -> None:
        """Handle a recorded call, of any task."""
        if (sent := self._by_task.get(call.key.task)) is not None:
            sent.on_call(call)

    def on_reject(self, key: CallKey) -> None:
        """Handle a reply that is not to be used again, of any task."""
        if (sent := self._by_task.get(key.task)) is not None:
            sent.on_reject(key)

    def on_shard_end(self, number: int) -> str | None:
        """Handle the end of a shard; return its worker, None for one of rows or one that was given up."""
        ended = (one.on_shard_end(number) for one in self._by_task.values())
        return next((worker for worker in ended if worker is not None), None)
