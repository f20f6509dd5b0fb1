"""The throughput of lanes with servers that have their own limits, in virtual time.

The ideal is the best that the server could do: its requests one after another at its rate, after its
burst, and the latency of the last one; or all latencies spread evenly over the calls that it serves
concurrently.
"""

from collections.abc import Awaitable, Callable, Sequence

import attrs
import pytest
import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel import (
    Adaptive,
    Calls,
    Done,
    Job,
    Lanes,
    LaneSpec,
    LaneStatistics,
    Outcome,
    Plan,
    collect,
)
from trioeval.testing import run_virtual
from trioeval.testing.simulated import SimulatedProvider, SimulatedServer

Send = Callable[[], Awaitable[object]]

_BUCKET = SimulatedServer(latency=0.05, rpm=1200, burst=20)
_BUCKET_IDEAL = (200 - 20) / 20 + 0.05
_SMALL = SimulatedServer(latency=0.2, jitter=0.5, max_in_flight=8, hints="none")


@attrs.frozen
class Result:
    """The result of a run."""

    outcomes: Sequence[Outcome[None]]
    lanes: dict[str, LaneStatistics]

    @property
    def done(self) -> int:
        """Return the number of jobs that are done."""
        return sum(isinstance(outcome, Done) for outcome in self.outcomes)

    def done_at(self, indices: Sequence[int] | None = None) -> float:
        """Return when the last of some jobs was done; all of them must be."""
        chosen = self.outcomes if indices is None else [self.outcomes[i] for i in indices]
        assert all(isinstance(outcome, Done) for outcome in chosen), chosen
        return max(outcome.finished_at for outcome in chosen if isinstance(outcome, Done))


def _run(
    lanes: Sequence[LaneSpec],
    jobs: Sequence[tuple[str, Send]],
    *,
    pause: float = 0.0,
    max_live_jobs: int = 256,
) -> Result:
    """Run one call for each job, after a pause of its body."""

    async def body(job: Job[Send], calls: Calls[Send]) -> None:
        if pause:
            await trio.sleep(pause)
        await calls(job.lane, job.payload)

    async def main() -> Result:
        served = Lanes(lanes)
        plan = Plan.of(Job(index, lane, send) for index, (lane, send) in enumerate(jobs))
        outcomes = await collect(plan, body, lanes=served, max_live_jobs=max_live_jobs)
        return Result(outcomes, dict(served.statistics()))

    return run_virtual(main)


def _run_against(
    server: SimulatedServer, lane: LaneSpec, size: int
) -> tuple[Result, SimulatedProvider]:
    provider = SimulatedProvider(server)
    return _run([lane], [(lane.name, provider.send)] * size), provider


def _always(fault: Fault, latency: float = 0.05, retry_after: float | None = None) -> Send:
    async def send() -> None:
        await trio.sleep(latency)
        raise CallError(fault, retry_after=retry_after)

    return send


def test_a_declared_rate_is_used_up_and_never_exceeded() -> None:
    """There are 200 calls to a server of 1200 rpm with a burst of 20 (PR-22)."""
    result, provider = _run_against(_BUCKET, LaneSpec("a", 20, rpm=1200, burst=20), 200)
    assert provider.throttled == 0
    assert result.done_at() <= 1.02 * _BUCKET_IDEAL


def test_limits_known_only_from_headers_are_kept() -> None:
    """Successful replies report the remaining limit; the lane declares nothing."""
    server = attrs.evolve(_BUCKET, hints="headers")
    result, provider = _run_against(server, LaneSpec("a", 8), 200)
    assert provider.throttled <= 3
    assert result.done_at() <= 1.25 * _BUCKET_IDEAL


@pytest.mark.parametrize(("width", "refusals"), [(4, 12), (8, 20), (20, 32), (64, 24)])
def test_an_unreported_rate_is_found_by_refusals(width: int, refusals: int) -> None:
    """Each refusal has a wait in whole seconds, whatever the real one is.

    With max concurrency 20, the server's burst is used up when 20 more start at once, which is unforeseeable.
    The rest depends on the order in which Trio wakes tasks: 6 to 8, 6 to 14, 21 to 27, and 8 or (one run of
    15) 16 to 18.
    """
    server = attrs.evolve(_BUCKET, hints="whole_seconds")
    result, provider = _run_against(server, LaneSpec("a", width), 200)
    assert provider.throttled <= refusals
    assert result.done_at() <= 1.25 * _BUCKET_IDEAL


def test_the_capacity_of_a_server_is_found_by_bare_refusals() -> None:
    """The server accepts 8 calls in flight; there are 200 of 200 ms ±50 %, and the max concurrency is 32."""
    result, _ = _run_against(_SMALL, LaneSpec("a", 32), 200)
    assert result.done_at() <= 1.25 * 200 * 0.2 / 8


@pytest.mark.parametrize("latency", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("width", [12, 16, 64])
def test_a_full_server_with_a_wait_is_not_filled_repeatedly(width: int, latency: float) -> None:
    """The server accepts 4 at once and requests a wait of a second from all others; ideal is 25 s.

    Each wait blocks the whole lane, so refusals are remembered, and more is rarely tried.
    """
    server = SimulatedServer(latency=latency, jitter=0.5, max_in_flight=4, full_wait=1.0)
    result, provider = _run_against(server, LaneSpec("a", width), int(25 * 4 / latency))
    assert result.done_at() <= 1.25 * 25
    assert provider.throttled <= 12
    assert 3 <= result.lanes["a"].limit <= 5


def test_a_server_that_recovers_is_used_in_full() -> None:
    """AIMD: it accepts 2 at once for 20 s, then any number; the limit returns to the max concurrency."""
    busy = SimulatedProvider(SimulatedServer(latency=0.25, max_in_flight=2, full_wait=0.5))
    free = SimulatedProvider(SimulatedServer(latency=0.25))

    async def send() -> None:
        await (busy if trio.current_time() < 20 else free).send()

    result = _run([LaneSpec("a", 16)], [("a", send)] * 2000)
    assert result.lanes["a"].limit == 16
    assert result.done_at() <= 20 + 1.5 * (2000 - 20 * 8) * 0.25 / 16


def test_waits_of_a_single_request_are_not_taken_for_a_rate() -> None:
    """Its 5 or 6 waits of 10 s block the lane, and the lane adds no pace of its own afterwards.

    The others take 30 s; a pace derived from these waits would double that.
    """

    async def serve() -> None:
        await trio.sleep(2)

    jobs: list[tuple[str, Send]] = [("a", serve)] * 60
    jobs[30] = ("a", _always(Fault.RATE_LIMITED, latency=2.0, retry_after=10.0))
    result = _run([LaneSpec("a", 4)], jobs)
    assert result.done_at([index for index in range(60) if index != 30]) <= 150


@pytest.mark.slow
def test_few_calls_are_wasted_on_a_full_server() -> None:
    """In the long run at most 5 % are refused, and the limit stays near the capacity (PR-21)."""
    result, provider = _run_against(_SMALL, LaneSpec("a", 32), 2000)
    assert provider.throttled <= 0.05 * 2000
    assert result.done_at() <= 1.25 * 2000 * 0.2 / 8
    assert 6 <= result.lanes["a"].limit <= 10


def test_random_refusals_do_not_slow_a_lane_down_much() -> None:
    """20 % of 60 calls of 20 ms are refused at random, without a hint (PR-19)."""
    server = SimulatedServer(latency=0.02, throttle_rate=0.2)
    result, provider = _run_against(server, LaneSpec("a", 8), 60)
    assert provider.throttled >= 6
    assert result.done_at() < 2.0
    assert result.lanes["a"].limit > 1


def test_a_throttled_lane_does_not_delay_a_free_one() -> None:
    """50 calls to a lane of 300 rpm are listed before 50 to a free lane."""
    free = LaneSpec("free", 4)
    alone, _ = _run_against(SimulatedServer(), free, 50)
    slow, fast = SimulatedProvider(SimulatedServer()), SimulatedProvider(SimulatedServer())
    jobs = [("slow", slow.send)] * 50 + [("free", fast.send)] * 50
    beside = _run([LaneSpec("slow", 4, rpm=300), free], jobs)
    assert beside.done_at(range(50, 100)) <= 1.1 * alone.done_at()


def test_calls_that_always_fail_do_not_delay_good_ones() -> None:
    """5 always-500 prompts among 40 good ones at width 5; ideal is every request once (PR-23)."""
    provider = SimulatedProvider(SimulatedServer(latency=0.05))
    bad = range(0, 45, 9)
    broken = _always(Fault.TRANSIENT)
    jobs = [("a", broken if index in bad else provider.send) for index in range(45)]
    result = _run([LaneSpec("a", 5)], jobs)
    assert result.done == 40
    good = [index for index in range(45) if index not in bad]
    assert result.done_at(good) <= 1.2 * 45 * 0.05 / 5


def test_hundreds_of_waiters_are_served_without_gaps() -> None:
    """512 calls are requested at one instant, at max concurrency 8."""
    provider = SimulatedProvider(SimulatedServer(latency=0.01))
    jobs = [("a", provider.send)] * 512
    result = _run([LaneSpec("a", 8)], jobs, pause=1.0, max_live_jobs=512)
    assert result.done_at() - 1.0 <= 1.1 * 512 * 0.01 / 8


def test_a_permanent_refusal_costs_few_requests() -> None:
    """Each request of 50 jobs is refused for 0.2 s: the lane probes ever less often, and closes (PR-11)."""
    result = _run([LaneSpec("a")], [("a", _always(Fault.RATE_LIMITED, retry_after=0.2))] * 50)
    assert result.done == 0
    assert result.lanes["a"].started <= 15
    assert result.lanes["a"].reason is not None


@pytest.mark.parametrize(("allowed", "requests"), [(0, 1), (3, 4)])
def test_max_retries_bounds_refusals(allowed: int, requests: int) -> None:
    """One call is always refused, with `max_retries` set (PR-12)."""
    lane = LaneSpec("a", max_retries=allowed)
    result = _run([lane], [("a", _always(Fault.RATE_LIMITED, retry_after=0.5))])
    assert result.done == 0
    assert result.lanes["a"].started == requests


def test_a_bare_refusal_costs_one_short_back_off() -> None:
    """One refusal without a hint is retried within half a second (PR-13)."""
    server = SimulatedServer(latency=1.0, max_in_flight=1, hints="none")
    result, provider = _run_against(server, LaneSpec("a", 2), 2)
    again = [at for at in provider.starts if at > 0.0]
    assert again[0] <= 0.5
    # If it is refused again while the other one is served, its back-off is longer.
    assert result.done_at() <= 4.0


def test_a_transient_failure_is_retried() -> None:
    """503, 503, 200 is three requests and a result (PR-14)."""
    answers = iter([Fault.TRANSIENT, Fault.TRANSIENT, None])

    async def send() -> None:
        await trio.sleep(0.05)
        fault = next(answers)
        if fault is not None:
            raise CallError(fault)

    result = _run([LaneSpec("a")], [("a", send)])
    assert (result.done, result.lanes["a"].started, next(answers, "spent")) == (1, 3, "spent")


def test_an_exhausted_allowance_delays_the_next_start() -> None:
    """After a successful reply with nothing left and a reset in 1 s, the next start is no earlier (PR-15)."""
    server = SimulatedServer(latency=0.125, rpm=60, burst=1, hints="headers")
    result, provider = _run_against(server, LaneSpec("a", 1), 2)
    assert (result.done, provider.requests, provider.throttled) == (2, 2, 0)
    assert provider.starts[1] == 1.0


def test_a_burst_of_refusals_reduces_the_limit_once() -> None:
    """Eight calls in flight are refused together (PR-17)."""
    requests = 0

    async def send() -> None:
        nonlocal requests
        requests += 1
        early = requests <= 8
        await trio.sleep(0.05)
        if early:
            raise CallError(Fault.RATE_LIMITED)

    result = _run([LaneSpec("a", 8)], [("a", send)] * 16)
    assert result.done == 16
    assert result.lanes["a"].cuts == 1


def test_a_bare_refusal_never_shortens_a_block() -> None:
    """One call has to wait 30 s, and the next one gets no wait (PR-18)."""
    starts = []

    async def send(*, latency: float = 0.0, retry_after: float | None = None) -> None:
        starts.append(trio.current_time())
        await trio.sleep(latency)
        if len(starts) <= 2:
            raise CallError(Fault.RATE_LIMITED, retry_after=retry_after)

    async def long_wait() -> None:
        await send(latency=0.125, retry_after=30.0)

    async def no_wait() -> None:
        await send(latency=0.25)

    result = _run([LaneSpec("a", 2)], [("a", long_wait), ("a", no_wait)])
    assert result.done == 2
    assert starts[:2] == [0.0, 0.0]
    assert starts[2] >= 30.125


def test_a_lane_that_refuses_all_calls_is_closed_and_no_other() -> None:
    """Three responses 401 close the lane; the other one finishes (PR-24)."""
    provider = SimulatedProvider(SimulatedServer())
    jobs = [("shut", _always(Fault.FATAL))] * 20 + [("free", provider.send)] * 20
    result = _run([LaneSpec("shut", 1), LaneSpec("free", 1)], jobs)
    assert result.lanes["shut"].started == 3
    assert result.lanes["shut"].reason is not None
    assert result.done == 20


@pytest.mark.parametrize("adaptive", ["aimd", "latency", "off"])
def test_requests_that_are_always_refused_do_not_delay_others(adaptive: Adaptive) -> None:
    """5 of 200 calls always get a bare refusal; the others are served as if those did not exist."""
    refused = _always(Fault.RATE_LIMITED, latency=0.1)
    good = SimulatedProvider(SimulatedServer(latency=1.0)).send
    # A latency limit starts at 1: a refusal before any success looks like a server that is down.
    before = 50 if adaptive == "latency" else 0
    jobs = [("a", good)] * before + [("a", refused)] * 5 + [("a", good)] * (195 - before)
    result = _run([LaneSpec("a", 8, adaptive=adaptive)], jobs)
    assert result.done == 195
    served = [index for index, (_, send) in enumerate(jobs) if send == good]
    most = 1.5 if adaptive == "latency" else 1.2
    assert result.done_at(served) <= most * 195 / 8


@pytest.mark.parametrize("rpm", [60, 120, 300])
def test_a_slow_unreported_rate_is_found_too(rpm: int) -> None:
    """With one call a second and a wait of a second, not every other request is refused."""
    server = SimulatedServer(latency=0.05, rpm=rpm, burst=5, hints="whole_seconds")
    result, provider = _run_against(server, LaneSpec("a", 8), 200)
    assert provider.throttled <= 50  # 18 to 35, by the order in which Trio wakes tasks
    assert result.done_at() <= 1.15 * (200 - 5) * 60 / rpm
