"""The coordinator of a run on many machines: it sends rows to workers, and records what they send.

Consecutive rows are a job of the coordinator's kernel (see `scaleout.blocks`), so that order, stop, deadline,
resume and results are those of any run. Rows that wait are sent in shards. A shard is placed on one worker,
and placed again if that is lost: with the rows that have not arrived, and the replies to them that have. So
no reply that arrived is requested twice, and each row is recorded once.

Laws: TOTAL, ORDER, ONCE, RESUME, DRAIN, BUDGET.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from trioeval.agent.protocols import AgentEvent
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply
from trioeval.evaluation.outcomes import refusal_of
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import OpenTask
from trioeval.kernel import StopReason
from trioeval.nurseries import open_plain_nursery
from trioeval.providers import Reply
from trioeval.rates import Budget
from trioeval.scaleout.agents import WorkerAgents
from trioeval.scaleout.blocks import RowBlock, SentRow, SentTask, continues_chain, no_row
from trioeval.scaleout.budget_leases import REPORTED_WITHIN, BudgetLeases
from trioeval.scaleout.chain_queues import ChainQueues
from trioeval.scaleout.chains import Chains
from trioeval.scaleout.cluster import Cluster
from trioeval.scaleout.dataset_messages import DatasetMessage
from trioeval.scaleout.datasets import SentDatasets
from trioeval.scaleout.messages import (
    AttemptGone,
    AttemptProcess,
    CreatedJob,
    Message,
    RejectedReply,
    Shard,
    ShardUsage,
    WorkerWarning,
)
from trioeval.scaleout.row_groups import RowGroups
from trioeval.scaleout.run_records import RunRecords
from trioeval.scaleout.shards import (
    AFTER_LOSSES,
    MOST_ROWS,
    SHARDS_AT_ONCE,
    is_case_group,
    measured,
    next_cases,
    next_rows,
    rows_at_once,
    shard_rows,
)
from trioeval.scaleout.single_rows import is_sent_singly, sent_singly

_GATHERED_FOR = 0.005  # seconds in which rows that start together are collected
_LIVE_BLOCKS = 1024
"""Least blocks of a task that may wait for rows, so that one slow row does not hold up the others."""
_MOST_FAILURES = 3
"""Shards in a row that may fail on workers that live."""
WORKERS_WITHIN = 60.0
"""Seconds without any worker after which a run starts no more rows."""


@attrs.define(eq=False, repr=False)
class _LiveShard:
    """A shard that a worker runs."""

    worker: str
    group: str | None
    size: int
    started_at: float
    left: dict[int, SentRow]
    """The rows that have not arrived, by index."""


@attrs.define(eq=False, repr=False)
class Coordinator:
    """The rows of one run that are sent to workers; a `ClusterEvents`."""

    cluster: Cluster
    _prepared: PreparedSuite
    _stop: trio.Event
    _warn: Callable[[str], None]
    records: RunRecords = attrs.field(factory=RunRecords, kw_only=True)
    _on_give_up: Callable[[], None] | None = attrs.field(default=None, kw_only=True)
    """Called before the coordinator itself stops the run, because its workers fail."""
    datasets: SentDatasets = attrs.field(factory=SentDatasets, kw_only=True)
    """The datasets whose groups are made on workers."""
    _budget: Budget | None = attrs.field(default=None, kw_only=True)
    """The budget of all calls, which other runs may share; None is that of the suite."""
    _lane_owner: bool = attrs.field(default=False, kw_only=True)
    """True if each lane has one owner, although the suite has Redis."""
    _groups: RowGroups = attrs.field(init=False)
    _waiting: dict[str | None, deque[SentRow]] = attrs.field(init=False, factory=dict)
    """The rows that may be sent and that no worker has, by group. Those of a chain follow each other."""
    _queues: list[ChainQueues] = attrs.field(init=False, factory=list)
    """The chains of all tasks that have some."""
    _rows: dict[tuple[str | None, int], SentRow] = attrs.field(init=False, factory=dict)
    _coming: int = attrs.field(init=False, default=0)
    """The rows of all plans that no block has brought yet; too many if a run continues."""
    _shards: dict[int, _LiveShard] = attrs.field(init=False, factory=dict)
    _workers: dict[str, dict[int, _LiveShard]] = attrs.field(init=False, factory=dict)
    """The shards of each worker, by number."""
    _supplied: set[tuple[str, str | None]] = attrs.field(init=False, factory=set)
    """Workers that have enough rows of a group, until one of these ends. With a thousand workers, looking at
    all of them whenever a row arrives would cost more than the rows."""
    _owners: dict[str, str] = attrs.field(init=False, factory=dict)
    """The worker of each group that has an owner."""
    _numbers: itertools.count[int] = attrs.field(init=False, factory=itertools.count)
    _row_seconds: dict[str | None, float] = attrs.field(init=False, factory=dict)
    leases: BudgetLeases | None = attrs.field(init=False)
    """The budget of the run; None without one."""
    _agents: WorkerAgents = attrs.field(init=False)
    _failures: int = attrs.field(init=False, default=0)
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _warned: set[str] = attrs.field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self.datasets.connect(self)

    @_groups.default
    def _find_groups(self) -> RowGroups:
        return RowGroups.of(self._prepared, lane_owner=self._lane_owner)

    @_agents.default
    def _make_agents(self) -> WorkerAgents:
        journal = self.records.journal
        return WorkerAgents(None if journal is None else journal.agents)

    @leases.default
    def _make_leases(self) -> BudgetLeases | None:
        return BudgetLeases.of(self._budget, self._prepared.suite, self.send_soon)

    def adapt(self, part: PreparedTask, task: OpenTask) -> OpenTask:
        """Return a task whose rows run on the workers."""
        if part.source_rows is not None:
            self.cluster.add_task(part)
        groups = self._groups.of_task(part.id)
        only, *others = {*groups.values()} or {None}
        alone = task.rows_alone
        own, row_of = (task.body, task.row_of) if alone is None else (alone, alone.job)
        jobs = own.plan().jobs
        self._coming += len(jobs)

        def group_of(job: int) -> str | None:
            return groups.get(jobs[job].lane) if others else only

        if is_sent_singly(task):
            self._agents.tasks[part.id] = task.elsewhere
            return sent_singly(self, part.id, task, group_of)
        size = self._groups.block_rows(part.id)
        chains = Chains.of(part.prepared)
        queues = None if chains is None else ChainQueues(chains)
        if queues is not None:
            self._queues.append(queues)
        body = SentTask(
            self,
            part.id,
            own,
            row_of=row_of,
            group_of=group_of,
            size=size,
            memory=task.memory,
            queues=queues,
            keeps_jobs=any(spec.keeps_jobs for spec in part.prepared.specs),
        )
        # As many rows as all workers may have, and those of the next shards.
        rows = max(MOST_ROWS, *self._groups.widths.values())
        most = rows * (SHARDS_AT_ONCE * max(1, len(self._workers)) + 1)
        return attrs.evolve(
            task,
            body=body,
            salvage_rounds=0,
            max_live_jobs=max(_LIVE_BLOCKS, math.ceil(2 * most / size)),
            row_of=no_row,
            on_start=body.start,
        )

    def send(self, block: RowBlock) -> None:
        """Let the rows of a block wait for workers."""
        self._coming = max(0, self._coming - len(block.left))
        for row in block.left.values():
            self._rows[block.task.id, row.index] = row
        for row in [*block.left.values()]:
            self._wait(row)

    def close(self, block: RowBlock) -> None:
        """Give up the rows of a block that have no result."""
        for row in block.left.values():
            row.is_over = True
            self._forget(row)

    # ---- the events of the cluster

    def on_worker(self, worker: str) -> None:
        """Handle a worker that can run shards."""
        self._workers.setdefault(worker, {})
        self._changed.set()

    def on_loss(self, worker: str) -> None:
        """Handle the loss of a worker: its rows are placed again."""
        if worker not in self._workers:
            return
        lost = self._workers.pop(worker)
        self._owners = {group: one for group, one in self._owners.items() if one != worker}
        self.datasets.on_loss(worker)
        for number, shard in [*lost.items()]:
            self._remove_shard(number)
            self.cluster.cancel(number)  # else a worker with the same address might run it
            for row in shard.left.values():
                row.losses += 1
            self._place_again(shard)

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Record what a worker has sent."""
        for message in messages:
            match message:
                case CallRecord():
                    self._record_call(message)
                case Row():
                    self._take_row(message)
                case _:
                    self._take_other(message)

    def _take_other(self, message: Message) -> None:
        match message:
            case DatasetMessage():
                self.datasets.on_message(message)
            case RejectedReply():
                self._reject(message.key)
            case CreatedJob():
                key = message.key
                self.records.job(message, self._rows.get((key.task, key.index)))
            case WorkerWarning():
                self._warn_once(message.text)
            case ShardUsage() if self.leases is not None:
                self.leases.settle(message.number, message.used)
            case AttemptProcess() | AttemptGone() | AgentEvent():
                self._agents.take(message)
            case _:
                pass  # for receivers before this one

    def on_shard_end(self, number: int, error: Exception | None) -> None:
        """Handle the end of a shard."""
        shard = self._remove_shard(number)
        if shard is None:
            if (worker := self.datasets.on_shard_end(number)) is not None:
                self._count_failure(worker, error)
            return
        if error is None and not shard.left:
            seconds = trio.current_time() - shard.started_at
            before = self._row_seconds.get(shard.group)
            self._row_seconds[shard.group] = measured(before, seconds / SHARDS_AT_ONCE, shard.size)
        if error is not None or not shard.left:
            self._count_failure(shard.worker, error)
        self._place_again(shard)

    def _count_failure(self, worker: str, error: Exception | None) -> None:
        """Count the shards that fail one after another; None is one that did not."""
        if error is None:
            self._failures = 0
            return
        self._failures += 1
        self._warn_once(f"worker {worker} could not run its rows: {error}")
        if self._failures >= _MOST_FAILURES:
            self._give_up("workers fail")

    # ---- the workers, as datasets use them

    @property
    def is_stopped(self) -> bool:
        """True if nothing new is to start."""
        return self._stop.is_set()

    def takers(self, task: str | None) -> Sequence[str]:
        """Return the workers that may make groups of a dataset."""
        return self._takers(self._groups.by_kind.get((task, None)))

    def width(self, task: str | None) -> int:
        """Return the number of calls that a worker may make at once for a dataset."""
        return self._groups.widths[self._groups.by_kind.get((task, None))]

    def next_number(self) -> int:
        """Return the number of a new shard."""
        return next(self._numbers)

    def send_soon(self) -> None:
        """Send groups of datasets soon."""
        self._changed.set()

    # ---- the background of a run

    async def send_continuously(self) -> None:
        """Send rows to workers, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            await trio.sleep(_GATHERED_FOR)
            self._send()

    async def drain_when_stopped(self) -> None:
        """End the rows that no worker has once the run is stopped."""
        await self._stop.wait()
        self.cluster.stop()
        self._give_up_waiting()

    async def watch_workers(self) -> None:
        """Stop the run after a long time without workers; let leases expire."""
        without = 0.0
        while True:
            await trio.sleep(1)
            if self.leases is not None:
                self.leases.expire()
            without = 0.0 if self._workers else without + 1
            if without >= WORKERS_WITHIN and not self._stop.is_set():
                self._give_up(f"no worker for {WORKERS_WITHIN:g} seconds")

    # ---- rows and shards

    def _wait(self, row: SentRow, *, first: bool = False) -> None:
        if self._stop.is_set() or self._is_exhausted:
            self._give_up_row(row)
            return
        if row.chain is not None:
            row.chain.wait(row)
        elif first:
            self._waiting.setdefault(row.group, deque()).appendleft(row)
        else:
            self._waiting.setdefault(row.group, deque()).append(row)
        self._changed.set()

    def _place_again(self, shard: _LiveShard) -> None:
        """Let the rows of a shard wait again that have not arrived."""
        for row in reversed(shard.left.values()):
            row.shard = None
            self._wait(row, first=True)
        self._changed.set()

    def _give_up_waiting(self) -> None:
        """Await the rows no longer that no worker has."""
        for queues in self._queues:
            for row in queues.waiting():
                self._give_up_row(row)
        self.datasets.send()
        for waiting in self._waiting.values():
            rows = [*waiting]
            waiting.clear()
            for row in rows:
                self._give_up_row(row)

    @property
    def _is_exhausted(self) -> bool:
        return self.leases is not None and self.leases.is_exhausted

    def _give_up_row(self, row: SentRow) -> None:
        """Await a row no longer that no worker has."""
        if not row.is_over:
            self._rows.pop((row.block.task.id, row.index), None)
            if self.leases is not None and self.leases.is_exhausted:
                row.block.cut, row.block.refusal = StopReason.BUDGET, self.leases.refusal
            row.block.give_up(row)
            if row.chain is not None:
                row.chain.leave(row)

    def _forget(self, row: SentRow) -> None:
        """Remove a row whose block has ended, and cancel its shard if that has no other row."""
        self._rows.pop((row.block.task.id, row.index), None)
        if row.chain is not None:
            row.chain.leave(row)
        number, shard = row.shard, self._leave_shard(row)
        if number is not None and shard is not None and not shard.left:
            self._remove_shard(number, is_cancelled=True)
            self.cluster.cancel(number)

    def _leave_shard(self, row: SentRow) -> _LiveShard | None:
        """Remove a row from the shard that runs it, and return that; None without one."""
        number, row.shard = row.shard, None
        shard = None if number is None else self._shards.get(number)
        if shard is not None:
            shard.left.pop(row.index, None)
            self._supplied.discard((shard.worker, shard.group))
        return shard

    def _remove_shard(self, number: int, *, is_cancelled: bool = False) -> _LiveShard | None:
        """Remove a shard, and return it; None if it was removed before."""
        shard = self._shards.pop(number, None)
        if shard is not None:
            self._workers.get(shard.worker, {}).pop(number, None)
            self._supplied.discard((shard.worker, shard.group))
            if self.leases is not None:
                self.leases.end(number, is_cancelled=is_cancelled)
                self._changed.set()
        return shard

    def _send(self) -> None:
        """Send shards until no worker can take more, or no row waits."""
        for queues in self._queues:
            for row in queues.release():
                self._waiting.setdefault(row.group, deque()).append(row)
        self.datasets.send()
        for group, waiting in self._waiting.items():
            for worker in self._takers(group):
                if waiting and (worker, group) not in self._supplied:
                    while self._send_shard(worker, group, waiting):
                        pass

    def _takers(self, group: str | None) -> Sequence[str]:
        """Return the workers that may run rows of a group."""
        if group is None or is_case_group(group) or not self._workers:
            return [*self._workers]
        owner = self._owners.get(group)
        if owner is None:
            owned = [*self._owners.values()]
            owner = self._owners[group] = min(self._workers, key=owned.count)
        return [owner]

    def _send_shard(self, worker: str, group: str | None, waiting: deque[SentRow]) -> bool:
        """Send a shard if the worker needs more rows; return whether one was sent."""
        while waiting and waiting[0].is_over:
            waiting.popleft()
        if not waiting:
            return False
        size = self._next_size(worker, group, len(waiting))
        if not size and not is_case_group(group):  # more cases may become ready meanwhile
            self._supplied.add((worker, group))
        rows: list[SentRow] = []
        while waiting and (len(rows) < size or continues_chain(waiting[0], rows)):
            row = waiting[0]
            if row.is_over:
                waiting.popleft()
                continue
            if row.losses >= len(AFTER_LOSSES):
                waiting.popleft()
                self._rows.pop((row.block.task.id, row.index), None)
                row.block.add_crash(row)
                if row.chain is not None:
                    row.chain.leave(row)
                    self._changed.set()
                continue
            size = min(size, AFTER_LOSSES[row.losses])
            is_full = bool(rows) and (row.block.task is not rows[0].block.task or len(rows) >= size)
            if is_full and not continues_chain(row, rows):
                break
            rows.append(waiting.popleft())
        return bool(rows) and self._submit(worker, group, rows, waiting)

    def _next_size(self, worker: str, group: str | None, waiting: int) -> int:
        """Return the number of rows of a group to send to a worker now."""
        running = _rows_of(group, self._workers[worker].values())
        width, seconds = self._groups.widths.get(group, 1), self._row_seconds.get(group)
        if is_case_group(group):
            others = _rows_of(group, self._shards.values()) - running
            return next_cases(running, others, waiting, len(self._workers), width)
        workers = 1 if group is not None else len(self._workers)
        size = next_rows(shard_rows(seconds, waiting, workers, width), running)
        if group is None:
            return size
        # Nothing else fills the lanes of an owner.
        return max(size, min(waiting, width - running, MOST_ROWS))

    def _submit(
        self,
        worker: str,
        group: str | None,
        rows: list[SentRow],
        waiting: deque[SentRow],
    ) -> bool:
        """Send a shard, and return True; without a lease on the budget, its rows wait again."""
        number, budget = next(self._numbers), None
        if self.leases is not None:
            most = rows_at_once(self._groups.widths, self._row_seconds, len(self._workers))
            budget = self.leases.grant(number, len(rows), min(most, len(self._rows) + self._coming))
            if budget is None:  # until other calls have ended
                waiting.extendleft(reversed(rows))
                return False
        rows.sort(key=lambda row: row.index)
        task = rows[0].block.task.id
        replies = [pair for row in rows for pair in self.records.replies(row)]
        shard = _LiveShard(
            worker, group, len(rows), trio.current_time(), {row.index: row for row in rows}
        )
        self._shards[number] = self._workers[worker][number] = shard
        for row in rows:
            row.is_sent, row.shard = True, number
        sent = rows[0].block.task
        self.cluster.submit(
            worker,
            Shard(
                number=number,
                task=task,
                rows=tuple(row.index for row in rows),
                replies=tuple(replies),
                anew=frozenset(row.index for row in rows if self.records.needs_new_reply(row)),
                budget=budget,
                processes=tuple(
                    one for row in rows for one in self._agents.processes(task, row.index)
                ),
                jobs=tuple(job for row in rows for job in self.records.jobs(row)),
                shared=sent.shared_with(rows),
            ),
        )
        return True

    # ---- records

    def _record_call(self, call: CallRecord) -> None:
        self.records.call(call)  # also if its job has given up the row: it is paid
        self.datasets.on_call(call)
        row = self._rows.get((call.key.task, call.key.index))
        if row is not None and isinstance(call.answer, Reply):
            row.replies[call.key] = RecordedReply(call.answer, call.latency_ms, call.cached)
            if call.key.role == "attempt":
                row.losses = 0  # a case may outlive many workers, as long as it makes progress

    def _reject(self, key: CallKey) -> None:
        self.records.reject(key)
        self.datasets.on_reject(key)
        row = self._rows.get((key.task, key.index))
        if row is not None:
            row.replies.pop(key, None)

    def _take_row(self, found: Row) -> None:
        row = self._rows.get((found.task, found.index))
        if row is None:
            return  # it has arrived from another worker
        if found.cut is StopReason.FAULT:
            row.losses += 1  # of a whole shard: then it runs with fewer and fewer others
        if found.cut in {StopReason.CANCEL, StopReason.FAULT} or (
            found.cut is StopReason.STOP and not self._stop.is_set()
        ):
            return  # its worker is closing or has failed: the rows are placed again at the shard's end
        if found.cut is StopReason.BUDGET and not self._is_final(row, found):
            return  # other leases may leave enough for it: it is placed again, too
        if row.chain is None:
            self._add_row(row, found)
            return
        for one in row.chain.arrived(found):
            self._add_row(self._rows[one.task, one.index], one)
        self._changed.set()

    def _add_row(self, row: SentRow, found: Row) -> None:
        del self._rows[found.task, found.index]
        self._leave_shard(row)
        row.block.add(row, found)
        if row.chain is not None:
            row.chain.leave(row)
        if self._waiting.get(row.group):
            self._changed.set()

    def _is_final(self, row: SentRow, found: Row) -> bool:
        """Return whether a row that the budget has cut off cannot run later either."""
        is_final = self.leases is None or self.leases.refuse(row.shard, refusal_of(found))
        if is_final:
            self._give_up_waiting()
        return is_final

    def _give_up(self, why: str) -> None:
        """Stop the run, so that it can be resumed."""
        self._warn_once(f"no more rows start: {why}")
        if self._on_give_up is not None and not self._stop.is_set():
            self._on_give_up()
        self._stop.set()

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


def _rows_of(group: str | None, shards: Iterable[_LiveShard]) -> int:
    """Return the rows of a group in some shards that have not arrived."""
    return sum(len(shard.left) for shard in shards if shard.group == group)


@asynccontextmanager
async def open_coordinator(coordinator: Coordinator) -> AsyncGenerator[None]:
    """Run the background of a coordinator while the block runs."""
    async with open_plain_nursery() as nursery:
        nursery.start_soon(coordinator.send_continuously)
        nursery.start_soon(coordinator.drain_when_stopped)
        nursery.start_soon(coordinator.watch_workers)
        try:
            yield
        finally:  # also if a task could not be opened: the nursery waits for its tasks
            with trio.move_on_after(2 * REPORTED_WITHIN, shield=True):
                if coordinator.leases is not None:
                    await coordinator.leases.close()
            nursery.cancel_scope.cancel("the run has ended")
