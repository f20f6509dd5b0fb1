"""The metrics of a run in progress."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from trioeval.agent.bus.settings import LOCK_WAIT_BOUNDS, BusStats
from trioeval.agent.protocols import (
    AgentEvent,
    AttemptEnded,
    AttemptStarted,
    AttemptWaiting,
    CaseBlocked,
    CaseEnded,
    CaseQueued,
)
from trioeval.errors import ProviderError
from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Plan, collect
from trioeval.report.run_metrics import Distribution, MetricFamily, RunMetrics
from trioeval.testing import run_virtual


def event_of(kind: type[AgentEvent], case: str = "a", **details: Any) -> AgentEvent:
    about: dict[str, Any] = {"task": "t", "case": case, "agent": "coder", **details}
    return kind(at=0.0, **about)


def numbers(metrics: RunMetrics, now: float = 0.0) -> dict[str, float]:
    """Return every sample by name and labels, in order."""
    return {
        " ".join([family.name.removeprefix("trioeval_"), *labels]): number
        for family in metrics.families(now)
        if isinstance(family, MetricFamily)
        for labels, number in family.samples
    }


def agents_of(metrics: RunMetrics) -> dict[str, float]:
    """Return the samples of agents that are not 0."""
    names = ("agent", "planner")
    return {name: n for name, n in numbers(metrics).items() if n and name.startswith(names)}


def test_a_case_is_counted_in_its_last_reported_state() -> None:
    """A job counts from its first wait to its end; gauges return to 0, counters do not."""
    metrics = RunMetrics(0.0)
    steps: Sequence[tuple[AgentEvent, dict[str, float]]] = [
        (event_of(CaseBlocked, by=("b", "c")), {"agent_cases_blocked": 1}),
        (event_of(CaseBlocked, by=("c",)), {"agent_cases_blocked": 1}),
        (event_of(CaseBlocked, by=()), {}),
        (event_of(CaseQueued, position=3), {"planner_queued": 1}),
        (event_of(CaseQueued, position=0), {"planner_running": 1}),
        (event_of(AttemptWaiting, number=0), {"planner_running": 1, "agent_runs_waiting": 1}),
        (
            event_of(AttemptStarted, number=0, run_id="r"),
            {"planner_running": 1, "agent_runs_active": 1, "agent_runs_begun coder": 1},
        ),
        (
            event_of(AttemptEnded, number=0, run_id="r", failed=True),
            {"planner_running": 1, "agent_runs_begun coder": 1, "agent_runs_ended failed": 1},
        ),
        (
            event_of(CaseEnded, ending="failed"),
            {
                "agent_runs_begun coder": 1,
                "agent_runs_ended failed": 1,
                "agent_cases_ended failed": 1,
            },
        ),
    ]
    for event, wanted in steps:
        metrics.observe_agent(event)
        assert agents_of(metrics) == wanted


def test_an_interrupted_case_leaves_every_gauge() -> None:
    """Its end is the only event that ends its wait."""
    metrics = RunMetrics(0.0)
    for event in (
        event_of(CaseBlocked, "a", by=("x",)),
        event_of(CaseQueued, "b", position=1),
        event_of(AttemptWaiting, "c", number=0),
    ):
        metrics.observe_agent(event)
        metrics.observe_agent(event_of(CaseEnded, event.case, ending="interrupted"))
    assert agents_of(metrics) == {"agent_cases_ended interrupted": 3}


ATTEMPTS = st.lists(
    st.tuples(st.sampled_from("xyz"), st.booleans(), st.booleans(), st.booleans()), max_size=12
)


@given(ATTEMPTS)
def test_started_attempts_are_active_or_ended(
    attempts: Sequence[tuple[str, bool, bool, bool]],
) -> None:
    """A call ends in one of three ways; an interrupted call did not fail."""
    metrics, ended = RunMetrics(0.0), Counter[str]()
    for number, (agent, is_over, failed, cancelled) in enumerate(attempts):
        about: dict[str, Any] = {"agent": agent, "number": number, "run_id": str(number)}
        metrics.observe_agent(event_of(AttemptStarted, **about))
        if is_over:
            metrics.observe_agent(
                event_of(AttemptEnded, **about, failed=failed, cancelled=cancelled)
            )
            ended["cancelled" if cancelled else "failed" if failed else "completed"] += 1
    found = numbers(metrics)
    over = {
        name: found[f"agent_runs_ended {name}"] for name in ("completed", "failed", "cancelled")
    }
    assert over == {name: ended[name] for name in over}
    started = {name: n for name, n in found.items() if name.startswith("agent_runs_begun")}
    assert [*started] == sorted(started)
    assert sum(started.values()) == sum(over.values()) + found["agent_runs_active"]


def test_calls_of_lanes_are_counted_by_their_end() -> None:
    """Calls in flight and ended calls add up to started ones; refusals are separate."""
    seen: list[dict[str, float]] = []

    async def main() -> None:
        lanes = Lanes([LaneSpec("b", 2), LaneSpec("a", 3)])
        metrics = RunMetrics(trio.current_time(), lanes=lanes.statistics)

        async def answer(index: int) -> None:
            await trio.sleep(1 + index)
            if index == 1:
                raise ProviderError("bad_request", "no")
            if index == 2:
                raise ProviderError("rate_limited", "slow down", retry_after=60)

        async def ask(job: Job[int], calls: Calls[int]) -> None:
            await calls(job.lane, answer, job.payload)

        async def watch() -> None:
            await trio.sleep(0.5)
            seen.append(numbers(metrics, trio.current_time()))

        plan = Plan.of([Job(index, "b" if index == 2 else "a", index) for index in range(4)])
        deadline = trio.current_time() + 3.5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await collect(plan, ask, lanes=lanes, observe=metrics.observe, deadline=deadline)
        seen.append(numbers(metrics, trio.current_time()))

    run_virtual(main)
    during, after = seen
    assert (during["uptime_seconds"], during["lane_in_flight a"]) == (0.5, 3)
    assert (during["lane_in_flight b"], during["lane_limit b"]) == (1, 2)
    assert {name: n for name, n in after.items() if name.startswith("lane_calls")} == {
        "lane_calls a succeeded": 1,
        "lane_calls a failed": 1,
        "lane_calls a cancelled": 1,
        "lane_calls b succeeded": 0,
        "lane_calls b failed": 1,
        "lane_calls b cancelled": 0,
    }
    throttled = [after[f"lane_throttled {lane}"] for lane in "ab"]
    assert (after["lane_in_flight a"], throttled) == (0, [0, 1])


def test_the_order_of_metric_families_is_fixed() -> None:
    """Metrics have a fixed order, also before any event."""
    first, second = RunMetrics(0.0), RunMetrics(0.0)
    events = [
        event_of(AttemptStarted, agent=agent, number=0, run_id=agent) for agent in ("z", "a", "m")
    ]
    for event in events:
        first.observe_agent(event)
    for event in reversed(events):
        second.observe_agent(event)
    assert [*first.families(1.0)] == [*second.families(1.0)]
    assert [one.name for one in RunMetrics(0.0).families(1.0)] == [
        one.name for one in first.families(1.0)
    ]


WAITS = st.lists(st.floats(0, 20) | st.sampled_from(LOCK_WAIT_BOUNDS[:-1]), max_size=20)


@given(st.lists(WAITS, max_size=4))
def test_lock_waits_are_counted_by_duration(several: list[list[float]]) -> None:
    """Waits of all writers are in one histogram, each in the first bound that it does not exceed."""
    total = BusStats()
    for waits in several:
        total.appends += len(waits)
        for seconds in waits:
            total.waited(seconds)
    every = [seconds for waits in several for seconds in waits]
    (found,) = [
        one for one in RunMetrics(0.0, buses=total).families(0.0) if isinstance(one, Distribution)
    ]
    below = (-math.inf, *found.bounds)
    assert found.bounds[-1] == math.inf
    assert [*found.counts] == [
        sum(least < seconds <= most for seconds in every)
        for least, most in zip(below, found.bounds, strict=False)
    ]
    assert math.isclose(found.total, sum(every), abs_tol=1e-9)
    assert numbers(RunMetrics(0.0, buses=total))["bus_appends"] == len(every)
    assert total.longest_lock_wait_s == max(every, default=0)
