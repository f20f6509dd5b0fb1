"""Blocks of rows: how jobs are cut into them, and runs with a store that are stopped, cut off and resumed."""

import itertools
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scaleout_coordinator import LOCAL, MANY, ToyCluster, prepared_suite

from trioeval.evaluation.journal import CallRecord, RecordObserver
from trioeval.run import Row, RowsNotRun, RunOptions, run_with_options
from trioeval.scaleout.blocks import BlockJobs
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.messages import AnyShard
from trioeval.scaleout.run_records import RunRecords
from trioeval.store import RunStart, open_store


@given(st.integers(0, 1000), st.integers(1, 100))
def test_each_job_is_in_one_block_in_order(number: int, size: int) -> None:
    blocks = BlockJobs(number, size)
    assert [*itertools.chain(*(block.payload for block in blocks))] == [*range(number)]
    assert [block.index for block in blocks] == [*range(len(blocks))]
    assert all(len(block.payload) == size for block in blocks[:-1])


@attrs.define(eq=False)
class NotingCluster(ToyCluster):
    """Workers whose shards are kept."""

    sent: list[int] = attrs.field(factory=list)

    def submit(self, worker: str, shard: AnyShard) -> None:
        self.sent.extend(shard.rows)
        ToyCluster.submit(self, worker, shard)


@attrs.define
class Execution:
    """The rows that one execution of a run has emitted, sent and paid."""

    rows: dict[int, Row] = attrs.field(factory=dict)
    emitted: list[int] = attrs.field(factory=list)
    ranges: int = 0
    """The number of rows that were emitted many at once."""
    sent: list[int] = attrs.field(factory=list)
    paid: Counter[int] = attrs.field(factory=Counter)


async def execute(
    path: Path,
    *,
    first: bool,
    stop_after: int | None = None,
    cancel_after: int | None = None,
    repeat: int = 1,
    workers: int = 2,
) -> Execution:
    """Run a suite on workers, with a database."""
    found, stop, scope = Execution(), trio.Event(), trio.CancelScope()
    prepared = prepared_suite(MANY, repeat=repeat)
    start = RunStart(id="eval-1", utc_created="2026-01-01T00:00:00.000Z")

    async def emit(row: Row) -> None:
        found.rows[row.index] = row
        found.emitted.append(row.index)

    async def emit_many(rows: RowsNotRun) -> None:
        found.emitted.extend(rows.indices)
        found.ranges += len(rows.indices)

    async with open_store(path) as store, trio.open_nursery() as nursery:
        run: Any = store.begin(start) if first else await store.resume("eval-1", start)
        cluster = NotingCluster(nursery, LOCAL, lambda _index: 0.0)

        def cut(_row: Row) -> None:
            if len(cluster.paid) == stop_after:
                stop.set()
            if len(cluster.paid) == cancel_after:
                scope.cancel()

        class Cutting(RecordObserver):
            def on_row(self, row: Row, /) -> None:
                cut(row)

            def on_call(self, call: CallRecord, /) -> None: ...

        coordinator = Coordinator(
            cluster, prepared, stop, print, records=RunRecords(run, recorded=run.recorded_replies)
        )
        cluster.coordinator = coordinator
        for number in range(workers):
            cluster.join(str(number))
        if not workers:
            stop.set()
        with scope:
            async with open_coordinator(coordinator):
                options = RunOptions(
                    emit=emit,
                    emit_many=emit_many,
                    stop=stop,
                    adapt=coordinator.adapt,
                    journal=run,
                    record_observers=[Cutting()],
                )
                await run_with_options(prepared, options)
        found.sent, found.paid = cluster.sent, cluster.paid
        nursery.cancel_scope.cancel()
    return found


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(1, MANY), st.booleans())
def test_a_resumed_run_sends_only_the_rows_that_have_no_result(
    after: int,
    is_stopped: bool,  # noqa: FBT001 - drawn
) -> None:
    """Laws RESUME and ONCE, wherever in its blocks a run was stopped or cancelled."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        cut = {"stop_after" if is_stopped else "cancel_after": after}

        async def main() -> tuple[Execution, Execution]:
            return await execute(path, first=True, **cut), await execute(path, first=False)

        before, then = trio.run(main)
    assert before.emitted == list(range(MANY)), "laws TOTAL and ORDER"
    kept = {index for index, row in before.rows.items() if row.cut is None}
    left = sorted(set(range(MANY)) - kept)
    assert len(kept) >= min(after, MANY) - 1
    assert then.emitted == left
    assert sorted(then.sent) == left
    assert {**before.rows, **then.rows} == dict(enumerate(LOCAL))
    assert before.paid + then.paid == Counter(range(MANY)), "law ONCE"


@pytest.mark.slow
def test_rows_that_never_started_are_emitted_many_at_once(tmp_path: Path) -> None:
    """Each row is emitted once, in order, between blocks and ranges too."""
    path, repeat = tmp_path / "runs.db", 40
    found = trio.run(lambda: execute(path, first=True, repeat=repeat, workers=0))
    assert found.emitted == list(range(MANY * repeat))
    assert found.ranges >= MANY * repeat - 300
    assert not found.sent
