"""Runs of programs on workers, through the public functions."""

import asyncio
import functools
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from clusters import plain
from distributed import LocalCluster
from own_models import Prefixer, reverse
from redis_server import needs_redis, open_server
from server_process import fake_provider

import trioeval
import trioeval.asyncio
from trioeval.errors import SuiteError, UsageError
from trioeval.providers import Provider
from trioeval.run import Row
from trioeval.scaleout import WorkerPool, open_workers

pytestmark = [pytest.mark.slow, pytest.mark.network]

ROWS = 60
SUITE: dict[str, Any] = {
    "providers": ["echo"],
    "prompts": ["say {{word}}"],
    "tests": [
        {"vars": {"word": f"word {number}"}, "assert": [{"type": "contains", "value": "1"}]}
        for number in range(ROWS)
    ],
}


@pytest.fixture(scope="module")
def here() -> list[Row]:
    return trio.run(trioeval.collect, trioeval.parse_suite(SUITE))


def written(folder: Path) -> Path:
    path = folder / "suite.json"
    path.write_text(json.dumps(SUITE))
    return path


@pytest.mark.parametrize(
    "source",
    [lambda _folder: SUITE, lambda _folder: trioeval.parse_suite(SUITE), written],
    ids=["data", "suite", "path"],
)
def test_a_suite_given_in_any_form_has_the_rows_of_this_process(
    cluster: LocalCluster, here: list[Row], tmp_path: Path, source: Callable[[Path], Any]
) -> None:
    async def main() -> list[Row]:
        async with open_workers(cluster.scheduler_address) as workers:
            return await workers.collect(source(tmp_path))

    assert [row.output for row in plain(trio.run(main))] == [row.output for row in here]


def test_runs_go_on_side_by_side_and_one_can_be_stopped(cluster: LocalCluster) -> None:
    emitted: dict[str, list[int]] = {"all": [], "some": []}
    stop = trio.Event()
    slow = SUITE | {
        "providers": [{"id": "echo", "lane": {"rpm": 3000}}],
        "tests": SUITE["tests"] * 4,
    }

    async def run(workers: WorkerPool, name: str, stop: trio.Event | None) -> None:
        async def emit(row: Row) -> None:
            emitted[name].append(row.index)
            if stop is not None:
                stop.set()

        summary = await workers.run_suite(slow, emit=emit, stop=stop)
        assert (summary.not_run > 0) == (stop is not None)

    async def main() -> None:
        async with open_workers(cluster.scheduler_address) as workers, trio.open_nursery() as both:
            both.start_soon(run, workers, "all", None)
            both.start_soon(run, workers, "some", stop)

    trio.run(main)
    assert emitted["all"] == [*range(4 * ROWS)]
    assert emitted["some"] == [*range(4 * ROWS)]


def test_a_run_of_a_session_on_workers_is_stored_and_resumed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    path = written(tmp_path)

    async def main() -> None:
        async with (
            open_workers(cluster.scheduler_address) as workers,
            trioeval.open_session(store=tmp_path / "r.db") as session,
        ):
            async with session.run(path, id="a", workers=workers) as run:
                await run.wait()
                (lane,) = run.progress.lanes
                assert (lane.calls, lane.in_flight) == (ROWS, 0)
                assert sum(worker.rows for worker in run.progress.workers) == ROWS
            assert run.summary is not None
            assert (run.summary.ended, run.summary.passed) == ("finished", 15)
            async with session.run(path, id="a", resume=True, workers=workers) as run:
                assert len([row async for row in run.rows()]) == ROWS
                assert [lane.calls for lane in run.progress.lanes] == [0], "no row runs again"
            async with session.run(path, id="a", resume=True, retry="3,5", workers=workers) as run:
                await run.wait()
                assert [lane.calls for lane in run.progress.lanes] == [2]

    trio.run(main)


def test_the_budget_of_a_session_holds_over_its_runs_on_workers_and_here(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """BUDGET: one budget, whose rest returns also from a run that is cancelled."""
    path = written(tmp_path)

    async def main() -> None:
        budget = trioeval.Budget(requests=ROWS + 30)
        async with (
            open_workers(cluster.scheduler_address) as workers,
            trioeval.open_session(budget=budget) as session,
        ):
            async with session.run(path, workers=workers) as run:
                async for _row in run.rows():
                    run.cancel()
            paid = budget.spent.requests
            assert (paid <= ROWS, budget.reserved.requests) == (True, 0)
            both: list[trioeval.Run] = []
            async with (
                session.run(path, workers=workers) as there,
                session.run(path, workers=workers) as beside,
            ):
                both = [there, beside]
            done = sum(run.summary.passed + run.summary.failed for run in both if run.summary)
            assert (done, budget.spent.requests) == (ROWS + 30 - paid, ROWS + 30)
            assert {run.summary.ended for run in both if run.summary} >= {"budget"}
            here = await session.collect(path)
            assert {row.outcome for row in here} == {"not_run"}

    trio.run(main)


def test_functions_and_objects_of_a_session_are_providers_on_workers(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """An object has the state that it has at the start of the run."""
    suite = SUITE | {"providers": ["mine", "other"]}
    mine = Prefixer("first")
    unused: Any = threading.Lock().acquire  # it cannot be sent
    providers = {"mine": mine, "other": reverse, "unused": unused}

    async def main() -> list[str]:
        async with (
            open_workers(cluster.scheduler_address) as workers,
            trioeval.open_session(store=tmp_path / "r.db", providers=providers) as session,
        ):
            mine.prefix = "now"
            async with session.run(trioeval.parse_suite(suite), workers=workers) as run:
                return [row.output async for row in run.rows()]

    found = trio.run(main)
    assert sorted(found[:2]) == ["0 drow yas", "now say word 0"]
    assert len(found) == 2 * ROWS


def test_what_cannot_be_sent_is_refused_before_anything_is_stored(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    path = written(tmp_path)

    async def echo(request: trioeval.Request) -> str:
        return str(request.prompt)

    async def emit(_row: Row) -> None:
        pytest.fail("no row runs")

    async def refused(workers: WorkerPool, suite: Any, **more: Any) -> str:
        with pytest.raises(UsageError) as caught:
            await workers.run_suite(suite, emit=emit, **more)
        return str(caught.value)

    async def main() -> None:
        async with open_workers(cluster.scheduler_address) as workers:
            prepared = trioeval.prepare(trioeval.parse_suite(SUITE))
            assert "workers load the suite themselves" in await refused(workers, prepared)
            loaded = trioeval.load_suite(path)
            assert f"pass its path, {path}" in await refused(workers, loaded)
            trusted = await refused(workers, trioeval.parse_suite(SUITE), trusted=False)
            assert "trust is set when a suite is loaded" in trusted
            assert "--send data: not found in" in await refused(workers, SUITE, send=["data"])
            with pytest.raises(SuiteError):
                await workers.run_suite({"providers": ["nope:x"]}, emit=emit)
            store = tmp_path / "r.db"
            own = trioeval.parse_suite(SUITE | {"providers": ["mine"]})
            found: list[tuple[Provider, str]] = [
                (echo, "provider mine, which other processes cannot import"),
                (
                    Prefixer("a", "sk-0123456789"),
                    r"token of the object that is provider mine",
                ),
            ]
            for provider, text in found:
                opened = trioeval.open_session(store=store, providers={"mine": provider})
                async with opened as session:
                    with pytest.raises(UsageError, match=text):
                        async with session.run(own, workers=workers):
                            pytest.fail("no run starts")
            leaky = {"id": "openai:chat:m", "config": {"apiKey": "sk-0123456789abcdef"}}
            keys = await refused(workers, SUITE | {"providers": [leaky]})
            assert "$.providers[0].config.apiKey" in keys
            async with trioeval.open_session(store=store) as session:
                with pytest.raises(UsageError, match="send is for files that workers need"):
                    async with session.run(path, send=["data"]):
                        pytest.fail("no run starts")
                with pytest.raises(UsageError, match="--send data: not found in"):
                    async with session.run(path, workers=workers, send=["data"]):
                        pytest.fail("no run starts")
                with pytest.raises(UsageError, match="workers prepare a suite themselves"):
                    async with session.run(prepared, workers=workers):
                        pytest.fail("no run starts")
            with trioeval.read_store(store) as reader:
                assert reader.runs() == []

    trio.run(main)


def test_agents_of_programs_run_on_workers_as_here(cluster: LocalCluster, tmp_path: Path) -> None:
    """Attempts, assertions in workspaces and dependencies, with a store and without one."""
    agent = tmp_path / "agent.sh"
    agent.write_text('echo "$TRIOEVAL_CASE $TRIOEVAL_ATTEMPT"; echo >made; touch "$TRIOEVAL_DONE"')
    made = {"assert": [{"type": "file-exists", "value": "made"}]}
    data = {
        "tasks": [
            {
                "id": "work",
                "type": "agent",
                "prompts": ["work"],
                "providers": [f"exec:sh {agent}"],
                "tests": [{"id": "a", **made}, {"id": "b", "dependsOn": ["a"], **made}],
            }
        ]
    }
    suite = trioeval.parse_suite(data, directory=tmp_path)
    expected = ["a 0", "b 0"]

    async def main() -> None:
        async with open_workers(cluster.scheduler_address) as workers:
            assert [row.output for row in await workers.collect(suite)] == expected
            for store in (None, tmp_path / "r.db"):
                async with trioeval.open_session(store=store) as session:
                    async with session.run(suite, id="a", workers=workers) as run:
                        assert [row.output async for row in run.rows()] == expected
                    assert run.summary is not None
                    assert (run.summary.ended, run.summary.passed) == ("finished", 2)

    trio.run(main)
    assert (tmp_path / "r-agents" / "a").is_dir()
    assert not [*(tmp_path / "r-agents" / "a").glob(".workers")]


@needs_redis
def test_with_redis_a_lane_runs_on_all_workers_of_a_program_unless_each_has_one_owner(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Nothing of a run is left on the server."""
    with open_server() as redis, fake_provider("--latency", "0.02") as url:
        config = {"apiBaseUrl": url, "apiKey": "k"}
        lane = {"maxConcurrency": 4}
        suite = SUITE | {
            "providers": [{"id": "openai:chat:m", "config": config, "lane": lane}],
            "limits": {"backend": "redis", "url": redis.url},
        }

        async def rows_of_workers(*, lane_owner: bool) -> list[int]:
            store = tmp_path / f"{lane_owner}.db"
            async with (
                open_workers(cluster.scheduler_address, lane_owner=lane_owner) as workers,
                trioeval.open_session(store=store) as session,
            ):
                async with session.run(trioeval.parse_suite(suite), workers=workers) as run:
                    await run.wait()
                    found = [worker.rows for worker in run.progress.workers]
                assert run.summary is not None
                assert run.summary.ended == "finished"
                assert len(await workers.collect(trioeval.parse_suite(suite))) == ROWS
                return sorted(found)

        shared = trio.run(functools.partial(rows_of_workers, lane_owner=False))
        assert sum(shared) == ROWS
        assert shared[0] > 0
        assert trio.run(functools.partial(rows_of_workers, lane_owner=True))[-1] == ROWS
        assert redis.command("KEYS", "*:run:*") == b"*0\r\n"


def test_a_session_on_asyncio_runs_on_workers_of_its_own(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The rows are stored and emitted as on Trio; workers of another session are refused."""
    (tmp_path / "data").mkdir()
    path = written(tmp_path)

    async def main() -> None:
        async with (
            trioeval.asyncio.open_session(store=tmp_path / "r.db") as session,
            session.open_workers(cluster.scheduler_address) as workers,
        ):
            async with session.run(path, id="a", workers=workers, send=["data"]) as run:
                rows = [row async for row in run.rows()]
                progress = await run.progress()
            assert [row.index for row in rows] == [*range(ROWS)]
            assert sum(worker.rows for worker in progress.workers) == ROWS
            assert run.summary is not None
            assert (run.summary.ended, run.summary.passed) == ("finished", 15)
            assert repr(workers).startswith("<WorkerPool of ")
            with pytest.raises(UsageError, match="--send none: not found"):
                async with session.run(path, workers=workers, send=["none"]):
                    pytest.fail("no run starts")
            with pytest.raises(UsageError, match="on must be local:N"):
                async with session.open_workers("remote:2"):
                    pytest.fail("no workers exist")
            async with trioeval.asyncio.open_session() as other:
                with pytest.raises(UsageError, match="these workers belong to another session"):
                    async with other.run(path, workers=workers):
                        pytest.fail("no run starts")

    asyncio.run(main())


def test_wrong_arguments_are_refused_by_their_names() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=r"^on must be local:N"):
            async with open_workers("remote:2"):
                pytest.fail("no workers exist")
        for linger in (-1, 61, math.nan):
            with pytest.raises(UsageError, match="linger must be from 0 to 60 seconds"):
                async with open_workers("local:2", linger=linger):
                    pytest.fail("no workers exist")

    trio.run(main)
