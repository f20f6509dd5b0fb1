"""Examples of run_plan for the laws in general."""

import gc
import logging
import math
from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
import trio.lowlevel

from trioeval.errors import CallError, Fault, PlanError, TooLateError
from trioeval.kernel import (
    Calls,
    Done,
    Event,
    Failed,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    NotRun,
    Outcome,
    Plan,
    StopReason,
    Summary,
    TimedOut,
    Waiting,
    WaitReason,
    collect,
    run_plan,
)
from trioeval.testing import run_virtual

Body = Callable[[Job[float], Calls[float]], Awaitable[float]]


async def call_for(job: Job[float], calls: Calls[float]) -> float:
    """Return a body with one call that takes as many seconds as the job's payload."""
    return await calls(job.lane, answer_after, job.payload)


async def answer_after(seconds: float) -> float:
    await trio.sleep(seconds)
    return seconds


def plan_of(*durations: float, timeout: float = math.inf) -> Plan[float]:
    return Plan.of(Job(i, "a", seconds, timeout) for i, seconds in enumerate(durations))


class Consumer:
    """Stores outcomes, each with the instant of its arrival."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome[float]] = []
        self.instants: list[float] = []

    async def __call__(self, outcome: Outcome[float]) -> None:
        self.outcomes.append(outcome)
        self.instants.append(trio.current_time())


def test_outcomes_come_in_index_order_as_soon_as_their_prefix_is_complete() -> None:
    """ORDER and PROMPT: job 0 takes longest, so outcomes 1 and 2 are emitted with it."""

    async def main() -> Consumer:
        consumer = Consumer()
        await run_plan(plan_of(3, 1, 2, 5), call_for, lanes=Lanes([LaneSpec("a")]), emit=consumer)
        return consumer

    consumer = run_virtual(main)
    assert consumer.outcomes == [
        Done(0, 0.0, 3.0, 0.0, 1, 3),
        Done(1, 0.0, 1.0, 0.0, 1, 1),
        Done(2, 0.0, 2.0, 0.0, 1, 2),
        Done(3, 0.0, 5.0, 0.0, 1, 5),
    ]
    assert consumer.instants == [3.0, 3.0, 3.0, 5.0]


def test_summary_counts_every_job_once() -> None:
    """The six numbers add up to the size of the plan, and the instants are the run's."""

    async def main() -> Summary:
        async def body(job: Job[float], calls: Calls[float]) -> float:
            if job.index == 1:
                raise ValueError
            return await call_for(job, calls)

        return await run_plan(
            plan_of(1, 1, 9, 2, 9),
            body,
            lanes=Lanes([LaneSpec("a", max_concurrency=3)]),
            emit=Consumer(),
            deadline=4.0,
        )

    summary = run_virtual(main)
    assert summary == Summary(0.0, 4.0, 2, 1, 0, 2, 0, 0)
    assert summary.size == 5


def test_the_deadline_interrupts_running_jobs_and_emits_all() -> None:
    """DEADLINE: finished, interrupted and unstarted jobs are all emitted in order."""
    outcomes = run_virtual(
        lambda: collect(
            plan_of(2, 9, 9),
            call_for,
            lanes=Lanes([LaneSpec("a", max_concurrency=1)]),
            deadline=5.0,
        )
    )
    assert outcomes == [
        Done(0, 0.0, 2.0, 0.0, 1, 2),
        Interrupted(1, 2.0, 5.0, 0.0, 1, StopReason.DEADLINE),
        NotRun(2, StopReason.DEADLINE),
    ]


def test_a_job_that_is_done_after_an_unstarted_one_is_emitted_as_done() -> None:
    """HONEST: a job done before the deadline is Done, even after an unstarted one."""
    plan = Plan.of([Job(0, "a", 9.0), Job(1, "a", 9.0), Job(2, "b", 1.0)])
    lanes = Lanes([LaneSpec("a", max_concurrency=1), LaneSpec("b")])
    outcomes = run_virtual(lambda: collect(plan, call_for, lanes=lanes, deadline=5.0))
    assert outcomes[1:] == [NotRun(1, StopReason.DEADLINE), Done(2, 0.0, 1.0, 0.0, 1, 1.0)]


def test_a_stop_lets_running_jobs_finish() -> None:
    """DRAIN: after a stop no job is admitted, not even one that already waits in a queue."""

    async def main() -> list[Outcome[float]]:
        stop = trio.Event()

        async def stop_later() -> None:
            await trio.sleep(1)
            stop.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_later)
            lanes = Lanes([LaneSpec("a", max_concurrency=4, rpm=1)])
            return await collect(plan_of(8, 8, 8), call_for, lanes=lanes, stop=stop)
        raise AssertionError

    assert run_virtual(main) == [
        Done(0, 0.0, 8.0, 0.0, 1, 8),
        NotRun(1, StopReason.STOP),
        NotRun(2, StopReason.STOP),
    ]


def test_a_cancelled_caller_still_gets_every_outcome() -> None:
    """TOTAL under cancellation: jobs that finished out of order are emitted too."""

    async def main() -> Consumer:
        consumer = Consumer()
        with trio.move_on_after(2.5) as scope:
            lanes = Lanes([LaneSpec("a", max_concurrency=2)])
            await run_plan(plan_of(9, 1, 1, 9, 1), call_for, lanes=lanes, emit=consumer)
        assert scope.cancelled_caught
        assert trio.current_time() == 2.5
        return consumer

    assert run_virtual(main).outcomes == [
        Interrupted(0, 0.0, 2.5, 0.0, 1, StopReason.CANCEL),
        Done(1, 0.0, 1.0, 0.0, 1, 1),
        Done(2, 1.0, 2.0, 0.0, 1, 1),
        Interrupted(3, 2.0, 2.5, 0.0, 1, StopReason.CANCEL),
        NotRun(4, StopReason.CANCEL),
    ]


@pytest.mark.parametrize("attempt", range(20))
def test_no_job_starts_after_the_caller_was_cancelled(attempt: int) -> None:
    """No job starts after a cancellation, even if its worker was already scheduled."""
    begun: list[int] = []

    async def main() -> Consumer:
        consumer = Consumer()
        with trio.CancelScope() as scope:

            async def body(job: Job[float], calls: Calls[float]) -> float:
                begun.append(job.index)
                if job.index:
                    scope.cancel()
                return await call_for(job, calls)

            lanes = Lanes([LaneSpec("a")])
            await run_plan(plan_of(1, 1, 1), body, lanes=lanes, emit=consumer)
        return consumer

    outcomes = run_virtual(main).outcomes
    assert begun == [0, 1]
    assert outcomes[2] == NotRun(2, StopReason.CANCEL)


def test_a_cancelled_caller_waits_for_its_consumer_up_to_the_grace_period() -> None:
    """The shield around emitting is bounded."""

    async def main() -> float:
        async def hang(_outcome: Outcome[float]) -> None:
            await trio.sleep_forever()

        with trio.move_on_after(2):
            lanes = Lanes([LaneSpec("a")])
            await run_plan(plan_of(1), call_for, lanes=lanes, emit=hang, flush_grace=3.0)
        return trio.current_time()

    assert run_virtual(main) == 5.0


def test_outcomes_of_bodies_that_clean_up_for_long_are_emitted_too() -> None:
    """The grace period starts when the last job is over, not at the cancellation."""

    async def tidy(job: Job[float], calls: Calls[float]) -> float:
        try:
            return await call_for(job, calls)
        finally:
            with trio.move_on_after(9, shield=True):
                await trio.sleep(6)

    async def main() -> Consumer:
        consumer = Consumer()
        with trio.move_on_after(2):
            lanes = Lanes([LaneSpec("a", max_concurrency=1)])
            await run_plan(plan_of(9, 9), tidy, lanes=lanes, emit=consumer, flush_grace=3.0)
        return consumer

    consumer = run_virtual(main)
    assert consumer.outcomes == [
        Interrupted(0, 0.0, 8.0, 0.0, 1, StopReason.CANCEL),
        NotRun(1, StopReason.CANCEL),
    ]
    assert consumer.instants == [8.0, 8.0]


def test_an_error_in_the_cleanup_of_a_body_stays_with_its_job() -> None:
    """An error during clean-up at the deadline leaves the job Interrupted, and the run returns."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_in_cleanup)
            return await call_for(job, calls)

    outcomes = run_virtual(
        lambda: collect(plan_of(9, 9), body, lanes=Lanes([LaneSpec("a")]), deadline=2.0)
    )
    assert outcomes == [Interrupted(i, 0.0, 2.0, 0.0, 1, StopReason.DEADLINE) for i in range(2)]


async def fail_in_cleanup() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError


@pytest.mark.parametrize("rpm", [None, 6])
def test_no_call_starts_after_the_deadline_in_a_shield_either(rpm: float | None) -> None:
    """DEADLINE: a shielded body gets an error for each call after the deadline."""
    errors: list[str] = []

    async def body(job: Job[float], calls: Calls[float]) -> float:
        with trio.move_on_after(50, shield=True):
            try:
                await calls("a", answer_after, 1)
                await calls("a", answer_after, 7)
                await calls("a", answer_after, 1)
            except TooLateError as error:
                errors.append(f"{trio.current_time()}: {error}")
        return 0.0

    lanes = Lanes([LaneSpec("a", rpm=rpm)])
    (outcome,) = run_virtual(lambda: collect(plan_of(1), body, lanes=lanes, deadline=5.0))
    at = 8.0 if rpm is None else 10.0
    assert errors == [f"{at}: job 0 requested a call after the run's deadline"]
    assert isinstance(outcome, Done)
    assert outcome.calls == (2 if rpm is None else 1)
    assert lanes["a"].in_flight == 0


def test_a_handle_is_invalid_after_its_job() -> None:
    """A task that outlives its job cannot call through its handle, nor change the next job's time."""
    errors: list[str] = []

    async def main() -> list[Outcome[float]]:
        async with trio.open_nursery() as outliving:

            async def late(calls: Calls[float], at: float) -> None:
                await trio.sleep_until(at)
                try:
                    await calls("a", answer_after, 30)
                except TooLateError as error:
                    errors.append(str(error))

            async def body(job: Job[float], calls: Calls[float]) -> float:
                if job.index == 0:
                    outliving.start_soon(late, calls, 0.5)  # queues when the job ends
                    outliving.start_soon(late, calls, 1.5)
                return await call_for(job, calls)

            lanes = Lanes([LaneSpec("a", max_concurrency=1)])
            found = await collect(plan_of(1, 9, timeout=5), body, lanes=lanes)
            await trio.lowlevel.checkpoint()  # the nursery waits for the late ones
        return found

    done, timed_out = run_virtual(main)
    assert done == Done(0, 0.0, 1.0, 0.0, 1, 1)
    assert isinstance(timed_out, TimedOut)
    assert timed_out.finished_at - timed_out.started_at - timed_out.waited == 5.0
    assert errors == ["job 0 requested a call after it was over"] * 2


def test_waits_for_the_serial_gate_are_reported() -> None:
    """A wait for another run's serial job is reported with its reason."""
    events: list[Waiting] = []

    def observe(event: Event) -> None:
        if isinstance(event, Waiting):
            events.append(event)

    async def main() -> None:
        lanes = Lanes([LaneSpec("a")])
        alone = Plan.of([Job(0, "a", 3.0)], serial=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: collect(alone, call_for, lanes=lanes))
            await trio.sleep(1)
            nursery.start_soon(lambda: collect(plan_of(1), call_for, lanes=lanes, observe=observe))

    run_virtual(main)
    assert events == [Waiting(1.0, "a", WaitReason.GATE, None, None)]


def test_a_plan_that_cannot_return_a_job_ends_the_run_with_a_plan_error() -> None:
    """A lazy sequence that raises ends the run with a PlanError that has the cause."""
    cut: list[Outcome[float]] = []

    class Broken(Sequence[Job[float]]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Job[float]:  # type: ignore[override]
            return {0: Job(0, "a", 5.0)}[index]

    async def keep(outcome: Outcome[float]) -> None:
        cut.append(outcome)

    async def main() -> None:
        await run_plan(Plan(Broken(), ("a",)), call_for, lanes=Lanes([LaneSpec("a")]), emit=keep)

    with pytest.raises(PlanError) as caught:
        run_virtual(main)
    assert str(caught.value) == "the plan cannot return job 1: KeyError: 1"
    assert isinstance(caught.value.__cause__, KeyError)
    assert cut == [Interrupted(0, 0.0, 0.0, 0.0, 1, StopReason.FAULT), NotRun(1, StopReason.FAULT)]


def test_a_lane_whose_next_job_is_far_away_does_not_hold_up_the_others() -> None:
    """The walk through a long plan stops after each stride, and finds every job."""

    async def main() -> tuple[int, int]:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async def silent(job: Job[float], calls: Calls[float]) -> float:
            return 0.0

        jobs = [Job(i, "b" if 1 < i < 29_999 else "a", 0.0) for i in range(30_000)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            lanes = Lanes([LaneSpec("a"), LaneSpec("b")])
            outcomes = await collect(Plan.of(jobs), silent, lanes=lanes)
            nursery.cancel_scope.cancel()
        return sum(isinstance(outcome, Done) for outcome in outcomes), turns

    done, turns = run_virtual(main)
    assert done == 30_000
    assert turns >= 25


def test_a_caller_cancelled_before_the_start_gets_only_not_run() -> None:
    """No job starts in a scope that is already cancelled."""

    async def main() -> Consumer:
        consumer = Consumer()
        with trio.CancelScope() as scope:
            scope.cancel("before the start")
            await run_plan(plan_of(1, 1), call_for, lanes=Lanes([LaneSpec("a")]), emit=consumer)
        return consumer

    outcomes = run_virtual(main).outcomes
    assert [outcome.index for outcome in outcomes] == [0, 1]
    assert not any(isinstance(outcome, Done) for outcome in outcomes)


def test_a_slow_consumer_does_not_delay_jobs() -> None:
    """A slow consumer delays neither lanes nor the deadline."""

    async def main() -> tuple[list[float], float]:
        finished: list[float] = []

        async def slow(outcome: Outcome[float]) -> None:
            assert isinstance(outcome, Done)
            finished.append(outcome.finished_at)
            await trio.sleep(10)

        lanes = Lanes([LaneSpec("a", max_concurrency=1)])
        await run_plan(plan_of(1, 1, 1), call_for, lanes=lanes, emit=slow, deadline=4.0)
        return finished, trio.current_time()

    assert run_virtual(main) == ([1.0, 2.0, 3.0], 31.0)


def test_an_error_of_the_consumer_ends_the_run_and_is_not_wrapped() -> None:
    """An exception of the consumer interrupts the jobs and is raised without a group."""

    async def main() -> float:
        async def refuse(_outcome: Outcome[float]) -> None:
            raise BrokenPipeError

        with pytest.raises(BrokenPipeError):
            await run_plan(plan_of(1, 50), call_for, lanes=Lanes([LaneSpec("a")]), emit=refuse)
        return trio.current_time()

    assert run_virtual(main) == 1.0


@pytest.mark.parametrize("error", [trio.WouldBlock, trio.EndOfChannel, StopAsyncIteration])
def test_an_error_of_the_consumer_is_not_taken_for_an_internal_one(error: type[Exception]) -> None:
    """A WouldBlock of the consumer is raised to the caller, and no outcome is emitted twice."""

    async def main() -> list[int]:
        seen: list[int] = []

        async def emit(outcome: Outcome[float]) -> None:
            seen.append(outcome.index)
            if len(seen) == 2:
                raise error

        with pytest.raises(error):
            await run_plan(plan_of(1, 1, 1), call_for, lanes=Lanes([LaneSpec("a")]), emit=emit)
        return seen

    assert run_virtual(main) == [0, 1]


def test_a_failing_body_is_an_outcome_and_affects_no_other_job() -> None:
    """Exceptions of a body, also from its nursery, become outcomes."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        if job.index == 0:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail)
        return await call_for(job, calls)

    async def fail() -> None:
        raise ValueError

    outcomes = run_virtual(lambda: collect(plan_of(1, 1), body, lanes=Lanes([LaneSpec("a")])))
    failed, done = outcomes
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ExceptionGroup)
    assert isinstance(done, Done)


def test_the_timeout_does_not_count_the_wait_for_a_slot() -> None:
    """LIMIT: a job that waits 4 s for the slot still has all of its 5 s."""
    outcomes = run_virtual(
        lambda: collect(
            plan_of(4, 4.5, 9, timeout=5), call_for, lanes=Lanes([LaneSpec("a", max_concurrency=1)])
        )
    )
    assert outcomes == [
        Done(0, 0.0, 4.0, 0.0, 1, 4),
        Done(1, 4.0, 8.5, 0.0, 1, 4.5),
        TimedOut(2, 8.5, 13.5, 0.0, 1, 5),
    ]


def test_the_wait_for_a_second_call_is_not_working_time() -> None:
    """LIMIT: the wait between two calls of one job is not working time."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        await call_for(job, calls)
        return await calls("judge", answer_after, 2)

    async def main() -> list[Outcome[float]]:
        lanes = Lanes([LaneSpec("a"), LaneSpec("judge", max_concurrency=1)])
        return await collect(plan_of(1, 1.5, 2, timeout=4.5), body, lanes=lanes)

    assert run_virtual(main) == [
        Done(0, 0.0, 3.0, 0.0, 2, 2),
        Done(1, 0.0, 5.0, 1.5, 2, 2),
        Done(2, 0.0, 7.0, 3.0, 2, 2),
    ]


def test_a_late_job_without_checkpoints_is_done_and_does_not_affect_the_next() -> None:
    """A late result is kept, and the used scope does not affect the next job."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        if job.index == 0:
            await hold_the_thread(9)
            return 9
        return await call_for(job, calls)

    lanes = Lanes([LaneSpec("a", max_concurrency=1)])
    outcomes = run_virtual(lambda: collect(plan_of(0, 1, timeout=3), body, lanes=lanes))
    assert outcomes == [Done(0, 0.0, 9.0, 0.0, 0, 9), Done(1, 9.0, 10.0, 0.0, 1, 1)]


async def hold_the_thread(seconds: float) -> None:
    """Work without a checkpoint: the clock advances and no other task runs."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    clock.jump(seconds)


def test_no_job_starts_at_the_very_instant_of_the_deadline() -> None:
    """DEADLINE: no job starts at the deadline, even before the cancellation."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        await hold_the_thread(job.payload)
        return job.payload

    lanes = Lanes([LaneSpec("a", max_concurrency=1)])
    outcomes = run_virtual(lambda: collect(plan_of(5, 1), body, lanes=lanes, deadline=5.0))
    assert outcomes == [Done(0, 0.0, 5.0, 0.0, 0, 5), NotRun(1, StopReason.DEADLINE)]


def test_no_call_starts_at_the_very_instant_of_the_deadline() -> None:
    """DEADLINE: a late job makes no further call."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        await hold_the_thread(5)
        return await calls("a", answer_after, 1)

    lanes = Lanes([LaneSpec("a")])
    outcomes = run_virtual(lambda: collect(plan_of(1), body, lanes=lanes, deadline=5.0))
    assert outcomes == [Interrupted(0, 0.0, 5.0, 0.0, 0, StopReason.DEADLINE)]


def test_a_job_that_returns_as_its_timeout_expires_does_not_affect_the_next() -> None:
    """A job that returns as its timeout expires is done, and its scope is not reused."""
    tick = 1 / 1024  # so short that the worker does not pause between the two jobs

    async def main() -> list[Outcome[float]]:
        wake = trio.Event()

        async def body(job: Job[float], calls: Calls[float]) -> float:
            if job.index == 0:
                await wake.wait()
                return 0.0
            return await call_for(job, calls)

        async def wake_and_hold() -> None:
            await trio.sleep(tick)
            wake.set()
            await hold_the_thread(2 * tick)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wake_and_hold)
            plan = plan_of(0, tick, timeout=2 * tick)
            lanes = Lanes([LaneSpec("a", max_concurrency=1)])
            return await collect(plan, body, lanes=lanes, max_live_jobs=1)
        raise AssertionError

    assert run_virtual(main) == [
        Done(0, 0.0, 3 * tick, 0.0, 0, 0.0),
        Done(1, 3 * tick, 4 * tick, 0.0, 1, tick),
    ]


def test_a_serial_job_of_another_run_holds_back_queued_workers() -> None:
    """SERIAL: a worker that queued before the gate closed checks it again."""

    async def main() -> list[Outcome[float]]:
        lanes = Lanes([LaneSpec("a", min_gap=4), LaneSpec("b")])

        async def alone() -> None:
            await trio.sleep(1)
            plan = Plan.of([Job(0, "b", 8.0)], serial=True)
            (outcome,) = await collect(plan, call_for, lanes=lanes)
            assert outcome == Done(0, 2.0, 10.0, 0.0, 1, 8.0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(alone)
            return await collect(plan_of(2, 2), call_for, lanes=lanes)
        raise AssertionError

    assert run_virtual(main) == [Done(0, 0.0, 2.0, 0.0, 1, 2), Done(1, 10.0, 12.0, 0.0, 1, 2)]


def test_a_timeout_is_a_timeout_whatever_the_cleanup_raises() -> None:
    """An error in a cancelled branch does not hide the timeout."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_in_cleanup)
            await call_for(job, calls)
        return 0.0

    outcomes = run_virtual(
        lambda: collect(plan_of(9, timeout=2), body, lanes=Lanes([LaneSpec("a")]))
    )
    assert outcomes == [TimedOut(0, 0.0, 2.0, 0.0, 1, 2)]


def test_a_job_that_waits_for_a_judge_leaves_its_slot_to_the_next() -> None:
    """EAGER and SLOT: a lane of one slot starts a job every second while judges take ten each."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        await calls("a", answer_after, 1)
        return await calls("judge", answer_after, 10)

    async def main() -> list[Outcome[float]]:
        lanes = Lanes([LaneSpec("a", max_concurrency=1), LaneSpec("judge", max_concurrency=9)])
        return await collect(plan_of(0, 0, 0, 0), body, lanes=lanes)

    assert [(o.started_at, o.finished_at) for o in run_virtual(main) if isinstance(o, Done)] == [
        (0.0, 11.0),
        (1.0, 12.0),
        (2.0, 13.0),
        (3.0, 14.0),
    ]


def test_live_jobs_are_bounded() -> None:
    """At most max_live_jobs of a lane are started and not over, whatever they wait for."""
    live: list[int] = []

    async def body(job: Job[float], calls: Calls[float]) -> float:
        live.append(job.index)
        await calls("a", answer_after, 1)
        await calls("judge", answer_after, 10)
        assert len(live) <= 3
        live.remove(job.index)
        return 0.0

    async def main() -> list[Outcome[float]]:
        lanes = Lanes([LaneSpec("a", max_concurrency=2), LaneSpec("judge", max_concurrency=1)])
        return await collect(plan_of(*[0.0] * 12), body, lanes=lanes, max_live_jobs=3)

    assert all(isinstance(outcome, Done) for outcome in run_virtual(main))


@pytest.mark.slow
def test_the_bound_of_live_jobs_follows_the_max_concurrency() -> None:
    """EAGER: a lane of 500 slots has 500 calls in flight, and 500 more while those are judged."""
    most = 0

    async def body(job: Job[float], calls: Calls[float]) -> float:
        nonlocal most
        await calls("a", answer_after, 1)
        most = max(most, lanes["judge"].in_flight + lanes["a"].in_flight)
        return await calls("judge", answer_after, 1.5)

    lanes = Lanes([LaneSpec("a", max_concurrency=500), LaneSpec("judge", max_concurrency=500)])
    plan = Plan.of(Job(index, "a", 0.0) for index in range(2000))
    outcomes = run_virtual(lambda: collect(plan, body, lanes=lanes))
    assert all(isinstance(outcome, Done) for outcome in outcomes)
    assert most >= 990


def test_resting_jobs_do_not_keep_others_from_starting() -> None:
    """EAGER: good jobs start while 300 jobs of a failing service rest."""
    started: list[float] = []

    async def fail() -> float:
        raise CallError(Fault.TRANSIENT)

    async def serve() -> float:
        started.append(trio.current_time())
        return await answer_after(1)

    async def body(job: Job[float], calls: Calls[float]) -> float:
        return await calls("bad" if job.payload else "good", fail if job.payload else serve)

    async def main() -> list[Outcome[float]]:
        # The first calls of all jobs are assumed to be on one lane; half of them use another.
        plan = Plan.of(Job(index, "good", float(index < 300)) for index in range(400))
        lanes = Lanes([LaneSpec("good", 100), LaneSpec("bad", 4)])
        return await collect(plan, body, lanes=lanes, max_live_jobs=32)

    outcomes = run_virtual(main)
    assert [type(outcome) for outcome in outcomes] == [Failed] * 300 + [Done] * 100
    assert started[:32] == [0.0] * 32


def test_resting_jobs_are_bounded_too() -> None:
    """WIDTH: including resting jobs, at most 16 times the bound are live."""
    live, most = 0, 0

    async def fail() -> float:
        raise CallError(Fault.TRANSIENT)

    async def body(_job: Job[float], calls: Calls[float]) -> float:
        nonlocal live, most
        live += 1
        most = max(most, live)
        try:
            return await calls("a", fail)
        finally:
            live -= 1

    async def main() -> list[Outcome[float]]:
        plan = Plan.of(Job(index, "a", 0.0) for index in range(500))
        return await collect(plan, body, lanes=Lanes([LaneSpec("a", 4)]), max_live_jobs=8)

    assert all(isinstance(outcome, Failed) for outcome in run_virtual(main))
    assert most == 16 * 8


def test_jobs_without_calls_and_empty_plans_end() -> None:
    """A body without calls and a plan without jobs end."""

    async def silent(job: Job[float], calls: Calls[float]) -> float:
        return job.payload

    async def main() -> tuple[list[Outcome[float]], list[Outcome[float]]]:
        lanes = Lanes([LaneSpec("a")])
        some = await collect(plan_of(*range(600)), silent, lanes=lanes)
        return some, await collect(plan_of(), silent, lanes=lanes)

    some, none = run_virtual(main)
    assert [outcome.value for outcome in some if isinstance(outcome, Done)] == [*range(600)]
    assert none == []


def test_bodies_without_checkpoints_do_not_stop_other_tasks() -> None:
    """Other tasks and outcomes proceed while such bodies run."""

    async def silent(job: Job[float], calls: Calls[float]) -> float:
        return job.payload

    async def main() -> int:
        turns, emitted_at_turn = 0, list[int]()

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async def emit(_outcome: Outcome[float]) -> None:
            emitted_at_turn.append(turns)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            lanes = Lanes([LaneSpec("a", max_concurrency=1)])
            await run_plan(plan_of(*range(5000)), silent, lanes=lanes, emit=emit)
            nursery.cancel_scope.cancel()
        assert len(set(emitted_at_turn)) > 2
        return turns

    assert trio.run(main) > 5


def test_two_runs_share_lanes_fairly() -> None:
    """Two runs on a lane take turns, and together obey its max concurrency."""

    async def main() -> list[tuple[float, str]]:
        lanes, starts = Lanes([LaneSpec("a", max_concurrency=1)]), list[tuple[float, str]]()

        async def run(name: str) -> None:
            async def body(job: Job[float], calls: Calls[float]) -> float:
                starts.append((trio.current_time(), name))
                return await call_for(job, calls)

            await collect(plan_of(1, 1, 1), body, lanes=lanes)

        async with trio.open_nursery() as nursery:
            for name in "xy":
                nursery.start_soon(run, name)
        return starts

    starts = run_virtual(main)
    assert [at for at, _ in starts] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    names = [name for _, name in starts]
    assert names in (["x", "y"] * 3, ["y", "x"] * 3)


def test_a_run_that_starts_on_a_busy_lane_gets_its_turn() -> None:
    """EAGER: a new run on a full lane queues, and is next."""

    async def main() -> list[float]:
        lanes, starts = Lanes([LaneSpec("a", max_concurrency=1)]), list[float]()

        async def noted(job: Job[float], calls: Calls[float]) -> float:
            starts.append(trio.current_time())
            return await call_for(job, calls)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: collect(plan_of(*[1] * 9), call_for, lanes=lanes))
            await trio.sleep(0.5)
            nursery.start_soon(lambda: collect(plan_of(1, 1), noted, lanes=lanes))
        return starts

    assert run_virtual(main) == [1.0, 3.0]


def test_a_released_job_gets_its_turn_on_a_lane_that_another_run_keeps_busy() -> None:
    """EAGER: a released job queues on a busy lane although its run had no waiter there."""

    async def main() -> float:
        lanes, freed_at = Lanes([LaneSpec("a", max_concurrency=1), LaneSpec("b")]), math.inf

        async def judged(job: Job[float], calls: Calls[float]) -> float:
            nonlocal freed_at
            if job.index == 1:
                freed_at = trio.current_time()
            answer = await call_for(job, calls)
            await trio.sleep(0.0 if job.index else 50.0)
            return answer

        jobs = [Job(0, "a", 1.0), Job(1, "a", 1.0), Job(2, "b", 5.25)]
        async with trio.open_nursery() as nursery:
            plan = Plan.of(jobs, edges={1: [2]})
            nursery.start_soon(lambda: collect(plan, judged, lanes=lanes))
            await trio.sleep(0.5)
            await collect(plan_of(*[1.0] * 20), call_for, lanes=lanes)
        return freed_at

    assert run_virtual(main) <= 7.0


def test_working_time_before_a_wait_counts_after_it() -> None:
    """LIMIT: 2 s of work, a wait of 6 s, and 2 s of work exceed a timeout of 3 s."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        if job.index:
            await trio.sleep(2)
        return await calls("b", answer_after, job.payload)

    async def main() -> list[Outcome[float]]:
        plan = Plan.of([Job(0, "b", 8.0), Job(1, "a", 2.0, 3.0)])
        lanes = Lanes([LaneSpec("a"), LaneSpec("b", max_concurrency=1)])
        return await collect(plan, body, lanes=lanes)

    assert run_virtual(main)[1] == TimedOut(1, 0.0, 9.0, 6.0, 1, 3.0)


def test_a_stop_ends_a_run_as_soon_as_the_last_running_job_is_over() -> None:
    """DRAIN: a stopped run does not wait for the pace of unstarted jobs."""

    async def main() -> float:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            lanes = Lanes([LaneSpec("a", rpm=1)])
            nursery.start_soon(lambda: collect(plan_of(1, 1), call_for, lanes=lanes, stop=stop))
            await trio.sleep(5)
            stop.set()
        return trio.current_time()

    assert run_virtual(main) == 5.0


def test_the_clock_is_stopped_until_the_last_wait_of_a_job_is_over() -> None:
    """LIMIT: the clock is stopped while one of several branches still waits."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        if not job.index:
            return await call_for(job, calls)
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(calls, "b", answer_after, 2.0)
            with trio.move_on_after(1):
                await calls("b", answer_after, 1.0)
        return 0.0

    async def main() -> list[Outcome[float]]:
        plan = Plan.of([Job(0, "b", 10.0), Job(1, "a", 0.0, 4.0)])
        lanes = Lanes([LaneSpec("a"), LaneSpec("b", max_concurrency=1)])
        return await collect(plan, body, lanes=lanes)

    assert run_virtual(main)[1] == Done(1, 0.0, 12.0, 9.0, 1, 0.0)


def test_new_jobs_get_their_turn_among_calls_that_keep_a_lane_busy() -> None:
    """Jobs waiting for admission queue like calls."""

    async def main() -> list[float]:
        starts: list[float] = []

        async def body(job: Job[float], calls: Calls[float]) -> float:
            if job.lane == "a":
                starts.append(trio.current_time())
                await calls("a", answer_after, 1)
                await trio.sleep(100)
                return 0.0
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(keep_busy, calls)
            return 0.0

        async def keep_busy(calls: Calls[float]) -> None:
            for _ in range(20):
                await calls("a", answer_after, 1)

        lanes = Lanes([LaneSpec("a", max_concurrency=1), LaneSpec("b")])
        plan = Plan.of([Job(0, "a", 0.0), Job(1, "b", 0.0), Job(2, "a", 0.0)])
        await collect(plan, body, lanes=lanes)
        return starts

    starts = run_virtual(main)
    assert starts[0] <= 2.0
    assert starts[1] <= 5.0


def test_an_observer_that_raises_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """An observer that raises is logged once and not called again."""
    events: list[Event] = []

    def observe(event: Event) -> None:
        events.append(event)
        raise ValueError

    with caplog.at_level(logging.ERROR):
        outcomes = run_virtual(
            lambda: collect(plan_of(1, 1), call_for, lanes=Lanes([LaneSpec("a")]), observe=observe)
        )
    assert len(outcomes) == 2
    assert len(events) == 1
    assert [record.message for record in caplog.records] == [
        "an observer raised and is not called again"
    ]


def test_a_call_to_an_unknown_lane_fails_its_job() -> None:
    """A call to an unknown lane fails with the names of the lanes."""

    async def body(job: Job[float], calls: Calls[float]) -> float:
        return await calls("b", answer_after, 1)

    (outcome,) = run_virtual(lambda: collect(plan_of(1), body, lanes=Lanes([LaneSpec("a")])))
    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "job 0 calls lane 'b', which is not one of ['a']"


def test_a_plan_on_unknown_lanes_is_rejected_before_anything_starts() -> None:
    """All unknown lanes of a plan are reported at once."""

    async def main() -> None:
        plan = Plan.of([Job(0, "x", 1.0), Job(1, "y", 1.0)])
        await collect(plan, call_for, lanes=Lanes([LaneSpec("a")]))

    with pytest.raises(PlanError) as caught:
        run_virtual(main)
    assert str(caught.value) == "the plan starts jobs on ['x', 'y']; the lanes are ['a']"


@pytest.mark.parametrize("serial", [False, True])
def test_a_lazy_plan_with_wrong_declarations_ends_the_run_with_a_plan_error(serial: bool) -> None:  # noqa: FBT001
    """The error is not wrapped, and running jobs are interrupted."""
    jobs = [Job(0, "a", 5.0), Job(2, "a", 1.0)]

    async def main() -> None:
        await collect(Plan(jobs, ("a",), serial=serial), call_for, lanes=Lanes([LaneSpec("a")]))

    with pytest.raises(PlanError) as caught:
        run_virtual(main)
    assert str(caught.value) == "the job at position 1 of the plan has index 2; they must be equal"


def test_max_live_jobs_must_be_positive() -> None:
    """max_live_jobs must be at least 1."""
    with pytest.raises(
        PlanError, match="max_live_jobs must be a whole number of at least 1, got 0"
    ):
        run_virtual(
            lambda: collect(plan_of(1), call_for, lanes=Lanes([LaneSpec("a")]), max_live_jobs=0)
        )


def test_many_lanes_and_many_jobs_are_each_run_once() -> None:
    """Thousands of jobs on many lanes each run once."""
    names = [str(n) for n in range(3)]

    async def main() -> list[Outcome[float]]:
        jobs = [Job(i, names[i * 7 % 3 if i > 9000 else 0], 0.0) for i in range(20_000)]
        return await collect(Plan.of(jobs), silent, lanes=Lanes(LaneSpec(n) for n in names))

    async def silent(job: Job[float], calls: Calls[float]) -> float:
        return float(job.index)

    outcomes = run_virtual(main)
    assert [o.value for o in outcomes if isinstance(o, Done)] == [*map(float, range(20_000))]


def test_lanes_keep_no_reference_to_a_finished_run() -> None:
    """A lane keeps no object of a finished run alive."""

    async def main() -> None:
        lanes = Lanes([LaneSpec("a")])
        jobs: list[Job[float]] = []

        async def body(job: Job[float], calls: Calls[float]) -> float:
            jobs.append(calls.job)
            return await calls(job.lane, answer_after, job.payload) if job.payload else 0.0

        await collect(plan_of(1, 0), body, lanes=lanes)
        gc.collect()
        kept = [one.job for one in gc.get_objects() if isinstance(one, Calls)]
        assert len(jobs) == 2
        assert not [job for job in jobs if any(job is one for one in kept)]
        assert lanes.statistics()

    run_virtual(main)
