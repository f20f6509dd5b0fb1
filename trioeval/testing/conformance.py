"""Holds a scheduler that somebody else wrote to the laws.

A scheduler here is any async callable that gets jobs and lanes, makes each job's one call through `send`
and hands each result to `emit`. It needs to know nothing of this kernel. The check draws plain scenarios,
runs them on the virtual clock with a recorder behind `send` and `emit`, and judges the laws that can be
seen from there. The other laws speak of what only this kernel offers (serial jobs, timeouts, deadlines,
stops) or of what only a scheduler knows about itself (slots).

The order of starts within one instant is not judged: no provider can see it, and a Trio task that is
started before another one does not run before it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs
import trio
import trio.testing
from hypothesis import strategies as st

from trioeval.errors import UsageError, leaves
from trioeval.kernel import Done, LaneSpec
from trioeval.testing.job_laws import check_leak, check_order, check_prompt, check_total
from trioeval.testing.lane_laws import check_eager, check_isolation, check_pace, check_width
from trioeval.testing.scenario import Call, Scenario, Script, ScriptedError
from trioeval.testing.smallest import Smallest, find_smallest
from trioeval.testing.spans import require
from trioeval.testing.strategies import lane_specs
from trioeval.testing.trace import Recorder, Span, Trace
from trioeval.testing.virtual import run_virtual

_NAMES = ("a", "b", "c")

_SLOWEST = 4.0
_SLACK = 60.0

# A scheduler that needs longer than so many times the way without any concurrency hangs, though it may poll.


@attrs.frozen
class ForeignJob:
    """What a scheduler knows of a job."""

    index: int
    """Its place in the plan, from 0; its result is emitted with it."""
    lane: str
    """The name of the lane that its call counts against."""


@attrs.frozen
class Answer:
    """What the call of a job returns, if it does not fail; equal only to itself in a run."""

    index: int


Send: TypeAlias = Callable[[ForeignJob], Awaitable[Answer]]
"""Makes the one call of a job: takes some seconds, then returns or raises. Not to be repeated."""

Emit: TypeAlias = Callable[[int, object], Awaitable[None]]
"""Takes the result of the job with this index: the `Answer`, or anything at all if the call failed."""

Scheduler: TypeAlias = Callable[
    [Sequence[ForeignJob], Sequence[LaneSpec], Send, Emit], Awaitable[object]
]
"""`await scheduler(jobs, lanes, send, emit)` runs all jobs and returns when all results are emitted."""


@attrs.frozen
class Breach:
    """One law that a scheduler breaks."""

    law: str
    message: str
    """What was seen, in the smallest scenario that shows it."""
    scenario: Scenario
    """That scenario."""

    def __str__(self) -> str:
        return "\n".join((self.message, *_describe(self.scenario)))


def check_scheduler(
    make: Callable[[], Scheduler],
    *,
    examples: int = 200,
    seed: int = 0,
    laws: Iterable[str] | None = None,
) -> None:
    """Hold a scheduler to the laws, in drawn scenarios on the virtual clock.

    Not for use inside a Trio run: it makes its own ones.

    Args:
        make: Gives a fresh scheduler, for each run.
        examples: How many scenarios are drawn, ≥ 1.
        seed: Equal seeds draw equal scenarios.
        laws: Names from `OUTSIDE_LAWS`; None takes all.

    Raises:
        AssertionError: It names every law that is broken, each with the smallest scenario found.
        UsageError: `laws` holds a name that is not known.
    """
    found = broken_laws(make, examples=examples, seed=seed, laws=laws)
    if found:
        told = "\n\n".join(str(breach) for breach in found.values())
        raise AssertionError(f"broken laws: {', '.join(found)}\n\n{told}")


def broken_laws(
    make: Callable[[], Scheduler],
    *,
    examples: int = 200,
    seed: int = 0,
    laws: Iterable[str] | None = None,
) -> dict[str, Breach]:
    """What `check_scheduler` finds, by law, in the order of `OUTSIDE_LAWS`; empty if all hold.

    Raises:
        UsageError: `laws` holds a name that is not known.
    """
    wanted = list(OUTSIDE_LAWS if laws is None else laws)
    unknown = [law for law in wanted if law not in OUTSIDE_LAWS]
    if unknown:
        known = ", ".join(OUTSIDE_LAWS)
        raise UsageError(f"laws must be some of {known}, got {', '.join(unknown)}")

    def judge(scenario: Scenario, some: Collection[str]) -> dict[str, str]:
        seen = _Seen(make, scenario)
        return {law: told for law in some if (told := _breach(law, seen)) is not None}

    found = find_smallest(outside_scenarios(), judge, wanted, count=examples, seed=seed)
    found |= {law: Smallest(_EMPTY, told) for law, told in judge(_EMPTY, wanted).items()}
    return {
        law: Breach(law, found[law].message, found[law].example)
        for law in OUTSIDE_LAWS
        if law in found
    }


# Made once: to make a strategy takes longer than to draw from it.
_SECONDS = st.integers(1, 16).map(lambda quarters: quarters / 4)
_CALLS = st.lists(
    st.builds(Call, st.sampled_from(_NAMES), _SECONDS, st.sampled_from((False, False, True))),
    min_size=1,
    max_size=12,
)
_ALIKE = st.sampled_from((None,) * 3 + (0.25, 1.0, 2.5))
_LANES = tuple(st.tuples(lane_specs(name), _ALIKE) for name in _NAMES)
_EMPTY = Scenario((LaneSpec("a", 1),), ())


@st.composite
def outside_scenarios(draw: st.DrawFn) -> Scenario:
    """Jobs of one call, which may fail; up to three lanes, and nothing that cuts or gates the run.

    Every call takes at least a quarter of a second. The jobs of some lanes are alike: they take the same
    time, and none of them fails.
    """
    count = draw(st.integers(1, len(_NAMES)))
    calls = draw(_CALLS)
    lanes = [draw(lane) for lane in _LANES[:count]]  # last, so that one can be left out by itself
    scripts = []
    for call in calls:
        lane, alike = lanes[_NAMES.index(call.lane) % count]
        own = Call(lane.name, alike or call.duration, call.fails and alike is None)
        scripts.append(Script(lane.name, (own,)))
    return Scenario(lanes=tuple(lane for lane, _ in lanes), scripts=tuple(scripts))


@attrs.frozen
class _Run:
    """What was seen of one run."""

    trace: Trace
    results: Sequence[tuple[int, object]]
    fault: str | None
    """How the scheduler itself failed, if it did."""


@attrs.define(eq=False)
class _Seen:
    """A scenario and its runs, made when they are first looked at."""

    make: Callable[[], Scheduler]
    scenario: Scenario
    _whole: _Run | None = None

    @property
    def whole(self) -> _Run:
        if self._whole is None:
            self._whole = run_virtual(_run, self.make, self.scenario)
        return self._whole

    def alone(self, lane: LaneSpec) -> Trace:
        """A run of the jobs of one lane."""
        own = tuple(script for script in self.scenario.scripts if script.lane == lane.name)
        only = attrs.evolve(self.scenario, lanes=(lane,), scripts=own)
        return run_virtual(_run, self.make, only).trace


async def _run(make: Callable[[], Scheduler], scenario: Scenario) -> _Run:
    recorder = Recorder()
    calls = dict(enumerate(_calls(scenario)))
    jobs = tuple(ForeignJob(index, call.lane) for index, call in calls.items())
    results: list[tuple[int, object]] = []

    async def send(job: ForeignJob) -> Answer:
        call = calls[job.index]
        with (
            recorder.body(job.index, call.lane),
            recorder.asking(job.index, call.lane) as asked,
            recorder.call(asked, call.lane),
        ):
            await trio.sleep(call.duration)
            if call.fails:
                raise ScriptedError(f"job {job.index} was told to fail")
        return Answer(job.index)

    async def emit(index: int, result: object) -> None:
        results.append((index, result))
        now = trio.current_time()
        await recorder.emit(Done(index, now, now, waited=0.0, calls=1, value=result))
        await trio.lowlevel.checkpoint()

    fault = None
    patience = _SLACK + _SLOWEST * sum(_one_by_one(scenario))
    living = trio.lowlevel.current_statistics().tasks_living
    with trio.move_on_after(patience) as scope:
        try:
            await make()(jobs, scenario.lanes, send, emit)
        except Exception as error:  # noqa: BLE001 - whatever a stranger raises is what is reported
            fault = "it raised " + "; ".join(
                f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error)
            )
    if scope.cancel_called:
        fault = f"it had not returned after {patience} s"
    ended_at = trio.current_time()
    await trio.testing.wait_all_tasks_blocked()
    alive = trio.lowlevel.current_statistics().tasks_living - living
    trace = Trace(
        scenario=scenario,
        ended_at=ended_at,
        bodies=_in_order(recorder.bodies),
        calls=_in_order(recorder.calls),
        asked=recorder.asked,
        emissions=recorder.emissions,
        samples=(),
        events=(),
        left_over=[f"{alive} tasks"] if alive > 0 else [],
    )
    return _Run(trace, results, fault)


def _in_order(spans: Sequence[Span]) -> list[Span]:
    """The same spans; those of a lane that start at one instant are numbered by their jobs."""
    ordered: list[Span] = []
    for lane in sorted({span.lane for span in spans}):
        own = [span for span in spans if span.lane == lane]
        ticks = sorted(span.started for span in own)
        by_job = sorted(own, key=lambda span: (span.started_at, span.index))
        ordered += [attrs.evolve(s, started=tick) for s, tick in zip(by_job, ticks, strict=True)]
    return sorted(ordered, key=lambda span: span.started)


def _one_by_one(scenario: Scenario) -> Iterable[float]:
    """Seconds that each job takes at most, if nothing else runs."""
    lanes = {lane.name: lane for lane in scenario.lanes}
    for call in _calls(scenario):
        lane = lanes[call.lane]
        yield call.duration + lane.min_gap + (60 / lane.rpm if lane.rpm else 0.0)


def _calls(scenario: Scenario) -> list[Call]:
    """What each job does, by index."""
    return [call for script in scenario.scripts for call in script.actions if type(call) is Call]


def _check_total(seen: _Seen) -> None:
    fault = seen.whole.fault
    require("TOTAL", fault is None, f"the scheduler failed: {fault}")
    check_total(seen.whole.trace)


def _check_honest(seen: _Seen) -> None:
    """Each result is that of the job's own call, which was made once and is over."""
    calls = {span.index: span for span in seen.whole.trace.calls}
    made = Counter(span.index for span in seen.whole.trace.calls)
    for (index, result), emission in zip(
        seen.whole.results, seen.whole.trace.emissions, strict=True
    ):
        require("HONEST", made[index] == 1, f"job {index} was called {made[index]} times")
        span = calls[index]
        too_early = f"job {index} was emitted at {emission.at}, its call ended at {span.ended_at}"
        require("HONEST", span.ended_at <= emission.at, too_early)
        own = span.ending != "returned" or result == Answer(index)
        require("HONEST", own, f"job {index} was emitted with {result!r}")


def _check_isolation(seen: _Seen) -> None:
    """Judged of lanes whose jobs are alike.

    Elsewhere a scheduler that takes jobs in any order would be blamed for what is mere chance.
    """
    calls = _calls(seen.scenario)
    for lane in seen.scenario.lanes:
        own = {(call.duration, call.fails) for call in calls if call.lane == lane.name}
        others = any(call.lane != lane.name for call in calls)
        if others and len(own) == 1 and not any(fails for _, fails in own):
            check_isolation(seen.alone(lane), seen.whole.trace, lane.name)


def _of_trace(check: Callable[[Trace], None]) -> Callable[[_Seen], None]:
    return lambda seen: check(seen.whole.trace)


_CHECKS: Mapping[str, Callable[[_Seen], None]] = {
    "TOTAL": _check_total,
    "ORDER": _of_trace(check_order),
    "PROMPT": _of_trace(check_prompt),
    "HONEST": _check_honest,
    "WIDTH": _of_trace(check_width),
    "PACE": _of_trace(check_pace),
    "EAGER": _of_trace(check_eager),
    "ISOLATION": _check_isolation,
    "LEAK": _of_trace(check_leak),
}

OUTSIDE_LAWS: tuple[str, ...] = tuple(_CHECKS)
"""The laws that can be judged from outside a scheduler."""


def _breach(law: str, seen: _Seen) -> str | None:
    try:
        _CHECKS[law](seen)
    except AssertionError as broken:
        return str(broken)
    return None


def _describe(scenario: Scenario) -> Iterator[str]:
    """The scenario for a person, a line for each lane and job."""
    for lane in scenario.lanes:
        rate = "" if lane.rpm is None else f", {lane.rpm:g} rpm with a burst of {lane.burst}"
        gap = f", {lane.min_gap:g} s between starts" if lane.min_gap else ""
        yield f"  lane {lane.name}: width {lane.width}{rate}{gap}"
    for index, call in enumerate(_calls(scenario)):
        yield f"  job {index} on {call.lane}: {call.duration:g} s" + ", then fails" * call.fails
