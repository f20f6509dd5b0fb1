"""Jobs that need nothing of their lane, as callers meet them: named examples of the law FREE."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, overload

import attrs
import pytest
import trio

from trioeval.errors import CallError, Fault, PlanError
from trioeval.kernel import (
    Admitted,
    Budget,
    Calls,
    Cut,
    Done,
    Event,
    Job,
    Lanes,
    LaneSpec,
    Metered,
    NotRun,
    Outcome,
    Plan,
    TimedOut,
    Waiting,
    Why,
    collect,
    run_plan,
)
from trioeval.testing import run_virtual


@attrs.frozen
class Work:
    """What a job of these tests does."""

    free: bool | None = False
    """None fails to say."""
    after: float = 0.0
    """Seconds until it says so."""
    calls: float | None = None
    """Seconds of its call; None makes none."""


async def is_free(job: Job[Work]) -> bool:
    await trio.sleep(job.payload.after)
    if job.payload.free is None:
        raise ZeroDivisionError
    return job.payload.free


async def do(job: Job[Work], calls: Calls[Work]) -> float:
    if job.payload.calls is not None:
        await calls(job.lane, trio.sleep, job.payload.calls)
    return trio.current_time()


def plan_of(
    *works: Work,
    timeout: float = math.inf,
    serial_indices: Sequence[int] = (),
    free: Callable[[Job[Work]], Awaitable[bool]] = is_free,
) -> Plan[Work]:
    jobs = (Job(index, "a", work, timeout) for index, work in enumerate(works))
    return attrs.evolve(Plan.of(jobs, serial_indices=serial_indices), free=free)


REFUSED = "1 calls in a row were refused: no such model"
HERE = Work(free=True)
"""A job whose reply is there."""


def run(
    plan: Plan[Work], lane: LaneSpec | None = None, *, deadline: float = math.inf
) -> list[Outcome[float]]:
    async def main() -> list[Outcome[float]]:
        lanes = Lanes([LaneSpec("a", 1) if lane is None else lane])
        return await collect(plan, do, lanes=lanes, deadline=deadline)

    return run_virtual(main)


def starts(outcomes: Sequence[Outcome[Any]]) -> list[float | None]:
    return [
        None if isinstance(one, NotRun) else getattr(one, "started_at", None) for one in outcomes
    ]


def test_free_jobs_start_while_the_lane_is_full_each_at_its_turn() -> None:
    """They take no slot; one that stands behind a job that is not free waits for it."""
    slow = Work(calls=5.0)
    assert starts(run(plan_of(slow, HERE, HERE, slow, HERE))) == [0.0, 0.0, 0.0, 5.0, 5.0]


def test_free_jobs_take_no_start_of_the_pace() -> None:
    """Two calls a minute apart, and three free jobs among them."""
    asks = Work(calls=0.0)
    outcomes = run(plan_of(asks, HERE, asks, HERE, HERE), LaneSpec("a", 1, rpm=1))
    assert starts(outcomes) == [0.0, 0.0, 60.0, 60.0, 60.0]


@pytest.mark.parametrize("serial", [False, True])
def test_free_jobs_start_while_the_lane_is_paused(serial: bool) -> None:  # noqa: FBT001 - a case
    """Serial ones as well."""

    async def main() -> list[Outcome[float]]:
        lanes = Lanes([LaneSpec("a", 1)])
        lanes["a"].pause()
        plan = plan_of(HERE, HERE, Work(calls=1.0), serial_indices=(0, 1) if serial else ())
        with trio.move_on_after(9):
            return await collect(plan, do, lanes=lanes, deadline=8.0)
        return []

    first, second, third = run_virtual(main)
    assert first == Done(0, 0.0, 0.0, 0.0, 0, 0.0)
    assert second == Done(1, 0.0, 0.0, 0.0, 0, 0.0)
    assert third == NotRun(2, Cut.DEADLINE)


def test_a_free_job_that_calls_after_all_stands_in_line_like_any_other() -> None:
    """Its small call fits the budget at once; the large one before it waits until another one is over."""

    async def main() -> list[tuple[int, float]]:
        started: list[tuple[int, float]] = []

        async def free(job: Job[Work]) -> bool:
            await trio.sleep(1.0 * job.index)
            return job.index == 1

        async def perform(job: Job[Work], calls: Calls[Work]) -> None:
            async def call(tokens: int) -> None:
                await calls("a", send, tokens=tokens)

            async def send() -> Metered[None]:
                started.append((job.index, trio.current_time()))
                await trio.sleep(5.0)
                return Metered(None, tokens=0)

            async with trio.open_nursery() as nursery:
                for tokens in (60, 60) if job.index == 0 else (10,):
                    nursery.start_soon(call, tokens)

        plan, lanes = plan_of(*[Work()] * 2, free=free), Lanes([LaneSpec("a", 4)])
        await collect(plan, perform, lanes=lanes, budget=Budget(tokens=100))
        return started

    assert run_virtual(main) == [(0, 0.0), (0, 5.0), (1, 5.0)]


@pytest.mark.parametrize(
    "work", [Work(free=None), Work(free=None, after=1.0), Work(free=True, after=5.0)]
)
def test_an_answer_that_fails_or_takes_longer_than_the_job_may_is_a_no(work: Work) -> None:
    """The job waits for its lane like any other, with the whole of its timeout left."""
    outcomes = run(plan_of(Work(calls=4.0), attrs.evolve(work, calls=3.0), timeout=5.0))
    assert starts(outcomes) == [0.0, max(4.0, work.after)]
    assert all(isinstance(one, Done) for one in outcomes)


def test_the_time_of_the_question_is_no_working_time() -> None:
    """A job is not started before it is answered for."""
    (outcome,) = run(plan_of(Work(free=True, after=4.0, calls=4.5), timeout=5.0))
    assert outcome == Done(0, 4.0, 8.5, 0.0, 1, 8.5)


def test_a_question_with_a_nursery_of_its_own_that_fails_when_cut_off_is_cut_off() -> None:
    """A cancellation that comes with another failure is a cancellation."""

    async def free(_job: Job[Work]) -> bool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ZeroDivisionError

    assert starts(run(plan_of(HERE, timeout=2.0, free=free))) == [2.0]
    assert run(plan_of(HERE, free=free), deadline=1.0) == [NotRun(0, Cut.DEADLINE)]


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("cut", [Cut.STOP, Cut.CANCEL, Cut.DEADLINE])
def test_a_job_that_is_asked_about_when_the_run_ends_is_not_run(cut: Cut, serial: bool) -> None:  # noqa: FBT001 - a case
    """And the run does not wait for the answer."""

    async def main() -> tuple[list[Outcome[float]], float]:
        stop, outcomes = trio.Event(), []
        plan = plan_of(
            HERE, Work(free=True, after=9.0), HERE, serial_indices=(0, 1) if serial else ()
        )

        async def emit(outcome: Outcome[float]) -> None:  # noqa: ASYNC124 - lists do not wait
            outcomes.append(outcome)

        async def end() -> None:
            await trio.sleep(3.0)
            if cut is Cut.STOP:
                stop.set()
            elif cut is Cut.CANCEL:
                scope.cancel()

        deadline = 3.0 if cut is Cut.DEADLINE else math.inf
        lanes = Lanes([LaneSpec("a", 1)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            with trio.CancelScope() as scope:
                await run_plan(plan, do, lanes=lanes, emit=emit, stop=stop, deadline=deadline)
        return outcomes, trio.current_time()

    outcomes, ended_at = run_virtual(main)
    assert outcomes == [Done(0, 0.0, 0.0, 0.0, 0, 0.0), NotRun(1, cut), NotRun(2, cut)]
    assert ended_at == 3.0


def test_a_lane_that_closes_ends_the_question() -> None:
    """Its jobs are not run, free or not; the run does not wait for the answer."""

    async def main() -> tuple[list[Outcome[None]], float]:
        async def refuse() -> None:
            await trio.sleep(2.0)
            raise CallError(Fault.FATAL, "no such model")

        async def perform(job: Job[Work], calls: Calls[Work]) -> None:
            await calls(job.lane, refuse)

        plan = plan_of(Work(), Work(free=True, after=99.0), HERE)
        outcomes = await collect(
            plan, perform, lanes=Lanes([LaneSpec("a", 4, breaker_threshold=1)])
        )
        return outcomes, trio.current_time()

    outcomes, ended_at = run_virtual(main)
    closed = [(one.cut, one.reason) for one in outcomes if isinstance(one, NotRun)]
    assert closed == [(Cut.LANE, REFUSED)] * 2
    assert ended_at == 2.0


def test_a_serial_job_of_a_closed_lane_is_not_run_free_or_not() -> None:
    """What is closed serves nobody."""

    async def main() -> list[Outcome[None]]:
        async def refuse() -> None:  # noqa: ASYNC124 - never waits
            raise CallError(Fault.FATAL, "no such model")

        async def perform(job: Job[Work], calls: Calls[Work]) -> None:
            await calls(job.lane, refuse)

        plan = plan_of(Work(), HERE, serial_indices=(0, 1))
        return await collect(plan, perform, lanes=Lanes([LaneSpec("a", breaker_threshold=1)]))

    assert run_virtual(main)[1] == NotRun(1, Cut.LANE, REFUSED)


def test_free_jobs_wait_for_a_serial_job_of_another_run() -> None:
    """And the observer is told that it is the gate."""

    async def main() -> tuple[list[Outcome[float]], list[Event]]:
        lanes = Lanes([LaneSpec("a", 4)])
        events: list[Event] = []
        outcomes: list[Outcome[float]] = []

        async def emit(outcome: Outcome[float]) -> None:  # noqa: ASYNC124 - lists do not wait
            outcomes.append(outcome)

        async def alone() -> None:
            await collect(plan_of(Work(calls=5.0), serial_indices=(0,)), do, lanes=lanes)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(alone)
            await trio.sleep(1.0)
            plan = plan_of(HERE, HERE)
            await run_plan(plan, do, lanes=lanes, emit=emit, observe=events.append)
        return outcomes, events

    outcomes, events = run_virtual(main)
    assert starts(outcomes) == [5.0, 5.0]
    assert Waiting(1.0, "a", Why.GATE, None, None) in events


def test_a_job_that_becomes_ready_while_a_later_one_is_asked_about_starts_first() -> None:
    """Jobs of a lane start in index order, also if the later one has its answer first."""

    async def main() -> list[tuple[float, int]]:
        works = (Work(calls=1.0), Work(free=True, after=4.0), Work(free=True, after=2.0))
        jobs = (Job(index, "a", work) for index, work in enumerate(works))
        plan = attrs.evolve(Plan.of(jobs, edges={1: (0,)}), free=is_free)
        events: list[Event] = []
        await collect(plan, do, lanes=Lanes([LaneSpec("a", 4)]), observe=events.append)
        return [(event.at, event.index) for event in events if isinstance(event, Admitted)]

    assert run_virtual(main) == [(0.0, 0), (6.0, 1), (6.0, 2)]


def test_nobody_starts_a_job_before_its_answer_who_stood_in_line_for_a_later_one() -> None:
    """The lane can serve job 2 after two seconds; job 1 has become ready, and is asked until the third."""

    async def main() -> list[tuple[float, int]]:
        works = (Work(calls=1.0), Work(free=True, after=2.0), Work(calls=1.0))
        jobs = (Job(index, "a", work) for index, work in enumerate(works))
        plan = attrs.evolve(Plan.of(jobs, edges={1: (0,)}), free=is_free)
        events: list[Event] = []
        lanes = Lanes([LaneSpec("a", 4, rpm=30)])
        await collect(plan, do, lanes=lanes, observe=events.append)
        return [(event.at, event.index) for event in events if isinstance(event, Admitted)]

    assert run_virtual(main) == [(0.0, 0), (3.0, 1), (3.0, 2)]


def test_free_jobs_count_among_the_live_ones() -> None:
    """Whoever waits long for a judge keeps the next ones from starting, and from being asked about."""

    async def main() -> tuple[list[float], list[float | None]]:
        asked = []

        async def free(_job: Job[Work]) -> bool:  # noqa: ASYNC124 - never waits
            asked.append(trio.current_time())
            return True

        async def judge(_job: Job[Work], _calls: Calls[Work]) -> None:
            await trio.sleep(3.0)

        plan = plan_of(*[HERE] * 5, free=free)
        outcomes = await collect(plan, judge, lanes=Lanes([LaneSpec("a", 1)]), max_live_jobs=2)
        return asked, starts(outcomes)

    assert run_virtual(main) == ([0.0, 0.0, 3.0, 3.0, 6.0],) * 2


def test_the_clock_of_a_free_job_runs() -> None:
    """Its body is work like any other's."""

    async def main() -> list[Outcome[None]]:
        async def work(_job: Job[Work], _calls: Calls[Work]) -> None:
            await trio.sleep(3.0)

        return await collect(plan_of(HERE, timeout=2.0), work, lanes=Lanes([LaneSpec("a", 1)]))

    assert run_virtual(main) == [TimedOut(0, 0.0, 2.0, 0.0, 0, 2.0)]


@attrs.frozen
class Wrong(Sequence[Job[Work]]):
    """A lazy plan whose second job cannot be made."""

    def __len__(self) -> int:
        return 3

    @overload
    def __getitem__(self, index: int) -> Job[Work]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job[Work]]: ...
    def __getitem__(self, index: int | slice) -> Job[Work] | Sequence[Job[Work]]:
        if index == 1:
            raise LookupError("no such job")
        assert isinstance(index, int)
        return Job(index, "a", HERE)


@pytest.mark.parametrize("serial", [False, True])
def test_a_plan_that_cannot_give_the_job_to_ask_about_ends_the_run(serial: bool) -> None:  # noqa: FBT001 - a case
    """It is a fault of the plan, and said so."""
    with pytest.raises(PlanError, match="cannot give its job 1: LookupError: no such job"):
        run(Plan(Wrong(), ("a",), serial=serial, free=is_free))
