"""`--on`: the cluster on which the rows of a run run, and the suite as its workers load it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
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
from trioeval.scaleout.address import ClusterAddress, read_address
from trioeval.scaleout.agents import shared_folder
from trioeval.scaleout.before_all import SuiteChanges, suite_changes, with_changes
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.facts import check_suite

if TYPE_CHECKING:
    from trioeval.agent.open import AgentOptions
    from trioeval.cli.stopping import StopRequests
    from trioeval.scaleout.dask_cluster import DaskCluster
    from trioeval.store.run import StoredRun

EXTRA = "dask"


@attrs.frozen
class WorkerSuite:
    """The suite of a command line, as each worker loads it from the same files, flags and environment."""

    suite: Path | None
    flags: RunFlags
    changes: SuiteChanges
    """The changes of its extensions, which are not called again."""

    def __call__(self) -> PreparedSuite:
        """Load and prepare the suite.

        Raises:
            TrioevalError: As on the command line.
        """
        from trioeval.cli.run.run import prepare_with_flags

        loaded = load(self.suite, self.flags)
        loaded = attrs.evolve(loaded, suite=with_changes(loaded.suite, self.changes))
        environment = read_environment({**loaded.environ, **loaded.suite.env})
        flags = resolve_settings(loaded.suite, self.flags)
        changed = with_flags(loaded.suite, flags, environment)
        return prepare_with_flags(loaded, changed, flags, environment)


@attrs.frozen(eq=False, repr=False)
class OpenWorkers:
    """The checked workers of a run."""

    _cluster: DaskCluster
    _prepared: PreparedSuite

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
            run.recorded_jobs,
            stopping.workers_failed,
        )
        self._cluster.connect(coordinator)
        try:
            async with open_coordinator(coordinator):
                task_status.started(coordinator.adapt)
                await trio.sleep_forever()
        finally:
            self._cluster.disconnect()


@attrs.frozen
class ScaleOut:
    """The cluster that `--on` names."""

    address: ClusterAddress
    suite: WorkerSuite

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
        return cls(address, WorkerSuite(suite, sent, suite_changes(prepared)))

    @asynccontextmanager
    async def open(
        self,
        prepared: PreparedSuite,
        run_id: str,
        warn: Callable[[str], None],
        agents: AgentOptions | None = None,
    ) -> AsyncGenerator[OpenWorkers]:
        """Open the cluster and check its workers.

        Args:
            prepared: The suite.
            run_id: The id of the run.
            warn: Called with harmless failures.
            agents: The options of its agents, with their folder; None without agents.

        Raises:
            UsageError: The cluster is unreachable, or its workers cannot run the suite.
            AgentError: The folder of agents cannot be created.
        """
        from trioeval.scaleout.dask_cluster import open_cluster

        with ExitStack() as stack:
            folder = None
            if agents is not None and agents.folder is not None:
                folder = stack.enter_context(shared_folder(agents.folder))
            opened = open_cluster(
                self.address, prepared, self.suite, run_id=run_id, warn=warn, folder=folder
            )
            async with opened as cluster:
                yield OpenWorkers(cluster, prepared)


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
