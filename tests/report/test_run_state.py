"""The state of a running run: the calls and waits of each lane."""

import json
from collections.abc import Callable

import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Plan, WaitReason, collect
from trioeval.report.activity import Activity
from trioeval.report.run_state import LaneState, RunSnapshot, lane_states
from trioeval.testing import run_virtual


def states_at(
    moments: list[float],
    spec: LaneSpec,
    durations: list[float],
    *,
    fault: Fault | None = None,
    change: Callable[[Lanes], None] = lambda _lanes: None,
) -> list[LaneState]:
    """Return the states of a lane at some instants."""

    async def main() -> list[LaneState]:
        lanes, activity = Lanes([spec, LaneSpec("own")]), Activity(trio.current_time())
        found: list[LaneState] = []

        async def take(job: Job[float], calls: Calls[float]) -> None:
            async def send() -> None:
                await trio.sleep(job.payload)
                if fault is not None:
                    raise CallError(fault, "says no")

            await calls("a", send, tokens=50)

        async def run() -> None:
            plan = Plan.of(Job(i, "a", seconds) for i, seconds in enumerate(durations))
            await collect(plan, take, lanes=lanes, observe=activity.observe)

        change(lanes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            for at in moments:
                await trio.sleep_until(at)
                (state,) = lane_states(
                    lanes.statistics(), activity, trio.current_time(), hidden={"own"}
                )
                found.append(state)
            nursery.cancel_scope.cancel()
        return found

    return run_virtual(main)


def test_a_lane_reports_the_reason_and_duration_of_its_wait() -> None:
    """Six calls a minute: after the first call the next one waits nine seconds."""
    first, later, minute = states_at([1.5, 4.0, 62.5], LaneSpec("a", 2, rpm=6, tpm=6000), [1.0] * 3)
    assert (first.why, first.wait_s, first.mood) == (WaitReason.PACE, 8.5, "open")
    assert (later.wait_s, later.queued, later.in_flight) == (6.0, 1, 0)
    assert (later.used_rpm, later.used_tpm, later.calls, later.tokens) == (1, 50, 1, 50)
    assert (later.rpm, later.tpm, later.max_concurrency, later.limit) == (6, 6000, 2, 2)
    assert (minute.why, minute.wait_s, minute.used_rpm, minute.calls) == (None, None, 2, 3)


def test_a_paused_or_closed_lane_is_reported() -> None:
    """A paused lane has no known end of its wait."""
    (paused,) = states_at([3.0], LaneSpec("a"), [1.0], change=lambda lanes: lanes["a"].pause())
    assert (paused.mood, paused.limit, paused.why, paused.wait_s) == (
        "paused",
        0,
        WaitReason.PAUSED,
        None,
    )
    spec = LaneSpec("a", 1, breaker_threshold=1)
    (closed,) = states_at([3.0], spec, [1.0] * 3, fault=Fault.FATAL)
    assert (closed.mood, closed.limit, closed.reason) == (
        "closed",
        0,
        "1 calls in a row were refused: says no",
    )
    assert (closed.why, closed.wait_s) == (None, None)


def test_a_recovering_lane_is_reported_as_probing() -> None:
    """Refused calls are counted, and the wait for the end of the block is shown."""

    def spec() -> LaneSpec:
        return LaneSpec("a", 4)

    (state,) = states_at([20.0], spec(), [0.5] * 4, fault=Fault.RATE_LIMITED)
    assert state.mood in ("open", "probing")
    assert state.refused >= 4
    assert state.refused == state.calls - state.in_flight


def test_the_state_can_be_sent_as_json() -> None:
    """Every key is present, and numbers are finite."""
    (lane,) = states_at([1.5], LaneSpec("a", rpm=6), [1.0] * 2)
    run = RunSnapshot(
        elapsed_s=1.5,
        total=2,
        done=1,
        kept=0,
        passed=1,
        failed=0,
        errors=0,
        eta_s=None,
        stopping=False,
        lanes=(lane, lane),
    )
    data = json.loads(json.dumps(run.json(), allow_nan=False))
    assert (data["done"], data["tokens"], data["lanes"][0]["why"]) == (1, 100, "pace")
    assert (run.pass_rate, run.cost) == (100.0, 0.0)
