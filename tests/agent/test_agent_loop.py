"""The restart loop, case by case, on a virtual clock."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
import trio
from loop_bench import WELL, Bench, FreeSlots, Kids, failed

from trioeval.agent.loop import LoopEnd, run_until_done
from trioeval.agent.protocols import (
    AgentEvent,
    AttemptEnded,
    AttemptStarted,
    AttemptWaiting,
    CaseEnded,
    CaseNotifier,
    FileMarker,
    LoopConfig,
)
from trioeval.agent.restarts import CONTINUATION, Attempt, AttemptEnd, RestartPolicy
from trioeval.errors import LaneClosedError, TooLateError, UsageError
from trioeval.testing import run_virtual

R = TypeVar("R")
SOON = RestartPolicy(delay=1, max_attempts=3)


@attrs.define(eq=False)
class Scripted:
    """An agent that performs one action after another, and then creates DONE."""

    bench: Bench
    ends: Sequence[AttemptEnd | Exception] = ()
    seconds: float = 1.0
    children: Sequence[float] = ()
    """The number of seconds that each child of the first attempt lives."""
    seen: list[Attempt] = attrs.field(factory=list)

    async def __call__(self, attempt: Attempt, /) -> AttemptEnd:
        self.seen.append(attempt)
        if attempt.number == 0:
            for seconds in self.children:
                self.bench.kids.start(seconds)
        await trio.sleep(self.seconds)
        if attempt.number >= len(self.ends):
            assert isinstance(self.bench.marker, trio.Event)
            self.bench.marker.set()
            return WELL
        end = self.ends[attempt.number]
        if isinstance(end, Exception):
            raise end
        return end


def on_bench(play: Callable[[Bench], Awaitable[R]]) -> tuple[R, float]:
    """Run the loop with its doubles, check that no child is left, and return the time that it took."""

    async def main() -> tuple[R, float]:
        async with trio.open_nursery() as nursery:
            bench = Bench(Kids(nursery))
            result = await play(bench)
            assert not bench.kids.living
        return result, trio.current_time()

    return run_virtual(main)


def test_ag_01_a_case_that_is_done_ends_at_once() -> None:
    """The agent is never called."""

    async def play(bench: Bench) -> LoopEnd:
        assert isinstance(bench.marker, trio.Event)
        bench.marker.set()
        end = await run_until_done(Scripted(bench), bench.terms())
        assert bench.began == []
        assert bench.posted == [("INFO", "done before the first attempt")]
        return end

    end, seconds = on_bench(play)
    assert end == LoopEnd(ending="done", message="done before the first attempt", attempts=())
    assert seconds == 0


def test_ag_02_children_of_a_done_case_are_awaited() -> None:
    """No other attempt is made."""

    async def play(bench: Bench) -> LoopEnd:
        assert isinstance(bench.marker, trio.Event)
        bench.marker.set()
        bench.kids.start(30)
        await trio.lowlevel.checkpoint()
        end = await run_until_done(Scripted(bench), bench.terms())
        assert bench.began == []
        assert bench.bodies("INFO")[0] == "done, except 1 child: child 0"
        return end

    end, seconds = on_bench(play)
    assert (end.ending, end.children_ended) == ("done", 0)
    assert seconds == 30


def test_ag_03_an_agent_done_in_its_second_attempt_has_two_attempts() -> None:
    """Each is announced, started and ended on the bus, with its number and its run."""

    async def play(bench: Bench) -> LoopEnd:
        end = await run_until_done(Scripted(bench, [WELL]), bench.terms())
        assert bench.began == [(0, 0.0), (1, 2.0)]
        assert bench.posted == [
            ("INFO", "starting attempt 0"),
            ("RUN_START", "attempt 0 started: run run-0"),
            ("RUN_STOP", "attempt 0 ended: run run-0"),
            ("INFO", "starting attempt 1"),
            ("RUN_START", "attempt 1 started: run run-1"),
            ("RUN_STOP", "attempt 1 ended: run run-1"),
            ("INFO", "done after 2 attempts"),
        ]
        return end

    end, _seconds = on_bench(play)
    assert end == LoopEnd(ending="done", message="done after 2 attempts", attempts=(WELL, WELL))


def test_ag_04_an_agent_that_is_never_done_is_given_up() -> None:
    """It has the maximum number of attempts, with no delay after the last."""

    async def play(bench: Bench) -> LoopEnd:
        end = await run_until_done(Scripted(bench, [WELL] * 9), bench.terms(SOON))
        assert [at for _number, at in bench.began] == [0.0, 2.0, 4.0]
        assert bench.posted[-1] == ("ERROR", "gave up: not done after 3 attempts of 3")
        return end

    end, seconds = on_bench(play)
    assert (end.ending, end.gave_up, len(end.attempts)) == ("failed", "max_attempts", 3)
    assert seconds == 5


def test_ag_05_an_exception_of_an_agent_is_a_failure() -> None:
    """It is posted as a warning, stored with its traceback, and never leaves the loop."""

    async def play(bench: Bench) -> LoopEnd:
        agent = Scripted(bench, [ValueError("no")])
        end = await run_until_done(agent, bench.terms(RestartPolicy(max_attempts=1)))
        assert bench.bodies("WARNING") == ["attempt 0 failed: unexpected: ValueError: no"]
        assert bench.bodies("RUN_CRASH") == ["attempt 0 failed: run run-0"]
        return end

    end, _seconds = on_bench(play)
    assert (end.ending, end.gave_up) == ("failed", "max_attempts")
    assert end.attempts[0].duration_s == 1
    assert end.attempts[0].metadata["trace"].endswith("ValueError: no\n")


def test_an_exception_from_a_nursery_is_reported_without_its_group() -> None:
    """The message is not "unhandled errors in a TaskGroup"."""

    async def play(bench: Bench) -> LoopEnd:
        error = ExceptionGroup("several", [ValueError("one"), OSError("two")])
        return await run_until_done(
            Scripted(bench, [error]), bench.terms(RestartPolicy(max_attempts=1))
        )

    end, _seconds = on_bench(play)
    assert end.attempts[0].failure is not None
    assert end.attempts[0].failure.message == "ValueError: one; OSError: two"


@pytest.mark.parametrize("when", ["before", "after the first attempt"])
def test_ag_06_a_folder_in_place_of_the_done_file_is_a_failure_of_the_agent(
    when: str, tmp_path: Path
) -> None:
    """The message names it and its problem; also on the bus."""

    async def play(bench: Bench) -> None:
        bench.marker = FileMarker(tmp_path / "DONE")

        async def agent(_attempt: Attempt) -> AttemptEnd:
            await trio.lowlevel.checkpoint()
            (tmp_path / "DONE").mkdir()
            return WELL

        if when == "before":
            (tmp_path / "DONE").mkdir()
        end = await run_until_done(agent, bench.terms())
        assert (end.ending, end.gave_up) == ("failed", "marker")
        assert "DONE is a folder; a file there means `done`" in end.message
        assert "DONE is a folder" in bench.bodies("ERROR")[0]
        assert len(bench.recorded) == (when != "before")
        assert isinstance(bench.events[-1], CaseEnded)
        assert bench.events[-1].ending == "failed"

    on_bench(play)


def test_a_folder_created_during_the_delay_ends_the_case_at_once(tmp_path: Path) -> None:
    """The rest of the delay is skipped."""

    async def play(bench: Bench) -> float:
        bench.marker = FileMarker(tmp_path / "DONE")

        async def make_folder() -> None:
            await trio.sleep(5)
            (tmp_path / "DONE").mkdir()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_folder)
            end = await run_until_done(
                Scripted(bench, [WELL] * 9), bench.terms(RestartPolicy(delay=60))
            )
        assert (end.ending, end.gave_up) == ("failed", "marker")
        return trio.current_time()

    at, _seconds = on_bench(play)
    assert 5 <= at <= 5.3


def test_ag_07_a_child_that_lives_too_long_is_ended() -> None:
    """It is ended when the task is done and the time for children has passed."""

    async def play(bench: Bench) -> LoopEnd:
        agent = Scripted(bench, children=[3, 1000, 2000])
        end = await run_until_done(agent, bench.terms(child_timeout=10))
        assert bench.bodies("WARNING") == ["ended 2 children: child 1, child 2"]
        return end

    end, seconds = on_bench(play)
    assert (end.ending, end.children_ended) == ("done", 2)
    assert seconds == 11


@pytest.mark.parametrize(
    ("while_in", "script", "cancel_at"),
    [
        ("slot", [WELL], 0.5),
        ("attempt", [WELL], 1.5),
        ("delay", [WELL], 2.5),
        ("children", [], 2.5),
    ],
)
def test_ag_08_cancellation_in_any_wait_leaves_nothing(
    while_in: str, script: list[AttemptEnd], cancel_at: float
) -> None:
    """The loop ends in that instant, and an interrupted attempt is not recorded."""

    async def play(bench: Bench) -> list[AgentEvent]:
        bench.slots = FreeSlots([1.0])
        agent = Scripted(bench, script, children=[1000])
        with trio.move_on_at(cancel_at) as scope:
            await run_until_done(agent, bench.terms(RestartPolicy(delay=60)))
        assert scope.cancelled_caught
        assert not bench.kids.living
        assert len(bench.recorded) == (cancel_at > 2)
        ends = bench.bodies("RUN_CRASH") + bench.bodies("RUN_STOP")
        assert len(ends) == len(bench.bodies("RUN_START"))
        assert any("was cut off" in one for one in ends) == (while_in == "attempt")
        return bench.events

    events, seconds = on_bench(play)
    assert seconds == cancel_at
    assert isinstance(events[-1], CaseEnded)
    assert events[-1].ending == "interrupted"
    cut_off = [event for event in events if isinstance(event, AttemptEnded) and event.cancelled]
    assert len(cut_off) == (while_in == "attempt")


def test_ag_09_a_permanent_failure_ends_the_loop_after_one_attempt() -> None:
    """No delay follows."""

    async def play(bench: Bench) -> LoopEnd:
        return await run_until_done(
            Scripted(bench, [failed("not_found", "no such program: agent")]), bench.terms()
        )

    end, seconds = on_bench(play)
    assert (end.ending, end.gave_up, len(end.attempts)) == ("failed", "permanent", 1)
    assert seconds == 1


def test_ag_10_five_equal_failures_are_delayed_by_1_2_4_and_8_seconds() -> None:
    """The sixth attempt is not made."""

    async def play(bench: Bench) -> LoopEnd:
        end = await run_until_done(Scripted(bench, [failed()] * 9, seconds=0), bench.terms())
        assert [at for _number, at in bench.began] == [0.0, 1.0, 3.0, 7.0, 15.0]
        return end

    end, seconds = on_bench(play)
    assert (end.gave_up, seconds) == ("identical_failures", 15)


def test_ag_11_settings_out_of_range_are_rejected() -> None:
    """A time of 0 is invalid."""

    async def play(bench: Bench) -> None:
        with pytest.raises(UsageError, match="child_timeout must be more than 0 seconds, got 0"):
            bench.terms(child_timeout=0)

    on_bench(play)


def test_ag_13_later_attempts_are_marked_as_such() -> None:
    """A note precedes their prompt, and they refer to the previous run."""

    async def play(bench: Bench) -> list[Attempt]:
        agent = Scripted(bench, [WELL])
        await run_until_done(agent, bench.terms())
        return agent.seen

    (first, second), _seconds = on_bench(play)
    assert (first.prompt, first.previous_run_id) == ("Do it.", None)
    assert (second.prompt, second.previous_run_id) == (f"{CONTINUATION}\n\nDo it.", "run-0")
    assert attrs.evolve(first, is_resumed=True).prompt == second.prompt


def test_ag_14_a_rejecting_bus_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """Rejected messages are counted, and logged once a minute."""

    async def play(bench: Bench) -> LoopEnd:
        bench.bus_works = False
        agent = Scripted(bench, [WELL], seconds=40)
        return await run_until_done(agent, bench.terms(RestartPolicy(delay=50)))

    with caplog.at_level(logging.WARNING):
        end, _seconds = on_bench(play)
    assert (end.ending, end.undelivered) == ("done", 7)
    assert [record.getMessage() for record in caplog.records] == [
        "a message cannot be posted on the bus: no space left on the device"
    ] * 2


def test_a_locked_bus_does_not_hold_a_slot_for_long() -> None:
    """The start is posted concurrently with the work, for at most a second; other posts are awaited."""

    async def play(bench: Bench) -> LoopEnd:
        async def slow(_type: str, _body: str) -> None:
            await trio.sleep(30)

        end = await run_until_done(Scripted(bench), bench.terms(post=slow))
        assert bench.slots.held == [(30.0, 31.0)]
        return end

    end, _seconds = on_bench(play)
    assert (end.ending, end.undelivered) == ("done", 1)


def test_ag_15_a_delay_ends_when_the_task_is_done() -> None:
    """The rest of the delay is skipped."""

    async def play(bench: Bench) -> LoopEnd:
        async def finish() -> None:
            await trio.sleep(4)
            assert isinstance(bench.marker, trio.Event)
            bench.marker.set()

        bench.kids.nursery.start_soon(finish)
        agent = Scripted(bench, [WELL] * 9)
        return await run_until_done(agent, bench.terms(RestartPolicy(delay=60)))

    end, seconds = on_bench(play)
    assert (end.ending, end.message, seconds) == ("done", "done after 1 attempt", 4)


@pytest.mark.parametrize("at", [0.5, 1.5, 3.0])
def test_no_attempt_starts_after_a_stop(at: float) -> None:
    """A queued attempt leaves the queue, a running one ends normally, and a delay is cut short."""

    async def play(bench: Bench) -> LoopEnd:
        bench.slots = FreeSlots([1.0])

        async def stop() -> None:
            await trio.sleep(at)
            bench.stop.set()

        bench.kids.nursery.start_soon(stop)
        agent = Scripted(bench, [WELL] * 9, children=[1000])
        return await run_until_done(agent, bench.terms(RestartPolicy(delay=60)))

    end, seconds = on_bench(play)
    attempts = 0 if at == 0.5 else 1
    assert (end.ending, len(end.attempts), end.children_ended) == (
        "interrupted",
        attempts,
        attempts,
    )
    assert seconds == max(at, 2.0 * attempts)


def test_a_case_done_while_queued_is_not_started() -> None:
    """A child or a person may complete a case while it is queued."""

    async def play(bench: Bench) -> LoopEnd:
        bench.slots = FreeSlots([5.0])

        async def finish() -> None:
            await trio.sleep(2)
            assert isinstance(bench.marker, trio.Event)
            bench.marker.set()

        bench.kids.nursery.start_soon(finish)
        return await run_until_done(Scripted(bench), bench.terms())

    end, _seconds = on_bench(play)
    assert (end.ending, end.attempts) == ("done", ())


def test_attempts_of_earlier_executions_count() -> None:
    """They count for the number, the delay, equal failures and the usage."""

    async def play(bench: Bench) -> LoopEnd:
        policy = RestartPolicy(identical_failures=3)
        agent = Scripted(bench, [failed()] * 9)
        end = await run_until_done(agent, bench.terms(policy, earlier=[failed(), failed()]))
        assert bench.began == [(2, 2.0)]
        return end

    end, _seconds = on_bench(play)
    assert (end.gave_up, len(end.attempts)) == ("identical_failures", 3)


@attrs.define(eq=False)
class ClosedSlots:
    """A lane that is closed."""

    async def __call__(self, _run: Callable[[], Awaitable[R]], /) -> R:
        await trio.lowlevel.checkpoint()
        raise LaneClosedError("agent runs", "it was closed")


def test_exceptions_of_the_slots_are_raised_unchanged() -> None:
    """They concern the run and not an attempt; children are ended in any case."""

    async def play(bench: Bench) -> None:
        bench.kids.start(1000)
        await trio.lowlevel.checkpoint()
        with pytest.raises(LaneClosedError):
            await run_until_done(Scripted(bench), bench.terms(slots=ClosedSlots()))
        assert not bench.kids.living
        assert bench.recorded == []

    on_bench(play)


@pytest.mark.parametrize("is_group", [False, True])
def test_an_agent_that_is_cancelled_by_a_closed_lane_ends_no_attempt(is_group: bool) -> None:  # noqa: FBT001
    """Its run is over: the attempt is interrupted, and a resume makes it again.

    This includes exceptions from a nursery.
    """
    late: Exception = TooLateError("the run is over")
    if is_group:
        late = ExceptionGroup("nursery", [ValueError("beside"), ExceptionGroup("inner", [late])])

    async def play(bench: Bench) -> None:
        agent = Scripted(bench, [late], children=[1000])
        with pytest.raises(TooLateError):
            await run_until_done(agent, bench.terms())
        assert bench.recorded == []
        ended = [event for event in bench.events if isinstance(event, AttemptEnded)]
        assert [event.cancelled for event in ended] == [True]

    on_bench(play)


def test_a_given_up_case_ends_its_children_before_it_reports() -> None:
    """No child survives because the bus is locked."""

    async def play(bench: Bench) -> LoopEnd:
        end = await run_until_done(
            Scripted(bench, [failed("auth", "no")], children=[1000]), bench.terms()
        )
        assert [type_ for type_, _body in bench.posted[-2:]] == ["WARNING", "ERROR"]
        return end

    end, seconds = on_bench(play)
    assert (end.ending, end.children_ended) == ("failed", 1)
    assert seconds == 1


def test_an_observer_gets_every_attempt_and_the_end() -> None:
    """A wait is only reported if it took place."""

    async def play(bench: Bench) -> list[AgentEvent]:
        bench.slots = FreeSlots([0.0, 3.0])
        agent = Scripted(bench, [failed()])
        await run_until_done(agent, bench.terms())
        return bench.events

    events, _seconds = on_bench(play)
    about: dict[str, Any] = {"task": "repairs", "case": "calc", "agent": "double"}
    assert events == [
        AttemptStarted(at=0.0, number=0, run_id="run-0", **about),
        AttemptEnded(at=1.0, number=0, run_id="run-0", failed=True, reason="exit: code 1", **about),
        AttemptWaiting(at=2.01, number=1, **about),
        AttemptStarted(at=5.0, number=1, run_id="run-1", **about),
        AttemptEnded(at=6.0, number=1, run_id="run-1", failed=False, **about),
        CaseEnded(at=6.0, ending="done", **about),
    ]


def test_an_observer_that_raises_is_not_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """An observer cannot break the loop."""
    calls: list[AgentEvent] = []

    def observe(event: AgentEvent) -> None:
        calls.append(event)
        raise RuntimeError("blind")

    async def play(bench: Bench) -> LoopEnd:
        return await run_until_done(
            Scripted(bench),
            bench.terms(notify=CaseNotifier(observe=observe, case="calc", agent="double")),
        )

    end, _seconds = on_bench(play)
    assert end.ending == "done"
    assert len(calls) == 1
    assert "an observer raised" in caplog.text


def test_the_loop_is_always_a_checkpoint() -> None:
    """It yields also without a wait, and a cancelled caller takes no slot."""

    async def play(bench: Bench) -> None:
        assert isinstance(bench.marker, trio.Event)
        bench.marker.set()

        async def quiet(_type: str, _body: str) -> None:  # noqa: ASYNC124 - so the loop must be one
            pass

        terms: LoopConfig = bench.terms(post=quiet)
        with trio.testing.assert_checkpoints():
            await run_until_done(Scripted(bench), terms)
        bench.marker = trio.Event()
        with trio.CancelScope() as scope:
            scope.cancel()
            await run_until_done(Scripted(bench), bench.terms())
        assert (bench.began, bench.slots.held) == ([], [])

    on_bench(play)
