"""`trioeval run`: from a suite file to results, an exit code, and a last line that says why.

The first signal stops admission and lets what runs finish; the second cancels it. Either way every row is
written: a reply that was paid for is never lost to an impatient hand.
"""

import gc
import os
import platform
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import attrs
import trio

from trioeval._version import __version__
from trioeval.cli.collector import Collector
from trioeval.cli.exits import Exit
from trioeval.cli.files import check_files
from trioeval.cli.output import check_outputs
from trioeval.cli.progress import Progress
from trioeval.cli.terminal import draw, say, show
from trioeval.errors import OutputError
from trioeval.kernel import Event
from trioeval.providers import Recorder
from trioeval.providers.local.replay import ReplaySettings
from trioeval.report import RunInfo, Totals
from trioeval.report.first_rows import FirstRows
from trioeval.suite import Suite
from trioeval.tasks import PreparedSuite, Row, Status, make_lanes, prepare, run_suite

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TABLE_TESTS = 50  # tests that the table of rows shows; -o writes all of them
_CELL = 40  # characters of an answer in that table


@attrs.frozen(kw_only=True)
class RunFlags:
    """The flags of the command; see its help."""

    outputs: tuple[Path, ...] = ()
    max_concurrency: int | None = None
    repeat: int | None = None
    first_n: int | None = None
    record: Path | None = None
    replay: Path | None = None
    env_file: Path | None = None
    progress: bool = True
    table: bool = True
    fail_exit_code: int = Exit.FAILED


def run_loaded_suite(suite: Suite, flags: RunFlags) -> int:
    """Run a suite and return the exit code.

    Raises:
        SuiteError: Its providers are wrong.
        UsageError: A flag cannot be used.
        OutputError: A result or recording cannot be written.
    """
    check_files(_named_files(suite, flags))
    prepared = prepare(
        _with_flags(suite, flags),
        environ=_environ(flags.env_file),
        max_concurrency=flags.max_concurrency,
        replay=flags.replay,
    )
    _tell_cut_recordings(prepared)
    check_outputs(flags.outputs)
    recording = nullcontext() if flags.record is None else Recorder.create(flags.record)
    # What is loaded by now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    with recording as recorder:
        run = _Run(prepared, flags, recorder)
        code = trio.run(run.run, restrict_keyboard_interrupt_to_checkpoints=True)
    if recorder is not None and recorder.error is not None:
        raise recorder.error
    return code


def _named_files(suite: Suite, flags: RunFlags) -> Iterator[tuple[str, Path]]:
    named = {
        "the suite": suite.file,
        "--env-file": flags.env_file,
        "--replay": flags.replay,
        "--record": flags.record,
    }
    yield from ((name, path) for name, path in named.items() if path is not None)
    yield from (("-o", path) for path in flags.outputs)


def _environ(env_file: Path | None) -> Mapping[str, str]:
    """The environment, with what a file says in place of what is not set, or empty."""
    if env_file is None:
        return os.environ
    from trioeval.cli.env_file import read_env_file  # noqa: PLC0415 - its parser is rarely needed

    set_already = {name: value for name, value in os.environ.items() if value}
    return {**os.environ, **read_env_file(env_file), **set_already}


def _tell_cut_recordings(prepared: PreparedSuite) -> None:
    replayed = [spec.settings for spec in prepared.specs]
    cut = (one.file for one in replayed if isinstance(one, ReplaySettings) and one.is_cut)
    for file in dict.fromkeys(cut):
        say(f"{file}: the last line is cut off, and left out")


def _with_flags(suite: Suite, flags: RunFlags) -> Suite:
    options = suite.evaluate_options
    if flags.repeat is not None:
        options = attrs.evolve(options, repeat=flags.repeat)
    tests = suite.tests if flags.first_n is None else suite.tests[: flags.first_n]
    return attrs.evolve(suite, evaluate_options=options, tests=tests)


@attrs.define
class _Run:
    prepared: PreparedSuite
    flags: RunFlags
    recorder: Recorder | None
    signals: list[signal.Signals] = attrs.field(factory=list)
    created: datetime = attrs.field(factory=lambda: datetime.now(UTC))
    eval_id: str = attrs.field(init=False)
    collector: Collector = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.eval_id = f"eval-{self.created:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        suite, columns = self.prepared.suite, self.prepared.steps.columns
        first = FirstRows(_CELL, _TABLE_TESTS) if self.flags.table else None
        outputs = self.flags.outputs
        self.collector = Collector(suite, columns, outputs, self._info(0.0), first)

    async def run(self) -> int:
        """Everything from the first call to the last line."""
        self.collector.open()
        started_at = trio.current_time()
        try:
            await self._run_suite()
        finally:
            # Also when the run dies of a fault of ours: its rows were paid for.
            duration = trio.current_time() - started_at
            refused = self._write(duration)
        self._show()
        if refused is not None:
            raise refused
        return self._exit(duration)

    async def _run_suite(self) -> None:
        lanes = make_lanes(self.prepared)
        progress = Progress(len(self.prepared.steps), lanes)
        stop = trio.Event()

        async def emit(row: Row) -> None:  # noqa: ASYNC124 - files do not wait
            progress.add(row)
            if self.collector.add(row) is not None:
                stop.set()  # pay for nothing more that cannot be kept

        def observe(event: Event) -> None:
            progress.observe(event)
            if self.recorder is not None and self.recorder.error is not None:
                stop.set()  # likewise, and at once: rows may come much later than their calls

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._watch_signals, stop, scope)
                if self.flags.progress:
                    nursery.start_soon(progress.show)
                await run_suite(
                    self.prepared,
                    emit=emit,
                    lanes=lanes,
                    stop=stop,
                    observe=observe,
                    recorder=self.recorder,
                )
                nursery.cancel_scope.cancel("the suite is over")

    async def _watch_signals(
        self,
        stop: trio.Event,
        scope: trio.CancelScope,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        # Who ignores a signal for us (nohup, a script's background job) means it.
        heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        if not heeded:
            task_status.started()
            return
        with trio.open_signal_receiver(*heeded) as received:
            task_status.started()
            async for number in received:
                self.signals.append(signal.Signals(number))
                if len(self.signals) == 1:
                    stop.set()
                    say("stopping: rows under way may finish; interrupt again to cancel them")
                else:
                    scope.cancel(f"second signal: {self.signals[-1].name}")

    def _write(self, duration: float) -> OutputError | None:
        try:
            self.collector.close(self._info(duration))
        except OutputError as error:
            return error
        return None

    def _info(self, duration: float) -> RunInfo:
        return RunInfo(
            eval_id=self.eval_id,
            utc_created=self.created.isoformat(),
            utc_exported=datetime.now(UTC).isoformat(),
            duration_ms=duration * 1000,
            versions={
                "trioevalVersion": __version__,
                "pythonVersion": platform.python_version(),
                "platform": sys.platform,
                "arch": platform.machine(),
            },
        )

    def _show(self) -> None:
        from trioeval.report.tables import columns_table, rows_table  # noqa: PLC0415 - after the run

        collector = self.collector
        if (first := collector.first_rows) is not None:
            draw(rows_table(collector.suite, collector.columns, first), sys.stdout)
            if hidden := first.hidden:
                show(f"… and {hidden} more rows; -o FILE writes them all")
        draw(columns_table(collector.suite, collector.columns, collector.totals), sys.stderr)

    def _exit(self, duration: float) -> int:
        totals = self.collector.totals
        passed, failed, errors = (totals.count(status) for status in Status)
        verdicts = f"{passed} passed, {failed} failed, {errors} errors"
        numbers = f"{totals.rows} rows in {duration:.1f} s: {verdicts}"
        if self.signals:
            code = Exit.SIGNAL + self.signals[0]
            say(f"{numbers}; exit {code}: interrupted by {self.signals[0].name}")
            return code
        if failed or errors:
            say(f"{numbers}; exit {self.flags.fail_exit_code}: {_why(totals)}")
            return self.flags.fail_exit_code
        say(f"{numbers}; exit 0: every row passed" if totals.rows else "no rows to run; exit 0")
        return Exit.OK


def _why(totals: Totals) -> str:
    failed, errors = totals.count(Status.FAIL), totals.count(Status.ERROR)
    unfinished = totals.outcome("interrupted", "not_run")
    parts = [f"{failed} rows failed"] if failed else []
    if unfinished:
        parts.append(f"the deadline left {unfinished} rows without a verdict")
    if errors > unfinished:
        parts.append(f"{errors - unfinished} rows ended as errors")
    return ", ".join(parts)
