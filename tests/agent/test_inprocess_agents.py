"""Agents that are functions, on a real lane of the kernel and a virtual clock."""

import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_bench import failed

from trioeval.agent.in_process import AgentCase, AgentFunction, AgentRun, run_agents
from trioeval.agent.loop import LoopEnd
from trioeval.agent.protocols import (
    AgentEvent,
    AttemptContinued,
    AttemptEnded,
    AttemptStarted,
    AttemptWaiting,
    RunIds,
)
from trioeval.agent.restarts import AttemptEnd, RestartPolicy
from trioeval.errors import CallError, Fault, TooLateError, UsageError
from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Plan, collect
from trioeval.testing import run_virtual

LANE = "agent runs"
AT_ONCE = RestartPolicy(delay=0)


def slots(width: int) -> Lanes:
    return Lanes([LaneSpec(LANE, max_concurrency=width, adaptive="off")])


def working(
    seconds: float, spans: list[tuple[str, float, float]] | None = None, name: str = ""
) -> AgentFunction:
    """An agent that works for a while and is then done."""

    async def work(run: AgentRun) -> None:
        began_at = trio.current_time()
        await trio.sleep(seconds)
        run.done()
        if spans is not None:
            spans.append((name, began_at, trio.current_time()))

    return work


def ids() -> RunIds:
    return RunIds("f00d", lambda: datetime(2026, 1, 15, tzinfo=UTC))


def run(
    cases: Sequence[AgentCase], width: int, **more: Any
) -> tuple[list[LoopEnd], list[AgentEvent], float]:
    """The ends, the events, and the duration."""
    events: list[AgentEvent] = []

    async def main() -> tuple[list[LoopEnd], list[AgentEvent], float]:
        lanes = more.pop("lanes", slots(width))
        ends = await run_agents(cases, lanes=lanes, run_ids=ids(), observe=events.append, **more)
        assert lanes[LANE].statistics().in_flight == 0
        return ends, events, trio.current_time()

    return run_virtual(main)


def starts(events: Sequence[AgentEvent]) -> list[tuple[str, float]]:
    """The case, or the child, of each attempt, and its start time."""
    found = [event for event in events if isinstance(event, AttemptStarted)]
    return [(event.case, event.at) for event in found]


def test_ag_20_without_a_limit_no_agent_waits() -> None:
    """A hundred start at once."""
    cases = [AgentCase(f"c{number}", working(5), "Do it.") for number in range(100)]
    ends, events, seconds = run(cases, 10**6)
    assert seconds == 5
    assert {at for _case, at in starts(events)} == {0.0}
    assert not [event for event in events if isinstance(event, AttemptWaiting)]
    assert {end.ending for end in ends} == {"done"}


def test_ag_21_with_one_slot_agents_run_one_after_another() -> None:
    """They run in the order of the cases."""
    cases = [AgentCase(name, working(5), "Do it.") for name in "abc"]
    _ends, events, seconds = run(cases, 1)
    assert starts(events) == [("a", 0.0), ("b", 5.0), ("c", 10.0)]
    assert seconds == 15


@pytest.mark.parametrize("cancel_at", [3.0, 10.0])
def test_ag_22_and_23_a_cancelled_waiter_leaves_the_slot_to_the_next(
    cancel_at: float,
) -> None:
    """It is cancelled while it waits, or in the very instant in which the slot is released."""
    reached: list[tuple[str, float]] = []

    async def parent(run: AgentRun) -> None:
        async def child(_run: AgentRun) -> None:
            await trio.lowlevel.checkpoint()
            reached.append(("first", trio.current_time()))

        async def other(_run: AgentRun) -> None:
            await trio.lowlevel.checkpoint()
            reached.append(("second", trio.current_time()))

        first = await run.start_child(child, "first")
        await run.start_child(other, "second")
        await trio.sleep(cancel_at)
        first.cancel()
        await trio.sleep(10 - cancel_at)  # the slot is held until here
        ends = await run.wait_children()
        assert ends[1].failure is None
        assert (ends[0].failure is not None) == (reached[0][0] == "second")
        run.done()

    ends, _events, seconds = run([AgentCase("a", parent, "Do it.")], 1)
    assert (ends[0].message, seconds) == ("done after 1 attempt", 10)
    assert reached == [("second", 10.0)]


def test_ag_24_a_cancelled_caller_takes_no_slot() -> None:
    """No attempt starts, and no slot is missing."""

    async def main() -> list[AgentEvent]:
        events: list[AgentEvent] = []
        lanes = slots(1)
        with trio.CancelScope() as scope:
            scope.cancel()
            cases = [AgentCase("a", working(5), "Do it.")]
            await run_agents(cases, lanes=lanes, observe=events.append)
        assert lanes[LANE].statistics().started == 0
        return events

    assert starts(run_virtual(main)) == []


def test_ag_25_an_attempt_that_raises_releases_its_slot() -> None:
    """It releases the slot also if it raises after a wait, or during one."""

    async def raises(run: AgentRun) -> None:
        await trio.sleep(1)
        if run.attempt.number == 1:
            async with run.waiting():
                raise OSError("in a wait")
        if run.attempt.number == 2:
            async with run.waiting():
                await trio.sleep(1)
        raise ValueError("no")

    policy = RestartPolicy(max_attempts=3, delay=0)
    cases = [AgentCase("a", raises, "Do it.", policy=policy), AgentCase("b", working(1), "Do it.")]
    ends, _events, seconds = run(cases, 1)
    assert [end.ending for end in ends] == ["failed", "done"]
    assert [attempt.failure and attempt.failure.message for attempt in ends[0].attempts] == [
        "ValueError: no",
        "OSError: in a wait",
        "ValueError: no",
    ]
    assert ends[0].attempts[2].duration_s == 2
    assert seconds == 5  # the second case has its turn after the first attempt


def test_ag_26_only_waiting_runs_are_reported() -> None:
    """One that gets its slot at once does not wait; the lane's counter agrees."""

    async def main() -> tuple[list[AgentEvent], list[int]]:
        lanes, waiting = slots(1), list[int]()
        events: list[AgentEvent] = []

        async def look() -> None:
            for instant in (2.5, 7.5):
                await trio.sleep_until(instant)
                waiting.append(lanes[LANE].statistics().waiting)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            cases = [
                AgentCase("a", child_and(5), "Do it."),
            ]
            await run_agents(cases, lanes=lanes, observe=events.append)
        return events, waiting

    def child_and(seconds: float) -> AgentFunction:
        async def parent(run: AgentRun) -> None:
            await run.start_child(working(5), "child")
            await trio.sleep(seconds)
            await run.wait_children()
            run.done()

        return parent

    events, waiting = run_virtual(main)
    waits = [(event.agent, event.at) for event in events if isinstance(event, AttemptWaiting)]
    assert waits == [("child", 0.01)]
    assert waiting == [1, 0]
    starts_at = [(e.agent, e.at) for e in events if isinstance(e, AttemptStarted)]
    assert starts_at == [("parent", 0.0), ("child", 5.0)]


def test_ag_27_with_one_slot_a_parent_can_wait_for_its_child() -> None:
    """It holds no slot meanwhile, and has one again before it continues."""
    lanes = slots(1)
    seen: list[tuple[str, int]] = []

    async def child(run: AgentRun) -> str:
        seen.append((f"child {run.prompt}", lanes[LANE].statistics().in_flight))
        await trio.sleep(3)
        return "grown up"

    async def parent(run: AgentRun) -> AttemptEnd:
        await trio.sleep(1)
        (end,) = await run.wait_children(await run.start_child(child, "child", "Grow."))
        seen.append((f"parent {end.output}", lanes[LANE].statistics().in_flight))
        await trio.sleep(1)
        run.done()
        return end

    ends, _events, seconds = run([AgentCase("a", parent, "Do it.")], 1, lanes=lanes)
    assert seen == [("child Grow.", 1), ("parent grown up", 1)]
    assert (ends[0].ending, ends[0].attempts[0].output, seconds) == ("done", "grown up", 5)


def test_children_are_named_and_waits_to_continue_are_reported() -> None:
    """A child is named after its case; a parent that gets its slot back at once reports no wait."""

    async def parent(run: AgentRun) -> None:
        await run.start_child(working(1), "child")
        async with run.waiting():
            await trio.sleep(0.5)
        await run.start_child(working(1), "child")
        await run.wait_children()
        run.done()

    _ends, events, _seconds = run([AgentCase("a", parent, "Do it.")], 1)
    reported = [(type(e), e.case, e.at) for e in events if not isinstance(e, AttemptEnded)]
    assert reported[:-1] == [
        (AttemptStarted, "a", 0),
        (AttemptStarted, "a/child", 0),
        (AttemptWaiting, "a", 0.51),
        (AttemptContinued, "a", 1),
        (AttemptStarted, "a/child#2", 1),
    ]


def test_ag_28_more_slots_are_used_at_once() -> None:
    """Three more start in the instant in which the lane is widened."""
    lanes = slots(2)

    async def main() -> list[AgentEvent]:
        events: list[AgentEvent] = []

        async def widen() -> None:
            await trio.sleep(3)
            lanes[LANE].max_concurrency = 5

        async with trio.open_nursery() as nursery:
            nursery.start_soon(widen)
            cases = [AgentCase(f"c{number}", working(10), "Do it.") for number in range(7)]
            await run_agents(cases, lanes=lanes, observe=events.append)
        return events

    assert [at for _case, at in starts(run_virtual(main))] == [0, 0, 3, 3, 3, 10, 10]


def test_a_continuing_run_precedes_new_root_runs() -> None:
    """One that has waited long enough passes those that have not started; so do its children."""
    order: list[tuple[str, float]] = []

    async def parent(run: AgentRun) -> None:
        async with run.waiting():
            await trio.sleep(0.5)
            await run.start_child(other, "child")
            await trio.sleep(2.5)  # meanwhile one of the others has joined the queue
        order.append(("parent", trio.current_time()))
        await trio.sleep(1)
        run.done()

    async def other(run: AgentRun) -> None:
        order.append((run.attempt.task_prompt, trio.current_time()))
        await trio.sleep(2)
        run.done()

    cases = [AgentCase("a", parent, "child")]
    cases += [AgentCase(f"b{number}", other, "other") for number in range(3)]
    run(cases, 1)
    assert order == [("other", 0), ("child", 2), ("parent", 4), ("other", 5), ("other", 7)]


def test_a_case_in_its_delay_does_not_prevent_others_from_starting() -> None:
    """It holds no slot, and is not counted among the live jobs."""
    cases = [
        AgentCase(f"c{number}", slow_twice, "Do it.", policy=RestartPolicy(delay=1000))
        for number in range(300)
    ]
    ends, _events, seconds = run(cases, 1)
    assert {end.ending for end in ends} == {"done"}
    assert seconds < 1400


async def slow_twice(run: AgentRun) -> None:
    await trio.sleep(1)
    if run.attempt.number:
        run.done()


def test_a_timeout_around_a_wait_does_not_lose_a_slot() -> None:
    """After the timeout the agent holds a slot again, and waits for it if necessary."""
    lanes = slots(1)
    in_flight: list[tuple[float, int]] = []

    async def impatient(run: AgentRun) -> None:
        await run.start_child(working(20), "child")
        with trio.move_on_after(5) as scope:
            await run.wait_children()
        assert scope.cancelled_caught
        in_flight.append((trio.current_time(), lanes[LANE].statistics().in_flight))
        run.done()

    ends, _events, _seconds = run([AgentCase("a", impatient, "Do it.")], 1, lanes=lanes)
    assert ends[0].ending == "done"
    assert in_flight == [(20.0, 1)]


def test_a_slot_is_held_until_a_cancelled_agent_has_cleaned_up() -> None:
    """Running agents still count."""
    lanes = slots(1)
    in_flight: list[int] = []

    async def main() -> None:
        async def untidy(_run: AgentRun) -> None:
            try:
                await trio.sleep(100)
            finally:
                with trio.move_on_after(3, shield=True):
                    await trio.sleep(2)
                    in_flight.append(lanes[LANE].statistics().in_flight)

        with trio.move_on_after(10):
            await run_agents([AgentCase("a", untidy, "Do it.")], lanes=lanes)
        assert trio.current_time() == 12

    run_virtual(main)
    assert in_flight == [1]
    assert lanes[LANE].statistics().in_flight == 0


def test_children_survive_restarts_and_end_with_their_case() -> None:
    """They are awaited when the task is done, and then ended; none can be started afterwards."""
    late: list[str] = []

    async def clings(run: AgentRun) -> None:
        try:
            await trio.sleep(1000)
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await run.start_child(clings, "late")
                except TooLateError as error:
                    late.append(str(error))

    async def parent(run: AgentRun) -> None:
        if run.attempt.number == 0:
            await run.start_child(clings, "clings")
            await run.start_child(working(3), "short")
        else:
            run.done()
        await trio.sleep(1)

    case = AgentCase("a", parent, "Do it.", policy=AT_ONCE, child_timeout=10)
    ends, _events, seconds = run([case], 9)
    assert (ends[0].ending, ends[0].children_ended, seconds) == ("done", 1, 12)
    assert late == ["the child 'late' cannot start: its case has ended"]


def test_a_failing_child_fails_alone() -> None:
    """Its parent gets the failure; also that of a child that was ended."""

    async def parent(run: AgentRun) -> None:
        async def raises(_run: AgentRun) -> None:
            await trio.lowlevel.checkpoint()
            raise KeyError("no")

        bad = await run.start_child(raises, "bad")
        long = await run.start_child(working(100), "long")
        (end,) = await run.wait_children(bad)
        assert end.failure is not None
        assert end.failure.message == "KeyError: 'no'"
        long.cancel()
        (end,) = await run.wait_children(long)
        assert end.failure is not None
        assert end.failure.kind == "killed"
        run.done()

    ends, _events, _seconds = run([AgentCase("a", parent, "Do it.")], 2)
    assert [attempt.failure for attempt in ends[0].attempts] == [None]


def test_attempts_are_linked_and_their_ids_sort() -> None:
    """This holds across restarts, and with children in between."""
    seen: list[tuple[str, str | None]] = []

    async def agent(run: AgentRun) -> None:
        seen.append((run.attempt.run_id, run.attempt.previous_run_id))
        await run.wait_children(await run.start_child(working(1), "child"))
        if len(seen) == 3:
            run.done()

    run([AgentCase("a", agent, "Do it.", policy=AT_ONCE)], 1)
    own = [run_id for run_id, _previous in seen]
    assert own == sorted(own)
    assert [previous for _run_id, previous in seen] == [None, *own[:-1]]
    assert own[0] == "20260115-0000000000-f00d-000000"


def test_a_stop_lets_attempts_finish_with_their_children() -> None:
    """No further attempt starts, and a case that never started reports this."""

    async def main() -> list[LoopEnd]:
        stop = trio.Event()

        async def agent(run: AgentRun) -> None:
            await trio.sleep(2)
            stop.set()
            await run.wait_children(await run.start_child(working(1), "child"))

        cases = [AgentCase("a", agent, "Do it."), AgentCase("b", working(1), "Do it.")]
        return await run_agents(cases, lanes=slots(1), stop=stop)

    first, second = run_virtual(main)
    assert (first.ending, first.message) == ("interrupted", "interrupted after 1 attempt")
    assert [end.failure for end in first.attempts] == [None]
    assert (second.ending, second.message) == ("interrupted", "not started")


def test_completed_work_is_reported_after_cancellation() -> None:
    """Cases are reported in order, each once."""
    reports: list[tuple[str, str, int]] = []

    async def emit(case: AgentCase, end: LoopEnd) -> None:
        await trio.lowlevel.checkpoint()
        reports.append((case.name, end.message, len(end.attempts)))

    async def main() -> None:
        cases = [
            AgentCase("a", slow_twice, "Do it.", policy=RestartPolicy(delay=60)),
            AgentCase("b", working(1), "Do it."),
            AgentCase("c", working(100), "Do it."),
            AgentCase("d", working(100), "Do it."),
        ]
        with trio.move_on_after(10):
            await run_agents(cases, lanes=slots(1), emit=emit)

    run_virtual(main)
    assert reports == [
        ("a", "interrupted", 1),
        ("b", "done after 1 attempt", 1),
        ("c", "interrupted", 0),
        ("d", "not started", 0),
    ]


def test_a_closed_lane_ends_agents_that_want_to_continue() -> None:
    """The agent is cancelled in its wait, its child has ended, and the case reports the reason."""
    lanes = Lanes([LaneSpec(LANE, max_concurrency=1, breaker_threshold=1)])
    cleaned: list[float] = []

    async def refuse() -> None:
        await trio.sleep(1)
        raise CallError(Fault.FATAL, "the key is refused")

    async def ask(_job: Job[None], calls: Calls[None]) -> None:
        await calls(LANE, refuse)

    async def parent(run: AgentRun) -> None:
        try:
            async with run.waiting():
                await collect(Plan.of([Job(0, LANE, None)]), ask, lanes=lanes)
        finally:
            cleaned.append(trio.current_time())

    ends, _events, _seconds = run([AgentCase("a", parent, "Do it.")], 1, lanes=lanes)
    assert ends[0].ending == "interrupted"
    assert ends[0].message.startswith("LaneClosedError: lane 'agent runs' is closed")
    assert cleaned == [1.0]


def test_a_child_that_never_gets_a_slot_ends_with_the_reason() -> None:
    """Its parent may continue without it."""
    lanes = Lanes([LaneSpec(LANE, max_concurrency=2, breaker_threshold=1)])

    async def refuse() -> None:
        await trio.sleep(1)
        raise CallError(Fault.FATAL, "the key is refused")

    async def ask(_job: Job[None], calls: Calls[None]) -> None:
        await calls(LANE, refuse)

    async def parent(run: AgentRun) -> str:
        await collect(Plan.of([Job(0, LANE, None)]), ask, lanes=lanes)
        child = await run.start_child(working(1), "child")
        end = await child.wait()
        assert end.failure is not None
        run.done()
        return end.failure.message

    ends, events, _seconds = run([AgentCase("a", parent, "Do it.")], 2, lanes=lanes)
    assert ends[0].ending == "done"
    assert ends[0].attempts[0].output.startswith("LaneClosedError: lane 'agent runs' is closed")
    assert len(starts(events)) == 1


def test_nested_waits_release_one_slot() -> None:
    """The slot is acquired again after the outermost wait."""
    lanes = slots(1)
    in_flight: list[int] = []

    async def agent(run: AgentRun) -> None:
        async with run.waiting():
            async with run.waiting():
                await trio.sleep(1)
            in_flight.append(lanes[LANE].statistics().in_flight)
            await trio.sleep(1)
        in_flight.append(lanes[LANE].statistics().in_flight)
        run.done()

    ends, _events, seconds = run([AgentCase("a", agent, "Do it.")], 1, lanes=lanes)
    assert (in_flight, seconds) == ([0, 1], 2)
    assert ends[0].attempts[0].duration_s == 0


def test_a_failing_id_source_ends_the_run_of_a_case() -> None:
    """The creation of run ids fails in a slot, and the slot is released."""

    def broken() -> datetime:
        raise OSError("no clock")

    async def main() -> list[LoopEnd]:
        lanes = slots(1)
        cases = [AgentCase(name, working(1), "Do it.") for name in "ab"]
        return await run_agents(cases, lanes=lanes, run_ids=RunIds("f00d", broken))

    ends = run_virtual(main)
    assert [end.message for end in ends] == ["OSError: no clock"] * 2


def test_ag_11_invalid_cases_are_reported_together() -> None:
    """They are reported before any of them starts."""
    cases = [
        AgentCase("a", working(1), "Do it."),
        AgentCase("a", working(1), " "),
        AgentCase("b", working(1), "Do it.", child_timeout=0),
    ]
    with pytest.raises(UsageError) as caught:
        run(cases, 1)
    assert str(caught.value).split("; ") == [
        "two cases have the name 'a'",
        "case 'a' has no prompt",
        "case 'b': child_timeout must be more than 0 seconds, got 0",
    ]


def test_each_case_is_reported_on_the_bus() -> None:
    """Exceptions of the bus are counted."""
    posted: list[tuple[str, str, str]] = []

    async def post(case: AgentCase, type_: str, body: str) -> None:
        await trio.lowlevel.checkpoint()
        if case.name == "b":
            raise OSError("full")
        posted.append((case.name, type_, body))

    cases = [AgentCase("a", working(1), "Do it."), AgentCase("b", working(1), "Do it.")]
    ends, _events, _seconds = run(cases, 1, post=post)
    assert posted[0] == ("a", "INFO", "starting attempt 0")
    assert posted[-1] == ("a", "INFO", "done after 1 attempt")
    assert [end.undelivered for end in ends] == [0, 4]


@attrs.frozen
class Tree:
    """The actions of a run: it works, and starts children, for which it may wait."""

    before: int
    children: "tuple[Tree, ...]"
    waits: bool
    after: int


TREES = st.recursive(
    st.builds(Tree, st.integers(0, 3), st.just(()), st.booleans(), st.integers(0, 2)),
    lambda inner: st.builds(
        Tree,
        st.integers(0, 3),
        st.lists(inner, max_size=3).map(tuple),
        st.booleans(),
        st.integers(0, 2),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(TREES, min_size=1, max_size=3),
    st.integers(1, 3),
    st.one_of(st.just(math.inf), st.integers(0, 12).map(lambda whole: whole + 0.5)),
    st.random_module(),
)
def test_no_slot_is_lost_or_held_by_a_waiting_agent(
    trees: list[Tree], width: int, cancel_at: float, _seed: object
) -> None:
    """Exactly the working agents hold a slot, never more than exist; and everything ends."""
    lanes = slots(width)
    working_now = 0
    alive = 0

    async def work(seconds: int) -> None:
        nonlocal working_now
        working_now += 1
        try:
            assert working_now <= lanes[LANE].statistics().in_flight <= width
            await trio.sleep(seconds)
            assert working_now <= lanes[LANE].statistics().in_flight <= width
        finally:
            working_now -= 1

    def agent_of(tree: Tree) -> Callable[[AgentRun], Awaitable[None]]:
        async def agent(run: AgentRun) -> None:
            nonlocal alive
            alive += 1
            try:
                await work(tree.before)
                children = [
                    await run.start_child(agent_of(child), "child") for child in tree.children
                ]
                if tree.waits:
                    ends = await run.wait_children(*children)
                    assert [end.failure for end in ends] == [None] * len(ends)
                await work(tree.after)
                run.done()
            finally:
                alive -= 1

        return agent

    async def main() -> list[str]:
        ends: list[str] = []

        async def emit(_case: AgentCase, end: LoopEnd) -> None:
            await trio.lowlevel.checkpoint()
            ends.append(end.ending)
            assert [attempt.failure for attempt in end.attempts] == [None] * len(end.attempts)

        cases = [AgentCase(f"c{n}", agent_of(tree), "Do it.") for n, tree in enumerate(trees)]
        with trio.CancelScope(deadline=cancel_at):
            await run_agents(cases, lanes=lanes, emit=emit)
        assert (alive, working_now) == (0, 0)
        assert lanes[LANE].statistics().in_flight == 0
        assert lanes[LANE].statistics().waiting == 0
        return ends

    endings = run_virtual(main)
    assert len(endings) == len(trees)
    assert cancel_at < math.inf or set(endings) == {"done"}


def test_an_agent_may_return_a_failure_or_a_text() -> None:
    """Only the last text of several attempts is stored: each may be large."""

    async def says(run: AgentRun) -> AttemptEnd | str | None:
        await trio.sleep(2)
        if run.attempt.number == 2:
            run.done()
        return ("first", failed(), "last")[run.attempt.number]

    ends, events, _seconds = run([AgentCase("a", says, "Do it.", policy=AT_ONCE)], 1)
    assert [end.output for end in ends[0].attempts] == ["", "", "last"]
    assert [end.duration_s for end in ends[0].attempts] == [2, 0, 2]
    assert [e.failed for e in events if isinstance(e, AttemptEnded)] == [False, True, False]
