"""Datasets whose groups are made on workers: the rows and totals are those of one process."""

import itertools
from collections import Counter
from typing import Any

import attrs
import pytest
import trio
from dataset_scripted import (
    Built,
    MemoryDatasetJournal,
    Provider,
    built,
    dataset,
    lanes_of,
    seeds,
    whole,
)
from dataset_workers import Losses, ToyGroupWorkers, building_on_workers
from hypothesis import event, given, settings
from hypothesis import strategies as st
from test_dataset_laws import Drawn, Play, check, drawn_datasets, lasting

from trioeval.columns.finish import MemoryOutput
from trioeval.columns.makers.base import GroupOrder, Made
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import Processed, Rows, StageProcessor, Stages
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.kernel import Calls, LaneSpec
from trioeval.providers import Reply
from trioeval.scaleout.datasets import SentDatasets
from trioeval.testing import run_virtual

EXAMPLES = settings().max_examples


def on_workers(play: Play, **more: Any) -> tuple[Built, ToyGroupWorkers]:
    spec = play.spec()

    async def main() -> tuple[Built, ToyGroupWorkers]:
        return await building_on_workers(spec, play.lanes(), **more)

    return run_virtual(main)


@given(drawn=drawn_datasets(), workers=st.integers(1, 3), _seed=st.random_module())
@settings(max_examples=EXAMPLES // 4)
def test_a_dataset_on_workers_has_the_rows_and_drops_of_one_process(
    drawn: Drawn, workers: int, _seed: Any
) -> None:
    """TOTAL, ONCE: nothing is made twice, nothing hangs, and the rows are the same."""
    drawn = lasting(drawn)
    reference = built(Play(drawn).spec(), *Play(drawn).lanes())
    play, journal = Play(drawn), MemoryDatasetJournal()
    found, _toys = on_workers(play, workers=workers, journal=journal)
    check(play, found)
    assert found.rows == reference.rows
    assert sum(found.result.dropped.values()) == sum(reference.result.dropped.values())
    assert not found.result.not_run
    assert max(Counter(journal.recorded).values(), default=1) == 1
    profiles = {profile.name: profile for profile in found.result.columns}
    for profile in reference.result.columns:
        same = profiles[profile.name]
        assert same == attrs.evolve(
            profile, calls=same.calls, failed=same.failed, seconds=same.seconds
        )


@pytest.mark.slow
@given(
    drawn=drawn_datasets(),
    workers=st.integers(1, 3),
    gaps=st.lists(st.integers(0, 12), min_size=1, max_size=2),
    _seed=st.random_module(),
)
@settings(max_examples=EXAMPLES // 4)
def test_a_group_whose_worker_is_lost_is_placed_again_with_its_cells(
    drawn: Drawn, workers: int, gaps: list[int], _seed: Any
) -> None:
    """RESUME, ONCE: the rows are the same, and no recorded cell is made again."""
    drawn = without_order(lasting(drawn))
    reference = built(Play(drawn).spec(), *Play(drawn).lanes())
    play, journal = Play(drawn), MemoryDatasetJournal()
    losses = Losses([0.5 + at for at in itertools.accumulate(gaps)])
    found, toys = on_workers(play, workers=workers, losses=losses, journal=journal)
    event(f"placements of a group: {max(placements(toys).values(), default=0)}")
    check(play, found)
    assert found.rows == reference.rows
    # The first of two causes is random.
    assert sum(found.result.dropped.values()) == sum(reference.result.dropped.values())
    assert max(Counter(journal.recorded).values(), default=1) == 1


@pytest.mark.slow
@given(
    drawn=drawn_datasets(),
    workers=st.integers(1, 3),
    how=st.sampled_from(["stop", "deadline", "kill"]),
    at=st.integers(0, 20),
    data=st.data(),
    _seed=st.random_module(),
)
@settings(max_examples=EXAMPLES // 4)
def test_an_interrupted_dataset_is_resumed_on_workers_or_without(
    drawn: Drawn, workers: int, how: str, at: int, data: st.DataObject, _seed: Any
) -> None:
    """RESUME holds whatever made the first part, and whatever makes the rest."""
    drawn = lasting(drawn)
    reference = built(Play(drawn).spec(), *Play(drawn).lanes())
    first_play, journal = Play(drawn), MemoryDatasetJournal()
    cut: dict[str, Any] = {"stop_at": at + 0.25} if how == "stop" else {}
    cut |= {"deadline": at + 0.25} if how == "deadline" else {}
    first, _ = on_workers(first_play, workers=workers, journal=journal, **cut)
    check(first_play, first)
    writes = len(journal.all)
    before = journal.cut(data.draw(st.integers(0, writes)) if how == "kill" else writes)
    files = {file.group: file for file in before.groups()}
    output = MemoryOutput(
        reference.run.spec.grouping, files, {group: first.output.rows[group] for group in files}
    )
    again = Play(drawn)
    again.made = Counter(dict.fromkeys(before.recorded, 1))
    if data.draw(st.booleans(), "on workers"):
        second, _ = on_workers(again, workers=workers, journal=before, output=output)
    else:
        second = built(again.spec(), *again.lanes(), journal=before, output=output)
    event(f"{how}: {first.result.outcome}")
    check(again, second)
    assert second.rows == reference.rows
    assert sum(second.result.dropped.values()) == sum(reference.result.dropped.values())
    assert max(Counter(before.recorded).values(), default=1) == 1


@given(drawn=drawn_datasets(), workers=st.integers(1, 3), _seed=st.random_module())
@settings(max_examples=EXAMPLES // 4)
def test_every_row_has_one_outcome_on_workers(drawn: Drawn, workers: int, _seed: Any) -> None:
    """TOTAL: also if too many calls fail, which ends the dataset on all workers."""
    play = Play(drawn)
    found, _toys = on_workers(play, workers=workers)
    check(play, found)
    event(f"early shutdown: {found.result.early_shutdown}")
    assert not found.run.progress.groups
    assert not found.run.progress.orders
    assert found.result.early_shutdown or not found.result.not_run


def test_a_group_that_three_workers_did_not_survive_is_lost() -> None:
    """Its rows are dropped as failed, and the other groups are made."""
    asked = Provider("a", "p", seconds=2.0)
    spec = dataset(asked.col(), rows=6, size=3)

    async def main() -> tuple[Built, ToyGroupWorkers]:
        losses = Losses([0.5, 1.0, 1.5])
        lanes = [LaneSpec("p", 3)]
        return await building_on_workers(spec, lanes, workers=1, losses=losses)

    found, toys = run_virtual(main)
    assert found.result.dropped == {"failed": 6}
    assert {one.kind for one in found.result.failures} == {"worker_crashed"}
    assert found.result.first_error == "row 0: 3 workers were lost while they made this row"
    assert set(placements(toys).values()) == {3}


def test_a_group_of_which_each_lost_worker_made_a_cell_is_not_lost() -> None:
    """Only losses without a new cell count."""
    asked = Provider("a", "p", seconds=1.0)
    spec = dataset(asked.col(), rows=5, size=5)

    async def main() -> tuple[Built, ToyGroupWorkers]:
        losses = Losses([1.5, 3.0, 4.5, 6.0])
        lanes = [LaneSpec("p", 1, adaptive="off")]
        return await building_on_workers(spec, lanes, workers=1, losses=losses)

    found, toys = run_virtual(main)
    assert found.numbers == [0, 1, 2, 3, 4]
    assert len(toys.shards) == 5
    assert [asked.attempts[row] for row in range(5)] == [1, 2, 2, 2, 2]


def test_replies_that_arrived_go_with_a_group_that_is_placed_again() -> None:
    """A cell of several calls continues; a reply that was rejected is requested again."""
    spec = dataset(Provider("a", "p", seconds=2.0).col(), rows=4, size=2)
    keys = [CallKey("t", row, "cell", bytes(16)) for row in (0, 1, 3)]

    async def main() -> ToyGroupWorkers:
        lanes = [LaneSpec("p", 1, adaptive="off")]
        async with trio.open_nursery() as nursery:
            toys = ToyGroupWorkers(nursery, spec, lanes)
            toys.datasets = datasets = SentDatasets()
            datasets.connect(toys)
            toys.join("first")
            run = DatasetRun(datasets.adapt(spec), MemoryOutput(spec.grouping))
            datasets.on_open(run)

            async def change() -> None:
                await trio.sleep(0.5)
                for key in keys:
                    datasets.on_call(
                        CallRecord(
                            key=key,
                            provider="p",
                            prompt="q",
                            answer=Reply(output=key.index),
                            latency_ms=1.0,
                        )
                    )
                datasets.on_reject(keys[1])
                toys.lose("first")
                toys.join("second")

            nursery.start_soon(change)
            await run.build(lanes_of())
            nursery.cancel_scope.cancel()
        return toys

    toys = run_virtual(main)
    sent = {number: shard.replies for shard in toys.shards for number in shard.groups}
    assert [key for key, _ in sent[0]] == [keys[0]]
    assert [key for key, _ in sent[1]] == [keys[2]]
    assert all(not shard.replies for shard in toys.shards[: len(toys.shards) // 2])


def test_processors_of_a_group_see_all_of_its_columns() -> None:
    """Those of groups run on the workers, those of the whole dataset where its files are written."""
    seen: list[tuple[str, int | None, list[str]]] = []

    def processor(name: str) -> StageProcessor:
        async def run(group: int | None, rows: Rows) -> Processed:  # noqa: ASYNC124 - computes only
            seen.append((name, group, sorted({key for _, row in rows for key in row})))
            return Processed([(row, values) for row, values in rows if row % 3])

        return StageProcessor(name=name, run=run)

    stages = Stages(
        before_batch=(processor("before"),),
        after_batch=(processor("after"),),
        after_generation=(processor("all"),),
    )
    spec = dataset(whole("seed", seeds()), Provider("a", "p").col("seed"), rows=8, size=4)
    spec = attrs.evolve(spec, stages=stages, columns=["a"])
    reference = built(spec, LaneSpec("p", 2))
    before, seen[:] = sorted(seen, key=str), []

    async def main() -> tuple[Built, ToyGroupWorkers]:
        return await building_on_workers(spec, [LaneSpec("p", 2)])

    found, _ = run_virtual(main)
    assert sorted(seen, key=str) == before
    assert found.rows == reference.rows
    assert found.result.dropped == reference.result.dropped


def test_a_group_whose_processor_fails_is_dropped_as_without_workers() -> None:
    """The cause and the error are the same, and so are the columns that processors keep aside."""

    async def drop_raw(_group: int | None, rows: Rows) -> Processed:  # noqa: ASYNC124 - computes only
        left = [(row, {"a": values["a"]}) for row, values in rows]
        aside = [(row, {"seed": values["seed"]}) for row, values in rows]
        return Processed(left, aside, frozenset({"seed"}))

    async def fail(group: int | None, rows: Rows) -> Processed:  # noqa: ASYNC124 - computes only
        if group == 1:
            raise ValueError("no")
        return Processed(rows)

    stages = Stages(
        after_batch=(
            StageProcessor(name="raw", run=drop_raw),
            StageProcessor(name="fails", run=fail, on_error="drop_group"),
        ),
    )
    spec = dataset(whole("seed", seeds()), Provider("a", "p").col("seed"), rows=8, size=3)
    spec = attrs.evolve(spec, stages=stages, columns=["a"])
    reference = built(spec, LaneSpec("p", 2))

    async def main() -> tuple[Built, ToyGroupWorkers]:
        return await building_on_workers(spec, [LaneSpec("p", 2)])

    found, _ = run_virtual(main)
    assert found.rows == reference.rows
    assert found.output.aside == reference.output.aside != {}
    assert found.result.failures == reference.result.failures != ()
    assert found.result.dropped == {"failed": 3}


def test_groups_wait_for_a_worker_that_takes_them_in_turn() -> None:
    """The lanes of all workers are used, and a worker has no more groups than it needs."""
    asked = Provider("a", "p", seconds=1.0)
    spec = dataset(asked.col(), rows=400, size=10)

    async def main() -> tuple[Built, ToyGroupWorkers]:
        lanes = [LaneSpec("p", 5, adaptive="off")]
        return await building_on_workers(spec, lanes, workers=4)

    found, toys = run_virtual(main)
    assert len(found.numbers) == 400
    assert found.ended_at == pytest.approx(400 / (4 * 5), rel=0.1)
    assert len(toys.shards) > 4


def test_a_failure_of_the_whole_dataset_ends_it_on_all_workers() -> None:
    """The error is that of a run without workers, where the first group fails first."""

    async def none(_order: GroupOrder, _calls: Calls[Any]) -> Made:  # noqa: ASYNC124 - computes only
        return []

    col = whole("b", none, "seed", leaves_out=True)
    spec = dataset(whole("seed", seeds()), col, rows=4, size=2)
    reference = built(spec)

    async def main() -> tuple[Built, ToyGroupWorkers]:
        return await building_on_workers(spec, [LaneSpec("p", 2)])

    found, _ = run_virtual(main)
    assert found.result.error is not None
    assert (
        found.result.error[:-1]
        == (reference.result.error or "")[:-1]
        == "column 'b' drops all rows of group "
    )
    assert found.result.not_run == {"fault": 4}


def without_order(drawn: Drawn) -> Drawn:
    """A column in the order of the groups may be called for a group again when its worker is lost."""
    columns = [attrs.evolve(column, ordered=False) for column in drawn.columns]
    return attrs.evolve(drawn, columns=tuple(columns))


def placements(toys: ToyGroupWorkers) -> Counter[int]:
    """The number of workers that each group was sent to."""
    return Counter(group for shard in toys.shards for group in shard.groups)
