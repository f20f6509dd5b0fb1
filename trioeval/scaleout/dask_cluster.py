"""The Dask cluster of a run: its workers are checked before anything is paid, then run shards.

Dask's client has a thread with its own event loop. Nothing of it is called in the thread of Trio that may
wait, and its callbacks only pass on what happened.
"""

import functools
import importlib.util
import logging
import secrets
import signal
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import attrs
import dask
import trio
from distributed import Client, Future, LocalCluster
from distributed.utils import silence_logging_cmgr
from distributed.versions import VersionMismatchWarning

from trioeval.errors import UsageError
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.nurseries import open_plain_nursery
from trioeval.scaleout.address import ClusterAddress, LocalWorkers, SchedulerAddress
from trioeval.scaleout.cluster import ClusterEvents
from trioeval.scaleout.facts import coordinator_facts, differences
from trioeval.scaleout.file_transfer import SentFiles
from trioeval.scaleout.messages import AnyShard, StepFinder, WorkerFacts, pack_shard, unpack
from trioeval.scaleout.needs import needs_of
from trioeval.scaleout.plugin import (
    RunPlugin,
    perform_shard,
    put_rows,
    shut_down_dataset,
    steer_lanes,
    stop_rows,
    worker_facts,
)
from trioeval.scaleout.run_keys import RunKeys
from trioeval.scaleout.sent_keys import check_sent
from trioeval.scaleout.suite_files import list_files
from trioeval.scaleout.worker import LoadSuite, SessionOptions

REACHED_WITHIN = 20.0
"""Seconds to reach the scheduler, and then for its first worker."""
_CLOSED_WITHIN = 15.0
_MOST_CONNECTIONS = 5
_SHOWN = 10  # differences of workers
_LOST = (OSError, RuntimeError, TimeoutError, ValueError)
"""The exceptions of Dask if its scheduler is lost or its client is closed."""
_LOCAL_SETTINGS = {
    "distributed.admin.low-level-log-length": 20,  # else the scheduler keeps the last 1000 messages
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.profile.enabled": False,
}
"""The settings of a cluster of this machine, without statistics, which cost computing."""


@attrs.define(eq=False, repr=False)
class DaskCluster:
    """The workers of a Dask cluster for one run; a `Cluster`."""

    _client: Client
    _name: str
    """The name of the plugin, and the beginning of the keys of tasks."""
    _own: WorkerFacts
    _files: SentFiles
    _keys: RunKeys
    _steps: StepFinder
    _warn: Callable[[str], None]
    _token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)
    _events: ClusterEvents | None = attrs.field(init=False, default=None)
    _sessions: dict[str, str] = attrs.field(init=False, factory=dict)
    """The session of each worker that can run shards."""
    _lost_sessions: dict[str, str] = attrs.field(init=False, factory=dict)
    """The last session of each worker that was lost."""
    _futures: dict[int, Future[int]] = attrs.field(init=False, factory=dict)
    _late: dict[str, Sequence[Mapping[str, Any]]] = attrs.field(init=False, factory=dict)
    """The rows of other tasks that are tests, by the tasks that have them."""
    _given: set[tuple[str, str]] = attrs.field(init=False, factory=set)
    """The sessions that have the rows of a task."""
    _commands: list[Mapping[str, Any]] = attrs.field(init=False, factory=list)
    """The commands for lanes so far, which people have given."""
    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)
    _requests: trio.MemorySendChannel[Callable[[], Any]] | None = attrs.field(
        init=False, default=None
    )

    # ---- the start

    def check(self, plugin: RunPlugin) -> None:
        """Open the sessions of all workers, and compare their facts. Called in a thread.

        Raises:
            UsageError: The cluster has no workers, or some cannot run the suite; all of them are named.
        """
        if not self._client.scheduler_info(n_workers=-1)["workers"]:
            try:
                self._client.wait_for_workers(1, timeout=REACHED_WITHIN)
            except TimeoutError:
                raise UsageError("--on: the cluster has no workers") from None
        try:
            self._client.register_plugin(plugin, name=self._name)
        except Exception as error:
            wrong = [*self._lacking(plugin.modules)] or [f"some cannot load trioeval: {error}"]
            raise _refusal(wrong) from error
        self._client.subscribe_topic("all", self._on_lifecycle)
        self._client.subscribe_topic(self._client.id, self._on_messages)
        unsent: str | None = None
        try:
            self._files.send(self._client, self._name)
        except UsageError as error:
            unsent = str(error)
        facts = self._client.run(worker_facts, self._name, on_error="return")
        if unsent is not None:  # then they cannot load the suite, but may have other problems
            facts = {one: _with_suite(found, self._own) for one, found in facts.items()}
        wrong = [text for address, one in facts.items() for text in self._wrong(address, one)]
        if unsent is not None and not wrong:
            raise UsageError(unsent)
        if wrong:
            raise _refusal(wrong, unsent)
        self._sessions = {address: one.session for address, one in facts.items()}

    def _lacking(self, modules: Sequence[str]) -> Iterator[str]:
        """Yield which workers lack trioeval or a module of the program; needs neither of them there."""
        for name in ("trioeval", *modules):
            found = self._client.run(importlib.util.find_spec, name, on_error="return")
            for address, one in found.items():
                if one is None or isinstance(one, Exception):
                    yield f"worker {address} lacks the module {name}"

    def _wrong(self, address: str, facts: object) -> Sequence[str]:
        if not isinstance(facts, WorkerFacts):
            return [f"worker {address} does not respond: {facts}"]
        return [*differences(address, self._own, facts)]

    # ---- a `Cluster`

    def connect(self, events: ClusterEvents) -> None:
        """Report all workers, and from now on all events."""
        self._events = events
        for worker in self._sessions:
            events.on_worker(worker)

    def disconnect(self) -> None:
        """Report nothing more."""
        self._events = None

    def session_of(self, worker: str) -> str | None:
        """Return the session of a worker, also of one that is lost; None if it is unknown."""
        return self._sessions.get(worker) or self._lost_sessions.get(worker)

    def submit(self, worker: str, shard: AnyShard) -> None:
        """Start a shard on a worker."""
        session = self._sessions.get(worker, "")
        request = functools.partial(self._submit, worker, session, shard)
        self._request(functools.partial(self._try_submit, request, shard.number))

    def cancel(self, number: int) -> None:
        """Cancel a shard."""
        self._request(functools.partial(self._cancel, number))

    def add_task(self, part: PreparedTask) -> None:
        """Give a task whose tests are the rows of another one to each worker, before its first shard."""
        self._steps.add(part)
        self._late[part.id or ""] = part.source_rows or ()

    def shut_down(self, number: int, lane: str) -> None:
        """Let a shard of a dataset start nothing new."""
        self._request(functools.partial(self._shut_down, number, lane))

    def stop(self) -> None:
        """Let all workers start no more rows."""
        self._request(self._stop)

    def steer(self, command: Mapping[str, Any], then: Callable[[], None] | None = None) -> None:
        """Let all workers execute a command for a lane, those that join later included.

        Args:
            command: A command of the live view for a lane that all workers have; it has been executed here.
            then: Called once they have it, those that respond.
        """
        self._commands.append(command)
        self._request(functools.partial(self._steer, None, command))
        if then is not None:
            self._request(functools.partial(self._report, then))

    def _request(self, function: Callable[[], Any]) -> None:
        if self._requests is not None:
            self._requests.send_nowait(function)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Call Dask in a thread, one request after another, until cancelled."""
        self._requests, requests = trio.open_memory_channel[Callable[[], Any]](float("inf"))
        task_status.started()
        try:
            async with self._requests, requests, trio.open_nursery() as self._nursery:
                async for request in requests:
                    await trio.to_thread.run_sync(request)
        finally:
            self._requests = self._nursery = None

    # ---- in other threads

    def _try_submit(self, submit: Callable[[], None], number: int) -> None:
        try:
            submit()
        except Exception as error:  # noqa: BLE001 - also one of pickle: the shard has not started
            self._report(functools.partial(self._ended, number, error))

    def _submit(self, worker: str, session: str, shard: AnyShard) -> None:
        task = shard.task or ""
        if task in self._late and (session, task) not in self._given:
            rows = self._keys.hide_in(self._late[task])
            self._client.run(put_rows, self._name, task, rows, workers=[worker])
            self._given.add((session, task))
        key, data = self._key(shard.number), pack_shard(shard)
        if self._keys.may_be_in(data):
            data = pack_shard(self._keys.hide_in(shard))
        future = self._client.submit(
            perform_shard,
            self._name,
            session,
            key,
            data,
            key=key,
            pure=False,
            workers=[worker],
            allow_other_workers=False,
        )
        self._futures[shard.number] = future
        future.add_done_callback(functools.partial(self._on_done, shard.number))

    def _cancel(self, number: int) -> None:
        future = self._futures.pop(number, None)
        if future is not None:
            with suppress(*_LOST):
                future.cancel()

    def _key(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _shut_down(self, number: int, lane: str) -> None:
        with suppress(*_LOST):
            key = self._key(number)
            self._client.run(shut_down_dataset, self._name, key, lane, on_error="ignore")

    def _stop(self) -> None:
        with suppress(*_LOST):
            self._client.run(stop_rows, self._name, on_error="ignore")

    def _steer(self, workers: list[str] | None, *commands: Mapping[str, Any]) -> None:
        with suppress(*_LOST):
            self._client.run(steer_lanes, self._name, commands, workers=workers, on_error="ignore")

    def _on_done(self, number: int, future: Future[int]) -> None:
        error: Exception | None = None
        if future.status == "error":
            found = future.exception()
            error = found if isinstance(found, Exception) else RuntimeError(str(found))
        elif future.status != "finished":
            error = RuntimeError("the scheduler is lost")
        self._report(functools.partial(self._ended, number, error))

    def _on_messages(self, event: tuple[float, Any]) -> None:
        _at, data = event
        if isinstance(data, bytes):  # the scheduler reports its own events to the same topic
            self._report(functools.partial(self._received, data))

    def _on_lifecycle(self, event: tuple[float, Any]) -> None:
        _at, facts = event
        match facts:
            case {"action": "add-worker", "worker": str(worker)}:
                self._report(functools.partial(self._start_join, worker))
            case {"action": "remove-worker", "worker": str(worker)}:
                self._report(functools.partial(self._lost, worker))

    def _join(self, worker: str) -> None:
        """Check a worker that has joined; one that cannot run the suite is not used."""
        run = functools.partial(self._client.run, worker_facts, self._name, on_error="return")
        found: object = None
        try:
            self._files.send(self._client, self._name, [worker])
            found = run(workers=[worker]).get(worker)
        except _LOST as error:
            found = error
        except UsageError as error:
            self._report(functools.partial(self._warn, f"{error}; worker {worker} is not used"))
            return
        wrong = self._wrong(worker, found)
        if not wrong and isinstance(found, WorkerFacts):
            self._report(functools.partial(self._joined, worker, found.session))
        elif isinstance(found, WorkerFacts):
            for text in wrong:
                self._report(functools.partial(self._warn, f"{text}; it is not used"))

    def _report(self, function: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            return

    # ---- in the thread of the run

    def _ended(self, number: int, error: Exception | None) -> None:
        # Nothing is known of a shard that was cancelled, also because its worker was lost.
        if self._events is not None:
            self._events.on_shard_end(number, error)
        self._futures.pop(number, None)

    def _received(self, data: bytes) -> None:
        if self._events is not None:
            self._events.on_messages(unpack(data, self._steps))

    def _start_join(self, worker: str) -> None:
        if self._nursery is not None:
            join = functools.partial(trio.to_thread.run_sync, abandon_on_cancel=True)
            self._nursery.start_soon(join, functools.partial(self._join, worker))

    def _joined(self, worker: str, session: str) -> None:
        if worker not in self._sessions:
            self._sessions[worker] = session
            if self._commands:
                self._request(functools.partial(self._steer, [worker], *self._commands))
            if self._events is not None:
                self._events.on_worker(worker)

    def _lost(self, worker: str) -> None:
        session = self._sessions.pop(worker, None)
        if session is not None:
            self._lost_sessions[worker] = session
            if self._events is not None:
                self._events.on_loss(worker)


def _refusal(wrong: Sequence[str], rest: str | None = None) -> UsageError:
    """Return the error about workers that cannot run a suite.

    Args:
        wrong: The problems of workers.
        rest: Another problem.
    """
    more = len(wrong) - _SHOWN
    lines = [*wrong[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    listed = "".join(f"\n  {line}" for line in lines)
    others = "" if rest is None else f"\n{rest}"
    return UsageError(f"--on: the workers cannot run this suite:{listed}{others}")


def _with_suite(found: object, own: WorkerFacts) -> object:
    """Return the facts of a worker as if it had loaded the suite."""
    if not isinstance(found, WorkerFacts):
        return found
    return attrs.evolve(found, digest=own.digest, error=None)


@attrs.frozen
class LocalProcesses:
    """Worker processes of this machine that several runs use; from `open_processes`."""

    url: str
    """The address of their scheduler."""


@asynccontextmanager
async def open_processes(address: LocalWorkers) -> AsyncGenerator[LocalProcesses]:
    """Start worker processes on this machine, which end with the block.

    Raises:
        UsageError: They cannot be started.
    """
    local = await trio.to_thread.run_sync(_start, address)
    try:
        yield LocalProcesses(local.scheduler_address)
    finally:
        with trio.move_on_after(_CLOSED_WITHIN, shield=True):
            await trio.to_thread.run_sync(local.close, abandon_on_cancel=True)


@asynccontextmanager
async def open_cluster(
    address: ClusterAddress | LocalProcesses,
    prepared: PreparedSuite,
    load: LoadSuite,
    *,
    steps: StepFinder | None = None,
    options: SessionOptions,
    warn: Callable[[str], None],
    named: Sequence[Path] = (),
    send: Sequence[str] = (),
) -> AsyncGenerator[DaskCluster]:
    """Open the cluster of a run, and check that its workers can run the suite.

    Args:
        address: The cluster.
        prepared: The suite.
        load: Loads the same suite on a worker; must be picklable.
        steps: Finds the steps of rows, if others use it as well.
        options: What the sessions of the workers do.
        warn: Called with harmless failures.
        named: Files that the command line names besides the suite.
        send: Files, folders and patterns that the user names for workers, relative to the suite's folder.

    Raises:
        UsageError: The suite cannot be sent, a file of `send` is missing, the scheduler is unreachable, it
            has no workers, or some cannot run the suite.
    """
    name = f"trioeval-{secrets.token_hex(6)}"
    files = await trio.to_thread.run_sync(list_files, prepared, named, send)
    needs = await trio.to_thread.run_sync(needs_of, prepared, files)
    own = await trio.to_thread.run_sync(coordinator_facts, prepared, needs)
    keys = RunKeys.of(prepared)
    await trio.to_thread.run_sync(check_sent, (load, needs, options), keys)
    sent = SentFiles(files, keys)
    # A lost scheduler is reported by the run; Dask would log tracebacks.
    with silence_logging_cmgr(logging.CRITICAL):
        local, client = await trio.to_thread.run_sync(_open, address)
        try:
            cluster = DaskCluster(
                client, name, own, sent, keys, steps or StepFinder.of(prepared), warn
            )
            own_group = not isinstance(address, SchedulerAddress)
            plugin = RunPlugin(name, client.id, load, needs, options, own_group=own_group)
            await trio.to_thread.run_sync(cluster.check, plugin)
            async with open_plain_nursery() as nursery:
                await nursery.start(cluster.serve)
                yield cluster
                nursery.cancel_scope.cancel("the run has ended")
        finally:
            close = functools.partial(_close, local, client, name)
            with trio.move_on_after(_CLOSED_WITHIN, shield=True):
                await trio.to_thread.run_sync(close, abandon_on_cancel=True)


def _start(address: LocalWorkers) -> LocalCluster:
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # else its start unblocks the signal
        # Inherited by the threads and processes that it starts: until they have left the process group of the
        # run, Ctrl-C reaches them, and a worker that dies at its start is started again and again.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        # The worker processes inherit the settings.
        with dask.config.set(_LOCAL_SETTINGS):
            return LocalCluster(
                n_workers=address.count,
                processes=True,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
    except _LOST as error:
        raise UsageError(f"--on: the workers cannot be started: {error}") from error
    finally:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _open(address: ClusterAddress | LocalProcesses) -> tuple[LocalCluster | None, Client]:
    """Return the cluster, if it is one of processes of this machine, and its client.

    Raises:
        UsageError: The scheduler is unreachable.
    """
    if isinstance(address, LocalWorkers):
        local = _start(address)
        return local, Client(local, set_as_default=False)
    try:
        with warnings.catch_warnings():
            # The check reports all differences itself, and ignores packages that are not used.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            return None, _client(address.url)
    except (OSError, TimeoutError, ValueError) as error:
        msg = f"--on: no Dask scheduler responds at {address}: {str(error) or 'time limit'}"
        raise UsageError(msg) from error


def _client(url: str) -> Client:
    """Return a client of a scheduler.

    Raises:
        OSError: It is unreachable.
    """
    for _ in range(_MOST_CONNECTIONS):
        with suppress(
            AssertionError
        ):  # Dask's client expects one message, but a busy scheduler sends more
            return Client(url, timeout=REACHED_WITHIN, set_as_default=False)
    msg = "it is too busy"
    raise OSError(msg)


def _close(local: LocalCluster | None, client: Client, name: str) -> None:
    if client.status == "running":  # else its scheduler is lost
        with suppress(*_LOST):
            if local is None:
                with suppress(KeyError):  # no worker could load it
                    client.unregister_worker_plugin(name)
            # Else the scheduler logs that it cannot send the last events.
            for topic in ("all", client.id):
                client.unsubscribe_topic(topic)
    client.close()
    if local is not None:
        local.close()
