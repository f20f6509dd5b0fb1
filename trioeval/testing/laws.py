"""The laws of the kernel as checks over a trace.

Each raises a plain `AssertionError` that names its law and what broke it. They look only at the trace, so
they hold any scheduler to the laws whose run was recorded. Instants are compared exactly: use scenarios
whose times are whole numbers or dyadic fractions.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from trioeval.kernel import (
    Admitted,
    Blocked,
    CallEnded,
    CallStarted,
    Cut,
    Done,
    Failed,
    Finished,
    Interrupted,
    LaneSpec,
    NotRun,
    TimedOut,
)
from trioeval.testing.trace import Span, Trace


def check_total(trace: Trace) -> None:
    """TOTAL: every index gets exactly one outcome."""
    seen = sorted(emission.outcome.index for emission in trace.emissions)
    _require("TOTAL", seen == list(range(trace.size)), f"outcomes of {seen} for {trace.size} jobs")


def check_order(trace: Trace) -> None:
    """ORDER: outcomes are emitted in index order."""
    seen = [emission.outcome.index for emission in trace.emissions]
    _require("ORDER", seen == sorted(seen), f"emitted in the order {seen}")


def check_prompt(trace: Trace) -> None:
    """PROMPT: each outcome is emitted as soon as it and all before it are known."""
    finished_at = {span.index: span.ended_at for span in trace.bodies}
    known_at = -math.inf
    for emission in trace.emissions:
        index = emission.outcome.index
        known_at = max(known_at, finished_at.get(index, trace.ended_at))
        _require(
            "PROMPT",
            emission.at == known_at,
            f"outcome {index} was known at {known_at} and emitted at {emission.at}",
        )


def check_honest(trace: Trace) -> None:
    """HONEST: a job has calls only if it was started; its outcome and the observer tell what was."""
    bodies = {span.index: span for span in trace.bodies}
    _require("HONEST", len(bodies) == len(trace.bodies), "a job was started twice")
    made: dict[int, int] = defaultdict(int)
    for call in trace.calls:
        made[call.index] += 1
    for emission in trace.emissions:
        outcome = emission.outcome
        body = bodies.get(outcome.index)
        _require("HONEST", not isinstance(outcome, Blocked), f"{outcome} without a dependency")
        if isinstance(outcome, NotRun | Blocked):
            _require("HONEST", body is None, f"{outcome} of a job that was started")
            _require("HONEST", not made[outcome.index], f"{outcome} of a job that has calls")
            continue
        told = (outcome.started_at, outcome.finished_at, outcome.calls)
        if body is None:
            _require("HONEST", False, f"{outcome} of a job that was never started")  # noqa: FBT003
            continue
        true = (body.started_at, body.ended_at, made[outcome.index])
        fits = isinstance(outcome, _ENDINGS[body.ending])
        _require("HONEST", fits, f"{outcome} of a body whose end was: {body.ending}")
        _require("HONEST", told == true, f"job {outcome.index} says {told} where {true} was seen")
    seen = {
        Admitted: [(span.started_at, span.index, span.lane) for span in trace.bodies],
        CallStarted: [(span.started_at, span.index, span.lane) for span in trace.calls],
        CallEnded: [(span.ended_at, span.index, span.lane) for span in trace.calls],
    }
    heard: dict[type, list[tuple[float, int, str]]] = defaultdict(list)
    finished = {}
    for event in trace.events:
        match event:
            case Admitted() | CallStarted() | CallEnded():
                heard[type(event)].append((event.at, event.index, event.lane))
            case Finished(_, outcome):
                finished[outcome.index] = outcome
            case _:
                pass
    for kind, right in seen.items():
        otherwise = f"the observer heard {kind.__name__} {heard[kind]}, and {right} was seen"
        _require("HONEST", sorted(heard[kind]) == sorted(right), otherwise)
    emitted = {e.outcome.index: e.outcome for e in trace.emissions if e.outcome.index in bodies}
    _require("HONEST", finished == emitted, f"the observer heard of {finished}, not {emitted}")


def check_width(trace: Trace) -> None:
    """WIDTH: calls in flight on a lane never exceed its width, nor its live jobs their bound."""
    for lane in trace.lanes:
        in_flight = _most_at_once(_on(trace.calls, lane))
        _require("WIDTH", in_flight <= lane.width, f"{in_flight} calls in flight on {lane}")
        live = _most_at_once(_on([s for s in trace.bodies if s.index not in trace.serial], lane))
        _require("WIDTH", live <= trace.max_live_jobs, f"{live} live jobs on {lane}")


def check_pace(trace: Trace) -> None:
    """PACE: any window T holds at most burst + T·rpm/60 starts, min_gap apart, first come first served.

    The jobs of a lane start in index order. A call that was asked for before another starts before it,
    unless the other is its job's first act: that job stood in line itself before it was started.
    """
    first_act_at = {span.index: span.started_at for span in trace.bodies}
    for lane in trace.lanes:
        bodies = sorted(_on(trace.bodies, lane), key=lambda span: span.started)
        parallel = [span.index for span in bodies if span.index not in trace.serial]
        in_order = parallel == sorted(parallel)
        _require("PACE", in_order, f"jobs of {lane.name} started in the order {parallel}")
        calls = sorted(_on(trace.calls, lane), key=lambda span: span.started)
        for place, call in enumerate(calls):
            if call.asked_at == first_act_at[call.index]:
                continue
            passed = [other for other in calls[place:] if other.asked_at < call.asked_at]
            _require("PACE", not passed, f"{call} was started before {passed}")
        starts = sorted(span.started_at for span in _on(trace.calls, lane))
        period = 60 / lane.rpm if lane.rpm is not None else 0.0
        for first, earlier in enumerate(starts):
            for last in range(first + 1, len(starts)):
                gap = starts[last] - earlier
                most_alike = f"{last - first + 1} starts within {gap} on {lane}: {starts}"
                _require("PACE", gap >= (last - first + 1 - lane.burst) * period, most_alike)
                _require("PACE", gap >= lane.min_gap, most_alike)


def check_serial(trace: Trace) -> None:
    """SERIAL: while a serial job runs nothing else does; serial jobs run before the others."""
    alone = [span for span in trace.bodies if span.index in trace.serial]
    seen = [span.index for span in sorted(alone, key=lambda span: span.started)]
    _require("SERIAL", seen == sorted(seen), f"serial jobs ran in the order {seen}")
    for span in alone:
        for other in trace.bodies:
            if other is span:
                continue
            apart = other.last < span.started or other.started > span.last
            _require("SERIAL", apart, f"job {other.index} ran beside serial job {span.index}")
            in_turn = other.index in trace.serial or other.started > span.started
            _require("SERIAL", in_turn, f"job {other.index} ran before serial job {span.index}")


def check_limit(trace: Trace) -> None:
    """LIMIT: a job times out exactly when its working time reaches its timeout."""
    worked = {span.index: _working_time(trace, span) for span in trace.bodies}
    for emission in trace.emissions:
        outcome = emission.outcome
        if isinstance(outcome, NotRun | Blocked):
            continue
        timeout, working = trace.timeouts[outcome.index], worked[outcome.index]
        told = f"job {outcome.index} worked {working} of {timeout} and ended as {outcome}"
        match outcome:
            case TimedOut():
                _require("LIMIT", working == timeout, told)
            case Interrupted():
                _require("LIMIT", working <= timeout, told)
            case _:
                _require("LIMIT", working < timeout, told)
        waited = outcome.finished_at - outcome.started_at - outcome.waited
        _require("LIMIT", waited == working, f"{told}; its own account is {waited}")


def check_deadline(trace: Trace) -> None:
    """DEADLINE: nothing starts at or after it, and the run ends at it."""
    cut_at = min(trace.deadline, trace.cancelled_at)
    for span in (*trace.bodies, *trace.calls):
        _require(
            "DEADLINE", span.started_at < trace.deadline, f"{span} started after {trace.deadline}"
        )
        _require("DEADLINE", span.ended_at <= cut_at, f"{span} ended after {cut_at}")
    _require(
        "DEADLINE", trace.ended_at <= cut_at, f"the run ended at {trace.ended_at}, not {cut_at}"
    )
    ends = {Cut.DEADLINE: trace.deadline, Cut.CANCEL: trace.cancelled_at, Cut.FAULT: -math.inf}
    for emission in trace.emissions:
        outcome = emission.outcome
        if isinstance(outcome, Interrupted | NotRun) and outcome.cut in ends:
            right = trace.ended_at == ends[outcome.cut]
            _require("DEADLINE", right, f"{outcome} in a run that ended at {trace.ended_at}")
        stopped = isinstance(outcome, Interrupted) and outcome.cut is Cut.STOP
        _require("DEADLINE", not stopped, f"{outcome}: a stop lets what runs finish")


def check_drain(trace: Trace) -> None:
    """DRAIN: after stop no job starts, and those under way run to their end."""
    for span in trace.bodies:
        _require("DRAIN", span.started_at <= trace.stopped_at, f"{span} started after stop")
    cut = [
        e.outcome
        for e in trace.emissions
        if isinstance(e.outcome, NotRun) and e.outcome.cut is Cut.STOP
    ]
    if cut:
        drained_at = max([trace.stopped_at, *(span.ended_at for span in trace.bodies)])
        told = (
            f"{cut} in a run that was stopped at {trace.stopped_at} and ended at {trace.ended_at}"
        )
        _require("DRAIN", trace.stopped_at <= trace.ended_at <= drained_at, told)


def check_slot(trace: Trace) -> None:
    """SLOT: at every instant the slots held are the calls in flight, and nothing else."""
    looked = bool(trace.samples) or trace.ended_at < 1
    _require("SLOT", looked, "nobody looked at the lanes while the run went on")
    for sample in trace.samples:
        _require("SLOT", sample.held == sample.in_flight, f"{sample}")


def check_eager(trace: Trace) -> None:
    """EAGER: each call starts at the first instant at which turn, pace and slot allow it.

    For traces of simple scenarios only: one call a job, nothing that cuts or gates.
    """
    for lane in trace.lanes:
        period = 60 / lane.rpm if lane.rpm is not None else 0.0
        begun: list[Span] = []
        for span in sorted(_on(trace.calls, lane), key=lambda span: span.index):
            place = len(begun)
            bounds = [0.0]
            bounds += [begun[-1].started_at + lane.min_gap] if begun else []
            # The rate alone allows start n at burst - 1 periods before the n-th tick of its own clock.
            bounds += [_rate_bound([s.started_at for s in begun], period, lane.burst)]
            if place >= lane.width:
                bounds.append(sorted(s.ended_at for s in begun)[place - lane.width])
            right = max(bounds)
            _require("EAGER", span.started_at == right, f"{span} could have started at {right}")
            begun.append(span)


def check_leak(trace: Trace) -> None:
    """LEAK: nothing of the run is alive after it."""
    _require("LEAK", not trace.left_over, f"left over: {'; '.join(trace.left_over)}")


_ENDINGS: Mapping[str, type | tuple[type, ...]] = {
    "returned": Done,
    "failed": Failed,
    "cut": (TimedOut, Interrupted),
}


LAWS: Mapping[str, Callable[[Trace], None]] = {
    "TOTAL": check_total,
    "ORDER": check_order,
    "PROMPT": check_prompt,
    "HONEST": check_honest,
    "WIDTH": check_width,
    "PACE": check_pace,
    "SERIAL": check_serial,
    "LIMIT": check_limit,
    "DEADLINE": check_deadline,
    "DRAIN": check_drain,
    "SLOT": check_slot,
    "LEAK": check_leak,
}
"""The laws that every trace keeps, by name. EAGER and ISOLATION need traces of their own."""


def check_all(trace: Trace) -> None:
    """Hold a trace to every law of `LAWS`."""
    for check in LAWS.values():
        check(trace)


def check_isolation(alone: Trace, beside: Trace, lane: str) -> None:
    """ISOLATION: the starts on a lane are the same, whatever else runs on other lanes.

    Args:
        alone: A run in which only `lane` has jobs.
        beside: The same jobs in the same order, among those of other lanes.
        lane: The lane that must not notice.
    """
    starts = [
        sorted(span.started_at for span in trace.calls if span.lane == lane)
        for trace in (alone, beside)
    ]
    _require(
        "ISOLATION",
        starts[0] == starts[1],
        f"starts on {lane}: {starts[0]} alone, {starts[1]} beside others",
    )


def _require(law: str, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        msg = f"{law} is broken: {otherwise}"
        raise AssertionError(msg)


def _on(spans: Iterable[Span], lane: LaneSpec) -> list[Span]:
    return [span for span in spans if span.lane == lane.name]


def _most_at_once(spans: Sequence[Span]) -> int:
    steps = sorted(step for span in spans for step in ((span.started, 1), (span.last, -1)))
    return max(itertools.accumulate(change for _, change in steps), default=0)


def _rate_bound(starts: Sequence[float], period: float, burst: int) -> float:
    """The first instant at which every window with the starts so far still keeps the rate."""
    place = len(starts)
    return max(
        (at + (place - first + 1 - burst) * period for first, at in enumerate(starts)), default=0.0
    )


def _working_time(trace: Trace, body: Span) -> float:
    """Seconds of a body in which it did anything else than wait for lanes."""
    calls = [span for span in trace.calls if span.index == body.index]
    waits = [wait for wait in trace.waits if wait.index == body.index]
    instants = sorted(
        {body.started_at, body.ended_at}
        | {at for call in calls for at in (call.started_at, min(call.ended_at, body.ended_at))}
        | {at for wait in waits for at in (wait.asked_at, min(wait.ended_at, body.ended_at))}
    )
    idle = 0.0
    for begin, end in itertools.pairwise(instants):
        waiting = any(wait.asked_at <= begin < wait.ended_at for wait in waits)
        busy = any(call.started_at <= begin < call.ended_at for call in calls)
        if waiting and not busy:
            idle += end - begin
    return body.ended_at - body.started_at - idle
