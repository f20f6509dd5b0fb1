"""Views of a run on worker processes: progress, live view, traces, telemetry, recordings."""

import json
import signal
import subprocess
import urllib.request
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from otlp_collector import check_collected, collector
from patience import PATIENCE
from redis_server import needs_redis, open_server
from scaleout_command import ROWS, command, suite, wait_gone
from server_process import fake_provider, stats_of
from trace_rules import check_trace

from trioeval.cli import run_command_line
from trioeval.limits.redis import open_redis
from trioeval.web.live_client import Live, open_live

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(300)]


def objects(process: "subprocess.Popen[str]") -> Iterator[dict[str, Any]]:
    """Yield the objects of `--progress-mode json`."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("{"):
            yield json.loads(line)


def graded_suite(url: str) -> dict[str, Any]:
    found = suite(url)
    found["providers"][0]["config"]["apiKey"] = "sk-0123456789abc"
    found["providers"][0]["id"] = "openai:chat:gpt-x"
    tests = [{**test, "assert": [{"type": "contains", "value": "w"}]} for test in found["tests"]]
    return {**found, "tests": tests, "description": "words for sk-0123456789abc"}


def test_traces_telemetry_recordings_and_progress_have_everything_that_workers_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sums are those of the provider and the store; no prompt, reply or key is in a trace."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    flags = ("--max-in-flight", "3", "--latency", "0.1", "--reply", "wonderful words")
    with fake_provider(*flags) as url, collector() as got, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)
        (tmp_path / "s.json").write_text(json.dumps(graded_suite(url)))
        words = ("--trace", "t.json", "--otel", "--record", "r.jsonl", "-o", "o.jsonl")
        with command(
            tmp_path, "s.json", "--on", "local:2", *words, "--no-cache", mode="json"
        ) as process:
            *found, end = objects(process)
            process.wait()
        assert process.returncode == 0, end
        served = stats_of(url)["requests"]
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    attempts = sum(row["metadata"]["trioeval"]["attempts"] for row in rows)
    assert attempts == served > ROWS, "some calls were refused"
    refused = served - ROWS

    # The last progress has what the workers have done.
    last = [one for one in found if one["type"] == "progress"][-1]
    (lane,) = last["lanes"]
    assert (lane["calls"], lane["refused"], lane["done"]) == (served, refused, ROWS)
    assert lane["tokens"] == last["tokens"] > 0
    assert sum(worker["rows"] for worker in last["workers"]) == ROWS
    of_workers = [one for worker in last["workers"] for one in worker["lanes"]]
    assert [one["calls"] for one in of_workers] == [served], "its owner made all calls"

    # The trace: a process for each worker that had rows.
    text = (tmp_path / "t.json").read_text()
    processes: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for record in json.loads(text):
        processes[record["pid"]].append(record)
    (run, drawn) = (check_trace(found, process=pid) for pid, found in sorted(processes.items()))
    assert not run.calls
    assert drawn.process.startswith("worker ")
    (name,) = drawn.calls
    assert (drawn.calls[name], drawn.refused[name]) == (served, refused)
    assert Counter(one["args"]["outcome"] for one in drawn.jobs) == {"Done": ROWS}

    check_collected(got, rows=ROWS, calls=served, refused=refused)
    for secret in ("wonderful", "say w", "sk-0123456789abc"):
        assert secret not in text + repr(got.spans) + repr(got.events)

    # The recording answers the same run again, on this machine.
    recorded = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert len(recorded) == served
    assert len({one["prompt"] for one in recorded if "output" in one}) == ROWS
    monkeypatch.chdir(tmp_path)
    again_words = ["--replay", "r.jsonl", "-o", "again.jsonl", "--no-progress", "--no-table"]
    assert run_command_line(["s.json", *again_words]) == 0
    again = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    assert [one["response"]["output"] for one in again] == [
        one["response"]["output"] for one in rows
    ]


@asynccontextmanager
async def watched(run_id: str) -> AsyncIterator[tuple[Live, Callable[..., Any]]]:
    """Connect to a run; yields it, and a function that waits for a state of it."""
    async with open_live(run_id) as live:

        async def wait_state(wanted: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
            async for state in live.states():
                if wanted(state):
                    return state
            pytest.fail("the run has ended")

        yield live, wait_state


def samples(url: str, name: str) -> list[float]:
    """Return the values of a metric."""
    with urllib.request.urlopen(url) as reply:
        lines = reply.read().decode().splitlines()
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)]


def test_a_run_on_workers_is_watched_and_steered_with_the_worker_as_a_dimension(
    tmp_path: Path,
) -> None:
    """A lane is paused on the worker that uses it, continues, and is stopped with its rows drained."""

    async def main(run_id: str, metrics: str) -> None:
        async with watched(run_id) as (live, wait_state):
            state = await wait_state(lambda found: any(one["inFlight"] for one in found["lanes"]))
            name = state["lanes"][0]["name"]
            (used,) = [one for worker in state["workers"] for one in worker["lanes"]]
            assert used["name"] == name
            assert sum(worker["inFlight"] for worker in state["workers"]) == used["inFlight"] > 0
            assert max(samples(metrics, "trioeval_lane_in_flight")) > 0

            assert (await live.ask({"do": "pause", "lane": name}))["ok"]
            paused = await wait_state(
                lambda found: (
                    found["lanes"][0]["mood"] == "paused" and not found["lanes"][0]["inFlight"]
                )
            )
            calls = paused["lanes"][0]["calls"]
            assert (await live.ask({"do": "retune", "lane": name, "maxConcurrency": 3}))["ok"]
            assert (await live.ask({"do": "resume", "lane": name}))["ok"]
            more = await wait_state(lambda found: found["lanes"][0]["calls"] > calls)
            assert more["lanes"][0]["maxConcurrency"] == 3
            assert more["lanes"][0]["inFlight"] <= 3
            assert (await live.ask({"do": "stop"}))["ok"]

    with fake_provider("--latency", "0.3") as url:
        (tmp_path / "s.json").write_text(json.dumps(suite(url)))
        words = ("--on", "local:2", "--live", "--metrics-port", "0")
        with command(tmp_path, "s.json", *words, "-o", "o.jsonl", mode="json") as process:
            found = objects(process)
            address = next(one["text"] for one in found if "metrics:" in one.get("text", ""))
            next(
                one for one in found if any(worker["inFlight"] for worker in one.get("workers", ()))
            )
            run_id = _run_id(tmp_path)
            trio.run(main, run_id, address.removeprefix("metrics: "))
            *_, end = found
            process.wait()
            wait_gone(process.pid)
    assert (end["type"], process.returncode) == ("end", 100), end
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert len(rows) == ROWS
    assert {row["error"] for row in rows if not row["success"]} == {"not run: the run was stopped"}


@needs_redis
def test_a_retuned_lane_of_a_run_on_workers_has_its_new_width_in_redis(tmp_path: Path) -> None:
    """WIDTH: over all workers; a rate that the lane did not have is refused."""

    async def main(run_id: str, redis: str) -> None:
        async with (
            watched(run_id) as (live, wait_state),
            open_redis(redis, namespace="views", request_timeout=PATIENCE) as limits,
        ):
            state = await wait_state(lambda found: any(one["inFlight"] for one in found["lanes"]))
            name = state["lanes"][0]["name"]

            async def width() -> int:
                (found,) = [
                    one for one in await limits.states() if one.limit.key.endswith(":slots")
                ]
                return found.pending_capacity or found.limit.capacity

            assert await width() == 2
            refused = await live.ask({"do": "retune", "lane": name, "rpm": 60})
            assert "set rpm in the suite" in str(refused)
            assert (await live.ask({"do": "retune", "lane": name, "maxConcurrency": 5}))["ok"]
            while await width() != 5:
                await trio.lowlevel.checkpoint()
            assert (await live.ask({"do": "stop"}))["ok"]

    with open_server() as redis, fake_provider("--latency", "0.3") as url:
        found = suite(url)
        found["providers"][0]["lane"] = {"maxConcurrency": 2}
        found["limits"] = {"backend": "redis", "url": redis.url, "namespace": "views"}
        (tmp_path / "s.json").write_text(json.dumps(found))
        with command(tmp_path, "s.json", "--on", "local:2", "--live", mode="json") as process:
            told = objects(process)
            next(
                one for one in told if any(worker["inFlight"] for worker in one.get("workers", ()))
            )
            trio.run(main, _run_id(tmp_path), redis.url)
            *_, end = told
            process.wait()
            wait_gone(process.pid)
    assert (end["type"], process.returncode) == ("end", 100), end


def _run_id(folder: Path) -> str:
    from trioeval.store.reader import read_store

    with read_store(folder / ".trioeval" / "results.db") as reader:
        (run,) = reader.runs()
        return run.id


TEST = {"vars": {"word": 1}, "assert": [{"type": "is-json"}]}


def test_a_watched_suite_runs_again_on_fresh_workers(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"providers": ["echo"], "prompts": ["a"], "tests": [TEST]}))
    with command(tmp_path, "s.json", "--on", "local:1", "--watch") as process:
        assert process.stderr is not None
        lines = iter(process.stderr)
        first = next(line for line in lines if line.startswith("1 row"))
        next(line for line in lines if line.startswith("watching"))
        path.write_text(json.dumps({"providers": ["echo"], "prompts": ["a", "b"], "tests": [TEST]}))
        second = next(line for line in lines if line.startswith("2 rows"))
        next(line for line in lines if line.startswith("watching"))
        process.send_signal(signal.SIGINT)
        process.wait(60)
        wait_gone(process.pid)
    assert "1 failed" in first
    assert "2 failed" in second
    assert process.returncode == 0


def test_workers_of_this_machine_share_the_cache_of_the_run(tmp_path: Path) -> None:
    """A run finds the replies that another has paid for, on workers or here; --record requests them anew."""
    ways: Sequence[tuple[Sequence[str], int]] = [
        (("--on", "local:2"), ROWS),
        (("--on", "local:1"), 0),
        ((), 0),
        (("--on", "local:1", "--record", "r.jsonl"), ROWS),
    ]
    with fake_provider() as url:
        (tmp_path / "s.json").write_text(json.dumps(suite(url)))
        for words, calls in ways:
            before = stats_of(url)["requests"]
            with command(tmp_path, "s.json", *words, "-o", "o.jsonl") as process:
                _, text = process.communicate(timeout=100)
            assert process.returncode == 0, text
            assert stats_of(url)["requests"] - before == calls
            rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
            assert {row["response"]["cached"] for row in rows} == {not calls}
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == ROWS
