"""Reports of workers about their lanes, from real lanes on the virtual clock."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.errors import CallError, Fault
from trioeval.kernel import (
    Calls,
    CallStarted,
    Event,
    Finished,
    Job,
    Lanes,
    LaneSpec,
    Plan,
    Waiting,
    WaitReason,
    collect,
)
from trioeval.report.activity import Activity
from trioeval.report.run_metrics import RunMetrics
from trioeval.report.run_state import LaneState, WorkerState, lane_states
from trioeval.report.worker_lanes import WorkerLanes, WorkerReport
from trioeval.scaleout.lane_reports import LaneReporter
from trioeval.scaleout.messages import Message, WorkerEvent
from trioeval.scaleout.watching import WatchedCluster, WorkerClocks, WorkerViews, moved
from trioeval.testing import run_virtual

SPEC = LaneSpec("a", 3, rpm=120, burst=2, max_retries=1)


@attrs.frozen
class OneCall:
    """A row of one call."""

    seconds: float
    is_refused: bool = False


@attrs.define(eq=False)
class NoCoordinator:
    """A receiver of events that need no coordinator."""

    messages: list[Message] = attrs.field(factory=list)

    def on_worker(self, worker: str, /) -> None:
        """Ignore a worker."""

    def on_loss(self, worker: str, /) -> None:
        """Ignore a loss."""

    def on_messages(self, messages: Sequence[Message], /) -> None:
        self.messages += messages

    def on_shard_end(self, number: int, error: Exception | None, /) -> None:
        """Ignore a shard."""


@attrs.define(eq=False)
class ReportedRun:
    """The rows of one run on several simulated workers, and what is known of them."""

    states: list[tuple[LaneState, ...]] = attrs.field(factory=list)
    """The sums over the workers at the moments."""
    workers: list[tuple[WorkerState, ...]] = attrs.field(factory=list)
    reports: dict[str, list[WorkerReport]] = attrs.field(factory=dict)
    own: dict[str, Activity] = attrs.field(factory=dict)
    """The activity of each worker, from its events."""
    activity: Activity = attrs.field(factory=lambda: Activity(trio.current_time()))
    metrics: RunMetrics = attrs.field(factory=lambda: RunMetrics(trio.current_time()))
    lanes: WorkerLanes = attrs.field(init=False)

    @lanes.default
    def _make_lanes(self) -> WorkerLanes:
        return WorkerLanes(self.activity, self.metrics.add_calls)


async def run_rows(lanes: Lanes, rows: Sequence[OneCall], observe: Callable[[Event], None]) -> None:
    async def perform(job: Job[OneCall], calls: Calls[OneCall]) -> None:
        async def send() -> None:
            await trio.sleep(job.payload.seconds)
            if job.payload.is_refused:
                raise CallError(Fault.RATE_LIMITED, "too many")

        await calls("a", send, tokens=50)

    plan = Plan.of(Job(number, "a", row) for number, row in enumerate(rows))
    await collect(plan, perform, lanes=lanes, observe=observe)


def reported(
    workers: Mapping[str, Sequence[OneCall]],
    moments: Sequence[float] = (),
    *,
    lost: dict[str, float] | None = None,
    spec: LaneSpec = SPEC,
) -> ReportedRun:
    """Run the rows of each worker on lanes of its own, until it is lost."""

    async def work(run: ReportedRun, watched: WatchedCluster, name: str) -> None:
        lanes, found = Lanes([spec]), run.reports.setdefault(name, [])

        def send(message: Message) -> None:
            assert isinstance(message, WorkerReport)
            found.append(message)
            watched.on_messages([message])

        own = run.own[name] = Activity(trio.current_time())
        reporter = LaneReporter(worker=name, name=name, session=name, lanes=lanes, send=send)

        def observe(event: Event) -> None:
            own.observe(event)
            reporter.observe(event)

        watched.on_worker(name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reporter.report_continuously)
            with trio.move_on_at((lost or {}).get(name, math.inf)) as scope:
                await run_rows(lanes, workers[name], observe)
            if scope.cancelled_caught:
                watched.on_loss(name)
            else:
                reporter.shard_ended(is_idle=True)
            nursery.cancel_scope.cancel()

    async def main() -> ReportedRun:
        run = ReportedRun()
        watched = WatchedCluster(NoCoordinator(), WorkerViews(lanes=run.lanes))
        own = Lanes([spec])
        run.metrics.lanes = lambda: run.lanes.statistics(own.statistics())
        async with trio.open_nursery() as nursery:
            for name in workers:
                nursery.start_soon(work, run, watched, name)
            for at in moments:
                await trio.sleep_until(at)
                now = trio.current_time()
                statistics = run.lanes.statistics(own.statistics())
                run.states.append(lane_states(statistics, run.activity, now))
                run.workers.append(run.lanes.states(now))
        return run

    return run_virtual(main)


rows = st.lists(
    st.builds(OneCall, st.floats(0.0, 4.0).map(lambda seconds: round(seconds, 2)), st.booleans()),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(["w1", "w2", "w3"]), rows, min_size=1))
def test_the_sums_of_the_reports_are_what_the_workers_have_done(
    workers: dict[str, list[OneCall]],
) -> None:
    """Calls, refusals, tokens and waits; at the end nothing is in flight."""
    run = reported(workers)
    found, own = run.activity.lane("a"), [one.lane("a") for one in run.own.values()]
    assert found.calls == sum(one.calls for one in own)
    assert found.refused == sum(one.refused for one in own)
    assert found.failed == sum(one.failed for one in own)
    assert found.tokens == sum(one.tokens for one in own)
    assert found.in_flight == 0
    for why in WaitReason:
        expected = math.fsum(one.waits.get(why, 0.0) for one in own)
        assert found.waits.get(why, 0.0) == pytest.approx(expected)
    assert sum(bucket.starts for bucket in found.buckets) == found.calls
    samples = {one.name: dict(one.samples) for one in run.metrics._of_lanes()}
    ended = samples["trioeval_lane_calls"]
    assert ended["a", "failed"] == found.failed
    assert sum(ended.values()) == found.calls


@settings(max_examples=40, deadline=None)
@given(rows)
def test_reports_are_at_most_four_a_second_besides_those_at_the_end_of_rows(
    given_rows: list[OneCall],
) -> None:
    run = reported({"w1": given_rows})
    moments = [one.at for one in run.reports["w1"]][:-1]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert all(gap > 0.2499 for gap in gaps)


def test_a_lane_of_several_workers_is_shown_as_their_sum_and_by_worker() -> None:
    run = reported({"w1": [OneCall(5.0)] * 4, "w2": [OneCall(5.0)] * 2, "w3": []}, [0.3, 2.0])
    (lane,) = run.states[0]
    assert (lane.why, lane.queued, lane.rpm) == (WaitReason.PACE, 1, 240)
    (lane,) = run.states[1]
    assert (lane.in_flight, lane.limit, lane.max_concurrency, lane.calls) == (5, 6, 6, 5)
    assert (lane.why, lane.queued) == (None, 0)
    first, second, third = run.workers[1]
    assert [one.name for one in (first, second, third)] == ["w1", "w2", "w3"]
    assert [one.in_flight for one in first.lanes] == [3]
    assert (second.in_flight, third.lanes) == (2, ())


def test_the_end_of_a_wait_is_counted_down_on_the_own_clock() -> None:
    """Six calls a minute: the next one waits nine seconds, and no report comes meanwhile."""
    run = reported({"w1": [OneCall(1.0)] * 3}, [2.0, 4.5], spec=LaneSpec("a", 2, rpm=6))
    (early,), (late,) = run.states
    assert early.why is WaitReason.PACE
    assert early.wait_s == pytest.approx(8.0)
    assert late.wait_s == pytest.approx(5.5)
    assert run.workers[1][0].lanes[0].wait_s == pytest.approx(5.5)


def test_a_lost_worker_has_nothing_in_flight_and_its_calls_stay_counted() -> None:
    run = reported(
        {"w1": [OneCall(0.1), OneCall(9.0)], "w2": [OneCall(9.0)]}, [4.0, 6.0], lost={"w1": 5.0}
    )
    (before,), (after,) = run.states
    assert (before.in_flight, before.calls) == (2, 3)
    assert (after.in_flight, after.calls, after.limit) == (1, 3, 3)
    assert [one.name for one in run.workers[1]] == ["w2"]
    (throttled,) = [one for one in run.metrics._of_lanes() if one.name.endswith("lane_calls")]
    assert all(number >= 0 for _, number in throttled.samples)


def test_a_lane_that_no_worker_has_used_is_that_of_the_suite() -> None:
    run = reported({"w1": []}, [1.0])
    (lane,) = run.states[0]
    assert (lane.limit, lane.rpm, lane.calls) == (3, 120, 0)


def test_late_reports_of_a_lost_worker_are_ignored() -> None:
    run = reported({"w1": [OneCall(9.0)]}, lost={"w1": 3.0})
    late = run.reports["w1"][-1]

    async def main() -> tuple[WorkerState, ...]:
        lanes = WorkerLanes(Activity(trio.current_time()))
        watched = WatchedCluster(NoCoordinator(), WorkerViews(lanes=lanes))
        watched.on_worker("w1")
        watched.on_messages([late])
        assert lanes.states(trio.current_time())
        watched.on_loss("w1")
        watched.on_messages([late])
        return lanes.states(trio.current_time())

    assert run_virtual(main) == ()


# Events, for traces and telemetry.


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.001, 3)), min_size=1),
    st.floats(-1000, 1000),
)
def test_the_clock_of_a_worker_is_known_up_to_its_fastest_message(
    messages: list[tuple[float, float]], difference: float
) -> None:
    clocks, fastest = WorkerClocks(), min(took for _, took in messages)
    for sent_at, took in messages:
        clocks.on_report("w", sent_at - difference, sent_at + took)
    found = clocks.own_instant("w", 10.0 - difference, math.inf)
    assert 10.0 + fastest == pytest.approx(found)
    assert clocks.own_instant("w", 10.0 - difference, 10.0) == 10.0, "nothing is in the future"


def test_events_are_sent_with_their_rows_and_arrive_with_own_instants() -> None:
    sent: list[WorkerEvent] = []

    async def main() -> None:
        lanes = Lanes([attrs.evolve(SPEC, max_retries=0)])

        def keep(message: Message) -> None:
            assert isinstance(message, WorkerEvent)
            sent.append(message)

        reporter = LaneReporter(worker="w", name="w", session="s", lanes=lanes, send=keep)
        observe = reporter.observer("task", lambda job: 100 + job)
        await run_rows(lanes, [OneCall(1.0), OneCall(1.0, is_refused=True)], observe)

    run_virtual(main)
    assert {one.task for one in sent} == {"task"}
    assert {one.event.index for one in sent if isinstance(one.event, CallStarted)} == {100, 101}
    kinds = [type(one.event).__name__ for one in sent]
    assert kinds.count("CallEnded") == kinds.count("CallStarted") == 2
    ends = [one.event for one in sent if isinstance(one.event, Finished)]
    assert sorted(type(one.outcome).__name__ for one in ends) == ["Done", "Failed"]


def test_all_instants_of_an_event_are_moved() -> None:
    event = moved(Waiting(1.0, "a", WaitReason.PACE, 4.0, 7), 10.0)
    assert isinstance(event, Waiting)
    assert (event.at, event.until) == (11.0, 14.0)
    unknown = moved(Waiting(1.0, "a", WaitReason.SLOT, None, 7), 10.0)
    assert isinstance(unknown, Waiting)
    assert unknown.until is None
