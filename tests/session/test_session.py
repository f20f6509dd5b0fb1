"""Sessions: runs of suites side by side on common lanes, in one store, under one budget."""

import gc
import itertools
import json
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import trioeval
from trioeval import LaneSpec, Reply, Request, RowRecord, Run, UsageError, open_session
from trioeval.errors import DatasetError, ProviderError, StoreError, SuiteError
from trioeval.kernel import CallStarted, Event, Lanes, Waiting, WaitReason
from trioeval.providers.base import Provider
from trioeval.rates import Budget
from trioeval.run import Row
from trioeval.scaleout.workers import WorkerPool
from trioeval.session.session import Session
from trioeval.store.run import StoredRun

KEEPING_UP = 512
"""The rows that a run holds for iterations, see `session.run`."""


class NoWorkers(WorkerPool):
    """Workers that must not be used."""

    def __init__(self) -> None:
        """Do nothing."""

    def open_run(self, *_args: Any, **_more: Any) -> Any:
        pytest.fail("workers were opened")


@attrs.define
class Model:
    """A provider that takes a moment, and counts its calls."""

    seconds: float = 0.005
    calls: list[str] = attrs.field(factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    cost: float = 0.0

    async def __call__(self, request: Request, /) -> Reply:
        self.calls.append(request.prompt)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await trio.sleep(self.seconds * (1 + request.vars.get("extra", 0)))
        finally:
            self.in_flight -= 1
        if request.vars.get("fails"):
            raise ProviderError("bad_request", "no")
        return Reply(output=request.prompt.upper(), cost=self.cost)


def suite_of(
    rows: int | Sequence[dict[str, Any]], width: int = 4, *, most: float | None = None, **more: Any
) -> trioeval.Suite:
    tests = [{"word": f"w{i}"} for i in range(rows)] if isinstance(rows, int) else rows
    return trioeval.parse_suite(
        {
            "providers": [
                {
                    "id": "model",
                    "lane": {"maxConcurrency": width},
                    "config": {} if most is None else {"maxCost": most},
                }
            ],
            "prompts": ["say {{word}}"],
            "tests": [{"vars": test} for test in tests],
            **more,
        }
    )


def in_session(
    body: Callable[[Session], Awaitable[Any]], model: Provider | None = None, **how: Any
) -> Any:
    """Run a function in a session. The store has a thread, so this is on real time."""

    async def main() -> Any:
        async with open_session(providers={"model": model or Model()}, **how) as session:
            return await body(session)

    return trio.run(main)


async def words(run: Run) -> list[str]:
    return [row.vars["word"] async for row in run.rows()]


def test_rows_come_in_order_and_settled_rows_as_they_end() -> None:
    """Every iteration sees all rows, whenever it begins: beside others, late, or after an abandoned one."""
    ending = [1, 3, 2, 4, 0]
    gates = {f"say w{i}": trio.Event() for i in ending}

    async def model(request: Request) -> str:
        await gates[request.prompt].wait()
        return request.prompt

    async def body(session: Session) -> None:
        async with session.run(suite_of(5, width=5)) as run:
            settled = run.settled()
            for index in ending:
                gates[f"say w{index}"].set()
                assert (await anext(settled)).index == index
            async for row in run.rows():
                assert row.index == 0
                break
            assert await words(run) == ["w0", "w1", "w2", "w3", "w4"]
        assert await words(run) == ["w0", "w1", "w2", "w3", "w4"]
        assert [row.index async for row in run.settled()] == ending

    in_session(body, model)


@pytest.mark.parametrize("start_at", [0, 1, KEEPING_UP - 1, KEEPING_UP, KEEPING_UP + 70])
def test_an_iteration_that_is_behind_reads_from_the_store(start_at: int) -> None:
    """A slow iteration delays nothing, and misses no row."""
    count = KEEPING_UP + 90

    async def body(session: Session) -> None:
        async with session.run(suite_of(count, width=30)) as run:
            rows, settled = run.rows(), run.settled()
            for _ in range(start_at):
                await anext(rows)
            await run.wait()
            assert run.progress.done == count
            left = [row.index async for row in rows]
            assert left == [*range(start_at, count)]
            assert sorted([row.index or 0 async for row in settled]) == [*range(count)]

    in_session(body, Model(0.001))


def test_an_iteration_that_is_behind_misses_no_row_while_a_thread_reads_the_store() -> None:
    """A connection sees the state of the store in which its first unfinished statement began."""
    count = KEEPING_UP + 5

    async def body(session: Session) -> None:
        for name in ("a", "b"):
            async with session.run(suite_of(1), id=name):
                pass
        statement = session._store._reading.execute("SELECT id FROM run ORDER BY id")
        assert statement.fetchone() == ("a",)
        async with session.run(suite_of(count, width=30)) as run:
            await run.wait()
            assert [row.index async for row in run.rows()] == [*range(count)]
            assert len([row async for row in run.settled()]) == count
        assert statement.fetchall() == [("b",)]

    in_session(body, Model(0.0))


def test_a_cancelled_run_keeps_its_rows_and_continues_in_the_same_process() -> None:
    """RESUME: no recorded reply is paid twice; the partial rows are in order, and unfinished ones say so."""
    model = Model()

    async def body(session: Session) -> None:
        seen: list[str] = []
        with trio.CancelScope() as scope:
            async with session.run(suite_of(9, width=2), id="mine") as run:
                async for row in run.rows():
                    seen.append(row.vars["word"])
                    if len(seen) == 4:
                        scope.cancel()
        assert scope.cancelled_caught
        assert seen == ["w0", "w1", "w2", "w3"]
        assert run.summary is not None
        assert (run.summary.ended, run.summary.rows) == ("cancelled", 9)
        outcomes = [row.outcome async for row in run.rows()]
        done = outcomes.count("done")
        assert outcomes[:done] == ["done"] * done
        assert set(outcomes[done:]) <= {"interrupted", "not_run"}
        assert run.summary.not_graded == done >= 4
        paid = [f"say w{i}" for i in range(done)]
        async with session.run(suite_of(9, width=2), id="mine", resume=True) as again:
            assert again.resumed
            assert await words(again) == [f"w{i}" for i in range(9)]
        assert again.summary is not None
        assert again.summary.ended == "finished"
        assert [call for call in model.calls if call in paid] == paid

    in_session(body, model)


def test_earlier_rows_of_a_resumed_run_come_at_once() -> None:
    """PROMPT: rows 0, 1 and 3 are known; row 3 follows row 2 without a wait for row 4."""
    open_to = {"say w0", "say w1", "say w3"}

    async def model(request: Request) -> str:
        if request.prompt not in open_to:
            await trio.sleep_forever()
        return request.prompt

    async def body(session: Session) -> None:
        async with session.run(suite_of(5, width=5), id="mine") as run:
            settled = run.settled()
            for _ in range(3):
                await anext(settled)
            run.cancel()
        async with session.run(suite_of(5, width=5), id="mine", resume=True) as again:
            rows = again.rows()
            with trio.fail_after(60):  # they never come if they wait for row 2
                seen = [(await anext(rows)).index for _ in range(2)]
            assert again.progress.done == 3
            open_to.add("say w2")
            again.cancel()
        assert seen == [0, 1]
        async with session.run(suite_of(5, width=5), id="mine", resume=True) as last:
            rows = last.rows()
            with trio.fail_after(60):
                seen = [(await anext(rows)).index for _ in range(4)]
            last.cancel()
        assert seen == [0, 1, 2, 3]

    in_session(body, model)


def test_a_resumed_run_has_the_rows_of_its_suite_as_it_is_now(tmp_path: Path) -> None:
    """ONCE: unchanged rows are kept wherever they are now, changed ones run, others leave the run."""
    model = Model()

    async def body(session: Session) -> None:
        async with session.run(suite_of(5), id="mine"):
            pass
        words_now = ["new", "w3", "w0"]
        changed = suite_of([{"word": word} for word in words_now])
        async with session.run(changed, id="mine", resume=True) as run:
            assert [row.output async for row in run.settled()] == ["SAY NEW"]
        for rows in (
            [row.output async for row in run.rows()],
            [record["response"]["output"] for record in run.to_records()],
        ):
            assert rows == [f"SAY {word}".upper() for word in words_now]
        assert run.summary is not None
        assert run.summary.rows == 3

    in_session(body, model, store=tmp_path / "runs.db")
    assert sorted(model.calls) == sorted([f"say w{i}" for i in range(5)] + ["say new"])
    with trioeval.read_store(tmp_path / "runs.db") as reader:
        assert reader.run("mine").outcomes == {"done": 3}


def two_tasks(*words: str) -> trioeval.Suite:
    """A suite whose second task has a row for each row of the first."""
    return trioeval.parse_suite(
        {
            "providers": ["model"],
            "tasks": [
                {
                    "id": "first",
                    "type": "prompt_eval",
                    "prompts": ["say {{word}}"],
                    "tests": [{"vars": {"word": word}} for word in words],
                },
                {
                    "id": "second",
                    "type": "prompt_eval",
                    "prompts": ["again {{output}}"],
                    "tests": {"fromTask": "first"},
                    "dependsOn": ["first"],
                },
            ],
        }
    )


def test_a_task_whose_rows_are_known_late_has_no_rows_of_its_past(tmp_path: Path) -> None:
    """ONCE: its source has shrunk, and one row of it has changed."""
    model = Model()

    async def body(session: Session) -> None:
        async with session.run(two_tasks("a", "b", "c", "d"), id="mine"):
            pass
        model.calls.clear()
        async with session.run(two_tasks("a", "x"), id="mine", resume=True) as run:
            outputs = {(row.task, row.index, row.output) async for row in run.rows()}
            assert outputs == {
                ("first", 0, "SAY A"),
                ("first", 1, "SAY X"),
                ("second", 0, "AGAIN SAY A"),
                ("second", 1, "AGAIN SAY X"),
            }
            assert (run.progress.done, run.progress.total) == (4, 4)
        assert model.calls == ["say x", "again SAY X"]
        assert run.summary is not None
        assert (len(run.to_records()), run.summary.rows) == (4, 4)

    in_session(body, model, store=tmp_path / "runs.db")
    with trioeval.read_store(tmp_path / "runs.db") as reader:
        assert reader.run("mine").outcomes == {"done": 4}


def test_changed_assertions_grade_recorded_replies_again() -> None:
    """No reply is requested again."""
    model = Model()

    async def body(session: Session) -> None:
        async with session.run(suite_of(2), id="mine"):
            pass
        graded = suite_of(2, defaultTest={"assert": [{"type": "contains", "value": "W1"}]})
        async with session.run(graded, id="mine", resume=True) as run:
            pass
        assert run.summary is not None
        assert (run.summary.failed, run.summary.passed) == (1, 1)

    in_session(body, model)
    assert len(model.calls) == 2


def test_errors_are_kept_unless_they_are_retried() -> None:
    model = Model()
    rows: list[dict[str, Any]] = [{"word": "w0"}, {"word": "w1", "fails": True}]

    async def body(session: Session) -> None:
        async with session.run(suite_of(rows), id="mine"):
            pass
        for retry, calls in ((None, 2), ("errors", 3), ("0", 4)):
            async with session.run(suite_of(rows), id="mine", resume=True, retry=retry) as run:
                pass
            assert run.summary is not None
            assert (len(model.calls), run.summary.errors, run.summary.rows) == (calls, 1, 2)
        for wrong, more in (
            ({"retry": "errors"}, "resume=True"),
            ({"resume": True, "retry": "wrong"}, "failed, errors, timeouts"),
        ):
            with pytest.raises(UsageError, match=more):
                async with session.run(suite_of(rows), id="mine", **wrong):
                    pytest.fail("the block began")

    in_session(body, model)


def test_an_exception_of_the_block_cancels_the_run_and_is_not_wrapped() -> None:
    async def body(session: Session) -> None:
        runs: list[Run] = []

        async def fail_in_the_block() -> None:
            async with session.run(suite_of(9, width=1), id="mine") as run:
                runs.append(run)
                await anext(run.rows())
                raise KeyError("mine")

        with pytest.raises(KeyError):
            await fail_in_the_block()
        (run,) = runs
        assert run.summary is not None
        assert (run.summary.ended, run.summary.rows) == ("cancelled", 9)
        async with session.run(suite_of(9, width=1), id="mine", resume=True) as again:
            pass
        assert again.summary is not None
        assert again.summary.not_graded == 9

    in_session(body)


@pytest.mark.parametrize("own", [ValueError, KeyboardInterrupt])
def test_a_failed_run_hides_no_exception_of_its_block(
    own: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a dataset cannot be created, which fails the run while the block waits for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocked").touch()
    column = {"name": "a", "type": "sampler", "sampler": "uuid"}
    suite = trioeval.parse_suite(
        {
            "tasks": [
                {
                    "id": "data",
                    "type": "columns",
                    "rows": 1,
                    "columns": [column],
                    "outputDir": "blocked",
                }
            ]
        },
        directory=tmp_path,
    )

    async def fail(session: Session) -> None:
        async with session.run(suite) as run:
            try:
                await run.wait()
                await trio.sleep_forever()
            finally:
                raise own("mine")

    with pytest.raises((DatasetError, KeyboardInterrupt)) as raised:
        in_session(fail)
    if own is ValueError:
        assert "ValueError('mine')" in raised.value.__notes__[0]
    else:
        assert raised.type is own


def test_a_run_that_cannot_begin_raises_its_own_error(tmp_path: Path) -> None:
    """A wrong suite is refused before anything is recorded; a failed start ends the block."""
    (tmp_path / "bad.yaml").write_text("providers: [unknown:thing]\nprompts: [x]\n")

    async def main() -> None:
        async with open_session(store=tmp_path / "runs.db") as session:
            with pytest.raises(SuiteError, match=r"bad\.yaml:1"):
                async with session.run(tmp_path / "bad.yaml"):
                    pytest.fail("the block began")
        with trioeval.read_store(tmp_path / "runs.db") as reader:
            assert not reader.runs()

    trio.run(main)


@pytest.mark.parametrize(
    ("how", "ended"),
    [("", "finished"), ("stop", "stopped"), ("cancel", "cancelled"), ("deadline", "deadline")],
)
def test_a_summary_says_how_the_run_ended(how: str, ended: str) -> None:
    options: dict[str, Any] = (
        {"evaluateOptions": {"maxEvalTimeMs": 400}} if how == "deadline" else {}
    )
    tests = [{"word": f"w{i}", "extra": 10**6 if how and i == 5 else 0} for i in range(6)]

    async def body(session: Session) -> None:
        async with session.run(suite_of(tests, width=1, **options)) as run:
            await anext(run.rows())
            if how in {"stop", "cancel"}:
                getattr(run, how)()
        assert run.summary is not None
        assert (run.summary.ended, run.summary.rows) == (ended, 6)
        left = run.summary.not_run
        assert (left == 0) if ended == "finished" else left > 0

    in_session(body)


def test_runs_share_lanes_and_the_stricter_limit_holds() -> None:
    """WIDTH over both runs. A lane that the session was given holds as it is."""
    model = Model()

    async def both(session: Session) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.collect, suite_of(8, width=4))
            nursery.start_soon(session.collect, suite_of(8, width=3))

    in_session(both, model)
    assert model.most_in_flight == 3
    given_lane = Model()
    in_session(both, given_lane, lanes=[LaneSpec("model", 5)])
    assert given_lane.most_in_flight == 5
    shared = Model()
    in_session(both, shared, lanes=Lanes([LaneSpec("model", 2)]))
    assert shared.most_in_flight == 2
    capped = Model()
    in_session(both, capped, max_total_concurrency=1)
    assert capped.most_in_flight == 1


def test_a_rate_holds_over_runs_that_follow_each_other() -> None:
    """PACE: the second run continues where the first one has used the rate up."""
    started: list[float] = []

    class Watch(trioeval.SessionObserver):
        def on_event(self, run: Run, event: Event, /) -> None:
            assert run.id
            if isinstance(event, CallStarted):
                started.append(event.at)

    def paced(rpm: float) -> trioeval.Suite:
        lane = {"maxConcurrency": 9, "rpm": rpm}
        return trioeval.parse_suite(
            {"providers": [{"id": "model", "lane": lane}], "prompts": ["a", "b", "c"]}
        )

    async def body(session: Session) -> None:
        await session.collect(paced(1200))
        await session.collect(paced(600))

    in_session(body, observers=[Watch()])
    gaps = [after - before for before, after in itertools.pairwise(started)]
    assert all(gap >= 0.05 - 1e-9 for gap in gaps[:2])
    assert all(gap >= 0.1 - 1e-9 for gap in gaps[3:])
    assert gaps[2] >= 0.05 - 1e-9


def test_shared_limits_outlive_the_run_that_opened_them() -> None:
    """A limit in memory counts the calls of all runs with the same settings."""
    model, waiting = Model(), trio.Event()

    class Watch(trioeval.SessionObserver):
        def on_event(self, run: Run, event: Event, /) -> None:
            if (
                run.id == "second"
                and isinstance(event, Waiting)
                and event.why is WaitReason.SHARED_LIMIT
            ):
                waiting.set()

    def limited() -> trioeval.Suite:
        return trioeval.parse_suite(
            {
                "providers": [
                    {
                        "id": "model",
                        "lane": {
                            "maxConcurrency": 4,
                            "limits": [{"key": "all", "unit": "requests"}],
                        },
                    }
                ],
                "limits": {
                    "define": [
                        {
                            "key": "all",
                            "unit": "requests",
                            "kind": "rolling",
                            "capacity": 4,
                            "windowSeconds": 60,
                        }
                    ]
                },
                "prompts": ["a", "b", "c", "d"],
            }
        )

    async def body(session: Session) -> None:
        async with session.run(limited(), id="first") as run:
            await anext(run.rows())
            run.cancel()
        async with session.run(limited(), id="second") as run:
            await waiting.wait()
            assert len(model.calls) <= 4
            run.cancel()

    in_session(body, model, observers=[Watch()])


@pytest.mark.slow
@settings(max_examples=30)  # the arithmetic has its own law; each example opens a store
@given(
    budget=st.integers(0, 12),
    own=st.none() | st.integers(0, 12),
    costs=st.lists(st.sampled_from([0.1, 0.5, 1.0]), min_size=1, max_size=8),
    width=st.integers(1, 4),
)
def test_a_budget_holds_over_all_runs(
    budget: int, own: int | None, costs: list[float], width: int
) -> None:
    """BUDGET: two runs side by side never spend more, whatever their own budgets are."""
    spent: list[float] = []

    async def model(request: Request) -> Reply:
        await trio.sleep(request.vars["cost"] / 1000)
        spent.append(request.vars["cost"])
        return Reply(output="x", cost=request.vars["cost"])

    tests = [{"word": f"w{i}", "cost": cost} for i, cost in enumerate(costs)]
    options = {} if own is None else {"evaluateOptions": {"budget": {"usd": own / 2}}}
    whole = Budget(money=budget / 2)

    async def body(session: Session) -> list[trioeval.RunSummary | None]:
        async with (
            session.run(suite_of(tests, width=width, most=1.0, **options)) as first,
            session.run(suite_of(tests[::-1], width=width, most=1.0)) as second,
        ):
            pass
        return [first.summary, second.summary]

    summaries = in_session(body, model, budget=whole)
    assert sum(spent) <= budget / 2 + 1e-9
    assert whole.spent.money == pytest.approx(sum(spent))
    assert all(one.ended in {"finished", "budget"} for one in summaries)
    assert all(one.rows == len(costs) for one in summaries)
    if sum(costs) * 2 + 2 * width <= budget / 2 and own is None:
        assert {one.ended for one in summaries} == {"finished"}


def test_a_budget_of_a_session_bounds_dimensions_that_a_suite_leaves_open() -> None:
    """BUDGET: a suite with a budget in US dollars, in a session with one in tokens."""
    dollars = suite_of(3, most=1.0, evaluateOptions={"budget": {"usd": 9}})

    async def refused(session: Session) -> None:
        with pytest.raises(SuiteError, match="budget in tokens is set, but the replies"):
            await session.collect(dollars)
        with pytest.raises(UsageError, match="pass the suite itself"):
            await session.collect(trioeval.prepare(dollars, providers={"model": Model()}))

    in_session(refused, budget=Budget(tokens=100))
    model = Model()
    bounded = trioeval.own_provider(model, max_tokens=40)

    async def body(session: Session) -> None:
        async with session.run(dollars) as run:
            pass
        assert run.summary is not None
        assert (run.summary.ended, run.summary.not_graded) == ("budget", 2)
        assert session.budget is not None
        assert session.budget.spent.tokens <= 100

    in_session(body, bounded, budget=Budget(tokens=100))


def test_a_limit_that_cannot_change_on_a_lane_in_use_is_reported() -> None:
    """The stricter limit holds where it can, and a warning says where it cannot."""
    warnings: list[str] = []
    gap: dict[str, Any] = {"providers": [{"id": "model", "lane": {"minGap": 0.5}}]}

    async def body(session: Session) -> None:
        await session.collect(suite_of(1))
        await session.collect(suite_of(1, **gap))
        await session.collect(suite_of(1, **gap))

    in_session(body, on_warning=warnings.append)
    assert [text.partition(",")[0] for text in warnings] == [
        "lane model: its min_gap 0.5 does not hold"
    ]


def test_observers_are_notified_of_every_run() -> None:
    """An observer that raises is dropped; the others and the run go on."""
    seen: list[str] = []

    class Watch(trioeval.SessionObserver):
        def on_run_start(self, run: Run, /) -> None:
            seen.append(f"start {run.id}")

        def on_event(self, run: Run, event: Event, /) -> None:
            if isinstance(event, CallStarted):
                seen.append(f"call of {run.id}")

        def on_row(self, run: Run, row: Row, /) -> None:
            seen.append(f"row {row.index} of {run.id}")

        def on_run_end(self, run: Run, /) -> None:
            assert run.summary is not None
            seen.append(f"end {run.summary.ended}")

    class Broken(trioeval.SessionObserver):
        def on_row(self, run: Run, row: Row, /) -> None:
            raise RuntimeError(f"broken at {row.index} of {run.id}")

    async def body(session: Session) -> None:
        async with session.run(suite_of(2, width=1), id="a"):
            pass

    in_session(body, observers=[Broken(), Watch()])
    assert (seen[0], seen[-1]) == ("start a", "end finished")
    assert [one for one in seen if one.startswith("row")] == ["row 0 of a", "row 1 of a"]
    assert seen.count("call of a") == 2


def test_wrong_uses_are_refused_in_words(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        with pytest.raises(UsageError, match="pass id as well"):
            async with session.run(suite_of(1), resume=True):
                pass
        async with session.run(suite_of(1), id="a") as run:
            with pytest.raises(UsageError, match="run a is in progress: its results are complete"):
                run.to_records()
        with pytest.raises(UsageError, match="pass resume=True to continue it, or another id"):
            async with session.run(suite_of(1), id="a"):
                pass
        with pytest.raises(UsageError, match=r"the suffix must be one of .*'\.xyz'"):
            await run.write(tmp_path / "out.xyz")
        capped = suite_of(1, evaluateOptions={"maxTotalConcurrency": 3})
        with pytest.raises(UsageError, match="pass max_total_concurrency=3 to open_session"):
            await session.collect(capped)
        session.close()
        with pytest.raises(UsageError, match="the session is closed"):
            await session.collect(suite_of(1))

    in_session(body)

    async def lone() -> None:
        async with open_session(lanes=LaneSpec("a")):  # type: ignore[arg-type]
            pass

    with pytest.raises(UsageError, match="lanes must be a list of LaneSpec"):
        trio.run(lone)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"budget": 5.0},
            r"budget must be a Budget, such as trioeval.Budget\(money=5.0\), got 5.0",
        ),
        (
            {"observers": [trioeval.SessionObserver]},
            "a list of SessionObserver objects, got <class",
        ),
        ({"observers": trioeval.SessionObserver()}, "a list of SessionObserver objects, got <trio"),
        ({"providers": {"model": 5}}, "provider 'model' must be an async function, got 5"),
        ({"providers": [Model()]}, r"providers must map ids to async functions, .* got \[Model"),
    ],
)
def test_arguments_of_a_session_are_checked(wrong: dict[str, Any], message: str) -> None:
    """Before anything runs."""

    async def main() -> None:
        async with open_session(**wrong):
            pytest.fail("the session was opened")

    with pytest.raises(UsageError, match=message):
        trio.run(main)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", r'"" is not a valid id of a run: it is empty'),
        ("../x", r'contains "/"'),
        ("a\0b", r"contains "),
        ("..", "name of a folder"),
        ("latest~2", "the latest run"),
        ("x" * 201, "201 characters; use at most 200"),
        (7, "must be text, got int"),
    ],
)
def test_ids_that_commands_cannot_name_are_refused(wrong: Any, message: str) -> None:
    """An id is also the name of a folder of agents."""

    async def body(session: Session) -> None:
        with pytest.raises(UsageError, match=message):
            async with session.run(suite_of(1), id=wrong):
                pytest.fail("the block began")
        with pytest.raises(
            UsageError, match="what load_suite, parse_suite or prepare returns; got"
        ):
            await session.collect({"providers": ["echo"]})  # type: ignore[arg-type]

    in_session(body)


def test_a_workspace_that_contains_its_copies_is_refused_before_anything_is_stored(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    suite = trioeval.parse_suite(
        {
            "providers": ["exec:true"],
            "tasks": [
                {
                    "id": "fix",
                    "type": "agent",
                    "prompts": ["x"],
                    "workspace": ".",
                    "tests": [{"id": "one"}],
                }
            ],
        },
        directory=tmp_path,
    )

    async def main() -> None:
        async with open_session(store=path) as session:
            with pytest.raises(UsageError, match="contains"):
                async with session.run(suite, id="mine"):
                    pytest.fail("the block began")
            with trioeval.read_store(path) as reader:
                assert reader.runs() == []

    trio.run(main)


def test_runs_that_are_over_are_not_kept_in_memory() -> None:
    runs: list[weakref.ref[StoredRun]] = []

    class Watch(trioeval.SessionObserver):
        def on_run_start(self, run: Run, /) -> None:
            runs.append(weakref.ref(run._stored))

    async def body(session: Session) -> None:
        for _ in range(3):
            await session.collect(suite_of(1))
        gc.collect()
        assert [run() is None for run in runs[:-1]] == [True, True]

    in_session(body, observers=[Watch()])


def test_a_run_is_refused_while_it_is_in_progress() -> None:
    """Also in the same process, and it is not disturbed."""

    async def body(session: Session) -> None:
        async with session.run(suite_of(2), id="a") as run:
            with pytest.raises(UsageError, match="run a is in progress in this session"):
                async with session.run(suite_of(2), id="a", resume=True):
                    pytest.fail("the block began")
        assert run.summary is not None
        assert run.summary.ended == "finished"

    in_session(body)


def test_workers_are_not_opened_for_a_run_that_is_in_progress(tmp_path: Path) -> None:
    """RESUME: they would use its limits and its journal. Also if another session runs it."""
    suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["a"]})

    async def refused(session: Session, text: str, *, resume: bool = True) -> None:
        with pytest.raises(UsageError, match=text):
            async with session.run(suite, id="a", resume=resume, workers=NoWorkers()):
                pytest.fail("the block began")

    async def main() -> None:
        path = tmp_path / "r.db"
        async with open_session(store=path) as first, open_session(store=path) as second:
            async with first.run(suite, id="a") as run:
                await refused(first, "run a is in progress in this session")
                await refused(second, "the run a is being run by another process")
                await refused(second, "run a is already in", resume=False)
            assert run.summary is not None
            assert run.summary.ended == "finished"

    trio.run(main)


def test_a_run_is_released_after_its_workers_are_closed(tmp_path: Path) -> None:
    """RESUME: until then an execution elsewhere would lose its journal and its limits."""
    suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["a"]})
    closed: list[str] = []

    @asynccontextmanager
    async def closing() -> AsyncGenerator[None]:
        yield None  # the rows run here
        async with open_session(store=path) as other:
            with pytest.raises(UsageError, match="is being run by another process"):
                async with other.run(suite, id="a", resume=True):
                    pytest.fail("the block began")
        closed.append("workers")

    class ClosingWorkers(NoWorkers):
        def open_run(self, *_args: Any, **_more: Any) -> Any:
            return closing()

    path = tmp_path / "r.db"

    async def main() -> None:
        async with open_session(store=path) as session:
            async with session.run(suite, id="a", workers=ClosingWorkers()) as run:
                await run.wait()
            assert closed == ["workers"]
            async with session.run(suite, id="a", resume=True) as again:
                await again.wait()
        assert run.summary is not None
        assert run.summary.ended == "finished"

    trio.run(main)


def test_the_end_of_a_session_ends_its_runs() -> None:
    """A run in a task that outlives the block is cancelled, recorded, and raises nothing."""
    ended: list[str] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def run_on(session: Session, task_status: trio.TaskStatus[None]) -> None:
                async with session.run(suite_of(5, width=1)) as run:
                    task_status.started()
                assert run.summary is not None
                ended.append(run.summary.ended)

            async with open_session(providers={"model": Model()}) as session:

                async def start(*, task_status: trio.TaskStatus[None]) -> None:
                    await run_on(session, task_status)

                await nursery.start(start)

    trio.run(main)
    assert ended == ["cancelled"]


def test_lines_and_records_of_a_run_are_the_same(tmp_path: Path) -> None:
    """The run is like one of the command line: its totals and derived metrics are stored with it."""

    async def main() -> list[dict[str, Any]]:
        async with open_session(store=tmp_path / "runs.db") as session:
            async with session.run(echo_suite(), id="mine") as run:
                pass
            await run.write(tmp_path / "out.jsonl", tmp_path / "out.json")
            return run.to_records()

    records = trio.run(main)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == records
    document = json.loads((tmp_path / "out.json").read_text())["results"]
    assert document["results"] == records
    assert document["prompts"][0]["metrics"]["namedScores"]["half"] == 0.5
    with trioeval.read_store(tmp_path / "runs.db") as reader:
        facts = reader.run("mine")
        assert (facts.state, facts.rows, facts.passed, facts.failed) == ("finished", 2, 1, 1)
        assert facts.derived == {"": [{"half": 0.5}]}
        assert reader.totals(facts) is not None


def echo_suite() -> trioeval.Suite:
    return trioeval.parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["say {{word}}"],
            "tests": [
                {"vars": {"word": word}, "assert": [{"type": "contains", "value": "y a"}]}
                for word in ("a", "b")
            ],
            "derivedMetrics": [{"name": "half", "value": "1 / 2"}],
        }
    )


def test_results_never_overwrite_what_the_run_has_read(tmp_path: Path) -> None:
    """The names of a suite and of its results are often alike."""
    (tmp_path / "animals.json").write_text(
        '{"providers": ["echo"], "prompts": ["{{a}}"], "tests": "file://animals.csv"}'
    )
    (tmp_path / "animals.csv").write_text("a\ncow\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "animals.csv")

    async def body(session: Session) -> None:
        async with session.run(tmp_path / "animals.json") as run:
            pass
        for name, of in (
            ("animals.json", "animals.json"),
            ("animals.csv", "animals.csv"),
            ("link.csv", "animals.csv"),
            ("runs.db", "the store"),
        ):
            with pytest.raises(UsageError, match=f"is the same file as .*{of}"):
                await run.write(tmp_path / name)
        await run.write(tmp_path / "out.csv")
        await run.write(tmp_path / "out.csv")

    in_session(body, store=tmp_path / "runs.db")
    assert (tmp_path / "animals.csv").read_text() == "a\ncow\n"


def test_tables_have_the_columns_of_parquet(tmp_path: Path) -> None:
    """The same values, whether they are read back from a Parquet file or taken from the run."""
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    pytest.importorskip("pandas", reason="needs pandas")
    duckdb = pytest.importorskip("duckdb", reason="needs the extra parquet")

    async def main() -> tuple[Any, Any]:
        async with open_session() as session:
            async with session.run(echo_suite(), id="mine") as run:
                pass
            await run.write(tmp_path / "out.parquet")
            return run.to_arrow(), run.to_pandas()

    table, frame = trio.run(main)
    stored = duckdb.read_parquet(str(tmp_path / "out.parquet"))
    assert isinstance(table, arrow.Table)
    assert table.column_names == stored.columns
    assert [tuple(row.values()) for row in table.to_pylist()] == stored.fetchall()
    assert list(frame["status"]) == ["pass", "fail"]


def fill_up(session: Session) -> None:
    """Let the database grow no more, as on a full disk."""
    store = session._store
    store._writer._connection.execute("PRAGMA max_page_count = 1")


def test_a_store_that_fails_stops_the_runs_and_keeps_their_rows(tmp_path: Path) -> None:
    """A full disk: the reply that was paid for can still be read and written elsewhere."""
    calls: list[str] = []
    warnings: list[str] = []

    async def main() -> None:
        is_full = trio.Event()

        async def model(request: Request) -> str:
            calls.append(request.prompt)
            if len(calls) > 1:
                await is_full.wait()
            return request.prompt

        async with open_session(
            store=tmp_path / "runs.db", providers={"model": model}, on_warning=warnings.append
        ) as session:
            runs: list[Run] = []
            large = [{"word": f"{i}{'x' * 20_000}"} for i in range(40)]

            async def run_on_a_full_disk() -> None:
                async with session.run(suite_of(large, width=1), id="a") as run:
                    runs.append(run)
                    rows = run.rows()
                    await anext(rows)
                    fill_up(session)
                    is_full.set()
                    assert all([isinstance(row, RowRecord) async for row in rows])

            with pytest.raises(StoreError):
                await run_on_a_full_disk()
            (run,) = runs
            assert run.summary is not None
            assert run.summary.ended in {"stopped", "finished"}
            await run.write(tmp_path / "out.jsonl")

    trio.run(main)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    paid = {f"say {json.loads(line)['vars']['word']}" for line in lines if '"output"' in line}
    assert paid >= set(calls)
    assert warnings
