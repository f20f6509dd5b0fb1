"""The workers of one run: opened and checked together with the Redis server of its suite, then given rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioeval.agent.journal import RunningAttempt
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.limits.open import requires_extra
from trioeval.nurseries import open_plain_nursery
from trioeval.rates import Budget
from trioeval.scaleout.address import ClusterAddress
from trioeval.scaleout.agents import shared_folder
from trioeval.scaleout.cluster import ClusterEvents
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.datasets import SentDatasets
from trioeval.scaleout.facts import shares_lanes
from trioeval.scaleout.messages import StepFinder
from trioeval.scaleout.run_records import RunRecords
from trioeval.scaleout.watching import WatchedCluster, WorkerViews
from trioeval.scaleout.worker import LoadSuite, SessionOptions

if TYPE_CHECKING:
    from trioeval.scaleout.dask_cluster import DaskCluster, LocalProcesses
    from trioeval.scaleout.run_redis import RecordedRun, RunRedis
    from trioeval.store.run import StoredRun


def uses_redis(prepared: PreparedSuite) -> bool:
    """Return whether a suite has Redis for shared limits, which then also has the journal of workers."""
    return prepared.suite.limits is not None and prepared.suite.limits.backend == "redis"


class _Unrecorded:
    """A run that stores nothing; a `RecordedRun`."""

    def recover(self, _calls: Iterable[CallRecord], _rejected: Iterable[CallKey], /) -> int:
        """Return 0: no execution continues it."""
        return 0

    def recover_job(self, _key: CallKey, _name: str | None, /) -> None:
        """Do nothing: no execution continues it."""

    def recover_attempt(self, _task: str | None, _attempt: RunningAttempt | str, /) -> None:
        """Do nothing: no execution continues it."""

    async def durable(self) -> None:
        """Do nothing. A checkpoint."""
        await trio.lowlevel.checkpoint()


@attrs.define(eq=False, repr=False)
class RunWorkers:
    """The checked workers of a run. Obtained from `open_run`."""

    cluster: DaskCluster
    _prepared: PreparedSuite
    _options: SessionOptions
    _redis: RunRedis | None
    """The Redis server of the suite; None without one."""
    datasets: SentDatasets = attrs.field(init=False, factory=SentDatasets)
    """The place of the groups of datasets."""

    def steer(self, command: Mapping[str, Any]) -> None:
        """Let all workers execute a command for one of their lanes, those that join later included."""
        retune = None if self._redis is None else partial(self._redis.retune, command)
        self.cluster.steer(command, retune)

    def refusal(self, command: Mapping[str, Any]) -> str | None:
        """Return the reason why the shared limits of a lane cannot follow a command; None if they can."""
        return None if self._redis is None else self._redis.refusal(command)

    @asynccontextmanager
    async def coordinate(
        self,
        stop: trio.Event,
        warn: Callable[[str], None],
        *,
        records: RunRecords | None = None,
        run: RecordedRun | None = None,
        views: WorkerViews | None = None,
        budget: Budget | None = None,
        on_give_up: Callable[[], None] | None = None,
    ) -> AsyncGenerator[Coordinator]:
        """Send rows to the workers while the block runs.

        Args:
            stop: Set when no more rows are to start.
            warn: Called with failures of workers.
            records: The records of the run.
            run: The run in its store, which the journal in Redis is compared with; None stores nothing.
            views: Receive what the workers report.
            budget: The budget of all calls, which other runs may share; None is that of the suite.
            on_give_up: Called before the coordinator itself stops the run, because its workers fail.

        Yields:
            The coordinator, whose `adapt` lets the rows of tasks run on the workers.
        """
        coordinator = Coordinator(
            self.cluster,
            self._prepared,
            stop,
            warn,
            records=records or RunRecords(),
            budget=budget,
            on_give_up=on_give_up,
            datasets=self.datasets,
            lane_owner=self._options.lane_owner,
        )
        events: ClusterEvents = coordinator
        if views is not None:
            events = WatchedCluster(coordinator, views)
        if self._redis is None:
            async with _connected(self.cluster, coordinator, events):
                yield coordinator
            return
        session_of = self.cluster.session_of
        journalled = self._redis.follow(events, session_of, run or _Unrecorded(), warn)
        async with (
            _connected(self.cluster, coordinator, journalled),
            open_plain_nursery() as nursery,
        ):
            nursery.start_soon(self._redis.serve)
            yield coordinator
            nursery.cancel_scope.cancel("the suite has ended")


@asynccontextmanager
async def open_run(
    address: ClusterAddress | LocalProcesses,
    prepared: PreparedSuite,
    load: LoadSuite,
    options: SessionOptions,
    *,
    warn: Callable[[str], None],
    redis_run: str | None = None,
    agents: Path | None = None,
    named: Iterable[Path] = (),
    send: Iterable[str] = (),
) -> AsyncGenerator[RunWorkers]:
    """Open the sessions of one run on workers, and check that they can run the suite.

    Args:
        address: The cluster.
        prepared: The suite.
        load: Loads the same suite on a worker; must be picklable.
        options: What the sessions do; their Redis and their folder are set here.
        warn: Called with harmless failures.
        redis_run: The id of the run in the Redis server of the suite; None is that of the run.
        agents: The folder of the cases of agents, which is created; None without agents.
        named: Files that the command line names besides the suite.
        send: Files, folders and patterns that the user names for workers, relative to the suite's folder.

    Raises:
        UsageError: The cluster or Redis is unreachable, or its workers cannot run the suite.
        AgentError: The folder of agents cannot be created.
    """
    from trioeval.scaleout.dask_cluster import open_cluster

    steps = StepFinder.of(prepared)
    if uses_redis(prepared):
        options = attrs.evolve(options, redis_run=redis_run or options.run_id)
    with ExitStack() as stack:
        if agents is not None:
            options = attrs.evolve(options, folder=stack.enter_context(shared_folder(agents)))
        opened = open_cluster(
            address,
            prepared,
            load,
            steps=steps,
            options=options,
            warn=warn,
            named=[*named],
            send=[*send],
        )
        async with _open_redis(prepared, options, steps) as redis, opened as cluster:
            yield RunWorkers(cluster, prepared, options, redis)


@asynccontextmanager
async def _open_redis(
    prepared: PreparedSuite, options: SessionOptions, steps: StepFinder
) -> AsyncGenerator[RunRedis | None]:
    """Open the Redis server of a run; yield None without one.

    Raises:
        UsageError: It is unreachable.
    """
    if options.redis_run is None:
        yield None
        return
    with requires_extra("redis"):
        from trioeval.scaleout.run_redis import open_run_redis
    shares = shares_lanes(prepared, lane_owner=options.lane_owner)
    opened = open_run_redis(prepared, options.redis_run, steps, has_shared_lanes=shares)
    async with opened as redis:
        yield redis


@asynccontextmanager
async def _connected(
    cluster: DaskCluster, coordinator: Coordinator, events: ClusterEvents
) -> AsyncGenerator[None]:
    """Pass on what the workers report, first to `events`, while the block runs."""
    cluster.connect(events)
    try:
        async with open_coordinator(coordinator):
            yield
    finally:
        cluster.disconnect()


async def recover_replies(
    prepared: PreparedSuite, run: StoredRun, warn: Callable[[str], None]
) -> None:
    """Record the replies that only the journal in Redis has of a run that continues. A checkpoint.

    Args:
        prepared: The suite.
        run: The run.
        warn: Called with the number of replies, or if Redis is unreachable.

    Raises:
        UsageError: They cannot be read.
    """
    if uses_redis(prepared):
        with requires_extra("redis"):
            from trioeval.scaleout.run_redis import recover_run
        await recover_run(prepared, run.id, run, warn)
