# Separate from `testing.conformance`: together they exceed 600 lines.
"""The laws that are visible from outside a scheduler, as checks over a run of it.

The kernel's checks are used where they fit. The others are written here: a scheduler may retry calls or not,
may be cautious after a refusal, and does not report its slots. The order of starts within one instant is not
judged: a provider cannot see it, and a Trio task that is started before another one does not necessarily run
before it.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

import attrs

from trioeval.errors import CallError, Fault
from trioeval.kernel import LaneSpec
from trioeval.testing.foreign import ForeignReply, ForeignRun, Scheduler, call_of, run_foreign
from trioeval.testing.lane_laws import (
    check_attempts,
    check_eager,
    check_isolation,
    check_pace,
    check_retry_after,
    check_width,
)
from trioeval.testing.laws import check_leak, check_order, check_prompt, check_total
from trioeval.testing.scenario import RunScenario
from trioeval.testing.trace import RunTrace, TraceSpan, late_starts, most_at_once, on, require


@attrs.define(eq=False, repr=False)
class Seen:
    """A scenario and its runs, made at their first use."""

    make: Callable[[], Scheduler]
    scenario: RunScenario
    terms: frozenset[str]
    _whole: ForeignRun | None = None

    @property
    def whole(self) -> ForeignRun:
        """The run of all jobs."""
        if self._whole is None:
            self._whole = run_foreign(self.make, self.scenario, self.terms)
        return self._whole

    def alone(self, lane: LaneSpec) -> RunTrace:
        """Return a run of the jobs of one lane."""
        own = tuple(script for script in self.scenario.scripts if script.lane == lane.name)
        only = attrs.evolve(self.scenario, lanes=(lane,), scripts=own)
        return run_foreign(self.make, only, self.terms).trace

    @property
    def cut_at(self) -> float:
        """The instant from which jobs need not be called any more."""
        return min(self.scenario.deadline, self.scenario.stop_at, self.scenario.cancel_at)

    @property
    def requests(self) -> Mapping[int, list[TraceSpan]]:
        """The requests of each job that has any, in order."""
        found: dict[int, list[TraceSpan]] = defaultdict(list)
        for span in self.whole.trace.calls:
            found[span.index].append(span)
        return found


def _check_total(seen: Seen) -> None:
    """A cancelled scheduler emits what it can, and need not emit the rest."""
    require("TOTAL", seen.whole.fault is None, f"the scheduler failed: {seen.whole.fault}")
    trace = seen.whole.trace
    if seen.scenario.cancel_at > trace.ended_at:
        check_total(trace)
        return
    emitted = Counter(index for index, _ in seen.whole.results)
    for index, count in emitted.items():
        known = index in range(trace.size)
        require("TOTAL", known and count == 1, f"job {index} was emitted {count} times")


def _check_prompt(seen: Seen) -> None:
    """Judged if every job is called to its end: otherwise its end is not visible from outside."""
    endless = all(script.timeout == math.inf for script in seen.scenario.scripts)
    if seen.cut_at == math.inf and endless:
        check_prompt(seen.whole.trace)


def _check_honest(seen: Seen) -> None:
    """Each result is that of the job's own last request, which is over."""
    requests = seen.requests
    for (index, result), emission in zip(
        seen.whole.results, seen.whole.trace.emissions, strict=True
    ):
        if index not in requests:
            cut = emission.at >= seen.cut_at or seen.scenario.scripts[index].timeout < math.inf
            require("HONEST", cut, f"job {index} was emitted but never called")
            lies = isinstance(result, ForeignReply)
            require("HONEST", not lies, f"job {index} was emitted with {result!r} but never called")
            continue
        last = requests[index][-1]
        too_early = f"{last}, but job {index} was emitted at {emission.at:g}"
        require("HONEST", last.ended_at <= emission.at, too_early)
        own = (
            result == ForeignReply(index)
            if last.ending == "returned"
            else not isinstance(result, ForeignReply)
        )
        require("HONEST", own, f"job {index} was emitted with {result!r}, after {last}")


def _check_turn(seen: Seen) -> None:
    for lane in seen.scenario.lanes:
        first = [span for span in on(seen.whole.trace.calls, lane) if not span.attempt]
        started = [
            span.index for span in sorted(first, key=lambda span: (span.started_at, span.index))
        ]
        message = f"the jobs of lane {lane.name} started in the order {started}"
        require("TURN", started == sorted(started), message)


def _check_slot(seen: Seen) -> None:
    """A job that waits for a retry holds no slot.

    Visible by starts that come late, and all exactly when they would if such jobs held their slots.
    """
    for lane in seen.scenario.lanes:
        calls, live = (
            on(spans, lane) for spans in (seen.whole.trace.calls, seen.whole.trace.bodies)
        )
        late = late_starts(calls, lane)
        if (
            not late
            or late_starts(calls, lane, resting=True)
            or most_at_once(live) > lane.max_concurrency
        ):
            continue
        for waiting, right in late:
            for rest, again in _rests(seen):
                if rest.lane == lane.name and rest.ended_at <= right < again.started_at:
                    fact = f"job {rest.index} kept its slot from {rest.ended_at:g} to {again.started_at:g}"
                    message = f"{fact}, in no call; {waiting} could have started at {right:g}"
                    require("SLOT", holds=False, otherwise=message)


def _rests(seen: Seen) -> Iterator[tuple[TraceSpan, TraceSpan]]:
    """Yield requests that were retried, each with the next one."""
    for several in seen.requests.values():
        yield from itertools.pairwise(several)


def _check_isolation(seen: Seen) -> None:
    """Judged for lanes whose jobs are alike, and called once.

    For other lanes, a scheduler that takes jobs in any order would be blamed for chance.
    """
    if seen.cut_at < math.inf:
        return
    for lane in seen.scenario.lanes:
        own = {script for script in seen.scenario.scripts if script.lane == lane.name}
        others = any(script.lane != lane.name for script in seen.scenario.scripts)
        plain = len(own) == 1 and not any(
            call_of(s).fails or call_of(s).attempts or s.timeout < math.inf for s in own
        )
        if others and plain:
            check_isolation(seen.alone(lane), seen.whole.trace, lane.name)


def _check_limit(seen: Seen) -> None:
    """The time in flight counts, and a job is cut off exactly at its timeout."""
    ends = (seen.scenario.deadline, seen.scenario.cancel_at, seen.scenario.stop_at)
    for index, script in enumerate(seen.scenario.scripts):
        if script.timeout == math.inf:
            continue
        spans = seen.requests.get(index, [])
        called = bool(spans) or seen.cut_at < math.inf
        require("LIMIT", called, f"job {index} was abandoned before its first call")
        worked = sum(span.ended_at - span.started_at for span in spans)
        message = (
            f"job {index} was in flight for {worked:g} s, and its timeout is {script.timeout:g} s"
        )
        require("LIMIT", worked <= script.timeout, message)
        if spans and spans[-1].ending == "cut" and spans[-1].ended_at not in ends:
            require("LIMIT", worked == script.timeout, f"{message}; it was cut off")


def _check_deadline(seen: Seen) -> None:
    """The same holds for the instant at which the scheduler is cancelled."""
    trace, scenario = seen.whole.trace, seen.scenario
    cut_at = min(scenario.deadline, scenario.cancel_at)
    action = "cancelled" if cut_at == scenario.cancel_at else "to end"
    message = f"the scheduler was {action} at {cut_at:g}"
    for span in trace.calls:
        require("DEADLINE", span.started_at < cut_at, f"{message}, and started {span}")
        require("DEADLINE", span.ended_at <= cut_at, f"{message}, and did not cut off {span}")
    require("DEADLINE", trace.ended_at <= cut_at, f"{message}, and returned at {trace.ended_at:g}")


def _check_drain(seen: Seen) -> None:
    """Running jobs continue to their end, and may be called again."""
    trace, stop_at = seen.whole.trace, seen.scenario.stop_at
    if stop_at == math.inf:
        return
    message = f"the scheduler was stopped at {stop_at:g}"
    for several in seen.requests.values():
        first, last = several[0], several[-1]
        require("DRAIN", first.started_at <= stop_at, f"{message}, and started {first}")
        cut = last.ending == "cut" and last.ended_at == stop_at
        require("DRAIN", not cut, f"{message}, and cut off {last}")
    curable = any(_is_curable(several[-1]) for several in seen.requests.values())
    if len(seen.requests) < trace.size and not curable:
        ended_at = max([stop_at, *(span.ended_at for span in trace.calls)])
        late = f"{message}, was drained at {ended_at:g} and returned at {trace.ended_at:g}"
        require("DRAIN", trace.ended_at <= ended_at, late)


def _is_curable(span: TraceSpan) -> bool:
    error = span.error
    return isinstance(error, CallError) and error.fault in (Fault.TRANSIENT, Fault.RATE_LIMITED)


def _of_trace(check: Callable[[RunTrace], None]) -> Callable[[Seen], None]:
    return lambda seen: check(seen.whole.trace)


OUTSIDE_CHECKS: Mapping[str, Callable[[Seen], None]] = {
    "TOTAL": _check_total,
    "ORDER": _of_trace(check_order),
    "PROMPT": _check_prompt,
    "HONEST": _check_honest,
    "WIDTH": _of_trace(check_width),
    "PACE": _of_trace(check_pace),
    "TURN": _check_turn,
    "RETRY_AFTER": _of_trace(check_retry_after),
    "EAGER": _of_trace(check_eager),
    "ISOLATION": _check_isolation,
    "SLOT": _check_slot,
    "ATTEMPTS": _of_trace(check_attempts),
    "LIMIT": _check_limit,
    "DEADLINE": _check_deadline,
    "DRAIN": _check_drain,
    "LEAK": _of_trace(check_leak),
}
"""The checks by law."""
