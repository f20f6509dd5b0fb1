"""One run of a suite, from its first call to its last line.

The first signal stops admission and lets what runs finish; the second cancels it; more change nothing, nor
does one that comes when the last row is there. Either way every row is written: a reply that was paid for is
never lost to an impatient hand.
"""

import platform
import secrets
import signal
import sys
from datetime import UTC, datetime

import attrs
import trio

from trioeval._version import __version__
from trioeval.cli.collector import Collector
from trioeval.cli.ending import ending, spent_line
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.progress import Progress
from trioeval.cli.settings import RunSettings
from trioeval.cli.terminal import draw, say, show
from trioeval.kernel import Event
from trioeval.providers import Recorder
from trioeval.report import RunInfo
from trioeval.tasks import PreparedSuite, Row, Status, make_lanes, run_suite

_TABLE_TESTS = 50  # tests that the table of rows shows; -o writes all of them


@attrs.define
class Execution:
    """One run of a prepared suite."""

    prepared: PreparedSuite
    settings: RunSettings
    recorder: Recorder | None
    interrupts: Interrupts
    signals: list[signal.Signals] = attrs.field(factory=list)
    stopped_early: bool = False
    created: datetime = attrs.field(factory=lambda: datetime.now(UTC))
    eval_id: str = attrs.field(init=False)
    collector: Collector = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.eval_id = f"eval-{self.created:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        self.collector = Collector.of(
            self.prepared,
            self.settings.outputs,
            self._info(0.0),
            eval_id=self.eval_id,
            utc_created=_utc(self.created),
            versions={
                "trioevalVersion": __version__,
                "pythonVersion": platform.python_version(),
                "platform": sys.platform,
                "arch": platform.machine(),
            },
            cell=self.settings.cell,
            tests=_TABLE_TESTS if self.settings.table else 0,
        )

    async def run(self) -> int:
        """Everything from the first call to the last line."""
        self.collector.open()
        started_at = trio.current_time()
        try:
            await self._run_suite()
        finally:
            # Also when the run dies of a fault of ours: its rows were paid for.
            duration = trio.current_time() - started_at
            for warning in dict.fromkeys(self.collector.derive()):
                say(f"warning: {warning}")
            unwritten = self.collector.close(self._info(duration))
            for error in unwritten:
                say(error)
        self._show()
        if self.recorder is not None and self.recorder.error is not None:
            say(self.recorder.error)
            unwritten = [*unwritten, self.recorder.error]
        ended = ending(
            self.collector.totals,
            self.settings,
            duration,
            signals=self.signals,
            stopped_early=self.stopped_early,
            unwritten=bool(unwritten),
        )
        if (spent := spent_line(self.collector.totals)) is not None:
            say(spent)
        say(ended.line)
        return ended.code

    async def _run_suite(self) -> None:
        lanes = make_lanes(self.prepared)
        progress = Progress(self.prepared.size, lanes)
        stop = trio.Event()

        async def emit(row: Row) -> None:  # noqa: ASYNC124 - files do not wait
            progress.add(row)
            if self.collector.add(row) is not None:
                stop.set()  # pay for nothing more that cannot be kept
            if self.settings.fail_fast and row.status is not Status.PASS:
                self.stopped_early = True
                stop.set()

        def observe(event: Event) -> None:
            progress.observe(event)
            if self.recorder is not None and self.recorder.error is not None:
                stop.set()  # likewise, and at once: rows may come much later than their calls

        def interrupt(number: signal.Signals) -> None:
            self.signals.append(number)
            if len(self.signals) == 1:
                stop.set()
                say("stopping: rows under way may finish; interrupt again to cancel them")
            else:
                scope.cancel(f"second signal: {number.name}")

        with trio.CancelScope() as scope, self.interrupts.told_to(interrupt):
            async with trio.open_nursery() as nursery:
                if self.settings.progress:
                    nursery.start_soon(progress.show)
                await run_suite(
                    self.prepared,
                    emit=emit,
                    lanes=lanes,
                    stop=stop,
                    observe=observe,
                    recorder=self.recorder,
                    run_id=self.eval_id,
                    warn=lambda text: say(f"warning: {text}"),
                )
                nursery.cancel_scope.cancel("the suite is over")

    def _info(self, duration: float) -> RunInfo:
        return RunInfo(
            utc_exported=_utc(datetime.now(UTC)),
            duration_ms=duration * 1000,
            strip=self.settings.environment.strip,
            escape_formulas=self.settings.environment.escape_formulas,
        )

    def _show(self) -> None:
        from trioeval.report.tables import columns_table, rows_table  # noqa: PLC0415 - after the run

        for part in self.collector.parts:
            if (first := part.first_rows) is not None:
                if part.head.task is not None:
                    show(f"task {part.head.task}")
                draw(rows_table(part.head.columns, first), sys.stdout)
                if hidden := first.hidden:
                    show(f"… and {hidden} more rows; -o FILE writes them all")
        for part in self.collector.parts:
            if part.head.task is not None:
                say(f"task {part.head.task}")
            draw(columns_table(part.head.columns, part.totals), sys.stderr)


def _utc(instant: datetime) -> str:
    """As JavaScript writes instants."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
