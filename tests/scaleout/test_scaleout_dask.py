"""Runs on real worker processes: the rows are those of one process, whatever happens to the workers."""

import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from asked_questions import quiz
from clusters import ClusterRun, local_cluster, plain, processes, run_on, written
from distributed import LocalCluster
from test_scaleout_questions import timeless

from trioeval.errors import UsageError
from trioeval.kernel import StopReason
from trioeval.providers.fake.server import ServedCompletion, serve_fake
from trioeval.providers.fake.settings import FakeSettings
from trioeval.run import Row, collect

pytestmark = [pytest.mark.slow, pytest.mark.network]

WIDTH = 8


def suite(count: int, provider: object = "echo") -> dict[str, Any]:
    return {
        "providers": [provider],
        "prompts": ["say {{word}}"],
        "tests": [
            {"vars": {"word": f"word {number}"}, "assert": [{"type": "contains", "value": "1"}]}
            for number in range(count)
        ],
    }


def remote(url: str, **lane: object) -> dict[str, Any]:
    config = {"apiBaseUrl": url, "apiKeyEnvar": "SCALEOUT_TEST_KEY"}
    settings = {
        "maxConcurrency": WIDTH,
        "retries": 8,
        "retryDelay": 0.02,
        "refusalDelay": 0.02,
        **lane,
    }
    return {"id": "openai:chat:m", "config": config, "lane": settings}


def test_rows_of_a_free_provider_are_those_of_one_process(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Both workers run some of them; each keeps its prompt, output, verdict and place."""
    path = written(tmp_path, suite(500))
    local = trio.run(collect, path)
    run = trio.run(run_on, cluster.scheduler_address, path)
    assert plain(run.rows) == plain(local)
    assert not run.warnings


def test_questions_on_workers_are_those_of_one_process(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Their rows, with tools and events, survive the way from a worker; a model is a function."""
    (tmp_path / "model.py").write_text(
        "def call_api(prompt, options, context):\n"
        "    choice = 'Blue' if 'Colour 1?' in prompt else 'Red'\n"
        "    return {'output': f'<answer>{choice}</answer>', 'tokenUsage': {'total': 7}}\n"
    )
    entry = {"concurrency": 3, "budget": {"maxSteps": 2}}
    document = {**quiz(tmp_path, 12, entry=entry), "providers": [f"python:{tmp_path}/model.py"]}
    path = written(tmp_path, document)
    local = trio.run(collect, path)
    run = trio.run(run_on, cluster.scheduler_address, path)
    assert timeless(run.rows) == timeless(local)
    assert [row.status.value for row in run.rows].count("pass") == 1
    assert not run.warnings


def test_refused_and_failed_calls_are_retried_on_the_owner_at_its_rate(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law PACE holds over all workers: one of them owns the lane."""
    monkeypatch.setenv("SCALEOUT_TEST_KEY", "k")
    starts: list[float] = []

    def on_served(served: ServedCompletion) -> None:
        starts.append(trio.current_time() - served.seconds)

    async def main() -> tuple[ClusterRun, str]:
        async with trio.open_nursery() as nursery:
            settings = FakeSettings(latency_s=0.01, failure_rate=0.1, throttle_rate=0.1, seed=3)
            address = await nursery.start(serve_fake, settings, on_served)
            path = written(tmp_path, suite(120, remote(address.base_url, rpm=3000)))
            run = await run_on(cluster.scheduler_address, path)
            nursery.cancel_scope.cancel()
        return run, path

    run, _path = trio.run(main)
    assert [row.output for row in run.rows] == [f"say word {number}" for number in range(120)]
    starts.sort()
    assert len(starts) > 120  # some failed
    for first in range(len(starts)):  # 50 a second, and a burst of one
        window = [at for at in starts[first:] if at < starts[first] + 1]
        assert len(window) <= 52, "law PACE"


def test_a_stopped_run_ends_its_running_rows_and_starts_no_more(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law DRAIN: every row is emitted, and those that did not run say so."""
    monkeypatch.setenv("SCALEOUT_TEST_KEY", "k")
    served = 0

    def on_served(_one: ServedCompletion) -> None:
        nonlocal served
        served += 1

    def on_row(run: ClusterRun, row: Row) -> None:
        if row.index == 20:
            run.stop.set()

    async def main() -> ClusterRun:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_fake, FakeSettings(latency_s=0.05), on_served)
            path = written(tmp_path, suite(400, remote(address.base_url)))
            run = await run_on(cluster.scheduler_address, path, on_row=on_row)
            nursery.cancel_scope.cancel()
        return run

    run = trio.run(main)
    assert [row.index for row in run.rows] == list(range(400))
    finished = [row for row in run.rows if row.cut is None]
    assert 20 < len(finished) < 400
    assert served == len(finished)
    assert {row.cut for row in run.rows} == {None, StopReason.STOP}


def test_a_cancelled_run_cuts_the_calls_of_its_workers(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row is still emitted, and nothing is requested any more."""
    monkeypatch.setenv("SCALEOUT_TEST_KEY", "k")
    endings: Counter[str] = Counter()

    def on_served(one: ServedCompletion) -> None:
        endings[one.ending] += 1

    rows: list[Row] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_fake, FakeSettings(latency_s=0.5), on_served)
            path = written(tmp_path, suite(100, remote(address.base_url)))
            with trio.CancelScope() as scope:

                def on_row(_run: ClusterRun, row: Row) -> None:
                    rows.append(row)
                    if row.index == 3:
                        scope.cancel()

                await run_on(cluster.scheduler_address, path, on_row=on_row)
            await trio.testing.wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert [row.index for row in rows] == list(range(100))
    finished = [row for row in rows if row.cut is None]
    assert {row.cut for row in rows} == {None, StopReason.CANCEL}
    assert endings["abandoned"] >= 1
    assert endings.total() <= len(finished) + 2 * WIDTH


# Refusals: nothing was called.


def test_workers_without_the_key_of_a_provider_are_refused_by_name(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_OF_THE_RUN", "k")
    provider = remote("http://127.0.0.1:9/v1")
    provider["config"]["apiKeyEnvar"] = "ONLY_OF_THE_RUN"
    path = written(tmp_path, suite(3, provider))
    with pytest.raises(UsageError, match=r"(?s)worker tcp://.*ONLY_OF_THE_RUN"):
        trio.run(run_on, cluster.scheduler_address, path)


def test_workers_with_another_suite_are_refused(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable has another value there."""
    monkeypatch.setenv("SCALEOUT_TEST_KEY", "other")
    path = written(tmp_path, {**suite(3), "prompts": ["say {{ env.SCALEOUT_TEST_KEY }}"]})
    text = r"worker tcp://.* has loaded another suite"
    with pytest.raises(UsageError, match=text):
        trio.run(run_on, cluster.scheduler_address, path)


def test_an_unreachable_scheduler_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trioeval.scaleout import dask_cluster

    monkeypatch.setattr(dask_cluster, "REACHED_WITHIN", 0.5)
    with pytest.raises(UsageError, match=r"no Dask scheduler responds at tcp://127.0.0.1:9"):
        trio.run(partial(run_on, "tcp://127.0.0.1:9", written(tmp_path, suite(3))))


def test_a_cluster_without_workers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trioeval.scaleout import dask_cluster

    monkeypatch.setattr(dask_cluster, "REACHED_WITHIN", 0.5)
    with (
        local_cluster(0) as empty,
        pytest.raises(UsageError, match="the cluster has no workers"),
    ):
        trio.run(run_on, empty.scheduler_address, written(tmp_path, suite(3)))


def test_a_killed_worker_loses_no_row_and_repeats_only_calls_in_flight(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws TOTAL, ORDER and RESUME: its rows run on another worker, with the replies that arrived."""
    monkeypatch.setenv("SCALEOUT_TEST_KEY", "k")
    served: Counter[bytes] = Counter()
    killed: list[str] = []

    def on_served(one: ServedCompletion) -> None:
        served[one.body] += one.ending == "sent" and one.status == 200

    def on_row(run: ClusterRun, row: Row) -> None:
        if row.index == 20:
            killed.extend(run.owners())
            os.kill(processes(cluster)[killed[0]], signal.SIGKILL)

    async def main() -> ClusterRun:
        async with trio.open_nursery() as nursery:
            settings = FakeSettings(latency_s=0.05, failure_rate=0.05, seed=3)
            address = await nursery.start(serve_fake, settings, on_served)
            path = written(tmp_path, suite(100, remote(address.base_url)))
            run = await run_on(cluster.scheduler_address, path, on_row=on_row)
            nursery.cancel_scope.cancel()
        return run

    run = trio.run(main)
    assert len(killed) == 1
    assert [row.index for row in run.rows] == list(range(100))
    assert [row.output for row in run.rows] == [f"say word {number}" for number in range(100)]
    assert sum(count - 1 for count in served.values() if count > 1) <= WIDTH
