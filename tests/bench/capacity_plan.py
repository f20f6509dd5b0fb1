"""The capacity plan of a run on many workers: which part saturates first, and what it costs.

    python tests/bench/capacity_plan.py [ROWS] [WORKERS] [SIMULATED]

Measures the unit costs with a scheduler, two workers and Redis, each a process of its own, on this machine.
Prints the rows a second that each part allows by the formula of docs/howto/capacity-plan.md, for rows of an
API (1 s, 20 at once) and for rows that only compute, with WORKERS workers (1000) and the duration of ROWS
rows (10^8). Then runs SIMULATED rows (100,000) through the real coordinator on a virtual clock, with these
costs, and prints the part that was busiest there. The coordinator's own speed with so many workers is the
real time of that simulation.
"""

import functools
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import psutil  # type: ignore[import-untyped]
import trio
from distributed import Client, get_worker

from trioeval.evaluation.journal import CallRecord
from trioeval.evaluation.prepared import PreparedTask
from trioeval.limits import Settlement
from trioeval.limits.redis import open_redis
from trioeval.run import Row, RunOptions, prepare, run_with_options
from trioeval.scaleout.address import SchedulerAddress
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.dask_cluster import open_cluster
from trioeval.scaleout.messages import AnyShard, Message, pack
from trioeval.scaleout.worker import SessionOptions
from trioeval.scaleout.workers import SourceLoader
from trioeval.simulation.clock import VirtualClock

sys.path.insert(0, str(Path(__file__).parents[1] / "limits"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scaleout"))
from limits_redis import FOUR, LIMITS, reserve
from redis_server import open_server
from virtual_cluster import Capacity, UnitCosts, run_virtually, suite_of

_ROWS = 12_000
_EVENTS = 500
_APART = 0.02  # seconds
_LARGE = 20_000  # bytes
_TASKS = 1_000
_LEASES = 3_000
_LIVE = 100_000


def cpu(process: psutil.Process) -> float:
    """Return the seconds of computing of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


@attrs.frozen
class Processes:
    """A scheduler and its workers."""

    address: str
    scheduler: psutil.Process
    workers: Sequence[psutil.Process]


@contextmanager
def started(count: int) -> Iterator[Processes]:
    """Start a scheduler and workers, each a process."""
    found: list[subprocess.Popen[bytes]] = []
    # A worker of which much memory is in use would be paused.
    python, unbounded = sys.executable, ("--memory-limit", "0")
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "scheduler.json")

        def start(module: str, *args: str) -> None:
            command = [python, "-m", f"distributed.cli.{module}", "--scheduler-file", file, *args]
            null = subprocess.DEVNULL
            found.append(subprocess.Popen(command, stdout=null, stderr=null))

        try:
            start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
            for _ in range(count):
                start("dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", *unbounded)
            with Client(scheduler_file=file, set_as_default=False) as client:
                client.wait_for_workers(count, timeout=60)
                address = str(client.scheduler_info()["address"])
            processes = [psutil.Process(one.pid) for one in found]
            yield Processes(address, processes[0], processes[1:])
        finally:
            for one in reversed(found):
                one.terminate()
                one.wait()


@attrs.define
class CountingEvents:
    """The events of a cluster, counted on their way to the coordinator."""

    target: Coordinator
    messages: int = 0
    shards: int = 0
    sample: list[Message] = attrs.field(factory=list)

    def on_worker(self, worker: str) -> None:
        """Pass on a worker."""
        self.target.on_worker(worker)

    def on_loss(self, worker: str) -> None:
        """Pass on a loss."""
        self.target.on_loss(worker)

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Count and pass on messages."""
        self.messages += 1
        if len(self.sample) < _EVENTS:
            self.sample.extend(messages)
        self.target.on_messages(messages)

    def on_shard_end(self, number: int, error: Exception | None) -> None:
        """Count and pass on the end of a shard."""
        self.shards += 1
        self.target.on_shard_end(number, error)


async def ignore(_row: Row) -> None:
    """Ignore a row."""


def send_events(topic: str, count: int, size: int, apart: float) -> None:
    """Send events from a worker. Dask sends those of a few milliseconds together."""
    worker, data = get_worker(), os.urandom(size)
    for _ in range(count):
        worker.log_event(topic, data)
        time.sleep(apart)


def message_costs(processes: Processes, size: int, apart: float) -> tuple[float, float]:
    """Return the computing of the scheduler and of this process for one message of a size.

    The scheduler receives the messages of many workers one by one, which are so many seconds apart; what it
    sends to this process meanwhile is sent together, as with 0 seconds.
    """
    with Client(processes.address, set_as_default=False) as client:
        arrived = 0

        def on_event(_event: object) -> None:
            nonlocal arrived
            arrived += 1

        client.subscribe_topic("bench", on_event)
        client.submit(send_events, "bench", 1, 1, 0, pure=False).result()
        while arrived < 1:
            time.sleep(0.001)
        costs = []
        for count in (_EVENTS, 1):  # the second lasts as long: it is what nothing costs
            there, here, began = cpu(processes.scheduler), time.process_time(), time.monotonic()
            all_arrived = arrived + count
            client.submit(send_events, "bench", count, size, apart, pure=False).result()
            while arrived < all_arrived or time.monotonic() < began + _EVENTS * apart:
                time.sleep(0.05)
            costs.append((cpu(processes.scheduler) - there, time.process_time() - here))
        (there, here), (idle_there, idle_here) = costs
    return (there - idle_there) / _EVENTS, (here - idle_here) / _EVENTS


def task_costs(processes: Processes) -> tuple[float, float]:
    """Return the computing of the scheduler and of this process for one task."""
    with Client(processes.address, set_as_default=False) as client:
        client.submit(len, "warm").result()
        there, here = cpu(processes.scheduler), time.process_time()
        futures = [client.submit(len, str(number), pure=False) for number in range(_TASKS)]
        client.gather(futures)
        there, here = cpu(processes.scheduler) - there, time.process_time() - here
    return there / _TASKS, here / _TASKS


async def run_rows(processes: Processes, path: str) -> tuple[float, float, CountingEvents]:
    """Run a suite; return the computing of this process and of the workers, and what was counted."""
    prepared, stop = prepare(path), trio.Event()
    opened = open_cluster(
        SchedulerAddress(processes.address),
        prepared,
        SourceLoader(path),
        options=SessionOptions(),
        warn=print,
    )
    async with opened as cluster:
        coordinator = Coordinator(cluster, prepared, stop, print)
        events = CountingEvents(coordinator)
        cluster.connect(events)
        there, here = sum(map(cpu, processes.workers)), time.process_time()
        async with open_coordinator(coordinator):
            options = RunOptions(emit=ignore, stop=stop, adapt=coordinator.adapt)
            await run_with_options(prepared, options)
        here = time.process_time() - here
        return here, sum(map(cpu, processes.workers)) - there, events


def command_seconds(processes: Processes, path: str, *flags: str) -> float:
    """Return the computing of `trioeval run` with workers."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        own = ["--db", str(Path(folder) / "runs.db"), "--no-table", "--no-progress", *flags]
        command = [sys.executable, "-m", "trioeval", "run", path, "--on", processes.address, *own]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def written(folder: Path, rows: int) -> str:
    """Write a suite with so many rows, and return its path."""
    suite = {
        "providers": ["echo"],
        "prompts": ["say {{word}}"],
        "tests": [
            {
                "vars": {"word": f"word {number}"},
                "assert": [{"type": "contains", "value": "word"}],
            }
            for number in range(rows)
        ],
    }
    path = folder / f"suite-{rows}.json"
    path.write_text(json.dumps(suite))
    return str(path)


def slope(seconds: Callable[[int], float], few: int, many: int) -> float:
    """Return the seconds for each further row."""
    return (seconds(many) - seconds(few)) / (many - few)


def live_row_bytes() -> float:
    """Return the memory of the coordinator for a row that has been sent and has not arrived."""

    class Silent:
        def submit(self, _worker: str, shard: AnyShard) -> None:
            found.append(len(shard.rows))

        def cancel(self, _number: int) -> None: ...
        def stop(self) -> None: ...
        def add_task(self, _part: PreparedTask) -> None: ...
        def shut_down(self, _number: int, _lane: str) -> None: ...

    found: list[int] = []
    prepared = suite_of(_LIVE)

    async def main() -> float:
        stop = trio.Event()
        coordinator = Coordinator(Silent(), prepared, stop, print)
        for number in range(_LIVE // 1000):
            coordinator.on_worker(str(number))
        gc.collect()
        before = psutil.Process().memory_info().rss
        used = 0.0

        async def look() -> None:
            nonlocal used
            await trio.sleep(10)
            used = (psutil.Process().memory_info().rss - before) / len(coordinator._rows)
            stop.set()
            scope.cancel()

        with trio.CancelScope() as scope:
            async with open_coordinator(coordinator), trio.open_nursery() as nursery:
                nursery.start_soon(look)
                options = RunOptions(emit=ignore, stop=stop, adapt=coordinator.adapt)
                await run_with_options(prepared, options)
        return used

    return trio.run(main, clock=VirtualClock())


def redis_row() -> float:
    """Return the computing of Redis for one call with four shared limits."""

    async def main(url: str, process: psutil.Process) -> float:
        async with open_redis(url, namespace="bench") as limits:
            for limit in LIMITS:
                await limits.define(limit)
            before = cpu(process)
            for _ in range(_LEASES):
                lease = await reserve(limits, FOUR)
                await limits.complete([Settlement(lease, "job")])
            return (cpu(process) - before) / _LEASES

    with open_server() as server:
        assert server._process is not None
        return trio.run(main, server.url, psutil.Process(server._process.pid))


def measured() -> UnitCosts:
    """Measure the unit costs on this machine."""
    memory = live_row_bytes()
    with started(2) as processes, tempfile.TemporaryDirectory() as folder:
        alone, _ = message_costs(processes, 100, _APART)
        small, here = message_costs(processes, 100, 0)
        large, _ = message_costs(processes, _LARGE, 0)
        task, own_task = task_costs(processes)
        path = functools.partial(written, Path(folder))
        computed, workers, events = trio.run(run_rows, processes, path(_ROWS))
        flags: dict[str, Any] = {"stored": (), "unstored": ("--no-write",)}
        slopes = {
            name: slope(
                lambda rows, more=more: command_seconds(processes, path(rows), *more),  # type: ignore[misc]
                _ROWS // 6,
                _ROWS,
            )
            for name, more in flags.items()
        }
    calls = [one for one in events.sample if isinstance(one, CallRecord | Row)]
    rows = sum(isinstance(one, Row) for one in calls)
    print(
        f"{_ROWS:,} rows of echo: {events.messages:,} messages, {events.shards:,} shards, "
        f"coordinator {1e6 * computed / _ROWS:.0f} µs a row"
    )
    row = (computed - events.messages * here - events.shards * own_task) / _ROWS
    return UnitCosts(
        coordinator_row=row,
        store_row=max(0.0, slopes["stored"] - slopes["unstored"]),
        coordinator_message=here,
        scheduler_message=alone,
        scheduler_byte=max(0.0, large - small) / 100_000,
        scheduler_shard=task,
        worker_row=workers / _ROWS,
        redis_row=redis_row(),
        row_bytes=len(pack(calls)) / max(1, rows),
        live_row_bytes=memory,
    )


def show(title: str, capacity: Capacity, rows: int) -> None:
    """Print the rows a second that each part allows, and the duration of a run."""
    print(f"\n{title}, {capacity.workers:,} workers")
    for name, rate in sorted(capacity.rates().items(), key=lambda one: one[1]):
        print(f"  {name:<12}{rate:12,.0f} rows/s")
    hours = capacity.seconds(rows) / 3600
    print(
        f"  {rows:,} rows in {hours:,.1f} h; {capacity.slowest} saturates first; "
        f"more than {capacity.workers_that_pay:,} workers do not pay"
    )
    print(f"  coordinator: {capacity.live_bytes / 1e9:.1f} GB for live rows")


def main(rows: int = 10**8, workers: int = 1000, simulated: int = 100_000) -> None:
    """Measure, print, and check by simulation."""
    costs = measured()
    for field in attrs.fields(UnitCosts):
        value = getattr(costs, field.name)
        unit = (
            f"{value:,.0f}"
            if "bytes" in field.name
            else f"{1e6 * value:,.4g} µs"
            if isinstance(value, float)
            else str(value)
        )
        print(f"  {field.name:<20} {unit:>12}")
    calls = attrs.evolve(costs, latency=1.0, width=20)
    local = attrs.evolve(costs, redis_row=0.0)
    for title, one in (("calls of 1 s, 20 at once", calls), ("rows that compute", local)):
        capacity = Capacity(one, workers)
        show(title, capacity, rows)
        began = time.perf_counter()
        found = run_virtually(one, workers=workers, rows=simulated)
        took = time.perf_counter() - began
        busy = ", ".join(f"{name} {share:.0%}" for name, share in found.busy.items())
        print(
            f"  simulated {simulated:,} rows: {found.seconds:.1f} s, by the formula "
            f"{capacity.seconds(simulated):.1f} s; busy: {busy}; {found.messages:,} messages, "
            f"{found.shards:,} shards, {found.most_live:,} live rows; {took:.0f} s of real time"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
