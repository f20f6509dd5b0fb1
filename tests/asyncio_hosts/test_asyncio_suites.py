"""`run_suite`, `collect` and `open_session` in an asyncio program."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

import trioeval
import trioeval.asyncio
from trioeval import LaneSpec, Reply, Request, Row, Suite
from trioeval.asyncio import AsyncioObserver, AsyncioRun
from trioeval.errors import SuiteError, UsageError
from trioeval.kernel import Lanes

TOO_LONG = 60
"""Seconds after which a test fails instead of waiting."""


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """The thread of a run ends with it."""
    yield
    assert "trioeval" not in {thread.name for thread in threading.enumerate()}


def suite_of(rows: int, provider: str = "mine", *, width: int = 4) -> Suite:
    return trioeval.parse_suite(
        {
            "providers": [provider],
            "prompts": ["row {{n}}"],
            "tests": [{"vars": {"n": str(number)}} for number in range(rows)],
            "evaluateOptions": {"maxConcurrency": width},
        }
    )


async def shout(request: Request) -> str:
    await asyncio.sleep(0)
    return request.prompt.upper()


class Waiting:
    """A provider that answers the first rows, and then waits until it is cancelled."""

    def __init__(self, answered: int) -> None:
        self.answered = answered
        self.calls, self.cancelled = 0, 0
        self.waits = asyncio.Event()

    async def __call__(self, request: Request) -> Reply | str:
        self.calls += 1
        if self.calls <= self.answered:
            return request.prompt
        self.waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ""


def test_collect_returns_all_rows_in_order() -> None:
    """Providers of the program run on its loop; several runs do so side by side."""

    async def main() -> None:
        met = asyncio.Barrier(2)

        async def meet(request: Request) -> str:
            await met.wait()
            return request.prompt

        found = await asyncio.gather(
            *(
                trioeval.asyncio.collect(suite_of(3, width=1), providers={"mine": meet})
                for _ in range(2)
            )
        )
        for rows in found:
            assert [row.output for row in rows] == ["row 0", "row 1", "row 2"]

    asyncio.run(main())


def test_an_own_provider_keeps_its_lane() -> None:
    """A function from `own_provider` runs on the loop, within the limits of its lane."""
    in_flight, most = 0, 0

    async def count(request: Request) -> str:
        nonlocal in_flight, most
        assert threading.current_thread() is threading.main_thread()
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0)
        in_flight -= 1
        return request.prompt

    mine = trioeval.own_provider(count, lane=LaneSpec("narrow", 1))
    suite = trioeval.parse_suite({"providers": ["mine"], "prompts": ["a", "b", "c"]})
    rows = asyncio.run(trioeval.asyncio.collect(suite, providers={"mine": mine}))
    assert [(row.output, row.lane) for row in rows] == [(text, "narrow") for text in "abc"]
    assert most == 1


def test_rows_are_awaited_one_after_another() -> None:
    """`emit` runs on the caller's loop, and the next row waits for it."""
    log: list[str] = []

    async def show(row: Row) -> None:
        log.append(f"begins {row.index}")
        for _ in range(3):
            await asyncio.sleep(0)
        assert threading.current_thread() is threading.main_thread()
        log.append(f"ends {row.index}")

    async def main() -> None:
        done = await trioeval.asyncio.run_suite(suite_of(3), emit=show, providers={"mine": shout})
        assert done.rows == 3

    asyncio.run(main())
    assert log == [f"{word} {index}" for index in range(3) for word in ("begins", "ends")]


def test_an_error_of_emit_ends_the_run() -> None:
    """It is raised as the same object, without a group."""
    error = OSError("full")

    async def show(_row: Row) -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(OSError, match="full") as caught:
        asyncio.run(trioeval.asyncio.run_suite(suite_of(3), emit=show, providers={"mine": shout}))
    assert caught.value is error


def test_errors_of_the_suite_are_those_of_trioeval(tmp_path: Path) -> None:
    """Problems of a file are reported before the first call."""
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    with pytest.raises(SuiteError, match=r"bad\.json"):
        asyncio.run(trioeval.asyncio.collect(bad))


def test_a_cancelled_run_emits_every_row_first() -> None:
    """Calls are cancelled on the loop; the rows that are left are emitted before `CancelledError`."""

    async def main() -> None:
        provider, rows = Waiting(2), list[Row]()

        async def keep(row: Row) -> None:
            await asyncio.sleep(0)
            rows.append(row)

        task = asyncio.create_task(
            trioeval.asyncio.run_suite(
                suite_of(6, width=1),
                emit=keep,
                providers={"mine": provider},
            )
        )
        await provider.waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert provider.cancelled == 1
        assert [row.index for row in rows] == list(range(6))
        outcomes = [row.outcome for row in rows]
        assert outcomes == ["done", "done", "interrupted", "not_run", "not_run", "not_run"]

    asyncio.run(main())


@pytest.mark.parametrize("moment", range(12))
def test_a_run_that_is_cancelled_at_any_moment_emits_all_rows_or_none(moment: int) -> None:
    """It is cancelled at its n-th call of the provider or of `emit`; each row is emitted once, in order."""

    async def main() -> None:
        rows: list[int] = []
        moments = 0

        async def call(request: Request) -> str:
            await cancel_here()
            return request.prompt

        async def keep(row: Row) -> None:
            rows.append(row.index)
            await cancel_here()

        async def cancel_here() -> None:
            nonlocal moments
            moments += 1
            if moments == moment:
                task.cancel()
            await asyncio.sleep(0)

        task = asyncio.create_task(
            trioeval.asyncio.run_suite(suite_of(5), emit=keep, providers={"mine": call})
        )
        if moment == 0:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled() == (moment <= moments)
        assert rows in ([], [0, 1, 2, 3, 4])
        assert rows or moment == 0

    asyncio.run(main())


def test_stop_lets_running_rows_finish() -> None:
    """An event of asyncio stops the run; rows in progress end normally."""

    async def main() -> None:
        stop, started, released = asyncio.Event(), asyncio.Event(), asyncio.Event()
        rows: list[str] = []

        async def wait(request: Request) -> str:
            started.set()
            await released.wait()
            return request.prompt

        async def keep(row: Row) -> None:
            await asyncio.sleep(0)
            rows.append(row.outcome)

        running = asyncio.create_task(
            trioeval.asyncio.run_suite(
                suite_of(3, width=1),
                emit=keep,
                providers={"mine": wait},
                stop=stop,
            )
        )
        await started.wait()
        stop.set()
        for _ in range(5):  # the event is seen in one of the next steps of the loop
            await asyncio.sleep(0)
        released.set()
        await running
        assert rows == ["done", "not_run", "not_run"]

    asyncio.run(main())


def test_warnings_and_events_arrive_on_the_loop_in_order() -> None:
    """Every event is handled before the call returns."""
    threads: set[threading.Thread] = set()
    events: list[str] = []

    def observe(event: object) -> None:
        threads.add(threading.current_thread())
        events.append(type(event).__name__)

    async def main() -> None:
        async def keep(row: Row) -> None:
            await asyncio.sleep(0)

        await trioeval.asyncio.run_suite(
            suite_of(2), emit=keep, providers={"mine": shout}, observe=observe
        )
        assert events.count("Finished") == 2

    asyncio.run(main())
    assert threads == {threading.main_thread()}


# A session of an asyncio program.


@pytest.mark.slow
def test_rows_of_a_session_are_iterated_on_the_loop(tmp_path: Path) -> None:
    """Rows come in order, the files and records of a run are available after it."""

    async def main() -> None:
        async with trioeval.asyncio.open_session(
            store=tmp_path / "results.db", providers={"mine": shout}
        ) as session:
            async with session.run(suite_of(300), id="eval-mine") as run:
                assert (await run.progress()).total == 300
                rows = [row async for row in run.rows()]
            assert [row.index for row in rows] == list(range(300))
            assert rows[7].response is not None
            assert run.summary is not None
            assert (run.id, run.summary.ended, run.resumed) == ("eval-mine", "finished", False)
            assert len([row async for row in run.settled()]) == 300
            assert len(await run.to_records()) == 300
            await run.write(tmp_path / "out.jsonl")
            assert session.path == tmp_path / "results.db"
            assert repr(run) == "<Run eval-mine: finished, 300 rows>"
            assert repr(session).startswith("<Session ")
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 300

    asyncio.run(main())


def test_tables_of_a_run_are_made_beside_the_event_loop_once_it_is_over() -> None:
    """Their rows are those of `to_records`; before the end, and after the session, they are refused."""
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    pandas = pytest.importorskip("pandas", reason="needs pandas")

    async def main() -> None:
        async with trioeval.asyncio.open_session(providers={"mine": shout}) as session:
            async with session.run(suite_of(20)) as run:
                for early in (run.to_arrow, run.to_pandas):
                    with pytest.raises(UsageError, match="is in progress"):
                        await early()
            table, frame, records = await asyncio.gather(
                run.to_arrow(), run.to_pandas(), run.to_records()
            )
        assert isinstance(table, arrow.Table)
        assert isinstance(frame, pandas.DataFrame)
        outputs = [record["response"]["output"] for record in records]
        assert outputs == [f"ROW {number}" for number in range(20)]
        assert table["output"].to_pylist() == list(frame["output"]) == outputs
        assert list(frame.columns) == table.column_names
        for late in (run.to_arrow, run.to_pandas):
            with pytest.raises(UsageError, match="closed"):
                await late()

    asyncio.run(main())


def test_runs_of_a_session_share_its_lanes() -> None:
    """Two runs side by side have one call in flight, on the lane of the session."""
    in_flight, most = 0, 0

    async def count(request: Request) -> str:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0)
        in_flight -= 1
        return request.prompt

    async def main() -> None:
        async with trioeval.asyncio.open_session(
            providers={"mine": count}, lanes=[LaneSpec("mine", 1)]
        ) as session:
            both = await asyncio.gather(*(session.collect(suite_of(5)) for _ in range(2)))
        assert [len(rows) for rows in both] == [5, 5]

    asyncio.run(main())
    assert most == 1


def test_a_cancelled_run_of_a_session_can_be_resumed(tmp_path: Path) -> None:
    """Its finished rows are kept, also in the same session, and no reply is requested twice."""

    async def main() -> None:
        provider = Waiting(3)
        suite = suite_of(6, width=1)
        async with trioeval.asyncio.open_session(
            store=tmp_path / "results.db", providers={"mine": provider}
        ) as session:

            async def run_it() -> None:
                async with session.run(suite, id="eval-1"):
                    await asyncio.Event().wait()

            task = asyncio.create_task(run_it())
            await provider.waits.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            calls = provider.calls
            provider.answered = 100
            async with session.run(suite, id="eval-1", resume=True) as run:
                rows = [row async for row in run.rows()]
            assert run.resumed
            assert [row.index for row in rows] == list(range(6))
            assert provider.calls - calls == 3

    asyncio.run(main())


def test_a_discarded_generator_cancels_its_run(tmp_path: Path) -> None:
    """A response that streams rows may be discarded; the next run of the id waits for the end of this one."""

    async def main() -> None:
        provider, suite = Waiting(2), suite_of(4, width=1)
        async with trioeval.asyncio.open_session(
            store=tmp_path / "results.db", providers={"mine": provider}
        ) as session:

            async def stream() -> AsyncGenerator[int | None]:
                async with session.run(suite, id="eval-1", resume=True) as run:
                    async for row in run.rows():
                        yield row.index

            rows = stream()
            assert [await anext(rows), await anext(rows)] == [0, 1]
            await provider.waits.wait()
            await rows.aclose()
            provider.answered = 100
            assert [index async for index in stream()] == [0, 1, 2, 3]
        assert (provider.calls, provider.cancelled) == (5, 1)

    asyncio.run(main())


def test_leaving_the_rows_of_a_run_early_cancels_nothing() -> None:
    """An iteration may be left; the end of the block waits for the run."""

    async def main() -> None:
        async with trioeval.asyncio.open_session(providers={"mine": shout}) as session:
            async with session.run(suite_of(20)) as run:
                async for row in run.rows():
                    assert row.index == 0
                    break
            assert run.summary is not None
            assert run.summary.rows == 20

    asyncio.run(main())


def test_a_block_that_fails_cancels_its_run() -> None:
    """The error continues as the same object; the run has ended by then."""
    error = ValueError("mine")

    async def main() -> None:
        provider = Waiting(0)
        async with trioeval.asyncio.open_session(providers={"mine": provider}) as session:

            async def fail() -> None:
                async with session.run(suite_of(1)):
                    await provider.waits.wait()
                    raise error

            with pytest.raises(ValueError, match="mine") as caught:
                await fail()
            assert caught.value is error
            assert provider.cancelled == 1

    asyncio.run(main())


def test_runs_can_be_stopped_and_cancelled() -> None:
    """`stop`, `cancel` and `close` act from the loop; a closed session begins no run."""

    async def main() -> None:
        provider = Waiting(1)
        suite = suite_of(4, width=1)
        async with trioeval.asyncio.open_session(providers={"mine": provider}) as session:
            async with session.run(suite) as run:
                await provider.waits.wait()
                run.cancel()
            assert run.summary is not None
            assert run.summary.ended == "cancelled"
            provider.calls, provider.answered = 0, 100
            async with session.run(suite) as run:
                run.stop()
                session.stop()
                await run.wait()
            session.close()
            await session.wait_closed()
            with pytest.raises(UsageError, match="the session is closed"):
                await session.collect(suite)
        with pytest.raises(UsageError, match="the session is closed: use it in its block"):
            await anext(run.rows())

    asyncio.run(main())


def test_observers_are_called_on_the_loop() -> None:
    """Only defined methods are called; one that raises is logged, and not called again."""
    log: list[str] = []

    class Watching(AsyncioObserver):
        def on_run_start(self, run: AsyncioRun, /) -> None:
            assert threading.current_thread() is threading.main_thread()
            log.append("start")
            self.run = run

        def on_row(self, run: AsyncioRun, row: Row, /) -> None:
            assert run == self.run
            log.append(f"row {row.index}")

        def on_call(self, run: AsyncioRun, call: object, /) -> None:
            log.append("call")
            raise ValueError(run, call)

        def on_run_end(self, run: AsyncioRun, /) -> None:
            assert run.summary is not None
            log.append(run.summary.ended)

    async def main() -> None:
        suite = suite_of(2, width=1)
        async with trioeval.asyncio.open_session(
            providers={"mine": shout}, observers=[Watching(), AsyncioObserver()]
        ) as session:
            await session.collect(suite)
            # Rows end in any order: a slot of the lane holds a call, not its row.
            assert sorted(log[2:4]) == ["row 0", "row 1"]
            assert [*log[:2], *log[4:]] == ["start", "call", "finished"]

    asyncio.run(main())


def test_lanes_of_another_trio_run_are_refused() -> None:
    """`Lanes` are objects of one `trio.run`; a session makes its own."""

    async def main() -> None:
        lanes: Any = Lanes([LaneSpec("mine", 1)])
        with pytest.raises(UsageError, match="pass a list of LaneSpec"):
            async with trioeval.asyncio.open_session(lanes=lanes):
                raise AssertionError

    asyncio.run(main())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"budget": 5}, "budget must be a Budget"),
        ({"observers": [AsyncioObserver]}, "a list of AsyncioObserver objects, got <class"),
        ({"observers": [trioeval.SessionObserver()]}, "a list of AsyncioObserver objects"),
        ({"providers": {"mine": 5}}, "provider 'mine' must be an async function, got 5"),
        ({"lanes": LaneSpec("mine")}, r"pass lanes=\[LaneSpec\('mine', …\)\]"),
    ],
)
def test_arguments_of_a_session_are_checked(wrong: dict[str, Any], message: str) -> None:
    async def main() -> None:
        async with trioeval.asyncio.open_session(**wrong):
            pytest.fail("the session was opened")

    with pytest.raises(UsageError, match=message):
        asyncio.run(main())


def test_errors_of_a_run_can_be_retried() -> None:
    calls: list[str] = []

    async def fail_once(request: Request) -> str:  # noqa: ASYNC124
        calls.append(request.prompt)
        if len(calls) == 1:
            raise ValueError("no")
        return request.prompt

    async def main() -> None:
        async with trioeval.asyncio.open_session(providers={"mine": fail_once}) as session:
            for retry, errors in ((None, 1), ("errors", 0)):
                async with session.run(
                    suite_of(2), id="a", resume=retry is not None, retry=retry
                ) as run:
                    pass
                assert run.summary is not None
                assert run.summary.errors == errors

    asyncio.run(main())
    assert len(calls) == 3


def test_progress_needs_a_notebook() -> None:
    """`progress=True` is refused in a program without cells."""
    with pytest.raises(UsageError, match="needs a notebook"):
        asyncio.run(trioeval.asyncio.collect(suite_of(1, "echo"), progress=True))


# The wrong event loop, and the right one under another name.


def test_the_wrong_event_loop_is_named() -> None:
    """Messages say which function fits the event loop of the caller."""

    async def keep(row: Row) -> None:
        raise AssertionError

    async def on_trio() -> None:
        for name, call in (
            ("collect", lambda: trioeval.asyncio.collect("suite.json")),
            ("run_suite", lambda: trioeval.asyncio.run_suite("suite.json", emit=keep)),
            ("open_session", lambda: trioeval.asyncio.open_session().__aenter__()),
        ):
            with pytest.raises(UsageError, match=rf"under Trio use trioeval\.{name}$"):
                await call()

    async def on_asyncio() -> None:
        for name, call in (
            ("collect", lambda: trioeval.collect("suite.json")),
            ("run_suite", lambda: trioeval.run_suite("suite.json", emit=keep)),
            ("open_session", lambda: trioeval.open_session().__aenter__()),
        ):
            with pytest.raises(UsageError, match=rf"calls trioeval\.asyncio\.{name}$"):
                await call()

    trio.run(on_trio)
    asyncio.run(on_asyncio())
    with pytest.raises(UsageError, match="needs a running asyncio event loop"):
        trioeval.asyncio.collect("suite.json").send(None)


def test_anyio_on_trio_needs_no_adapter() -> None:
    """A program of anyio whose backend is Trio calls `trioeval` itself, and its scopes cancel a run."""

    async def main() -> list[object]:
        async with anyio.create_task_group() as group:
            waiting = anyio.Event()

            async def wait(request: Request) -> str:
                waiting.set()
                await anyio.sleep_forever()
                return request.prompt

            async def run() -> None:
                await trioeval.collect(suite_of(1), providers={"mine": wait})

            group.start_soon(run)
            await waiting.wait()
            group.cancel_scope.cancel()
        return [row.output for row in await trioeval.collect(suite_of(2, "echo"))]

    assert anyio.run(main, backend="trio") == ["row 0", "row 1"]


def test_anyio_on_asyncio_is_asyncio() -> None:
    """Scopes of anyio cancel a run of `trioeval.asyncio`, and providers may use anyio."""

    async def main() -> None:
        provider = Waiting(0)

        async def ask(request: Request) -> Reply | str:
            await anyio.lowlevel.checkpoint()
            return await provider(request)

        async with anyio.create_task_group() as group:

            async def run() -> None:
                await trioeval.asyncio.collect(suite_of(1), providers={"mine": ask})

            group.start_soon(run)
            await provider.waits.wait()
            group.cancel_scope.cancel()
        assert provider.cancelled == 1

    anyio.run(main, backend="asyncio")


INTERRUPTED = """
import asyncio, sys, trioeval, trioeval.asyncio

asked = 0

async def answer(request):
    global asked
    asked += 1
    if asked > 3 and sys.argv[1] == "wait":
        print("waiting", flush=True)
        await asyncio.Event().wait()
    return request.prompt

async def main():
    suite = trioeval.parse_suite({
        "providers": ["mine"],
        "prompts": ["row {{n}}"],
        "tests": [{"vars": {"n": str(n)}} for n in range(6)],
        "evaluateOptions": {"maxConcurrency": 1},
    })
    async with trioeval.asyncio.open_session(store="results.db", providers={"mine": answer}) as session:
        async with session.run(suite, id="eval-1", resume=True) as run:
            rows = [row.index async for row in run.rows()]
    print(rows, "requests", asked, run.summary.ended)

asyncio.run(main())
"""


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    """The program ends with KeyboardInterrupt, after the run has ended; the next one continues it."""
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(
        [*command, "wait"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        os.kill(program.pid, signal.SIGINT)
        _, errors = program.communicate(timeout=TOO_LONG)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert program.returncode != 0
    done = subprocess.run(
        [*command, "answer"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TOO_LONG,
        check=False,
    )
    assert done.stdout == "[0, 1, 2, 3, 4, 5] requests 3 finished\n", done.stderr
