"""Jobs on no lane, as callers meet them: from the beginning, or found as the next of their lane."""

import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import attrs
import pytest
import trio

from trioeval.errors import CallError, Fault, PlanError
from trioeval.kernel import (
    Admitted,
    Budget,
    Calls,
    Done,
    Event,
    Failed,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    Metered,
    NotRun,
    Outcome,
    Plan,
    StopReason,
    TimedOut,
    Waiting,
    WaitReason,
    collect,
    run_plan,
)
from trioeval.testing import run_virtual


@attrs.frozen
class Work:
    """What a job of these tests does."""

    known: bool | None = False
    """Whether it needs no lane; None fails to say."""
    calls: float | None = None
    """Seconds of its call; None makes none."""


def is_known(job: Job[Work]) -> bool:
    if job.payload.known is None:
        raise ZeroDivisionError
    return job.payload.known


async def do(job: Job[Work], calls: Calls[Work]) -> float:
    if job.payload.calls is not None:
        await calls(job.lane, trio.sleep, job.payload.calls)
    return trio.current_time()


def plan_of(
    *works: Work,
    timeout: float = math.inf,
    serial_indices: Sequence[int] = (),
    needs_no_lane: Callable[[Job[Work]], bool] = is_known,
) -> Plan[Work]:
    jobs = (Job(index, "a", work, timeout) for index, work in enumerate(works))
    plan = Plan.of(jobs, serial_indices=serial_indices)
    return attrs.evolve(plan, needs_no_lane=needs_no_lane)


REFUSED = "1 calls in a row were refused: no such model"
HERE = Work(known=True)
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


def test_jobs_found_to_need_no_lane_start_while_it_is_full_each_at_its_turn() -> None:
    """They take no slot; one that stands behind a job that needs the lane waits for it."""
    slow = Work(calls=5.0)
    assert starts(run(plan_of(slow, HERE, HERE, slow, HERE))) == [0.0, 0.0, 0.0, 5.0, 5.0]


def test_jobs_on_no_lane_take_no_start_of_the_pace() -> None:
    """Two calls a minute apart, and three known jobs among them."""
    asks = Work(calls=0.0)
    outcomes = run(plan_of(asks, HERE, asks, HERE, HERE), LaneSpec("a", 1, rpm=1))
    assert starts(outcomes) == [0.0, 0.0, 60.0, 60.0, 60.0]


@pytest.mark.parametrize("serial", [False, True])
def test_jobs_found_to_need_no_lane_start_while_it_is_paused(serial: bool) -> None:  # noqa: FBT001 - a case
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
    assert third == NotRun(2, StopReason.DEADLINE)


def test_a_job_on_no_lane_that_calls_after_all_stands_in_line_like_any_other() -> None:
    """Its small call fits the budget at once; the large one before it waits until another one is over."""

    async def main() -> list[tuple[int, float]]:
        started: list[tuple[int, float]] = []

        async def perform(job: Job[Work], calls: Calls[Work]) -> None:
            await trio.sleep(1.0 * job.index)

            async def call(tokens: int) -> None:
                await calls("a", send, tokens=tokens)

            async def send() -> Metered[None]:
                started.append((job.index, trio.current_time()))
                await trio.sleep(5.0)
                return Metered(None, tokens=0)

            async with trio.open_nursery() as nursery:
                for tokens in (60, 60) if job.index == 0 else (10,):
                    nursery.start_soon(call, tokens)

        plan, lanes = plan_of(Work(), HERE), Lanes([LaneSpec("a", 4)])
        await collect(plan, perform, lanes=lanes, budget=Budget(tokens=100))
        return started

    assert run_virtual(main) == [(0, 0.0), (0, 5.0), (1, 5.0)]


def test_a_look_that_fails_is_a_no() -> None:
    """The job waits for its lane like any other."""
    outcomes = run(plan_of(Work(calls=4.0), Work(known=None, calls=3.0), timeout=5.0))
    assert starts(outcomes) == [0.0, 4.0]
    assert all(isinstance(one, Done) for one in outcomes)


def test_a_call_on_no_lane_is_refused() -> None:
    """A body that asks for the lane of a job that has none is told which there are."""
    outcomes = run(Plan.of([Job(0, None, Work(calls=1.0))]))
    assert isinstance(outcomes[0], Failed)
    assert str(outcomes[0].error) == "job 0 calls lane None, which is not one of ['a']"


def test_jobs_on_no_lane_start_beside_a_blocked_lane_and_do_not_delay_it() -> None:
    """Wherever they stand in the plan."""
    slow = Work(calls=5.0)
    lanes = ["a", "a", None, "a", None]
    plan = Plan.of(Job(i, lane, slow if lane else Work()) for i, lane in enumerate(lanes))
    assert starts(run(plan)) == [0.0, 5.0, 0.0, 10.0, 0.0]


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("cut", [StopReason.STOP, StopReason.CANCEL, StopReason.DEADLINE])
def test_a_job_that_has_left_its_lane_when_the_run_ends_is_not_run(
    cut: StopReason, serial: bool
) -> None:
    """It has waited for the one before it."""

    async def main() -> tuple[list[Outcome[float]], float]:
        stop, outcomes = trio.Event(), []
        plan = plan_of(HERE, HERE, HERE, serial_indices=(0, 1) if serial else ())

        async def rest(_job: Job[Work], _calls: Calls[Work]) -> float:
            await trio.sleep(4.0)
            return trio.current_time()

        async def emit(outcome: Outcome[float]) -> None:  # noqa: ASYNC124 - lists do not wait
            outcomes.append(outcome)

        async def end() -> None:
            await trio.sleep(3.0)
            if cut is StopReason.STOP:
                stop.set()
            elif cut is StopReason.CANCEL:
                scope.cancel()

        deadline = 3.0 if cut is StopReason.DEADLINE else math.inf
        lanes = Lanes([LaneSpec("a", 1)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            with trio.CancelScope() as scope:
                await run_plan(
                    plan,
                    rest,
                    lanes=lanes,
                    emit=emit,
                    stop=stop,
                    deadline=deadline,
                    max_live_jobs=1,
                )
        return outcomes, trio.current_time()

    outcomes, ended_at = run_virtual(main)
    first: Outcome[float] = Done(0, 0.0, 4.0, 0.0, 0, 4.0)
    if cut is not StopReason.STOP:
        first = Interrupted(0, 0.0, 3.0, 0.0, 0, cut)
    assert outcomes == [first, NotRun(1, cut), NotRun(2, cut)]
    assert ended_at == (4.0 if cut is StopReason.STOP else 3.0)


def test_jobs_that_are_still_on_a_lane_that_closes_are_not_looked_at() -> None:
    """They are not run, known or not."""

    async def main() -> tuple[list[Outcome[None]], float]:
        async def refuse() -> None:
            await trio.sleep(2.0)
            raise CallError(Fault.FATAL, "no such model")

        async def perform(job: Job[Work], calls: Calls[Work]) -> None:
            await calls(job.lane, refuse)

        plan = plan_of(Work(), Work(), HERE)
        outcomes = await collect(
            plan, perform, lanes=Lanes([LaneSpec("a", 1, breaker_threshold=1)])
        )
        return outcomes, trio.current_time()

    outcomes, ended_at = run_virtual(main)
    closed = [(one.cut, one.reason) for one in outcomes if isinstance(one, NotRun)]
    assert closed == [(StopReason.LANE, REFUSED)] * 2
    assert ended_at == 2.0


def test_a_serial_job_of_a_closed_lane_is_not_run_known_or_not() -> None:
    """What is closed serves nobody."""

    async def main() -> list[Outcome[None]]:
        async def refuse() -> None:  # noqa: ASYNC124 - never waits
            raise CallError(Fault.FATAL, "no such model")

        async def perform(job: Job[Work], calls: Calls[Work]) -> None:
            await calls(job.lane, refuse)

        plan = plan_of(Work(), HERE, serial_indices=(0, 1))
        return await collect(plan, perform, lanes=Lanes([LaneSpec("a", breaker_threshold=1)]))

    assert run_virtual(main)[1] == NotRun(1, StopReason.LANE, REFUSED)


def test_jobs_on_no_lane_wait_for_a_serial_job_of_another_run() -> None:
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
    assert Waiting(1.0, None, WaitReason.GATE, None, None) in events


def admissions(
    works: Sequence[Work], lane: LaneSpec, edges: dict[int, tuple[int, ...]]
) -> list[Admitted]:
    async def main() -> list[Admitted]:
        jobs = (Job(index, "a", work) for index, work in enumerate(works))
        plan = attrs.evolve(Plan.of(jobs, edges=edges), needs_no_lane=is_known)
        events: list[Event] = []
        await collect(plan, do, lanes=Lanes([lane]), observe=events.append)
        return [event for event in events if isinstance(event, Admitted)]

    return run_virtual(main)


def test_a_job_that_waits_for_another_one_is_passed_by() -> None:
    """The later one is the next of its lane until then; on no lane both of them."""
    works = [Work(calls=1.0), HERE, HERE]
    found = admissions(works, LaneSpec("a", 4), {1: (0,)})
    assert found == [Admitted(0.0, 0, "a"), Admitted(0.0, 2, None), Admitted(1.0, 1, None)]


def test_a_job_starts_at_once_that_is_found_while_a_later_one_stands_in_line() -> None:
    """The lane can serve job 2 after two seconds; job 1 becomes ready after one."""
    works = [Work(calls=1.0), HERE, Work(calls=1.0)]
    found = admissions(works, LaneSpec("a", 4, rpm=30), {1: (0,)})
    assert found == [Admitted(0.0, 0, "a"), Admitted(1.0, 1, None), Admitted(2.0, 2, "a")]


def test_jobs_on_no_lane_count_among_the_live_ones() -> None:
    """Whoever waits long for a judge keeps the next ones from starting; few of them are looked at before."""

    async def main() -> tuple[list[float], list[float | None]]:
        looked = []

        def needs_no_lane(_job: Job[Work]) -> bool:
            looked.append(trio.current_time())
            return True

        async def judge(_job: Job[Work], _calls: Calls[Work]) -> None:
            await trio.sleep(3.0)

        plan = plan_of(*[HERE] * 200, needs_no_lane=needs_no_lane)
        outcomes = await collect(plan, judge, lanes=Lanes([LaneSpec("a", 1)]), max_live_jobs=2)
        return looked, starts(outcomes)

    looked, started = run_virtual(main)
    assert len(looked) == 200
    assert 2 <= looked.count(0.0) <= 70
    assert started == [3.0 * (index // 2) for index in range(200)]


def test_the_clock_of_a_job_on_no_lane_runs() -> None:
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
def test_a_plan_that_cannot_give_the_job_to_look_at_ends_the_run(serial: bool) -> None:  # noqa: FBT001 - a case
    """It is a fault of the plan, and said so."""
    with pytest.raises(PlanError, match="cannot return job 1: LookupError: no such job"):
        run(Plan(Wrong(), ("a",), serial=serial, needs_no_lane=is_known))
