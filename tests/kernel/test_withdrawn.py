"""The effect of a stop on jobs that wait for the permit of their first request."""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.errors import Fault, TooLateError
from trioeval.kernel import (
    Calls,
    Done,
    Failed,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    Shortage,
    StopReason,
    collect,
)
from trioeval.testing import (
    AttemptScript,
    CallScript,
    JobScript,
    Pause,
    RunScenario,
    RunTrace,
    SharedLimitScript,
    Together,
    check_all,
    run_scenario,
    run_side_by_side,
    run_virtual,
)

DAY = 86400.0


def seen(scenario: RunScenario) -> RunTrace:
    """Return the trace of a run that keeps every law."""
    trace = run_scenario(scenario)
    check_all(trace)
    return trace


def stopped(*scripts: JobScript, room: int = 1, lasts: float = DAY, **more: Any) -> RunTrace:
    """Return the outcomes of jobs on an exhausted shared limit in a run stopped after 3 s."""
    limit = SharedLimitScript(("a",), room=room, lasts=lasts)
    scenario = RunScenario((LaneSpec("a"), LaneSpec("b")), scripts, shared=(limit,), stop_at=3.0)
    return seen(attrs.evolve(scenario, **more))


def endings(trace: RunTrace) -> list[tuple[str, float]]:
    """Return the ends of jobs, with the instants of those that were started."""
    outcomes = [emission.outcome for emission in trace.emissions]
    return [(type(one).__name__, getattr(one, "finished_at", -1.0)) for one in outcomes]


def script(*actions: CallScript | Pause | Together, lane: str = "a") -> JobScript:
    """Return the script of one job."""
    return JobScript(lane, actions)


ONE = script(CallScript("a", 1.0))


def test_a_stop_does_not_wait_for_a_shared_limit() -> None:
    """A stop ends the run at once if no job has made a request."""
    trace = stopped(ONE, ONE, ONE, room=2)
    assert trace.ended_at == 3.0
    assert [emission.outcome for emission in trace.emissions][2] == Interrupted(
        2, 0.0, 3.0, waited=3.0, calls=0, cut=StopReason.STOP
    )
    assert [lent.index for lent in trace.permits] == [0, 1]


def test_all_waiting_jobs_are_withdrawn() -> None:
    """All without a request are withdrawn, not only the first."""
    late = script(Pause(0.5), CallScript("a", 1.0))
    trace = stopped(ONE, late, late, late)
    assert endings(trace) == [("Done", 1.0)] + [("Interrupted", 3.0)] * 3


@pytest.mark.parametrize("room", [1, 9])
def test_no_first_request_after_a_stop_asks_for_a_permit(room: int) -> None:
    """This holds whether a permit is available or not."""
    trace = stopped(ONE, script(Pause(5.0), CallScript("a", 1.0)), room=room)
    assert endings(trace) == [("Done", 1.0), ("Interrupted", 5.0)]
    assert [lent.index for lent in trace.permits] == [0]


def test_a_job_that_has_made_a_request_continues() -> None:
    """It waits for its next permit."""
    trace = stopped(script(CallScript("a", 1.0), CallScript("a", 1.0)), ONE, lasts=10.0)
    assert endings(trace) == [("Done", 11.0), ("Interrupted", 3.0)]


@pytest.mark.parametrize("pause", [0.0, 4.0])
def test_a_request_on_another_lane_counts(pause: float) -> None:
    """It counts as a request of the job."""
    scripts = (ONE, script(CallScript("b", 1.0), Pause(pause), CallScript("a", 1.0), lane="b"))
    assert endings(stopped(*scripts, lasts=10.0)) == [("Done", 1.0), ("Done", 11.0)]


def test_a_retry_continues_after_a_stop() -> None:
    """It waits for its permit."""
    mishap = CallScript(
        "a", 0.0, attempts=(AttemptScript(1.0, Fault.TRANSIENT), AttemptScript(1.0))
    )
    assert endings(stopped(script(mishap), lasts=10.0)) == [("Done", 11.0)]


def test_a_job_is_not_withdrawn_while_another_request_of_it_is_in_flight() -> None:
    """A job with a request in flight is not withdrawn."""
    both = script(Together((CallScript("a", 1.0), CallScript("b", 5.0))))
    assert endings(stopped(ONE, both, lasts=10.0)) == [("Done", 1.0), ("Done", 11.0)]


def test_lanes_without_permits_serve_running_jobs_after_a_stop() -> None:
    """Only the wait for a permit withdraws a job."""
    soon, late = (script(Pause(delay), CallScript("b", 1.0), lane="b") for delay in (1.0, 1.5))
    trace = stopped(soon, late, lanes=(LaneSpec("a"), LaneSpec("b", rpm=10)))
    assert endings(trace) == [("Done", 2.0), ("Done", 8.0)]


def test_a_serial_job_is_withdrawn_too() -> None:
    """It releases the gate."""
    trace = stopped(ONE, ONE, ONE, serial=True)
    assert endings(trace) == [("Done", 1.0), ("Interrupted", 3.0), ("NotRun", -1.0)]


def test_a_rerun_job_is_withdrawn_if_its_rerun_has_made_no_request() -> None:
    """Earlier usage is reported."""
    mishap = CallScript("a", 0.0, attempts=(AttemptScript(1.0, Fault.TRANSIENT),))
    trace = stopped(script(mishap), lanes=(LaneSpec("a", retries=0),), salvage_rounds=1)
    assert [emission.outcome for emission in trace.emissions] == [
        Interrupted(0, 1.0, 3.0, waited=2.0, calls=1, cut=StopReason.STOP)
    ]


@settings(max_examples=30)
@given(_schedule=st.random_module())
def test_a_withdrawn_job_makes_no_request_on_other_lanes(_schedule: object) -> None:
    """It has ended for all lanes."""
    trace = stopped(ONE, script(CallScript("a", 1.0, patience=3.0), CallScript("b", 1.0)))
    lanes = [call.lane for call in trace.calls if call.index == 1]
    assert (lanes, endings(trace)[1]) in [([], ("Interrupted", 3.0)), (["b"], ("Done", 4.0))]


def test_another_run_on_the_same_lanes_gets_its_permits() -> None:
    """A stop affects its own run only."""
    limit = SharedLimitScript(("a",), room=1, lasts=10.0)
    plain = RunScenario((LaneSpec("a"),), (ONE,), shared=(limit,))
    ends = {
        stop_at: [
            endings(trace)
            for trace in run_side_by_side(
                [
                    plain,
                    attrs.evolve(plain, start_at=0.25, stop_at=stop_at),
                    attrs.evolve(plain, start_at=0.5),
                ]
            )
        ]
        for stop_at in (3.0, math.inf)
    }
    assert ends[3.0] == [[("Done", 1.0)], [("Interrupted", 3.0)], [("Done", 11.0)]]
    assert ends[math.inf] == [[("Done", 1.0)], [("Done", 11.0)], [("Done", 21.0)]]


@attrs.define(eq=False)
class Desk:
    """Permits that are granted when the test releases them, with counts of their ends."""

    granted: trio.Event = attrs.field(factory=trio.Event)
    settled: int = 0
    given_back: int = 0

    def take_nowait(self, index: int, tokens: int, money: float) -> None:
        """Grant nothing at once."""

    async def take(
        self, _index: int, _tokens: int, _money: float, _told: Callable[[Shortage], None]
    ) -> "Desk":
        """Grant when released."""
        await self.granted.wait()
        return self

    def settle(self, tokens: int, money: float) -> None:  # noqa: ARG002
        """Count a settlement."""
        self.settled += 1

    def give_back(self) -> None:
        """Count a return."""
        self.given_back += 1


def granted_and_stopped(
    body: Callable[[Job[None], Calls[None]], Awaitable[None]],
    *,
    stop_first: bool = True,
    between: float = 0.0,
) -> tuple[Outcome[None], Desk]:
    """Return the end of a job whose permit and stop come in one step, or some seconds apart."""

    async def main() -> tuple[Outcome[None], Desk]:
        desk, stop = Desk(), trio.Event()
        lanes = Lanes([LaneSpec("a")], permits={"a": desk})
        outcomes: list[Outcome[None]] = []

        async def run() -> None:
            plan = Plan.of([Job(0, "a", None)])
            outcomes.extend(await collect(plan, body, lanes=lanes, stop=stop))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.sleep(1)
            first, second = (stop, desk.granted) if stop_first else (desk.granted, stop)
            first.set()
            if between:
                await trio.sleep(between)
            second.set()
        return outcomes[0], desk

    return run_virtual(main)


async def call_once(_job: Job[None], calls: Calls[None]) -> None:
    """Make one call of two seconds."""
    await calls("a", trio.sleep, 2)


@settings(max_examples=40)
@given(stop_first=st.booleans(), _schedule=st.random_module())
def test_a_permit_granted_in_the_step_of_the_stop_is_used_or_returned(
    *, stop_first: bool, _schedule: object
) -> None:
    """LEASE: it does not get lost."""
    outcome, desk = granted_and_stopped(call_once, stop_first=stop_first)
    assert (type(outcome), desk.settled, desk.given_back) in {
        (Done, 1, 0),
        (Interrupted, 0, 1),
        (Interrupted, 0, 0),
    }
    assert getattr(outcome, "calls", None) == desk.settled


def test_a_shielded_body_of_a_withdrawn_job_gets_a_too_late_error() -> None:
    """The error is raised by its call."""

    async def shielded(_job: Job[None], calls: Calls[None]) -> None:
        with trio.CancelScope(shield=True):
            await call_once(_job, calls)

    outcome, desk = granted_and_stopped(shielded, between=1.0)
    assert isinstance(outcome, Failed), outcome
    assert isinstance(outcome.error, TooLateError)
    assert outcome.calls == desk.settled == 0
    assert desk.given_back == 1
