"""The laws of the kernel as checks over a trace.

Each raises a plain `AssertionError` that names its law and the violation. They read only the trace, so they
apply to any scheduler whose run was recorded. Instants are compared exactly: use scenarios whose times are
whole numbers or dyadic fractions.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping

from trioeval.kernel import (
    Admitted,
    Blocked,
    CallEnded,
    CallStarted,
    Done,
    Failed,
    Finished,
    Interrupted,
    NotRun,
    Reserving,
    StopReason,
    TimedOut,
)
from trioeval.testing.lane_laws import (
    check_aimd,
    check_attempts,
    check_budget,
    check_lease,
    check_pace,
    check_retry_after,
    check_slot,
    check_turn,
    check_width,
)
from trioeval.testing.trace import RunTrace, TraceSpan, require, working_time

# The laws of jobs and outcomes, as checks over a trace.


def check_total(trace: RunTrace) -> None:
    """TOTAL: every index gets exactly one outcome."""
    seen = sorted(emission.outcome.index for emission in trace.emissions)
    require("TOTAL", seen == list(range(trace.size)), f"outcomes of {seen} for {trace.size} jobs")


def check_order(trace: RunTrace) -> None:
    """ORDER: outcomes are emitted in index order."""
    seen = [emission.outcome.index for emission in trace.emissions]
    require("ORDER", seen == sorted(seen), f"emitted in the order {seen}")


def check_prompt(trace: RunTrace) -> None:
    """PROMPT: each outcome is emitted as soon as it and all before it are known."""
    known = {event.outcome.index: event.at for event in trace.events if isinstance(event, Finished)}
    for span in trace.bodies:
        known.setdefault(span.index, span.ended_at)
    known_at = -math.inf
    for emission in trace.emissions:
        index = emission.outcome.index
        known_at = max(known_at, known.get(index, trace.ended_at))
        require(
            "PROMPT",
            emission.at == known_at,
            f"outcome {index} was known at {known_at} and emitted at {emission.at}",
        )


def check_honest(trace: RunTrace) -> None:
    """HONEST: a job has calls only if it was started; outcomes and events match what happened."""
    runs: dict[int, list[TraceSpan]] = defaultdict(list)
    for span in trace.bodies:
        runs[span.index].append(span)
    made: dict[int, int] = defaultdict(int)
    for call in trace.calls:
        made[call.index] += 1
    finished_at = {e.outcome.index: e.at for e in trace.events if isinstance(e, Finished)}
    for emission in trace.emissions:
        outcome = emission.outcome
        bodies = runs[outcome.index]
        if isinstance(outcome, NotRun | Blocked):
            require("HONEST", not bodies, f"{outcome} of a job that was started")
            require("HONEST", not made[outcome.index], f"{outcome} of a job that has calls")
            continue
        reported = (outcome.started_at, outcome.finished_at, outcome.calls)
        require("HONEST", bool(bodies), f"{outcome} of a job that was never started")
        again = len(bodies) - 1
        most = trace.scenario.salvage_rounds
        require("HONEST", again <= most, f"job {outcome.index} was run again {again} times")
        last = bodies[-1]
        true = (last.started_at, last.ended_at, made[outcome.index])
        fits = isinstance(outcome, _ENDINGS[last.ending])
        require("HONEST", fits, f"{outcome} of a body whose end was: {last.ending}")
        require(
            "HONEST",
            reported == true,
            f"job {outcome.index} reports {reported} where {true} was seen",
        )
        at = finished_at.get(outcome.index, last.ended_at)
        prompt = at == last.ended_at or (most and isinstance(outcome, Failed))
        require("HONEST", bool(prompt), f"{outcome} was recorded at {at}")
    _check_observer(trace)
    _check_settled(trace)


def _check_observer(trace: RunTrace) -> None:
    seen = {
        Admitted: [(span.started_at, span.index, span.lane) for span in trace.bodies],
        CallStarted: [(span.started_at, span.index, span.lane) for span in trace.calls],
        CallEnded: [(span.ended_at, span.index, span.lane) for span in trace.calls],
    }
    observed: dict[type, list[tuple[float, int, str | None]]] = defaultdict(list)
    finished = {}
    for event in trace.events:
        match event:
            case Admitted() | CallStarted() | CallEnded():
                observed[type(event)].append((event.at, event.index, event.lane))
            case Finished(_, outcome):
                finished[outcome.index] = outcome
            case _:
                pass
    for kind, right in seen.items():
        otherwise = f"the observer got {kind.__name__} {observed[kind]}, and {right} was seen"
        require("HONEST", sorted(observed[kind]) == sorted(right), otherwise)
    emitted = {e.outcome.index: e.outcome for e in trace.emissions}
    ended = {index: outcome for index, outcome in emitted.items() if index in finished}
    require("HONEST", finished == ended, f"the observer was notified of {finished}, not {ended}")
    started = {span.index for span in trace.bodies}
    missed = started - set(finished)
    require("HONEST", not missed, f"the observer was not notified of the ends of jobs {missed}")


def _check_settled(trace: RunTrace) -> None:
    """Outcomes are reported when they exist, in the observer's order, before they are emitted."""
    places = {emission.outcome.index: place for place, emission in enumerate(trace.emissions)}
    observed = [event.outcome for event in trace.events if isinstance(event, Finished)]
    reported = [one.outcome for one in trace.settled]
    require(
        "HONEST",
        not reported or reported == observed,
        f"reported {reported}, while the observer got {observed}",
    )
    for one in trace.settled:
        late = one.emitted > places[one.outcome.index]
        require("HONEST", not late, f"{one} was reported after it was emitted")


def check_serial(trace: RunTrace) -> None:
    """SERIAL: while a serial job runs nothing else does; serial jobs run before the others."""
    alone = [span for span in trace.bodies if span.index in trace.serial]
    ran = sorted(alone, key=lambda span: span.started)
    seen = list(dict.fromkeys(span.index for span in ran))  # salvage runs some of them again
    require("SERIAL", seen == sorted(seen), f"serial jobs ran in the order {seen}")
    for span in alone:
        for other in trace.bodies:
            if other is span:
                continue
            apart = other.last < span.started or other.started > span.last
            require("SERIAL", apart, f"job {other.index} ran beside serial job {span.index}")
            in_turn = other.index in trace.serial or other.started > span.started
            require("SERIAL", in_turn, f"job {other.index} ran before serial job {span.index}")


def check_block(trace: RunTrace) -> None:
    """BLOCK: a job starts only after its dependencies; jobs of one key run in index order, one at a time."""
    scenario = trace.scenario
    outcomes = {emission.outcome.index: emission.outcome for emission in trace.emissions}
    last = {span.index: span for span in trace.bodies}
    for body in trace.bodies:
        for edge in scenario.edges.get(body.index, ()):
            dependency, ended = outcomes[edge.on], last.get(edge.on)
            over = ended.last if ended is not None else 0
            require("BLOCK", over < body.started, f"{body} started before job {edge.on} was over")
            right = edge.when == "always" or isinstance(dependency, Done)
            require("BLOCK", right, f"{body} started after {dependency}")
    for index, outcome in outcomes.items():
        if not isinstance(outcome, Blocked):
            continue
        named = [edge for edge in scenario.edges.get(index, ()) if edge.on == outcome.by]
        right = bool(named) and named[0].when == "success"
        require("BLOCK", right, f"{outcome}, which does not depend on its success")
        require("BLOCK", not isinstance(outcomes[outcome.by], Done), f"{outcome}, which is done")
    _check_keys(trace)


def _check_keys(trace: RunTrace) -> None:
    by_key: dict[str, list[TraceSpan]] = defaultdict(list)
    for body in sorted(trace.bodies, key=lambda span: span.started):
        key = trace.scenario.scripts[body.index].key
        if key is not None and body.index not in trace.serial:
            by_key[key].append(body)
    for key, bodies in by_key.items():
        for one, following in itertools.pairwise(bodies):
            message = f"jobs {one.index} and {following.index} share the key {key!r}"
            require("BLOCK", one.index <= following.index, f"{message} and ran in that order")
            require("BLOCK", one.last < following.started, f"{message} and ran at once")


def check_limit(trace: RunTrace) -> None:
    """LIMIT: a job times out exactly when its working time reaches its timeout."""
    worked = {span.index: working_time(trace, span) for span in trace.bodies}
    for emission in trace.emissions:
        outcome = emission.outcome
        if isinstance(outcome, NotRun | Blocked):
            continue
        timeout = trace.scenario.scripts[outcome.index].timeout
        working = worked[outcome.index]
        message = f"job {outcome.index} worked {working} of {timeout} and ended as {outcome}"
        match outcome:
            case TimedOut():
                require("LIMIT", working == timeout, message)
            case Interrupted():
                require("LIMIT", working <= timeout, message)
            case _:
                require("LIMIT", working < timeout, message)
        waited = outcome.finished_at - outcome.started_at - outcome.waited
        require("LIMIT", waited == working, f"{message}; it reports {waited}")


def check_deadline(trace: RunTrace) -> None:
    """DEADLINE: nothing starts at or after the deadline, and the run ends at it."""
    cut_at = min(trace.scenario.deadline, trace.scenario.cancel_at)
    for span in (*trace.bodies, *trace.calls):
        require(
            "DEADLINE",
            span.started_at < trace.scenario.deadline,
            f"{span} started after {trace.scenario.deadline}",
        )
        require("DEADLINE", span.ended_at <= cut_at, f"{span} ended after {cut_at}")
    require(
        "DEADLINE", trace.ended_at <= cut_at, f"the run ended at {trace.ended_at}, not {cut_at}"
    )
    ends = {
        StopReason.DEADLINE: trace.scenario.deadline,
        StopReason.CANCEL: trace.scenario.cancel_at,
        StopReason.FAULT: -math.inf,
    }
    for emission in trace.emissions:
        outcome = emission.outcome
        if isinstance(outcome, Interrupted | NotRun) and outcome.cut in ends:
            right = trace.ended_at == ends[outcome.cut]
            require("DEADLINE", right, f"{outcome} in a run that ended at {trace.ended_at}")


def check_drain(trace: RunTrace) -> None:
    """DRAIN: after a stop no job starts, and running jobs continue to their end.

    The exception: jobs that have made no request and need a permit are cut off and request none.
    """
    for span in trace.bodies:
        late = span.started > trace.stopped or span.started_at > trace.scenario.stop_at
        require("DRAIN", not late, f"{span} started after stop")
    cut = [
        e.outcome
        for e in trace.emissions
        if isinstance(e.outcome, NotRun) and e.outcome.cut is StopReason.STOP
    ]
    if cut:
        drained_at = max([trace.scenario.stop_at, *(span.ended_at for span in trace.bodies)])
        message = f"{cut} in a run that was stopped at {trace.scenario.stop_at} and ended at {trace.ended_at}"
        require("DRAIN", trace.scenario.stop_at <= trace.ended_at <= drained_at, message)
    _check_withdrawn(trace)


def _check_withdrawn(trace: RunTrace) -> None:
    """At a stop, exactly the jobs that wait for a permit of their first request are cut off."""
    stop_at = trace.scenario.stop_at
    made: set[int] = set()
    for event in trace.events:
        match event:
            case Admitted():
                made.discard(event.index)
            case CallStarted():
                made.add(event.index)
            case Reserving() if event.at > stop_at:
                message = f"{event}: for a first request, after a stop at {stop_at}"
                require("DRAIN", event.index in made, message)
            case _:
                pass
    shared = {name for limit in trace.scenario.shared for name in limit.lanes}
    withdrawn = []
    for body in trace.bodies:
        own = [span for span in trace.calls if span.index == body.index]
        first = min(
            (span.started for span in own if body.started < span.started < body.last),
            default=math.inf,
        )
        first_at = min((s.started_at for s in own if s.started == first), default=math.inf)
        early = [
            one
            for one in trace.requests
            if one.index == body.index
            and one.lane in shared
            and body.started < one.call < min(first, body.last)
        ]
        for one in early:
            until = min(one.ended_at, first_at)
            message = f"{body} waits until {until} for its first request, stopped at {stop_at}"
            require("DRAIN", until <= max(stop_at, one.asked_at), message)
        if first == math.inf and any(one.ended_at == body.ended_at for one in early):
            withdrawn.append((body.index, body.ended_at))
    for emission in trace.emissions:
        outcome = emission.outcome
        if isinstance(outcome, Interrupted) and outcome.cut is StopReason.STOP:
            right = (outcome.index, outcome.finished_at) in withdrawn
            message = f"{outcome}: a stop at {stop_at} does not interrupt running jobs"
            require("DRAIN", right and outcome.finished_at >= stop_at, message)


def check_leak(trace: RunTrace) -> None:
    """LEAK: nothing of the run is alive after it."""
    require("LEAK", not trace.left_over, f"left over: {'; '.join(trace.left_over)}")


_ENDINGS: Mapping[str, type | tuple[type, ...]] = {
    "returned": Done,
    "failed": Failed,
    "cut": (TimedOut, Interrupted),
}


LAWS: Mapping[str, Callable[[RunTrace], None]] = {
    "TOTAL": check_total,
    "ORDER": check_order,
    "PROMPT": check_prompt,
    "HONEST": check_honest,
    "WIDTH": check_width,
    "PACE": check_pace,
    "TURN": check_turn,
    "RETRY_AFTER": check_retry_after,
    "SERIAL": check_serial,
    "LIMIT": check_limit,
    "DEADLINE": check_deadline,
    "DRAIN": check_drain,
    "BLOCK": check_block,
    "AIMD": check_aimd,
    "ATTEMPTS": check_attempts,
    "BUDGET": check_budget,
    "SLOT": check_slot,
    "LEASE": check_lease,
    "LEAK": check_leak,
}
"""The laws that every trace obeys, by name. EAGER and ISOLATION need special traces."""


def check_all(trace: RunTrace) -> None:
    """Check a trace against every law of `LAWS`."""
    for check in LAWS.values():
        check(trace)
