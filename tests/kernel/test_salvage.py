"""Final retry rounds: the jobs, the time and the number of reruns, and jobs that are not rerun."""

import math
from collections.abc import Mapping, Sequence

import pytest
import trio

from trioeval.errors import CallError, Fault, PlanError
from trioeval.kernel import (
    Blocked,
    Calls,
    Done,
    Edge,
    Event,
    Failed,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    Salvaged,
    StopReason,
    collect,
    run_plan,
)
from trioeval.testing import run_virtual

Script = Sequence[Fault | None]
"""Results of the requests of a job, a second each; the last one is repeated."""

MISHAP, REFUSED, FATAL = Fault.TRANSIENT, Fault.REFUSED, Fault.FATAL


class Bodies:
    """Bodies with one call; records the start of each request."""

    def __init__(self) -> None:
        self.starts: dict[int, list[float]] = {}

    async def __call__(self, job: Job[Script], calls: Calls[Script]) -> int:
        return await calls(job.lane, self.send, job)

    async def send(self, job: Job[Script]) -> int:
        starts = self.starts.setdefault(job.index, [])
        starts.append(trio.current_time())
        await trio.sleep(1)
        fault = job.payload[min(len(starts), len(job.payload)) - 1]
        if fault is not None:
            raise CallError(fault)
        return job.index


def salvage(
    *scripts: Script,
    rounds: int,
    retries: int = 0,
    max_retries: int | None = None,
    width: int = 4,
    deadline: float = math.inf,
    threshold: int = 3,
    edges: Mapping[int, Sequence[int | Edge]] | None = None,
    serial: bool = False,
) -> tuple[list[Outcome[int]], Bodies, list[Event]]:
    lane = LaneSpec(
        "a",
        width,
        retries=retries,
        max_retries=max_retries,
        breaker_threshold=threshold,
        adaptive="off",
    )
    bodies, events = Bodies(), list[Event]()

    async def main() -> list[Outcome[int]]:
        jobs = [Job(i, "a", script) for i, script in enumerate(scripts)]
        plan = Plan.of(jobs, edges=edges, serial=serial)
        return await collect(
            plan,
            bodies,
            lanes=Lanes([lane], rng=lambda: 0.5),
            deadline=deadline,
            salvage_rounds=rounds,
            observe=events.append,
        )

    return run_virtual(main), bodies, events


def test_a_job_with_a_transient_failure_is_rerun_when_all_others_are_over() -> None:
    """Its outcome counts the requests of both runs."""
    outcomes, bodies, events = salvage([MISHAP, None], [None], [None], rounds=1, width=1)
    assert outcomes == [
        Done(0, 3.0, 4.0, 0.0, 2, 0),
        Done(1, 1.0, 2.0, 0.0, 1, 1),
        Done(2, 2.0, 3.0, 0.0, 1, 2),
    ]
    assert bodies.starts[0] == [0.0, 3.0]
    assert [event for event in events if isinstance(event, Salvaged)] == [Salvaged(3.0, (0,))]


def test_each_round_is_one_request_and_jobs_go_in_index_order() -> None:
    """ATTEMPTS: each round is one request; after the last one the failure is the outcome."""
    outcomes, bodies, events = salvage([MISHAP], [MISHAP], [None], rounds=2, retries=1, width=1)
    assert [len(bodies.starts[i]) for i in range(3)] == [4, 4, 1]
    assert [event.indices for event in events if isinstance(event, Salvaged)] == [(0, 1), (0, 1)]
    assert bodies.starts[0][2] < bodies.starts[1][2] < bodies.starts[0][3] < bodies.starts[1][3]
    assert [o.calls for o in outcomes if isinstance(o, Failed)] == [4, 4]


def test_outcomes_are_emitted_only_when_they_are_final() -> None:
    """ORDER and TOTAL: a job that is set aside delays later outcomes, and is emitted once."""
    instants: list[tuple[int, float]] = []

    async def emit(outcome: Outcome[int]) -> None:
        instants.append((outcome.index, trio.current_time()))

    async def main() -> None:
        scripts: list[Script] = [[None], [MISHAP, None], [None]]
        plan = Plan.of(Job(i, "a", script) for i, script in enumerate(scripts))
        lanes = Lanes([LaneSpec("a", retries=0)])
        await run_plan(plan, Bodies(), lanes=lanes, emit=emit, salvage_rounds=1)

    run_virtual(main)
    assert instants == [(0, 1.0), (1, 2.0), (2, 2.0)]


@pytest.mark.parametrize("fault", [REFUSED, FATAL, Fault.QUOTA_EXHAUSTED])
def test_permanent_failures_are_not_rerun(fault: Fault) -> None:
    """Only transient failures and refusals are rerun."""
    outcomes, bodies, _ = salvage([fault], rounds=3)
    assert isinstance(outcomes[0], Failed)
    assert len(bodies.starts[0]) == 1


def test_an_error_of_the_body_is_not_rerun() -> None:
    """An error of the body itself is not rerun."""
    runs = 0

    async def body(job: Job[None], calls: Calls[None]) -> None:
        nonlocal runs
        runs += 1
        raise ValueError

    plan = Plan.of([Job(0, "a", None)])
    run_virtual(lambda: collect(plan, body, lanes=Lanes([LaneSpec("a")]), salvage_rounds=2))
    assert runs == 1


def test_a_job_that_is_set_aside_keeps_its_failure_if_its_lane_closes() -> None:
    """A closed lane gives no final retry round."""
    outcomes, bodies, _ = salvage([MISHAP], [FATAL], rounds=1, width=1, threshold=1)
    assert all(isinstance(outcome, Failed) for outcome in outcomes)
    assert isinstance(outcomes[0], Failed)
    assert isinstance(outcomes[0].error, CallError)
    assert outcomes[0].error.fault is MISHAP
    assert len(bodies.starts[0]) == 1


def test_a_deadline_in_a_round_interrupts_one_and_leaves_the_others_failed() -> None:
    """DEADLINE: in a round the running job is interrupted, and the others keep their failures."""
    outcomes, _, _ = salvage([MISHAP], [MISHAP], [MISHAP], rounds=1, width=1, deadline=4.5)
    assert isinstance(outcomes[0], Failed)
    assert outcomes[0].calls == 2
    assert outcomes[1] == Interrupted(1, 4.0, 4.5, 0.0, 2, StopReason.DEADLINE)
    assert isinstance(outcomes[2], Failed)
    assert outcomes[2].calls == 1


def test_a_deadline_before_the_round_leaves_all_failures() -> None:
    """No job is rerun."""
    outcomes, _, _ = salvage([MISHAP], [None, None], [None], rounds=1, width=1, deadline=2.5)
    assert [type(outcome) for outcome in outcomes] == [Failed, Done, Interrupted]


def test_dependants_wait_for_a_job_that_is_set_aside() -> None:
    """BLOCK: a job that is set aside neither blocks nor releases its dependants."""
    edges: dict[int, Sequence[int | Edge]] = {1: [0], 2: [Edge(0, "always")]}
    outcomes, bodies, _ = salvage([MISHAP, None], [None], [None], rounds=1, edges=edges)
    assert [type(outcome) for outcome in outcomes] == [Done, Done, Done]
    assert bodies.starts == {0: [0.0, 1.0], 1: [2.0], 2: [2.0]}
    outcomes, bodies, _ = salvage([MISHAP], [None], [None], rounds=1, edges=edges)
    assert outcomes[1] == Blocked(1, 0)
    assert bodies.starts[2] == [2.0]


def test_a_serial_job_is_salvaged_before_the_next_one() -> None:
    """SERIAL: a serial job is salvaged before the next serial job."""
    outcomes, bodies, _ = salvage([MISHAP, None], [None], rounds=1, serial=True)
    assert [type(outcome) for outcome in outcomes] == [Done, Done]
    assert bodies.starts == {0: [0.0, 1.0], 1: [2.0]}


def test_a_negative_number_of_rounds_is_rejected() -> None:
    """The message names the argument."""
    with pytest.raises(
        PlanError, match="salvage_rounds must be a whole number of at least 0, got -1"
    ):
        salvage([None], rounds=-1)


@pytest.mark.parametrize(
    ("max_retries", "calls"), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 4), (None, 4)]
)
def test_max_retries_bounds_all_rounds_together(max_retries: int | None, calls: int) -> None:
    """ATTEMPTS: max_retries bounds the first run and all rounds together."""
    _, bodies, _ = salvage([MISHAP], rounds=2, retries=1, max_retries=max_retries)
    assert len(bodies.starts[0]) == calls
