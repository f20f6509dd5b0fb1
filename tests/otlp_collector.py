"""A collector of OpenTelemetry data that speaks OTLP over HTTP, and the checks of a traced run."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs


@attrs.define
class Collector:
    """The requests that an OpenTelemetry collector received."""

    url: str
    spans: list[Any] = attrs.field(factory=list)
    events: list[Any] = attrs.field(factory=list)
    services: set[str] = attrs.field(factory=set)

    def take(self, path: str, body: bytes) -> None:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            for resource in traces.resource_spans:
                self.services.add(attributes(resource.resource)["service.name"])
                self.spans += (span for scope in resource.scope_spans for span in scope.spans)
        elif path == "/v1/logs":
            logs = ExportLogsServiceRequest.FromString(body)
            for found in logs.resource_logs:
                self.events += (one for scope in found.scope_logs for one in scope.log_records)


def attributes(found: Any) -> Mapping[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found.attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that speaks OTLP over HTTP, on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield found
        finally:
            server.shutdown()


def check_collected(got: Collector, *, rows: int, calls: int, refused: int) -> None:
    """Check that every row, call and verdict exists under its parent."""
    assert Counter(span.name for span in got.spans) == {
        "trioeval.run": 1,
        "trioeval.row": rows,
        "chat gpt-x": calls,
    }
    assert len({span.trace_id for span in got.spans}) == 1
    assert got.services == {"trioeval"}
    [run] = [span for span in got.spans if span.name == "trioeval.run"]
    assert attributes(run)["trioeval.suite.description"] == "words for [hidden]"
    of_rows = {span.span_id for span in got.spans if span.name == "trioeval.row"}
    of_calls = {span.span_id: span for span in got.spans if span.name == "chat gpt-x"}
    answered = set()
    for call in of_calls.values():
        found = attributes(call)
        assert (found["gen_ai.provider.name"], found["server.address"]) == ("openai", "127.0.0.1")
        assert found["server.port"] > 0
        assert call.parent_span_id in of_rows
        if "error.type" in found:
            assert (found["error.type"], found["http.response.status_code"]) == (
                "rate_limited",
                429,
            )
        else:
            assert found["gen_ai.usage.input_tokens"] > 0
            answered.add(call.span_id)
        assert run.start_time_unix_nano <= call.start_time_unix_nano
        assert call.end_time_unix_nano <= run.end_time_unix_nano
    assert len(of_calls) - len(answered) == refused
    assert len(got.events) == rows
    assert {event.span_id for event in got.events} == answered
    assert {event.event_name for event in got.events} == {"gen_ai.evaluation.result"}
