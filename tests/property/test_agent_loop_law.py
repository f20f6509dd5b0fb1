"""Restart loops compared with a model without tasks: starts, ends and results.

The model advances a clock from instant to instant. Instants of the script have their own fractions (attempts
and waits whole seconds, DONE a quarter, a stop a half, a cancellation three quarters, children sixteenths),
so that no two events coincide whose order is not specified.
"""

import math
from collections.abc import Sequence

import attrs
import pytest
import trio
from hypothesis import event, given, settings
from hypothesis import strategies as st
from loop_bench import WELL, Bench, FreeSlots, Kids, failed

from trioeval.agent.loop import LoopEnd, run_until_done
from trioeval.agent.protocols import AttemptEnded, AttemptStarted, AttemptWaiting, CaseEnded
from trioeval.agent.restarts import Attempt, AttemptEnd, RestartPolicy
from trioeval.testing import run_virtual

RAISES = failed("unexpected", "ValueError: no")
ENDS = (WELL, WELL, failed(), failed(), failed("timeout", "600 s"), RAISES, failed("auth", "no"))


@attrs.frozen
class Shot:
    """One attempt of a script."""

    end: AttemptEnd
    line: int
    """Seconds that it waits in the queue."""
    seconds: int
    children: tuple[float, ...]
    """Seconds that its child processes live."""


@attrs.frozen
class Script:
    shots: tuple[Shot, ...]
    policy: RestartPolicy
    done_at: float
    stop_at: float
    cancel_at: float
    child_timeout: float
    cleaning: float
    bus_works: bool


@attrs.frozen
class Foretold:
    ending: str
    why: str | None
    over_at: float
    began: list[tuple[int, float]]
    held: list[tuple[float, float]]
    ends: list[AttemptEnd]
    children_ended: int


class Cut(Exception):  # noqa: N818 - no error: where the walk ends
    """The model has reached the cancellation."""


@attrs.define
class Walk:
    """The model: one instant after another."""

    script: Script
    now: float = 0.0
    began: list[tuple[int, float]] = attrs.field(factory=list)
    held: list[tuple[float, float]] = attrs.field(factory=list)
    ends: list[AttemptEnd] = attrs.field(factory=list)
    children: list[float] = attrs.field(factory=list)
    """The instant at which each would end by itself."""

    def foretell(self) -> Foretold:
        try:
            ending, why, children = self.walk()
        except Cut:
            ending, why, children = "cancelled", None, self.alive(self.now)
        over_at = self.now + (self.script.cleaning if children else 0)
        return Foretold(ending, why, over_at, self.began, self.held, self.ends, children)

    def to(self, instant: float) -> None:
        if instant > self.script.cancel_at:
            self.now = self.script.cancel_at
            raise Cut
        self.now = max(self.now, instant)

    def alive(self, instant: float) -> int:
        return sum(end > instant for end in self.children)

    def walk(self) -> tuple[str, str | None, int]:
        script = self.script
        while True:
            if script.done_at <= self.now:
                return self.finish()
            if (why := self.given_up()) is not None:
                return "failed", why, self.alive(self.now)
            self.to(
                min(self.now + self.delay(), max(self.now, min(script.done_at, script.stop_at)))
            )
            if script.done_at <= self.now:
                return self.finish()
            if script.stop_at <= self.now:
                return "interrupted", None, self.alive(self.now)
            self.shoot(script.shots[len(self.ends)])

    def shoot(self, shot: Shot) -> None:
        taken = self.now + shot.line
        if self.script.stop_at < taken:
            self.to(self.script.stop_at)
            return
        self.to(taken)
        if self.script.done_at < taken:
            self.held.append((taken, taken))
            return
        self.began.append((len(self.ends), taken))
        self.children += [taken + seconds for seconds in shot.children]
        self.held.append((taken, min(taken + shot.seconds, self.script.cancel_at)))
        self.to(taken + shot.seconds)
        self.ends.append(shot.end)

    def finish(self) -> tuple[str, None, int]:
        if self.alive(self.now):
            last = self.now + self.script.child_timeout
            self.to(min(last, max(self.children)))
        return "done", None, self.alive(self.now)

    def failures(self) -> list[AttemptEnd]:
        found: list[AttemptEnd] = []
        for end in self.ends:
            found = [*found, end] if end.failure is not None else []
        return found

    def given_up(self) -> str | None:
        policy, failures = self.script.policy, self.failures()
        if failures and failures[-1] == failed("auth", "no"):
            return "permanent"
        same = policy.identical_failures
        is_bound = bool(failures) and failures[-1] == failed("timeout", "600 s")
        alike = len(failures) >= same and all(end == failures[-1] for end in failures[-same:])
        if alike and not is_bound:
            return "identical_failures"
        return "max_attempts" if len(self.ends) >= policy.max_attempts else None

    def delay(self) -> float:
        policy = self.script.policy
        steps = max(0, len(self.failures()) - 1)
        grown = policy.delay * policy.backoff**steps
        return 0 if not self.ends else min(grown, max(policy.delay, policy.max_delay))


@attrs.frozen
class Found:
    end: LoopEnd | None
    over_at: float
    bench: Bench


def play(script: Script) -> Found:
    """Run the real loop."""

    async def main() -> Found:
        async with trio.open_nursery() as nursery:
            kids = Kids(nursery, script.cleaning)
            slots = FreeSlots([shot.line for shot in script.shots])
            flag = trio.Event()
            bench = Bench(kids, slots, flag, bus_works=script.bus_works)
            nursery.start_soon(at, script.done_at, flag.set)
            nursery.start_soon(at, script.stop_at, bench.stop.set)

            async def agent(attempt: Attempt) -> AttemptEnd:
                shot = script.shots[attempt.number]
                for seconds in shot.children:
                    kids.start(seconds)
                await trio.sleep(shot.seconds)
                if shot.end is RAISES:
                    raise ValueError("no")
                return shot.end

            end = None
            with trio.CancelScope(deadline=script.cancel_at):
                terms = bench.terms(script.policy, child_timeout=script.child_timeout)
                end = await run_until_done(agent, terms)
            found = Found(end, trio.current_time(), bench)
            assert not kids.living
            nursery.cancel_scope.cancel()
        return found

    async def at(instant: float, do: object) -> None:
        await trio.sleep_until(instant)
        assert callable(do)
        do()

    return run_virtual(main)


def instants(fraction: float) -> st.SearchStrategy[float]:
    some = st.integers(0, 14).map(lambda whole: whole + fraction)
    return st.one_of(st.just(math.inf), some)


SHOTS = st.builds(
    Shot,
    st.sampled_from(ENDS),
    st.integers(0, 2),
    st.integers(0, 3),
    st.lists(st.integers(0, 9).map(lambda whole: whole + 1 / 16), max_size=2).map(tuple),
)
POLICIES = st.builds(
    RestartPolicy,
    max_attempts=st.sampled_from([6, 6, 6, 4, 2, 0]),
    delay=st.integers(0, 2).map(float),
    backoff=st.sampled_from([1.0, 2.0]),
    max_delay=st.sampled_from([0.0, 3.0, 60.0]),
    identical_failures=st.sampled_from([3, 2, 4, 1]),
)
SCRIPTS = st.builds(
    Script,
    st.lists(SHOTS, min_size=6, max_size=6).map(tuple),
    POLICIES,
    instants(0.25),
    instants(0.5),
    instants(0.75),
    st.sampled_from([1.125, 4.125]),
    st.sampled_from([0.0, 1 / 32]),
    st.booleans(),
)


def kind_of(end: AttemptEnd) -> object:
    return None if end.failure is None else end.failure.signature


def kinds(ends: Sequence[AttemptEnd]) -> list[object]:
    return [kind_of(end) for end in ends]


def check_events(script: Script, predicted: Foretold, found: Found) -> None:
    """Each attempt starts and ends once, in order, with a wait before it only if one was due."""
    events = found.bench.events
    starts = [(e.number, e.at) for e in events if isinstance(e, AttemptStarted)]
    ends = [e for e in events if isinstance(e, AttemptEnded)]
    assert starts == predicted.began
    assert [e.number for e in ends] == [number for number, _at in predicted.began]
    assert [e.number for e in ends if e.cancelled] == list(
        range(len(predicted.ends), len(predicted.began))
    )
    waits = {e.number for e in events if isinstance(e, AttemptWaiting)}
    assert {number for number, _at in starts if script.shots[number].line} <= waits
    assert all(script.shots[number].line for number in waits)
    *_, last = events
    assert isinstance(last, CaseEnded)
    assert last.ending == ("interrupted" if found.end is None else found.end.ending)


@pytest.mark.slow
@given(SCRIPTS, st.random_module())
def test_a_loop_equals_its_model(script: Script, _seed: object) -> None:
    """AG-01 to AG-15: attempts, ends, results and notifications equal those of the model."""
    predicted, found = Walk(script).foretell(), play(script)
    bench, end = found.bench, found.end
    event(predicted.ending if predicted.why is None else predicted.why)
    assert bench.began == predicted.began
    assert bench.slots.held == predicted.held
    assert found.over_at == predicted.over_at
    assert [number for number, _end in bench.recorded] == list(range(len(predicted.ends)))
    assert kinds([recorded for _number, recorded in bench.recorded]) == kinds(predicted.ends)
    if end is None:
        assert predicted.ending == "cancelled"
    else:
        assert (end.ending, end.gave_up) == (predicted.ending, predicted.why)
        assert end.children_ended == predicted.children_ended
        assert list(end.attempts) == [recorded for _number, recorded in bench.recorded]
        assert (end.undelivered == 0) == script.bus_works
    check_events(script, predicted, found)
    if script.bus_works:
        begun = [body for body in bench.bodies("RUN_START") if body.startswith("attempt")]
        assert len(begun) == len(predicted.began)
        cut_off = len(predicted.began) - len(predicted.ends)
        crashed = cut_off + sum(e.failure is not None for e in predicted.ends)
        assert len(bench.bodies("RUN_CRASH")) == crashed
        assert len(bench.bodies("RUN_STOP")) == len(predicted.began) - crashed


@settings(max_examples=settings().max_examples // 4)
@given(SCRIPTS, st.integers(0, 6))
def test_an_interrupted_and_resumed_loop_makes_the_same_attempts(script: Script, cut: int) -> None:
    """RESUME: recorded attempts are not repeated, and the loop ends the same."""
    script = attrs.evolve(
        script, done_at=math.inf, stop_at=math.inf, cancel_at=math.inf, bus_works=True
    )
    whole = play(script)
    assert whole.end is not None
    known = whole.end.attempts[: min(cut, len(whole.end.attempts))]

    async def main() -> tuple[LoopEnd, list[int]]:
        async with trio.open_nursery() as nursery:
            bench = Bench(Kids(nursery))

            async def agent(attempt: Attempt) -> AttemptEnd:
                await trio.lowlevel.checkpoint()
                if script.shots[attempt.number].end is RAISES:
                    raise ValueError("no")
                return script.shots[attempt.number].end

            end = await run_until_done(agent, bench.terms(script.policy, earlier=known))
        return end, [number for number, _at in bench.began]

    end, began = run_virtual(main)
    assert (end.ending, end.gave_up) == (whole.end.ending, whole.end.gave_up)
    assert kinds(end.attempts) == kinds(whole.end.attempts)
    assert began == list(range(len(known), len(whole.end.attempts)))
