"""Workers for the runs of a program: processes of this machine, or a Dask cluster.

`open_workers` holds them for any number of runs, one after another or side by side. Each run has its own
session on each worker, which loads the suite and has its own lanes.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import trio

from trioeval.agent.open import AgentOptions
from trioeval.columns.options import DatasetOptions
from trioeval.errors import UsageError
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import Emit
from trioeval.loading.load import load_suite, parse_suite
from trioeval.providers import Provider
from trioeval.run import RunOptions, SuiteSummary, prepare, run_with_options
from trioeval.run.budgets import with_budget
from trioeval.run.run_suite import check_on_trio, in_task_order
from trioeval.scaleout.address import ClusterAddress, LocalWorkers, read_address
from trioeval.scaleout.agents import temporary_folder
from trioeval.scaleout.before_all import SuiteChanges, suite_changes, with_changes
from trioeval.scaleout.facts import check_suite
from trioeval.scaleout.forwarding import MOST_LINGER
from trioeval.scaleout.needs import own_functions
from trioeval.scaleout.private_files import Location
from trioeval.scaleout.run_workers import RunWorkers, open_run
from trioeval.scaleout.worker import LoadSuite, SessionOptions
from trioeval.suite.model import BudgetSettings, Suite

if TYPE_CHECKING:
    from trioeval.scaleout.dask_cluster import LocalProcesses

SuiteSource: TypeAlias = Suite | Mapping[str, Any] | str | os.PathLike[str]
"""A suite that workers can load: its path, its data as of `parse_suite`, or the suite itself."""

_log = logging.getLogger("trioeval")


@attrs.frozen
class SourceLoader:
    """Loads and prepares a suite from its source, in any process; a `LoadSuite`."""

    source: SuiteSource
    trusted: bool = True
    allow_env: tuple[str, ...] = ()
    directory: Path = attrs.field(factory=Path.cwd)
    """The working directory of the program."""
    changes: SuiteChanges | None = None
    """The changes of its extensions in this process, which workers do not call again."""
    budget: BudgetSettings | None = None
    """Bounds of calls besides those of the suite's own budget."""
    providers: Mapping[str, Provider] | None = None
    """Functions and objects of the program by their provider ids in the suite; each worker has a copy."""

    def __call__(self, location: Location) -> PreparedSuite:
        """Load and prepare the suite.

        Args:
            location: The place of its files on this machine.

        Raises:
            SuiteError: The suite is not valid.
        """
        trusted, allow_env = self.trusted, self.allow_env
        match self.source:
            case Suite() as suite:
                here = location.path(self.directory / suite.directory)
                suite = attrs.evolve(suite, directory=here)
            case Mapping() as data:
                here = location.path(self.directory)
                suite = parse_suite(data, directory=here, trusted=trusted, allow_env=allow_env)
            case path:
                file = location.path(self.directory / path)
                suite = load_suite(file, trusted=trusted, allow_env=allow_env)
        suite = with_budget(suite, self.budget)
        changed = suite if self.changes is None else with_changes(suite, self.changes)
        return prepare(changed, providers=self.providers)

    def for_workers(self, prepared: PreparedSuite) -> SourceLoader:
        """Return the loader of a suite that this process has prepared.

        Raises:
            UsageError: The suite cannot run on workers.
        """
        check_suite(prepared)
        used = {name for name, _ in own_functions(prepared)}
        own = {name: one for name, one in (self.providers or {}).items() if name in used}
        return attrs.evolve(self, changes=suite_changes(prepared), providers=own)

    def check(self) -> None:
        """Raise if the suite cannot be sent, or the arguments contradict each other.

        Raises:
            UsageError: With the reason.
        """
        if not isinstance(self.source, Suite | Mapping | str | os.PathLike):
            raise UsageError(
                "workers load the suite themselves: pass its path, its data, or the suite that load_suite "
                f"or parse_suite returned, got {type(self.source).__name__}"
            )
        if not isinstance(self.source, Suite):
            return
        if not self.trusted or self.allow_env:
            raise UsageError(
                "trust is set when a suite is loaded: pass trusted or allow_env to `load_suite`"
            )
        import cloudpickle

        try:
            cloudpickle.dumps(self.source)
        except Exception as error:  # objects of users may raise anything
            named = "" if self.source.file is None else f": pass its path, {self.source.file}"
            raise UsageError(f"the suite cannot be sent to workers ({error}){named}") from error


class WorkerPool:
    """Workers that run the rows of suites. Created by `open_workers`."""

    def __init__(
        self,
        address: ClusterAddress | LocalProcesses,
        *,
        lane_owner: bool,
        linger: float,
        warn: Callable[[str], None],
    ) -> None:
        self.address = address
        """The cluster."""
        self.warn = warn
        """Called with failures of workers."""
        self._lane_owner, self._linger = lane_owner, linger

    def __repr__(self) -> str:
        return f"<WorkerPool of {self.address}>"

    async def run_suite(
        self,
        suite: SuiteSource,
        *,
        emit: Emit,
        send: Iterable[str | os.PathLike[str]] = (),
        stop: trio.Event | None = None,
        run_id: str | None = None,
        providers: Mapping[str, Provider] | None = None,
        trusted: bool = True,
        allow_env: Collection[str] = (),
    ) -> SuiteSummary:
        """Run a suite on the workers, store nothing, and emit its rows in index order. A checkpoint.

        Cancelling the surrounding scope cancels the rows on all workers; every row is still emitted.

        Args:
            suite: A suite, its data, or the path of a suite file. Workers load it themselves.
            emit: Awaited with one row after another, each as soon as all rows before it in its task are
                known.
            send: Files, folders and patterns that workers need as well, relative to the suite's folder, such
                as files that code opens under names which the suite does not contain.
            stop: Once it is set, no new row starts and running rows continue to their end.
            run_id: The value of `__evalId` in templates.
            providers: Async functions and objects by their provider ids in the suite. Workers import their
                modules, which must be the same there; each worker has a copy of an object as it is now.
            trusted: True if a suite that is loaded here may run code, see the environment and use keys
                without restrictions.
            allow_env: Variables of the environment that templates of an untrusted suite may see.

        Returns:
            The numbers of rows by outcome.

        Raises:
            SuiteError: The suite is not valid; nothing was called.
            UsageError: The suite cannot run on workers, the cluster has none, or some cannot run it.
            Exception: Whatever `emit` raised; it ends the run.
        """
        loader = SourceLoader(suite, trusted, tuple(allow_env), providers=providers)
        prepared, loader = await _prepare(loader)
        return await self._run(prepared, loader, emit, send=send, stop=stop, run_id=run_id)

    async def collect(
        self,
        suite: SuiteSource,
        *,
        send: Iterable[str | os.PathLike[str]] = (),
        providers: Mapping[str, Provider] | None = None,
        trusted: bool = True,
        allow_env: Collection[str] = (),
    ) -> list[Row]:
        """Run a suite on the workers and return its rows in order. A checkpoint.

        The arguments are those of `run_suite`.

        Raises:
            SuiteError: The suite is not valid; nothing was called.
            UsageError: As for `run_suite`.
        """
        rows: list[Row] = []

        async def keep(row: Row) -> None:  # noqa: ASYNC124 - it does not wait
            rows.append(row)

        loader = SourceLoader(suite, trusted, tuple(allow_env), providers=providers)
        prepared, loader = await _prepare(loader)
        await self._run(prepared, loader, keep, send=send)
        return in_task_order(prepared, rows)

    async def _run(
        self,
        prepared: PreparedSuite,
        load: LoadSuite,
        emit: Emit,
        *,
        send: Iterable[str | os.PathLike[str]],
        stop: trio.Event | None = None,
        run_id: str | None = None,
    ) -> SuiteSummary:
        stop = trio.Event() if stop is None else stop
        agents = None
        async with AsyncExitStack() as stack:
            if "agent" in prepared.task_types:
                agents = AgentOptions(folder=stack.enter_context(temporary_folder()))
            opened = self.open_run(prepared, load, run_id, agents=agents, send=send)
            workers = await stack.enter_async_context(opened)
            coordinated = workers.coordinate(stop, self.warn)
            coordinator = await stack.enter_async_context(coordinated)
            options = RunOptions(
                emit=emit,
                stop=stop,
                run_id=run_id,
                warn=self.warn,
                adapt=coordinator.adapt,
                datasets=DatasetOptions(place=workers.datasets),
                agents=agents,
            )
            return await run_with_options(prepared, options)

    def open_run(
        self,
        prepared: PreparedSuite,
        load: LoadSuite,
        run_id: str | None,
        *,
        agents: AgentOptions | None = None,
        redis_run: str | None = None,
        send: Iterable[str | os.PathLike[str]] = (),
    ) -> AbstractAsyncContextManager[RunWorkers]:
        """Open the sessions of one run on these workers.

        Args:
            prepared: The suite.
            load: Loads the same suite on a worker; must be picklable.
            run_id: The id of the run for templates.
            agents: The options of its agents, with their folder; None without agents.
            redis_run: The id of a run that is stored, for the journal in Redis. Others get one of their own,
                because two of them may have the same `run_id` at the same time.
            send: As for `run_suite`.
        """
        return open_run(
            self.address,
            prepared,
            load,
            SessionOptions(run_id=run_id, lane_owner=self._lane_owner, linger=self._linger),
            warn=self.warn,
            redis_run=redis_run or f"program-{secrets.token_hex(8)}",
            agents=None if agents is None else agents.folder,
            send=[os.fspath(one) for one in send],
        )


async def _prepare(loader: SourceLoader) -> tuple[PreparedSuite, SourceLoader]:
    """Return the suite as this process prepares it, and its loader for workers. A checkpoint."""
    loader.check()
    prepared = await trio.to_thread.run_sync(loader, Location(), abandon_on_cancel=True)
    return prepared, loader.for_workers(prepared)


@asynccontextmanager
async def open_workers(
    on: str,
    *,
    lane_owner: bool = False,
    linger: float = 0.0,
    warn: Callable[[str], None] = _log.warning,
) -> AsyncGenerator[WorkerPool]:
    """Open workers for runs: start processes, or connect to a Dask cluster. Needs the extra `dask`.

    A program that starts processes (`local:4`) must be importable without a side effect: each of them
    imports its main module. So it calls this below `if __name__ == "__main__":`.

    Args:
        on: `local:4` for four processes of this machine, which end with the block; `dask://host:8786`,
            `tcp://host:8786` or `tls://host:8786` for a Dask cluster.
        lane_owner: True if one worker makes all calls of a lane, although the suite has Redis.
        linger: The seconds for which a worker collects replies and rows before it sends them, up to 60. By
            default it sends each reply at once, and rows within 10 milliseconds. More lets one scheduler pass
            on the rows of more workers; replies that wait are lost with their worker, unless the suite has
            Redis.
        warn: Called with failures of workers; they are logged by default.

    Yields:
        The workers.

    Raises:
        UsageError: `on` or `linger` is wrong, Dask is not installed, or the processes cannot be started.
    """
    check_on_trio("scaleout.open_workers")
    address = read_address(on, "on")
    if not 0 <= linger <= MOST_LINGER:
        raise UsageError(f"linger must be from 0 to {MOST_LINGER:g} seconds, got {linger!r}")
    try:
        from trioeval.scaleout.dask_cluster import open_processes
    except ImportError:
        raise UsageError("open_workers needs Dask: pip install 'trioeval[dask]'") from None
    if not isinstance(address, LocalWorkers):
        yield WorkerPool(address, lane_owner=lane_owner, linger=linger, warn=warn)
        return
    async with open_processes(address) as processes:
        yield WorkerPool(processes, lane_owner=lane_owner, linger=linger, warn=warn)
