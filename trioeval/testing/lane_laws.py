"""The laws of lanes, as checks over a trace."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from trioeval.errors import CallError, Fault
from trioeval.kernel import CallEnded, CallStarted, LaneClosed, LaneSpec, LimitChanged
from trioeval.testing.trace import (
    RunTrace,
    TraceSpan,
    is_refusal,
    late_starts,
    most_at_once,
    on,
    requested_wait,
    require,
    used_tokens,
)


def check_width(trace: RunTrace) -> None:
    """WIDTH: calls in flight never exceed the lane's current limit, nor live jobs their bound."""
    most = {lane.name: lane.max_concurrency for lane in trace.lanes}
    for retune in trace.scenario.retunes:
        if isinstance(retune.to, int):
            most[retune.lane] = max(most[retune.lane], retune.to)
    for lane in trace.lanes:
        in_flight = most_at_once(on(trace.calls, lane))
        max_concurrency = most[lane.name]
        seen = f"{in_flight} calls in flight on lane {lane.name}, max concurrency {max_concurrency}"
        require("WIDTH", in_flight <= max_concurrency, seen)
        _check_live_jobs(trace, lane.name)
    _check_live_jobs(trace, None)
    cap = trace.scenario.cap
    if cap is not None:
        require("WIDTH", most_at_once(trace.calls) <= cap, f"more than {cap} calls in flight")
    _check_limits_at_starts(trace)
    _check_window(trace)


def _check_live_jobs(trace: RunTrace, lane: str | None) -> None:
    """Check at each start of a job; live jobs do not count while a call of theirs will be retried."""
    most = trace.scenario.max_live_jobs
    bodies = [span for span in trace.bodies if span.index not in trace.serial]
    bodies = [span for span in bodies if span.lane == lane]
    if most_at_once(bodies) <= most:
        return
    for started in bodies:
        live = [span for span in bodies if span.started <= started.started < span.last]
        message = f"{len(live)} live jobs on lane {lane}, when {started}"
        require("WIDTH", len(live) <= 16 * most, message)
        resting = Counter(
            span.index
            for span in trace.calls
            if span.last < started.started and isinstance(span.error, CallError)
        )
        resting.subtract(
            span.index for span in trace.calls if span.attempt and span.started < started.started
        )
        count = sum(resting[span.index] <= 0 for span in live)
        require("WIDTH", count <= most, f"{count} of {message} will not be retried")


def _check_limits_at_starts(trace: RunTrace) -> None:
    """At each start, in the order of events, the calls in flight are within the last reported limit."""
    if trace.scenario.retunes:
        return  # no observer
    limits = {lane.name: math.inf for lane in trace.lanes}
    in_flight = dict.fromkeys(limits, 0)
    for event in trace.events:
        match event:
            case LimitChanged(at, lane, limit):
                fits = (
                    0
                    <= limit
                    <= next(spec.max_concurrency for spec in trace.lanes if spec.name == lane)
                )
                require("AIMD", fits, f"a limit of {limit} on lane {lane} at {at}")
                limits[lane] = limit
            case CallStarted(at, index, lane):
                in_flight[lane] += 1
                within = in_flight[lane] <= limits[lane]
                counts = (
                    f"{in_flight[lane]} in flight on {lane} at {at}, with a limit of {limits[lane]}"
                )
                require("WIDTH", within, f"job {index} makes {counts}")
            case CallEnded(_, _, lane):
                in_flight[lane] -= 1
            case _:
                pass


def _check_window(trace: RunTrace) -> None:
    window = trace.scenario.reorder_window
    if window is None:
        return
    for span in trace.bodies:
        if span.index in trace.serial:
            continue
        emitted = sum(emission.at <= span.started_at for emission in trace.emissions)
        right = span.index < emitted + window
        require("WIDTH", right, f"job {span.index} started when {emitted} were emitted")


def check_pace(trace: RunTrace) -> None:
    """PACE: any window T holds at most burst + T·rpm/60 starts, min_gap apart.

    The same holds for tokens, as far as they are settled.
    """
    for lane in trace.lanes:
        calls = sorted(on(trace.calls, lane), key=lambda span: span.started)
        starts = [span.started_at for span in calls]
        period = 60 / lane.rpm if lane.rpm is not None else 0.0
        for first, earlier in enumerate(starts):
            for last in range(first + 1, len(starts)):
                count, gap = last - first + 1, starts[last] - earlier
                seen = f"{count} starts on lane {lane.name} within {gap:g} s, from {earlier:g} on"
                least = (count - lane.burst) * period
                require("PACE", gap >= least, f"{seen}; its rate requires {least:g} s")
                require("PACE", gap >= lane.min_gap, f"{seen}; its gap is {lane.min_gap:g} s")
        if lane.tpm is not None:
            _check_tokens(lane, calls)


def check_turn(trace: RunTrace) -> None:
    """TURN: jobs of one lane, and those on none, start in index order, calls in the order of requests.

    Jobs that wait for others start when they may. A call passes those requested before it only if it is a
    retry, or its job's first action: that job waited in the queue itself before it was started.
    """
    for lane in trace.lanes:
        _check_order_of_starts(trace, lane)
    scripts, waits = trace.scenario.scripts, _waiting(trace)
    bodies = sorted(trace.bodies, key=lambda span: span.started)
    once = dict.fromkeys(span.index for span in bodies if scripts[span.index].lane is None)
    free = [index for index in once if index not in waits]
    require("TURN", free == sorted(free), f"jobs on no lane started in the order {free}")


def _waiting(trace: RunTrace) -> set[int]:
    """Return jobs that may have to wait for others."""
    scenario = trace.scenario
    waits = {index for index, script in enumerate(scenario.scripts) if script.key is not None}
    return waits | set(scenario.edges) | set(trace.serial)


def _check_order_of_starts(trace: RunTrace, lane: LaneSpec) -> None:
    waits = _waiting(trace)
    bodies = sorted(on(trace.bodies, lane), key=lambda span: span.started)
    once = dict.fromkeys(span.index for span in bodies)
    free = [index for index in once if index not in waits]
    require("TURN", free == sorted(free), f"jobs of {lane.name} started in the order {free}")
    first_act_at = {(span.index, span.started_at) for span in trace.bodies}
    calls = sorted(on(trace.calls, lane), key=lambda span: span.started)
    calls = [call for call in calls if not call.attempt]
    for place, call in enumerate(calls):
        if (call.index, call.asked_at) in first_act_at:
            continue
        passed = [other for other in calls[place:] if other.asked_at < call.asked_at]
        require("TURN", not passed, f"{call} was started before {passed}")


def _check_tokens(lane: LaneSpec, calls: Sequence[TraceSpan]) -> None:
    """Starts k and n: the tokens used from k up to n fit into the time between them, and the burst."""
    assert lane.tpm is not None  # noqa: S101 - for the type checker
    period = 60 / lane.tpm
    for first in range(len(calls)):
        used = 0
        for last in range(first + 1, len(calls)):
            used += used_tokens(calls[last - 1])
            gap = calls[last].started_at - calls[first].started_at
            message = f"{used} tokens within {gap} before {calls[last]} on {lane}"
            require("PACE", gap >= (used - lane.token_burst) * period, message)


def check_retry_after(trace: RunTrace) -> None:
    """RETRY_AFTER: nothing starts on a lane before a wait that its provider asked for is over."""
    for refused in trace.calls:
        until = refused.ended_at + requested_wait(refused)
        for other in trace.calls:
            if other.lane == refused.lane and other.started > refused.last:
                early = f"{other} started before {until:g}, which {refused} asked for"
                require("RETRY_AFTER", other.started_at >= until, early)


def check_aimd(trace: RunTrace) -> None:
    """AIMD: a limit shrinks only by a refusal of a call that started after it last shrank.

    Later refusals of one wave cut it further, to the calls in flight beside them, or to seven tenths of the
    value before the wave if there are none.
    """
    for lane in trace.lanes:
        if lane.adaptive != "aimd" or trace.scenario.retunes:
            continue
        refused = [span for span in on(trace.calls, lane) if is_refusal(span)]
        limit, shrank_at = 1 if lane.slow_start else lane.max_concurrency, -math.inf
        before_wave = limit
        for event in trace.events:
            if not isinstance(event, LimitChanged) or event.lane != lane.name:
                continue
            require("AIMD", 1 <= event.adaptive <= lane.max_concurrency, f"{event} on {lane}")
            if event.adaptive < limit:
                causes = [span for span in refused if span.ended_at == event.at]
                begins_wave = any(span.started_at >= shrank_at for span in causes)
                if begins_wave:
                    before_wave = limit
                usual = max(1, int(0.7 * before_wave))
                beside = [_served_beside(trace, span) for span in causes]
                message = (
                    f"{event}: cut twice for refusals of one epoch, the last time at {shrank_at}"
                )
                in_wave = any(event.adaptive == (count or usual) for count in beside)
                require("AIMD", begins_wave or in_wave, message)
                shrank_at = event.at
            limit = event.adaptive


def _served_beside(trace: RunTrace, refused: TraceSpan) -> int:
    """Return the calls in flight on its lane when a call is refused."""
    return sum(
        other.lane == refused.lane and other.started < refused.last < other.last
        for other in trace.calls
    )


def check_attempts(trace: RunTrace) -> None:
    """ATTEMPTS: a call is retried only as often as its lane allows, and not before its back-off is over.

    When its lane is closed, a call that rests or waits there ends at once.
    """
    specs: dict[str | None, LaneSpec] = {lane.name: lane for lane in trace.lanes}
    for _, requests in itertools.groupby(
        sorted(trace.calls, key=lambda span: (span.call, span.attempt)), key=lambda span: span.call
    ):
        mishaps = 0
        for number, (failed, again) in enumerate(itertools.pairwise(requests), start=1):
            spec, error = specs[failed.lane], failed.error
            require("ATTEMPTS", isinstance(error, CallError), f"{again} repeats {failed}")
            if not isinstance(error, CallError):
                continue
            mishaps += error.fault is Fault.TRANSIENT
            curable = error.fault in (Fault.TRANSIENT, Fault.RATE_LIMITED)
            require("ATTEMPTS", curable, f"{again} repeats {failed}")
            require(
                "ATTEMPTS", mishaps <= spec.retries, f"{again} repeats transient failure {mishaps}"
            )
            if spec.max_retries is not None:
                require("ATTEMPTS", number <= spec.max_retries, f"{again} is retry {number}")
            rested = again.started_at >= failed.ended_at + (error.retry_after or 0.0)
            require("ATTEMPTS", rested, f"{again} came before the back-off after {failed} was over")
    _check_closed(trace)


def _check_closed(trace: RunTrace) -> None:
    """On a lane that was closed, and is not opened again, only calls in flight continue."""
    resumed = {retune.lane for retune in trace.scenario.retunes}
    for event in trace.events:
        if not isinstance(event, LaneClosed) or event.lane in resumed:
            continue
        for one in trace.requests:
            if one.lane == event.lane:
                own = [span.ended_at for span in trace.calls if span.call == one.call]
                until = max([event.at, one.asked_at, *own])
                message = f"{one} continued until {one.ended_at}, though {event}"
                require("ATTEMPTS", one.ended_at <= until, message)


def check_budget(trace: RunTrace) -> None:
    """BUDGET: the amounts spent and reserved together never exceed the budget."""
    caps = trace.scenario.budget
    if caps is None:
        return
    steps = sorted(
        step
        for span in trace.calls
        for step in (
            (span.started, 1, span.tokens),
            (span.last, 0, used_tokens(span) - span.tokens),
        )
    )
    requests = tokens = 0
    for _, more, change in steps:
        requests, tokens = requests + more, tokens + change
        within = caps.requests is None or requests <= caps.requests
        require("BUDGET", within, f"{requests} requests of {caps.requests}")
        within = caps.tokens is None or tokens <= caps.tokens
        require("BUDGET", within, f"{tokens} tokens of {caps.tokens} spent or reserved")


def check_slot(trace: RunTrace) -> None:
    """SLOT: at every instant the slots held are the calls in flight, and nothing else."""
    looked = bool(trace.samples) or trace.ended_at < 1
    require("SLOT", looked, "the lanes were not sampled during the run")
    for sample in trace.samples:
        require("SLOT", sample.held == sample.in_flight, f"{sample}")


def check_lease(trace: RunTrace) -> None:
    """LEASE: every permit is settled or given back once; a used one covers exactly one request.

    And every request on a lane with permits has one: no slot is held while a permit is waited for.
    """
    for lane in (name for shared in trace.scenario.shared for name in shared.lanes):
        used = []
        for lent in trace.permits:
            if lent.lane != lane:
                continue
            require("LEASE", len(lent.ends) == 1, f"{lent} does not have exactly one end")
            if lent.ends[0].used is None:
                was_held = lent.granted_at != lent.ends[0].at
                require("LEASE", not was_held, f"{lent} was held but not used")
            else:
                used.append(lent)
        calls = sorted((c for c in trace.calls if c.lane == lane), key=lambda span: span.started)
        message = f"{len(used)} permits were used for {len(calls)} requests on {lane}"
        require("LEASE", len(used) == len(calls), message)
        for lent, call in zip(used, calls, strict=True):
            end, what = lent.ends[0], f"{lent} does not match {call}"
            require("LEASE", (lent.index, lent.tokens) == (call.index, call.tokens), what)
            within = lent.granted < call.started and call.last < end.tick
            times = (lent.granted_at, end.at) == (call.started_at, call.ended_at)
            require("LEASE", within and times, what)
            require("LEASE", end.used == used_tokens(call), f"{lent} after {call}")


def check_eager(trace: RunTrace) -> None:
    """EAGER: while a job waits for its first call, its lane starts one as soon as pace and slots allow it.

    For traces in which a job is one call on its own lane, and nothing gates its start. A lane may be cautious
    after a refusal: its starts after the first refusal are not judged.
    """
    for lane in trace.lanes:
        late = late_starts(on(trace.calls, lane), lane)
        for span, right in late:
            require("EAGER", holds=False, otherwise=f"{span} could have started at {right:g}")


def check_isolation(alone: RunTrace, beside: RunTrace, lane: str) -> None:
    """ISOLATION: the starts on a lane are the same, whatever else runs on other lanes.

    Args:
        alone: A run in which only `lane` has jobs.
        beside: The same jobs in the same order, among those of other lanes.
        lane: The lane that must not be affected.
    """
    starts = [
        sorted(span.started_at for span in trace.calls if span.lane == lane)
        for trace in (alone, beside)
    ]
    require(
        "ISOLATION",
        starts[0] == starts[1],
        f"starts on {lane}: {starts[0]} alone, {starts[1]} beside other lanes",
    )
