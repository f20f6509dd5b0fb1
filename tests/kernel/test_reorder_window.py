"""The reorder window: how far jobs run ahead of what the consumer has taken."""

from collections.abc import Sequence

import attrs
import pytest
import trio

from trioeval.errors import PlanError
from trioeval.kernel import (
    Calls,
    Edge,
    Event,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    Readiness,
    ReadinessUpdate,
    Waiting,
    WaitReason,
    run_plan,
)
from trioeval.testing import run_virtual


@attrs.define
class Seen:
    """The result of a run: the greatest distance of a start from the emitted outcomes, and its end."""

    emitted: int = 0
    ahead: int = 0
    started: int = 0
    ended_at: float = 0.0
    events: list[Event] = attrs.field(factory=list)


def run_window(
    durations: Sequence[float], *, window: int | None, emit_takes: float = 0.0, lanes: str = "a"
) -> Seen:
    seen = Seen()

    async def body(job: Job[float], calls: Calls[float]) -> None:
        seen.started += 1
        seen.ahead = max(seen.ahead, job.index - seen.emitted + 1)
        await calls(job.lane, trio.sleep, job.payload)

    async def emit(outcome: Outcome[None]) -> None:
        await trio.sleep(emit_takes)
        seen.emitted = outcome.index + 1

    async def main() -> None:
        plan = Plan.of(Job(i, lanes[i % len(lanes)], one) for i, one in enumerate(durations))
        await run_plan(
            plan,
            body,
            lanes=Lanes([LaneSpec(name, 50) for name in lanes]),
            emit=emit,
            reorder_window=window,
            observe=seen.events.append,
        )
        seen.ended_at = trio.current_time()

    run_virtual(main)
    return seen


@pytest.mark.parametrize("lanes", ["a", "abc"])
@pytest.mark.parametrize("window", [1, 3, 10])
def test_jobs_run_no_further_ahead_than_the_window(window: int, lanes: str) -> None:
    """WIDTH of the window, over one lane and over several; all of it is used."""
    seen = run_window([9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], window=window, lanes=lanes)
    assert (seen.emitted, seen.started) == (12, 12)
    assert seen.ahead == window


def test_a_slow_consumer_delays_jobs_only_with_a_window() -> None:
    """The consumer takes 2 s for each of 8 outcomes: without a window all jobs start at once."""
    assert run_window([1] * 8, window=None, emit_takes=2.0).ahead == 8
    seen = run_window([1] * 8, window=2, emit_takes=2.0)
    assert (seen.ahead, seen.emitted) == (2, 8)


def test_a_wait_for_the_window_is_reported() -> None:
    """The report has its reason; its end is unknown."""
    waits = [e for e in run_window([3, 1], window=1).events if isinstance(e, Waiting)]
    assert Waiting(0.0, "a", WaitReason.WINDOW, None, None) in waits


class Ready(Readiness):
    """A readiness for which all jobs are ready."""

    def begin(self) -> Sequence[int]:
        return [0, 1]

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:  # noqa: ARG002 - it decides nothing
        return ReadinessUpdate()


JOBS = [Job(i, "a", 1.0) for i in range(2)]


@pytest.mark.parametrize(
    ("plan", "window", "message"),
    [
        (Plan.of(JOBS), 0, "reorder_window must be a whole number of at least 1, got 0"),
        (
            Plan.of(JOBS, edges={0: [Edge(1, "always")]}),
            2,
            "with a reorder window, jobs may only wait for earlier jobs; 0 waits for 1",
        ),
        (
            Plan(JOBS, {"a"}, readiness=Ready),
            2,
            "a reorder window requires a known order of jobs, but this plan has a readiness",
        ),
    ],
)
def test_a_window_that_could_never_move_is_rejected(
    plan: Plan[float], window: int, message: str
) -> None:
    """A job inside of it must not wait for one beyond it."""

    async def body(job: Job[float], calls: Calls[float]) -> None:
        await calls("a", trio.sleep, job.payload)

    async def emit(outcome: Outcome[None]) -> None:
        """Ignore an outcome."""

    async def main() -> None:
        lanes = Lanes([LaneSpec("a")])
        await run_plan(plan, body, lanes=lanes, emit=emit, reorder_window=window)

    with pytest.raises(PlanError) as caught:
        run_virtual(main)
    assert str(caught.value) == message


@pytest.mark.slow
def test_jobs_do_not_start_while_thousands_of_outcomes_wait_for_the_consumer() -> None:
    """A slow consumer bounds the memory of a run, and every job still runs."""
    size = 8_000
    seen = Seen()

    async def body(job: Job[None], calls: Calls[None]) -> None:
        seen.started += 1
        seen.ahead = max(seen.ahead, job.index - seen.emitted + 1)
        await calls(job.lane, trio.sleep, 0.001)

    async def emit(outcome: Outcome[None]) -> None:
        if outcome.index % 100 == 0:
            await trio.sleep(1)
        seen.emitted = outcome.index + 1

    async def main() -> None:
        plan = Plan.of(Job(i, "a", None) for i in range(size))
        await run_plan(plan, body, lanes=Lanes([LaneSpec("a", 50)]), emit=emit)

    run_virtual(main)
    assert seen.started == seen.emitted == size
    assert 4000 < seen.ahead < 5000
