"""Exporters in memory, and runs in virtual time with telemetry."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import trio
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trioeval import Row, parse_suite
from trioeval.run import RunOptions, run_with_options
from trioeval.telemetry.spans import Telemetry
from trioeval.testing import run_virtual

EPOCH = 1_700_000_000 * 10**9
"""The start of runs in nanoseconds since 1970."""


@attrs.define
class Exported:
    """The exported spans and events."""

    spans: list[ReadableSpan]
    events: list[Any]
    rows: list[Row]
    ended: bool
    """True if no span or call is left open."""

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def parent(self, span: ReadableSpan) -> ReadableSpan | None:
        ids = {one.context.span_id: one for one in self.spans if one.context is not None}
        return None if span.parent is None else ids.get(span.parent.span_id)

    @property
    def calls(self) -> list[ReadableSpan]:
        """Return the spans of calls by start."""
        found = [span for span in self.spans if "gen_ai.operation.name" in attributes(span)]
        return sorted(found, key=lambda span: span.start_time or 0)


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


def seconds(span: ReadableSpan) -> tuple[float, float]:
    """Return the start and end of a span, from the start of the run."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.start_time - EPOCH) / 1e9, (span.end_time - EPOCH) / 1e9


def export(
    document: Mapping[str, Any],
    models: Mapping[str, Any],
    *,
    journal: Any = None,
    cut_at: float = float("inf"),
    context: Callable[[Any], Any] | None = None,
    directory: Path | None = None,
    is_virtual: bool = True,
    **how: Any,
) -> Exported:
    """Run a suite with telemetry."""
    spans, logs = InMemorySpanExporter(), InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    telemetry = Telemetry(
        tracer=tracers.get_tracer("test"),
        logger=loggers.get_logger("test"),
        clock=lambda: EPOCH,
        **how,
    )
    rows: list[Row] = []

    async def emit(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    async def go() -> None:
        with trio.move_on_after(cut_at), telemetry:
            await run_with_options(
                parse_suite(document, environ={}, directory=directory),
                RunOptions(
                    emit=emit,
                    observers=telemetry.observer,
                    journal=journal,
                    record_observers=[telemetry],
                ),
                providers=models,
            )
            assert telemetry._rows == {}

    if not is_virtual:  # it writes files, in threads
        trio.run(go)
    elif context is None:
        run_virtual(go)
    else:
        run_virtual(context, (tracers, go))
    return Exported(
        spans=list(spans.get_finished_spans()),
        events=list(logs.get_finished_logs()),
        rows=rows,
        ended=not telemetry._rows,
    )
