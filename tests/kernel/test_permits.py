"""Lanes with permits: requests for permits, what is held meanwhile, and the end of every wait."""

from collections.abc import Callable
from functools import partial

import attrs
import pytest
import trio

from trioeval.errors import (
    BudgetError,
    CallError,
    Fault,
    LaneClosedError,
    LimitError,
    PlanError,
    TooLateError,
)
from trioeval.kernel import (
    Budget,
    Calls,
    CallStarted,
    Done,
    Event,
    Failed,
    Finished,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    Metered,
    Noted,
    Outcome,
    Permits,
    Plan,
    Reserving,
    Shortage,
    TimedOut,
    Waiting,
    WaitReason,
    collect,
)
from trioeval.kernel.reservations import CallRequest
from trioeval.testing import (
    AttemptScript,
    CallScript,
    Caps,
    JobScript,
    Pause,
    Retune,
    RunScenario,
    RunTrace,
    SharedLimitScript,
    check_all,
    run_scenario,
    run_virtual,
)


def seen(scenario: RunScenario) -> RunTrace:
    """Run jobs and return the trace of a run that keeps every law."""
    trace = run_scenario(scenario)
    check_all(trace)
    return trace


def jobs(lane: str, *durations: float) -> tuple[JobScript, ...]:
    """Return jobs of one call each."""
    return tuple(JobScript(lane, (CallScript(lane, duration),)) for duration in durations)


def starts(trace: RunTrace, lane: str = "a") -> list[tuple[int, float]]:
    """Return which job's requests started when."""
    return [(span.index, span.started_at) for span in trace.calls if span.lane == lane]


def events_of(trace: RunTrace, *kinds: type) -> list[Event]:
    """Return the events of some kinds that the observer received."""
    return [event for event in trace.events if isinstance(event, kinds)]


def test_a_permit_available_at_once_takes_no_step() -> None:
    """A permit that is available at once delays nothing, and its request is reported."""
    trace = seen(RunScenario((LaneSpec("a"),), jobs("a", 1.0), shared=(SharedLimitScript(("a",)),)))
    assert events_of(trace, Reserving, Waiting, CallStarted) == [
        Reserving(0.0, 0, "a"),
        CallStarted(0.0, 0, "a"),
    ]


def test_a_wait_for_a_permit_is_reported_with_its_reason() -> None:
    """It is reported once."""
    limit = SharedLimitScript(("a",), room=1, lasts=2.5)
    trace = seen(RunScenario((LaneSpec("a"),), jobs("a", 1.0, 1.0), shared=(limit,)))
    mine = [one for one in events_of(trace, Reserving, Waiting, CallStarted) if _index(one) == 1]
    assert mine == [
        Reserving(0.0, 1, "a"),
        Waiting(0.0, "a", WaitReason.SHARED_LIMIT, None, 1, Shortage("rate_limit")),
        Waiting(1.0, "a", WaitReason.SHARED_LIMIT, 2.5, 1, Shortage("rate_limit", until=2.5)),
        CallStarted(2.5, 1, "a"),
    ]


def test_a_waiter_for_a_permit_holds_no_slot_and_stays_first() -> None:
    """A waiter for a permit holds no slot and stays first."""

    async def main() -> tuple[object, ...]:
        lanes = Lanes([LaneSpec("a", max_concurrency=3)], permits={"a": never()})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one_call, lanes, [])
            await trio.testing.wait_all_tasks_blocked()
            before = lanes["a"].statistics()
            nursery.cancel_scope.cancel()
        after = lanes["a"].statistics()
        return before.in_flight, before.waiting, before.why, after.waiting, after.why

    assert run_virtual(main) == (0, 1, WaitReason.SHARED_LIMIT, 0, None)


def test_only_the_first_waiter_requests_a_permit() -> None:
    """The other waiters of a lane send no request."""
    limit = SharedLimitScript(("a",), room=9, delay=1.0)
    trace = seen(RunScenario((LaneSpec("a", 4),), jobs("a", *[9.0] * 5), shared=(limit,)))
    assert starts(trace) == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (4, 11.0)]
    assert len(events_of(trace, Reserving)) == 5


def test_a_permit_that_arrives_too_late_is_returned_and_requested_again() -> None:
    """A permit that arrives while the lane is blocked is returned and requested again."""
    refused = CallScript(
        "a", 0.0, attempts=(AttemptScript(1.0, Fault.RATE_LIMITED, 4.0), AttemptScript(1.0))
    )
    trace = seen(
        RunScenario(
            (LaneSpec("a", adaptive="off"),),
            (JobScript("a", (refused,)), *jobs("a", 1.0)),
            shared=(SharedLimitScript(("a",), room=9, delay=0.75),),
            spread=0.0,
        )
    )
    # Job 0 starts at 0.75 and is refused at 1.75, until 5.75; job 1 requests from 0.75 to 1.5 and starts;
    # so the second request of job 0 is the first after the block.
    assert starts(trace)[:2] == [(0, 0.75), (1, 1.5)]
    slower = attrs.evolve(trace.scenario, shared=(SharedLimitScript(("a",), room=9, delay=1.5),))
    trace = seen(slower)
    # Now job 1 requests from 1.5 to 3.0, and job 0 is refused at 2.5, until 6.5.
    unused = [lent for lent in trace.permits if lent.ends[0].used is None]
    assert [(lent.index, lent.granted_at) for lent in unused] == [(1, 3.0)]
    requests = permit_requests(trace)
    assert (1, 1.5) in requests
    assert (1, 6.5) in requests
    assert min(at for index, at in starts(trace) if (index, at) != (0, 1.5)) == 8.0


def test_a_retry_does_not_overtake_a_request_for_a_permit() -> None:
    """A retry does not overtake a waiter that has requested a permit."""
    failing = CallScript(
        "a", 0.0, attempts=(AttemptScript(0.5, Fault.TRANSIENT, 0.0), AttemptScript(1.0))
    )
    scenario = RunScenario(
        (LaneSpec("a", 4),),
        (JobScript("a", (failing,)), *jobs("a", 1.0, 1.0)),
        shared=(SharedLimitScript(("a",), room=9, delay=2.0),),
        spread=0.0,
    )
    trace = seen(scenario)
    # Job 0 starts at 2 and fails at 2.5, while job 1 requests, until 4; the retry overtakes job 2.
    assert starts(trace) == [(0, 2.0), (1, 4.0), (0, 6.0), (2, 8.0)]


def test_the_closing_of_a_lane_ends_a_request_for_a_permit() -> None:
    """The call that requested it fails at that instant."""
    fatal = CallScript("a", 0.0, attempts=(AttemptScript(1.0, Fault.FATAL),))
    trace = seen(
        RunScenario(
            (LaneSpec("a", 4, breaker_threshold=1),),
            (JobScript("a", (fatal,)), *jobs("a", 1.0)),
            shared=(SharedLimitScript(("a",), room=1, lasts=9.0),),
        )
    )
    assert trace.ended_at == 1.0
    error = failure(trace, 1)
    assert isinstance(error, LaneClosedError)


def test_a_closed_lane_returns_a_permit_granted_despite_cancellation() -> None:
    """A permit granted despite cancellation is returned."""

    async def main() -> tuple[Exception | None, list[str]]:
        permits = Stubborn()
        lanes = Lanes([LaneSpec("a", breaker_threshold=1)], permits={"a": permits})
        outcomes: list[Outcome[None]] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one_call, lanes, outcomes)
            await trio.testing.wait_all_tasks_blocked()
            refused = CallError(Fault.FATAL, "no")
            lanes["a"].failed(CallRequest(0, None), refused)
        [only] = outcomes
        return (only.error if isinstance(only, Failed) else None), permits.done

    error, done = run_virtual(main)
    assert isinstance(error, LaneClosedError)
    assert done == ["given back"]


def test_a_job_that_is_cut_off_cancels_its_request_for_a_permit() -> None:
    """The deadline and the body's own timeout end a request for a permit."""
    limit = SharedLimitScript(("a",), room=1)
    impatient = JobScript("a", (CallScript("a", 1.0, patience=2.0), Pause(1.0)))
    scenario = RunScenario(
        (LaneSpec("a"),), (*jobs("a", 9.0), impatient, *jobs("a", 1.0)), shared=(limit,), deadline=5
    )
    trace = seen(scenario)
    assert starts(trace) == [(0, 0.0)]
    assert isinstance(outcome(trace, 1), Done)
    assert isinstance(outcome(trace, 2), Interrupted)
    assert [lent.ends[0].at for lent in trace.permits] == [5.0]


def test_a_permit_of_the_very_instant_of_the_deadline_is_not_used() -> None:
    """A permit granted at the instant of the deadline is not used and not kept."""
    limit = SharedLimitScript(("a",), room=2, delay=2.0)
    for _ in range(8):
        trace = seen(RunScenario((LaneSpec("a"),), jobs("a", 1.0), shared=(limit,), deadline=2.0))
        assert not trace.calls


def test_the_wait_for_a_permit_is_not_working_time() -> None:
    """LIMIT: the wait for a permit is not working time."""
    limit = SharedLimitScript(("a",), room=1)
    short = JobScript("a", (CallScript("a", 0.75),), timeout=1.0)
    trace = seen(RunScenario((LaneSpec("a"),), (*jobs("a", 8.0), short), shared=(limit,)))
    assert isinstance(outcome(trace, 1), Done)
    long = attrs.evolve(short, actions=(CallScript("a", 1.25),))
    trace = seen(RunScenario((LaneSpec("a"),), (*jobs("a", 8.0), long), shared=(limit,)))
    assert isinstance(outcome(trace, 1), TimedOut)


def test_every_request_of_a_call_has_its_own_permit() -> None:
    """Each permit is settled to the usage of its request."""
    attempts = (
        AttemptScript(1.0, Fault.RATE_LIMITED, 0.5),
        AttemptScript(1.0, Fault.TRANSIENT),
        AttemptScript(1.0, Fault.TRANSIENT, tokens=1),
        AttemptScript(1.0, None, tokens=3),
    )
    call = CallScript("a", 0.0, attempts=attempts, tokens=6)
    trace = seen(
        RunScenario(
            (LaneSpec("a"),), (JobScript("a", (call,)),), shared=(SharedLimitScript(("a",)),)
        )
    )
    assert [lent.ends[0].used for lent in trace.permits] == [0, 6, 1, 3]


def test_a_call_that_can_never_have_a_permit_fails_alone() -> None:
    """A call that can never get a permit fails at once, and others continue."""
    big = JobScript("a", (CallScript("a", 1.0, tokens=9),))
    for delay in (0.0, 1.0):
        limit = SharedLimitScript(("a",), room=1, delay=delay, most=5)
        trace = seen(RunScenario((LaneSpec("a"),), (big, *jobs("a", 1.0)), shared=(limit,)))
        error = failure(trace, 0)
        assert isinstance(error, LimitError)
        assert error.reason == "exceeds_capacity"
        assert starts(trace) == [(1, delay)]


def test_a_backend_of_limits_that_does_not_respond_fails_the_call() -> None:
    """The call fails, and the lane stays open."""
    limit = SharedLimitScript(("a",), silent=(0.0, 1.0), delay=0.5)
    trace = seen(RunScenario((LaneSpec("a"),), jobs("a", 1.0, 1.0, 1.0), shared=(limit,)))
    assert [type(one.outcome) for one in trace.emissions] == [Failed, Done, Done]
    assert starts(trace) == [(1, 1.0), (2, 1.5)]


def test_no_permit_is_requested_while_the_budget_has_no_room() -> None:
    """No permit is requested while the budget has no room."""
    call = CallScript("a", 0.0, attempts=(AttemptScript(4.0, tokens=1),), tokens=6)
    scenario = RunScenario(
        (LaneSpec("a"),),
        (JobScript("a", (call,)),) * 2,
        budget=Caps(tokens=8),
        shared=(SharedLimitScript(("a",), delay=0.5),),
    )
    trace = seen(scenario)
    assert permit_requests(trace) == [(0, 0.0), (1, 4.5)]
    assert starts(trace) == [(0, 0.5), (1, 5.0)]


def test_a_waiter_for_the_budget_requests_its_permit_when_another_lane_releases_some() -> None:
    """The budget is shared by both lanes."""
    call = CallScript("b", 0.0, attempts=(AttemptScript(4.0, tokens=1),), tokens=6)
    late = JobScript("a", (Pause(1.0), attrs.evolve(call, lane="a")))
    scenario = RunScenario(
        (LaneSpec("a"), LaneSpec("b")),
        (late, JobScript("b", (call,))),
        budget=Caps(tokens=8),
        shared=(SharedLimitScript(("a",)),),
    )
    assert starts(seen(scenario)) == [(0, 4.0)]


def test_a_budget_that_ran_out_during_a_request_leaves_no_permit() -> None:
    """A permit that is granted after the budget ran out is returned."""
    scenario = RunScenario(
        (LaneSpec("a"), LaneSpec("b")),
        (*jobs("a", 1.0), JobScript("b", (Pause(1.0), CallScript("b", 1.0)))),
        budget=Caps(requests=1),
        shared=(SharedLimitScript(("a",), delay=2.0),),
    )
    trace = seen(scenario)
    assert isinstance(failure(trace, 0), BudgetError)
    assert [lent.ends[0].used for lent in trace.permits] == [None]


def test_a_full_cap_does_not_starve_a_lane_with_remote_permits() -> None:
    """While a request for a permit is open, the lane keeps its place for the cap."""
    scenario = RunScenario(
        (LaneSpec("a"), LaneSpec("b")),
        (*jobs("a", 1.0, 1.0), *jobs("b", *[1.0] * 20)),
        cap=1,
        shared=(SharedLimitScript(("a",), room=9, delay=0.25),),
    )
    # Either lane may be first; from then on they take turns.
    assert [at for _, at in starts(seen(scenario))] in ([0.25, 2.5], [1.25, 3.5])


def test_a_lane_that_waits_for_its_permit_leaves_the_cap_to_others() -> None:
    """A lane that has to wait for its permit leaves the cap to others."""
    scenario = RunScenario(
        (LaneSpec("a"), LaneSpec("b")),
        (*jobs("a", 8.0, 1.0), *jobs("b", *[1.0] * 6)),
        cap=2,
        shared=(SharedLimitScript(("a",), room=1),),
    )
    trace = seen(scenario)
    assert starts(trace, "b") == [(index + 2, float(index)) for index in range(6)]
    assert starts(trace) == [(0, 0.0), (1, 8.0)]


def test_a_pause_during_a_request_for_a_permit_applies() -> None:
    """A permit that arrives in a pause is returned, and requested again after it."""
    scenario = RunScenario(
        (LaneSpec("a"),),
        jobs("a", 1.0),
        retunes=(Retune(1.0, "a", "pause"), Retune(5.0, "a", "resume")),
        shared=(SharedLimitScript(("a",), delay=2.0),),
    )
    trace = seen(scenario)
    assert starts(trace) == [(0, 7.0)]
    assert [lent.ends[0].used for lent in trace.permits] == [None, 0]


def test_an_observer_that_pauses_the_lane_at_a_request_loses_no_permit() -> None:
    """An observer that pauses the lane at a request for a permit loses none."""

    async def main(*, at_once: bool) -> tuple[list[str], float]:
        permits = Counting(at_once=at_once)
        lanes = Lanes([LaneSpec("a")], permits={"a": permits})
        paused: list[Event] = []

        def observe(event: Event) -> None:
            if isinstance(event, Reserving) and not paused:
                paused.append(event)
                lanes["a"].pause()
            elif isinstance(event, Waiting) and event.why is WaitReason.PAUSED:
                lanes["a"].resume()

        plan = Plan.of([Job(0, "a", None)])
        await collect(plan, call_nothing, lanes=lanes, observe=observe)
        return permits.done, trio.current_time()

    assert run_virtual(partial(main, at_once=True)) == (["settled"], 0.0)
    assert run_virtual(partial(main, at_once=False)) == (["given back", "settled"], 2.0)


def test_a_cancelled_first_waiter_lets_the_next_one_request() -> None:
    """When the first waiter is cancelled, the next one requests a permit at that instant."""
    limit = SharedLimitScript(("a",), room=1)
    impatient = JobScript("a", (CallScript("a", 1.0, patience=2.0),))
    trace = seen(
        RunScenario(
            (LaneSpec("a"),), (*jobs("a", 4.0), impatient, *jobs("a", 1.0)), shared=(limit,)
        )
    )
    requests = permit_requests(trace)
    assert requests == [(0, 0.0), (1, 0.0), (2, 2.0)]
    assert starts(trace) == [(0, 0.0), (2, 4.0)]


def test_permits_for_an_unknown_lane_are_rejected() -> None:
    """Permits for an unknown lane are rejected with the names of the lanes."""
    with pytest.raises(
        PlanError, match=r"permits are given for unknown lanes \['c'\]; the lanes are \['a', 'b'\]"
    ):
        Lanes([LaneSpec("b"), LaneSpec("a")], permits={"c": never()})


def test_a_body_reports_what_it_does() -> None:
    """This works with and without an observer."""

    async def body(job: Job[None], calls: Calls[None]) -> Calls[None]:
        calls.note("parsing", index=job.index, what="the answer")
        await trio.sleep(1)
        calls.note("graded")
        return calls

    async def main() -> tuple[list[Event], Calls[None]]:
        events: list[Event] = []
        plan, lanes = Plan.of([Job(0, "a", None)]), Lanes([LaneSpec("a")])
        await collect(plan, body, lanes=lanes)
        [done] = await collect(plan, body, lanes=lanes, observe=events.append)
        assert isinstance(done, Done)
        return events, done.value

    events, calls = run_virtual(main)
    assert events[1:3] == [
        Noted(1.0, 0, "parsing", {"index": 0, "what": "the answer"}),
        Noted(2.0, 0, "graded", {}),
    ]
    assert isinstance(events[3], Finished)
    with pytest.raises(TooLateError, match="job 0 reported 'late' after it was over"):
        calls.note("late")


def test_an_amount_of_money_is_reserved_and_settled() -> None:
    """A call reserves its maximum cost and is settled to the actual cost."""

    async def main() -> list[str]:
        permits = Counting()
        lanes = Lanes([LaneSpec("a")], permits={"a": permits})

        async def body(_job: Job[None], calls: Calls[None]) -> None:
            await calls("a", send, tokens=5, money=0.5)

        async def send() -> Metered[None]:  # noqa: ASYNC124 - a reply that is there at once
            return Metered(None, tokens=2, money=0.125)

        await collect(Plan.of([Job(0, "a", None)]), body, lanes=lanes, budget=Budget(money=1.0))
        return [*permits.requests, *permits.amounts]

    assert run_virtual(main) == ["0: 5 tokens, 0.5", "2 tokens, 0.125"]


def test_a_need_without_a_budget_always_fits() -> None:
    """A lane without permits and budget accepts every need."""
    lane = Lanes([LaneSpec("a")])["a"]
    assert CallRequest(0, None, None, 7, 1.0).fits_budget(lane._queue)


@attrs.define
class Counting:
    """Permits that grant everything and record their ends."""

    at_once: bool = True
    requests: list[str] = attrs.field(factory=list)
    done: list[str] = attrs.field(factory=list)
    amounts: list[str] = attrs.field(factory=list)

    def take_nowait(self, index: int, tokens: int, money: float) -> "Counting | None":
        """Return this permit."""
        self.requests.append(f"{index}: {tokens} tokens, {money}")
        return self if self.at_once else None

    async def take(
        self, _index: int, _tokens: int, _money: float, _told: Callable[[Shortage], None]
    ) -> "Counting":
        """Return this permit a second later."""
        await trio.sleep(1)
        return self

    def settle(self, tokens: int, money: float) -> None:
        """Record that it was used."""
        self.done.append("settled")
        self.amounts.append(f"{tokens} tokens, {money}")

    def give_back(self) -> None:
        """Record that it was returned."""
        self.done.append("given back")


class Stubborn(Counting):
    """Permits that are granted although the request was cancelled."""

    def __init__(self) -> None:
        super().__init__(at_once=False)

    async def take(self, *_args: object) -> Counting:
        """Return this permit a second later, despite cancellation."""
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return self


def never() -> Permits:
    """Return permits that are never granted."""

    class Never(Counting):
        async def take(self, *_args: object) -> Counting:
            await trio.sleep_forever()
            raise AssertionError

    return Never(at_once=False)


async def call_nothing(_job: Job[None], calls: Calls[None]) -> None:
    """Make one call outside of the scheduler."""
    await calls("a", trio.lowlevel.checkpoint)


async def one_call(lanes: Lanes, outcomes: list[Outcome[None]]) -> None:
    """Run one job of one call."""
    outcomes += await collect(Plan.of([Job(0, "a", None)]), call_nothing, lanes=lanes)


def permit_requests(trace: RunTrace) -> list[tuple[int, float]]:
    """Return which job requested a permit when."""
    return [(event.index, event.at) for event in trace.events if isinstance(event, Reserving)]


def failure(trace: RunTrace, index: int) -> Exception:
    """Return the failure of a job."""
    found = outcome(trace, index)
    assert isinstance(found, Failed)
    return found.error


def outcome(trace: RunTrace, index: int) -> Outcome[object]:
    """Return the outcome of a job."""
    return trace.emissions[index].outcome


def _index(event: Event) -> int | None:
    return event.index if isinstance(event, Reserving | Waiting | CallStarted) else None
