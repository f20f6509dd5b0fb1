"""`--on`: the cluster on which the rows of a run run, and the suite as its workers load it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from trioeval.evaluation.task_run import AdaptTask, Observers, RowOf
from trioeval.kernel import Admitted, Event, Observer
from trioeval.kernel.events import guarded
from trioeval.scaleout.address import ClusterAddress, LocalWorkers, read_address
from trioeval.scaleout.before_all import SuiteChanges, suite_changes, with_changes
from trioeval.scaleout.datasets import SentDatasets
from trioeval.scaleout.facts import check_suite
from trioeval.scaleout.messages import WorkerEvent
from trioeval.scaleout.private_files import Location
from trioeval.scaleout.run_records import RunRecords
from trioeval.scaleout.run_workers import RunWorkers, open_run
from trioeval.scaleout.watching import WorkerViews
from trioeval.scaleout.worker import CacheFile, SessionOptions

if TYPE_CHECKING:
    from trioeval.agent.open import AgentOptions
    from trioeval.cli.run.observers import TraceFile
    from trioeval.cli.run.storage import RunStorage
    from trioeval.cli.stopping import StopRequests
    from trioeval.providers.local.record import Recorder
    from trioeval.report.worker_lanes import WorkerLanes
    from trioeval.store.run import StoredRun
    from trioeval.telemetry.spans import Telemetry

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


def of_local_calls(observers: Observers) -> Observers:
    """Return observers of the calls of this process, whose rows run on workers."""

    def of_task(task: str | None, row_of: RowOf) -> Observer:
        observe_all = observers(task, row_of)

        def observe(event: Event) -> None:
            # A job on no lane is a block of rows, which have their own events on workers.
            if not isinstance(event, Admitted) or event.lane is not None:
                observe_all(event)

        return observe

    return of_task


@attrs.define(eq=False, repr=False)
class OpenWorkers:
    """The checked workers of a run."""

    _workers: RunWorkers
    _views: WorkerViews = attrs.field(init=False, factory=WorkerViews)

    @property
    def datasets(self) -> SentDatasets:
        """The place of the groups of datasets."""
        return self._workers.datasets

    def watch(
        self,
        lanes: WorkerLanes | None,
        trace: TraceFile | None,
        telemetry: Telemetry | None,
        recorder: Recorder | None,
    ) -> None:
        """Show and record from now on what the workers report.

        Args:
            lanes: Receives their lanes.
            trace: Receives their events.
            telemetry: Receives their events.
            recorder: Receives their calls.
        """

        def show(message: WorkerEvent) -> None:
            if trace is not None:
                trace.on_worker_event(message)
            if telemetry is not None:
                telemetry.observer(message.task, message.row_of)(message.event)

        self._views = WorkerViews(
            lanes=lanes,
            on_event=None if trace is None and telemetry is None else guarded(show),
            on_loss=None if trace is None else trace.on_loss,
            record=None if recorder is None else recorder.append,
        )

    def steer(self, command: Mapping[str, Any]) -> None:
        """Let all workers execute a command for one of their lanes, those that join later included."""
        self._workers.steer(command)

    def refusal(self, command: Mapping[str, Any]) -> str | None:
        """Return the reason why the shared limits of a lane cannot follow a command; None if they can."""
        return self._workers.refusal(command)

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
        opened = self._workers.coordinate(
            stopping.event,
            warn,
            records=RunRecords(run, observers, run.recorded_replies, run.recorded_jobs),
            run=run,
            views=self._views,
            on_give_up=stopping.workers_failed,
        )
        async with opened as coordinator:
            task_status.started(coordinator.adapt)
            await trio.sleep_forever()


@attrs.frozen
class ScaleOut:
    """The cluster that `--on` names."""

    address: ClusterAddress
    suite: WorkerSuite
    sends_events: bool = False
    """True if the events of workers are traced."""
    records: bool = False
    """True if the calls of workers are recorded."""
    lane_owner: bool = False
    """True if each lane has one owner, although the suite has Redis."""
    send: Sequence[str] = ()
    """The files, folders and patterns that the workers need besides those that the suite names."""
    linger: float = 0.0
    """The seconds for which workers collect replies and rows."""

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
        return cls(
            address,
            WorkerSuite.of(suite, sent, suite_changes(prepared)),
            sends_events=flags.output.trace is not None or flags.output.otel,
            records=flags.what.record is not None,
            lane_owner=given.begin.lane_owner,
            send=given.begin.send,
            linger=given.begin.linger,
        )

    @asynccontextmanager
    async def open(
        self,
        prepared: PreparedSuite,
        run_id: str,
        storage: RunStorage,
        warn: Callable[[str], None],
        agents: AgentOptions | None = None,
    ) -> AsyncGenerator[OpenWorkers]:
        """Open the cluster and check its workers.

        Args:
            prepared: The suite.
            run_id: The id of the run.
            storage: The files of the run.
            warn: Called with harmless failures.
            agents: The options of its agents, with their folder; None without agents.

        Raises:
            UsageError: The cluster is unreachable, or its workers cannot run the suite.
            AgentError: The folder of agents cannot be created.
        """
        options = SessionOptions(
            run_id=run_id,
            events=self.sends_events,
            record=self.records,
            cache=self._cache(storage),
            lane_owner=self.lane_owner,
            linger=self.linger,
        )
        opened = open_run(
            self.address,
            prepared,
            self.suite,
            options,
            warn=warn,
            agents=None if agents is None else agents.folder,
            named=self.suite.named,
            send=self.send,
        )
        async with opened as workers:
            yield OpenWorkers(workers)

    def _cache(self, storage: RunStorage) -> CacheFile | None:
        """Return the cache that workers of this machine share with the run.

        Processes agree on who makes a call by leases in the file, which a network file system may lose.
        """
        if not storage.is_cached or storage.cache is None:
            return None
        if not isinstance(self.address, LocalWorkers):
            return None
        return CacheFile(
            path=storage.cache.absolute(),
            ttl_s=storage.cache_ttl_s,
            wal=storage.wal,
            refresh=storage.refresh,
        )


def _unusable(flags: RunFlags) -> Sequence[str]:
    """Return the flags that cannot be used on workers yet."""
    sample = flags.rows.filter_sample is not None and flags.rows.filter_sample_seed is None
    found = {
        "--filter-sample without --filter-sample-seed": sample,
    }
    return [flag for flag, is_given in found.items() if is_given]
