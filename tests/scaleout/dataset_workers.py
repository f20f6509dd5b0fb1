"""Workers that make groups of datasets in the same process, in virtual time, and may be lost."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import attrs
import trio
from dataset_scripted import Built, MemoryDatasetJournal, check, lanes_of

from trioeval.columns.finish import MemoryOutput
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import DatasetSpec
from trioeval.kernel import Lanes, LaneSpec
from trioeval.scaleout.dataset_messages import DatasetMessage, DatasetShard
from trioeval.scaleout.dataset_parts import ForwardedPart
from trioeval.scaleout.datasets import SentDatasets
from trioeval.scaleout.messages import pack, unpack
from trioeval.scaleout.run_records import RunRecords

NO_STEPS: Any = None


@attrs.define(eq=False)
class GroupWorker:
    """A worker with its own lanes."""

    name: str
    lanes: Lanes
    shards: dict[int, trio.CancelScope] = attrs.field(factory=dict)
    parts: dict[int, ForwardedPart] = attrs.field(factory=dict)
    stop: trio.Event = attrs.field(factory=trio.Event)
    is_lost: bool = False


@attrs.define(eq=False)
class ToyGroupWorkers:
    """The `GroupWorkers` of a test: each shard is a real run of its groups."""

    nursery: trio.Nursery
    spec: DatasetSpec
    lanes: Sequence[LaneSpec]
    stop: trio.Event = attrs.field(factory=trio.Event)
    workers: dict[str, GroupWorker] = attrs.field(factory=dict)
    datasets: SentDatasets | None = None
    shards: list[DatasetShard] = attrs.field(factory=list)
    failures: list[Exception] = attrs.field(factory=list)
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count)
    _is_sending: bool = False

    @property
    def cluster(self) -> Any:
        return self

    @property
    def records(self) -> RunRecords:
        return RunRecords()

    @property
    def is_stopped(self) -> bool:
        return self.stop.is_set()

    def takers(self, _task: str | None) -> Sequence[str]:
        return [*self.workers]

    def width(self, _task: str | None) -> int:
        return max(spec.max_concurrency for spec in self.lanes)

    def next_number(self) -> int:
        return next(self._numbers)

    def submit(self, worker: str, shard: DatasetShard) -> None:
        self.shards.append(shard)
        self.nursery.start_soon(self._perform, self.workers[worker], shard)

    def cancel(self, number: int) -> None:
        for worker in self.workers.values():
            if number in worker.shards:
                worker.shards[number].cancel()

    def shut_down(self, number: int, lane: str) -> None:
        for worker in self.workers.values():
            if number in worker.parts:
                worker.parts[number].shut_down(lane)

    def send_soon(self) -> None:
        if not self._is_sending:
            self._is_sending = True
            self.nursery.start_soon(self._send)

    def join(self, name: str) -> None:
        """Let a worker join."""
        self.workers[name] = GroupWorker(name, lanes_of(*self.lanes))
        self.send_soon()

    def lose(self, name: str) -> None:
        """Lose a worker with everything that it runs."""
        worker = self.workers.pop(name)
        worker.is_lost = True
        for scope in worker.shards.values():
            scope.cancel()
        assert self.datasets is not None
        self.datasets.on_loss(name)

    def stop_all(self) -> None:
        """Let nothing new start."""
        self.stop.set()
        for worker in self.workers.values():
            worker.stop.set()
        self.send_soon()

    async def _send(self) -> None:
        await trio.lowlevel.checkpoint()
        self._is_sending = False
        assert self.datasets is not None
        self.datasets.send()

    def _receive(self, worker: GroupWorker, message: DatasetMessage) -> None:
        if not worker.is_lost:
            (received,) = unpack(pack([message]), NO_STEPS)
            assert isinstance(received, DatasetMessage)
            assert self.datasets is not None
            self.datasets.on_message(received)

    async def _perform(self, worker: GroupWorker, shard: DatasetShard) -> None:
        if worker.is_lost:
            return
        scope = worker.shards[shard.number] = trio.CancelScope()
        with scope:
            part = ForwardedPart(shard, functools.partial(self._receive, worker))
            worker.parts[shard.number] = part
            observe = functools.partial(part.on_event, shard.task)
            run = DatasetRun(
                part.adapt(self.spec),
                part.output(shard.grouping),
                journal=part.journal(),
                observe=observe,
            )
            part.on_open(run)
            try:
                await run.build(worker.lanes, stop=worker.stop)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.failures.append(error)
            part.end()
        if not worker.is_lost:
            assert self.datasets is not None
            del worker.shards[shard.number], worker.parts[shard.number]
            self.datasets.on_shard_end(shard.number)


@attrs.frozen(eq=False)
class Losses:
    """Instants at which a worker is lost and another one joins."""

    at: Sequence[float] = ()


async def building_on_workers(
    spec: DatasetSpec,
    lanes: Sequence[LaneSpec],
    *,
    workers: int = 2,
    losses: Losses = Losses(),
    stop_at: float = math.inf,
    journal: MemoryDatasetJournal | None = None,
    output: MemoryOutput | None = None,
    **more: Any,
) -> tuple[Built, ToyGroupWorkers]:
    """Build a dataset on workers within a Trio run."""
    events: list[Any] = []
    kernel: list[Any] = []
    async with trio.open_nursery() as nursery:
        toys = ToyGroupWorkers(nursery, spec, lanes)
        toys.datasets = SentDatasets()
        toys.datasets.connect(toys)
        for number in range(workers):
            toys.join(f"w{number}")
        output = output or MemoryOutput(spec.grouping)
        run = DatasetRun(toys.datasets.adapt(spec), output, journal=journal, observe=events.append)
        toys.datasets.on_open(run)

        async def lose() -> None:
            for number, at in enumerate(losses.at):
                await trio.sleep_until(at)
                toys.lose(next(iter(toys.workers)))
                toys.join(f"later {number}")

        async def stop() -> None:
            await trio.sleep_until(stop_at)
            toys.stop_all()

        nursery.start_soon(lose)
        if stop_at < math.inf:
            nursery.start_soon(stop)
        result = await run.build(lanes_of(), observe=kernel.append, stop=toys.stop, **more)
        nursery.cancel_scope.cancel()
    assert not toys.failures, toys.failures
    built = Built(result, run, output, events, kernel, trio.current_time())
    check(built)
    return built, toys
