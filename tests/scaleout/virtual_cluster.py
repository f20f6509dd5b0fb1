"""The real coordinator on a virtual clock, with workers, a scheduler and Redis of measured costs.

Each process is a queue that serves one thing after another, for as long as that takes on a real machine. The
coordinator itself takes no virtual time; its messages wait in a queue before they reach it, for as long as
its work on them takes. Its decisions (shards, owners, losses) are the real ones.
"""

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.loading.load import parse_suite
from trioeval.run import Row, RunOptions, prepare, run_with_options
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.forwarding import _MOST_MESSAGES, _ROWS_LINGER, LEAST_LINGER
from trioeval.scaleout.messages import AnyShard, Message
from trioeval.scaleout.shards import FIRST_ROWS, MOST_ROWS, SHARD_SECONDS, SHARDS_AT_ONCE
from trioeval.simulation.clock import VirtualClock
from trioeval.simulation.run import seeded_scheduler

_GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples are spread evenly over an interval."""


@attrs.frozen(kw_only=True)
class UnitCosts:
    """Costs of the parts of a run on workers; seconds of one core, unless noted."""

    coordinator_row: float
    """Of the coordinator for a row: job, records, emission."""
    store_row: float = 0.0
    """Of the coordinator to store a row."""
    coordinator_message: float = 0.0
    """Of the coordinator for a message, whatever it contains."""
    scheduler_message: float = 0.0
    """Of the scheduler to pass on a message."""
    scheduler_byte: float = 0.0
    """Of the scheduler for a byte of a message."""
    scheduler_shard: float = 0.0
    """Of the scheduler to start and end a shard."""
    worker_row: float = 0.0
    """Of a worker for a row."""
    redis_row: float = 0.0
    """Of Redis for a row."""
    row_bytes: float = 0.0
    """Bytes of the messages about a row."""
    live_row_bytes: float = 0.0
    """Memory of the coordinator for a row that was started and is not recorded."""
    latency: float = 0.0
    """Mean seconds of the calls of a row; they are spread evenly from half of it to one and a half."""
    width: int = 1
    """Rows that a worker runs at once."""
    most_rows_a_message: int = _MOST_MESSAGES // 2
    """Most rows of a message: each has a call and a row."""

    @property
    def gathered_for(self) -> float:
        """Seconds in which a worker collects rows: longer if none of them has a paid reply."""
        return LEAST_LINGER if self.latency else _ROWS_LINGER


@attrs.frozen
class Capacity:
    """The formula of the capacity plan: rows a second that each part allows.

    Args:
        costs: The unit costs.
        workers: The number of workers.
    """

    costs: UnitCosts
    workers: int

    @property
    def of_workers(self) -> float:
        """Rows a second of all workers, if nothing else is slower."""
        costs = self.costs
        calls = costs.width / costs.latency if costs.latency else math.inf
        computing = 1 / costs.worker_row if costs.worker_row else math.inf
        return self.workers * min(calls, computing)

    def rates(self) -> Mapping[str, float]:
        """Return the rows a second that each part allows, by its name."""
        # Slow parts make messages and shards small, which makes them slower: found from above, step by step.
        rate = self.of_workers
        for _ in range(100):
            found = self._rates(rate)
            rate = (rate + min(found.values())) / 2
        return found

    def rows_a_message(self, rate: float) -> float:
        """Return the rows of a message: those that a worker finishes while it collects them."""
        collected = 1 + rate / self.workers * self.costs.gathered_for
        return min(self.costs.most_rows_a_message, collected)

    def rows_a_shard(self, rate: float) -> float:
        """Return the rows of a shard: those of a few seconds, within bounds."""
        least = max(FIRST_ROWS, self.costs.width)
        return min(MOST_ROWS, max(least, rate / self.workers * SHARD_SECONDS))

    def _rates(self, rate: float) -> Mapping[str, float]:
        costs, message, shard = self.costs, self.rows_a_message(rate), self.rows_a_shard(rate)
        row = costs.coordinator_row + costs.store_row
        spent = {
            "coordinator": row + costs.coordinator_message / message,
            "scheduler": costs.scheduler_message / message
            + costs.scheduler_byte * costs.row_bytes
            + costs.scheduler_shard / shard,
            "Redis": costs.redis_row,
        }
        found = {name: 1 / seconds if seconds else math.inf for name, seconds in spent.items()}
        return {"workers": self.of_workers, **found}

    @property
    def slowest(self) -> str:
        """The name of the part that saturates first."""
        rates = self.rates()
        return min(rates, key=lambda name: rates[name])

    def seconds(self, rows: int) -> float:
        """Return the duration of a run."""
        return rows / min(self.rates().values()) + self.costs.latency

    @property
    def workers_that_pay(self) -> int:
        """The number of workers beyond which another part is the slowest."""
        others = [rate for name, rate in self.rates().items() if name != "workers"]
        return max(1, math.ceil(min(others) / (self.of_workers / self.workers)))

    @property
    def live_bytes(self) -> float:
        """Memory of the coordinator for rows that were started and are not recorded."""
        return 2 * MOST_ROWS * (SHARDS_AT_ONCE * self.workers + 1) * self.costs.live_row_bytes


@attrs.define(eq=False)
class VirtualProcess:
    """A process that serves one thing after another."""

    clock: VirtualClock
    busy: float = 0.0
    """Seconds of its work so far."""
    _free_at: float = 0.0

    async def serve(self, seconds: float) -> None:
        """Wait for the end of a piece of work that arrives now."""
        now = self.clock.now
        self._free_at = max(self._free_at, now) + seconds
        self.busy += seconds
        await self.clock.sleep(self._free_at - now)


@attrs.define(eq=False)
class VirtualWorker:
    """A worker with slots for calls and one core."""

    width: int
    is_lost: bool = False
    busy: float = 0.0
    _slots: list[float] = attrs.field(init=False)
    """The instants at which its slots are free."""
    _core: float = 0.0
    """The instant at which its core is free."""

    def __attrs_post_init__(self) -> None:
        self._slots = [0.0] * self.width

    def ends(
        self, now: float, rows: Sequence[int], costs: UnitCosts
    ) -> Sequence[tuple[float, int]]:
        """Return the instants at which rows end that arrive now, after all earlier ones; ascending."""
        called = []
        for index in rows:
            latency = costs.latency * (0.5 + index * _GOLDEN % 1)
            at = max(now, heapq.heappop(self._slots)) + latency
            heapq.heappush(self._slots, at)
            called.append((at, index))
        found = []
        for at, index in sorted(called):
            self._core = max(self._core, at) + costs.worker_row
            found.append((self._core, index))
        self.busy += costs.worker_row * len(found)
        return found


@attrs.define(eq=False)
class VirtualCluster:
    """The workers of a run on virtual time; a `Cluster`."""

    clock: VirtualClock
    nursery: trio.Nursery
    costs: UnitCosts
    row: Row
    """The first row, which stands for all others."""
    workers: dict[str, VirtualWorker] = attrs.field(factory=dict)
    scheduler: VirtualProcess = attrs.field(init=False)
    coordinator: VirtualProcess = attrs.field(init=False)
    redis: VirtualProcess = attrs.field(init=False)
    events: Coordinator | None = None
    messages: int = 0
    shards: int = 0
    most_live: int = 0
    """The most rows that were started and not recorded."""
    cancelled: set[int] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.scheduler, self.coordinator, self.redis = (
            VirtualProcess(self.clock) for _ in range(3)
        )

    def join(self, name: str) -> None:
        """Add a worker."""
        self.workers[name] = VirtualWorker(self.costs.width)
        self._events.on_worker(name)

    def lose(self, name: str) -> None:
        """Lose a worker with everything that it runs."""
        if (worker := self.workers.pop(name, None)) is not None:
            worker.is_lost = True
            self._events.on_loss(name)

    @property
    def _events(self) -> Coordinator:
        assert self.events is not None
        return self.events

    def submit(self, worker: str, shard: AnyShard) -> None:
        """Start a shard."""
        self.shards += 1
        self.most_live = max(self.most_live, len(self._events._rows))
        if (found := self.workers.get(worker)) is not None:
            self.nursery.start_soon(self._perform, found, shard)

    def cancel(self, number: int) -> None:
        """Cancel a shard."""
        self.cancelled.add(number)

    def stop(self) -> None:
        """Do nothing: no run is stopped here."""

    def add_task(self, part: PreparedTask) -> None:
        """Give a task its tests: none has those of another one here."""
        raise NotImplementedError

    def shut_down(self, number: int, lane: str) -> None:
        """End a shard of a dataset: there are none here."""
        raise NotImplementedError

    async def _perform(self, worker: VirtualWorker, shard: AnyShard) -> None:
        costs = self.costs
        await self.scheduler.serve(costs.scheduler_shard)
        began_at = self.clock.now
        ends = deque(worker.ends(began_at, shard.rows, costs))
        while ends:
            await self.clock.sleep(ends[0][0] + costs.gathered_for - self.clock.now)
            rows: list[int] = []
            while ends and ends[0][0] <= self.clock.now:
                if len(rows) == costs.most_rows_a_message:
                    break
                rows.append(ends.popleft()[1])
            if costs.redis_row:
                await self.redis.serve(costs.redis_row * len(rows))
            if worker.is_lost or shard.number in self.cancelled:
                return
            self.nursery.start_soon(self._send, rows)
        self.nursery.start_soon(self._end, shard.number)

    async def _send(self, rows: Sequence[int]) -> None:
        costs, count = self.costs, len(rows)
        self.messages += 1
        await self.scheduler.serve(
            costs.scheduler_message + costs.scheduler_byte * costs.row_bytes * count
        )
        await self.coordinator.serve(
            costs.coordinator_message + (costs.coordinator_row + costs.store_row) * count
        )
        found: list[Message] = [attrs.evolve(self.row, index=index) for index in rows]
        self._events.on_messages(found)

    async def _end(self, number: int) -> None:
        await self.scheduler.serve(0.0)
        await self.coordinator.serve(0.0)
        self._events.on_shard_end(number, None)


@attrs.frozen(kw_only=True)
class VirtualRun:
    """The result of a run on virtual time."""

    indices: Sequence[int]
    """The emitted rows, in their order."""
    failed: int
    """Rows with an error."""
    seconds: float
    """The virtual duration."""
    busy: Mapping[str, float]
    """The share of the duration in which each part worked; of the workers, the mean."""
    messages: int
    shards: int
    most_live: int


def suite_of(rows: int, *, limits: Mapping[str, Any] | None = None) -> PreparedSuite:
    """Return a suite with so many equal rows."""
    suite = {
        "providers": [{"id": "echo", "lane": dict(limits or {})}],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": "a"}}],
        "evaluateOptions": {"repeat": rows},
    }
    return prepare(parse_suite(suite), max_rows=0)


def run_virtually(
    costs: UnitCosts,
    *,
    workers: int,
    rows: int,
    losses: Sequence[tuple[float, str]] = (),
    limits: Mapping[str, Any] | None = None,
) -> VirtualRun:
    """Run equal rows on virtual workers.

    Args:
        costs: The unit costs.
        workers: The number of workers.
        rows: The number of rows.
        losses: Instants at which workers are lost; each is replaced a second later.
        limits: The settings of the lane.
    """
    prepared = suite_of(rows, limits=limits)
    emitted: list[int] = []
    failed = 0

    async def emit(row: Row) -> None:
        nonlocal failed
        emitted.append(row.index)
        failed += row.error is not None

    async def first_row() -> Row:
        found: list[Row] = []

        async def keep(row: Row) -> None:
            found.append(row)

        await run_with_options(suite_of(1), RunOptions(emit=keep))
        return found[0]

    row = trio.run(first_row)

    clock = VirtualClock()

    async def main() -> VirtualRun:
        async with trio.open_nursery() as nursery:
            cluster = VirtualCluster(clock, nursery, costs, row)
            stop = trio.Event()
            coordinator = cluster.events = Coordinator(cluster, prepared, stop, print)
            for number in range(workers):
                cluster.join(f"worker {number}")

            async def lose(at: float, name: str) -> None:
                await trio.sleep_until(at)
                cluster.lose(name)
                await trio.sleep(1)
                cluster.join(f"{name}+")

            for at, name in losses:
                nursery.start_soon(lose, at, name)
            async with open_coordinator(coordinator):
                options = RunOptions(emit=emit, stop=stop, adapt=coordinator.adapt)
                await run_with_options(prepared, options)
            seconds = trio.current_time()
            nursery.cancel_scope.cancel()
        working = [worker.busy for worker in cluster.workers.values()]
        busy = {
            "workers": sum(working) / max(1, len(working)),
            "coordinator": cluster.coordinator.busy,
            "scheduler": cluster.scheduler.busy,
            "Redis": cluster.redis.busy,
        }
        return VirtualRun(
            indices=emitted,
            failed=failed,
            seconds=seconds,
            busy={name: found / seconds for name, found in busy.items()},
            messages=cluster.messages,
            shards=cluster.shards,
            most_live=cluster.most_live,
        )

    with seeded_scheduler(0):
        return trio.run(main, clock=clock)
