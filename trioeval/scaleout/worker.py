"""A worker of a run: it runs the rows of shards, sends each reply as it happens, and rows soon after.

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
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import trio

from trioeval.agent.open import AgentOptions
from trioeval.agent.protocols import AgentEvent, CaseEnded
from trioeval.columns.options import DatasetOptions
from trioeval.errors import SuiteError, TrioevalError
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.provider_calls import ReplyCache
from trioeval.evaluation.row import Row
from trioeval.kernel import Event, Lanes
from trioeval.limits.open import requires_extra
from trioeval.rates import Amounts
from trioeval.run.run_suite import RunOptions, make_lanes, run_prepared
from trioeval.run.shared_limits import open_suite_limits
from trioeval.scaleout.agents import AgentsFolder
from trioeval.scaleout.dataset_messages import DatasetShard
from trioeval.scaleout.dataset_parts import ForwardedPart
from trioeval.scaleout.facts import shares_lanes, suite_digest
from trioeval.scaleout.forwarding import ForwardingJournal, ForwardingRecorder, MessageBatch
from trioeval.scaleout.lane_reports import LaneReporter
from trioeval.scaleout.messages import (
    AnyShard,
    Needs,
    Shard,
    ShardUsage,
    WorkerFacts,
    WorkerWarning,
)
from trioeval.scaleout.needs import variables, versions
from trioeval.scaleout.private_files import Location, WorkerFiles
from trioeval.scaleout.run_keys import RunKeys
from trioeval.scaleout.shard_task import shard_task

if TYPE_CHECKING:
    from trioeval.scaleout.worker_redis import WorkerRedis

LoadSuite: TypeAlias = Callable[[Location], PreparedSuite]
"""Loads and prepares the suite of a run in any process, from the files at a place."""

_OUTSIDE = "is outside of"
_NO_ABSOLUTE = (
    "the worker has a copy of the suite's files, in which only relative paths lead to them"
)
_WITHHELD = (
    "environment files and files of keys are not sent: put one on the worker, at the same path"
)
_ENDED_WITHIN = 10.0  # seconds


@attrs.frozen(kw_only=True)
class CacheFile:
    """The file of the cache of replies."""

    path: Path
    ttl_s: float
    wal: bool
    refresh: bool


@attrs.frozen(kw_only=True)
class SessionOptions:
    """The tasks of a session besides running rows and sending their records."""

    run_id: str | None = None
    """The id of the run, for templates."""
    events: bool = False
    """True if the events of lanes and rows are sent."""
    record: bool = False
    """True if the lines of a recording are sent."""
    cache: CacheFile | None = None
    """The cache of a worker on the machine of the run; None requests each reply."""
    redis_run: str | None = None
    """The id of the run in the Redis server of its suite, for the journal and shared lanes; None without."""
    lane_owner: bool = False
    """True if each lane has one owner, although the run uses Redis."""
    folder: AgentsFolder | None = None
    """The folder of the cases of agents; None without agents."""
    linger: float = 0.0
    """The seconds for which replies and rows wait for others; 0 sends each reply at once."""


@attrs.define(eq=False, repr=False)
class _RunningShard:
    """A shard of a session, and the thread that waits for it."""

    key: str
    shard: AnyShard
    ended: Future[int]
    """Its number of rows, or why it failed."""
    part: ForwardedPart | None = None
    """The groups of a dataset that it makes."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def usage(self) -> ShardUsage | None:
        """The used part of its budget; held amounts count, since their calls may have been made."""
        budget = self.shard.budget
        if budget is None:
            return None
        spent, held, before = budget.spent, budget.reserved, budget.used_before or Amounts()
        used = Amounts(
            spent.requests - before.requests,
            spent.tokens + held.tokens - before.tokens,
            spent.money + held.money - before.money,
        )
        return ShardUsage(self.shard.number, used)


@attrs.define(eq=False, repr=False)
class WorkerSession:
    """The part of a run in one worker process. Its public methods may be called in any thread."""

    _load: LoadSuite
    _options: SessionOptions
    _send: Callable[[bytes], None]
    _needs: Needs
    files: WorkerFiles
    """Its files; used before its facts are asked for."""
    _address: str = attrs.field(default="", kw_only=True)
    _name: str = attrs.field(default="", kw_only=True)
    """The name of the worker for people."""
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
    _cache: ReplyCache | None = attrs.field(init=False, default=None)
    _reporter: LaneReporter | None = attrs.field(init=False, default=None)
    _redis: WorkerRedis | None = attrs.field(init=False, default=None)

    @_batch.default
    def _make_batch(self) -> MessageBatch:
        return MessageBatch(self._send, self._options.linger)

    def facts(self) -> WorkerFacts:
        """Return the facts about this worker, as soon as the suite is loaded."""
        self._start()
        self._ready.wait()
        facts = self._facts
        return facts or WorkerFacts(
            session=self.id,
            versions=versions(self._needs, os.environ),
            error="the session has ended",
        )

    def perform(self, key: str, shard: AnyShard) -> int:
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
        if isinstance(shard, DatasetShard):
            running.part = ForwardedPart(shard, self._batch.add)
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

    def shut_down(self, key: str, lane: str) -> None:
        """Let a shard of a dataset start nothing new, because too many calls of a lane failed."""
        running = self._shards.get(key)
        if running is not None and running.part is not None:
            self._soon(functools.partial(running.part.shut_down, lane))

    def stop(self) -> None:
        """Start no more rows; those that run continue to their end."""
        self._soon(self._stop.set)

    def steer(self, command: Mapping[str, Any]) -> None:
        """Execute a command for a lane, which has been executed in the coordinator's process."""
        self._soon(functools.partial(self._steer, command))

    def close(self) -> None:
        """Cancel everything, and wait for the end of the session."""
        self._soon(functools.partial(self._scope.cancel, "the worker is closing"))
        if self._thread is not None:
            self._thread.join(_ENDED_WITHIN)
        self.files.close()

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
            facts = await trio.to_thread.run_sync(self._load_suite)
            if self._prepared is None:
                self._facts = facts
                return
            if self._options.folder is not None:
                obstacle = await trio.to_thread.run_sync(self._options.folder.obstacle)
                facts = attrs.evolve(facts, obstacle=obstacle)
            async with AsyncExitStack() as stack:
                try:
                    self._lanes = await self._open_lanes(self._prepared, stack)
                except TrioevalError as error:
                    text = self._batch.keys.hide(str(error))
                    self._facts = attrs.evolve(facts, error=text, digest=None)
                    return
                if (cache := self._options.cache) is not None:
                    self._cache = await stack.enter_async_context(self._open_cache(cache))
                self._reporter = LaneReporter(
                    worker=self._address,
                    name=self._name,
                    session=self.id,
                    lanes=self._lanes,
                    send=self._batch.add,
                )
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._batch.send_continuously)
                    self._nursery.start_soon(self._reporter.report_continuously)
                    if self._redis is not None:
                        self._nursery.start_soon(self._redis.serve)
                    self._facts = facts
                    self._ready.set()
                    await trio.sleep_forever()

    def _load_suite(self) -> WorkerFacts:
        """Load the suite, and return the facts; called in a thread."""
        needs, environ = self._needs, os.environ
        found = WorkerFacts(session=self.id, versions=versions(needs, environ))
        location = Location()
        self._batch.keys = RunKeys.in_environment(environ)
        try:
            location = self._batch.location = self.files.open()
            prepared = self._load(location)
        except (TrioevalError, OSError) as error:
            text = location.original(str(_without_missing_variables(error, needs, environ) or ""))
            if location.root and _OUTSIDE in text:
                text += f"\n{_NO_ABSOLUTE}"
            if any(path in text for path in needs.files.withheld):
                text += f"\n{_WITHHELD}"
            error_text = self._batch.keys.hide(text) or None
            return attrs.evolve(found, variables=variables(needs, environ), error=error_text)
        if "columns" in prepared.task_types:
            from trioeval.columns.open import read_seeds

            prepared = attrs.evolve(prepared, opened=read_seeds(prepared))
        self._prepared = prepared
        self._batch.keys = RunKeys.of(prepared)
        return WorkerFacts(
            session=self.id,
            versions=versions(needs, prepared.context.environ),
            variables=variables(needs, prepared.context.environ),
            digest=suite_digest(prepared, location),
        )

    def _steer(self, command: Mapping[str, Any]) -> None:
        from trioeval.web.live import steer_lane

        lane = None if self._lanes is None else self._lanes.by_name.get(command["lane"])
        if lane is not None and self._reporter is not None:
            if steer_lane(lane, command) is None and self._redis is not None:
                self._redis.steer(command)
            self._reporter.report()

    def _open_cache(self, file: CacheFile) -> AbstractAsyncContextManager[ReplyCache]:
        from trioeval.store.cache.cache import open_cache

        return open_cache(
            file.path,
            ttl_s=file.ttl_s,
            wal=file.wal,
            on_problem=lambda error: self._warn(str(error)),
        )

    async def _open_lanes(self, prepared: PreparedSuite, stack: AsyncExitStack) -> Lanes:
        """Open the limits of the lanes, and the journal if the suite has Redis.

        Raises:
            TrioevalError: The server is unreachable.
        """
        settings = prepared.suite.limits
        url = None if settings is None or settings.backend != "redis" else settings.url
        if url is None or self._options.redis_run is None:
            limits = await stack.enter_async_context(open_suite_limits(prepared, warn=self._warn))
            return make_lanes(prepared, limits=limits)
        with requires_extra("redis"):
            from trioeval.scaleout.worker_redis import open_worker_redis
        opened = open_worker_redis(
            prepared,
            url,
            self._options.redis_run,
            self.id,
            has_shared_lanes=shares_lanes(prepared, lane_owner=self._options.lane_owner),
            pack=self._batch.packed,
            warn=self._warn,
        )
        self._redis = await stack.enter_async_context(opened)
        self._batch.journal = self._redis.journal
        return self._redis.lanes

    def _begin(self, running: _RunningShard) -> None:
        if self._nursery is None:
            raise trio.RunFinishedError
        self._shards[running.key] = running
        self._nursery.start_soon(self._perform, running)

    async def _perform(self, running: _RunningShard) -> None:
        try:
            with running.scope:
                await self._run_rows(running)
            running.ended.set_result(len(running.shard.rows))
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits for the shard
            running.ended.set_exception(self._batch.keys.hide_in(error))
        finally:
            del self._shards[running.key]
            if self._reporter is not None:
                self._reporter.shard_ended(is_idle=not self._shards)
            if (usage := running.usage) is not None:
                self._batch.add(usage)
            self._batch.flush()
            if not running.ended.done():
                running.ended.set_exception(trio.RunFinishedError())

    async def _run_rows(self, running: _RunningShard) -> None:
        shard, prepared, reporter = running.shard, self._prepared, self._reporter
        if prepared is None or reporter is None:
            raise trio.RunFinishedError
        reporter.expect(len(shard.rows))
        dataset = running.part
        part = await self._part(prepared, shard.task)
        if prepared.tasks:
            alone = attrs.evolve(part, depends_on=())
            prepared = attrs.evolve(prepared, tasks=(alone,))
        await run_prepared(
            prepared,
            RunOptions(
                emit=_ignore_row,
                lanes=self._lanes,
                budget=shard.budget,
                stop=self._stop,
                observe=self._observe,
                observers=reporter.observer if self._options.events else None,
                recorder=ForwardingRecorder(self._batch) if self._options.record else None,
                run_id=self._options.run_id,
                warn=self._warn,
                journal=ForwardingJournal(
                    shard, self._batch, None if dataset is None else dataset.journal()
                ),
                record_observers=[reporter],
                cache=self._cache,
                refresh_cache=self._options.cache is not None and self._options.cache.refresh,
                adapt=functools.partial(shard_task, shard) if isinstance(shard, Shard) else None,
                datasets=DatasetOptions() if dataset is None else dataset.options,
                agents=self._agents(),
            ),
        )
        if dataset is not None:
            dataset.end()

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
        folder = self._options.folder
        if folder is None:
            return None
        return AgentOptions(folder=folder.path, observe=self._send_agent_event, are_placed=True)

    def _send_agent_event(self, event: AgentEvent) -> None:
        if not isinstance(event, CaseEnded):  # the coordinator knows that from the row
            self._batch.add(event)

    def _observe(self, event: Event) -> None:
        """Handle an event of the lanes or of a row."""
        if self._reporter is not None:
            self._reporter.observe(event)
        if self._redis is not None:
            self._redis.observe(event)

    def _warn(self, text: str) -> None:
        self._batch.add(WorkerWarning(text))


def _without_missing_variables(
    error: Exception, needs: Needs, environ: Mapping[str, str]
) -> Exception | None:
    """Return an error without problems of variables that are not set, which are reported anyway."""
    missing = [name for name in (*needs.present, *needs.equal) if not environ.get(name)]
    if not isinstance(error, SuiteError) or not missing:
        return error
    others = [
        one
        for one in error.problems
        if not any(name in f"{one.message} {one.hint}" for name in missing)
    ]
    return SuiteError(others) if others else None


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
