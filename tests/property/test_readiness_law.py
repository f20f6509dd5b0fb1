"""Runs with a readiness obey the laws and its decisions.

They hold for every lawful readiness, under failures, stop, deadline and cancellation. Laws: TOTAL ORDER
PROMPT HONEST WIDTH PACE TURN RETRY_AFTER LIMIT DEADLINE DRAIN ATTEMPTS SLOT LEAK, and BLOCK as checked here.
"""

import itertools
import math
from collections import Counter, defaultdict

import pytest
from drawn_readiness import Case, DrawnReadiness, by_lane, cases, run_case
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.errors import CallError, Fault
from trioeval.kernel import Blocked, Failed, LaneSpec, Rank, Salvaged
from trioeval.testing import LAWS, RunTrace

pytestmark = pytest.mark.slow


@given(case=cases(), _schedule=st.random_module())
def test_decisions_of_a_readiness_take_effect_and_every_law_holds(
    case: Case, _schedule: object
) -> None:
    """Dependencies, ranks, withdrawals and final retry rounds happen as the readiness decides."""
    trace, readiness = run_case(case)
    for law, check in LAWS.items():
        if law != "BLOCK":  # it depends on edges
            check(trace)
    check_starts(case, readiness)
    check_needs(case, trace)
    check_withdrawn(trace, readiness)
    check_rounds(trace, readiness)
    assert len(readiness.outcomes_seen) == len(set(readiness.outcomes_seen))
    scenario = case.scenario
    if min(scenario.deadline, scenario.stop_at, scenario.cancel_at) == math.inf:
        assert sorted(readiness.outcomes_seen) == list(range(trace.size))
        # No job waits for a withdrawn job.
        assert trace.ended_at == max(one.at for one in trace.settled)


@given(case=cases(calm=True), _schedule=st.random_module())
@settings(max_examples=settings().max_examples // 2)
def test_no_slot_is_free_while_a_job_is_ready(case: Case, _schedule: object) -> None:
    """EAGER: no slot stays free while a job is ready, even after a queued job was withdrawn."""
    trace, readiness = run_case(case)
    widths: dict[str | int | None, int] = {
        lane.name: lane.max_concurrency for lane in case.scenario.lanes
    }
    for lane, notes in by_lane(case, readiness.notes).items():
        ready: set[int] = set()
        live = 0
        for note, following in itertools.zip_longest(notes, notes[1:]):
            match note.kind:
                case "ranked":
                    ready.add(note.index)
                case "began":
                    ready.discard(note.index)
                    live += 1
                case "settled":
                    ready.discard(note.index)
                    live -= any(body.index == note.index for body in trace.bodies)
                case "blocked" | "aside":
                    pass
            if following is None or following.at > note.at:
                assert not ready or live == widths[lane], (note, ready)


def check_starts(case: Case, readiness: DrawnReadiness) -> None:
    """A job starts only if it may, and no startable job of its lane has a lower rank and index."""
    for notes in by_lane(case, readiness.notes).values():
        ready: dict[int, Rank] = {}
        for note in notes:
            if note.kind == "ranked":
                assert note.index not in ready, note
                ready[note.index] = note.rank
            elif note.kind == "began":
                assert note.index == min(ready, key=lambda index: (ready[index], index)), note
                del ready[note.index]
            else:
                ready.pop(note.index, None)


def check_needs(case: Case, trace: RunTrace) -> None:
    """A body starts only after all jobs that it depends on."""
    ended = {body.index: body.last for body in trace.bodies}
    for body in trace.bodies:
        assert all(ended.get(on, 0) < body.started for on in case.needs[body.index])


def check_withdrawn(trace: RunTrace, readiness: DrawnReadiness) -> None:
    """A blocked job never starts, and has its outcome at once."""
    outcomes = {one.outcome.index: (one.at, one.outcome) for one in trace.settled}
    blocked = {note.index: note for note in readiness.notes if note.kind == "blocked"}
    bodies = defaultdict(list)
    for body in trace.bodies:
        bodies[body.index].append(body)
    for index, note in blocked.items():
        at, outcome = outcomes[index]
        assert at == note.at
        assert all(body.started < note.tick for body in bodies[index])
        if bodies[index]:
            assert isinstance(outcome, Failed)
            assert outcome.finished_at == bodies[index][-1].ended_at
        else:
            assert outcome == Blocked(index, note.by)
    ended = {index for index, (_, outcome) in outcomes.items() if isinstance(outcome, Blocked)}
    assert ended <= set(blocked)


def check_rounds(trace: RunTrace, readiness: DrawnReadiness) -> None:
    """ATTEMPTS: transient failures are bounded; each round is reported once, when it starts."""
    lanes: dict[str | None, LaneSpec] = {lane.name: lane for lane in trace.lanes}
    mishaps: Counter[int] = Counter()
    for call in trace.calls:
        transient = isinstance(call.error, CallError) and call.error.fault is Fault.TRANSIENT
        mishaps[call.index] += transient
        most = lanes[call.lane].retries + 1 + trace.scenario.salvage_rounds
        assert mishaps[call.index] <= most, call
    reported = [
        (event.at, index)
        for event in trace.events
        if isinstance(event, Salvaged)
        for index in event.indices
    ]
    named, aside = [], set()
    for note in readiness.notes:
        if note.kind == "aside":
            aside.add(note.index)
        elif note.kind == "ranked" and note.index in aside:
            aside.discard(note.index)
            named.append((note.at, note.index))
    assert sorted(reported) == sorted(named)


def test_drawn_readinesses_reach_all_withdrawals_and_rounds() -> None:
    """The drawn readinesses contain every kind of withdrawal and round."""
    seen: Counter[str] = Counter()
    wanted = {f"{kind} withdrawn": 8 for kind in ("waiting", "ready", "aside", "known")}
    wanted |= {f"{kind} salvaged": 20 for kind in ("run", "now", "group")}

    @given(case=cases())
    @settings(max_examples=500, derandomize=True, database=None)
    def draw(case: Case) -> None:
        if all(seen[what] >= least for what, least in wanted.items()):
            return
        _, readiness = run_case(case)
        for note in readiness.notes:
            if note.kind == "blocked":
                seen[f"{note.state} withdrawn"] += 1
                known = case.scenario.scripts[note.index].known == "yes"
                seen["known withdrawn"] += note.state == "ready" and known
            if note.kind == "aside":
                seen[f"{case.salvage[note.index]} salvaged"] += 1

    draw()
    for what, least in wanted.items():
        assert seen[what] >= least, (what, seen)
