"""The types of a program with sessions and own providers: type checkers read this file, and it runs."""

from pathlib import Path
from typing import Any, assert_type

import trio

import trioeval
import trioeval.asyncio
from trioeval import LaneSpec, Provider, Reply, Request, RowRecord, Run, RunSummary, Session, Usage
from trioeval.kernel import Event
from trioeval.report.run_state import RunSnapshot
from trioeval.session.run import RunEnd
from trioeval.store.reader import StoreReader

SUITE: dict[str, Any] = {
    "providers": ["model", "text"],
    "prompts": ["say {{word}}"],
    "tests": [{"vars": {"word": word}} for word in ("a", "b")],
}


async def model(request: Request) -> Reply:
    """A provider that counts tokens."""
    await trio.lowlevel.checkpoint()
    assert_type(request.prompt, str)
    word: object = request.vars["word"]
    return Reply(output=f"{word}", usage=Usage(total=1), cost=0.01)


async def text(request: Request) -> str:
    """A provider may return text."""
    await trio.lowlevel.checkpoint()
    return request.prompt


class Watch(trioeval.SessionObserver):
    """An observer with some of the methods."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.ends: list[RunEnd] = []

    def on_event(self, run: Run, event: Event, /) -> None:
        assert_type(run.id, str)
        assert event is not None

    def on_row(self, run: Run, row: trioeval.Row, /) -> None:
        assert_type(row.outcome, str)
        if run.summary is None:
            self.rows.append(row.index)

    def on_run_end(self, run: Run, /) -> None:
        if run.summary is not None:
            self.ends.append(run.summary.ended)


def check_record(row: RowRecord) -> None:
    assert_type(row.status, trioeval.Status)
    assert_type(row.index, int | None)
    assert_type(row.outcome, str)


async def in_a_session(folder: Path, watch: Watch) -> RunSummary:
    own = trioeval.own_provider(model, lane=LaneSpec("model", 4, rpm=6000), max_cost=0.02)
    free = trioeval.own_provider(text, max_cost=0)
    providers: dict[str, Provider] = {"model": own, "text": free}
    async with trioeval.open_session(
        store=folder / "runs.db",
        providers=providers,
        lanes=[LaneSpec("text", 2)],
        budget=trioeval.Budget(money=1.0),
        observers=[watch],
        on_warning=print,
    ) as session:
        assert_type(session, Session)
        assert_type(session.path, Path | None)
        assert_type(session.budget, trioeval.Budget | None)
        suite = trioeval.parse_suite(SUITE)
        async with session.run(suite, id="one") as run:
            assert_type(run, Run)
            assert_type(run.progress, RunSnapshot)
            assert_type(run.summary, RunSummary | None)
            async for row in run.rows():
                assert_type(row, RowRecord)
                check_record(row)
            async for row in run.settled():
                assert_type(row, RowRecord)
        await run.write(folder / "out.json", str(folder / "out.csv"))
        assert_type(run.to_records(), list[dict[str, Any]])
        assert_type(await session.collect(suite), list[RowRecord])
        async with session.run(suite, id="one", resume=True, retry="errors") as run:
            run.stop()
        assert run.summary is not None
        assert_type(run.summary.ended, RunEnd)
        return run.summary


async def in_an_asyncio_session(session: trioeval.asyncio.AsyncioSession) -> None:
    """Compared by type checkers only."""
    async with session.run("suite.json") as run:
        assert_type(run, trioeval.asyncio.AsyncioRun)
        assert_type(await run.progress(), RunSnapshot)
        async for row in run.rows():
            assert_type(row, RowRecord)
    assert_type(run.summary, RunSummary | None)
    assert_type(await session.collect("suite.json"), list[RowRecord])


def stored(folder: Path) -> int:
    with trioeval.read_store(folder / "runs.db") as reader:
        assert_type(reader, StoreReader)
        return reader.run("one").executions


def test_a_program_with_a_session_runs_as_it_is_typed(tmp_path: Path) -> None:
    watch = Watch()
    summary = trio.run(in_a_session, tmp_path, watch)
    assert_type(summary, RunSummary)
    assert (summary.ended, summary.rows, stored(tmp_path)) == ("finished", 4, 2)
    assert sorted(watch.rows) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert watch.ends == ["finished"] * 3
