"""Flushing at the end of a run, and reports of data that cannot be sent."""

import sys
from collections.abc import Callable

import pytest
import trio
from opentelemetry import _logs, trace

from trioeval.cli.run.observers import check_telemetry, open_telemetry
from trioeval.errors import UsageError
from trioeval.telemetry.export import Exporting


def test_an_sdk_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing packages are reported before any call."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(UsageError, match="opentelemetry-sdk is not installed: pip install opentel"):
        check_telemetry()


def send(monkeypatch: pytest.MonkeyPatch, *finish: Callable[[], object]) -> list[str]:
    """Return the warnings at the end of a run with this flush."""
    exporting = Exporting(
        tracer=trace.NoOpTracer(), logger=_logs.NoOpLogger("trioeval"), finish=finish
    )
    monkeypatch.setattr("trioeval.telemetry.export.open_exporting", lambda _environ: exporting)
    warnings: list[str] = []

    async def main() -> None:
        async with open_telemetry(
            run_id="r", description=None, keys=(), warn=warnings.append
        ) as telemetry:
            assert telemetry is not None

    trio.run(main)
    return warnings


def test_an_exporter_that_raises_at_the_end_is_reported_and_loses_no_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failing exporter does not affect others."""
    sent: list[str] = []

    def broken() -> None:
        raise ValueError("no such \x1b[31mplace")

    warnings = send(monkeypatch, broken, lambda: sent.append("logs"))
    assert warnings == ["--otel: some data cannot be sent: ValueError: no such [31mplace"]
    assert sent == ["logs"]
    assert send(monkeypatch, lambda: sent.append("spans")) == []
