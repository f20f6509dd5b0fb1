"""The destination of spans and events: what the process has configured, or what environment variables set.

`opentelemetry-instrument` configures a process before its program begins. If nothing is configured, the SDK
is set up here in the same way, with exporters by `OTEL_TRACES_EXPORTER`, `OTEL_LOGS_EXPORTER` and
`OTEL_EXPORTER_OTLP_PROTOCOL`; the SDK and exporters read all other variables themselves. The rest of the
process is not configured.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Literal, TypeAlias

import attrs
from opentelemetry import _logs, trace

from trioeval._version import __version__
from trioeval.errors import UsageError

Signal: TypeAlias = Literal["traces", "logs"]

INSTALL = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"

_OTLP: Mapping[str, str] = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_QUEUE = 16_384
"""The default size of the queues of spans and events; larger than the SDK's, as small rows are fast."""


@attrs.frozen(kw_only=True)
class Exporting:
    """The makers of spans and events, and the functions that flush them at the end."""

    tracer: trace.Tracer
    logger: _logs.Logger
    finish: Sequence[Callable[[], object]]
    """Each flushes one signal and may take long; to be called in a thread."""


def find_exporters(signal: Signal, environ: Mapping[str, str]) -> list[Callable[[], Any]] | None:
    """Return the exporters of a signal; None if the process has configured it already.

    Raises:
        UsageError: The SDK or an exporter is not installed.
    """
    found = trace.get_tracer_provider() if signal == "traces" else _logs.get_logger_provider()
    if type(found).__name__ not in ("ProxyTracerProvider", "ProxyLoggerProvider"):
        return None
    try:
        import opentelemetry.sdk  # noqa: F401 - only for who exports
    except ImportError:
        msg = (
            f"--otel: no exporter is configured, and opentelemetry-sdk is not installed: {INSTALL}"
        )
        raise UsageError(msg) from None
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    setting = environ.get(variable, "").strip() or "otlp"
    names = [name.strip() for name in setting.split(",")]
    return [_load(signal, name, variable, environ) for name in names if name and name != "none"]


def open_exporting(environ: Mapping[str, str]) -> Exporting:
    """Set up the signals that are not configured. Threads are started that never keep the process alive.

    Raises:
        UsageError: The SDK or an exporter is not installed, or rejects its variables.
    """
    traces, logs = find_exporters("traces", environ), find_exporters("logs", environ)
    tracers, loggers = trace.get_tracer_provider(), _logs.get_logger_provider()
    finish = []
    try:
        if traces is not None:
            tracers, end = _own_tracers(traces, environ)
            finish.append(end)
        else:
            finish.append(getattr(tracers, "force_flush", _nothing))
        if logs is not None:
            loggers, end = _own_loggers(logs, environ)
            finish.append(end)
        else:
            finish.append(getattr(loggers, "force_flush", _nothing))
    except Exception as error:  # any error of a foreign exporter
        msg = f"--otel: cannot be set up: {type(error).__name__}: {error}"
        raise UsageError(msg) from error
    return Exporting(
        tracer=tracers.get_tracer("trioeval", __version__),
        logger=loggers.get_logger("trioeval", __version__),
        finish=finish,
    )


def is_own(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether exporters are set up here for at least one signal."""
    return any(find_exporters(signal, environ) is not None for signal in ("traces", "logs"))


def _load(
    signal: Signal, name: str, variable: str, environ: Mapping[str, str]
) -> Callable[[], Any]:
    group = f"opentelemetry_{signal}_exporter"
    known = {one.name: one for one in entry_points(group=group)}
    if name == "otlp":
        protocol = (
            environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
            or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
            or next((one for one, entry in _OTLP.items() if entry in known), "http/protobuf")
        )
        if protocol not in _OTLP:
            msg = f"--otel: OTEL_EXPORTER_OTLP_PROTOCOL must be {' or '.join(_OTLP)}, got {protocol!r}"
            raise UsageError(msg)
        name = _OTLP[protocol]
    if name not in known:
        package = f"opentelemetry-exporter-{name.replace('_', '-')}"
        msg = f"--otel: {variable} wants the exporter {name}, which is not installed: pip install {package}"
        raise UsageError(msg)
    try:
        made: Callable[[], Any] = known[name].load()
    except ImportError as error:
        raise UsageError(f"--otel: the exporter {name} cannot be loaded: {error}") from None
    return made


def _own_tracers(
    exporters: Sequence[Callable[[], Any]], environ: Mapping[str, str]
) -> tuple[trace.TracerProvider, Callable[[], object]]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=_resource(environ), shutdown_on_exit=False)
    for make in exporters:
        size = None if "OTEL_BSP_MAX_QUEUE_SIZE" in environ else _QUEUE
        provider.add_span_processor(BatchSpanProcessor(make(), max_queue_size=size))
    return provider, provider.shutdown


def _own_loggers(
    exporters: Sequence[Callable[[], Any]], environ: Mapping[str, str]
) -> tuple[_logs.LoggerProvider, Callable[[], object]]:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = LoggerProvider(resource=_resource(environ), shutdown_on_exit=False)
    for make in exporters:
        size = None if "OTEL_BLRP_MAX_QUEUE_SIZE" in environ else _QUEUE
        provider.add_log_record_processor(BatchLogRecordProcessor(make(), max_queue_size=size))
    return provider, provider.shutdown


def _resource(environ: Mapping[str, str]) -> Any:
    """Return the service name; `trioeval` unless a variable sets another one."""
    from opentelemetry.sdk.resources import Resource

    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create(None if named else {"service.name": "trioeval"})


def _nothing() -> None:
    """Flush nothing."""
