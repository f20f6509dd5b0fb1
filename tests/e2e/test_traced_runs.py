"""`--trace` and `--otel` as a user uses them: real processes, files, servers and exporters."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from otlp_collector import check_collected, collector
from server_process import fake_provider
from test_command_line import ENV, trioeval, write
from trace_rules import check_trace, read_cut

pytestmark = [pytest.mark.slow, pytest.mark.network]

ECHO = {
    "providers": ["echo"],
    "prompts": ["{{word}}"],
    "tests": [{"description": "first", "vars": {"word": "a"}}, {"vars": {"word": "b"}}],
}
QUIET = ("--no-table", "--no-progress", "--no-cache", "--no-live")


def suite_of(url: str, tests: int, **lane: Any) -> dict[str, Any]:
    return {
        "description": "words for sk-0123456789abc",
        "providers": [
            {
                "id": "openai:chat:gpt-x",
                "config": {"apiBaseUrl": url, "apiKey": "sk-0123456789abc"},
                "lane": {"retryDelay": 0.05, **lane},
            }
        ],
        "prompts": ["Say {{word}}"],
        "tests": [
            {"vars": {"word": f"w{n}"}, "assert": [{"type": "contains", "value": "w"}]}
            for n in range(tests)
        ],
    }


def test_a_run_that_is_killed_leaves_a_trace_that_viewers_open(tmp_path: Path) -> None:
    """It has everything until then, including the calls in flight."""
    with fake_provider("--latency", "600") as url:
        write(tmp_path / "s.json", suite_of(url, 3))
        process = subprocess.Popen(
            [sys.executable, "-m", "trioeval", "s.json", "--trace", "t.json", *QUIET],
            cwd=tmp_path,
            env=ENV,
            stderr=subprocess.DEVNULL,
        )
        trace = tmp_path / "t.json"
        ends_at = time.monotonic() + 60
        while not trace.exists() or trace.read_text().count('"ph":"B"') < 3:
            assert time.monotonic() < ends_at
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert check_trace(read_cut(trace.read_text()), whole=False).unfinished == 3


def test_a_real_run_is_traced_to_a_file_and_a_collector(tmp_path: Path) -> None:
    """All sums are those of the provider and the store; a resumed run has its own trace.

    No prompt, reply or key is in any of it.
    """
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    flags = ("--max-in-flight", "3", "--latency", "0.15", "--reply", "wonderful words")
    with fake_provider(*flags) as url, collector() as got:
        write(tmp_path / "s.json", suite_of(url, 20, maxConcurrency=6))
        found = ("-o", "o.json", "--trace", "new/run.json", "--otel", *QUIET)
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": got.url}
        done = trioeval("s.json", *found, cwd=tmp_path, env=environ)
        assert done.returncode == 0, done.stderr
        assert "otel" not in done.stderr
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stats") as answer:
            served = json.loads(answer.read())
        text = (tmp_path / "new" / "run.json").read_text()
        rows = json.loads((tmp_path / "o.json").read_text())["results"]["results"]
        (tmp_path / "new" / "run.json").write_text("x" * 1_000_000)
        again = ("resume", "--retry", "3,5", "--trace", "new/run.json", *QUIET)
        assert trioeval(*again, cwd=tmp_path).returncode == 0
    drawn = check_trace(json.loads(text))
    [lane] = drawn.calls
    attempts = sum(row["metadata"]["trioeval"]["attempts"] for row in rows)
    assert drawn.calls[lane] == served["requests"] == attempts
    assert drawn.refused[lane] == drawn.errors["rate_limited"] > 0
    assert 3 <= drawn.most[lane] <= 6
    assert Counter(one["args"]["outcome"] for one in drawn.jobs) == {"Done": 20}
    records = json.loads((tmp_path / "new" / "run.json").read_text())
    assert check_trace(records).calls.total() >= 2
    assert [one["args"]["job"] for one in records if one["ph"] == "b"] == ["3", "5"]
    check_collected(got, rows=20, calls=attempts, refused=drawn.refused[lane])
    for secret in ("wonderful", "Say w", "sk-0123456789abc"):
        assert secret not in text + repr(got.spans) + repr(got.events)


def test_failed_tracing_is_reported_once_and_does_not_fail_the_run(tmp_path: Path) -> None:
    """A full disk and a missing collector delay the end only a little."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    write(tmp_path / "s.json", ECHO)
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    }
    full = Path("/dev/full")
    trace = str(full) if full.exists() else "t.json"
    began_at = time.monotonic()
    done = trioeval("s.json", "--otel", "--trace", trace, *QUIET, cwd=tmp_path, env=environ)
    assert done.returncode == 0
    assert done.stderr.count("warning: --otel: some data cannot be sent") == 1
    if full.exists():
        found = "warning: --trace /dev/full: cannot be written: No space left"
        assert done.stderr.count(found) == 1
    assert done.stderr.count("\n") <= 9
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began_at < 60


RUN_WITH = """
import os, sys
{before}
sys.argv = ["trioeval", *sys.argv[1:]]
from trioeval.__main__ import main
main()
"""


def run_with(before: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A run in a process in which some code ran before."""
    return subprocess.run(
        [sys.executable, "-c", RUN_WITH.format(before=before), "s.json", "--otel", *QUIET],
        cwd=folder,
        env={name: value for name, value in ENV.items() if not name.startswith("OTEL_")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_missing_package_is_named_before_any_call(tmp_path: Path) -> None:
    write(tmp_path / "s.json", ECHO)
    done = run_with("sys.modules['opentelemetry'] = None", tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "--otel needs the extra `otel` and an exporter: pip install 'trioeval[otel]' "
        "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http\n"
    )


CONFIGURED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, BatchSpanProcessor
provider = TracerProvider()
out = open("spans.json", "w")
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=out)))
trace.set_tracer_provider(provider)
os.environ["OTEL_LOGS_EXPORTER"] = "none"
"""


def test_the_configuration_of_the_process_is_used(tmp_path: Path) -> None:
    """`opentelemetry-instrument` configures it like this; the rest is sent before the last line."""
    write(tmp_path / "s.json", ECHO)
    done = run_with(CONFIGURED, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "otel" not in done.stderr
    found = (tmp_path / "spans.json").read_text()
    assert found.count('"name": "trioeval.row"') == 2
