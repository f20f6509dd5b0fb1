"""Whole datasets on the kernel: groups, scopes, orders, and the time of writing."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio
from dataset_scripted import (
    Col,
    Group,
    Provider,
    Values,
    built,
    cell,
    dataset,
    lanes_of,
    refusal,
    seeds,
    whole,
)

from trioeval.columns.events import DatasetEvent, GroupOpened, GroupWritten
from trioeval.columns.finish import MemoryOutput
from trioeval.columns.graph import Producer
from trioeval.columns.makers.base import CellError, CellOrder, GroupOrder, Made
from trioeval.columns.progress import DatasetProgress
from trioeval.columns.run import DatasetRun
from trioeval.kernel import Calls, LaneSpec
from trioeval.testing import run_virtual

P = LaneSpec("p", 4)
SEED = whole("seed", seeds())


def gives(values: Mapping[int, Any] | list[tuple[int, Any]], name: str = "f") -> Group:
    """Return a maker that returns these rows, whatever was requested."""
    listed = list(values.items()) if isinstance(values, Mapping) else values

    async def make(_order: GroupOrder, _calls: Calls[Any]) -> Made:
        return [(row, {name: value}) for row, value in listed]

    return make


def each(name: str = "f", seconds: float = 0.0) -> Group:
    """Return a maker that returns the number of each requested row."""

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        if seconds:
            await trio.sleep(seconds)
        return [(row, {name: row}) for row in order.rows]

    return make


def test_co_20_five_rows_are_in_groups_of_two() -> None:
    """They are 2, 2 and 1 rows, in order."""
    a = Provider("a", "p")
    found = built(dataset(SEED, a.col("seed"), rows=5, size=2), P)
    assert [list(dict(found.output.rows[group])) for group in (0, 1, 2)] == [[0, 1], [2, 3], [4]]
    assert found.rows[3] == {"seed": 30, "a": 3}
    assert (found.result.written, found.result.outcome, found.result.groups) == (5, "complete", 3)


def test_co_21_a_maker_may_change_its_input() -> None:
    """It gets a deep copy: no other maker sees the change."""

    async def deep(order: GroupOrder, _calls: Calls[Any]) -> Made:
        return [(row, {"seed": {"list": [row]}}) for row in order.rows]

    async def spoil(order: CellOrder, _calls: Calls[Any]) -> Values:
        order.values["seed"]["list"].append("spoilt")
        order.values["seed"]["more"] = 1
        return {"a": order.values["seed"]}

    async def spoil_all(order: GroupOrder, _calls: Calls[Any]) -> Made:
        for values in order.values:
            values["seed"]["list"].clear()
        return [(row, {"b": 1}) for row in order.rows]

    found = built(
        dataset(
            whole("seed", deep), cell("a", spoil, "seed"), whole("b", spoil_all, "seed"), rows=2
        )
    )
    assert [found.rows[row]["seed"] for row in (0, 1)] == [{"list": [0]}, {"list": [1]}]
    assert found.rows[0]["a"] == {"list": [0, "spoilt"], "more": 1}


def test_co_22_a_full_maker_with_permission_may_omit_a_row() -> None:
    """The row is dropped as intended."""
    f = whole("f", gives({0: 1, 2: 3}), "seed", leaves_out=True)
    found = built(dataset(SEED, f, rows=3))
    assert found.numbers == [0, 2]
    assert found.result.dropped == {"expression": 1}
    assert (found.result.lost, found.result.outcome) == (0, "complete")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([(0, 1), (1, 1), (7, 1)], "it returned row 7, which was not requested"),
        ([(0, 1), (1, 1), (1, 1)], "it returned row 1 twice"),
        ([(1, 1)], "1 of 2 rows returned; row 0 is missing"),
    ],
)
def test_co_22_a_full_maker_with_wrong_rows_fails(given: list[Any], why: str) -> None:
    """With a foreign, duplicate or missing row the batch fails, and other groups continue."""

    async def make(order: GroupOrder, calls: Calls[Any]) -> Made:
        return await (gives(given) if order.group == 0 else each())(order, calls)

    found = built(dataset(SEED, whole("f", make, "seed"), rows=4, size=2))
    assert found.numbers == [2, 3]
    assert found.result.dropped == {"failed": 2}
    assert {(one.column, one.error) for one in found.result.failures} == {("f", why)}


def test_co_22_a_batch_that_omits_all_rows_fails_the_dataset() -> None:
    """Omitting all rows is never intended: the column is named, and finished groups stay."""

    async def make(order: GroupOrder, calls: Calls[Any]) -> Made:
        return await (each() if order.group == 0 else gives({}))(order, calls)

    f = whole("f", make, "seed", leaves_out=True, ordered=True)
    found = built(dataset(SEED, f, rows=6, size=2))
    assert found.result.error == "column 'f' drops all rows of group 1"
    assert found.result.outcome == "failed"
    assert found.numbers == [0, 1]
    assert found.result.not_run == {"fault": 4}


def test_co_23_a_scratch_maker_with_a_wrong_number_fails_its_group() -> None:
    """The group has no rows and no file; the others exist."""

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        rows = order.rows if order.group else order.rows[:-1]
        return [(row, {"seed": row}) for row in rows]

    a = Provider("a", "p")
    found = built(dataset(whole("seed", make), a.col("seed"), rows=5, size=2), P)
    assert found.numbers == [2, 3, 4]
    assert found.result.dropped == {"failed": 2}
    assert found.result.groups == 3
    assert sorted(a.rows) == [2, 3, 4]


def test_co_24_an_ordered_maker_runs_group_by_group() -> None:
    """Group N comes before N + 1, with the number of its first row, in whatever order groups finish."""
    log: list[Any] = []
    a = Provider("a", "p", seconds=lambda row: 10.0 - row)
    seed = whole("seed", seeds(2, log), ordered=True)
    found = built(dataset(seed, a.col("seed"), rows=6, size=2), LaneSpec("p", 6))
    assert log == [(0, 0, 0), (2, 1, 2), (4, 2, 4)]
    assert [event.group.group for event in found.of(GroupWritten)] == [0, 1, 2]
    slow_first = Provider("a", "p", seconds=lambda row: 50.0 if row < 2 else 1.0)
    log.clear()
    found = built(dataset(seed, slow_first.col("seed"), rows=6, size=2), LaneSpec("p", 6))
    assert [event.group.group for event in found.of(GroupWritten)] == [1, 2, 0]
    assert log == [(0, 0, 0), (2, 1, 2), (4, 2, 4)]


def test_co_24_an_ordered_full_maker_waits_for_the_previous_group() -> None:
    """Its own group may be ready long before: nothing is stuck, and the order is kept."""
    log: list[int] = []

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        log.append(order.group)
        return [(row, {"f": row}) for row in order.rows]

    a = Provider("a", "p", seconds=lambda row: 100.0 if row == 0 else 1.0)
    f = whole("f", make, "a", ordered=True)
    found = built(dataset(SEED, a.col("seed"), f, rows=6, size=2), LaneSpec("p", 6))
    assert log == [0, 1, 2]
    assert found.result.written == 6


def test_co_24_the_turn_skips_a_lost_group() -> None:
    """All rows of group 0 fail: group 1 does not wait forever."""
    log: list[int] = []

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        log.append(order.group)
        return [(row, {"f": row}) for row in order.rows]

    a = Provider("a", "p", says=lambda row, _: refusal() if row < 2 else row)
    f = whole("f", make, "a", ordered=True)
    found = built(dataset(SEED, a.col("seed"), f, rows=6, size=2), LaneSpec("p", 1))
    assert log == [1, 2]
    assert (found.result.written, found.result.dropped) == (4, {"failed": 2})


def test_co_25_one_maker_may_make_several_columns() -> None:
    """One job per group makes them all, including side effects; missing side effects are null."""
    jobs: list[int] = []

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        jobs.append(order.group)
        return [(row, {"x": row, "y": -row}) for row in order.rows]

    async def pair(order: CellOrder, _calls: Calls[Any]) -> Values:
        return {"p": order.values["y"], "q": 1, **({"trace": "t"} if order.row else {})}

    found = built(
        dataset(
            whole("x", make, outputs=["y"]),
            cell("p", pair, "y", outputs=["q"], extras=["trace"]),
            rows=4,
            size=2,
        )
    )
    assert jobs == [0, 1]
    assert found.rows[0] == {"x": 0, "y": 0, "p": 0, "q": 1, "trace": None}
    assert found.rows[3] == {"x": 3, "y": -3, "p": -3, "q": 1, "trace": "t"}


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({}, 'it did not return column "a", only nothing'),
        ({"b": 1}, "it did not return column \"a\", only 'b'"),
        ({"a": 1, "seed": 2}, "it returned column 'seed', which is not one of its own ('a')"),
        ({"a": "1"}, "its value is '1', which is not a valid int"),
    ],
)
def test_an_invalid_result_of_a_maker_drops_its_row(made: Values, why: str) -> None:
    """Cases: a column that is missing, foreign, or of another type."""

    async def make(order: CellOrder, _calls: Calls[Any]) -> Values:
        return made if order.row == 1 else {"a": None}

    found = built(dataset(SEED, cell("a", make, "seed", types={"a": "int"}), rows=3))
    assert found.numbers == [0, 2]
    assert found.rows[0] == {"seed": 0, "a": None}
    [gone] = found.result.failures
    assert (gone.row, gone.cause, gone.column, gone.error) == (1, "failed", "a", why)


def test_rows_of_a_batch_may_fail_alone() -> None:
    """A row with an error instead of values is dropped; the others are not."""

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        return [(row, CellError("no") if row == 1 else {"f": row}) for row in order.rows]

    found = built(dataset(SEED, whole("f", make, "seed"), rows=3))
    assert found.numbers == [0, 2]
    assert [(one.row, one.error) for one in found.result.failures] == [(1, "no")]


def test_co_26_a_faster_group_is_written_first() -> None:
    """Rows are read in their order."""
    a = Provider("a", "p", seconds=lambda row: 5.0 if row < 2 else 1.0)
    found = built(dataset(SEED, a.col("seed"), rows=4, size=2), LaneSpec("p", 4))
    assert [(event.at, event.group.group) for event in found.of(GroupWritten)] == [(1, 1), (5, 0)]

    async def read() -> list[int]:
        return [row for row, _ in await found.output.read()]

    assert run_virtual(read) == [0, 1, 2, 3]


def test_co_52_a_group_larger_than_the_budget_is_opened_alone() -> None:
    """Each is opened in its turn, and all are completed."""
    a = Provider("a", "p")
    spec = dataset(SEED, a.col("seed"), rows=6, size=2, max_open_cells=1)
    found = built(spec, P)
    assert [(event.at, event.group) for event in found.of(GroupOpened)] == [(0, 0), (1, 1), (2, 2)]
    assert found.result.written == 6


def test_groups_are_opened_within_the_budget() -> None:
    """Three groups of 2 rows and 2 columns are 12 cells; bytes limit it as well."""
    a = Provider("a", "p")
    found = built(dataset(SEED, a.col("seed"), rows=12, size=2, max_open_cells=12), P)
    at = [(event.at, event.group) for event in found.of(GroupOpened)]
    assert at[:4] == [(0, 0), (0, 1), (0, 2), (1, 3)]
    narrow = built(dataset(SEED, a.col("seed"), rows=12, size=2, max_open_bytes=1), P)
    assert narrow.result.written == 12


def test_a_group_without_progress_is_not_overtaken_forever() -> None:
    """No group is opened more than four budgets ahead of the oldest."""
    a = Provider("a", "p", seconds=lambda row: 1000.0 if row == 0 else 1.0)
    spec = dataset(SEED, a.col("seed"), rows=100, size=2, max_open_cells=8)
    found = built(spec, LaneSpec("p", 2))
    before = [event.group for event in found.of(GroupOpened) if event.at < 1000]
    assert before == list(range(9))  # 4 budgets of 8 cells are 16 rows
    assert found.result.written == 100


def test_co_67_an_impossible_job_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug of ours is reported as one: a run never hangs, or ends silently."""

    class Forgetful(DatasetProgress):
        def _name_released(self) -> None:
            forgotten = [job for job in self._released if job.row == 1]
            for job in forgotten:
                self._released.remove(job)
                self.groups[job.group].active -= 1
            super()._name_released()

    monkeypatch.setattr("trioeval.columns.run.DatasetProgress", Forgetful)
    a = Provider("a", "p")
    spec = dataset(SEED, a.col("seed"), rows=2)

    async def main() -> None:
        await DatasetRun(spec, MemoryOutput(spec.grouping)).build(lanes_of(P))

    with pytest.raises(RuntimeError, match=r"column 'a' of row 1.*its end.*please report this"):
        run_virtual(main)


def test_an_internal_error_ends_the_run_and_keeps_finished_groups() -> None:
    """It is raised unchanged, and is never a failure of a row."""
    a = Provider("a", "p", seconds=lambda row: 1.0 + 10 * (row // 2))

    @attrs.define(eq=False)
    class Broken(MemoryOutput):
        async def write(self, group: int, rows: Any, dropped: Any, /) -> Any:
            if group == 1:
                raise ZeroDivisionError("ours")
            return await super().write(group, rows, dropped)

    spec = dataset(SEED, a.col("seed"), rows=6, size=2)
    output = Broken(spec.grouping)
    with pytest.raises(ZeroDivisionError, match="ours"):
        built(spec, LaneSpec("p", 6), output=output)
    assert list(output.written) == [0]
    assert sorted(a.cancelled) == [4, 5]


def test_co_79_an_observer_that_raises_is_not_called_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged, and the run continues."""
    a = Provider("a", "p")
    events: list[DatasetEvent] = []

    def observe(event: DatasetEvent) -> None:
        events.append(event)
        if isinstance(event, GroupWritten):
            raise RuntimeError("mine")  # noqa: TRY004 - any error will do

    found = built(dataset(SEED, a.col("seed"), rows=4, size=2), P, observe=observe)
    assert found.result.outcome == "complete"
    assert isinstance(events[-1], GroupWritten)
    assert "an observer raised" in caplog.text


def test_a_million_cheap_jobs_do_not_block_other_tasks() -> None:
    """The worker makes checkpoints."""
    beats = 0

    async def instant(_order: CellOrder, _calls: Calls[Any]) -> Values:
        return {"a": 1}

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await trio.lowlevel.checkpoint()

    spec = dataset(SEED, cell("a", instant, "seed"), rows=3000, size=1000)

    async def main() -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat)
            run = DatasetRun(spec, MemoryOutput(spec.grouping))
            result = await run.build(lanes_of())
            nursery.cancel_scope.cancel()
        return result.written

    assert trio.run(main) == 3000
    assert beats > 15


def test_a_graph_of_one_scratch_column_is_a_dataset() -> None:
    """It consists of groups only."""
    found = built(dataset(SEED, rows=3, size=2))
    assert found.rows == {0: {"seed": 0}, 1: {"seed": 10}, 2: {"seed": 20}}


def test_columns_that_are_not_kept_are_not_written() -> None:
    """They serve to make others."""
    a = Provider("a", "p")
    spec = attrs.evolve(dataset(SEED, a.col("seed"), rows=1), columns=["a"])
    assert built(spec, P).rows == {0: {"a": 0}}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_cells_without_dependencies_are_made_like_others(order: tuple[str, str]) -> None:
    """A producer of cells without dependencies has all rows ready from the start."""
    both = {"a": Provider("a", "p"), "b": Provider("b", "p")}
    found = built(dataset(*[both[name].col() for name in order], rows=3, size=2), P)
    assert found.result.written == 3
    assert isinstance(Producer(name="a", outputs=("a",)), Producer)
    assert isinstance(SEED, Col)


def test_a_job_is_named_by_its_column_and_row() -> None:
    """The name is used in traces of a run."""

    async def made(order: CellOrder, _calls: Calls[Any]) -> Values:
        return {"a": order.row}

    spec = dataset(SEED, cell("a", made, "seed"), rows=3, size=2)
    run = DatasetRun(spec, MemoryOutput(spec.grouping))
    names = [run.job_name(index) for index in range(len(run.plan().jobs))]
    assert names == [
        *("seed of group 0", "a of row 0", "a of row 1", "end of group 0"),
        *("seed of group 1", "a of row 2", "end of group 1"),
    ]
