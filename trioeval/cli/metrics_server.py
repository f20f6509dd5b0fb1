"""`--metrics-port`: how a run stands, over HTTP, for Prometheus and whatever reads its format.

What it tells is made between two steps of the run: so all numbers are of one instant, and nothing needs
a lock.
"""

import errno
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import attrs
import trio

from trioeval.cli.terminal import say
from trioeval.errors import UsageError
from trioeval.report.run_metrics import Distribution, Family, RunMetrics
from trioeval.serving.door import OwnNames, is_of_foreign_page

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from trioeval.serving.conversation import Receive, Scope, Send
    from trioeval.serving.listening import Address

_HOST = "127.0.0.1"  # what a run does is nobody's business elsewhere
_STOP_GRACE = 0.25  # seconds that an answer under way may take at the end of the run
_PLAIN = "text/plain; charset=utf-8"


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
    page = MetricsPage(registry_of(lambda: metrics.families(trio.current_time())))
    stop, failure = trio.Event(), None
    listeners, address = await _listen(port)
    from trioeval.serving.listening import serve_app  # noqa: PLC0415 - takes a while

    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_app, page, listeners, stop, grace=_STOP_GRACE))
        say(f"metrics: {address.url}/metrics")
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below, where no nursery wraps it
            failure = error
        finally:
            stop.set()
    if failure is not None:
        raise failure


async def _listen(port: int) -> "tuple[list[trio.SocketListener], Address]":
    from trioeval.serving.listening import open_listeners  # noqa: PLC0415

    try:
        return await open_listeners(_HOST, port)
    except OSError as error:
        why = error.strerror or error
        if error.errno == errno.EADDRINUSE:
            why = "another program listens there; 0 takes a free port"
        raise UsageError(f"--metrics-port {port}: {why}") from error


@attrs.frozen
class MetricsPage:
    """The one page there is, as an ASGI application behind its door."""

    _registry: "CollectorRegistry"

    async def __call__(self, scope: "Scope", _receive: "Receive", send: "Send") -> None:
        """Answer."""
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        status, kind, body = self._answer(scope["method"], headers)
        told = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, method: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - an extra

        if not OwnNames(host=_HOST).has(headers.get("host", "")):
            return 421, _PLAIN, f"This server has another name: {_HOST}.\n".encode()
        if is_of_foreign_page(headers):
            return 403, _PLAIN, b"A page of another origin sends this.\n"
        if method not in {"GET", "HEAD"}:
            return 405, _PLAIN, b"Metrics are read.\n"
        encode, kind = choose_encoder(headers.get("accept", ""))
        return 200, kind, encode(self._registry)


def registry_of(snapshot: Callable[[], Iterable[Family | Distribution]]) -> "CollectorRegistry":
    """What the library makes its text of.

    Args:
        snapshot: Tells how everything stands.

    Raises:
        UsageError: The library is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra
        from prometheus_client.registry import Collector  # noqa: PLC0415
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
