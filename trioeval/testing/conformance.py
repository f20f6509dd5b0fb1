"""Checks of foreign schedulers and paces against the laws.

A scheduler here is any async callable that gets jobs and lanes, makes the requests of each job through `send`
and passes each result to `emit`. It needs to know nothing of this kernel. The check draws scenarios, runs
them on the virtual clock with a recorder behind `send` and `emit`, and checks the laws that are visible
there: see `outside_laws`. Capabilities that a scheduler does not have are declared, and not used in the
scenarios.
"""

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, Self, TypeAlias, get_args

import attrs
from hypothesis import strategies as st

from trioeval.errors import CallError, Fault, UsageError
from trioeval.kernel import LaneSpec
from trioeval.testing.foreign import Scheduler, call_of
from trioeval.testing.outside_laws import OUTSIDE_CHECKS, Seen
from trioeval.testing.scenario import AttemptScript, CallScript, JobScript, RunScenario
from trioeval.testing.smallest import Smallest, find_smallest
from trioeval.testing.trace import RunTrace, TraceSpan

# Check the arithmetic of a foreign pace.
#
# A pace says when the next request may start. It is checked with calls only, without a clock and without
# Trio: requests are made at drawn instants, each start is compared with all earlier ones by brute force, and
# so the pace must be exact although it stores one number in place of the past.


PaceRule: TypeAlias = Literal["FIRST", "RATE", "EAGER", "MONOTONE", "LONG_RUN"]
"""The rules of a pace.

* FIRST: the first start is at once.
* RATE: any window of length T holds at most burst + T·rpm/60 starts, each `min_gap` after the one before.
* EAGER: no start is later than RATE requires.
* MONOTONE: `earliest(now)` is at or after `now`, never falls as `now` grows, and holds when it is reached.
* LONG_RUN: a client that requests again at once, many times, gets the full rate.
"""

_TOLERANCE = 1e-9
_LONG_RUN = 64


class PaceLike(Protocol):
    """A pace: `take` returns the next state, which may be the same object, changed."""

    def earliest(self, now: float, /) -> float:
        """Return the first instant at or after `now`, in seconds, at which a request may start."""
        ...

    def take(self, now: float, /) -> Self:
        """Return the pace after a start at `now`, which is not before `earliest(now)`."""
        ...


@attrs.frozen
class PaceLimits:
    """The configuration of a pace."""

    rpm: float | None
    """Requests per minute; None sets no rate."""
    burst: int
    """Requests that may start together after a pause, ≥ 1."""
    min_gap: float
    """The least seconds between two starts, ≥ 0."""

    @property
    def period(self) -> float:
        """Seconds per request in the long run; 0 without a rate."""
        return 60 / self.rpm if self.rpm else 0.0

    def earliest(self, starts: Sequence[float]) -> float:
        """Return the first instant that every window with the earlier starts allows, by brute force."""
        windows = [
            at + (len(starts) - place + 1 - self.burst) * self.period
            for place, at in enumerate(starts)
        ]
        gaps = [starts[-1] + self.min_gap] if starts else []
        return max([-math.inf, *windows, *gaps])


@attrs.frozen
class PaceBreach:
    """A rule that a pace breaks."""

    rule: str
    message: str
    """The violation, in the smallest example that shows it."""
    limits: PaceLimits
    waits: tuple[float, ...]
    """Seconds from each start to the next request."""

    def __str__(self) -> str:
        return f"{self.rule} is broken: {self.message}\n  {self.limits}, waits {list(self.waits)}"


MakePace: TypeAlias = Callable[[float | None, int, float], PaceLike]
"""`make(rpm, burst, min_gap)` returns a pace without any start."""


def check_pacer(make: MakePace, *, examples: int = 200, seed: int = 0) -> None:
    """Check a pace against its rules; instants that differ by less than a nanosecond count as equal.

    Args:
        make: Returns a fresh pace for given limits.
        examples: Number of sequences of requests to draw, ≥ 1.
        seed: Equal seeds draw equal sequences.

    Raises:
        AssertionError: It names every broken rule, each with the smallest example found.

    Example:
        >>> from trioeval.rates import Pace
        >>> check_pacer(lambda rpm, burst, gap: Pace.per_minute(rpm, burst=burst, min_gap=gap))
    """
    found = broken_pace_rules(make, examples=examples, seed=seed)
    if found:
        message = "\n\n".join(str(breach) for breach in found.values())
        raise AssertionError(f"broken rules: {', '.join(found)}\n\n{message}")


def broken_pace_rules(
    make: MakePace, *, examples: int = 200, seed: int = 0
) -> dict[PaceRule, PaceBreach]:
    """Return the findings of `check_pacer` by rule; empty if all rules hold."""

    def judge(example: _Example, rules: Collection[str]) -> dict[str, str]:
        first: dict[str, str] = {}
        for rule, message in (*_replay(make, *example), *_run_long(make, example[0])):
            if rule in rules:
                first.setdefault(rule, message)
        return first

    rules: tuple[PaceRule, ...] = get_args(PaceRule)
    found = find_smallest(_EXAMPLES, judge, rules, count=examples, seed=seed)
    return {
        rule: PaceBreach(rule, found[rule].message, *found[rule].example)
        for rule in rules
        if rule in found
    }


_Example: TypeAlias = tuple[PaceLimits, tuple[float, ...]]

_QUARTERS = st.integers(0, 40).map(lambda quarters: quarters / 4)
_EXAMPLES: st.SearchStrategy[_Example] = st.tuples(
    st.builds(
        PaceLimits,
        st.sampled_from((60.0, 240.0, 120.0, 30.0, 15.0, 7.0, None)),
        st.integers(1, 4),
        st.sampled_from((0.0, 0.25, 1.0, 3.0)),
    ),
    st.lists(_QUARTERS, min_size=1, max_size=12).map(tuple),
)


def _replay(
    make: MakePace, limits: PaceLimits, waits: Sequence[float]
) -> Iterator[tuple[PaceRule, str]]:
    """Yield every violation in order; a pace that is too early is followed all the same."""
    pace, now = make(limits.rpm, limits.burst, limits.min_gap), 0.0
    starts: list[float] = []
    for wait in waits:
        now += wait
        at = pace.earliest(now)
        yield from _check_monotone(pace, now, at)
        right = max(now, limits.earliest(starts))
        message = (
            f"at {now}, start {len(starts)} is allowed at {at}, expected {right}; before: {starts}"
        )
        if not starts and at > now + _TOLERANCE:
            yield "FIRST", message
        if at < right - _TOLERANCE:
            yield "RATE", message
        if at > right + _TOLERANCE:
            yield "EAGER", message
        now = max(now, at)
        starts.append(now)
        pace = pace.take(now)


def _check_monotone(pace: PaceLike, now: float, at: float) -> Iterator[tuple[PaceRule, str]]:
    if at < now - _TOLERANCE:
        yield "MONOTONE", f"earliest({now}) is {at}"
    for later in (now + 0.25, now + 1.0, at, at + 0.25):
        if later >= now:
            then = pace.earliest(later)
            if then < at - _TOLERANCE or (later >= at and then > later + _TOLERANCE):
                yield "MONOTONE", f"earliest({now}) is {at}, earliest({later}) is {then}"


def _run_long(make: MakePace, limits: PaceLimits) -> Iterator[tuple[PaceRule, str]]:
    """Request again at once, many times."""
    pace, now = make(limits.rpm, limits.burst, limits.min_gap), 0.0
    for _ in range(_LONG_RUN):
        now = max(now, pace.earliest(now))
        pace = pace.take(now)
    last = _LONG_RUN - 1
    right = max((last + 1 - limits.burst) * limits.period, last * limits.min_gap)
    if not math.isclose(now, right, abs_tol=_TOLERANCE * _LONG_RUN):
        yield "LONG_RUN", f"{_LONG_RUN} starts took {now} s, expected {right}"


OUTSIDE_LAWS: tuple[str, ...] = tuple(OUTSIDE_CHECKS)
"""The laws that can be checked from outside a scheduler."""

Capability: TypeAlias = Literal[
    "rate", "burst", "gap", "retries", "retry_after", "timeout", "deadline", "stop", "cancel"
]
"""A feature that a scenario may use beyond running jobs on lanes with a max concurrency."""

CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
"""All capabilities."""

_TERMS = ("deadline", "stop")
_ENDS = ("deadline", "stop", "cancel")
_NAMES = ("a", "b", "c")


@attrs.frozen
class Breach:
    """A law that a scheduler breaks."""

    law: str
    message: str
    """The smallest scenario that shows the violation: its lanes, its jobs, and a timeline."""
    scenario: RunScenario
    """The smallest scenario."""

    def __str__(self) -> str:
        return self.message


def check_scheduler(
    make: Callable[[], Scheduler],
    *,
    examples: int = 200,
    seed: int = 0,
    laws: Iterable[str] | None = None,
    unsupported: Iterable[Capability] = (),
) -> None:
    """Check a scheduler against the laws, in drawn scenarios on the virtual clock.

    Not for use inside a Trio run: it starts its own.

    Args:
        make: Returns a fresh scheduler, for each run.
        examples: Number of scenarios to draw, ≥ 1.
        seed: Equal seeds draw equal scenarios.
        laws: Names from `OUTSIDE_LAWS`; None checks all.
        unsupported: Names from `CAPABILITIES` that no scenario uses. A scheduler without `deadline` or `stop`
            is called without the argument of that name.

    Raises:
        AssertionError: It names every broken law, each with the smallest scenario found.
        UsageError: `laws` or `unsupported` contains an unknown name, or the scheduler does not accept an
            argument that it should.
    """
    found = broken_laws(make, examples=examples, seed=seed, laws=laws, unsupported=unsupported)
    if found:
        breaches = "\n\n".join(str(breach) for breach in found.values())
        raise AssertionError(f"broken laws: {', '.join(found)}\n\n{breaches}")


def broken_laws(
    make: Callable[[], Scheduler],
    *,
    examples: int = 200,
    seed: int = 0,
    laws: Iterable[str] | None = None,
    unsupported: Iterable[Capability] = (),
    shrink: bool = True,
) -> dict[str, Breach]:
    """Return the findings of `check_scheduler` by law, in the order of `OUTSIDE_LAWS`; empty if all hold.

    Args:
        make: As for `check_scheduler`, like the following.
        examples: Number of scenarios to draw, ≥ 1.
        seed: Equal seeds draw equal scenarios.
        laws: Names from `OUTSIDE_LAWS`; None checks all.
        unsupported: Names from `CAPABILITIES` that no scenario uses.
        shrink: Whether to search for the smallest scenarios, which takes longer than to find the broken laws;
            otherwise each is the first that was drawn.

    Raises:
        UsageError: `laws` or `unsupported` contains an unknown name, or the scheduler does not accept an
            argument that it should.
    """
    laws_to_check = _known("laws", OUTSIDE_LAWS if laws is None else laws, OUTSIDE_LAWS)
    lacking = _known("unsupported", unsupported, CAPABILITIES)
    terms = frozenset(_TERMS) - set(lacking)
    _check_arguments(make(), sorted(terms))

    def judge(scenario: RunScenario, some: Collection[str]) -> dict[str, str]:
        seen = Seen(make, scenario, terms)
        return {law: breach for law in some if (breach := _breach(law, seen)) is not None}

    drawn = outside_scenarios(unsupported=lacking)
    found = find_smallest(drawn, judge, laws_to_check, count=examples, seed=seed, shrink=shrink)
    found |= {law: Smallest(_EMPTY, breach) for law, breach in judge(_EMPTY, laws_to_check).items()}
    return {
        law: Breach(law, found[law].message, found[law].example)
        for law in OUTSIDE_LAWS
        if law in found
    }


def _known(argument: str, names: Iterable[str], known: Collection[str]) -> list[str]:
    names = list(names)
    unknown = [name for name in names if name not in known]
    if unknown:
        msg = f"{argument} must be some of {', '.join(known)}, got {', '.join(unknown)}"
        raise UsageError(msg)
    return names


def _check_arguments(scheduler: Scheduler, terms: Collection[str]) -> None:
    """Check the signature before any run: the error of a call would look like a failure of the scheduler."""
    parameters = inspect.signature(scheduler).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return
    taken = {one.name for one in parameters}
    if missing := [name for name in terms if name not in taken]:
        lacks = f"the scheduler does not accept the argument {' and the argument '.join(missing)}"
        msg = f"{lacks}: add it, or declare unsupported={missing}"
        raise UsageError(msg)


# Created once: creating a strategy takes longer than drawing from it.
_SECONDS = st.integers(1, 16).map(lambda quarters: quarters / 4)
# No sum of a few of them is the instant at which a polling scheduler would look.
_ODD_SECONDS = st.integers(1, 8).map(lambda quarters: quarters / 4 + 1 / 16)
_WAITS = st.sampled_from((1.25, None, 2.5, 5.0))
_FAILED: Mapping[str, st.SearchStrategy[AttemptScript]] = {
    "retries": st.builds(AttemptScript, _ODD_SECONDS, st.just(Fault.TRANSIENT)),
    "retry_after": st.builds(AttemptScript, _ODD_SECONDS, st.just(Fault.RATE_LIMITED), _WAITS),
}
_LAST = st.builds(AttemptScript, _ODD_SECONDS).map(lambda last: (last,))
_AT_ONCE = st.builds(
    CallScript, st.sampled_from(_NAMES), _SECONDS, st.sampled_from((False, False, True))
)
_ENDLESS = st.just(math.inf)
_TIMEOUTS = st.sampled_from((math.inf, math.inf, 0.5, 1.0, 2.0))
# No call ends at such an instant.
_CUTS = st.integers(0, 7).map(lambda halves: halves / 2 + 1 / 32)
_ALIKE = st.sampled_from((None,) * 5 + (0.25, 1.0, 2.5))
# Many lanes have no rate: else jobs hardly ever wait for a slot. None gives up, and none learns.
_LANES = tuple(
    st.tuples(
        st.builds(
            LaneSpec,
            st.just(name),
            st.sampled_from((1, 1, 1, 2, 2, 3, 4)),
            rpm=st.sampled_from((None, None, None, 240.0, 120.0, 60.0, 30.0, 15.0)),
            burst=st.integers(1, 3),
            min_gap=st.sampled_from((0.0, 0.0, 0.0, 0.25, 1.0)),
            retries=st.sampled_from((3, 3, 1, 0)),
            adaptive=st.just("off"),
            patience=st.just(math.inf),
        ),
        _ALIKE,
    )
    for name in _NAMES
)
_EMPTY = RunScenario((LaneSpec("a", 1),), ())


def outside_scenarios(*, unsupported: Collection[str] = ()) -> st.SearchStrategy[RunScenario]:
    """Up to three lanes, and jobs of one call, which may fail, be retried, or take too long.

    Some runs are cut at an instant. Every request takes at least a quarter of a second. The jobs of some
    lanes are alike: they take the same time, and none of them fails.

    Args:
        unsupported: Names from `CAPABILITIES` that are not drawn.
    """
    failed = [strategy for name, strategy in _FAILED.items() if name not in unsupported]
    calls = [_AT_ONCE, *(_again(strategy) for strategy in failed)]
    timeouts = _ENDLESS if "timeout" in unsupported else _TIMEOUTS
    plain = _several(st.tuples(_AT_ONCE, _ENDLESS))
    troubled = _several(st.tuples(st.one_of(*calls), timeouts))
    uncut = st.tuples(*(_ENDLESS for _ in _ENDS))
    cuts = [
        st.tuples(*(_CUTS if name == cut else _ENDLESS for name in _ENDS))
        for cut in _ENDS
        if cut not in unsupported
    ]
    return _scenarios((plain, troubled), (uncut, st.one_of(*cuts) if cuts else uncut), unsupported)


def _several(
    job: st.SearchStrategy[tuple[CallScript, float]],
) -> st.SearchStrategy[list[tuple[CallScript, float]]]:
    return st.lists(job, min_size=1, max_size=12)


def _again(failed: st.SearchStrategy[AttemptScript]) -> st.SearchStrategy[CallScript]:
    """Calls that fail once or twice before they are served."""
    attempts = st.tuples(st.lists(failed, min_size=1, max_size=2).map(tuple), _LAST)
    return st.builds(
        CallScript,
        st.sampled_from(_NAMES),
        st.just(0.0),
        attempts=attempts.map(lambda two: two[0] + two[1]),
    )


_LANE_COUNTS = st.sampled_from((1, 1, 2, 2, 3))
_KINDS = st.sampled_from((0, 1, 1))
_KINDS_OF_ENDS = st.sampled_from((0, 0, 0, 1, 1))


@st.composite
def _scenarios(
    draw: st.DrawFn,
    jobs: tuple[st.SearchStrategy[list[tuple[CallScript, float]]], ...],
    ends: tuple[st.SearchStrategy[tuple[float, ...]], ...],
    unsupported: Collection[str],
) -> RunScenario:
    count = draw(_LANE_COUNTS)
    drawn = draw(jobs[draw(_KINDS)])
    deadline, stop_at, cancel_at = draw(ends[draw(_KINDS_OF_ENDS)])
    lanes = [draw(lane) for lane in _LANES[:count]]  # last, so that any one can be left out
    scripts = []
    for call, timeout in drawn:
        lane, alike = lanes[_NAMES.index(call.lane) % count]
        own = JobScript(lane.name, (attrs.evolve(call, lane=lane.name),), timeout)
        scripts.append(
            own if alike is None else JobScript(lane.name, (CallScript(lane.name, alike),))
        )
    return RunScenario(
        lanes=tuple(_reduced(lane, unsupported) for lane, _ in lanes),
        scripts=tuple(scripts),
        deadline=deadline,
        stop_at=stop_at,
        cancel_at=cancel_at,
    )


def _reduced(lane: LaneSpec, unsupported: Collection[str]) -> LaneSpec:
    """Return the lane without unsupported features."""
    return attrs.evolve(
        lane,
        rpm=None if "rate" in unsupported else lane.rpm,
        burst=1 if "burst" in unsupported else lane.burst,
        min_gap=0.0 if "gap" in unsupported else lane.min_gap,
    )


def _breach(law: str, seen: Seen) -> str | None:
    try:
        OUTSIDE_CHECKS[law](seen)
    except AssertionError as broken:
        return "\n".join((str(broken), *_describe(seen.scenario), *_timeline(seen.whole.trace)))
    return None


def _describe(scenario: RunScenario) -> Iterator[str]:
    """Describe the scenario for people, one line for each lane and job."""
    for lane in scenario.lanes:
        rate = "" if lane.rpm is None else f", {lane.rpm:g} rpm with a burst of {lane.burst}"
        gap = f", {lane.min_gap:g} s between starts" if lane.min_gap else ""
        mishaps = any(
            one.fault is Fault.TRANSIENT
            for script in scenario.scripts
            if script.lane == lane.name
            for one in call_of(script).attempts
        )
        retries = f", retries: {lane.retries}" if mishaps else ""
        yield f"  lane {lane.name}: max concurrency {lane.max_concurrency}{rate}{gap}{retries}"
    for index, script in enumerate(scenario.scripts):
        call = call_of(script)
        steps = [_step(one, fails=call.fails) for one in call.attempts or (call.attempt(0),)]
        timeout = f"; timeout {script.timeout:g} s" if script.timeout < math.inf else ""
        yield f"  job {index} on {script.lane}: {'; again: '.join(steps)}{timeout}"
    cuts = {
        "deadline": scenario.deadline,
        "stop": scenario.stop_at,
        "cancelled": scenario.cancel_at,
    }
    yield from (f"  {name} at {at:g}" for name, at in cuts.items() if at < math.inf)


def _step(attempt: AttemptScript, *, fails: bool) -> str:
    took = f"{attempt.duration:g} s"
    if attempt.fault is None:
        return f"{took}, then fails" if fails else took
    wait = "" if attempt.retry_after is None else f", retry after {attempt.retry_after:g} s"
    return f"{took}, then {attempt.fault.value}{wait}"


def _timeline(trace: RunTrace) -> Iterator[str]:
    """Describe the trace for people, one line for each start and end."""
    steps = [(span.started, span.started_at, f"{_name(span)} starts") for span in trace.calls]
    steps += [
        (span.ended, span.ended_at, f"{_name(span)} {_ending(span)}")
        for span in trace.calls
        if span.ended is not None
    ]
    yield "  timeline:" if steps else "  timeline: no call was made"
    for _, at, text in sorted(steps):
        yield f"    {at:8.3f}  {text}"
    yield f"    {trace.ended_at:8.3f}  the scheduler returns"


def _name(span: TraceSpan) -> str:
    again = f", request {span.attempt + 1}" if span.attempt else ""
    return f"{span.lane}: job {span.index}{again}"


def _ending(span: TraceSpan) -> str:
    match span.error:
        case CallError(fault=fault, retry_after=None):
            return f"fails: {fault.value}"
        case CallError(fault=fault, retry_after=wait):
            return f"fails: {fault.value}, retry after {wait:g} s"
        case _:
            return "is cut off" if span.ending == "cut" else "ends"
