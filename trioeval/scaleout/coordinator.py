"""The coordinator of a run on many machines: it sends rows to workers, and records what they send.

Each row is a job of the coordinator's kernel, so that order, stop, deadline, resume and results are those of
any run. The body of a job waits until a worker has sent its row. Rows that wait are sent in shards. A shard
is placed on one worker, and placed again if that is lost: with the rows that have not arrived, and the
replies to them that have. So no reply that arrived is requested twice, and each row is recorded once.

Laws: TOTAL, ORDER, ONCE, RESUME, DRAIN.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.evaluation.journal import CallKey, CallRecord, Journal, RecordedReply, RecordObserver
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import Body, OpenTask, RowOf, UnstartedRows
from trioeval.evaluation.waits import NO_WAITS
from trioeval.kernel import Calls, Done, Interrupted, Job, NotRun, Outcome, Plan, StopReason
from trioeval.nurseries import open_plain_nursery
from trioeval.providers import Reply
from trioeval.scaleout.facts import lane_uses, owned_lanes
from trioeval.scaleout.messages import Message, RejectedReply, Shard, WorkerWarning
from trioeval.scaleout.shards import (
    MOST_ROWS,
    SHARDS_AT_ONCE,
    RowKind,
    measured,
    next_rows,
    owner_groups,
    shard_rows,
)
from trioeval.sequences import LazySequence

_GATHERED_FOR = 0.005  # seconds in which rows that start together are collected
_AFTER_LOSSES = (MOST_ROWS, 8, 1)
"""Most rows of a shard by the number of workers that were lost with its first row."""
_MOST_FAILURES = 3
"""Shards in a row that may fail on workers that live."""
WORKERS_WITHIN = 60.0
"""Seconds without any worker after which a run starts no more rows."""

RecordedReplies = Callable[[str | None, int], Sequence[tuple[CallKey, RecordedReply]]]
"""Returns the replies to a row that earlier executions of the run recorded."""


class Cluster(Protocol):
    """Workers that run shards. All methods are called in the thread of the run, and return at once."""

    def submit(self, worker: str, shard: Shard, /) -> None:
        """Start a shard on a worker; its end is reported to `ClusterEvents.on_shard_end`."""
        ...

    def cancel(self, number: int, /) -> None:
        """Cancel a shard; nothing of it is awaited any more."""
        ...

    def stop(self) -> None:
        """Let all workers start no more rows."""
        ...


class ClusterEvents(Protocol):
    """The receiver of the events of a cluster, in the thread of the run."""

    def on_worker(self, worker: str, /) -> None:
        """Handle a worker that can run shards."""
        ...

    def on_loss(self, worker: str, /) -> None:
        """Handle the loss of a worker with everything that it runs."""
        ...

    def on_messages(self, messages: Sequence[Message], /) -> None:
        """Handle messages of a worker."""
        ...

    def on_shard_end(self, number: int, error: Exception | None, /) -> None:
        """Handle the end of a shard, after its messages; an error if it could not be run."""
        ...


@attrs.define(eq=False, repr=False)
class SentRow:
    """A row that waits for a worker, or for its result."""

    task: str | None
    index: int
    group: str | None
    ended: trio.Event = attrs.field(factory=trio.Event)
    row: Row | None = None
    """The result; None if it ended without one."""
    is_gone: bool = False
    """True if its job no longer waits for it."""
    is_sent: bool = False
    """True if a worker may have started it."""
    shard: int | None = None
    """The shard that runs it."""
    losses: int = 0
    """The workers that were lost with it."""
    replies: dict[CallKey, RecordedReply] = attrs.field(factory=dict)
    """The replies that arrived in this execution."""


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
    """The rows of one run that are sent to workers; a receiver of `ClusterEvents`."""

    _cluster: Cluster
    _prepared: PreparedSuite
    _stop: trio.Event
    _warn: Callable[[str], None]
    _journal: Journal | None = None
    _observers: Sequence[RecordObserver] = ()
    _recorded: RecordedReplies | None = None
    _on_give_up: Callable[[], None] | None = None
    """Called before the coordinator itself stops the run, because its workers fail."""
    _groups: Mapping[RowKind, str | None] = attrs.field(init=False)
    _widths: Mapping[str | None, int] = attrs.field(init=False)
    """The calls that a worker may make at once for rows of each group."""
    _waiting: dict[str | None, deque[SentRow]] = attrs.field(init=False, factory=dict)
    """The rows that no worker has, by group."""
    _rows: dict[tuple[str | None, int], SentRow] = attrs.field(init=False, factory=dict)
    _shards: dict[int, _LiveShard] = attrs.field(init=False, factory=dict)
    _workers: dict[str, None] = attrs.field(init=False, factory=dict)
    _owners: dict[str, str] = attrs.field(init=False, factory=dict)
    """The worker of each group that has an owner."""
    _numbers: itertools.count[int] = attrs.field(init=False, factory=itertools.count)
    _row_seconds: dict[str | None, float] = attrs.field(init=False, factory=dict)
    _failures: int = attrs.field(init=False, default=0)
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _warned: set[str] = attrs.field(init=False, factory=set)

    @_groups.default
    def _find_groups(self) -> Mapping[RowKind, str | None]:
        cap = self._prepared.suite.evaluate_options.max_total_concurrency
        uses = lane_uses(self._prepared)
        return owner_groups(uses, owned_lanes(self._prepared), is_capped=cap is not None)

    @_widths.default
    def _find_widths(self) -> Mapping[str | None, int]:
        of_lane = {spec.name: spec.max_concurrency for spec in self._prepared.lane_specs}
        lanes: dict[str | None, set[str]] = {None: set()}
        for use in lane_uses(self._prepared):
            lanes.setdefault(self._groups[use.rows], set()).update(use.lanes)
        return {group: sum(of_lane[lane] for lane in found) for group, found in lanes.items()}

    def adapt(self, part: PreparedTask, task: OpenTask) -> OpenTask:
        """Return a task whose rows run on the workers."""
        body = SentTask(self, part.id, task.body, task.row_of)
        # As many rows as all workers may have, and those of the next shards.
        rows = max(MOST_ROWS, *self._widths.values())
        most = rows * (SHARDS_AT_ONCE * max(1, len(self._workers)) + 1)
        return attrs.evolve(task, body=body, salvage_rounds=0, max_live_jobs=most)

    def send(self, task: str | None, lane: str | None, index: int) -> SentRow:
        """Let a row wait for a worker, and return it. The caller waits for its end.

        Args:
            task: The id of its task.
            lane: The lane of its provider.
            index: Its index.
        """
        row = self._rows[task, index] = SentRow(task, index, self._groups.get((task, lane)))
        self._wait(row)
        return row

    async def wait_end(self, row: SentRow) -> None:
        """Wait until a row has ended. A checkpoint; if cancelled, the row is given up."""
        try:
            await row.ended.wait()
        finally:
            row.is_gone = True
            self._forget(row)

    # ---- the events of the cluster

    def on_worker(self, worker: str) -> None:
        """Handle a worker that can run shards."""
        self._workers[worker] = None
        self._changed.set()

    def on_loss(self, worker: str) -> None:
        """Handle the loss of a worker: its rows are placed again."""
        if worker not in self._workers:
            return
        del self._workers[worker]
        self._owners = {group: one for group, one in self._owners.items() if one != worker}
        for number, shard in [*self._shards.items()]:
            if shard.worker == worker:
                del self._shards[number]
                self._cluster.cancel(number)  # else a worker with the same address might run it
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
                case RejectedReply():
                    if self._journal is not None:
                        self._journal.reject(message.key)
                    row = self._rows.get((message.key.task, message.key.index))
                    if row is not None:
                        row.replies.pop(message.key, None)
                case WorkerWarning():
                    self._warn_once(message.text)

    def on_shard_end(self, number: int, error: Exception | None) -> None:
        """Handle the end of a shard."""
        shard = self._shards.pop(number, None)
        if shard is None:
            return
        if error is None and not shard.left:
            self._failures = 0
            seconds = trio.current_time() - shard.started_at
            before = self._row_seconds.get(shard.group)
            self._row_seconds[shard.group] = measured(before, seconds / SHARDS_AT_ONCE, shard.size)
        elif error is not None:
            self._failures += 1
            self._warn_once(f"worker {shard.worker} could not run its rows: {error}")
            if self._failures >= _MOST_FAILURES:
                self._give_up("workers fail")
        self._place_again(shard)

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
        self._cluster.stop()
        for waiting in self._waiting.values():
            for row in waiting:
                row.ended.set()
            waiting.clear()

    async def watch_workers(self) -> None:
        """Stop the run after a long time without workers."""
        without = 0.0
        while True:
            await trio.sleep(1)
            without = 0.0 if self._workers else without + 1
            if without >= WORKERS_WITHIN and not self._stop.is_set():
                self._give_up(f"no worker for {WORKERS_WITHIN:g} seconds")

    # ---- rows and shards

    def _wait(self, row: SentRow, *, first: bool = False) -> None:
        if self._stop.is_set():
            row.ended.set()
            return
        waiting = self._waiting.setdefault(row.group, deque())
        if first:
            waiting.appendleft(row)
        else:
            waiting.append(row)
        self._changed.set()

    def _place_again(self, shard: _LiveShard) -> None:
        """Let the rows of a shard wait again that have not arrived."""
        for row in reversed(shard.left.values()):
            row.shard = None
            self._wait(row, first=True)
        self._changed.set()

    def _forget(self, row: SentRow) -> None:
        """Remove a row that its job has given up, and cancel its shard if that has no other row."""
        if self._rows.get((row.task, row.index)) is row:
            del self._rows[row.task, row.index]
        if row.row is not None:
            return
        number, shard = row.shard, self._leave_shard(row)
        if number is not None and shard is not None and not shard.left:
            del self._shards[number]
            self._cluster.cancel(number)

    def _leave_shard(self, row: SentRow) -> _LiveShard | None:
        """Remove a row from the shard that runs it, and return that; None without one."""
        number, row.shard = row.shard, None
        shard = None if number is None else self._shards.get(number)
        if shard is not None:
            shard.left.pop(row.index, None)
        return shard

    def _send(self) -> None:
        """Send shards until no worker can take more, or no row waits."""
        for group, waiting in self._waiting.items():
            for worker in self._takers(group):
                while self._send_shard(worker, group, waiting):
                    pass

    def _takers(self, group: str | None) -> Sequence[str]:
        """Return the workers that may run rows of a group."""
        if group is None or not self._workers:
            return [*self._workers]
        owner = self._owners.get(group)
        if owner is None:
            owned = [*self._owners.values()]
            owner = self._owners[group] = min(self._workers, key=owned.count)
        return [owner]

    def _send_shard(self, worker: str, group: str | None, waiting: deque[SentRow]) -> bool:
        """Send a shard if the worker needs more rows; return whether one was sent."""
        while waiting and waiting[0].is_gone:
            waiting.popleft()
        if not waiting:
            return False
        workers = 1 if group is not None else len(self._workers)
        running = sum(
            len(shard.left)
            for shard in self._shards.values()
            if shard.worker == worker and shard.group == group
        )
        width, seconds = self._widths.get(group, 1), self._row_seconds.get(group)
        size = next_rows(shard_rows(seconds, len(waiting), workers, width), running)
        rows: list[SentRow] = []
        while waiting and len(rows) < size:
            row = waiting[0]
            if row.is_gone:
                waiting.popleft()
                continue
            if row.losses >= len(_AFTER_LOSSES):
                waiting.popleft()
                row.ended.set()
                continue
            size = min(size, _AFTER_LOSSES[row.losses])
            if rows and (row.task != rows[0].task or len(rows) >= size):
                break
            rows.append(waiting.popleft())
        if rows:
            self._submit(worker, group, sorted(rows, key=lambda row: row.index))
        return bool(rows)

    def _submit(self, worker: str, group: str | None, rows: Sequence[SentRow]) -> None:
        number, task = next(self._numbers), rows[0].task
        replies = [pair for row in rows for pair in self._replies(row)]
        self._shards[number] = _LiveShard(
            worker, group, len(rows), trio.current_time(), {row.index: row for row in rows}
        )
        for row in rows:
            row.is_sent, row.shard = True, number
        self._cluster.submit(
            worker,
            Shard(
                number=number,
                task=task,
                rows=tuple(row.index for row in rows),
                replies=tuple(replies),
                anew=frozenset(row.index for row in rows if self._needs_new_reply(row)),
            ),
        )

    def _replies(self, row: SentRow) -> Sequence[tuple[CallKey, RecordedReply]]:
        """Return the recorded replies to a row, of earlier executions and of this one."""
        before: Sequence[tuple[CallKey, RecordedReply]] = ()
        journal = self._journal
        if self._recorded is not None and journal is not None and journal.resumed:
            before = self._recorded(row.task, row.index)
        return [*before, *row.replies.items()]

    def _needs_new_reply(self, row: SentRow) -> bool:
        journal = self._journal
        return (
            not row.losses
            and journal is not None
            and journal.resumed
            and journal.needs_new_reply(row.task, row.index)
        )

    # ---- records

    def _record_call(self, call: CallRecord) -> None:
        # Also if its job has given up the row: it is paid.
        if self._journal is not None:
            self._journal.call(call)
        for observer in self._observers:
            observer.on_call(call)
        row = self._rows.get((call.key.task, call.key.index))
        if row is not None and isinstance(call.answer, Reply):
            row.replies[call.key] = RecordedReply(call.answer, call.latency_ms, call.cached)

    def _take_row(self, found: Row) -> None:
        row = self._rows.get((found.task, found.index))
        if row is None or row.row is not None:
            return  # it has arrived from another worker
        if found.cut is StopReason.CANCEL or (
            found.cut is StopReason.STOP and not self._stop.is_set()
        ):
            return  # its worker is closing: the rows of the shard are placed again at its end
        row.row = found
        self._leave_shard(row)
        row.ended.set()
        if self._waiting.get(row.group):
            self._changed.set()

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


class SentTask:
    """The body of a task whose rows run on workers.

    Args:
        coordinator: Sends the rows.
        task: The id of the task.
        body: The body of the task on this machine, which makes the rows that no worker has run.
        row_of: Returns the index of the row of a job.
    """

    def __init__(
        self, coordinator: Coordinator, task: str | None, body: Body, row_of: RowOf
    ) -> None:
        self._coordinator = coordinator
        self._task = task
        self._body = body
        self._row_of = row_of
        self._rows: dict[int, Row] = {}
        """The rows of jobs that have ended, by job."""
        self._unsent: set[int] = set()
        """Jobs that have ended before a worker could have started their rows."""

    def plan(self) -> Plan[Any]:
        """Return the plan of the task. Its jobs have no timeout: that of a row holds on its worker."""
        plan = self._body.plan()
        return attrs.evolve(plan, jobs=_SentJobs(plan.jobs), needs_no_lane=None)

    async def perform(self, job: Job[Any], _calls: Calls[Any]) -> None:
        """Wait for the row of a job.

        Raises:
            ProviderError: Several workers were lost while they ran it.
        """
        index = self._row_of(job.index)
        if not isinstance(index, int):
            raise TypeError(index)
        row = self._coordinator.send(self._task, job.lane, index)
        try:
            await self._coordinator.wait_end(row)
        finally:
            if row.row is not None:
                self._rows[job.index] = row.row
            elif not row.is_sent:
                self._unsent.add(job.index)
        if row.row is None and row.losses >= len(_AFTER_LOSSES):
            message = f"{row.losses} workers were lost while they ran this row"
            raise ProviderError("worker_crashed", message)

    def rows(self, outcome: Outcome[Any], waits: Mapping[str, float] = NO_WAITS) -> Sequence[Row]:
        """Return the row of a job: that of its worker, or one with the reason why it did not run."""
        job = outcome.index
        row = self._rows.pop(job, None)
        if row is not None:
            return (row,)
        is_unsent = job in self._unsent
        self._unsent.discard(job)
        return self._body.rows(_without_row(outcome, is_unsent=is_unsent), waits)

    def unstarted(self, jobs: range) -> UnstartedRows | None:
        """Return the rows of jobs that never started."""
        return self._body.unstarted(jobs)

    def on_emitted(self, row: Row) -> None:
        """Handle the emission of a row."""
        self._body.on_emitted(row)


def _without_row(outcome: Outcome[Any], *, is_unsent: bool) -> Outcome[Any]:
    """Return the outcome of a row that no worker has finished.

    Args:
        outcome: The outcome of its job.
        is_unsent: Whether no worker can have started it.
    """
    if isinstance(outcome, Done):
        outcome = Interrupted(
            outcome.index,
            outcome.started_at,
            outcome.finished_at,
            outcome.waited,
            outcome.calls,
            StopReason.STOP,
        )
    if is_unsent and isinstance(outcome, Interrupted):
        return NotRun(outcome.index, outcome.cut)
    return outcome


@attrs.frozen
class _SentJobs(LazySequence[Job[Any]]):
    """The jobs of a task without their timeouts, created on access."""

    whole: Sequence[Job[Any]]

    def __len__(self) -> int:
        return len(self.whole)

    def entry(self, index: int) -> Job[Any]:
        return attrs.evolve(self.whole[index], timeout=float("inf"))


@asynccontextmanager
async def open_coordinator(coordinator: Coordinator) -> AsyncGenerator[None]:
    """Run the background of a coordinator while the block runs."""
    async with open_plain_nursery() as nursery:
        for one in (
            coordinator.send_continuously,
            coordinator.drain_when_stopped,
            coordinator.watch_workers,
        ):
            nursery.start_soon(one)
        yield
        nursery.cancel_scope.cancel("the run has ended")
