"""Schedulers that know nothing of the kernel: as people write them, right or wrong."""

import heapq
from collections.abc import Sequence
from typing import Literal, TypeAlias

import aiometer
import anyio
import attrs
import trio

from trioeval.kernel import LaneSpec
from trioeval.testing.conformance import Emit, ForeignJob, Send


async def fan_out(
    jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
) -> None:
    """One task a job behind a capacity limiter a lane, results as they come: what everybody writes first."""
    limiters = {lane.name: trio.CapacityLimiter(lane.width) for lane in lanes}

    async def run(job: ForeignJob) -> None:
        async with limiters[job.lane]:
            result = await attempt(send, job)
        await emit(job.index, result)

    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(run, job)


async def fan_out_and_collect(
    jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
) -> None:
    """The same, with all results at the end, and in order; a failure is not thought of."""
    limiters = {lane.name: trio.CapacityLimiter(lane.width) for lane in lanes}
    results: dict[int, object] = {}

    async def run(job: ForeignJob) -> None:
        async with limiters[job.lane]:
            results[job.index] = await send(job)

    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(run, job)
    for index, result in sorted(results.items()):
        await emit(index, result)


async def metered(
    jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
) -> None:
    """A run of aiometer for each lane, side by side; it has no burst and no least gap of its own."""
    line = InOrder(emit)

    async def run(job: ForeignJob) -> None:
        await line.put(job.index, await attempt(send, job))

    async with anyio.create_task_group() as group:
        for lane in lanes:
            period = max(60 / lane.rpm if lane.rpm else 0.0, lane.min_gap)
            group.start_soon(
                lambda own, width, rate: aiometer.run_on_each(
                    run, own, max_at_once=width, max_per_second=rate
                ),
                [job for job in jobs if job.lane == lane.name],
                lane.width,
                1 / period if period else None,
            )


Defect: TypeAlias = Literal[
    "one slot too many",
    "one start too many",
    "looks once a second",
    "one line for all lanes",
    "last job first",
    "a failure ends its lane",
    "a failure keeps its slot",
    "answers are lost",
    "a task is left behind",
]


@attrs.frozen
class Careful:
    """One task a lane, which starts its jobs in turn, and one task a call: keeps every law.

    Unless it is told to have a defect.
    """

    defect: Defect | None = None

    async def __call__(
        self, jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
    ) -> None:
        line = InOrder(emit)
        turn = trio.Lock()
        if self.defect == "a task is left behind" and jobs:
            trio.lowlevel.spawn_system_task(trio.sleep, 1)
        async with trio.open_nursery() as nursery:
            for lane in lanes:
                own = [job for job in jobs if job.lane == lane.name]
                nursery.start_soon(self._serve, lane, own, send, line, turn)

    async def _serve(
        self,
        lane: LaneSpec,
        jobs: Sequence[ForeignJob],
        send: Send,
        line: "InOrder",
        turn: trio.Lock,
    ) -> None:
        slots = trio.Semaphore(lane.width + (self.defect == "one slot too many"))
        starts: list[float] = []
        async with trio.open_nursery() as nursery:
            for job in reversed(jobs) if self.defect == "last job first" else jobs:
                if self.defect == "one line for all lanes":
                    async with turn:
                        await self._wait(lane, starts, slots)
                else:
                    await self._wait(lane, starts, slots)
                starts.append(trio.current_time())
                nursery.start_soon(self._call, job, send, line, slots, nursery.cancel_scope)

    async def _wait(self, lane: LaneSpec, starts: Sequence[float], slots: trio.Semaphore) -> None:
        await slots.acquire()
        period = 60 / lane.rpm if lane.rpm else 0.0
        burst = lane.burst + (self.defect == "one start too many")
        bounds = [at + (len(starts) - n + 1 - burst) * period for n, at in enumerate(starts)]
        bounds += [starts[-1] + lane.min_gap] if starts else []
        at = max(bounds, default=0.0)
        if self.defect == "looks once a second":
            while trio.current_time() < at:  # noqa: ASYNC110 - that is the defect
                await trio.sleep(1)
        await trio.sleep_until(at)

    async def _call(
        self,
        job: ForeignJob,
        send: Send,
        line: "InOrder",
        slots: trio.Semaphore,
        lane: trio.CancelScope,
    ) -> None:
        result = await attempt(send, job)
        failed = isinstance(result, Exception)
        if failed and self.defect == "a failure ends its lane":
            lane.cancel()
        if not (failed and self.defect == "a failure keeps its slot"):
            slots.release()
        if self.defect == "answers are lost" and job.index:
            result = None
        await line.put(job.index, result)


async def attempt(send: Send, job: ForeignJob) -> object:
    """What comes of a call: its answer, or the error in its place."""
    try:
        return await send(job)
    except Exception as error:  # noqa: BLE001 - a failure is a result like any other
        return error


@attrs.define(eq=False)
class InOrder:
    """Emits results in order, whatever the order in which they come."""

    _emit: Emit
    _waiting: list[tuple[int, object]] = attrs.field(factory=list)
    _next: int = 0
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock)

    async def put(self, index: int, result: object) -> None:
        """Emit what can be emitted now that this result is known."""
        heapq.heappush(self._waiting, (index, result))
        async with self._turn:
            while self._waiting and self._waiting[0][0] == self._next:
                self._next += 1
                await self._emit(*heapq.heappop(self._waiting))
