"""Workers in the same process, on virtual time, which run real shards and are lost as a test says."""

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import trio
from trio.testing import MockClock

from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.kernel import Lanes
from trioeval.loading.load import parse_suite
from trioeval.providers import Reply, Request
from trioeval.run import Row, RunOptions, prepare, run_with_options
from trioeval.run.run_suite import make_lanes, run_prepared
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.forwarding import ForwardingJournal, MessageBatch
from trioeval.scaleout.messages import AnyShard, Shard, StepFinder, unpack
from trioeval.scaleout.run_records import RunRecords
from trioeval.scaleout.shard_task import shard_task
from trioeval.scaleout.worker import settled_task
from trioeval.testing.journals import MemoryJournal, NamedJob

Change = tuple[float, str, str]
"""An instant, `join` or `lose`, and the name of a worker."""


@attrs.define(eq=False)
class Model:
    """A provider whose output depends on everything that its prompt shows."""

    seconds: Callable[[str], float]
    paid: Counter[str] = attrs.field(factory=Counter)
    """The calls that ended, by prompt."""
    running: int = 0
    alone: list[tuple[str, int]] = attrs.field(factory=list)
    """Each prompt with the number of calls that ran when it started."""

    async def __call__(self, request: Request) -> Reply:
        self.running += 1
        self.alone.append((request.prompt, self.running))
        try:
            await trio.sleep(self.seconds(request.prompt))
        finally:
            self.running -= 1
        self.paid[request.prompt] += 1
        digest = hashlib.sha256(request.prompt.encode()).hexdigest()
        return Reply(output=f"say {digest[:8]}", cost=0.25)


@attrs.define(eq=False)
class Worker:
    """A worker process: its suite, its lanes, and the scopes of its shards."""

    name: str
    prepared: PreparedSuite
    lanes: Lanes
    scopes: list[trio.CancelScope] = attrs.field(factory=list)
    is_lost: bool = False
    parts: dict[str | None, PreparedTask] = attrs.field(factory=dict)


@attrs.define(eq=False)
class SimulatedCluster:
    """Workers in tasks of a nursery; a `Cluster`."""

    nursery: trio.Nursery
    load: Callable[[], PreparedSuite]
    steps: StepFinder
    coordinator: Coordinator | None = None
    workers: dict[str, Worker] = attrs.field(factory=dict)
    scopes: dict[int, trio.CancelScope] = attrs.field(factory=dict)
    stopped: trio.Event = attrs.field(factory=trio.Event)
    sent: list[tuple[str, Shard]] = attrs.field(factory=list)
    rows_of: dict[str | None, Sequence[Mapping[str, Any]]] = attrs.field(factory=dict)

    @property
    def events(self) -> Coordinator:
        assert self.coordinator is not None
        return self.coordinator

    def join(self, name: str) -> None:
        """Start a worker."""
        if name not in self.workers:
            prepared = self.load()
            self.workers[name] = Worker(name, prepared, make_lanes(prepared))
            self.events.on_worker(name)

    def lose(self, name: str) -> None:
        """Kill a worker."""
        if (worker := self.workers.pop(name, None)) is not None:
            worker.is_lost = True
            for scope in worker.scopes:
                scope.cancel()
            self.events.on_loss(name)

    def submit(self, worker: str, shard: AnyShard) -> None:
        assert isinstance(shard, Shard)  # no dataset is made here
        assert [*shard.rows] == sorted({*shard.rows})
        self.sent.append((worker, shard))
        if (found := self.workers.get(worker)) is not None:
            self.scopes[shard.number] = scope = trio.CancelScope()
            found.scopes.append(scope)
            self.nursery.start_soon(self._perform, found, shard, scope)

    def cancel(self, number: int) -> None:
        if (scope := self.scopes.get(number)) is not None:
            scope.cancel()

    def shut_down(self, number: int, lane: str) -> None:
        """End a shard of a dataset: there are none here."""
        raise NotImplementedError

    def add_task(self, part: PreparedTask) -> None:
        self.steps.add(part)
        assert part.source_rows is not None
        self.rows_of[part.id] = part.source_rows

    def stop(self) -> None:
        self.stopped.set()

    async def _perform(self, worker: Worker, shard: Shard, scope: trio.CancelScope) -> None:
        def send(data: bytes) -> None:
            if not worker.is_lost:
                self.events.on_messages(unpack(data, self.steps))

        batch = MessageBatch(send)
        with scope:
            part = worker.parts.get(shard.task)
            if part is None:
                (part,) = (one for one in worker.prepared.parts if one.id == shard.task)
                part = worker.parts[shard.task] = settled_task(part, self.rows_of.get(shard.task))
            prepared = worker.prepared
            if prepared.tasks:
                prepared = attrs.evolve(prepared, tasks=(attrs.evolve(part, depends_on=()),))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(batch.send_continuously)
                await run_prepared(
                    prepared,
                    RunOptions(
                        emit=_ignore,
                        lanes=worker.lanes,
                        stop=self.stopped,
                        run_id="r",
                        journal=ForwardingJournal(shard, batch),
                        adapt=functools.partial(shard_task, shard),
                    ),
                )
                nursery.cancel_scope.cancel()
        batch.flush()
        if not worker.is_lost and not scope.cancelled_caught:
            self.events.on_shard_end(shard.number, None)


async def _ignore(_row: Row) -> None:
    """Ignore an emitted row."""


@attrs.define(eq=False)
class Simulated:
    """A run on a simulated cluster."""

    rows: list[Row] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)
    cluster: SimulatedCluster | None = None

    @property
    def shards(self) -> Sequence[Shard]:
        """The shards that were sent, in order."""
        assert self.cluster is not None
        return [shard for _, shard in self.cluster.sent]


def recorded_replies(
    journal: MemoryJournal,
) -> Callable[[str | None, int], Sequence[tuple[CallKey, RecordedReply]]]:
    """Return a function that returns the replies to a row which earlier executions have recorded."""

    def recorded(task: str | None, index: int) -> Sequence[tuple[CallKey, RecordedReply]]:
        keys = [
            one.key
            for one in journal.earlier
            if isinstance(one, CallRecord) and (one.key.task, one.key.index) == (task, index)
        ]
        found = ((key, journal.recorded_reply(key)) for key in dict.fromkeys(keys))
        return [(key, reply) for key, reply in found if reply is not None]

    return recorded


def recorded_jobs(
    journal: MemoryJournal,
) -> Callable[[str | None, int], Sequence[tuple[CallKey, str]]]:
    """Return a function that returns the jobs of a row which earlier executions have recorded."""

    def recorded(task: str | None, index: int) -> Sequence[tuple[CallKey, str]]:
        keys = [
            one.key
            for one in journal.earlier
            if isinstance(one, NamedJob) and (one.key.task, one.key.index) == (task, index)
        ]
        found = ((key, journal.job(key).find()) for key in dict.fromkeys(keys))
        return [(key, name) for key, name in found if name is not None]

    return recorded


def run_simulated(
    suite: Mapping[str, Any],
    model: Model,
    changes: Sequence[Change] = (),
    *,
    journal: MemoryJournal | None = None,
    stop_at: float = math.inf,
    kind: type[SimulatedCluster] = SimulatedCluster,
    workers: Sequence[str] = ("first",),
) -> Simulated:
    """Run a suite on workers that join and are lost, on virtual time."""
    run = Simulated()

    def load() -> PreparedSuite:
        return prepare(parse_suite(suite), providers={"model": model})

    async def emit(row: Row) -> None:
        run.rows.append(row)

    async def main() -> None:
        prepared, stop = load(), trio.Event()
        async with trio.open_nursery() as nursery:
            cluster = run.cluster = kind(nursery, load, StepFinder.of(prepared))
            coordinator = Coordinator(
                cluster,
                prepared,
                stop,
                run.warnings.append,
                records=RunRecords(
                    journal,
                    recorded=None if journal is None else recorded_replies(journal),
                    recorded_jobs=None if journal is None else recorded_jobs(journal),
                ),
            )
            cluster.coordinator = coordinator
            for name in workers:
                cluster.join(name)

            async def change() -> None:
                for at, what, name in sorted(changes):
                    await trio.sleep_until(at)
                    cluster.join(name) if what == "join" else cluster.lose(name)
                await trio.sleep(1)
                cluster.join("last")

            async def stop_later() -> None:
                await trio.sleep_until(stop_at)
                stop.set()

            nursery.start_soon(change)
            if stop_at < math.inf:
                nursery.start_soon(stop_later)
            with trio.fail_after(100_000):
                async with open_coordinator(coordinator):
                    options = RunOptions(
                        emit=emit,
                        stop=stop,
                        run_id="r",
                        journal=journal,
                        adapt=coordinator.adapt,
                    )
                    await run_with_options(prepared, options)
            assert not coordinator._rows
            assert not coordinator._shards
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    return run


def run_locally(
    suite: Mapping[str, Any], model: Model, journal: MemoryJournal | None = None
) -> list[Row]:
    """Run a suite in one process, on virtual time."""
    rows: list[Row] = []

    async def emit(row: Row) -> None:
        rows.append(row)

    async def main() -> None:
        prepared = prepare(parse_suite(suite), providers={"model": model})
        await run_with_options(prepared, RunOptions(emit=emit, run_id="r", journal=journal))

    trio.run(main, clock=MockClock(autojump_threshold=0))
    return rows


def plain(rows: Sequence[Row]) -> list[Row]:
    """Return rows without their times, and with the data of their steps only."""
    return [
        attrs.evolve(row, wait_ms=0.0, waits={}, latency_ms=None, provider=None)  # type: ignore[arg-type]
        for row in rows
    ]
