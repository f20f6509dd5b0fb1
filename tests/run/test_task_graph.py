"""Tasks of a suite that depend on each other, on the virtual clock."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.errors import PlanError, SuiteError, UsageError
from trioeval.kernel import Lanes, LaneSpec, StopReason
from trioeval.loading.load import parse_suite
from trioeval.providers import Request
from trioeval.run import PreparedSuite, Row, Status, collect, make_lanes, prepare, run_suite
from trioeval.suite.dependencies import FailedDependency
from trioeval.suite.model import Suite, Task
from trioeval.testing import run_virtual


@attrs.define
class TimedProvider:
    """A provider that answers a prompt `name seconds` after that time, and fails for `name fails`."""

    calls: list[tuple[str, float]] = attrs.field(factory=list)
    """The names, with the instants of their calls."""

    async def __call__(self, request: Request) -> str:
        name, does, *_ = request.prompt.split()
        self.calls.append((name, trio.current_time()))
        if does == "fails":
            raise ValueError("no luck")
        await trio.sleep(float(does))
        return request.prompt


def task(name: str, *prompts: str, after: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """Return a task with one row per prompt, which run one after another if they share a lane of width 1."""
    return {
        "id": name,
        "type": "prompt_eval",
        "prompts": [f"{name} {prompt} {place}" for place, prompt in enumerate(prompts)],
        "dependsOn": [*after],
        **more,
    }


def suite_of(
    *tasks: dict[str, Any], policies: Mapping[str, FailedDependency] | None = None, **options: Any
) -> Suite:
    suite = parse_suite({"providers": ["mine"], "tasks": [*tasks], "evaluateOptions": options})
    made = (
        attrs.evolve(task, when_failed=(policies or {}).get(task.id, "skip"))
        for task in suite.tasks
    )
    return attrs.evolve(suite, tasks=tuple(made))


@attrs.define
class Ran:
    """The record of a run."""

    provider: TimedProvider = attrs.field(factory=TimedProvider)
    rows: list[tuple[str, int, str, float]] = attrs.field(factory=list)
    """Task, index, outcome, and the instant of emission."""
    errors: list[str | None] = attrs.field(factory=list)
    cuts: set[StopReason | None] = attrs.field(factory=set)
    warned: list[str] = attrs.field(factory=list)

    async def emit(self, row: Row) -> None:
        await trio.lowlevel.checkpoint()
        self.rows.append((row.task or "", row.index, row.outcome, trio.current_time()))
        self.errors.append(row.error)
        self.cuts.add(row.cut)

    def prepared(self, suite: Suite) -> PreparedSuite:
        return prepare(suite, providers={"mine": self.provider})

    def outcomes(self) -> dict[str, list[str]]:
        """Return the outcomes of each task, in the order in which they were emitted."""
        found: dict[str, list[str]] = {}
        for name, index, outcome, _ in self.rows:
            assert index == len(found.setdefault(name, []))
            found[name].append(outcome)
        return found


def ran(suite: Suite, main: Callable[[Ran, PreparedSuite], Awaitable[None]] | None = None) -> Ran:
    found = Ran()

    async def plainly() -> None:
        prepared = found.prepared(suite)
        if main is None:
            await run_suite(prepared, emit=found.emit, warn=found.warned.append)
        else:
            await main(found, prepared)

    run_virtual(plainly)
    return found


def test_independent_tasks_run_concurrently() -> None:
    """Both start at once; rows come as they finish, and name their task."""
    found = ran(suite_of(task("a", "3"), task("b", "1", "2")))
    assert sorted(found.provider.calls) == [("a", 0), ("b", 0), ("b", 0)]
    assert found.rows == [("b", 0, "done", 1), ("b", 1, "done", 2), ("a", 0, "done", 3)]


def test_a_task_starts_when_its_last_dependency_ends() -> None:
    """It starts at that instant, with all of their rows; a third task continues meanwhile."""
    found = ran(
        suite_of(
            task("c", "1", "1", after=["a", "b"]), task("a", "2"), task("b", "5"), task("d", "9")
        )
    )
    assert sorted(found.provider.calls) == [("a", 0), ("b", 0), ("c", 5), ("c", 5), ("d", 0)]


def test_a_failed_assertion_is_a_verdict_and_blocks_nothing() -> None:
    """Rows that pass or fail both count as done."""
    wrong = [{"assert": [{"type": "equals", "value": "no"}]}]
    found = ran(suite_of(task("a", "1", tests=wrong), task("b", "1", after=["a"])))
    assert found.outcomes() == {"a": ["done"], "b": ["done"]}
    assert found.provider.calls == [("a", 0), ("b", 1)]


def test_a_row_without_a_verdict_blocks_its_dependants_transitively() -> None:
    """No call is made for them; each of their rows names the incomplete task. Others are not affected."""
    found = ran(
        suite_of(
            task("a", "fails", "2"),
            task("b", "1", "1", after=["a"]),
            task("c", "1", after=["d", "b"]),
            task("d", "3"),
        )
    )
    assert sorted(name for name, _ in found.provider.calls) == ["a", "a", "d"]
    assert found.outcomes() == {
        "a": ["failed", "done"],
        "b": ["blocked", "blocked"],
        "d": ["done"],
        "c": ["blocked"],
    }
    assert found.errors[2:4] == ["blocked by task a"] * 2
    assert found.cuts == {None}
    assert found.errors[-1] == "blocked by task b"


def test_a_task_runs_anyway_if_that_is_its_policy() -> None:
    """It runs when all dependencies have ended; its own dependants only need its own rows."""
    tasks = [task("a", "fails", "2"), task("b", "1", after=["a"]), task("c", "1", after=["b"])]
    found = ran(suite_of(*tasks, policies={"b": "run"}))
    assert found.outcomes() == {"a": ["failed", "done"], "b": ["done"], "c": ["done"]}
    assert found.provider.calls[2:] == [("b", 2), ("c", 3)]


def test_a_task_fails_if_that_is_its_policy() -> None:
    """Each row names the incomplete task; no call is made, and the task is incomplete itself."""
    tasks = [task("a", "fails"), task("b", "1", "1", after=["a"]), task("c", "1", after=["b"])]
    found = ran(suite_of(*tasks, policies={"b": "fail"}))
    assert found.outcomes() == {"a": ["failed"], "b": ["failed"] * 2, "c": ["blocked"]}
    assert found.errors[1:] == [
        "task a, which it depends on, is not complete",
        "task a, which it depends on, is not complete",
        "blocked by task b",
    ]
    assert [name for name, _ in found.provider.calls] == ["a"]


def test_ag_74_held_tasks_end_when_nothing_else_continues() -> None:
    """Each is reported with its chain; their dependants continue by their own policies."""
    found = ran(
        suite_of(
            task("a", "fails"),
            task("b", "1", after=["a"]),
            task("c", "1", after=["b"]),
            task("d", "1", after=["c"]),
            task("e", "1", after=["c"]),
            task("f", "9"),
            policies={"b": "skip", "c": "block", "d": "block", "e": "run"},
        )
    )
    assert found.outcomes() == {
        "a": ["failed"],
        "b": ["blocked"],
        "f": ["done"],
        "c": ["blocked"],
        "e": ["done"],
        "d": ["blocked"],
    }
    ended_at = {name: at for name, _, _, at in found.rows}
    assert ended_at == {"a": 0, "b": 0, "f": 9, "c": 9, "e": 10, "d": 10}
    assert found.warned == [
        "a task cannot be run: c waits for b, b for a (not complete)",
        "a task cannot be run: d waits for c, c for b, b for a (not complete)",
    ]


def test_a_chain_ends_at_a_task_that_ran_with_an_incomplete_dependency() -> None:
    """It is incomplete for another reason."""
    tasks = [task("a", "fails"), task("b", "fails", after=["a"]), task("c", "1", after=["b"])]
    found = ran(suite_of(*tasks, policies={"b": "run", "c": "block"}))
    assert found.warned == ["a task cannot be run: c waits for b (not complete)"]
    assert found.outcomes()["c"] == ["blocked"]


def test_a_held_task_of_a_stopped_run_was_not_run() -> None:
    """The missing dependency is not the cause, and is not reported."""

    async def main(found: Ran, prepared: PreparedSuite) -> None:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                lambda: run_suite(prepared, emit=found.emit, stop=stop, warn=found.warned.append)
            )
            await trio.sleep(1)
            stop.set()

    tasks = [task("a", "fails"), task("b", "1", after=["a"]), task("c", "9")]
    found = ran(suite_of(*tasks, policies={"b": "block"}), main)
    assert found.outcomes() == {"a": ["failed"], "c": ["done"], "b": ["not_run"]}
    assert found.warned == []


def test_a_task_without_rows_is_done() -> None:
    """None of its rows lacks a verdict."""
    found = ran(suite_of(task("a", "1", scenarios=[]), task("b", "1", after=["a"])))
    assert found.outcomes() == {"b": ["done"]}


def test_tasks_share_the_lane_of_a_provider() -> None:
    """The width limits their calls together; if they configure different widths, the smaller one holds."""
    narrow = task("a", "1", "1", evaluateOptions={"maxConcurrency": 1})
    found = ran(suite_of(narrow, task("b", "1", "1")))
    assert sorted(at for _, at in found.provider.calls) == [0, 1, 2, 3]


def test_the_budget_is_that_of_all_tasks_together() -> None:
    """Three requests for four rows in two tasks."""
    found = ran(suite_of(task("a", "1", "1"), task("b", "1", "1"), budget={"requests": 3}))
    assert len(found.provider.calls) == 3
    assert sorted(outcome for _, _, outcome, _ in found.rows) == ["done", "done", "done", "not_run"]
    assert any("budget exhausted: 3 of 3 requests spent" in (error or "") for error in found.errors)


def test_a_task_that_the_budget_left_incomplete_has_not_failed() -> None:
    """Its dependants are left for a resume, whatever their policy, unless they lack something else."""
    more: dict[str, FailedDependency] = {"f": "fail", "s": "skip", "w": "block", "r": "run"}
    suite = suite_of(
        task("b", "fails"),
        task("a", "1", "1"),
        *(task(name, "1", after=["a"]) for name in more),
        task("x", "1", after=["r"]),
        task("y", "1", after=["a", "b"]),
        budget={"requests": 2},
        policies={**more, "x": "fail", "y": "fail"},
    )
    found: dict[str, Row] = {}

    async def main(ran: Ran, prepared: PreparedSuite) -> None:
        async def emit(row: Row) -> None:
            await ran.emit(row)
            found[row.task or ""] = row

        await run_suite(prepared, emit=emit, warn=ran.warned.append)

    assert ran(suite, main).warned == []
    assert {row.cut for name, row in found.items() if name not in "by"} == {StopReason.BUDGET}
    left = [found[name] for name in [*more, "x"]]
    assert {row.outcome for row in left} == {"not_run"}
    used_up = "not run: the budget of the run is used up before task"
    assert {row.error for row in left} == {f"{used_up} {by} was complete" for by in "ar"}
    assert (found["y"].outcome, found["y"].cut) == ("failed", None)
    assert found["y"].error == "task b, which it depends on, is not complete"


def test_the_deadline_is_that_of_the_whole_run() -> None:
    """Running rows are interrupted; their dependants never start, and report the deadline as the cause."""
    found = ran(suite_of(task("a", "1", "5"), task("b", "1", after=["a"]), maxEvalTimeMs=3000))
    assert found.outcomes() == {"a": ["done", "interrupted"], "b": ["not_run"]}
    assert found.errors[-1] == "not run: the run's deadline (maxEvalTimeMs) passed"
    assert found.rows[-1][-1] == 3


def test_a_stop_lets_running_rows_finish_and_starts_nothing_more() -> None:
    """This holds for a task that becomes ready by a row that finishes after the stop."""

    async def main(found: Ran, prepared: PreparedSuite) -> None:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: run_suite(prepared, emit=found.emit, stop=stop))
            await trio.sleep(1)
            stop.set()

    found = ran(suite_of(task("a", "4"), task("b", "1", after=["a"]), task("c", "9")), main)
    assert found.outcomes() == {"a": ["done"], "b": ["not_run"], "c": ["done"]}
    assert "not run: the run was stopped" in found.errors


def test_a_cancelled_run_emits_every_row_of_every_task_once() -> None:
    """This includes tasks that were never started, and their dependants."""

    async def main(found: Ran, prepared: PreparedSuite) -> None:
        with trio.move_on_after(3):
            await run_suite(prepared, emit=found.emit)
        assert trio.current_time() == 3

    found = ran(
        suite_of(
            task("a", "1", "5"), task("b", "1", "1", after=["a"]), task("c", "1", after=["b"])
        ),
        main,
    )
    assert found.outcomes() == {
        "a": ["done", "interrupted"],
        "b": ["not_run", "not_run"],
        "c": ["not_run"],
    }
    assert set(found.errors[2:]) == {"not run: the run was cancelled"}


def test_an_exception_of_emit_ends_the_run_and_is_raised_unchanged() -> None:
    """It is not wrapped in a group; dependants of the task are not started."""

    async def main(found: Ran, prepared: PreparedSuite) -> None:
        async def emit(row: Row) -> None:
            await found.emit(row)
            raise KeyError("disk")

        with pytest.raises(KeyError, match="disk"):
            await run_suite(prepared, emit=emit)

    found = ran(suite_of(task("a", "1"), task("b", "1", after=["a"]), task("c", "5")), main)
    assert "b" not in found.outcomes()
    assert ("b", 1) not in found.provider.calls


def test_emit_gets_one_row_at_a_time() -> None:
    """This holds although rows of several tasks finish at the same instant."""
    inside = 0

    async def main(found: Ran, prepared: PreparedSuite) -> None:
        async def emit(row: Row) -> None:
            nonlocal inside
            inside += 1
            assert inside == 1
            await trio.sleep(1)
            inside -= 1
            await found.emit(row)

        await run_suite(prepared, emit=emit)

    assert len(ran(suite_of(task("a", "1", "1"), task("b", "1", "1")), main).rows) == 4


def test_a_missing_lane_is_reported_before_any_call() -> None:
    """This holds although the task that needs it would run last."""

    async def main(found: Ran, prepared: PreparedSuite) -> None:
        with pytest.raises(PlanError, match=r"the tasks need the lanes \['mine'\]"):
            await run_suite(prepared, emit=found.emit, lanes=Lanes([LaneSpec("other")]))

    assert not ran(suite_of(task("a", "1"), task("b", "1", after=["a"])), main).provider.calls


def test_collected_rows_are_in_the_order_of_the_tasks() -> None:
    """The order in which tasks end does not matter; the lanes may be those of several suites."""
    suite = suite_of(task("b", "1", after=["a"]), task("a", "2", "1"))
    provider = TimedProvider()

    async def main() -> list[Row]:
        prepared = prepare(suite, providers={"mine": provider})
        return await collect(prepared, lanes=make_lanes(prepared))

    rows = run_virtual(main)
    assert [(row.task, row.index, row.status) for row in rows] == [
        ("b", 0, Status.NOT_GRADED),
        ("a", 0, Status.NOT_GRADED),
        ("a", 1, Status.NOT_GRADED),
    ]


def test_providers_cannot_be_given_with_a_prepared_suite() -> None:
    """Neither `run_suite` nor `collect` accepts them, because they would not be used."""
    prepared = prepare(
        suite_of(task("a", "1"), task("b", "1")), providers={"mine": TimedProvider()}
    )
    with pytest.raises(UsageError, match="pass them to `prepare`"):
        run_virtual(lambda: collect(prepared, providers={"mine": TimedProvider()}))


def test_serial_rows_of_a_task_wait_for_those_of_others() -> None:
    """`runSerially` means alone over all lanes, for rows of all tasks."""
    alone = [{"options": {"runSerially": True}}]
    found = ran(suite_of(task("a", "2", tests=alone), task("b", "2")))
    assert sorted(at for _, at in found.provider.calls) == [0, 2]


def test_each_task_has_its_own_registers() -> None:
    """A stored value is not visible in another task, although both use the same providers."""
    stores = [{"options": {"storeOutputAs": "x"}}]
    shown = task("b", "{{x}}1", after=["a"])
    found = ran(suite_of(task("a", "7", tests=stores), shown))
    assert found.provider.calls == [("a", 0), ("b", 7)]
    assert found.rows[-1][-1] == 8


@pytest.mark.parametrize(
    ("depends_on", "message"),
    [
        ({"a": ("b",), "b": ("a",)}, "tasks depend on each other in a cycle: "),
        ({"a": ("x",), "b": ()}, "task 'a' depends on 'x'; the tasks are ['a', 'b']"),
    ],
)
def test_tasks_made_in_python_are_checked_as_well(
    depends_on: dict[str, tuple[str, ...]], message: str
) -> None:
    """They were not checked by the loader."""
    one = parse_suite({"providers": ["echo"]})
    tasks = tuple(Task(id=name, suite=one, depends_on=on) for name, on in depends_on.items())
    with pytest.raises(PlanError) as caught:
        run_virtual(lambda: collect(Suite(providers=(), prompts=(), tests=(), tasks=tasks)))
    assert message in str(caught.value)


def test_errors_of_providers_are_reported_at_their_position_and_once() -> None:
    """One provider of the top is used by two tasks; another belongs to a task."""
    lost = {"id": "replay:nowhere.jsonl", "label": "lost"}
    suite = parse_suite(
        {
            "providers": ["echo", lost],
            "tasks": [task("a", "1"), task("b", "1", providers=["lost", "missing"])],
        }
    )
    with pytest.raises(SuiteError) as caught:
        prepare(suite)
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["$.providers[1].id", "$.tasks[1].providers[1].id"]


NAMES = "abcde"


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw up to five tasks; each depends on some before it, and some fail."""
    size = draw(st.integers(1, len(NAMES)))
    tasks = []
    for place, name in enumerate(NAMES[:size]):
        after = draw(st.sets(st.sampled_from(NAMES[:place]))) if place else set()
        prompts = draw(st.lists(st.sampled_from(["1", "2", "fails"]), min_size=1, max_size=3))
        tasks.append(task(name, *prompts, after=sorted(after)))
    return draw(st.permutations(tasks))


@pytest.mark.slow
@given(
    tasks=graphs(),
    policies=st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from(["skip", "block", "fail", "run"])
    ),
    cancel_at=st.sampled_from([0.5, 1.0, 1.5, 3.0, 100.0]),
)
@settings(max_examples=30)  # test_task_order.py draws more of them
def test_block_and_total_hold_for_every_graph(
    tasks: list[dict[str, Any]], policies: Mapping[str, FailedDependency], cancel_at: float
) -> None:
    """Laws BLOCK and TOTAL: no call is made before its dependencies are done, and every row comes once."""

    async def main(found: Ran, prepared: PreparedSuite) -> None:
        with trio.move_on_after(cancel_at):
            await run_suite(prepared, emit=found.emit, warn=found.warned.append)

    found = ran(suite_of(*tasks, policies=policies), main)
    outcomes = found.outcomes()
    assert {name: len(rows) for name, rows in outcomes.items()} == {
        one["id"]: len(one["prompts"]) for one in tasks
    }
    over_at = {name: at for name, _, _, at in found.rows}
    for one in tasks:
        name, policy = one["id"], policies.get(one["id"], "skip")
        called_at = [at for provider, at in found.provider.calls if provider == name]
        lacks = [before for before in one["dependsOn"] if set(outcomes[before]) != {"done"}]
        assert not called_at or policy == "run" or not lacks
        assert all(
            min(called_at, default=cancel_at) >= over_at[before] for before in one["dependsOn"]
        )
        if "blocked" in outcomes[name]:
            assert policy in {"skip", "block"}
            assert lacks
        warnings = [line for line in found.warned if f": {name} waits for" in line]
        assert len(warnings) == (policy == "block" and "blocked" in outcomes[name])
