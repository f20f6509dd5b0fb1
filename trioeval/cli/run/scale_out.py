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
from trioeval.cli.inputs import with_absolute_paths, with_paths
from trioeval.cli.run.command import load
from trioeval.cli.settings import earlier_files, resolve_settings, with_flags
from trioeval.errors import UsageError
from trioeval.evaluation.journal import RecordObserver
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.task_run import AdaptTask
from trioeval.scaleout.address import ClusterAddress, read_address
from trioeval.scaleout.before_all import SuiteChanges, suite_changes, with_changes
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.facts import check_suite
from trioeval.scaleout.private_files import Location

if TYPE_CHECKING:
    from trioeval.cli.stopping import StopRequests
    from trioeval.scaleout.dask_cluster import DaskCluster
    from trioeval.store.run import StoredRun

EXTRA = "dask"


@attrs.frozen
class WorkerSuite:
    """The suite of a command line, as each worker loads it from the same files and flags."""

    directory: Path
    """The working directory of the command line."""
    suite: Path | None
    """The suite file; absolute."""
    flags: RunFlags
    """The flags; their paths are absolute."""
    changes: SuiteChanges
    """The changes of its extensions, which are not called again."""

    @classmethod
    def of(cls, suite: Path | None, flags: RunFlags, changes: SuiteChanges) -> WorkerSuite:
        """Return the suite of a command line with absolute paths."""
        path = None if suite is None else suite.absolute()
        return cls(Path.cwd(), path, with_absolute_paths(flags), changes)

    @property
    def named(self) -> Sequence[Path]:
        """The files that its flags name, except for environment files."""
        what, rows = self.flags.what, self.flags.rows
        named = (what.assertions, what.model_outputs, what.replay)
        earlier = (one.path for one in earlier_files(rows))
        return [*(one for one in named if one is not None), *earlier]

    def __call__(self, location: Location) -> PreparedSuite:
        """Load and prepare the suite.

        Args:
            location: The place of the files on this machine.

        Raises:
            TrioevalError: As on the command line.
        """
        from trioeval.cli.run.run import prepare_with_flags

        given = with_paths(self.flags, location.path, location.text)
        # Environment files are not sent: a worker has its own ones, or variables of its own.
        env_files = tuple(path for path in given.what.env_file if path.is_file())
        given = attrs.evolve(given, what=attrs.evolve(given.what, env_file=env_files))
        suite = None if self.suite is None else location.path(self.suite)
        loaded = load(suite, given, directory=location.path(self.directory), on_worker=True)
        loaded = attrs.evolve(loaded, suite=with_changes(loaded.suite, self.changes))
        environment = read_environment({**loaded.environ, **loaded.suite.env})
        flags = resolve_settings(loaded.suite, given)
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
        return cls(address, WorkerSuite.of(suite, sent, suite_changes(prepared)))

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
            self.address, prepared, self.suite, run_id=run_id, warn=warn, named=self.suite.named
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
