"""Lanes with limits in memory: the order of service, and its cost."""

import math
from collections.abc import Callable, Mapping, Sequence

import attrs
import pytest
import trio

from trioeval.errors import CallError, Fault, LimitError
from trioeval.kernel import (
    Calls,
    CallStarted,
    Done,
    Event,
    Failed,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Permit,
    Permits,
    Plan,
    Shortage,
    TimedOut,
    Waiting,
    WaitReason,
    run_plan,
)
from trioeval.limits import SharedLimit
from trioeval.limits.memory import MemoryLimits, MemoryStatistics
from trioeval.limits.model import LimitKey, Unit
from trioeval.testing import run_virtual

pytestmark = pytest.mark.slow


@attrs.frozen
class Work:
    """The work of one job."""

    lane: str = "lane"
    lasts: float = 0.0
    tokens: int = 0
    fails: int = 0
    """Calls that fail before one succeeds."""
    timeout: float = 1e9


@attrs.define(eq=False)
class Watched:
    """Permits that count how often each was ended."""

    permits: Permits
    ended: list[int]

    def take_nowait(self, index: int, tokens: int, money: float) -> Permit | None:
        permit = self.permits.take_nowait(index, tokens, money)
        return None if permit is None else self._watch(permit)

    async def take(
        self, index: int, tokens: int, money: float, on_wait: Callable[[Shortage], None]
    ) -> Permit:
        return self._watch(await self.permits.take(index, tokens, money, on_wait))

    def _watch(self, permit: Permit) -> Permit:
        self.ended.append(0)
        return WatchedPermit(permit, self.ended, len(self.ended) - 1)


@attrs.define(eq=False)
class WatchedPermit:
    permit: Permit
    ended: list[int]
    number: int

    def settle(self, tokens: int, money: float) -> None:
        self.ended[self.number] += 1
        self.permit.settle(tokens, money)

    def give_back(self) -> None:
        self.ended[self.number] += 1
        self.permit.give_back()


@attrs.define(eq=False)
class Ran:
    """The result of a plan."""

    outcomes: Sequence[Outcome[None]]
    events: Sequence[Event]
    ended_at: float
    statistics: MemoryStatistics
    ended: Sequence[int]
    """Number of ends of each permit."""

    def starts(self, lane: str | None = None) -> list[tuple[float, int]]:
        """The instants and indices of the calls, in order."""
        return [
            (event.at, event.index)
            for event in self.events
            if isinstance(event, CallStarted) and lane in (None, event.lane)
        ]


def run(
    limits: Sequence[SharedLimit],
    keys: Mapping[str, Sequence[tuple[str, Unit]]],
    jobs: Sequence[Work],
    *,
    width: int = 8,
    paused: Mapping[str, float] | None = None,
    cancel_at: float = math.inf,
) -> Ran:
    """Run jobs on lanes that count against these limits."""

    async def main() -> Ran:
        shared = MemoryLimits(limits)
        for key, seconds in (paused or {}).items():
            await shared.pause(key, seconds)
        ended: list[int] = []
        permits = {
            lane: Watched(shared.permits(lane, [LimitKey(*use) for use in uses]), ended)
            for lane, uses in keys.items()
        }
        specs = [LaneSpec(lane, width, retry_delay=1.0, max_retry_delay=1.0) for lane in keys]
        lanes = Lanes(specs, permits=permits)
        events: list[Event] = []
        outcomes: list[Outcome[None]] = []
        made = dict.fromkeys(range(len(jobs)), 0)

        async def send(job: Job[Work]) -> None:
            made[job.index] += 1
            await trio.sleep(job.payload.lasts)
            if made[job.index] <= job.payload.fails:
                raise CallError(Fault.TRANSIENT)

        async def body(job: Job[Work], calls: Calls[Work]) -> None:
            await calls(job.lane, send, job, tokens=job.payload.tokens)

        async def emit(outcome: Outcome[None]) -> None:  # noqa: ASYNC124 - never waits
            outcomes.append(outcome)

        plan = Plan.of(Job(at, work.lane, work, work.timeout) for at, work in enumerate(jobs))
        with trio.move_on_at(cancel_at):
            await run_plan(plan, body, lanes=lanes, emit=emit, observe=events.append)
        return Ran(outcomes, events, trio.current_time(), shared.statistics(), ended)

    return run_virtual(main)


def concurrency(key: str, capacity: int, timeout: float = 5.0) -> SharedLimit:
    return SharedLimit(key=key, kind="concurrency", capacity=capacity, timeout=timeout)


def rolling(key: str, capacity: int, window: float = 60.0) -> SharedLimit:
    return SharedLimit(key=key, kind="rolling", capacity=capacity, window=window)


def test_ql_23_every_lease_ends_once_however_its_call_ends() -> None:
    """One call succeeds, one fails and is retried, one fails for good, one times out."""
    jobs = [Work(lasts=1), Work(lasts=1, fails=2), Work(lasts=1, fails=9), Work(lasts=9, timeout=4)]
    ran = run([concurrency("slots", 2)], {"lane": [("slots", "slots")]}, jobs)
    kinds = [type(outcome) for outcome in ran.outcomes]
    assert kinds == [Done, Done, Failed, TimedOut]
    assert ran.ended == [1] * (1 + 3 + 4 + 1)
    assert ran.statistics == MemoryStatistics(leases=0, waiting=0, granted=9)


def test_ql_23_a_run_that_is_cancelled_leaves_no_lease() -> None:
    """Two calls are in flight, and three wait for their permits."""
    jobs = [Work(lasts=10)] * 5
    ran = run([concurrency("slots", 2)], {"lane": [("slots", "slots")]}, jobs, cancel_at=5.0)
    assert ran.ended_at == 5.0
    assert ran.ended == [1, 1]
    # Waiting calls may be granted what others return, and return it in their turn.
    assert ran.statistics == MemoryStatistics(0, 0, ran.statistics.granted)


def test_ql_24_a_lane_that_always_waits_does_not_delay_another() -> None:
    """One job at once on each lane: one waits for a full key, the other finishes before."""
    jobs = [Work("a"), Work("a"), Work("b", 1.0), Work("b", 1.0)]
    keys: Mapping[str, Sequence[tuple[str, Unit]]]
    keys = {"a": [("a:rpm", "requests")], "b": [("b:rpm", "requests")]}
    ran = run([rolling("a:rpm", 1, 100.0), rolling("b:rpm", 9)], keys, jobs, width=1)
    assert ran.starts("a") == [(0.0, 0), (100.0, 1)]
    assert ran.starts("b") == [(0.0, 2), (1.0, 3)]


def test_ql_25_a_busy_limit_costs_one_request_per_job_and_no_time() -> None:
    """Capacity 4, 8 workers, 200 jobs of 20 ms take the ideal time, with one lease each, started in order."""
    jobs = [Work(lasts=0.02)] * 200
    ran = run([concurrency("slots", 4)], {"lane": [("slots", "slots")]}, jobs, width=8)
    assert [index for _, index in ran.starts()] == list(range(200))
    assert ran.statistics.granted == len(ran.ended) == 200
    assert ran.ended_at == pytest.approx(1.0)


def test_ql_26_512_waiters_take_the_ideal_time() -> None:
    """Capacity 8, 50 ms each: 3.2 s are ideal, also with a separate lane for each waiter."""
    one = run([concurrency("slots", 8)], {"lane": [("slots", "slots")]}, [Work(lasts=0.05)] * 512)
    assert one.ended_at == pytest.approx(3.2)
    lanes = [f"lane {number}" for number in range(64)]
    many = run(
        [concurrency("slots", 8)],
        {lane: [("slots", "slots")] for lane in lanes},
        [Work(lanes[place % 64], 0.05) for place in range(512)],
    )
    assert many.ended_at == pytest.approx(3.2)
    assert many.statistics == MemoryStatistics(leases=0, waiting=0, granted=512)


def test_ql_27_a_large_request_is_not_overtaken_while_it_waits() -> None:
    """With a stream of small requests on another lane, it waits only for earlier ones."""
    uses: Sequence[tuple[str, Unit]] = [("tpm", "tokens")]
    jobs = [Work("large", 5.5, tokens=1), Work("large", tokens=90)]
    jobs += [Work("small", 1.0, tokens=10)] * 60
    ran = run([rolling("tpm", 100, 10.0)], {"small": uses, "large": uses}, jobs, width=1)
    # It arrives at 5.5, when six small ones have 60; the last but one of them leaves the window at 14.
    assert ran.starts("large") == [(0.0, 0), (14.0, 1)]
    assert [at for at, _ in ran.starts("small")][:7] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 15.0]


def test_ql_28_a_paused_key_does_not_delay_the_lane_of_another_key() -> None:
    """Key A is paused for a minute; B shares the tenant's key with it. A resumes in order of arrival."""
    keys: Mapping[str, Sequence[tuple[str, Unit]]] = {
        "a": [("a:rpm", "requests"), ("tenant", "slots")],
        "b": [("b:rpm", "requests"), ("tenant", "slots")],
    }
    limits = [rolling("a:rpm", 1000), rolling("b:rpm", 1000), concurrency("tenant", 4)]
    jobs = [*[Work("a", 1.0)] * 20, *[Work("b", 1.0)] * 100]
    ran = run(limits, keys, jobs, width=4, paused={"a:rpm": 60.0})
    alone = run(limits, {"b": keys["b"]}, [Work("b", 1.0)] * 100, width=4)
    assert alone.ended_at == 25.0
    assert ran.starts("b")[-1][0] == alone.starts("b")[-1][0] == 24.0
    assert [at for at, _ in ran.starts("a")] == [60.0 + place // 4 for place in range(20)]
    assert [index for _, index in ran.starts("a")] == list(range(20))


def test_a_lane_that_waits_for_a_limit_reports_it() -> None:
    """The report has the reason, the end and the key; no slot is held meanwhile."""
    jobs = [Work(), Work()]
    ran = run([rolling("rpm", 1, 30.0)], {"lane": [("rpm", "requests")]}, jobs, width=1)
    waits = [
        event
        for event in ran.events
        if isinstance(event, Waiting) and event.why is WaitReason.SHARED_LIMIT
    ]
    assert [(wait.at, wait.until, wait.index) for wait in waits] == [(0.0, 30.0, 1)]
    assert waits[0].shortage == Shortage("rate_limit", ("rpm",), 30.0)


def test_a_job_whose_call_can_never_be_granted_fails_at_once() -> None:
    """Its call needs more than the capacity, or an unknown limit; the other jobs continue."""
    keys: Mapping[str, Sequence[tuple[str, Unit]]]
    keys = {"lane": [("tpm", "tokens")], "unknown": [("none", "requests")]}
    jobs = [Work(tokens=5000), Work(tokens=500), Work("unknown")]
    ran = run([rolling("tpm", 1000)], keys, jobs)
    reasons = [
        outcome.error.reason
        for outcome in ran.outcomes
        if isinstance(outcome, Failed) and isinstance(outcome.error, LimitError)
    ]
    assert reasons == ["exceeds_capacity", "unknown_limit_key"]
    assert isinstance(ran.outcomes[1], Done)
    assert ran.statistics == MemoryStatistics(leases=0, waiting=0, granted=1)
