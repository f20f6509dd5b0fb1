"""The observers that flags of the command line add to a run: metrics, traces and OpenTelemetry."""

import errno
import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from io import FileIO
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from trioeval.cli.terminal import say
from trioeval.columns import is_columns
from trioeval.errors import OutputError, UsageError
from trioeval.evaluation.task_run import RowOf
from trioeval.kernel import Event, Observer
from trioeval.nurseries import open_plain_nursery
from trioeval.providers.secrets import hide
from trioeval.report.run_metrics import Distribution, MetricFamily, RunMetrics
from trioeval.report.trace import TraceRecords
from trioeval.run import PreparedSuite
from trioeval.scaleout.messages import WorkerEvent
from trioeval.serving.access_rules import OwnNames, is_of_foreign_page
from trioeval.text_safety import escape_control_characters

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from trioeval.serving.conversation import Receive, Scope, Send
    from trioeval.serving.listening import Address
    from trioeval.telemetry.spans import Telemetry

# `--metrics-port`: the state of a run over HTTP, for Prometheus and compatible readers.
#
# The metrics are made between two steps of the run, so all numbers are of one instant, and no lock is
# needed.


_HOST = "127.0.0.1"  # not visible to other machines
_STOP_GRACE = 0.25  # seconds that a response may take at the end of the run
_PLAIN = "text/plain; charset=utf-8"


@asynccontextmanager
async def serve_metrics(port: int, metrics: RunMetrics) -> AsyncGenerator[None]:
    """Serve metrics for the duration of the block, and print the address.

    Args:
        port: The port on the loopback interface; 0 chooses a free port.
        metrics: The metrics.

    Raises:
        UsageError: The port is in use, or packages are missing.
    """
    page = MetricsPage(registry_of(lambda: metrics.families(trio.current_time())))
    stop = trio.Event()
    listeners, address = await _listen(port)
    from trioeval.serving.listening import serve_app

    async with open_plain_nursery() as nursery:
        await nursery.start(partial(serve_app, page, listeners, stop, grace=_STOP_GRACE))
        say(f"metrics: {address.url}/metrics")
        try:
            yield
        finally:
            stop.set()


async def _listen(port: int) -> "tuple[list[trio.SocketListener], Address]":
    from trioeval.serving.listening import open_listeners

    try:
        return await open_listeners(_HOST, port)
    except OSError as error:
        why = error.strerror or error
        if error.errno == errno.EADDRINUSE:
            why = "the port is in use; 0 chooses a free port"
        raise UsageError(f"--metrics-port {port}: {why}") from error


@attrs.frozen
class MetricsPage:
    """The page of metrics as an ASGI application with its access checks."""

    _registry: "CollectorRegistry"

    async def __call__(self, scope: "Scope", _receive: "Receive", send: "Send") -> None:
        """Send the metrics."""
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        status, kind, body = self._answer(scope["method"], headers)
        header_list = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": header_list})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, method: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
        from prometheus_client.exposition import choose_encoder

        if not OwnNames(host=_HOST).has(headers.get("host", "")):
            return 421, _PLAIN, f"Unknown host name; this server is {_HOST}.\n".encode()
        if is_of_foreign_page(headers):
            return 403, _PLAIN, b"Requests from pages of other origins are refused.\n"
        if method not in {"GET", "HEAD"}:
            return 405, _PLAIN, b"Only GET and HEAD are allowed.\n"
        encode, kind = choose_encoder(headers.get("accept", ""))
        return 200, kind, encode(self._registry)


def registry_of(
    snapshot: Callable[[], Iterable[MetricFamily | Distribution]],
) -> "CollectorRegistry":
    """Return the registry from which the library makes its text.

    Raises:
        UsageError: The library is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.registry import Collector
    except ImportError as error:
        raise UsageError(
            "--metrics-port needs the extra `metrics`: pip install 'trioeval[metrics]'"
        ) from error

    class Snapshots(Collector):
        def collect(self) -> "Iterator[Metric]":
            yield from map(_metric, snapshot())

    registry = CollectorRegistry()
    registry.register(Snapshots())
    return registry


def _metric(family: MetricFamily | Distribution) -> "Metric":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if isinstance(family, Distribution):
        bounds = ["+Inf" if bound == float("inf") else str(bound) for bound in family.bounds]
        buckets = list(zip(bounds, accumulate(family.counts), strict=True))
        return HistogramMetricFamily(family.name, family.about, buckets, family.total)
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    found = kind(family.name, family.about, labels=family.labels)
    for labels, number in family.samples:
        found.add_metric([_plain(label) for label in labels], number)
    return found


def _plain(label: str) -> str:
    """Replace lone surrogates, which JSON may hold but UTF-8 cannot."""
    return label.encode("utf-8", "backslashreplace").decode()


# `--trace FILE`: the calls and waits of lanes over time, for trace viewers.


def check_trace(path: Path) -> None:
    """Check that the file can be written, before any call is paid for; create its folder.

    Raises:
        UsageError: The path is a folder, or its folder is not writable.
    """
    if path.is_dir():
        raise UsageError(f"--trace {path}: is a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        msg = f"--trace {path}: the folder {path.parent} cannot be created: {reason}"
        raise UsageError(msg) from None
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"--trace {path}: cannot be written to: {reason}") from None


@contextmanager
def open_trace(
    path: Path,
    trace: TraceRecords,
    warn: Callable[[str], None],
) -> Iterator["TraceFile"]:
    """Write all events to a file for the duration of the block; the file is complete in any case.

    Earlier contents of the file are replaced.

    Args:
        path: The file.
        trace: The maker of records.
        warn: Called with the first error of writing; the run continues.

    Yields:
        The file, whose `observer` is that of tasks.

    Raises:
        OutputError: The file cannot be opened; no call was made.
    """
    try:
        # Unbuffered, so that the events before a kill are in the file.
        file = FileIO(path, "w", opener=_open_at_once)
    except OSError as error:
        raise OutputError(_cannot_write(path, error)) from error
    writing = TraceFile(path, trace, file, warn)
    try:
        writing.write(trace.head())
        yield writing
    finally:
        writing.end(trio.current_time())


@attrs.define(eq=False, repr=False)
class TraceFile:
    """A file that gets records until one cannot be written. A full disk must not end the run.

    A partial record is cut off: some viewers refuse a file with one.
    """

    path: Path
    trace: TraceRecords
    file: FileIO
    warn: Callable[[str], None]
    is_broken: bool = False
    _size: int = 0
    """Bytes of complete records."""
    _workers: dict[str, TraceRecords] = attrs.field(init=False, factory=dict)
    """The makers of records of the workers that run rows, by address."""
    _processes: int = attrs.field(init=False, default=1)

    def observer(self, task: str | None, row_of: RowOf) -> Observer:
        """Return the observer of the events of a task."""
        return partial(self.observe, task, row_of)

    def observe(self, task: str | None, row_of: RowOf, event: Event) -> None:
        """Write an event."""
        if not self.is_broken and (text := self.trace.records(task, event, row_of=row_of)):
            self.write(text)

    def on_worker_event(self, message: WorkerEvent) -> None:
        """Write an event of a worker; each worker is a process of the trace."""
        if self.is_broken:
            return
        found = self._workers.get(message.worker)
        if found is None:
            self._processes += 1
            found, head = self.trace.worker(self._processes, message.worker)
            self._workers[message.worker] = found
            self.write(head)
        self.write(found.records(message.task, message.event, row_of=message.row_of))

    def on_loss(self, worker: str) -> None:
        """End everything that a lost worker has in progress."""
        found = self._workers.pop(worker, None)
        if found is not None:
            self.write(found.end(trio.current_time()))

    def end(self, now: float) -> None:
        """End everything in progress, and close the file."""
        for worker in self._workers.values():
            self.write(worker.end(now))
        self.write(self.trace.tail(now))
        try:
            self.file.close()
        except OSError as error:
            self._give_up(error)

    def write(self, text: str) -> None:
        """Write complete records."""
        if self.is_broken:
            return
        whole = left = memoryview(text.encode("ascii"))
        try:
            while left:
                left = left[self.file.write(left) or 0 :]
        except OSError as error:
            with suppress(OSError):  # not every file can be truncated
                self.file.truncate(self._size)
            self._give_up(error)
        self._size += len(whole)

    def _give_up(self, error: OSError) -> None:
        if not self.is_broken:
            self.is_broken = True
            self.warn(f"{_cannot_write(self.path, error)}; the run continues without it")


def trace_of(
    prepared: PreparedSuite,
    *,
    run_id: str,
    began_at: float,
    limits: Mapping[str, int],
    keys: Mapping[str | None, Sequence[str]],
) -> TraceRecords:
    """Return the maker of records of a run."""
    hidden = [key for several in keys.values() for key in several]
    steps = {
        part.id: part.prepared.steps
        for part in prepared.parts
        if part.rows is not None and not is_columns(part.prepared.suite.settings)
    }

    def name_of(task: str | None, row: int) -> str | None:
        of_task = steps.get(task)
        return None if of_task is None else of_task[row].test.description

    return TraceRecords(
        began_at=began_at,
        run_id=run_id,
        limits=limits,
        name_of=name_of,
        hide=lambda text: hide(text, hidden),
    )


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. A pipe without a reader is an error: waiting for one could not be ended."""
    number = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(number, True)
    return number


def _cannot_write(path: Path, error: OSError) -> str:
    return f"--trace {path}: cannot be written: {error.strerror or error}"


_SENT_WITHIN = 5.0  # seconds at the end of a run; data that is not sent by then is lost
_TOLD = 200  # characters of a message of an exporter

_INSTALL = (
    "--otel needs the extra `otel` and an exporter: pip install 'trioeval[otel]' "
    "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
)


def check_telemetry() -> None:
    """Check that telemetry can be sent, before any call is paid for.

    Raises:
        UsageError: The extra `otel`, or the exporter, is not installed.
    """
    try:
        from trioeval.telemetry.export import find_exporters
    except ImportError:
        raise UsageError(_INSTALL) from None
    find_exporters("traces", os.environ)
    find_exporters("logs", os.environ)


@asynccontextmanager
async def open_telemetry(
    *,
    run_id: str,
    description: str | None,
    keys: Sequence[str],
    warn: Callable[[str], None],
) -> AsyncGenerator["Telemetry"]:
    """Send the events of a run to OpenTelemetry; flush at the end of the block, after the run.

    An endpoint that does not respond delays the end of the block by some seconds only.

    Args:
        run_id: The id of the run.
        description: The description of the suite.
        keys: Texts that must not appear in any attribute.
        warn: Called once if data cannot be sent.

    Raises:
        UsageError: The extra `otel`, or the exporter, is not installed; no call was made.
    """
    check_telemetry()
    from trioeval.telemetry.content import wants_content
    from trioeval.telemetry.export import is_own, open_exporting
    from trioeval.telemetry.spans import Telemetry

    exporter_log = _ExporterLog(trio.lowlevel.current_trio_token(), warn)
    with exporter_log.instead_of_logs(on=is_own()):
        exporting = open_exporting(os.environ)
        try:
            yield Telemetry(
                tracer=exporting.tracer,
                logger=exporting.logger,
                run_id=run_id,
                description=description,
                content=wants_content(os.environ),
                keys=keys,
            )
        finally:
            # Also after a cancelled run, which is the most interesting one.
            with trio.move_on_after(_SENT_WITHIN, shield=True) as scope:
                async with trio.open_nursery() as nursery:
                    for finish in exporting.finish:
                        nursery.start_soon(exporter_log.of_failure, finish)
            if scope.cancelled_caught:
                exporter_log.once(f"sending took more than {_SENT_WITHIN:g} s")


class _ExporterLog(logging.Handler):
    """A log handler that reports the first message of exporters, which log from their own threads."""

    def __init__(self, token: trio.lowlevel.TrioToken, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._token = token
        self._warn = warn
        self._has_warned = False

    def emit(self, record: logging.LogRecord) -> None:
        """Report a message of an exporter. In any thread."""
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text = f"{text} ({type(record.exc_info[1]).__name__})"
        try:
            self._token.run_sync_soon(self.once, text)
        except trio.RunFinishedError:
            return

    async def of_failure(self, finish: Callable[[], object]) -> None:
        """Flush in a thread, and report an exception. A checkpoint."""
        try:
            await trio.to_thread.run_sync(finish, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 - the code of others must not cost the results
            self.once(f"{type(error).__name__}: {error}")

    def once(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(
                f"--otel: some data cannot be sent: {escape_control_characters(text, _TOLD)}"
            )

    @contextmanager
    def instead_of_logs(self, *, on: bool) -> Iterator[None]:
        """Report messages of exporters for the duration of the block; later ones are discarded."""
        if not on:
            yield
            return
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False  # repeated lines would break the progress display
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.addHandler(logging.NullHandler())
