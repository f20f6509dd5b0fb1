"""The coordinator against workers in the same process, which are lost and repeat themselves as drawn."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from trioeval.evaluation.journal import CallKey, CallRecord, RecordObserver
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.kernel import StopReason
from trioeval.loading.load import parse_suite
from trioeval.providers import Reply
from trioeval.run import Row, RunOptions, collect, prepare, run_with_options
from trioeval.scaleout.coordinator import WORKERS_WITHIN, Coordinator, open_coordinator
from trioeval.scaleout.messages import AnyShard, Message, Shard, WorkerWarning
from trioeval.scaleout.run_records import RunRecords

ROWS = 40
MANY = 150
"""More rows than a block has."""


def prepared_suite(rows: int = ROWS, *, is_limited: bool = False, repeat: int = 1) -> PreparedSuite:
    lane = {"rpm": 60_000} if is_limited else {}
    suite = {
        "providers": [{"id": "echo", "lane": lane}],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": str(number)}} for number in range(rows)],
        "evaluateOptions": {"repeat": repeat},
    }
    return prepare(parse_suite(suite))


def key_of(index: int) -> CallKey:
    return CallKey(None, index, "provider", bytes(16))


@attrs.define
class ToyWorker:
    """A worker that runs the rows of its shards one after another, each with one paid call."""

    name: str
    lost: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class ToyCluster:
    """Workers in tasks of a nursery."""

    nursery: trio.Nursery
    local: Sequence[Row]
    """The right rows."""
    seconds: Callable[[int], float]
    """Returns the duration of a row."""
    repeats: bool = False
    """True if each message arrives a second time, later."""
    delay: float = 0.0
    """Seconds from the end of a row to its arrival, which the loss of its worker does not prevent."""
    coordinator: Coordinator | None = None
    workers: dict[str, ToyWorker] = attrs.field(factory=dict)
    cancelled: set[int] = attrs.field(factory=set)
    is_stopped: bool = False
    paid: Counter[int] = attrs.field(factory=Counter)
    cut: int = 0
    """Calls that were in flight when their worker was lost."""
    lanes_of: dict[str, set[str]] = attrs.field(factory=dict)
    sizes: list[int] = attrs.field(factory=list)

    @property
    def events(self) -> Coordinator:
        assert self.coordinator is not None
        return self.coordinator

    def join(self, name: str) -> None:
        self.workers[name] = ToyWorker(name)
        self.events.on_worker(name)

    def lose(self, name: str) -> None:
        if (worker := self.workers.pop(name, None)) is not None:
            worker.lost.set()
            self.events.on_loss(name)

    def submit(self, worker: str, shard: AnyShard) -> None:
        assert isinstance(shard, Shard)  # no dataset is made here
        self.sizes.append(len(shard.rows))
        assert list(shard.rows) == sorted(set(shard.rows))
        if (found := self.workers.get(worker)) is not None:
            self.nursery.start_soon(self._perform, found, shard)

    def cancel(self, number: int) -> None:
        self.cancelled.add(number)

    def shut_down(self, number: int, lane: str) -> None:
        """End a shard of a dataset: there are none here."""
        raise NotImplementedError

    def add_task(self, part: PreparedTask) -> None:
        raise AssertionError(part)

    def stop(self) -> None:
        self.is_stopped = True

    async def _perform(self, worker: ToyWorker, shard: Shard) -> None:
        known = {key.index for key, _reply in shard.replies}
        with trio.CancelScope() as scope:
            self.nursery.start_soon(self._cut_with, worker, scope)
            for index in shard.rows:
                if shard.number in self.cancelled:
                    break
                row = self.local[index]
                if self.is_stopped:
                    row = attrs.evolve(row, outcome="not_run", cut=StopReason.STOP)
                    self._send(row)
                    continue
                if index not in known:
                    self.cut += 1
                    await trio.sleep(self.seconds(index))
                    self.cut -= 1
                    self.paid[index] += 1
                    self._send(
                        CallRecord(
                            key=key_of(index),
                            provider="p",
                            prompt="q",
                            answer=Reply(output=index),
                            latency_ms=1.0,
                        )
                    )
                    await trio.sleep(self.seconds(index) / 2)
                self._send(row)
            await trio.sleep(self.delay)
            if shard.number not in self.cancelled:
                self.events.on_shard_end(shard.number, None)

    async def _cut_with(self, worker: ToyWorker, scope: trio.CancelScope) -> None:
        await worker.lost.wait()
        scope.cancel()

    def _send(self, message: Message) -> None:
        if self.delay and isinstance(message, Row):
            self.nursery.start_soon(self._send_late, message, self.delay)
        else:
            self.events.on_messages([message])
        if self.repeats and isinstance(message, Row):
            self.nursery.start_soon(self._send_late, message, self.delay + 0.7)

    async def _send_late(self, message: Row, delay: float) -> None:
        await trio.sleep(delay)
        self.events.on_messages([message])


@attrs.define
class Records(RecordObserver):
    """The calls and rows that the run has recorded."""

    calls: Counter[int] = attrs.field(factory=Counter)
    rows: Counter[int] = attrs.field(factory=Counter)

    def on_call(self, call: CallRecord, /) -> None:
        self.calls[call.key.index] += 1

    def on_row(self, row: Row, /) -> None:
        self.rows[row.index] += 1


LOCAL: list[Row] = trio.run(collect, prepared_suite(MANY))
"""The rows of one process."""

Change = tuple[float, str, str]
"""An instant, `join` or `lose`, and the name of a worker."""


async def simulate(
    changes: Sequence[Change],
    seconds: Callable[[int], float],
    *,
    rows: int = ROWS,
    repeats: bool = False,
    delay: float = 0.0,
    is_limited: bool = False,
    stop_at: float = math.inf,
    cancel_at: float = math.inf,
) -> tuple[list[Row], Records, ToyCluster, list[str]]:
    emitted: list[Row] = []
    warnings: list[str] = []
    records, stop = Records(), trio.Event()
    prepared = prepared_suite(rows, is_limited=is_limited)

    async def emit(row: Row) -> None:
        assert records.rows[row.index] == 1, "a row is emitted after its record"
        emitted.append(row)

    async with trio.open_nursery() as nursery:
        cluster = ToyCluster(nursery, LOCAL, seconds, repeats, delay)
        coordinator = Coordinator(
            cluster, prepared, stop, warnings.append, records=RunRecords(observers=[records])
        )
        cluster.coordinator = coordinator
        cluster.join("first")

        async def change() -> None:
            for at, what, name in sorted(changes):
                await trio.sleep_until(at)
                if what == "join" and name not in cluster.workers:
                    cluster.join(name)
                elif what == "lose":
                    cluster.lose(name)
            await trio.sleep(1)
            cluster.join("last")

        async def stop_later() -> None:
            await trio.sleep_until(stop_at)
            stop.set()

        nursery.start_soon(change)
        if stop_at < math.inf:
            nursery.start_soon(stop_later)
        with trio.move_on_at(cancel_at), trio.fail_after(10_000):
            async with open_coordinator(coordinator):
                options = RunOptions(
                    emit=emit, stop=stop, adapt=coordinator.adapt, record_observers=[records]
                )
                await run_with_options(prepared, options)
        nursery.cancel_scope.cancel()
    return emitted, records, cluster, warnings


def run(*args: Any, **more: Any) -> tuple[list[Row], Records, ToyCluster, list[str]]:
    async def main() -> tuple[list[Row], Records, ToyCluster, list[str]]:
        return await simulate(*args, **more)

    return trio.run(main, clock=MockClock(autojump_threshold=0))


NAMES = st.sampled_from(["first", "second", "third"])
CHANGES = st.lists(
    st.tuples(st.floats(0, 12), st.sampled_from(["join", "lose", "lose"]), NAMES), max_size=8
)


@pytest.mark.slow
@settings(max_examples=60)
@given(CHANGES, st.floats(0.01, 0.4), st.booleans(), st.booleans())
def test_every_row_is_emitted_once_in_order_whatever_workers_are_lost(
    changes: list[Change],
    seconds: float,
    repeats: bool,  # noqa: FBT001 - drawn
    is_limited: bool,  # noqa: FBT001 - drawn
) -> None:
    """Laws TOTAL, ORDER, ONCE and RESUME: a reply that arrived is not paid twice."""
    rows, records, cluster, _ = run(
        changes, lambda index: seconds * (1 + index % 3), repeats=repeats, is_limited=is_limited
    )
    assert [row.index for row in rows] == list(range(ROWS)), "law TOTAL, law ORDER"
    lost = {row.index for row in rows if row.error_kind == "worker_crashed"}
    right = [row for row in LOCAL[:ROWS] if row.index not in lost]
    assert [row for row in rows if row.index not in lost] == right
    assert not lost or sum(what == "lose" for _at, what, _name in changes) >= 3
    assert set(records.rows.values()) == {1}, "law ONCE"
    assert set(cluster.paid.values()) == {1}, "law RESUME"
    assert records.calls == cluster.paid


@pytest.mark.slow
@settings(max_examples=40)
@given(st.floats(0, 8), CHANGES)
def test_after_a_stop_no_row_is_sent_and_every_row_is_emitted(
    stop_at: float, changes: list[Change]
) -> None:
    """Laws DRAIN and TOTAL."""
    rows, records, cluster, _ = run(changes, lambda _index: 0.3, stop_at=stop_at)
    assert [row.index for row in rows] == list(range(ROWS))
    assert set(records.rows.values()) == {1}
    finished = {row.index for row in rows if row.cut is None}
    assert {row.cut for row in rows} <= {None, StopReason.STOP}
    assert finished <= cluster.paid.keys()


@pytest.mark.slow
@settings(max_examples=40)
@given(st.floats(0, 8), CHANGES)
def test_a_cancelled_run_emits_every_row_and_cancels_its_shards(
    cancel_at: float, changes: list[Change]
) -> None:
    rows, records, cluster, _ = run(changes, lambda _index: 0.3, cancel_at=cancel_at)
    assert [row.index for row in rows] == list(range(ROWS))
    assert set(records.rows.values()) == {1}
    assert {row.cut for row in rows} <= {None, StopReason.CANCEL}
    assert not cluster.events._rows
    assert not cluster.events._shards


@pytest.mark.slow
@settings(max_examples=60)
@given(
    CHANGES,
    st.floats(0.002, 0.1),
    st.floats(0, 0.5),
    st.booleans(),
    st.one_of(st.just(math.inf), st.floats(0, 10)),
    st.one_of(st.just(math.inf), st.floats(0, 10)),
)
def test_blocks_are_emitted_whole_and_in_order_whatever_happens(  # noqa: PLR0917 - drawn
    changes: list[Change],
    seconds: float,
    delay: float,
    repeats: bool,  # noqa: FBT001 - drawn
    stop_at: float,
    cancel_at: float,
) -> None:
    """Laws TOTAL, ORDER and ONCE, with late messages of lost workers, a stop and a cancellation at once."""
    rows, records, cluster, _ = run(
        changes,
        lambda index: seconds * (1 + index % 3),
        rows=MANY,
        repeats=repeats,
        delay=delay,
        stop_at=stop_at,
        cancel_at=cancel_at,
    )
    assert [row.index for row in rows] == list(range(MANY)), "law TOTAL, law ORDER"
    assert records.rows == Counter(range(MANY)), "law ONCE"
    assert set(cluster.paid.values()) <= {1}, "law RESUME"
    ended = [row for row in rows if row.cut is None and row.error_kind != "worker_crashed"]
    assert ended == [LOCAL[row.index] for row in ended]
    assert not cluster.events._rows
    # A shard may end after the run, if its last row has arrived from a worker that was lost before.
    assert not any(shard.left for shard in cluster.events._shards.values())


def test_a_row_is_recorded_when_it_arrives_although_its_block_continues() -> None:
    async def main() -> None:
        records, rows, prepared = Records(), [], prepared_suite(MANY)

        async def emit(row: Row) -> None:
            rows.append(row.index)

        async with trio.open_nursery() as nursery:
            # Row 100 ends long after all others.
            cluster = ToyCluster(nursery, LOCAL, lambda index: 1000.0 if index == 100 else 0.01)
            coordinator = cluster.coordinator = Coordinator(cluster, prepared, trio.Event(), print)
            for name in ("first", "second", "third"):
                cluster.join(name)

            async def perform() -> None:
                async with open_coordinator(coordinator):
                    options = RunOptions(
                        emit=emit, adapt=coordinator.adapt, record_observers=[records]
                    )
                    await run_with_options(prepared, options)

            nursery.start_soon(perform)
            await trio.sleep(900)
            behind = set(range(MANY)) - records.rows.keys()
            assert 100 in behind
            assert len(behind) <= 32, "the rest of its shard"
            assert rows == list(range(64)), "the blocks before"
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_the_coordinator_holds_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trioeval.scaleout.coordinator._LIVE_BLOCKS", 10)

    async def main() -> int:
        prepared, stop = prepared_suite(1, repeat=10_000), trio.Event()

        async def emit(_row: Row) -> None:
            pass

        async with trio.open_nursery() as nursery:
            cluster = ToyCluster(nursery, (), lambda _index: 1.0)
            coordinator = cluster.coordinator = Coordinator(cluster, prepared, stop, print)

            async def perform() -> None:
                async with open_coordinator(coordinator):
                    options = RunOptions(emit=emit, adapt=coordinator.adapt, stop=stop)
                    await run_with_options(prepared, options)

            nursery.start_soon(perform)
            await trio.sleep(30)
            most = len(coordinator._rows)
            nursery.cancel_scope.cancel()
        return most

    most = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert 1000 < most < 6500, "about twice what one worker needs"


def test_rows_of_a_limited_lane_run_on_one_worker_and_move_if_it_is_lost() -> None:
    used: list[str] = []

    class Noting(ToyCluster):
        def submit(self, worker: str, shard: AnyShard) -> None:
            used.append(worker)
            super().submit(worker, shard)

    joined = [(0.0, "join", "second"), (2.0, "lose", "first")]
    rows, _, cluster, _ = run(joined, lambda _index: 0.2, is_limited=True)
    assert [row.index for row in rows] == list(range(ROWS))
    assert cluster.events._owners.keys() == {"echo"}
    assert [*cluster.events._owners.values()] == ["second"]


def test_a_row_that_is_lost_with_three_workers_is_an_error_and_the_others_pass() -> None:
    """It is sent alone after the second loss, so that no other row shares its fate."""
    fatal: list[int] = []

    async def main() -> list[Row]:
        rows: list[Row] = []

        async def emit(row: Row) -> None:
            rows.append(row)

        class Fragile(ToyCluster):
            def submit(self, worker: str, shard: AnyShard) -> None:
                if 7 in shard.rows:
                    fatal.append(len(shard.rows))
                    self.nursery.start_soon(self._die, worker)
                else:
                    super().submit(worker, shard)

            async def _die(self, worker: str) -> None:
                await trio.sleep(1)
                self.lose(worker)
                self.join(f"{worker}+")

        async with trio.open_nursery() as nursery:
            prepared, stop = prepared_suite(), trio.Event()
            cluster = Fragile(nursery, LOCAL, lambda _index: 0.1)
            coordinator = cluster.coordinator = Coordinator(cluster, prepared, stop, print)
            cluster.join("first")
            async with open_coordinator(coordinator):
                options = RunOptions(emit=emit, stop=stop, adapt=coordinator.adapt)
                await run_with_options(prepared, options)
            nursery.cancel_scope.cancel()
        return rows

    rows = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert [row.index for row in rows if row.error_kind == "worker_crashed"] == [7]
    assert "3 workers were lost" in str(rows[7].error)
    assert fatal[1:] == [8, 1]


def test_without_workers_a_run_stops_after_a_minute_and_can_be_resumed() -> None:
    async def main() -> tuple[list[Row], list[str], float]:
        rows: list[Row] = []
        warnings: list[str] = []

        async def emit(row: Row) -> None:
            rows.append(row)

        async with trio.open_nursery() as nursery:
            prepared, stop = prepared_suite(), trio.Event()
            cluster = ToyCluster(nursery, LOCAL, lambda _index: 0.1)
            coordinator = cluster.coordinator = Coordinator(
                cluster,
                prepared,
                stop,
                warnings.append,
                on_give_up=lambda: warnings.append("gave up"),
            )
            began_at = trio.current_time()
            async with open_coordinator(coordinator):
                options = RunOptions(emit=emit, stop=stop, adapt=coordinator.adapt)
                await run_with_options(prepared, options)
            nursery.cancel_scope.cancel()
            return rows, warnings, trio.current_time() - began_at

    rows, warnings, seconds = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert {row.cut for row in rows} == {StopReason.STOP}
    assert WORKERS_WITHIN <= seconds <= WORKERS_WITHIN + 2
    assert warnings == ["no more rows start: no worker for 60 seconds", "gave up"]


@attrs.define(eq=False)
class FaultyCluster(ToyCluster):
    """A cluster some of whose shards fail after a while, with rows that a fault has cut off."""

    fails: Callable[[Shard], bool] = attrs.field(kw_only=True)
    after: float = attrs.field(kw_only=True)
    """Seconds from the start of such a shard to its end."""

    def submit(self, worker: str, shard: AnyShard) -> None:
        assert isinstance(shard, Shard)
        if self.fails(shard):
            self.nursery.start_soon(self._fail, shard)
        else:
            super().submit(worker, shard)

    async def _fail(self, shard: Shard) -> None:
        await trio.sleep(self.after)
        self.events.on_messages([WorkerWarning("w")])
        self.events.on_messages(
            [
                attrs.evolve(LOCAL[index], outcome="interrupted", cut=StopReason.FAULT)
                for index in shard.rows
            ]
        )
        self.events.on_shard_end(shard.number, OSError("disk"))


def run_faulty(fails: Callable[[Shard], bool], *, after: float) -> tuple[list[Row], list[str]]:
    """Run all rows on one worker some of whose shards fail; return the rows and the warnings."""
    rows: list[Row] = []
    warnings: list[str] = []

    async def emit(row: Row) -> None:
        rows.append(row)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            prepared, stop = prepared_suite(), trio.Event()
            cluster = FaultyCluster(nursery, LOCAL, lambda _index: 0.1, fails=fails, after=after)
            coordinator = Coordinator(cluster, prepared, stop, warnings.append)
            cluster.coordinator = coordinator
            cluster.join("first")
            async with open_coordinator(coordinator):
                options = RunOptions(emit=emit, stop=stop, adapt=coordinator.adapt)
                await run_with_options(prepared, options)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    return rows, warnings


@pytest.mark.parametrize("count", [1, 3])
def test_failures_of_workers_are_reported_once_and_stop_the_run_if_they_persist(
    count: int,
) -> None:
    left = iter(range(count))
    rows, warnings = run_faulty(lambda _shard: next(left, None) is not None, after=0.1)
    assert warnings[:2] == ["w", "worker first could not run its rows: disk"]
    assert [row.index for row in rows] == list(range(ROWS))
    assert any(row.cut is StopReason.STOP for row in rows) == (count == 3)
    ended = [row for row in rows if row.cut is not StopReason.STOP]
    assert ended == [LOCAL[row.index] for row in ended], "rows that a fault cut off run again"


def test_a_row_whose_shards_fail_ends_as_an_error_and_the_others_as_usual() -> None:
    """Its shards have fewer and fewer rows, so that it no longer fails others."""
    rows, _warnings = run_faulty(lambda shard: 3 in shard.rows, after=5)
    assert [row for row in rows if row.index != 3] == [*LOCAL[:3], *LOCAL[4:ROWS]]
    (poisoned,) = (row for row in rows if row.index == 3)
    assert poisoned.error == "worker_crashed: 3 workers were lost or failed while they ran this row"
