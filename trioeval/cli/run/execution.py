# Separate from `cli.run.run`: together they exceed 600 lines.
"""One run of a suite, from its first call to its last line.

The first signal stops admission and lets what runs finish; the second cancels it; more change nothing, nor
does one that comes when the last row is there. A store that cannot write any more stops it likewise. Either
way every row is written: a reply that was paid for is never lost to an impatient hand, or a full disk.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioeval.cli.environment import EnvironmentSettings
from trioeval.cli.flags import RunFlags
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.progress.progress import RunProgress
from trioeval.cli.progress.run import RunViews
from trioeval.cli.run.exit_status import RunOutcome, is_unfinished, spent_line
from trioeval.cli.run.results import keep_media, show_results, write_documents
from trioeval.cli.run.start import Continuation, begin
from trioeval.cli.run.storage import RunStorage, open_storage
from trioeval.cli.settings import first
from trioeval.cli.stopping import StopRequests
from trioeval.cli.terminal import say
from trioeval.columns.options import DatasetOptions
from trioeval.errors import TrioevalError
from trioeval.evaluation.journal import RecordObserver
from trioeval.evaluation.task_run import AdaptTask, Observers, RowOf
from trioeval.kernel import Event, Lanes, Observer
from trioeval.kernel.events import guarded
from trioeval.providers.secrets import hide_in
from trioeval.report.activity import Activity
from trioeval.report.kept_totals import kept_text
from trioeval.report.results import Results, RunInfo, utc
from trioeval.report.stored import RunStart
from trioeval.run import PreparedSuite, Row, RowsNotRun, RunOptions, make_lanes, run_with_options
from trioeval.run.shared_limits import open_suite_limits
from trioeval.session.collector import Collector
from trioeval.store.database import DamagedError
from trioeval.store.run import StoredRun
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters
from trioeval.web.live import Steering, serve_live

if TYPE_CHECKING:
    from trioeval.agent.open import AgentOptions
    from trioeval.cli.run.observers import TraceFile
    from trioeval.cli.run.scale_out import OpenWorkers, ScaleOut
    from trioeval.columns.result import DatasetResult
    from trioeval.limits.backend import SharedLimits
    from trioeval.providers.local.record import Recorder
    from trioeval.report.run_metrics import RunMetrics
    from trioeval.report.worker_lanes import WorkerLanes
    from trioeval.store.cache.cache import Cache
    from trioeval.telemetry.spans import Telemetry


@attrs.frozen(eq=False, repr=False)
class RowObserver(RecordObserver):
    """Observer of rows as soon as they end, possibly long before they are emitted in order."""

    on_ended: Callable[[Row], None]

    def on_row(self, row: Row, /) -> None:
        """Pass the row on."""
        self.on_ended(row)


# The step summary of GitHub Actions, to which a run in a step adds.


_NAME = 200  # characters of a path


def add_step_summary(
    environ: Mapping[str, str], results: Sequence[Results], warn: Callable[[str], None]
) -> None:
    """Append the summary of a run to the summary of its GitHub Actions step, if it runs in one.

    Args:
        environ: The variables of the process.
        results: The results of the run's tasks.
        warn: Called with the reason if the summary cannot be written, which does not affect the run.
    """
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    from trioeval.report.formats.markdown import markdown_chunks

    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(markdown_chunks(*results))
    except (OSError, TrioevalError) as error:
        why = getattr(error, "strerror", None) or error
        warn(
            f"the summary of the step cannot be written: {escape_control_characters(path, _NAME)}: {why}"
        )


_CELL = 40  # characters of an output in the table of rows
_TABLE_TESTS = 50  # tests in the table of rows; -o writes all of them
_SAFE_WITHIN = 120.0  # seconds to wait at the end until everything is on disk


@attrs.define(eq=False, repr=False)
class Execution:
    """One execution of a prepared suite: a new run, or the continuation of one."""

    prepared: PreparedSuite
    flags: RunFlags
    """The flags that `resolve_settings` returned."""
    environment: EnvironmentSettings
    storage: RunStorage
    start: RunStart
    continued: Continuation | None
    """The run that is continued; None for a new run."""
    interrupts: Interrupts
    recorder: Recorder | None = None
    progress: RunProgress = attrs.field(factory=RunProgress)
    """Shows the run on stderr while it runs, and how it ended."""
    environ: Mapping[str, str] = attrs.field(factory=dict)
    """The variables of the process."""
    scale_out: ScaleOut | None = None
    """The cluster on which the rows run; None runs them in this process."""
    stopping: StopRequests = attrs.field(init=False, factory=StopRequests)
    _starting: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """The scope of the execution, cancelled if its start is interrupted."""
    _activity: Activity | None = attrs.field(init=False, default=None)
    """The activity of the lanes, once they exist."""
    _is_over: bool = attrs.field(init=False, default=False)
    """True if all tasks ended without an error of the run itself."""

    async def run(self) -> int:
        """Run the suite, write its results, and return the exit code.

        Raises:
            StoreError: The run cannot be stored, or is running elsewhere; no provider was called.
            OutputError: A result file cannot be created; no provider was called.
            LimitError: The backend of the shared limits is unreachable; no provider was called.
            UsageError: Metrics cannot be served, or the workers of `--on` cannot run the suite; no provider
                was called.
        """
        with self._starting:
            return await self._run()
        code = self.interrupts.code
        self.progress.end(code, f"interrupted before the first row; exit {code}: nothing was run")
        return code

    async def _run(self) -> int:
        async with (
            self._metrics() as metrics,
            open_storage(self.storage, self.stopping.store_failed, self._warn) as (store, cache),
            AsyncExitStack() as sharing,
        ):
            limits = await sharing.enter_async_context(
                open_suite_limits(self.prepared, warn=self._warn)
            )
            agents = await self._open_agents(sharing)
            telemetry = await self._open_telemetry(sharing)
            workers = await self._open_workers(sharing, agents)
            run = await begin(store, self.start, self.continued)
            if self.continued is not None and self.prepared.suite.limits is not None:
                from trioeval.scaleout.run_workers import recover_replies

                await recover_replies(self.prepared, run, self._warn)
            run.stays_open = True  # until its results are written
            collector = self._collector(run)
            collector.open()
            started_at = trio.current_time()
            try:
                await self._run_suite(
                    cache,
                    run,
                    collector,
                    limits,
                    agents=agents,
                    metrics=metrics,
                    telemetry=telemetry,
                    workers=workers,
                )
                self._is_over = True
            finally:
                # Also if the run fails because of a bug: its rows have cost money.
                seconds = trio.current_time() - started_at
                with trio.move_on_after(_SAFE_WITHIN, shield=True):
                    await self._store_all(run, collector, seconds)
                info = attrs.evolve(self._info(seconds, run), activity=run.activities())
                unwritten: list[TrioevalError] = [
                    *collector.close(),
                    *write_documents(collector.outputs, collector.results(info)),
                ]
                if self.storage.database is None:
                    unwritten += keep_media(info.media, collector.outputs)
                for error in unwritten:
                    say(error)
            left_out = sum(one.unlisted for one in collector.results(info))
            if left_out and self.flags.output.output:
                rows = counted(left_out, "row")
                say(f"-o: {rows} not run: counted, and not listed in the files")
            # Its last warnings are printed before the line about the end of the run.
            await sharing.aclose()
            add_step_summary(self.environ, collector.results(info), self._warn)
            if not self.flags.output.quiet:
                with self.progress.results():
                    command = partial(self.storage.show, run.id)
                    resume = self._resume(run, collector)
                    unshown = show_results(collector, info, command, resume)
                if unshown is not None:
                    say(unshown)
                    unwritten.append(unshown)
            if self.recorder is not None and self.recorder.error is not None:
                say(self.recorder.error)
                unwritten.append(self.recorder.error)
            if run.error is not None:  # reported when it happened
                unwritten.append(run.error)
            return self._end(run, collector, seconds, unwritten=bool(unwritten))

    def _warn(self, text: str) -> None:
        if not self.flags.output.quiet:
            say(f"warning: {text}")

    def _on_row_ended(self, watching: RunViews, row: Row) -> None:
        watching.row_is_over(row)
        if self.flags.limits.fail_fast and not row.status.is_success:
            self.stopping.stop()

    def _on_dataset_ended(
        self, collector: Collector, watching: RunViews, result: DatasetResult, _rows: object
    ) -> None:
        from trioeval.report.columns import trouble

        watching.dataset_ended(result.task)
        collector.dataset(result)
        if self.flags.limits.fail_fast and trouble(result) is not None:
            self.stopping.stop()

    @asynccontextmanager
    async def _metrics(self) -> AsyncGenerator[RunMetrics | None]:
        """Serve the metrics of the run at the port of `--metrics-port`; yield None without it."""
        if (port := self.flags.output.metrics_port) is None:
            yield None
            return
        from trioeval.cli.run.observers import serve_metrics
        from trioeval.report.run_metrics import RunMetrics

        metrics = RunMetrics(trio.current_time())
        async with serve_metrics(port, metrics):
            yield metrics

    async def _open_telemetry(self, stack: AsyncExitStack) -> Telemetry | None:
        """Open the telemetry of `--otel`; return None without it."""
        if not self.flags.output.otel:
            return None
        from trioeval.cli.run.observers import open_telemetry

        return await stack.enter_async_context(
            open_telemetry(
                run_id=self.start.id,
                description=self.prepared.suite.description,
                keys=[key for keys in self.start.keys.values() for key in keys],
                warn=self._warn,
            )
        )

    async def _open_workers(
        self, stack: AsyncExitStack, agents: AgentOptions | None
    ) -> OpenWorkers | None:
        """Open the workers of `--on`; return None without it.

        That takes seconds, so a signal cancels it, and with it the execution: nothing is stored yet.
        """
        if self.scale_out is None:
            return None

        def stop(number: signal.Signals) -> None:
            if not self._starting.cancel_called:
                say("stopping: no row has started")
            self._starting.cancel(f"{number.name} before the first row")

        opened = self.scale_out.open(self.prepared, self.start.id, self.storage, self._warn, agents)
        workers: OpenWorkers | None = None
        failure: TrioevalError | None = None
        with self.interrupts.deliver_to(stop):
            try:
                workers = await stack.enter_async_context(opened)
            except TrioevalError as error:
                failure = error
            await (
                trio.lowlevel.checkpoint_if_cancelled()
            )  # a signal may be the reason of the failure
        if failure is not None:
            raise failure
        return workers

    async def _open_agents(self, stack: AsyncExitStack) -> AgentOptions | None:
        """Open the resources of the run's agents; return None without agents."""
        if "agent" not in self.prepared.task_types:
            return None
        from trioeval.session.agents import agent_options

        return await agent_options(
            self.prepared,
            self.storage.database,
            self.start.id,
            stack,
            warn=self._warn,
            on_workers=self.scale_out is not None,
        )

    async def _run_suite(
        self,
        cache: Cache | None,
        run: StoredRun,
        collector: Collector,
        limits: SharedLimits | None,
        *,
        agents: AgentOptions | None,
        metrics: RunMetrics | None,
        telemetry: Telemetry | None,
        workers: OpenWorkers | None,
    ) -> None:
        lanes = make_lanes(self.prepared, limits=limits)
        watching = RunViews(
            prepared=self.prepared,
            lanes=lanes,
            collector=collector,
            metrics=metrics,
            verbose=self.flags.output.verbose,
            progress=self.progress,
            stopping=self.stopping.event.is_set,
            warn=self._warn,
            on_workers=workers is not None,
        )
        if agents is not None:
            if metrics is not None:
                metrics.buses = agents.bus_stats
            agents = attrs.evolve(agents, observe=watching.observe_agent)
        self._activity = watching.picture.activity

        notify_live: Callable[[int | None, str | None], None] = _ignore_row

        async def emit(row: Row) -> None:
            self.stopping.take(row)
            failed = await collector.add(row)
            notify_live(row.index, row.task)
            if failed is not None:
                self.stopping.stop()  # pay for no more rows that cannot be stored

        async def emit_many(rows: RowsNotRun) -> None:
            self.stopping.take(rows.first)
            await collector.add_many(rows)

        log: Observer | None = None
        if self.flags.output.log is not None:
            from trioeval.report.event_log import log_events as log

        def observe(event: Event) -> None:
            watching.observe(event)
            run.observe(event)
            if log is not None:
                log(event)
            if self.recorder is not None and self.recorder.error is not None:
                self.stopping.stop()  # at once, since rows may end much later than their calls

        with (
            self.stopping.scope,
            self.interrupts.deliver_to(self.stopping.interrupt),
            self._tracing(run, lanes, watching.picture.activity.began_at) as trace,
            telemetry or nullcontext(),
        ):
            watches = self._watches(trace, telemetry, workers, watching.picture.workers)
            records: list[RecordObserver] = [RowObserver(partial(self._on_row_ended, watching))]
            records += [] if telemetry is None else [telemetry]
            steering = Steering(
                run_id=run.id,
                state=watching.picture.state,
                lanes=lanes,
                stop=self.stopping.stop_from_outside,
                cancel=self.stopping.cancel_from_outside,
                forward=None if workers is None else workers.steer,
                refusal=None if workers is None else workers.refusal,
            )
            async with (
                serve_live(
                    None if self.flags.output.live is False else steering,
                    self._warn if self.flags.output.live else None,
                ) as notify_live,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(watching.show)
                adapt = await self._adapt(workers, run, records, nursery)
                await run_with_options(
                    self.prepared,
                    RunOptions(
                        emit=emit,
                        emit_many=emit_many,
                        lanes=lanes,
                        stop=self.stopping.event,
                        observe=observe,
                        observers=partial(_observer_of_all, watches) if watches else None,
                        recorder=self.recorder,
                        run_id=run.id,
                        warn=self._warn,
                        journal=run,
                        record_observers=records,
                        cache=cache,
                        refresh_cache=self.storage.refresh,
                        questions=watching.observe_question,
                        settled=watching.settled,
                        datasets=DatasetOptions(
                            on_result=partial(self._on_dataset_ended, collector, watching),
                            on_event=watching.observe_dataset,
                            reconcile=self.storage.reconcile,
                            place=None if workers is None else workers.datasets,
                        ),
                        agents=agents,
                        adapt=adapt,
                    ),
                )
                nursery.cancel_scope.cancel("the suite has ended")

    async def _adapt(
        self,
        workers: OpenWorkers | None,
        run: StoredRun,
        observers: Sequence[RecordObserver],
        nursery: trio.Nursery,
    ) -> AdaptTask | None:
        """Return the function that lets rows run on workers; None if they run here."""
        if workers is None:
            return None
        serve = partial(workers.serve, run, observers, self.stopping, self._warn)
        adapt: AdaptTask = await nursery.start(serve)
        return adapt

    def _watches(
        self,
        trace: TraceFile | None,
        telemetry: Telemetry | None,
        workers: OpenWorkers | None,
        lanes: WorkerLanes | None,
    ) -> Sequence[Observers]:
        """Return the observers of the events of this process; workers report theirs from now on."""
        found = [] if trace is None else [trace.observer]
        found += [] if telemetry is None else [telemetry.observer]
        if workers is None:
            return found
        from trioeval.cli.run.scale_out import of_local_calls

        workers.watch(lanes, trace, telemetry, self.recorder)
        return [*map(of_local_calls, found)]

    def _tracing(
        self, run: StoredRun, lanes: Lanes, began_at: float
    ) -> AbstractContextManager[TraceFile | None]:
        """Return the context in which the file of `--trace` is open; without it, one that does nothing."""
        if (path := self.flags.output.trace) is None:
            return nullcontext()
        from trioeval.cli.run.observers import open_trace, trace_of

        trace = trace_of(
            self.prepared,
            run_id=run.id,
            began_at=began_at,
            limits={name: one.limit for name, one in lanes.statistics().items()},
            keys=self.start.keys,
        )
        return open_trace(path, trace, self._warn)

    async def _store_all(self, run: StoredRun, collector: Collector, seconds: float) -> None:
        """Write everything that is known about the run to its store."""
        await collector.add_rest()
        for warning in dict.fromkeys(collector.derive()):
            self._warn(warning)
        for part in collector.parts:
            run.tests(part.head.task, part.tests())
        run.activity(self._activity_json())
        run.finish(
            "interrupted" if not self._is_over or self._is_left(run, collector) else "finished",
            duration_ms=seconds * 1000,
            derived={
                part.head.task or "": [column.derived for column in part.totals.columns]
                for part in collector.parts
            },
            totals={part.head.task: kept_text(part.totals) for part in collector.parts},
        )
        await run.durable()

    def _collector(self, run: StoredRun) -> Collector:
        return Collector.of(
            self.prepared,
            self.start,
            run,
            self.flags.output.output,
            self._info(0, run),
            cell=self.flags.output.table_cell_max_length or _CELL,
            tests=_TABLE_TESTS if self.flags.output.table else 0,
        )

    def _activity_json(self) -> Mapping[str, Any]:
        """Return the activity of the lanes without keys."""
        activity = self._activity or Activity(trio.current_time())
        keys = [key for keys in self.start.keys.values() for key in keys]
        found: Mapping[str, Any] = hide_in(activity.json(trio.current_time()), keys)
        return found

    def _info(self, seconds: float, run: StoredRun) -> RunInfo:
        return RunInfo(
            utc_exported=utc(datetime.now(UTC)),
            duration_ms=(self.continued.duration_ms if self.continued else 0.0) + seconds * 1000,
            strip=self.environment.strip,
            escape_formulas=self.environment.escape_formulas,
            omit_zero_counters=self.flags.output.omit_zero_counters,
            database="results" if self.storage.database is None else self.storage.database.stem,
            suite=self.start.suite,
            media=run.media_folder,
        )

    def _end(self, run: StoredRun, collector: Collector, seconds: float, *, unwritten: bool) -> int:
        """Print how the run ended and how to continue it, and return the exit code."""
        totals, datasets = collector.totals, collector.datasets
        ended = RunOutcome(
            totals=totals,
            duration=seconds,
            needed=self.environment.pass_rate_threshold,
            failed_code=first(self.flags.output.fail_exit_code, self.environment.failed_exit_code),
            datasets=datasets,
            signals=self.stopping.signals,
            cuts=self.stopping.cuts,
            failed_fast=self.stopping.failed_fast,
            steered=self.stopping.steered,
            lost_workers=self.stopping.lost_workers,
            unwritten=unwritten,
            standing=run.standing_rows,
            resume=self._resume(run, collector),
        )
        spent = None if self.flags.output.quiet else spent_line(totals, datasets)
        if spent is not None:
            say(spent)
        self.progress.end(ended.code, ended.line)
        return ended.code

    @staticmethod
    def _is_left(run: StoredRun, collector: Collector) -> bool:
        """Return whether rows of the run are left to run."""
        left = is_unfinished(collector.totals, collector.datasets, unopened=collector.unopened)
        return left or run.standing_rows > 0

    def _resume(self, run: StoredRun, collector: Collector) -> str | None:
        """Return the command that runs the rest of the rows; None if there are none."""
        retry = False
        if datasets := collector.datasets:
            from trioeval.report.columns import was_cut_short

            retry = any(map(was_cut_short, datasets))
        left = retry or self._is_left(run, collector) or run.error is not None
        if not left or self.storage.database is None or _is_damaged(run):
            return None
        return self.storage.resume(run.id, retry=retry)


def _is_damaged(run: StoredRun) -> bool:
    """Return whether the database of the run is damaged, so that it cannot be read either."""
    return isinstance(run.error, DamagedError)


def _observer_of_all(watches: Sequence[Observers], task: str | None, row_of: RowOf) -> Observer:
    """Return an observer that passes events to all observers of a task."""
    # A failing observer does not affect the others.
    every = [one for watch in watches if (one := guarded(watch(task, row_of))) is not None]

    def observe_all(event: Event) -> None:
        for observe in every:
            observe(event)

    return observe_all


def _ignore_row(_index: int | None, _task: str | None) -> None:
    """Ignore a row, since no viewer is connected."""
