"""Examples of jobs on no lane: declared, or found when next of their lane."""

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
    """The script of a job in these tests."""

    known: bool | None = False
    """Result of `needs_no_lane`; None raises."""
    calls: float | None = None
    """Seconds of its call; None for no call."""


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
"""A job whose reply is known."""


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


def test_jobs_found_to_need_no_lane_start_in_turn_while_it_is_full() -> None:
    """Jobs that need no lane take no slot, and start at their turn."""
    slow = Work(calls=5.0)
    assert starts(run(plan_of(slow, HERE, HERE, slow, HERE))) == [0.0, 0.0, 0.0, 5.0, 5.0]


def test_jobs_on_no_lane_take_no_start_of_the_pace() -> None:
    """Jobs on no lane take no start of the pace."""
    asks = Work(calls=0.0)
    outcomes = run(plan_of(asks, HERE, asks, HERE, HERE), LaneSpec("a", 1, rpm=1))
    assert starts(outcomes) == [0.0, 0.0, 60.0, 60.0, 60.0]


@pytest.mark.parametrize("serial", [False, True])
def test_jobs_found_to_need_no_lane_start_while_it_is_paused(serial: bool) -> None:  # noqa: FBT001 - a case
    """Jobs that need no lane start while it is paused, serial ones too."""

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


def test_a_call_of_a_job_on_no_lane_queues_like_any_other() -> None:
    """A call of a job on no lane queues like any other."""

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


def test_an_inspection_that_raises_counts_as_false() -> None:
    """An inspection that raises counts as false."""
    outcomes = run(plan_of(Work(calls=4.0), Work(known=None, calls=3.0), timeout=5.0))
    assert starts(outcomes) == [0.0, 4.0]
    assert all(isinstance(one, Done) for one in outcomes)


def test_a_call_on_no_lane_is_rejected() -> None:
    """A call on lane None is rejected with the names of the lanes."""
    outcomes = run(Plan.of([Job(0, None, Work(calls=1.0))]))
    assert isinstance(outcomes[0], Failed)
    assert str(outcomes[0].error) == "job 0 calls lane None, which is not one of ['a']"


def test_jobs_on_no_lane_start_beside_a_blocked_lane_and_do_not_delay_it() -> None:
    """Jobs on no lane start beside a blocked lane and do not delay it."""
    slow = Work(calls=5.0)
    lanes = ["a", "a", None, "a", None]
    plan = Plan.of(Job(i, lane, slow if lane else Work()) for i, lane in enumerate(lanes))
    assert starts(run(plan)) == [0.0, 5.0, 0.0, 10.0, 0.0]


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("cut", [StopReason.STOP, StopReason.CANCEL, StopReason.DEADLINE])
def test_a_job_that_has_left_its_lane_when_the_run_ends_is_not_run(
    cut: StopReason,
    serial: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """An unstarted job that has left its lane is not run when the run ends."""

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


def test_jobs_on_a_closed_lane_are_not_inspected() -> None:
    """Jobs on a closed lane are neither inspected nor run."""

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


def test_a_serial_job_of_a_closed_lane_is_not_run() -> None:
    """A serial job of a closed lane is not run, even if its reply is known."""

    async def main() -> list[Outcome[None]]:
        async def refuse() -> None:  # noqa: ASYNC124 - never waits
            raise CallError(Fault.FATAL, "no such model")

        async def perform(job: Job[Work], calls: Calls[Work]) -> None:
            await calls(job.lane, refuse)

        plan = plan_of(Work(), HERE, serial_indices=(0, 1))
        return await collect(plan, perform, lanes=Lanes([LaneSpec("a", breaker_threshold=1)]))

    assert run_virtual(main)[1] == NotRun(1, StopReason.LANE, REFUSED)


def test_jobs_on_no_lane_wait_for_a_serial_job_of_another_run() -> None:
    """Jobs on no lane wait for the serial gate, which is reported."""

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


def test_a_job_that_waits_for_another_one_is_skipped() -> None:
    """A blocked job is skipped until it may start."""
    works = [Work(calls=1.0), HERE, HERE]
    found = admissions(works, LaneSpec("a", 4), {1: (0,)})
    assert found == [Admitted(0.0, 0, "a"), Admitted(0.0, 2, None), Admitted(1.0, 1, None)]


def test_a_job_found_to_need_no_lane_starts_before_a_later_one_in_the_queue() -> None:
    """A job found to need no lane starts at once while a later one queues."""
    works = [Work(calls=1.0), HERE, Work(calls=1.0)]
    found = admissions(works, LaneSpec("a", 4, rpm=30), {1: (0,)})
    assert found == [Admitted(0.0, 0, "a"), Admitted(1.0, 1, None), Admitted(2.0, 2, "a")]


def test_jobs_on_no_lane_count_among_the_live_ones() -> None:
    """Jobs on no lane count as live, and few are inspected ahead."""

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
    """LIMIT: the body of a job on no lane is working time."""

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
def test_a_plan_that_cannot_return_the_job_to_inspect_ends_the_run(serial: bool) -> None:  # noqa: FBT001 - a case
    """A plan that cannot return the job to inspect ends the run with a PlanError."""
    with pytest.raises(PlanError, match="cannot return job 1: LookupError: no such job"):
        run(Plan(Wrong(), ("a",), serial=serial, needs_no_lane=is_known))
