"""The part of a run that Dask holds on each worker, and the functions that it calls there."""

import asyncio
import functools
import gc
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker, secede

from trioeval.evaluation.prepared import PreparedSuite
from trioeval.scaleout.messages import Needs, WorkerFacts, unpack_shard
from trioeval.scaleout.private_files import Location, WorkerFiles
from trioeval.scaleout.worker import LoadSuite, SessionOptions, WorkerSession

_RUNNING = frozenset({"executing", "long-running"})
_NEW_OBJECTS = 50_000
"""New objects between two garbage collections in a process that serves this run only."""
_GIVEN_UP = frozenset({"cancelled", "released", "forgotten"})


class RunPlugin(WorkerPlugin):
    """The session of a run on each worker, including those that join later.

    Args:
        name: The name of the plugin, different for each run.
        topic: The topic of the messages to the coordinator.
        load: Loads the suite.
        needs: What the suite needs of each worker.
        options: What its session does.
        own_group: Whether the process leaves the process group of the run, so that Ctrl-C does not reach it.
        folder: The folder of the cases of agents; None without agents.
    """

    def __init__(
        self,
        name: str,
        topic: str,
        load: LoadSuite,
        needs: Needs,
        options: SessionOptions,
        *,
        own_group: bool,
    ) -> None:
        self.name = name
        self._topic = topic
        self._load = load
        self._needs = needs
        self._options = options
        self._own_group = own_group

    @property
    def modules(self) -> Sequence[str]:
        """The modules of the program that each worker must have."""
        return self._needs.modules

    def setup(self, worker: Worker) -> None:
        """Create the session; it starts with its first use."""
        if self._own_group and hasattr(os, "setpgid"):
            os.setpgid(0, 0)
            _unblock_interrupts()

        def send(data: bytes) -> None:
            worker.log_event(self._topic, data)

        # Dask removes this folder also after a worker that was killed.
        files = WorkerFiles(self._needs.files, Path(worker.local_directory))
        address, name = worker.address, str(worker.name)
        shown = address.partition("://")[2] if name == address else name
        load = functools.partial(_load_for_good, self._load) if self._own_group else self._load
        self.session = WorkerSession(
            load, self._options, send, self._needs, files, address=address, name=shown
        )

    async def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - called by name
        """End the session."""
        await asyncio.to_thread(self.session.close)

    def transition(self, key: Any, start: str, finish: str, **_more: Any) -> None:
        """Cancel a shard that is no longer wanted: the run cancelled it, or has ended."""
        if start in _RUNNING and finish in _GIVEN_UP:
            self.session.cancel(str(key))


def _load_for_good(load: LoadSuite, location: Location) -> PreparedSuite:
    """Load a suite in a process that serves this run only.

    Raises:
        TrioevalError: The suite cannot be loaded.
    """
    prepared = load(location)
    # Its objects live as long as the process, so the garbage collector need not visit them again.
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    return prepared


def _unblock_interrupts() -> None:
    """Accept SIGINT again, which was blocked when the process was started; one that came is dropped."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, handler)


def _session(name: str, worker: Worker) -> WorkerSession:
    plugin = worker.plugins[name]
    if not isinstance(plugin, RunPlugin):
        raise TypeError(plugin)
    return plugin.session


async def lacking_files(name: str, dask_worker: Worker) -> frozenset[str]:
    """Return the digests of the suite's files that a worker lacks; called on its event loop."""
    return await asyncio.to_thread(_session(name, dask_worker).files.lacking)


async def receive_files(name: str, contents: Mapping[str, bytes], dask_worker: Worker) -> None:
    """Write files that a worker lacks; called on its event loop.

    Raises:
        OSError: They cannot be written.
    """
    await asyncio.to_thread(_session(name, dask_worker).files.receive, contents)


async def worker_facts(name: str, dask_worker: Worker) -> WorkerFacts:
    """Return the facts of a worker; called on its event loop."""
    return await asyncio.to_thread(_session(name, dask_worker).facts)


def stop_rows(name: str, dask_worker: Worker) -> None:
    """Let a worker start no more rows; called on its event loop."""
    _session(name, dask_worker).stop()


def put_rows(name: str, task: str, rows: Sequence[Mapping[str, Any]], dask_worker: Worker) -> None:
    """Give a worker the rows of another task that are the tests of a task."""
    _session(name, dask_worker).put_rows(task, rows)


def shut_down_dataset(name: str, key: str, lane: str, dask_worker: Worker) -> None:
    """Let a shard of a dataset start nothing new, if the worker has it; called on its event loop."""
    _session(name, dask_worker).shut_down(key, lane)


def steer_lanes(name: str, commands: Sequence[Mapping[str, Any]], dask_worker: Worker) -> None:
    """Let a worker execute commands for its lanes; called on its event loop."""
    session = _session(name, dask_worker)
    for command in commands:
        session.steer(command)


def perform_shard(name: str, session: str, key: str, shard: bytes) -> int:
    """Run a shard and return its number of rows; called in a thread of a worker.

    Args:
        name: The name of the plugin.
        session: The session that the shard was sent to.
        key: The key of this task.
        shard: The shard, packed.

    Raises:
        LookupError: Another process has the address of the worker now.
        TrioevalError: As for `WorkerSession.perform`.
    """
    found = _session(name, get_worker())
    if found.id != session:
        msg = "the worker has been restarted"
        raise LookupError(msg)
    secede()  # it only waits: shards of other lanes must not wait for it
    return found.perform(key, unpack_shard(shard))
