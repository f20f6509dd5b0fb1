"""The activity of lanes: buckets add up to the totals, and waits are measured exactly."""

import json
import math
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.errors import CallError, Fault
from trioeval.kernel import (
    Admitted,
    CallEnded,
    Calls,
    CallStarted,
    Event,
    Job,
    Lane,
    LaneClosed,
    Lanes,
    LaneSpec,
    LimitChanged,
    Metered,
    Plan,
    Throttled,
    Waiting,
    WaitReason,
    collect,
)
from trioeval.report.activity import (
    BUCKET_FIELDS,
    MOST_BUCKETS,
    Activity,
    LaneActivity,
    LaneWait,
    longest_waits,
)
from trioeval.testing import run_virtual

# Dyadic numbers, so that sums are exact.
steps = st.integers(0, 400).map(lambda n: n / 8) | st.sampled_from((0.0, 0.125, 5000.0))
reasons = st.sampled_from(list(WaitReason))


@attrs.frozen
class Step:
    """An event, `after` seconds after the previous one."""

    after: float
    what: str
    why: WaitReason
    number: int


scripts = st.lists(
    st.builds(
        Step,
        steps,
        st.sampled_from(("start", "end", "wait", "admit", "refuse", "limit", "close", "read")),
        reasons,
        st.integers(0, 50),
    ),
    max_size=40,
)


def event_of(step: Step, at: float, in_flight: int) -> Event | None:
    """Return the kernel event; None if the kernel could not emit it."""
    until = at + step.number / 4 if step.number % 3 else None
    match step.what:
        case "start":
            return CallStarted(at, step.number, "a")
        case "end" if in_flight:
            return CallEnded(at, step.number, "a", tokens=step.number, money=step.number / 8)
        case "wait":
            return Waiting(at, "a", step.why, until, step.number if step.number % 2 else None)
        case "admit":
            return Admitted(at, step.number, "a")
        case "refuse":
            return Throttled(at, step.number, "a", None, -math.inf)
        case "limit":
            return LimitChanged(at, "a", step.number, step.number)
        case "close":
            return LaneClosed(at, "a", "says no")
        case _:
            return None


@pytest.mark.slow
@given(scripts, st.sampled_from((0.0, 1024.0, 2.0**20)))
@example([Step(0.0, "wait", WaitReason.PACE, 9), Step(5000.0, "read", WaitReason.PACE, 0)], 0.0)
@example(
    [Step(0.125, "start", WaitReason.SLOT, 1), Step(5000.0, "start", WaitReason.SLOT, 2)], 1024.0
)
def test_buckets_add_up_to_the_totals(script: list[Step], began_at: float) -> None:
    """Starts, refusals, tokens and waits add up over any duration, in a bounded number of buckets."""
    activity, at, in_flight = Activity(began_at), began_at, 0
    started = refused = tokens = peak = 0
    for step in script:
        at += step.after
        if step.what == "read":
            json.dumps(activity.json(at))
        event = event_of(step, at, in_flight)
        if event is None:
            continue
        activity.observe(event)
        started += isinstance(event, CallStarted)
        refused += isinstance(event, Throttled)
        in_flight += isinstance(event, CallStarted) - isinstance(event, CallEnded)
        peak = max(peak, in_flight)
        tokens += event.tokens if isinstance(event, CallEnded) else 0
    lane = activity.lane("a")
    data = lane.json(at)
    buckets = [dict(zip(BUCKET_FIELDS, bucket, strict=True)) for bucket in data["buckets"]]
    assert (started, refused, tokens) == (lane.calls, lane.refused, lane.tokens)
    assert sum(bucket["starts"] for bucket in buckets) == started
    assert sum(bucket["refused"] for bucket in buckets) == refused
    assert sum(bucket["tokens"] for bucket in buckets) == tokens
    assert lane.in_flight == in_flight
    assert max(bucket["inFlight"] for bucket in buckets) == peak
    assert all(bucket["inFlight"] >= 0 for bucket in buckets)
    assert 1 <= len(buckets) <= MOST_BUCKETS
    assert (len(buckets) - 1) * data["bucketS"] <= at - began_at < len(buckets) * data["bucketS"]
    for why, seconds in lane.waits.items():
        inside = sum(bucket.waits.get(why, 0.0) for bucket in lane.buckets)
        assert inside == pytest.approx(seconds, abs=1e-6)
    assert sum(lane.waited(at).values()) <= at - began_at + 1e-6  # one wait at a time
    for bucket in lane.buckets:
        assert sum(bucket.waits.values()) <= lane.bucket_s + 1e-6


@pytest.mark.slow
@given(st.lists(st.tuples(steps, st.integers(0, 90)), max_size=30), steps)
def test_rates_are_those_of_the_last_minute(starts: list[tuple[float, int]], later: float) -> None:
    """Waits are exact to the second, on a clock that starts anywhere."""
    lane, at = LaneActivity(2.0**33), 2.0**33
    ended: list[tuple[float, int]] = []
    for after, tokens in starts:
        at += after
        lane.started(CallStarted(at, 0, "a"))
        lane.ended(CallEnded(at, 0, "a", tokens=tokens))
        ended.append((at, tokens))
    now = at + later
    within = [tokens for at, tokens in ended if math.floor(at) > math.floor(now) - 60]
    assert lane.rates(now) == (len(within), sum(within))


Work = Callable[[Job[float], Calls[float]], Awaitable[object]]


def watched(
    specs: list[LaneSpec],
    jobs: list[Job[float]],
    work: Work,
    *,
    before: Callable[[Lane], None] = lambda _lane: None,
    meanwhile: Callable[[Lanes, trio.Event], Awaitable[None]] | None = None,
) -> tuple[Activity, float]:
    """Run a function on a virtual clock, and return its activity and its end."""

    async def main() -> tuple[Activity, float]:
        lanes, stop, activity = Lanes(specs), trio.Event(), Activity(0.0)
        before(lanes["a"])
        async with trio.open_nursery() as nursery:
            if meanwhile is not None:
                nursery.start_soon(meanwhile, lanes, stop)
            await collect(Plan.of(jobs), work, lanes=lanes, observe=activity.observe, stop=stop)
            nursery.cancel_scope.cancel()
        return activity, trio.current_time()

    return run_virtual(main)


async def take(job: Job[float], calls: Calls[float]) -> None:
    await calls(job.lane, trio.sleep, job.payload, tokens=100)


def test_a_run_reports_its_waits_by_reason() -> None:
    """31 s of 44 s: two calls of 375 tokens at 600 a minute take 37.5 s, 6.5 s of them in flight."""

    async def ask(job: Job[float], calls: Calls[float]) -> None:
        await calls(job.lane, trio.sleep, job.payload, tokens=375)

    activity, ended_at = watched(
        [LaneSpec("a", 1, tpm=600)], [Job(0, "a", 6.5), Job(1, "a", 6.5)], ask
    )
    data = activity.json(ended_at)
    assert data["durationS"] == 44
    assert longest_waits([data]) == [LaneWait("a", WaitReason.TOKENS, 31.0)]


def test_unknown_token_counts_are_not_estimated() -> None:
    """The reservation of a failed, interrupted or unreported call counts for the rate only."""

    async def ask(job: Job[float], calls: Calls[float]) -> None:
        async def send() -> Metered[None]:
            await trio.sleep(job.payload)
            if job.index == 1:
                raise CallError(Fault.TRANSIENT, "down")
            return Metered(None, tokens=7 if job.index == 0 else None, money=0.5)

        with trio.move_on_after(5):
            await calls(job.lane, send, tokens=100, money=1.0)

    activity, ended_at = watched(
        [LaneSpec("a", 4, retries=0)],
        [Job(i, "a", at) for i, at in enumerate((1.0, 1.0, 9.0, 1.0))],
        ask,
    )
    lane = activity.lane("a")
    assert (lane.calls, lane.failed, lane.tokens, lane.money) == (4, 1, 7, 0.5)
    assert lane.rates(ended_at) == (4, 307)
    assert sum(bucket.tokens for bucket in lane.buckets) == 7


def test_calls_in_flight_do_not_count_as_waits() -> None:
    """The lane has enough slots for all calls."""
    activity, ended_at = watched([LaneSpec("a", 4)], [Job(i, "a", 5.0) for i in range(4)], take)
    assert (ended_at, activity.lane("a").waited(ended_at)) == (5.0, {})


async def _stop_at_five(_lanes: Lanes, stop: trio.Event) -> None:
    await trio.sleep_until(5)
    stop.set()


def test_an_unfinished_wait_counts_until_its_reason_ends() -> None:
    """The run is stopped while the next job waits for its pace; another lane's call takes a minute more."""
    activity, ended_at = watched(
        [LaneSpec("a", 1), LaneSpec("b", 1, rpm=6)],
        [Job(0, "b", 1.0), Job(1, "a", 60.0), Job(2, "b", 1.0)],
        take,
        meanwhile=_stop_at_five,
    )
    assert ended_at == 60
    # No event reports the end of the wait, so it counts until the pace is open.
    assert activity.lane("b").waited(ended_at) == {WaitReason.PACE: 9.0}
    assert activity.lane("b").waits_for(ended_at) is None
    assert sum(activity.lane("a").waited(ended_at).values()) == 0


def test_a_wait_for_a_slot_ends_when_a_slot_is_free() -> None:
    """The second call of a job is cancelled in the queue; the first ends a minute before the run."""

    async def two(job: Job[float], calls: Calls[float]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(calls, "b", trio.sleep, 8.0)
            with trio.move_on_after(5):
                await trio.sleep(1)
                await calls("b", trio.sleep, 1.0)
        await calls("a", trio.sleep, job.payload)

    activity, ended_at = watched([LaneSpec("a"), LaneSpec("b", 1)], [Job(0, "b", 52.0)], two)
    assert ended_at == 60
    assert activity.lane("b").waited(ended_at) == {WaitReason.SLOT: 7.0}


def test_a_call_cancelled_in_the_queue_stops_waiting() -> None:
    """The job continues on another lane."""

    async def impatient(job: Job[float], calls: Calls[float]) -> None:
        with trio.move_on_after(3):
            await calls("b", trio.sleep, 0.0)
            await calls("b", trio.sleep, 0.0)
        await calls("a", trio.sleep, job.payload)

    activity, ended_at = watched(
        [LaneSpec("a"), LaneSpec("b", rpm=6)], [Job(0, "b", 60.0)], impatient
    )
    assert ended_at == 63
    assert activity.lane("b").waited(ended_at) == {WaitReason.PACE: 10.0}


def test_a_started_job_does_not_wait_for_its_lane() -> None:
    """Time of the job before its call does not count."""

    async def slowly(job: Job[float], calls: Calls[float]) -> None:
        await trio.sleep(7)
        await calls("a", trio.sleep, job.payload)

    async def resume(lanes: Lanes, _stop: trio.Event) -> None:
        await trio.sleep(4)
        lanes["a"].resume()

    activity, ended_at = watched(
        [LaneSpec("a")], [Job(0, "a", 1.0)], slowly, meanwhile=resume, before=lambda a: a.pause()
    )
    assert ended_at == 12
    assert activity.lane("a").waited(ended_at) == {WaitReason.PAUSED: 4.0}


def test_a_back_off_counts_if_the_lane_has_nothing_else_to_do() -> None:
    """A call behind the first one in the queue does not count: the first one's wait is the lane's wait."""
    lane = LaneActivity(0.0)
    lane.started(CallStarted(0.0, 1, "a"))
    lane.waiting(Waiting(1.0, "a", WaitReason.BACKOFF, 3.0, 2))
    lane.waiting(Waiting(1.0, "a", WaitReason.TURN, None, 3))
    assert lane.wait is None
    lane.ended(CallEnded(4.0, 1, "a"))
    lane.waiting(Waiting(4.0, "a", WaitReason.BACKOFF, 6.0, 1))
    assert lane.waited(5.0) == {WaitReason.BACKOFF: 1.0}
    lane.started(CallStarted(6.0, 1, "a"))
    assert lane.waited(9.0) == {WaitReason.BACKOFF: 2.0}


def test_a_back_off_does_not_override_another_wait() -> None:
    """A back-off does not count during a wait of the first call in the queue, or during a longer back-off."""
    lane = LaneActivity(0.0)
    lane.waiting(Waiting(0.0, "a", WaitReason.BACKOFF, 10.0, 1))
    lane.waiting(Waiting(1.0, "a", WaitReason.BACKOFF, 3.0, 2))
    assert lane.waited(9.0) == {WaitReason.BACKOFF: 9.0}
    lane.waiting(Waiting(9.0, "a", WaitReason.BACKOFF, 12.0, 2))
    assert lane.waited(20.0) == {WaitReason.BACKOFF: 12.0}
    lane.waiting(Waiting(20.0, "a", WaitReason.BLOCKED, 80.0, 3))
    lane.waiting(Waiting(20.0, "a", WaitReason.BACKOFF, 81.0, 1))
    assert lane.waited(90.0) == {WaitReason.BACKOFF: 12.0, WaitReason.BLOCKED: 60.0}
    lane.waiting(Waiting(90.0, "a", WaitReason.BACKOFF, 91.0, 1))
    assert lane.waited(99.0) == {WaitReason.BACKOFF: 13.0, WaitReason.BLOCKED: 60.0}


def test_an_ended_wait_is_counted_in_its_buckets() -> None:
    """A wait counts although its end was not reported before the end of the run."""
    lane = LaneActivity(0.0)
    lane.waiting(Waiting(0.0, "a", WaitReason.PACE, 5.0, 1))
    data = lane.json(20.0)
    assert data["waits"] == {"pace": 5.0}
    assert sum(bucket[-1].get("pace", 0.0) for bucket in data["buckets"]) == pytest.approx(5)


def test_a_reopened_lane_is_not_closed() -> None:
    """A call that starts shows that the lane is open."""
    lane = LaneActivity(0.0)
    lane.ended_for_good(LaneClosed(1.0, "a", "says no"))
    assert lane.json(2.0)["closed"] == "says no"
    lane.started(CallStarted(3.0, 1, "a"))
    assert lane.json(4.0)["closed"] is None


def test_a_limit_without_an_event_is_read() -> None:
    """The limit is read once for each bucket; an unknown limit stays as last reported."""
    limits: dict[float, int | None] = {0.0: 4, 0.1: 2, 0.2: None}
    now = 0.0
    activity = Activity(0.0, limit_of=lambda _lane: limits[now])
    for now in limits:
        activity.observe(CallStarted(now, 0, "a"))
    assert [bucket.limit for bucket in activity.lane("a").buckets] == [4, 2, 2]
    assert Activity(0.0).lane("a").json(1.0)["buckets"][-1][1] is None


def test_the_longest_waits_of_several_executions_are_added() -> None:
    """Waits add up by lane and reason."""
    first = {"lanes": {"a": {"waits": {"tokens": 20.0, "slot": 1.0}}, "b": {"waits": {"pace": 7}}}}
    second = {"lanes": {"a": {"waits": {"tokens": 11.0}}}}
    assert longest_waits([first, second]) == [
        LaneWait("a", WaitReason.TOKENS, 31.0),
        LaneWait("b", WaitReason.PACE, 7.0),
        LaneWait("a", WaitReason.SLOT, 1.0),
    ]
    assert longest_waits([]) == []
