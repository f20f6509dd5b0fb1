"""A run of a session whose rows run on workers."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import attrs

from trioeval.errors import UsageError
from trioeval.providers import Provider
from trioeval.run import PreparedSuite
from trioeval.scaleout.coordinator import Coordinator
from trioeval.scaleout.run_records import RunRecords
from trioeval.scaleout.watching import WatchedCluster, WorkerViews
from trioeval.scaleout.worker import SessionOptions
from trioeval.scaleout.workers import SourceLoader, WorkerPool, open_coordinated, open_run
from trioeval.session.observers import RunObservers
from trioeval.store.run import StoredRun
from trioeval.suite.model import Suite

if TYPE_CHECKING:
    from trioeval.scaleout.dask_cluster import DaskCluster


@attrs.define(eq=False, repr=False)
class SentRun:
    """The workers of a run, and the suite as they load it."""

    _workers: WorkerPool
    _loader: SourceLoader
    _stack: AsyncExitStack = attrs.field(init=False, factory=AsyncExitStack)
    """Closed at the end of the run."""
    _cluster: DaskCluster | None = attrs.field(init=False, default=None)

    @classmethod
    def of(
        cls,
        workers: WorkerPool,
        suite: Suite | PreparedSuite | str | os.PathLike[str],
        providers: Mapping[str, Provider] | None,
        trusted: bool,  # noqa: FBT001 - as the session has it
        allow_env: Collection[str],
    ) -> SentRun:
        """Return the workers of a run of a suite.

        Args:
            workers: The workers.
            suite: The suite.
            providers: As for `prepare`.
            trusted: As for `load_suite`.
            allow_env: As for `load_suite`.

        Raises:
            UsageError: The suite cannot be sent to workers.
        """
        if isinstance(suite, PreparedSuite):
            raise UsageError(
                "workers prepare a suite themselves: pass the suite or its path to `run`"
            )
        if isinstance(suite, Suite):
            loader = SourceLoader(suite, providers=providers)
        else:
            loader = SourceLoader(suite, trusted, tuple(allow_env), providers=providers)
        loader.check()
        return cls(workers, loader)

    async def open(self, prepared: PreparedSuite, run_id: str, stack: AsyncExitStack) -> None:
        """Open the sessions of the workers until the stack is closed.

        Raises:
            UsageError: The suite cannot run on workers, or some of them cannot run it.
        """
        loader = self._loader.for_workers(prepared)
        opened = open_run(self._workers, prepared, loader, SessionOptions(run_id=run_id))
        self._stack = stack
        self._cluster = await stack.enter_async_context(opened)

    async def start(
        self,
        prepared: PreparedSuite,
        stored: StoredRun,
        observers: RunObservers,
    ) -> Coordinator | None:
        """Send rows to the workers until the stack is closed; return what sends them."""
        if self._cluster is None:
            return None
        run = observers.run
        coordinator = Coordinator(
            self._cluster,
            prepared,
            run.stopping,
            self._workers.warn,
            records=RunRecords(stored, [observers], stored.recorded_replies, stored.recorded_jobs),
            lane_owner=True,
        )
        events = WatchedCluster(coordinator, WorkerViews(lanes=run.worker_lanes))
        await self._stack.enter_async_context(open_coordinated(self._cluster, coordinator, events))
        return coordinator
