"""A worker of a run: it runs the rows of shards, and sends each reply and each row as it happens.

A session is one `trio.run` in a thread of the worker process. It loads the suite once, and its lanes live as
long as it does, so that their rates and learnt limits hold from shard to shard. A shard is a run of the same
suite that is restricted to its rows; several shards run side by side on the same lanes.
"""

from __future__ import annotations

import functools
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import trio

from trioeval.agent.open import AgentOptions
from trioeval.agent.protocols import AgentEvent, CaseEnded
from trioeval.errors import TrioevalError
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply, ReusedRows
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.kernel import Lanes
from trioeval.providers.base import KeptJob
from trioeval.run.journal import RunJournal
from trioeval.run.run_suite import RunOptions, make_lanes, run_prepared
from trioeval.run.shared_limits import open_suite_limits
from trioeval.scaleout.agents import AgentsFolder, ForwardedProcesses
from trioeval.scaleout.facts import suite_digest, versions
from trioeval.scaleout.messages import (
    CreatedJob,
    Message,
    RejectedReply,
    Shard,
    WorkerFacts,
    WorkerWarning,
    pack,
)
from trioeval.scaleout.shard_task import shard_task

if TYPE_CHECKING:
    from trioeval.agent.journal import AgentJournal
    from trioeval.columns.journal import DatasetJournal
    from trioeval.columns.result import DatasetResult

LoadSuite: TypeAlias = Callable[[], PreparedSuite]
"""Loads and prepares the suite of a run, in any process."""

_GATHERED_FOR = 0.01  # seconds
_MOST_MESSAGES = 500
"""Messages that are sent together."""
_ENDED_WITHIN = 10.0  # seconds


class _NoRows:
    """The kept rows of a shard: none, because the coordinator sends only rows that remain."""

    def __contains__(self, index: object) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def record(self, index: int, /) -> Any:
        """Raise: no row is kept.

        Raises:
            KeyError: Always.
        """
        raise KeyError(index)


@attrs.define(eq=False, repr=False)
class MessageBatch:
    """Messages that wait to be sent, for a few milliseconds at most."""

    _send: Callable[[bytes], None]
    _waiting: list[Message] = attrs.field(init=False, factory=list)
    _added: trio.Event = attrs.field(init=False, factory=trio.Event)

    def add(self, message: Message) -> None:
        """Add a message, in order; sends all of them if they are many."""
        self._waiting.append(message)
        if len(self._waiting) >= _MOST_MESSAGES:
            self.flush()
        else:
            self._added.set()

    def flush(self) -> None:
        """Send all messages now."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._send(pack(waiting))

    async def send_continuously(self) -> None:
        """Send messages soon after they were added, until cancelled."""
        while True:
            await self._added.wait()
            self._added = trio.Event()
            await trio.sleep(_GATHERED_FOR)
            self.flush()


@attrs.frozen(eq=False, repr=False)
class ForwardedJob:
    """The record of the job of one call, which the coordinator keeps; a `KeptJob`."""

    _key: CallKey
    _batch: MessageBatch
    _names: dict[CallKey, str]
    """The jobs of the calls of a shard that have not ended."""

    def find(self) -> str | None:
        """Return the name of the job, which may have come with the shard."""
        return self._names.get(self._key)

    def note(self, name: str, /) -> None:
        """Send the name of a new job at once."""
        self._names[self._key] = name
        self._batch.add(CreatedJob(self._key, name))
        self._batch.flush()

    async def keep(self, name: str, /) -> None:
        """Send the name of a new job at once."""
        self.note(name)
        await trio.lowlevel.checkpoint()

    def drop(self) -> None:
        """Send that the job has ended."""
        if self._names.pop(self._key, None) is not None:
            self._batch.add(CreatedJob(self._key, None))


@attrs.define(eq=False, repr=False)
class ForwardingJournal(RunJournal):
    """The journal of a shard, which sends all records to the coordinator."""

    _shard: Shard
    _batch: MessageBatch
    _replies: dict[CallKey, RecordedReply] = attrs.field(init=False)
    _jobs: dict[CallKey, str] = attrs.field(init=False)

    @_jobs.default
    def _find_jobs(self) -> dict[CallKey, str]:
        return dict(self._shard.jobs)

    @_replies.default
    def _find_replies(self) -> dict[CallKey, RecordedReply]:
        return dict(self._shard.replies)

    @property
    def resumed(self) -> bool:
        """True if replies to its rows are recorded, or must not be used."""
        return bool(self._replies or self._shard.anew)

    def begin(self, suite: PreparedSuite, /) -> None:
        """Do nothing: the coordinator has recorded the suite."""

    async def end(self, **_facts: object) -> None:
        """Do nothing: the coordinator records the end."""
        await trio.lowlevel.checkpoint()

    def call(self, call: CallRecord, /) -> None:
        """Send a call."""
        self._batch.add(call)

    def recorded_reply(self, key: CallKey, /) -> RecordedReply | None:
        """Return a reply that came with the shard."""
        return self._replies.get(key)

    def job(self, key: CallKey, /) -> KeptJob:
        """Return the record of the job of a call, which is sent as it changes."""
        return ForwardedJob(key, self._batch, self._jobs)

    def row(self, row: Row, /) -> None:
        """Send a row."""
        self._batch.add(row)

    def first_single_row(self, _task: str | None, rows: range, /) -> int:
        """Return the first row: each is sent."""
        return rows.start

    def rows_not_run(self, rows: RowsNotRun, /) -> None:
        """Do nothing: the run of a shard has no receiver of many rows at once."""

    def superseding_record(self, _row: Row, /) -> None:
        """Return None: the coordinator decides that."""
        return

    def reject(self, key: CallKey, /) -> None:
        """Send that a reply is not to be used again."""
        self._replies.pop(key, None)
        self._batch.add(RejectedReply(key))

    def needs_new_reply(self, _task: str | None, index: int, /) -> bool:
        """Return whether the coordinator asks for new replies to a row."""
        return index in self._shard.anew

    async def durable(self, row: Row | None = None, /, *, urgent: bool = True) -> None:  # noqa: ARG002
        """Send a reply now, before anything depends on it; rows may wait for others."""
        if row is None:
            self._batch.flush()

    def reused_rows(self, _task: str | None, /) -> ReusedRows:
        """Return no rows."""
        return _NoRows()

    def dataset(self, _task: str | None, /) -> DatasetJournal | None:
        """Return None: datasets are not built on workers."""
        return None

    def dataset_ended(self, result: DatasetResult, /) -> None:
        """Do nothing: datasets are not built on workers."""

    def agents(self, task: str | None, /) -> AgentJournal:
        """Return the record of the processes of agents, which are sent."""
        left = [one for one in self._shard.processes if task == self._shard.task]
        return ForwardedProcesses(task, left, self._batch.add, self._batch.flush)


@attrs.define(eq=False, repr=False)
class _RunningShard:
    """A shard of a session, and the thread that waits for it."""

    key: str
    shard: Shard
    ended: Future[int]
    """Its number of rows, or why it failed."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


@attrs.define(eq=False, repr=False)
class WorkerSession:
    """The part of a run in one worker process. Its public methods may be called in any thread."""

    _load: LoadSuite
    _run_id: str | None
    _send: Callable[[bytes], None]
    _folder: AgentsFolder | None = None
    """The folder of the cases of agents; None without agents."""
    id: str = attrs.field(init=False, factory=functools.partial(secrets.token_hex, 8))
    _thread: threading.Thread | None = attrs.field(init=False, default=None)
    _token: trio.lowlevel.TrioToken | None = attrs.field(init=False, default=None)
    _ready: threading.Event = attrs.field(init=False, factory=threading.Event)
    _facts: WorkerFacts | None = attrs.field(init=False, default=None)
    _scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _stop: trio.Event = attrs.field(init=False, factory=trio.Event)
    _shards: dict[str, _RunningShard] = attrs.field(init=False, factory=dict)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)
    _batch: MessageBatch = attrs.field(init=False)
    _prepared: PreparedSuite | None = attrs.field(init=False, default=None)
    _lanes: Lanes | None = attrs.field(init=False, default=None)
    _source_rows: dict[str, Sequence[Mapping[str, Any]]] = attrs.field(init=False, factory=dict)
    """The rows that are tests of other tasks, by those tasks."""
    _parts: dict[str | None, PreparedTask] = attrs.field(init=False, factory=dict)
    """The tasks whose tests are known, by their ids."""
    _preparing: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    @_batch.default
    def _make_batch(self) -> MessageBatch:
        return MessageBatch(self._send)

    def facts(self) -> WorkerFacts:
        """Return the facts about this worker, as soon as the suite is loaded."""
        self._start()
        self._ready.wait()
        facts = self._facts
        return facts or WorkerFacts(
            session=self.id,
            versions=versions(),
            directory=os.getcwd(),  # noqa: PTH109 - as the coordinator reports it
            error="the session has ended",
        )

    def perform(self, key: str, shard: Shard) -> int:
        """Run a shard, wait for its end and return its number of rows.

        Args:
            key: The key of its Dask task.
            shard: The shard.

        Raises:
            TrioevalError: A provider cannot be opened, or the limit server is unreachable.
            trio.RunFinishedError: The session has ended.
        """
        self.facts()
        running = _RunningShard(key, shard, Future())
        if self._token is None:
            raise trio.RunFinishedError
        trio.from_thread.run_sync(self._begin, running, trio_token=self._token)
        return running.ended.result()

    def put_rows(self, task: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Set the rows of another task that are the tests of a task, before its first shard."""
        self._source_rows.setdefault(task, rows)

    def cancel(self, key: str) -> None:
        """Cancel a running shard; others are not affected."""
        running = self._shards.get(key)
        if running is not None:
            self._soon(functools.partial(running.scope.cancel, "the coordinator cancelled it"))

    def stop(self) -> None:
        """Start no more rows; those that run continue to their end."""
        self._soon(self._stop.set)

    def close(self) -> None:
        """Cancel everything, and wait for the end of the session."""
        self._soon(functools.partial(self._scope.cancel, "the worker is closing"))
        if self._thread is not None:
            self._thread.join(_ENDED_WITHIN)

    def _soon(self, function: Callable[[], object]) -> None:
        if self._token is not None:
            try:
                self._token.run_sync_soon(function)
            except trio.RunFinishedError:
                return

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trioeval", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        finally:
            self._token = None
            self._ready.set()

    async def _main(self) -> None:
        with self._scope:
            self._token = trio.lowlevel.current_trio_token()
            facts = WorkerFacts(session=self.id, versions=versions(), directory=os.getcwd())  # noqa: PTH109
            try:
                self._prepared = await trio.to_thread.run_sync(self._load)
            except TrioevalError as error:
                self._facts = attrs.evolve(facts, error=str(error))
                return
            if self._folder is not None:
                obstacle = await trio.to_thread.run_sync(self._folder.obstacle)
                facts = attrs.evolve(facts, obstacle=obstacle)
            digest = await trio.to_thread.run_sync(suite_digest, self._prepared)
            async with AsyncExitStack() as stack:
                opened = open_suite_limits(self._prepared, warn=self._warn)
                try:
                    limits = await stack.enter_async_context(opened)
                except TrioevalError as error:
                    self._facts = attrs.evolve(facts, error=str(error))
                    return
                self._lanes = make_lanes(self._prepared, limits=limits)
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._batch.send_continuously)
                    self._facts = attrs.evolve(facts, digest=digest)
                    self._ready.set()
                    await trio.sleep_forever()

    def _begin(self, running: _RunningShard) -> None:
        if self._nursery is None:
            raise trio.RunFinishedError
        self._shards[running.key] = running
        self._nursery.start_soon(self._perform, running)

    async def _perform(self, running: _RunningShard) -> None:
        try:
            with running.scope:
                await self._run_rows(running.shard)
            running.ended.set_result(len(running.shard.rows))
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits for the shard
            running.ended.set_exception(error)
        finally:
            del self._shards[running.key]
            self._batch.flush()
            if not running.ended.done():
                running.ended.set_exception(trio.RunFinishedError())

    async def _run_rows(self, shard: Shard) -> None:
        prepared = self._prepared
        if prepared is None:
            raise trio.RunFinishedError
        part = await self._part(prepared, shard.task)
        if prepared.tasks:
            alone = attrs.evolve(part, depends_on=())
            prepared = attrs.evolve(prepared, tasks=(alone,))
        await run_prepared(
            prepared,
            RunOptions(
                emit=_ignore_row,
                lanes=self._lanes,
                stop=self._stop,
                run_id=self._run_id,
                warn=self._warn,
                journal=ForwardingJournal(shard, self._batch),
                adapt=functools.partial(shard_task, shard),
                agents=self._agents(),
            ),
        )

    async def _part(self, prepared: PreparedSuite, task: str | None) -> PreparedTask:
        """Return a task, with its tests also if they are rows of another one."""
        async with self._preparing:
            found = self._parts.get(task)
            if found is not None:
                return found
            (part,) = (one for one in prepared.parts if one.id == task)
            # The coordinator sends them before the first shard.
            rows = self._source_rows.get(task or "")
            part = await trio.to_thread.run_sync(settled_task, part, rows)
            self._parts[task] = part
            return part

    def _agents(self) -> AgentOptions | None:
        if self._folder is None:
            return None
        return AgentOptions(
            folder=self._folder.path, observe=self._send_agent_event, are_placed=True
        )

    def _send_agent_event(self, event: AgentEvent) -> None:
        if not isinstance(event, CaseEnded):  # the coordinator knows that from the row
            self._batch.add(event)

    def _warn(self, text: str) -> None:
        self._batch.add(WorkerWarning(text))


async def _ignore_row(_row: Row) -> None:  # noqa: ASYNC124 - the journal has sent it
    """Ignore an emitted row."""


def settled_task(part: PreparedTask, rows: Sequence[Mapping[str, Any]] | None) -> PreparedTask:
    """Return a task with its tests, also if they are the rows of another one.

    Args:
        part: The task.
        rows: Those rows; None for other tests.
    """
    prepare = part.prepare_with_rows
    if prepare is None or rows is None:
        return part
    prepared = prepare(rows)
    return attrs.evolve(part, prepared=prepared, prepare_with_rows=None, source_rows=rows)
