"""`--metrics-port`: how a run stands, over HTTP, for Prometheus and whatever reads its format.

It is served by a thread. What it tells is made in Trio's thread, between two steps of the run: so all numbers
are of one instant, and nothing needs a lock.
"""

import errno
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

import trio

from trioeval.cli.terminal import say
from trioeval.errors import UsageError
from trioeval.report.run_metrics import Distribution, Family, RunMetrics

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

_HOST = "127.0.0.1"  # what a run does is nobody's business elsewhere


@asynccontextmanager
async def serve_metrics(port: int | None, metrics: RunMetrics) -> AsyncGenerator[None]:
    """Serve metrics for as long as the block, and say where; without a port, do nothing.

    Args:
        port: Of the loopback interface; 0 takes a free one.
        metrics: What is served.

    Raises:
        UsageError: The port is taken, or the packages are missing that this needs.
    """
    if port is None:
        await trio.lowlevel.checkpoint()
        yield
        return
    token = trio.lowlevel.current_trio_token()

    def snapshot() -> list[Family | Distribution]:
        return trio.from_thread.run_sync(_now, metrics, trio_token=token)

    server, thread = await trio.to_thread.run_sync(_start, port, snapshot)
    try:
        say(f"metrics: http://{_HOST}:{server.server_port}/metrics")
        yield
    finally:
        # Bounded: it looks twice a second whether it is to end.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(_end, server, thread)


def _now(metrics: RunMetrics) -> list[Family | Distribution]:
    return [*metrics.families(trio.current_time())]


def _start(
    port: int, snapshot: Callable[[], list[Family | Distribution]]
) -> "tuple[WSGIServer, threading.Thread]":
    try:
        from prometheus_client import start_http_server  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            "--metrics-port needs the extra `metrics`: pip install 'trioeval[metrics]'"
        ) from error
    try:
        return start_http_server(port, _HOST, registry_of(snapshot))
    except OSError as error:
        why = error.strerror or error
        if error.errno == errno.EADDRINUSE:
            why = "another program listens there; 0 takes a free port"
        raise UsageError(f"--metrics-port {port}: {why}") from error


def _end(server: "WSGIServer", thread: threading.Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()


def registry_of(snapshot: Callable[[], Iterable[Family | Distribution]]) -> "CollectorRegistry":
    """What the library makes its text of.

    Args:
        snapshot: Tells how everything stands, in the thread of whoever asks.
    """
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra
    from prometheus_client.registry import Collector  # noqa: PLC0415

    class Snapshots(Collector):
        def collect(self) -> "Iterator[Metric]":
            try:
                families = snapshot()
            except trio.RunFinishedError:  # somebody has asked in the last moment
                return
            yield from map(_metric, families)

    registry = CollectorRegistry()
    registry.register(Snapshots())
    return registry


def _metric(family: Family | Distribution) -> "Metric":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily  # noqa: PLC0415 - an extra

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
    """A text that can be sent: half characters, which JSON may have, cannot."""
    return label.encode("utf-8", "backslashreplace").decode()
