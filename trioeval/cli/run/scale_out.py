"""`--on`: the cluster on which the rows of a run run, and the suite as its workers load it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from trioeval.cli.environment import read_environment
from trioeval.cli.flags import OutputFlags, RunFlags, StartFlags
from trioeval.cli.run.command import load
from trioeval.cli.settings import resolve_settings, with_flags
from trioeval.errors import UsageError
from trioeval.evaluation.journal import RecordObserver
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.task_run import AdaptTask
from trioeval.limits.open import requires_extra
from trioeval.scaleout.address import ClusterAddress, read_address
from trioeval.scaleout.coordinator import ClusterEvents, Coordinator, open_coordinator
from trioeval.scaleout.facts import check_suite, shares_lanes
from trioeval.scaleout.messages import steps_of

if TYPE_CHECKING:
    from trioeval.cli.stopping import StopRequests
    from trioeval.scaleout.dask_cluster import DaskCluster
    from trioeval.scaleout.run_redis import RunRedis
    from trioeval.store.run import StoredRun

EXTRA = "dask"


@attrs.frozen
class WorkerSuite:
    """The suite of a command line, as each worker loads it from the same files, flags and environment."""

    suite: Path | None
    flags: RunFlags

    def __call__(self) -> PreparedSuite:
        """Load and prepare the suite.

        Raises:
            TrioevalError: As on the command line.
        """
        from trioeval.cli.run.run import prepare_with_flags

        loaded = load(self.suite, self.flags)
        environment = read_environment({**loaded.environ, **loaded.suite.env})
        flags = resolve_settings(loaded.suite, self.flags)
        changed = with_flags(loaded.suite, flags, environment)
        return prepare_with_flags(loaded, changed, flags, environment)


@attrs.frozen(eq=False, repr=False)
class OpenWorkers:
    """The checked workers of a run."""

    _cluster: DaskCluster
    _prepared: PreparedSuite
    _lane_owner: bool
    _redis: RunRedis | None
    """The Redis server of the suite; None without one."""

    async def serve(
        self,
        run: StoredRun,
        observers: Sequence[RecordObserver],
        stopping: StopRequests,
        warn: Callable[[str], None],
        *,
        task_status: trio.TaskStatus[AdaptTask],
    ) -> None:
        """Send rows to the workers until cancelled; reports how tasks are adapted for that.

        Args:
            run: Records the calls.
            observers: Called with each call after that.
            stopping: Its event is set when no more rows are to start, also if no worker is left.
            warn: Called with failures of workers.
            task_status: Receives the function.
        """
        coordinator = Coordinator(
            self._cluster,
            self._prepared,
            stopping.event,
            warn,
            run,
            observers,
            run.recorded_replies,
            stopping.workers_failed,
            self._lane_owner,
        )
        events: ClusterEvents = coordinator
        try:
            async with open_coordinator(coordinator), trio.open_nursery() as nursery:
                if self._redis is not None:
                    journalled = self._redis.follow(
                        coordinator, self._cluster.session_of, run, warn
                    )
                    nursery.start_soon(journalled.serve)
                    events = journalled
                self._cluster.connect(events)
                task_status.started(coordinator.adapt)
                await trio.sleep_forever()
        finally:
            self._cluster.disconnect()


@attrs.frozen
class ScaleOut:
    """The cluster that `--on` names."""

    address: ClusterAddress
    suite: WorkerSuite
    lane_owner: bool = False
    """True if each lane has one owner, although the suite has Redis."""

    @classmethod
    def of(
        cls, suite: Path | None, given: RunFlags, flags: RunFlags, prepared: PreparedSuite
    ) -> ScaleOut:
        """Return the cluster of a command line.

        Args:
            suite: The suite file as the command line names it.
            given: The flags of the command line.
            flags: The flags that `resolve_settings` returned.
            prepared: The suite.

        Raises:
            UsageError: The value of `--on` is wrong, the extra is not installed, or the suite or a flag
                cannot be used on workers yet.
        """
        address = read_address(given.begin.on or "")
        try:
            import distributed  # noqa: F401 - only whether it exists
        except ImportError:
            raise UsageError(f"--on needs Dask: pip install 'trioeval[{EXTRA}]'") from None
        check_suite(prepared, _unusable(flags))
        # What only this process does is left out.
        sent = attrs.evolve(given, begin=StartFlags(), output=OutputFlags())
        return cls(address, WorkerSuite(suite, sent), given.begin.lane_owner)

    @asynccontextmanager
    async def open(
        self, prepared: PreparedSuite, run_id: str, warn: Callable[[str], None]
    ) -> AsyncGenerator[OpenWorkers]:
        """Open the cluster and check its workers.

        Raises:
            UsageError: The cluster is unreachable, or its workers cannot run the suite.
        """
        from trioeval.scaleout.dask_cluster import open_cluster

        opened = open_cluster(
            self.address,
            prepared,
            self.suite,
            run_id=run_id,
            warn=warn,
            lane_owner=self.lane_owner,
        )
        async with self._open_redis(prepared, run_id) as redis, opened as cluster:
            yield OpenWorkers(cluster, prepared, self.lane_owner, redis)

    @asynccontextmanager
    async def _open_redis(
        self, prepared: PreparedSuite, run_id: str
    ) -> AsyncGenerator[RunRedis | None]:
        """Open the Redis server of the suite; yield None without one.

        Raises:
            UsageError: It is unreachable.
        """
        if not uses_redis(prepared):
            yield None
            return
        with requires_extra("redis"):
            from trioeval.scaleout.run_redis import open_run_redis
        shares = shares_lanes(prepared, lane_owner=self.lane_owner)
        opened = open_run_redis(prepared, run_id, steps_of(prepared), has_shared_lanes=shares)
        async with opened as redis:
            yield redis


def uses_redis(prepared: PreparedSuite) -> bool:
    """Return whether a suite has Redis for shared limits, which then also has the journal of workers."""
    return prepared.suite.limits is not None and prepared.suite.limits.backend == "redis"


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


def _unusable(flags: RunFlags) -> Sequence[str]:
    """Return the flags that cannot be used on workers yet."""
    sample = flags.rows.filter_sample is not None and flags.rows.filter_sample_seed is None
    found = {
        "--record": flags.what.record is not None,
        "--watch": flags.output.watch,
        "--trace": flags.output.trace is not None,
        "--otel": flags.output.otel,
        "--filter-sample without --filter-sample-seed": sample,
    }
    return [flag for flag, is_given in found.items() if is_given]
