"""Kernel lanes with remote limits, on virtual time."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest
import trio
from faulty_network import ArrivedRequest, Fault, FaultyNetwork

from trioeval.errors import CallError, LimitError
from trioeval.errors import Fault as CallFault
from trioeval.kernel import (
    Calls,
    Done,
    Failed,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    Metered,
    Plan,
    Shortage,
    TimedOut,
    collect,
)
from trioeval.limits import Actual, Decision, Granted, LeaseRequest, LimitState, SharedLimit
from trioeval.limits.backend import Backend
from trioeval.limits.batching import open_batching
from trioeval.limits.ledger import LimitLedger
from trioeval.limits.model import LimitKey
from trioeval.limits.remote import RemoteLimits, open_remote
from trioeval.testing import run_virtual

R = TypeVar("R")

SLOTS = SharedLimit(key="slots", kind="concurrency", capacity=2, timeout=60.0)
TPM = SharedLimit(key="tpm", kind="rolling", capacity=1000, window=60.0)
USES = (LimitKey("slots", "slots"), LimitKey("tpm", "tokens"))


def with_limits(
    body: Callable[[RemoteLimits], Awaitable[R]],
    limits: Sequence[SharedLimit],
    faults: Sequence[Fault] = (),
    *,
    batched: bool = False,
) -> tuple[R, FaultyNetwork]:
    """Run a body on virtual time; return its result, and the requests that arrived."""
    results: list[R] = []

    async def main() -> FaultyNetwork:
        async with trio.open_nursery() as nursery:
            network = FaultyNetwork.over(nursery, limits, [Fault(), *faults])
            if batched:
                async with open_batching(network) as backend:
                    await over(backend)
            else:
                await over(network)
        return network

    async def over(backend: Backend) -> None:
        ids = map("id-{}".format, itertools.count(1))
        async with open_remote(backend, ids=lambda: next(ids), spread=lambda: 0.5) as shared:
            await trio.testing.wait_all_tasks_blocked()
            results.append(await body(shared))

    network = run_virtual(main)
    return results[0], network


def granted(network: FaultyNetwork) -> set[str]:
    def is_granted(one: ArrivedRequest) -> bool:
        return isinstance(one.decision, Granted)

    return {one.ask.lease_id for one in filter(is_granted, network.arrived)}


@pytest.mark.parametrize("faults", [(), (Fault(loses="answer"), Fault(), Fault(loses="message"))])
def test_ql_23_every_lease_is_completed_once_however_its_call_ends(
    faults: tuple[Fault, ...],
) -> None:
    """The call is done, failed, timed out, or cut by the deadline; the tokens it used are reported."""

    async def send(kind: str) -> Metered[str]:
        if kind == "fails":
            raise CallError(CallFault.REFUSED, "no", tokens=7)
        if kind == "done":
            await trio.sleep(1)
            return Metered("reply", tokens=30)
        await trio.sleep_forever()
        raise AssertionError

    async def perform(job: Job[str], calls: Calls[str]) -> str:
        return await calls("lane", send, job.payload, tokens=100)

    async def body(limits: RemoteLimits) -> list[str]:
        kinds = ("done", "fails", "times out", "is cut")
        jobs = [
            Job(index, "lane", kind, timeout=5.0 if kind == "times out" else 1000.0)
            for index, kind in enumerate(kinds)
        ]
        lanes = Lanes([LaneSpec("lane", 4)], permits={"lane": limits.permits("lane", USES)})
        outcomes = await collect(Plan.of(jobs), perform, lanes=lanes, deadline=30.0)
        return [type(outcome).__name__ for outcome in outcomes]

    ends, network = with_limits(body, [SLOTS, TPM], faults)
    assert ends == [one.__name__ for one in (Done, Failed, TimedOut, Interrupted)]
    settled = {one.lease_id: one.actuals for one in network.completed}
    assert set(settled) == granted(network)
    assert len(settled) == len(ends)
    assert {(Actual("tpm", 30),), (Actual("tpm", 7),)} <= set(settled.values())
    held = {one.limit.key: one.used for one in network.ledger.states(30.0)}["slots"]
    assert held == 0


@pytest.mark.parametrize(
    ("keys", "limits", "reason"),
    [
        ("gone", (SLOTS,), "unknown_limit_key"),
        ("tpm", (SLOTS, TPM), "exceeds_capacity"),
    ],
)
def test_ql_16_and_ql_17_a_permanently_denied_call_fails_at_once(
    keys: str, limits: Sequence[SharedLimit], reason: str
) -> None:
    """It sends one request, and the run returns."""

    async def send() -> str:  # noqa: ASYNC124 - never called
        raise AssertionError

    async def perform(job: Job[int], calls: Calls[int]) -> str:
        return await calls("lane", send, tokens=job.payload)

    async def body(shared: RemoteLimits) -> object:
        permits = shared.permits("lane", [LimitKey(keys, "tokens")])
        lanes = Lanes([LaneSpec("lane", 4)], permits={"lane": permits})
        [outcome] = await collect(Plan.of([Job(0, "lane", 5000)]), perform, lanes=lanes)
        assert trio.current_time() == 0
        assert isinstance(outcome, Failed)
        return outcome.error

    error, network = with_limits(body, limits)
    assert isinstance(error, LimitError)
    assert error.reason == reason
    assert len(network.sent) == 1


def test_ql_32_an_unanswered_batch_is_repeated_with_the_same_ids() -> None:
    """Two lanes without a common limit send one message."""
    limits = [SharedLimit(key=key, kind="rolling", capacity=5, window=60.0) for key in "ab"]

    async def body(shared: RemoteLimits) -> None:
        async def take(key: str) -> None:
            permits = shared.permits(key, [LimitKey(key, "requests")])
            (await permits.take(0, 0, 0.0, lambda _shortage: None)).settle(0, 0.0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, "a")
            nursery.start_soon(take, "b")

    _, network = with_limits(body, limits, [Fault(loses="answer")], batched=True)
    ids = [ask.lease_id for _, ask in network.sent]
    assert len(ids) == 4
    assert set(ids) == {"id-1", "id-2"}
    assert len(granted(network)) == 2
    assert {one.used for one in network.ledger.states(5.0)} == {1}


def test_ql_24_a_denied_lane_does_not_hold_up_another() -> None:
    """No call waits for a slot of the other lane's limit."""
    full = SharedLimit(key="full", kind="concurrency", capacity=1, timeout=60.0)

    async def send() -> str:
        await trio.sleep(1)
        return "reply"

    async def perform(job: Job[None], calls: Calls[None]) -> float:
        await calls(job.lane, send)
        return trio.current_time()

    async def body(limits: RemoteLimits) -> list[float]:
        permits = {
            "a": limits.permits("a", [LimitKey("full", "slots")]),
            "b": limits.permits("b", [LimitKey("slots", "slots")]),
        }
        holder = await permits["a"].take(99, 0, 0.0, lambda _shortage: None)
        lanes = Lanes([LaneSpec("a", 4), LaneSpec("b", 1)], permits=permits)
        jobs = [Job(index, lane, None) for index, lane in enumerate("abb")]

        async def free() -> None:
            await trio.sleep(100)
            holder.give_back()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(free)
            outcomes = await collect(Plan.of(jobs), perform, lanes=lanes)
        return [outcome.value for outcome in outcomes if isinstance(outcome, Done)]

    ends, _ = with_limits(body, [full, SLOTS])
    assert ends == [101.0, 1.0, 2.0]


class Distant(FaultyNetwork):
    """A backend whose answers all take a given time."""

    seconds = 0.0

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        await trio.sleep(self.seconds)
        return await super().reserve(asks)


def starts_of_two_lanes(seconds: float, jobs: int) -> list[tuple[float, str | None]]:
    """Return when calls of 0.1 s start on two lanes, one call at a time; lane `asks` requests first.

    Args:
        seconds: The time that the backend takes to answer; from 2 s on, it does not answer at all.
        jobs: The number of jobs of each lane.
    """
    starts: list[tuple[float, str | None]] = []

    async def perform(job: Job[None], calls: Calls[None]) -> None:
        async def send() -> None:
            starts.append((round(trio.current_time(), 6), job.lane))
            await trio.sleep(0.1)

        await calls(job.lane, send)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            network = Distant(nursery, LimitLedger([LimitState(limit=SLOTS)]), iter(()))
            network.seconds = seconds
            async with open_remote(network, spread=lambda: 0.5) as limits:
                permits = {"asks": limits.permits("asks", [LimitKey("slots", "slots")])}
                lanes = Lanes([LaneSpec("asks"), LaneSpec("free")], cap=1, permits=permits)
                plan = Plan.of(
                    [Job(n, "asks" if n < jobs else "free", None) for n in range(2 * jobs)]
                )
                await collect(plan, perform, lanes=lanes, deadline=600.0)

    run_virtual(main)
    return starts


def test_a_silent_backend_does_not_block_the_cap_of_all_lanes() -> None:
    """Its lane gives up its turn after 50 ms without an answer."""
    starts = starts_of_two_lanes(seconds=1.9, jobs=10)[:10]
    assert {lane for _, lane in starts} == {"free"}
    assert starts[-1][0] <= 0.9 + 0.05


@pytest.mark.parametrize("seconds", [0.04, 0.2])
def test_a_lane_with_a_distant_backend_does_not_starve_at_a_full_cap(seconds: float) -> None:
    """It keeps its turn for the usual time of an answer, so the lanes start in turn."""
    starts = starts_of_two_lanes(seconds, jobs=10)
    early = [lane for _, lane in starts[:12]]
    assert early.count("asks") >= 4


def test_a_call_behind_an_unanswered_request_is_notified_too() -> None:
    """It also has a turn at the cap, and waits for the same answer."""
    notified_at: dict[str, float] = {}

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            network = Distant(nursery, LimitLedger([LimitState(limit=SLOTS)]), iter(()))
            network.seconds = 1.0
            async with (
                open_remote(network, spread=lambda: 0.5) as limits,
                trio.open_nursery() as lanes,
            ):

                async def take(lane: str) -> None:
                    def on_wait(_shortage: Shortage) -> None:
                        notified_at.setdefault(lane, trio.current_time())

                    permits = limits.permits(lane, [LimitKey("slots", "slots")])
                    (await permits.take(0, 0, 0.0, on_wait)).give_back()

                lanes.start_soon(take, "first")
                lanes.start_soon(take, "second")

    run_virtual(main)
    assert notified_at == {"first": 0.05, "second": 0.05}
