"""Schedulers that do not use the kernel, correct and defective."""

import heapq
import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import aiometer
import anyio
import attrs
import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel import LaneSpec
from trioeval.testing.foreign import Emit, ForeignJob, Send


async def fan_out(
    jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
) -> None:
    """Run one task for each job behind a capacity limiter for each lane, with results as they arrive."""
    limiters = {lane.name: trio.CapacityLimiter(lane.max_concurrency) for lane in lanes}

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
    """Do the same, with all results at the end, and in order; failures are not handled."""
    limiters = {lane.name: trio.CapacityLimiter(lane.max_concurrency) for lane in lanes}
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
    """Run aiometer for each lane, concurrently; it has no burst and no minimum gap."""
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
                lane.max_concurrency,
                1 / period if period else None,
            )


async def semaphored(
    jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
) -> None:
    """Run one task for each job behind a semaphore of anyio for each lane, with retries and without a rate.

    It waits as long as requested, outside of the semaphore. The other jobs are not affected.
    """
    line = InOrder(emit)
    slots = {lane.name: anyio.Semaphore(lane.max_concurrency) for lane in lanes}
    retries = {lane.name: lane.retries for lane in lanes}

    async def run(job: ForeignJob) -> None:
        for again in range(retries[job.lane] + 1):
            async with slots[job.lane]:
                result = await attempt(send, job)
            if not may_be_retried(result) or again == retries[job.lane]:
                break
            await anyio.sleep(requested_wait(result) or 2**again / 4)
        await line.put(job.index, result)

    async with anyio.create_task_group() as group:
        for job in jobs:
            group.start_soon(run, job)


async def sleeping(
    jobs: Sequence[ForeignJob], lanes: Sequence[LaneSpec], send: Send, emit: Emit
) -> None:
    """Run jobs in one limiter, in which they wait for their rate and back off before they retry."""
    line = InOrder(emit)
    slots = trio.Semaphore(min((lane.max_concurrency for lane in lanes), default=1))
    states = {lane.name: LaneState(lane) for lane in lanes}

    async def run(job: ForeignJob) -> None:
        state = states[job.lane]
        for again in range(state.lane.retries + 1):
            await state.wait_open()
            result = await attempt(send, job)
            state.on_result(result)
            if not may_be_retried(result) or again == state.lane.retries:
                break
            await trio.sleep(requested_wait(result) or 2**again / 4)
        slots.release()
        await line.put(job.index, result)

    async with trio.open_nursery() as nursery:
        for job in jobs:
            await slots.acquire()
            nursery.start_soon(run, job)


@attrs.define(eq=False)
class LaneState:
    """The next possible start of a lane, by its rate, its gap, and requested waits."""

    lane: LaneSpec
    burst: int = attrs.field()
    starts: list[float] = attrs.field(factory=list)
    blocked_until: float = 0.0
    turn: trio.Lock = attrs.field(factory=trio.Lock)

    @burst.default
    def _its_own(self) -> int:
        return self.lane.burst

    @property
    def open_at(self) -> float:
        period = 60 / self.lane.rpm if self.lane.rpm else 0.0
        bounds = [
            at + (len(self.starts) - n + 1 - self.burst) * period
            for n, at in enumerate(self.starts)
        ]
        bounds += [at + self.lane.min_gap for at in self.starts[-1:]]
        return max([self.blocked_until, *bounds])

    async def wait_open(self, tick: float = 0.0) -> None:
        """Wait until a call may start, and record its start; check every `tick` seconds only, if given."""
        async with self.turn:
            while (now := trio.current_time()) < self.open_at:  # noqa: ASYNC110 - the block may grow
                await trio.sleep_until(now + tick if tick else self.open_at)
            self.starts.append(trio.current_time())

    def on_result(self, result: object) -> None:
        """Apply a refusal: it blocks the whole lane."""
        self.blocked_until = max(self.blocked_until, trio.current_time() + requested_wait(result))


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
    "rests in its slot",
    "requested waits are ignored",
    "one retry too many",
    "final failures are repeated",
    "waits count against the timeout",
    "timeouts are not kept",
    "the deadline is not kept",
    "a stop is ignored",
    "a stop cuts calls off",
    "goes on when it is cancelled",
]


@attrs.frozen
class Careful:
    """One task for each lane, which starts its jobs in turn, and one task for each call: keeps every law.

    A defect breaks some of them.
    """

    defect: Defect | None = None

    async def __call__(
        self,
        jobs: Sequence[ForeignJob],
        lanes: Sequence[LaneSpec],
        send: Send,
        emit: Emit,
        *,
        deadline: float = math.inf,
        stop: trio.Event | None = None,
    ) -> None:
        line = InOrder(emit)
        run = _CarefulRun(self.defect, send, line, trio.Event() if stop is None else stop)
        if self.defect == "a task is left behind" and jobs:
            trio.lowlevel.spawn_system_task(trio.sleep, 1)
        keeps = self.defect != "the deadline is not kept"
        with (
            trio.move_on_at(deadline if keeps else math.inf),
            trio.CancelScope(shield=self.defect == "goes on when it is cancelled"),
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run.watch_stop)
                async with trio.open_nursery() as own:
                    for lane in lanes:
                        its = [job for job in jobs if job.lane == lane.name]
                        own.start_soon(run.serve, lane, its)
                nursery.cancel_scope.cancel("every job is over")
        for job in jobs:
            if not line.has(job.index):
                await line.put(job.index, None)


@attrs.define(eq=False)
class _CarefulRun:
    defect: Defect | None
    send: Send
    line: "InOrder"
    stop: trio.Event
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    feeds: list[trio.CancelScope] = attrs.field(factory=list)

    async def watch_stop(self) -> None:
        await self.stop.wait()
        for feed in self.feeds:
            if self.defect != "a stop is ignored":
                feed.cancel("the run is stopped")

    async def serve(self, lane: LaneSpec, jobs: Sequence[ForeignJob]) -> None:
        slots = trio.Semaphore(lane.max_concurrency + (self.defect == "one slot too many"))
        state = LaneState(lane, lane.burst + (self.defect == "one start too many"))
        cuts = self.defect == "a stop cuts calls off"
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as feed:
                self.feeds.append(nursery.cancel_scope if cuts else feed)
                for job in reversed(jobs) if self.defect == "last job first" else jobs:
                    if self.defect == "one line for all lanes":
                        async with self.turn:
                            await self._wait(state, slots)
                    else:
                        await self._wait(state, slots)
                    nursery.start_soon(self._call, job, state, slots, nursery.cancel_scope)

    async def _wait(self, state: LaneState, slots: trio.Semaphore) -> None:
        await slots.acquire()
        try:
            await state.wait_open(1.0 if self.defect == "looks once a second" else 0.0)
        except trio.Cancelled:
            slots.release()
            raise

    async def _call(
        self,
        job: ForeignJob,
        state: LaneState,
        slots: trio.Semaphore,
        lane: trio.CancelScope,
    ) -> None:
        mishaps, worked = 0, 0.0
        while True:
            result, began = None, trio.current_time()
            if self.defect == "waits count against the timeout":
                worked = began  # since the scheduler was called
            limit = math.inf if self.defect == "timeouts are not kept" else job.timeout - worked
            with trio.move_on_after(max(0.0, limit)) as in_time:
                result = await attempt(self.send, job)
            worked += trio.current_time() - began
            failed = isinstance(result, Exception)
            if failed and self.defect == "a failure ends its lane":
                lane.cancel()
            if self.defect != "requested waits are ignored":
                state.on_result(result)
            mishaps += is_transient(result)
            most = state.lane.retries + (self.defect == "one retry too many")
            curable = may_be_retried(result) or (
                self.defect == "final failures are repeated" and failed and worked < 1
            )
            again = not in_time.cancelled_caught and curable and mishaps <= most
            if again and self.defect == "rests in its slot":
                await trio.sleep(1.5 + requested_wait(result))
                await state.wait_open()
                continue
            if not (failed and not again and self.defect == "a failure keeps its slot"):
                slots.release()
            if not again:
                break
            obeyed = self.defect != "requested waits are ignored"
            await trio.sleep(1.5 + requested_wait(result) * obeyed)
            await self._wait(state, slots)
        if self.defect == "answers are lost" and job.index:
            result = None
        await self.line.put(job.index, result)


async def attempt(send: Send, job: ForeignJob) -> object:
    """Return the result of a call, or its error."""
    try:
        return await send(job)
    except Exception as error:  # noqa: BLE001 - a failure is a result like any other
        return error


def may_be_retried(result: object) -> bool:
    """Return whether a call may be retried."""
    return isinstance(result, CallError) and result.fault in (Fault.TRANSIENT, Fault.RATE_LIMITED)


def is_transient(result: object) -> bool:
    """Return whether a call failed transiently."""
    return isinstance(result, CallError) and result.fault is Fault.TRANSIENT


def requested_wait(result: object) -> float:
    """Return the seconds that a provider requested to wait."""
    return (result.retry_after or 0.0) if isinstance(result, CallError) else 0.0


@attrs.define(eq=False)
class InOrder:
    """Emits results in order, in whatever order they arrive."""

    _emit: Emit
    _waiting: list[tuple[int, object]] = attrs.field(factory=list)
    _next: int = 0
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock)

    def has(self, index: int) -> bool:
        """Return whether a result is known, emitted or not."""
        return index < self._next or any(index == known for known, _ in self._waiting)

    async def put(self, index: int, result: object) -> None:
        """Emit all results that can be emitted with this one."""
        heapq.heappush(self._waiting, (index, result))
        async with self._turn:
            while self._waiting and self._waiting[0][0] == self._next:
                self._next += 1
                await self._emit(*heapq.heappop(self._waiting))
