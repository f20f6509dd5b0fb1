"""The simulated provider obeys its limits, reports what it is configured to, and counts correctly."""

import itertools
import math
from collections.abc import Callable

import attrs
import pytest
import trio

from trioeval.errors import CallError, Fault, UsageError
from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Outcome, Plan, collect
from trioeval.rates import Allowance, RateHint
from trioeval.testing import run_virtual
from trioeval.testing.simulated import SimulatedProvider, SimulatedServer


@attrs.frozen
class _Answer:
    """The result of one request."""

    at: float
    """Instant at which it arrived."""
    ended_at: float
    hint: RateHint | None = None
    error: CallError | None = None


async def _ask(provider: SimulatedProvider, tokens: int = 0) -> _Answer:
    at = trio.current_time()
    try:
        reply = await provider.send(tokens)
    except CallError as error:
        return _Answer(at, trio.current_time(), error=error)
    return _Answer(at, trio.current_time(), hint=reply.hint)


def _ask_at(
    server: SimulatedServer, instants: list[float], tokens: int = 0
) -> tuple[list[_Answer], SimulatedProvider]:
    """Send one request at each instant, independently of the others."""

    async def main() -> tuple[list[_Answer], SimulatedProvider]:
        provider = SimulatedProvider(server)
        answers: dict[int, _Answer] = {}

        async def ask(place: int, at: float) -> None:
            await trio.sleep_until(at)
            answers[place] = await _ask(provider, tokens)

        async with trio.open_nursery() as nursery:
            for place, at in enumerate(instants):
                nursery.start_soon(ask, place, at)
        return [answers[place] for place in range(len(instants))], provider

    return run_virtual(main)


def test_its_bucket_serves_no_more_than_burst_and_rate() -> None:
    """In any window of length T at most burst + T·rpm/60 requests are served, and that many are possible."""
    server = SimulatedServer(rpm=240, burst=3, hints="none")
    answers, provider = _ask_at(server, [n / 16 for n in range(64)])
    served = [answer.at for answer in answers if answer.error is None]
    for (first, begin), (last, end) in itertools.combinations(enumerate(served), 2):
        assert last - first + 1 <= 3 + (end - begin) * 4
    assert len(served) == 3 + 15  # 63/16 seconds, four a second
    assert provider.throttled == 64 - len(served)


@pytest.mark.parametrize(
    ("hints", "expected"),
    [("none", None), ("retry_after", 0.75), ("whole_seconds", 1), ("headers", 0.75)],
)
def test_a_refusal_names_the_configured_wait(hints: str, expected: float | None) -> None:
    """It is the exact wait, the rounded one, or none."""
    server = SimulatedServer(rpm=60, burst=1, hints=hints)  # type: ignore[arg-type]
    answers, _ = _ask_at(server, [0.0, 0.25])
    assert answers[1].error is not None
    assert answers[1].error.fault is Fault.RATE_LIMITED
    assert answers[1].error.retry_after == expected


def test_a_request_after_the_named_wait_is_served() -> None:
    """A request after the named wait is served at any rate."""

    async def main(rpm: float) -> None:
        provider = SimulatedProvider(SimulatedServer(rpm=rpm, burst=1, latency=0.0))
        for _ in range(20):
            answer = await _ask(provider)
            if answer.error is not None:
                assert answer.error.retry_after is not None
                await trio.sleep(answer.error.retry_after)
                assert (await _ask(provider)).error is None

    for rpm in (7, 60, 1200, 999.9):
        run_virtual(main, rpm)


def test_successful_replies_report_the_remaining_allowance() -> None:
    """They report requests and tokens: limit, remaining, and the seconds until all of it is available."""
    server = SimulatedServer(latency=0.0, rpm=60, burst=4, tpm=120, hints="headers")
    answers, _ = _ask_at(server, [0.0, 0.0, 0.5], tokens=30)
    assert answers[2].hint == RateHint(
        requests=Allowance(limit=60.0, remaining=1.0, reset_after=2.5),
        tokens=Allowance(limit=120.0, remaining=31.0, reset_after=44.5),
    )
    silent, _ = _ask_at(attrs.evolve(server, hints="retry_after"), [0.0])
    assert silent[0].hint is None


def test_tokens_are_counted_by_the_minute() -> None:
    """A minute's tokens are available at once, then as the bucket fills; a larger one needs a full bucket."""
    server = SimulatedServer(latency=0.0, tpm=60)
    answers, _ = _ask_at(server, [0.0, 0.0, 15.0, 30.0], tokens=30)
    assert [answer.error is None for answer in answers] == [True, True, False, True]
    assert answers[2].error is not None
    assert answers[2].error.retry_after == 15.0
    large, _ = _ask_at(server, [0.0, 60.0], tokens=100)
    assert [answer.error is None for answer in large] == [True, False]


def test_a_full_server_refuses_without_a_hint() -> None:
    """Only a fixed number are served at once; the others are refused without a wait."""
    server = SimulatedServer(latency=1.0, max_in_flight=2)
    answers, provider = _ask_at(server, [0.0, 0.0, 0.5, 1.25])
    assert [answer.error is None for answer in answers] == [True, True, False, True]
    assert answers[2].error is not None
    assert answers[2].error.retry_after is None
    assert (provider.max_in_flight, provider.throttled) == (2, 1)


def test_latency_grows_in_proportion_beyond_a_number_in_flight() -> None:
    """The latency of a request depends on the requests in flight at its start."""
    answers, _ = _ask_at(SimulatedServer(latency=1.0, slow_from=2), [0.0] * 4)
    assert sorted(answer.ended_at for answer in answers) == [1.0, 1.0, 1.5, 2.0]


def test_latency_varies_within_its_share() -> None:
    """The distribution is uniform around the configured value."""
    answers, _ = _ask_at(SimulatedServer(latency=1.0, jitter=0.5), [0.0] * 200)
    ends = [answer.ended_at for answer in answers]
    assert 0.5 <= min(ends) < 0.6
    assert 1.4 < max(ends) <= 1.5


def test_refusals_and_outages_take_the_time_of_a_refusal() -> None:
    """The time is 0 by default; an outage is a transient failure, not a refusal."""
    server = SimulatedServer(outages=((0.0, 1.0),), throttle_rate=1.0, refusal_latency=0.25)
    answers, provider = _ask_at(server, [0.5, 1.0])
    faults = [answer.error.fault for answer in answers if answer.error is not None]
    assert faults == [Fault.TRANSIENT, Fault.RATE_LIMITED]
    assert [answer.ended_at for answer in answers] == [0.75, 1.25]
    assert (provider.errors, provider.throttled) == (1, 1)


def test_random_refusals_and_failures_have_their_shares() -> None:
    """Refusals come at once, errors after the latency; each request has the probabilities of a single one."""
    server = SimulatedServer(throttle_rate=0.2, error_rate=0.1, seed=3)
    instants = [float(n) for n in range(1000)]
    answers, provider = _ask_at(server, instants)
    assert 150 <= provider.throttled <= 250
    assert 50 <= provider.errors <= 110
    refused = [a.at for a in answers if a.error and a.error.fault is Fault.RATE_LIMITED]
    also_full, _ = _ask_at(attrs.evolve(server, error_rate=0.0, latency=0.5), instants)
    assert [a.at for a in also_full if a.error] == refused


def test_a_cancelled_request_leaves_its_counts_right() -> None:
    """It is no longer in flight; it counts as received, with its cost."""

    async def main() -> SimulatedProvider:
        provider = SimulatedProvider(SimulatedServer(latency=1.0, rpm=60, burst=2, max_in_flight=1))
        for patience in (0.5, 0.0):
            with trio.move_on_after(patience):
                await provider.send()
        return provider

    provider = run_virtual(main)
    assert (provider.requests, provider.in_flight, provider.max_in_flight) == (2, 0, 1)
    assert (provider.throttled, provider.errors) == (0, 0)
    assert provider.starts == [0.0, 0.5]


def test_equal_seeds_give_equal_runs() -> None:
    """Figures are therefore reproducible."""
    server = SimulatedServer(jitter=0.5, throttle_rate=0.1, error_rate=0.1, seed=7)
    assert _behind_a_lane(server) == _behind_a_lane(server)
    assert _behind_a_lane(server) != _behind_a_lane(attrs.evolve(server, seed=8))


def test_its_result_reaches_a_body_as_its_value() -> None:
    """A `Metered` is unwrapped by the lane: the numbers of the requests."""
    assert _behind_a_lane(SimulatedServer()) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: SimulatedServer(latency=-1.0),
            "SimulatedServer.latency must be at least 0 and finite, got -1.0",
        ),
        (
            lambda: SimulatedServer(jitter=1.5),
            "SimulatedServer.jitter must be from 0 to 1, got 1.5",
        ),
        (
            lambda: SimulatedServer(rpm=math.inf),
            "SimulatedServer.rpm must be more than 0 and finite, got inf",
        ),
        (lambda: SimulatedServer(burst=0), "SimulatedServer.burst must be at least 1, got 0"),
    ],
)
def test_impossible_settings_are_rejected(
    make: Callable[[], SimulatedServer], message: str
) -> None:
    """The message has the field, the range and the value."""
    with pytest.raises(UsageError) as caught:
        make()
    assert str(caught.value) == message


def _behind_a_lane(server: SimulatedServer) -> list[object]:
    """Return the results of ten jobs of one call, or the kinds of their outcomes."""

    async def main() -> list[Outcome[int]]:
        provider = SimulatedProvider(server)

        async def body(job: Job[None], calls: Calls[None]) -> int:
            return await calls(job.lane, provider.send)

        plan = Plan.of(Job(index, "a", None) for index in range(10))
        return await collect(plan, body, lanes=Lanes([LaneSpec("a", 2)]))

    outcomes = run_virtual(main)
    return [o.value if isinstance(o, Done) else type(o).__name__ for o in outcomes]
