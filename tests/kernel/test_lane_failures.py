"""Failed calls: whether and when they are retried, and when their lane is closed."""

import gc
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise

import pytest
import trio

from trioeval.errors import CallError, Fault, LaneClosedError
from trioeval.kernel import (
    Calls,
    Done,
    Event,
    Failed,
    Job,
    LaneClosed,
    Lanes,
    LaneSpec,
    LimitChanged,
    NotRun,
    Outcome,
    Plan,
    StopReason,
    Throttled,
    Waiting,
    WaitReason,
    collect,
)
from trioeval.rates import Allowance, RateHint
from trioeval.testing import run_virtual

TRANSIENT, BUSY, FATAL = Fault.TRANSIENT, Fault.RATE_LIMITED, Fault.FATAL
Body = Callable[[Job[float], Calls[float]], Awaitable[object]]


def run_lanes(
    body: Body, lanes: Sequence[LaneSpec], jobs: Sequence[Job[float]]
) -> tuple[list[Outcome[object]], list[Event]]:
    events: list[Event] = []

    async def main() -> list[Outcome[object]]:
        made = Lanes(lanes, rng=lambda: 0.5)
        return await collect(Plan.of(jobs), body, lanes=made, observe=events.append)

    return run_virtual(main), events


class Answers:
    """A body with one call whose requests end in given ways, a second each; the last repeated."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = errors
        self.starts: list[float] = []

    async def __call__(self, job: Job[float], calls: Calls[float]) -> int:
        return await calls(job.lane, self.send)

    async def send(self) -> int:
        error = self.errors[min(len(self.starts), len(self.errors) - 1)]
        self.starts.append(trio.current_time())
        await trio.sleep(1)
        if error is not None:
            raise error
        return len(self.starts)


@pytest.mark.parametrize(
    ("limits", "error", "starts"),
    [
        ({}, CallError(TRANSIENT), [0.0, 1.5, 3.25, 5.875]),
        ({"retries": 0}, CallError(TRANSIENT), [0.0]),
        ({"retries": 1}, CallError(TRANSIENT), [0.0, 1.5]),
        ({"max_retries": 1}, CallError(TRANSIENT), [0.0, 1.5]),
        ({"max_retries": 5}, CallError(TRANSIENT), [0.0, 1.5, 3.25, 5.875]),
        ({}, CallError(TRANSIENT, retries=1), [0.0, 1.5]),
        ({}, CallError(TRANSIENT, retries=0), [0.0]),
        ({"retries": 1}, CallError(TRANSIENT, retries=9), [0.0, 1.5]),
        ({"retries": 1}, CallError(TRANSIENT, retry_after=5), [0.0, 6.5]),
        ({"retries": 1, "retry_delay": 0}, CallError(TRANSIENT), [0.0, 1.0]),
        ({"retries": 0, "max_retries": 2}, CallError(BUSY), [0.0, 1.25, 2.75]),
        ({"max_retries": 1}, CallError(BUSY, retry_after=5), [0.0, 6.5]),
        ({"max_retries": 0}, CallError(BUSY), [0.0]),
        ({"max_retries": 1}, CallError(BUSY, retry_after=0), [0.0, 1.25]),
        ({}, CallError(BUSY, retries=1), [0.0, 1.25]),
        ({}, CallError(Fault.REFUSED), [0.0]),
        ({}, CallError(FATAL), [0.0]),
        ({}, CallError(Fault.QUOTA_EXHAUSTED), [0.0]),
        ({}, ValueError(), [0.0]),
        ({"retries": 1}, ExceptionGroup("one", [CallError(TRANSIENT)]), [0.0, 1.5]),
        ({}, ExceptionGroup("two", [CallError(TRANSIENT), CallError(TRANSIENT)]), [0.0]),
        ({}, ExceptionGroup("other", [ValueError()]), [0.0]),
    ],
)
def test_a_failed_call_is_retried_as_often_as_allowed(
    limits: Mapping[str, object], error: Exception, starts: list[float]
) -> None:
    """ATTEMPTS: a failed call is retried as often as allowed, and not before the end of its back-offs."""
    body = Answers(error)
    lane = LaneSpec("a", **{"retry_delay": 1.0, **limits})  # type: ignore[arg-type]
    (outcome,), _ = run_lanes(body, [lane], [Job(0, "a", 0.0)])
    assert body.starts == starts
    assert isinstance(outcome, Failed)
    assert outcome.error is error
    assert outcome.calls == len(starts)


def test_a_back_off_is_not_working_time_and_holds_no_slot() -> None:
    """LIMIT and SLOT: a back-off is not working time and holds no slot."""
    body = Answers(CallError(TRANSIENT), None)
    jobs = [Job(i, "a", 0.0, timeout=2.5) for i in range(2)]
    lane = LaneSpec("a", 1, retry_delay=1.0)
    outcomes, events = run_lanes(body, [lane], jobs)
    assert body.starts == [0.0, 1.0, 2.0]
    assert outcomes == [Done(0, 0.0, 3.0, 1.0, 2, 3), Done(1, 1.0, 2.0, 0.0, 1, 2)]
    waits = [e for e in events if isinstance(e, Waiting) and e.index is not None]
    assert waits[0] == Waiting(1.0, "a", WaitReason.BACKOFF, 1.5, 0)


@pytest.mark.parametrize("fault", [TRANSIENT, BUSY])
def test_a_wait_requested_of_one_call_blocks_the_lane(fault: Fault) -> None:
    """RETRY_AFTER: a named wait of a 503 blocks the lane; then one call probes, then two start."""
    body = Answers(None, CallError(fault, retry_after=5), None)
    lane = LaneSpec("a", 2, adaptive="off")
    outcomes, _ = run_lanes(body, [lane], [Job(i, "a", 0.0) for i in range(4)])
    # Job 2 starts when job 0 is served, in the very step before job 1 fails, or is the probe.
    assert body.starts[:2] == [0.0, 0.0]
    assert [at for at in body.starts if 1.0 < at < 6.0] == []
    assert body.starts.count(6.0) == 1
    assert all(isinstance(outcome, Done) for outcome in outcomes)


def test_a_retry_goes_before_new_jobs() -> None:
    """Retries go before new jobs, ordered by index."""
    order: list[int] = []

    async def body(job: Job[float], calls: Calls[float]) -> None:
        async def send() -> None:
            order.append(job.index)
            await trio.sleep(4)
            if job.index < 2 and order.count(job.index) == 1:
                raise CallError(TRANSIENT)

        await calls("a", send)

    run_lanes(body, [LaneSpec("a", 1)], [Job(i, "a", 0.0) for i in range(5)])
    # The back-offs end at 4.5 and 8.5: each retry finds one new call started, and overtakes all others.
    assert order == [0, 1, 0, 1, 2, 3, 4]


def test_a_refusal_with_a_wait_blocks_the_whole_lane() -> None:
    """RETRY_AFTER: a refusal with a wait blocks the whole lane; then calls start one, two, …."""
    starts: list[tuple[int, float]] = []

    async def body(job: Job[float], calls: Calls[float]) -> None:
        async def send() -> None:
            starts.append((job.index, trio.current_time()))
            await trio.sleep(1)
            if len(starts) == 1:
                raise CallError(BUSY, retry_after=10)

        await calls("a", send)

    lanes = [LaneSpec("a", 4, adaptive="off")]
    jobs = [Job(i, "a", 0.0) for i in range(4)]

    async def first_alone(job: Job[float], calls: Calls[float]) -> None:
        if job.index:
            await trio.sleep(2)
        await body(job, calls)

    _, events = run_lanes(first_alone, lanes, jobs)
    assert [at for _, at in starts] == [0.0, 11.0, 12.0, 12.0, 13.0]
    changes = [event for event in events if isinstance(event, Throttled | LimitChanged)]
    assert changes == [
        Throttled(1.0, 0, "a", 10, 11.0),
        LimitChanged(1.0, "a", 1, 4),
        LimitChanged(12.0, "a", 2, 4),
        LimitChanged(13.0, "a", 4, 4),
    ]


def test_a_lane_with_fatal_refusals_is_closed_and_its_jobs_are_not_run() -> None:
    """Three fatal refusals close a lane and end its jobs; another lane is not affected."""
    body = Answers(CallError(FATAL, "no such key"))

    async def by_lane(job: Job[float], calls: Calls[float]) -> None:
        await (body(job, calls) if job.lane == "a" else calls("b", trio.sleep, 1))

    jobs = [Job(i, "a" if i < 3000 else "b", 0.0) for i in range(3010)]
    outcomes, events = run_lanes(by_lane, [LaneSpec("a", 1), LaneSpec("b", 1)], jobs)
    reason = "3 calls in a row were refused: no such key"
    assert len(body.starts) == 3
    assert all(isinstance(outcome, Failed) for outcome in outcomes[:3])
    assert outcomes[3:3000] == [NotRun(i, StopReason.LANE, reason) for i in range(3, 3000)]
    done = [outcome.finished_at for outcome in outcomes[3000:] if isinstance(outcome, Done)]
    assert done == [float(n) for n in range(1, 11)]
    assert [e for e in events if isinstance(e, LaneClosed)] == [LaneClosed(3.0, "a", reason)]


def test_refusals_of_single_requests_do_not_close_a_lane() -> None:
    """Refusals of single requests do not close a lane, and a success resets the count."""
    bad = Answers(CallError(Fault.REFUSED))
    outcomes, _ = run_lanes(bad, [LaneSpec("a", 1)], [Job(i, "a", 0.0) for i in range(9)])
    assert all(isinstance(outcome, Failed) for outcome in outcomes)
    mixed = Answers(*[CallError(FATAL), CallError(FATAL), None] * 3)
    outcomes, _ = run_lanes(mixed, [LaneSpec("a", 1)], [Job(i, "a", 0.0) for i in range(9)])
    assert [type(outcome) for outcome in outcomes] == [Failed, Failed, Done] * 3


def test_waiting_and_resting_calls_fail_when_their_lane_closes() -> None:
    """Waiting, resting and later calls all fail at the instant of the closing."""
    closed_at: dict[str, float] = {}

    async def refused() -> None:
        await trio.sleep(2)
        raise CallError(FATAL, "no such key")

    async def busy() -> None:
        await trio.sleep(1)
        raise CallError(TRANSIENT)

    async def ask(name: str, calls: Calls[float], send: Callable[[], Awaitable[None]]) -> None:
        try:
            await calls("a", send)
        except LaneClosedError as error:
            closed_at[name] = trio.current_time()
            said = "lane 'a' is closed: 1 calls in a row were refused: no such key"
            assert str(error) == said  # noqa: PT017 - all three hear the same
        except CallError as error:
            assert error.fault is FATAL  # noqa: PT017

    async def body(job: Job[float], calls: Calls[float]) -> None:
        async with trio.open_nursery() as nursery:
            for name, send in (
                ("refused", refused),
                ("resting", busy),
                ("in flight", refused),
                ("in line", refused),
            ):
                nursery.start_soon(ask, name, calls, send)
                await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(5)
            await ask("late", calls, refused)

    lane = LaneSpec("a", 2, breaker_threshold=1, retry_delay=120.0)
    run_lanes(body, [lane], [Job(0, "a", 0.0)])
    # Calls in flight continue, and end with their own result.
    assert closed_at == {"resting": 2.0, "in line": 2.0, "late": 5.0}


def test_a_lane_without_a_success_for_longer_than_its_patience_is_closed() -> None:
    """A lane without success for longer than its patience is closed."""
    body = Answers(CallError(BUSY, "too many"))
    jobs = [Job(i, "a", 0.0) for i in range(2)]
    outcomes, _ = run_lanes(body, [LaneSpec("a", 1, patience=60)], jobs)
    assert [type(outcome) for outcome in outcomes] == [Failed, Failed]
    assert body.starts[-1] >= 59


def test_a_wait_longer_than_the_patience_closes_the_lane_at_once() -> None:
    """A named wait longer than the patience closes the lane at once."""
    body = Answers(CallError(BUSY, "come back tomorrow", retry_after=86_400))
    outcomes, _ = run_lanes(body, [LaneSpec("a", 1)], [Job(i, "a", 0.0) for i in range(2)])
    reason = "asked to wait 86400 s, longer than the patience of 300 s: come back tomorrow"
    assert isinstance(outcomes[0], Failed)
    assert outcomes[1] == NotRun(1, StopReason.LANE, reason)
    assert body.starts == [0.0]


def test_an_exhausted_account_closes_the_lane_at_once() -> None:
    """One exhausted account closes the lane at once."""
    body = Answers(CallError(Fault.QUOTA_EXHAUSTED, "no credit"))
    outcomes, _ = run_lanes(body, [LaneSpec("a", 1)], [Job(i, "a", 0.0) for i in range(3)])
    assert outcomes[1:] == [NotRun(i, StopReason.LANE, "no credit") for i in (1, 2)]


def test_serial_jobs_of_a_closed_lane_are_not_run() -> None:
    """Serial jobs of a closed lane are not run; those of other lanes continue."""

    async def by_lane(job: Job[float], calls: Calls[float]) -> None:
        async def send() -> None:
            if job.lane == "a":
                raise CallError(FATAL, "no such key")

        await calls(job.lane, send)

    async def main() -> list[Outcome[None]]:
        lanes = Lanes([LaneSpec("a", breaker_threshold=1), LaneSpec("b")])
        plan = Plan.of([Job(i, lane, 0.0) for i, lane in enumerate("aaba")], serial=True)
        return await collect(plan, by_lane, lanes=lanes)

    outcomes = run_virtual(main)
    assert [type(outcome) for outcome in outcomes] == [Failed, NotRun, Done, NotRun]


def test_repeatedly_refused_calls_take_turns_with_new_ones() -> None:
    """Calls refused twice or more take turns with new ones."""
    order: list[int] = []

    async def body(job: Job[float], calls: Calls[float]) -> None:
        async def send() -> None:
            order.append(job.index)
            await trio.sleep(4)
            if job.index < 2 and order.count(job.index) < 4:
                raise CallError(BUSY)

        await calls("a", send)

    run_lanes(body, [LaneSpec("a", 1, adaptive="off")], [Job(i, "a", 0.0) for i in range(8)])
    assert set(order[:6]) > {0, 1}


def test_a_rate_in_a_refusal_paces_the_lane() -> None:
    """A rate in a refusal paces the lane after its wait."""
    hint = RateHint(requests=Allowance(limit=60, remaining=0, reset_after=30))
    starts: list[float] = []

    async def send() -> None:
        starts.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if len(starts) == 1:
            raise CallError(Fault.RATE_LIMITED, "slow down", retry_after=5, hint=hint)

    async def body(job: Job[float], calls: Calls[float]) -> None:
        await calls(job.lane, send)

    jobs = [Job(index, "a", 0.0) for index in range(6)]
    outcomes, _ = run_lanes(body, [LaneSpec("a", max_concurrency=1)], jobs)
    assert all(isinstance(outcome, Done) for outcome in outcomes)
    again = starts[1:]
    assert again[0] >= 5
    gaps = [later - earlier for earlier, later in pairwise(again)]
    assert max(gaps) == pytest.approx(1.0)
    assert sum(gaps) >= len(gaps) - 1  # two may be close together, once


def test_a_failed_call_keeps_no_reference_to_its_arguments() -> None:
    """A failed call releases its arguments at once, without garbage collection."""

    class Sent:
        """An argument of a call."""

    sent: list[weakref.ref[Sent]] = []

    async def refuse(_what: Sent) -> None:
        raise CallError(TRANSIENT, "down")

    async def body(job: Job[float], calls: Calls[float]) -> bool:
        what = Sent()
        sent.append(weakref.ref(what))
        try:
            await calls(job.lane, refuse, what)
        except CallError:
            return True
        return False

    async def main() -> None:
        jobs = Plan.of(Job(index, "a", 0.0) for index in range(3))
        await collect(jobs, body, lanes=Lanes([LaneSpec("a", retries=1)]))
        assert [left() for left in sent] == [None] * 3

    gc.collect()
    gc.disable()
    try:
        run_virtual(main)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("latency", "refused_every", "requests"), [(0.01, 0, 3), (2.0, 0, 7), (0.01, 2, 20)]
)
def test_a_call_that_is_refused_alone_fails_when_chance_is_unlikely(
    latency: float, refused_every: int, requests: int
) -> None:
    """ATTEMPTS: a call that is refused alone fails once chance is an unlikely cause."""
    sent, is_refused_alone = 0, True

    async def send(index: int) -> int:
        nonlocal sent
        if index == 0:
            raise CallError(BUSY, "too large")
        await trio.sleep(latency)
        sent += 1
        if refused_every and sent % refused_every:
            raise CallError(BUSY, "busy")
        return index

    async def body(job: Job[float], calls: Calls[float]) -> int:
        nonlocal is_refused_alone
        try:
            served = await calls(job.lane, send, job.index)
            while job.index and is_refused_alone:
                await calls(job.lane, send, job.index)
            return served
        finally:
            is_refused_alone = is_refused_alone and job.index != 0

    lane = LaneSpec("a", 8, adaptive="off")
    outcomes, _ = run_lanes(body, [lane], [Job(index, "a", 0.0) for index in range(3)])
    assert isinstance(outcomes[0], Failed)
    assert abs(outcomes[0].calls - requests) <= requests // 10
    assert all(isinstance(outcome, Done) for outcome in outcomes[1:])


@pytest.mark.parametrize("retry_after", [None, 1.0])
@pytest.mark.parametrize(("busy", "ends_well"), [(60.0, True), (400.0, False)])
def test_the_last_call_of_a_run_outlasts_a_busy_period_of_its_provider(
    busy: float, retry_after: float | None, *, ends_well: bool
) -> None:
    """ATTEMPTS: refusals without other served calls decide after a quarter of the patience."""

    async def send(index: int) -> int:
        await trio.sleep(2.0 if index == 0 else 0.01)
        if 1.0 < trio.current_time() < 1.0 + busy:
            raise CallError(BUSY, "busy", retry_after=retry_after)
        return index

    async def body(job: Job[float], calls: Calls[float]) -> int:
        return await calls(job.lane, send, job.index)

    lane = LaneSpec("a", 8, patience=300.0)
    outcomes, events = run_lanes(body, [lane], [Job(index, "a", 0.0) for index in range(60)])
    assert all(isinstance(outcome, Done) for outcome in outcomes[1:])
    assert not [event for event in events if isinstance(event, LaneClosed)]
    last = outcomes[0]
    assert isinstance(last, Done) == ends_well
    assert isinstance(last, Done | Failed)
    assert last.finished_at >= min(busy, 300.0 / 4)


def test_a_call_without_served_calls_beside_it_is_retried_until_the_patience_ends() -> None:
    """A call with no served calls beside it is retried until the patience ends."""
    body = Answers(CallError(BUSY))
    outcomes, events = run_lanes(body, [LaneSpec("a", patience=3000.0)], [Job(0, "a", 0.0)])
    assert isinstance(outcomes[0], Failed)
    assert outcomes[0].calls > 50
    assert [event for event in events if isinstance(event, LaneClosed)]
