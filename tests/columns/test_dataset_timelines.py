"""Whole timelines on the virtual clock, to the second."""

from collections.abc import Mapping
from typing import Any

import attrs
import trio
from dataset_scripted import (
    Built,
    Group,
    MemoryDatasetJournal,
    Provider,
    Values,
    built,
    cell,
    dataset,
    lanes_of,
    whole,
)

from trioeval.columns.events import GroupOpened, GroupWritten, ProcessorStarted
from trioeval.columns.finish import MemoryOutput
from trioeval.columns.makers.base import CellOrder, GroupOrder, Made
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import Processed, Rows, StageProcessor, Stages
from trioeval.kernel import Calls, LaneSpec
from trioeval.testing import run_virtual

Span = tuple[float, float]


@attrs.define
class Chart:
    """The start and end of each job, by column and group."""

    spans: dict[tuple[str, int], Span] = attrs.field(factory=dict)

    def add(self, name: str, group: int, began: float) -> None:
        """Note that something has ended."""
        first, last = self.spans.get((name, group), (began, began))
        self.spans[name, group] = min(first, began), max(last, trio.current_time())

    def group(self, name: str, seconds: float) -> Group:
        """Return a maker of a group."""

        async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
            began = trio.current_time()
            await trio.sleep(seconds)
            self.add(name, order.group, began)
            return [(row, {name: row}) for row in order.rows]

        return make

    def cell(self, name: str, lane: str, seconds: float, size: int) -> Any:
        """Return a maker of cells that all take the same time."""

        async def send() -> None:
            await trio.sleep(seconds)

        async def make(order: CellOrder, calls: Calls[Any]) -> Values:
            began = trio.current_time()
            await calls(lane, send)
            self.add(name, order.row // size, began)
            return {name: order.row}

        return make

    def stage(self, name: str, seconds: float) -> StageProcessor:
        """Return a processor that changes nothing."""

        async def run(group: int | None, rows: Rows) -> Processed:
            began = trio.current_time()
            await trio.sleep(seconds)
            self.add(name, -1 if group is None else group, began)
            return Processed(rows)

        return StageProcessor(name=name, run=run)


def five_columns(
    chart: Chart, rows: int, size: int, *, prepares: bool, ordered: bool
) -> tuple[Built, Mapping[tuple[str, int], Span]]:
    """Return five columns: A makes B and C, these make D, and that makes E."""
    before = (chart.stage("pre", 1),) if prepares else ()
    spec = dataset(
        whole("E", chart.group("E", 1), "D"),
        whole("D", chart.group("D", 1), "B", "C"),
        cell("C", chart.cell("C", "c", 3, size), "A", lane="c"),
        cell("B", chart.cell("B", "b", 4, size), "A", lane="b"),
        whole("A", chart.group("A", 2), ordered=ordered),
        rows=rows,
        size=size,
        stages=Stages(before_batch=before, after_batch=(chart.stage("post", 1),)),
    )
    return built(spec, LaneSpec("b", 20), LaneSpec("c", 20)), chart.spans


def test_five_columns_of_one_group_run_in_dependency_order() -> None:
    """The order is: seeds, the stage before all others, B and C together, D, E, the checkpoint."""
    found, spans = five_columns(Chart(), 5, 5, prepares=True, ordered=False)
    assert spans == {
        ("A", 0): (0, 2),
        ("pre", 0): (2, 3),
        ("B", 0): (3, 7),
        ("C", 0): (3, 6),
        ("D", 0): (7, 8),
        ("E", 0): (8, 9),
        ("post", 0): (9, 10),
    }
    assert [event.at for event in found.of(GroupWritten)] == [10]
    assert [event.name for event in found.of(ProcessorStarted)] == ["pre", "post"]
    assert found.result.written == 5


def test_groups_overlap_after_an_ordered_seed() -> None:
    """Group 1 starts while group 0 is in its later columns; only the seed goes from group to group."""
    _, spans = five_columns(Chart(), 9, 3, prepares=False, ordered=True)
    expected: dict[tuple[str, int], Span] = {}
    for group in range(3):
        begin = 2 * group
        expected |= {
            ("A", group): (begin, begin + 2),
            ("B", group): (begin + 2, begin + 6),
            ("C", group): (begin + 2, begin + 5),
            ("D", group): (begin + 6, begin + 7),
            ("E", group): (begin + 7, begin + 8),
            ("post", group): (begin + 8, begin + 9),
        }
    assert spans == expected


def test_groups_run_concurrently_without_an_ordered_column() -> None:
    """All of them have the same progress at every instant."""
    _, spans = five_columns(Chart(), 9, 3, prepares=False, ordered=False)
    assert {span for (name, _), span in spans.items() if name == "A"} == {(0, 2)}
    assert {span for (name, _), span in spans.items() if name == "post"} == {(8, 9)}


def test_a_narrow_lane_serves_older_groups_first() -> None:
    """With one slot, a group of two rows ends before the next one starts."""
    a = Provider("a", "p", seconds=1.0)
    b = Provider("b", "p", seconds=1.0)
    seed = whole("seed", Chart().group("seed", 0))
    found = built(dataset(seed, a.col("seed"), b.col("a"), rows=4, size=2), LaneSpec("p", 1))
    assert [event.at for event in found.of(GroupWritten)] == [4, 8]
    assert a.starts[:2] == [(0, 0), (1, 1)] or b.starts[0] == (1, 0)
    assert {at for at, _ in a.starts + b.starts} == set(range(8))


def test_co_66_a_cancelled_run_keeps_complete_groups() -> None:
    """Calls in flight are cancelled; complete groups are written, which takes time; nothing is lost."""
    a = Provider("a", "p", seconds=lambda row: 1.0 if row < 2 else 100.0)
    b = Provider("b", "p", seconds=2.0)
    journal = MemoryDatasetJournal()
    seed = whole("seed", Chart().group("seed", 0), is_recorded=False)
    chart = Chart()
    stages = Stages(after_batch=(chart.stage("post", 4),))
    spec = dataset(seed, a.col("seed"), b.col("seed"), rows=9, size=2, stages=stages)
    output = MemoryOutput(spec.grouping)
    results: list[Any] = []

    async def main() -> None:
        run = DatasetRun(spec, output, journal=journal)
        lanes = lanes_of(LaneSpec("p", 7))
        with trio.move_on_after(5.5) as scope:
            await run.build(lanes)
        assert scope.cancelled_caught
        results.append(run.result(trio.current_time()))
        assert lanes["p"].in_flight == 0

    run_virtual(main)
    [result] = results
    assert list(output.written) == [0]
    assert chart.spans == {("post", 0): (5.5, 9.5)}  # it was cut off once
    assert len(a.cancelled) + len(b.cancelled) == 7
    assert result.written == 2
    again = MemoryOutput(spec.grouping, dict(output.written), dict(output.rows))
    seen = (a.attempts + b.attempts).total()
    resumed = built(spec, LaneSpec("p", 7), journal=journal.cut(10**6), output=again)
    assert resumed.result.written == 9
    assert (a.attempts + b.attempts).total() - seen == 18 - 2 * 2 - len(
        [one for one in journal.recorded if one[1] >= 2]
    )


def test_co_66_the_counts_of_a_cancelled_run_add_up() -> None:
    """Every row has its outcome, also in groups that were never opened."""
    a = Provider("a", "p", seconds=10.0)
    seed = whole("seed", Chart().group("seed", 0))
    spec = dataset(seed, a.col("seed"), rows=40, size=2, max_open_cells=12)

    async def main() -> Any:
        run = DatasetRun(spec, MemoryOutput(spec.grouping))
        with trio.move_on_after(25):
            await run.build(lanes_of(LaneSpec("p", 4)))
        return run.result(trio.current_time())

    result = run_virtual(main)
    assert (result.written, result.not_run, result.outcome) == (8, {"cancel": 32}, "incomplete")


def test_a_stop_lets_running_calls_finish() -> None:
    """Nothing new starts; complete groups are written."""
    a = Provider("a", "p", seconds=10.0)
    seed = whole("seed", Chart().group("seed", 0))
    spec = dataset(seed, a.col("seed"), rows=20, size=2, max_open_cells=12)

    async def main() -> Any:
        run = DatasetRun(spec, MemoryOutput(spec.grouping))
        stop = trio.Event()

        async def stops() -> None:
            await trio.sleep(15)
            stop.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stops)
            result = await run.build(lanes_of(LaneSpec("p", 3)), stop=stop)
        return result, trio.current_time()

    result, at = run_virtual(main)
    assert at == 20
    assert sorted(a.rows) == [0, 1, 2, 3, 4, 5]
    assert (result.written, result.not_run) == (6, {"stop": 14})


def test_a_deadline_cancels_running_calls() -> None:
    """Complete groups are written."""
    a = Provider("a", "p", seconds=lambda row: 10.0 + row)
    seed = whole("seed", Chart().group("seed", 0))
    found = built(dataset(seed, a.col("seed"), rows=6, size=2), LaneSpec("p", 6), deadline=12.0)
    assert found.ended_at == 12
    assert found.numbers == [0, 1]
    assert found.result.not_run == {"deadline": 4}


def test_a_group_complete_at_the_deadline_is_written_after_it() -> None:
    """Its processor was cut off, and runs again."""
    a = Provider("a", "p", seconds=5.0)
    chart = Chart()
    seed = whole("seed", chart.group("seed", 0))
    stages = Stages(after_batch=(chart.stage("post", 4),))
    found = built(
        dataset(seed, a.col("seed"), rows=2, stages=stages), LaneSpec("p", 2), deadline=6.0
    )
    assert list(chart.spans["post", 0]) == [6, 10]
    assert (found.result.written, found.result.outcome) == (2, "complete")


def test_no_group_is_opened_when_the_run_ends() -> None:
    """Groups that would only be lost stay closed."""
    a = Provider("a", "p", seconds=10.0)
    seed = whole("seed", Chart().group("seed", 0))
    spec = dataset(seed, a.col("seed"), rows=60, size=2, max_open_cells=4)
    found = built(spec, LaneSpec("p", 2), deadline=15.0)
    assert len(found.of(GroupOpened)) == 2
    assert found.result.not_run == {"deadline": 58}
