"""Runs with a drawn readiness: needs, ranks, withdrawals, and the times of final retry rounds."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, TypeAlias

import attrs
import trio
from hypothesis import strategies as st

from trioeval.errors import CallError, Fault
from trioeval.kernel import (
    Calls,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    Rank,
    Readiness,
    ReadinessUpdate,
    run_plan,
)
from trioeval.testing import (
    AttemptScript,
    CallScript,
    JobScript,
    Known,
    RunScenario,
    RunTrace,
    TraceRecorder,
    run_virtual,
)
from trioeval.testing.perform import needs_no_lane
from trioeval.testing.strategies import durations, lane_specs

_SAMPLES = 128
_SAMPLE_OFFSET = 0.3828125  # between the quarters at which events of drawn scenarios happen

Salvage: TypeAlias = Literal["run", "now", "group"]
Kind: TypeAlias = Literal["ranked", "blocked", "aside", "began", "settled"]


@attrs.frozen
class Case:
    """A scenario, and the decisions of its readiness, each by the index of the job."""

    scenario: RunScenario
    needs: tuple[frozenset[int], ...]
    """Jobs that have to be over first."""
    patient: tuple[bool, ...]
    """Accept any outcome of those jobs."""
    ranks: tuple[tuple[Rank, ...], ...]
    """Ranks in turn; the last one is repeated."""
    salvage: tuple[Salvage, ...]
    """The time of its round: chosen by the run, at once, or when no other job of its group is running."""
    groups: tuple[int, ...]
    withdraws: tuple[frozenset[int], ...]
    """Jobs to withdraw when it is over or set aside, if that is possible then."""


@attrs.frozen
class Note:
    """An observation, with its sequence number."""

    tick: int
    at: float
    kind: Kind
    index: int
    rank: Rank = ()
    by: int = -1
    state: str = ""
    """The state of a blocked job before."""


@attrs.define(eq=False)
class DrawnReadiness(Readiness):
    """A readiness that follows a case and records everything."""

    case: Case
    ticks: Iterator[int]
    notes: list[Note] = attrs.field(factory=list)
    outcomes_seen: list[int] = attrs.field(factory=list)
    _states: list[str] = attrs.field(init=False)
    _left: list[set[int]] = attrs.field(init=False)
    _asked: list[int] = attrs.field(init=False)
    _owned: set[int] = attrs.field(factory=set)
    """Jobs set aside whose round starts with their group."""

    def __attrs_post_init__(self) -> None:
        size = len(self.case.needs)
        self._states, self._asked = ["waiting"] * size, [0] * size
        self._left = [set(needs) for needs in self.case.needs]

    def note(self, kind: Kind, index: int, rank: Rank = (), by: int = -1, state: str = "") -> None:
        """Record an observation."""
        at = trio.current_time()
        self.notes.append(Note(next(self.ticks), at, kind, index, rank, by, state))

    def began(self, index: int) -> None:
        """Record the start of the body of a job."""
        self.note("began", index)
        self._states[index] = "begun"

    def begin(self) -> Sequence[int]:
        """Release all jobs that need nothing."""
        ready = [index for index, needs in enumerate(self._left) if not needs]
        for index in ready:
            self._states[index] = "ready"
        return ready

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        """Release and block the jobs that need it, and withdraw those of the case."""
        self.outcomes_seen.append(index)
        self._states[index] = "over"
        ready: list[int] = []
        blocked: list[int] = []
        for other, needs in enumerate(self._left):
            if index in needs and self._states[other] == "waiting":
                needs.remove(index)
                if not done and not self.case.patient[other]:
                    blocked.append(other)
                elif not needs:
                    ready.append(other)
        return self._answer(index, ready, blocked)

    def rank(self, index: int) -> Rank:
        """Return the next of its ranks."""
        ranks = self.case.ranks[index]
        rank = ranks[min(self._asked[index], len(ranks) - 1)]
        self._asked[index] += 1
        self.note("ranked", index, rank)
        return rank

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:
        """Follow the case; if the run chooses the time, nothing is withdrawn."""
        self.note("aside", index)
        self._states[index] = "aside"
        match self.case.salvage[index]:
            case "run":
                return None
            case "now":
                return self._answer(index, [index], [])
            case "group":
                self._owned.add(index)
                return self._answer(index, [], [])

    def _answer(self, index: int, ready: list[int], blocked: list[int]) -> ReadinessUpdate:
        for one in ready:
            self._states[one] = "ready"
        blocked += [
            victim
            for victim in sorted(self.case.withdraws[index])
            if self._states[victim] in ("waiting", "ready", "aside") and victim not in blocked
        ]
        for one in blocked:
            self.note("blocked", one, by=index, state=self._states[one])
            self._states[one] = "over"
            self._owned.discard(one)
        return ReadinessUpdate(ready + self._rounds(), [(one, index) for one in blocked])

    def _rounds(self) -> list[int]:
        busy = {
            group
            for group, state in zip(self.case.groups, self._states, strict=True)
            if state in ("ready", "begun")
        }
        due = sorted(one for one in self._owned if self.case.groups[one] not in busy)
        self._owned.difference_update(due)
        for one in due:
            self._states[one] = "ready"
        return due


def run_case(case: Case) -> tuple[RunTrace, DrawnReadiness]:
    """Run a case in a separate Trio run, and return the observations."""
    return run_virtual(_run, case)


async def _run(case: Case) -> tuple[RunTrace, DrawnReadiness]:
    scenario, recorder = case.scenario, TraceRecorder()
    readiness = DrawnReadiness(case, recorder.ticks)
    lanes = Lanes(scenario.lanes, rng=lambda: scenario.spread)
    jobs = [Job(i, s.lane, s, s.timeout) for i, s in enumerate(scenario.scripts)]
    numbers = [itertools.count() for _ in jobs]

    async def perform(job: Job[JobScript], calls: Calls[JobScript]) -> int:
        with recorder.body(job.index, job.lane):
            readiness.began(job.index)
            (call,) = job.payload.actions
            assert isinstance(call, CallScript)
            with recorder.asking(job.index, call.lane) as asked:

                async def send() -> None:
                    number = next(numbers[job.index])
                    attempt = call.attempt(number)
                    with recorder.call(asked, call.lane, number):
                        await trio.sleep(attempt.duration)
                        if attempt.fault is not None:
                            raise CallError(attempt.fault, retry_after=attempt.retry_after)

                await calls(call.lane, send)
            return job.index

    def settle(outcome: Outcome[int]) -> None:
        readiness.note("settled", outcome.index)
        recorder.settle(outcome)

    looks = any(script.known is not None for script in scenario.scripts)
    plan = Plan(
        jobs,
        {*(lane.name for lane in scenario.lanes), None},
        readiness=lambda: readiness,
        needs_no_lane=needs_no_lane if looks else None,
    )
    stop = trio.Event()

    async def stop_then() -> None:
        await trio.sleep_until(scenario.stop_at)
        stop.set()

    async def sample() -> None:
        for second in range(_SAMPLES):  # bounded, so that a deadlock is still noticed at once
            await trio.sleep_until(second + _SAMPLE_OFFSET)
            recorder.sample(lanes)

    living = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_then)
        nursery.start_soon(sample)
        with trio.move_on_at(scenario.cancel_at):
            await run_plan(
                plan,
                perform,
                lanes=lanes,
                emit=recorder.emit,
                settled=settle,
                deadline=scenario.deadline,
                stop=stop,
                observe=recorder.events.append,
                max_live_jobs=scenario.max_live_jobs,
                salvage_rounds=scenario.salvage_rounds,
            )
        ended_at = trio.current_time()
        nursery.cancel_scope.cancel("the run is over")
    left_over = [
        f"lane {name}: {seen}"
        for name, lane in lanes.items()
        if (seen := lane.statistics()).in_flight or seen.waiting or seen.resting or lane.followers
    ]
    if trio.lowlevel.current_statistics().tasks_living != living:
        left_over.append("tasks")
    trace = RunTrace(
        scenario,
        ended_at,
        recorder.bodies,
        recorder.calls,
        recorder.requests,
        recorder.emissions,
        recorder.samples,
        recorder.events,
        left_over,
        recorder.settled,
    )
    return trace, readiness


_some = st.sampled_from
_attempts = st.builds(
    AttemptScript,
    durations,
    _some((None, None, *(Fault.TRANSIENT,) * 4, Fault.RATE_LIMITED, Fault.REFUSED, Fault.FATAL)),
    _some((None, None, 1.25)),
)
_looks: st.SearchStrategy[Known | None] = _some((None, "yes", "yes", "yes", "no"))
_ranks = st.lists(
    st.lists(_some((0.0, 1.0, 2.0)), max_size=2).map(tuple), min_size=1, max_size=3
).map(tuple)


# Strategies are created once, here or for each size: that takes longer than to draw from them.
_endless = (math.inf,) * 4
_count, _either, _rarely = st.integers(1, 2), st.booleans(), st.integers(0, 3)
_size, _third = st.integers(1, 9), st.integers(0, 2)
_names: dict[tuple[str, ...], st.SearchStrategy[str]] = {
    names: _some(names) for names in (("a",), ("a", "b"))
}
_several_attempts = st.lists(_attempts, max_size=3)
_timeouts = _some((math.inf, math.inf, 3.0))
_deadlines = _some((*_endless, 6.0, 15.0))
_stops = _some((*_endless, 4.0))
_cancels = _some((*_endless, 5.0))
_live = _some((256, 256, 1, 2))
_salvage: st.SearchStrategy[Salvage] = _some(("run", "now", "group", "group"))


@cache
def _order(size: int) -> st.SearchStrategy[Sequence[int]]:
    return st.permutations(range(size))


@cache
def _several_jobs(size: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, size - 1), max_size=2)


@cache
def _lanes(name: str) -> st.SearchStrategy[LaneSpec]:
    return st.builds(
        lambda spec, retries: attrs.evolve(spec, retries=retries),
        lane_specs(name),
        st.integers(0, 1),
    )


@cache
def _calm_lanes(name: str) -> st.SearchStrategy[LaneSpec]:
    return st.builds(LaneSpec, st.just(name), st.integers(1, 3), adaptive=st.just("off"))


@st.composite
def cases(draw: st.DrawFn, *, calm: bool = False) -> Case:
    """Draw any behaviour of a readiness; `calm` draws providers and runs without faults."""
    names = ("a", "b")[: draw(_count)]
    size = draw(_size)
    place = draw(_order(size))
    looks = not calm and draw(_either)
    leaves = not calm and draw(_rarely) == 0
    scripts = []
    for _ in range(size):
        lane = draw(_names[names])
        several = () if calm else tuple(draw(_several_attempts))
        call = CallScript(lane, draw(durations), attempts=several)
        timeout = math.inf if calm else draw(_timeouts)
        own = None if leaves and draw(_either) else lane
        scripts.append(JobScript(own, (call,), timeout, known=draw(_looks) if looks else None))
    lanes = tuple(draw((_calm_lanes if calm else _lanes)(name)) for name in names)
    # Edges without effect: laws of plans in index order leave such jobs out.
    scenario = RunScenario(lanes, tuple(scripts), edges=dict.fromkeys(range(size), ()))
    if not calm:
        scenario = attrs.evolve(
            scenario,
            deadline=draw(_deadlines),
            stop_at=draw(_stops),
            cancel_at=draw(_cancels),
            max_live_jobs=draw(_live),
            salvage_rounds=draw(_count),
        )
    several_jobs = _several_jobs(size)
    none: frozenset[int] = frozenset()
    return Case(
        scenario,
        needs=tuple(
            frozenset(on for on in draw(several_jobs) if place[on] < place[index])
            for index in range(size)
        ),
        patient=tuple(draw(_either) for _ in range(size)),
        ranks=tuple(draw(_ranks) for _ in range(size)),
        salvage=tuple(draw(_salvage) for _ in range(size)),
        groups=tuple(draw(_third) for _ in range(size)),
        withdraws=tuple(
            frozenset(draw(several_jobs)) if draw(_third) == 0 else none for _ in range(size)
        ),
    )


def by_lane(case: Case, notes: Sequence[Note]) -> Mapping[str | int | None, Sequence[Note]]:
    """Return the observations of the jobs of each lane, and of those on no lane, in its order.

    A job that leaves its lane has a separate entry, under its index: it may start beside lower ranks.
    """
    found: dict[str | int | None, list[Note]] = {lane.name: [] for lane in case.scenario.lanes}
    for note in sorted(notes, key=lambda note: note.tick):
        script = case.scenario.scripts[note.index]
        found.setdefault(note.index if script.known == "yes" else script.lane, []).append(note)
    return found
