"""Runs of programs on workers, through the public functions."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from clusters import local_cluster, plain
from distributed import LocalCluster
from own_models import Prefixer, reverse

import trioeval
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
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(2) as started:
        yield started


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
                with pytest.raises(UsageError, match="workers prepare a suite themselves"):
                    async with session.run(prepared, workers=workers):
                        pytest.fail("no run starts")
            with trioeval.read_store(store) as reader:
                assert reader.runs() == []

    trio.run(main)


def test_a_wrong_address_is_refused_by_the_name_of_the_argument() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=r"^on must be local:N"):
            async with open_workers("remote:2"):
                pytest.fail("no workers exist")

    trio.run(main)
