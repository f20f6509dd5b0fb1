"""`--metrics-port`: metrics of a run over HTTP, only while it runs."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from trioeval.agent.protocols import AttemptStarted
from trioeval.cli.flags import OutputFlags, RunFlags
from trioeval.cli.run.observers import registry_of, serve_metrics
from trioeval.cli.stored_flags import StoredFlags, stored_flags
from trioeval.errors import UsageError
from trioeval.kernel import Lanes, LaneSpec
from trioeval.report.run_metrics import RunMetrics

DOCS = Path(__file__).parents[2] / "docs"
_ROW = re.compile(r"\| `([a-z_]+)` \| (\w+) \|([^|]*)\|")


def scrape(url: str) -> dict[str, float]:
    """Return every sample, by name and label values."""
    with urllib.request.urlopen(url, timeout=60) as reply:
        text = reply.read().decode()
    return {
        " ".join([sample.name.removeprefix("trioeval_"), *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def url_in(stderr: str) -> str:
    found = re.search(r"metrics: (http://127\.0\.0\.1:\d+/metrics)", stderr)
    assert found is not None, stderr
    return found[1]


def _metrics() -> RunMetrics:
    return RunMetrics(trio.current_time(), lanes=Lanes([LaneSpec("a", 2)]).statistics)


SUITE = {
    "providers": [{"id": "exec:sh {{suite}}/agent.sh", "label": "waits"}],
    "agents": {"maxConcurrentRuns": 1},
    "tasks": [
        {
            "id": "t",
            "type": "agent",
            "prompts": ["wait"],
            "tests": [{"id": "a"}, {"id": "b"}, {"id": "c", "dependsOn": "a"}],
        }
    ],
}
AGENT = """
read line < "$(dirname "$0")/go"
touch "$TRIOEVAL_DONE"
"""


@contextlib.contextmanager
def running(folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "trioeval", "suite.json", "--no-cache", "--no-table", *flags]
    with subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_metrics_are_served_during_the_run(tmp_path: Path) -> None:
    """They count working, waiting and blocked agents; after the run the port is closed."""
    (tmp_path / "suite.json").write_text(json.dumps(SUITE))
    (tmp_path / "agent.sh").write_text(AGENT)
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    with running(tmp_path, "--metrics-port", "0") as process:
        assert process.stderr is not None
        url = url_in(process.stderr.readline())
        found: dict[str, float] = {}
        while found.get("agent_runs_waiting") != 1 or found.get("agent_runs_active") != 1:
            found = scrape(url)
        assert found["agent_cases_blocked"] == 1
        assert found["lane_in_flight agent runs"] == found["lane_limit agent runs"] == 1
        assert found["agent_runs_begun_total waits"] == 1
        assert found["bus_appends_total"] >= 3  # blocked; starting; started
        assert found["bus_lock_wait_seconds_count"] >= found["bus_appends_total"]
        for number in range(1, 4):
            fifo.write_text("go\n")
            while found["agent_cases_ended_total done"] < number < 3:
                found = scrape(url)
        assert process.wait(60) == 0
    with pytest.raises(urllib.error.URLError):
        scrape(url)


@pytest.mark.slow
def test_a_port_in_use_ends_the_run_before_it_starts(tmp_path: Path) -> None:
    """No provider is called, and no run is stored."""
    (tmp_path / "suite.json").write_text('{"providers": ["echo"], "prompts": ["hi"]}')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with running(tmp_path, "--metrics-port", port) as process:
            _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stderr.splitlines() == [
        f"--metrics-port {port}: the port is in use; 0 chooses a free port"
    ]
    assert not (tmp_path / ".trioeval").exists()


def test_the_port_is_free_after_a_failed_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The port is closed, whatever ended the block."""

    async def main() -> str:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is meant to fail
            async with serve_metrics(0, _metrics()):
                url = url_in(capsys.readouterr().err)
                found = await trio.to_thread.run_sync(scrape, url)
                assert found["lane_limit a"] == 2
                raise ZeroDivisionError
        return url

    url = trio.run(main)
    with pytest.raises(urllib.error.URLError):
        scrape(url)
    with socket.create_server(("127.0.0.1", int(url.split(":")[2].split("/")[0]))):
        pass


def test_a_missing_library_is_reported_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This is the same as for every other extra."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    async def main() -> None:
        async with serve_metrics(0, _metrics()):
            pass

    with pytest.raises(UsageError, match=re.escape("pip install 'trioeval[metrics]'")):
        trio.run(main)


def families_of(*agents: str) -> list[Metric]:
    """The metrics of a run in which some agents have started."""
    metrics = RunMetrics(0.0, lanes=Lanes([LaneSpec("a", 2)]).statistics)
    for name in agents:
        metrics.observe_agent(
            AttemptStarted(at=0.0, task=None, case=name, agent=name, number=0, run_id=name)
        )
    text = generate_latest(registry_of(lambda: [*metrics.families(1.0)])).decode()
    return [*text_string_to_metric_families(text)]


def test_labels_may_contain_any_name() -> None:
    """Names from suites may contain quotes, line breaks and lone surrogates."""
    names = ('a "b"', "two\nlines", "\\", "half \ud800", "half \ud801")
    (begun,) = [one for one in families_of(*names) if one.name == "trioeval_agent_runs_begun"]
    shown = {sample.labels["agent"] for sample in begun.samples}
    assert shown == {*names[:3], "half \\ud800", "half \\ud801"}


def test_the_page_lists_every_metric() -> None:
    """It lists every name with its type and labels, in this order."""
    served = []
    for family in families_of("x"):
        labels = [*family.samples[0].labels] if family.type != "histogram" else []
        name = f"{family.name}_total" if family.type == "counter" else family.name
        served.append((name, family.type, ", ".join(f"`{label}`" for label in labels)))
    page = (DOCS / "reference" / "metrics.md").read_text()
    assert served == [(name, kind, labels.strip()) for name, kind, labels in _ROW.findall(page)]


def test_a_continued_run_serves_metrics_only_with_the_flag(tmp_path: Path) -> None:
    """The port applies to one execution."""
    given = RunFlags(output=OutputFlags(metrics_port=9464, table=False))
    stored = stored_flags(tmp_path / "s.yaml", given, (), {})
    again = StoredFlags.read(json.loads(json.dumps(stored.json())), "r")
    assert again.output == OutputFlags(table=False)
    assert again.with_flags(RunFlags()).output.metrics_port is None
    assert again.with_flags(RunFlags(output=OutputFlags(metrics_port=1))).output.metrics_port == 1
