"""Decisions of a readiness beyond the start: order on a lane, withdrawal, final retry rounds."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import pytest
import trio

from trioeval.errors import CallError, Fault, PlanError
from trioeval.kernel import (
    Blocked,
    Calls,
    Done,
    Event,
    Failed,
    Job,
    Lanes,
    LaneSpec,
    NotRun,
    Outcome,
    Plan,
    Rank,
    Readiness,
    ReadinessUpdate,
    Salvaged,
    collect,
    run_plan,
)
from trioeval.testing import run_virtual


@attrs.define(eq=False)
class ScriptedReadiness(Readiness):
    """A readiness with given updates, which records the jobs whose rank was requested."""

    ready: Sequence[int]
    freed: Mapping[int, ReadinessUpdate] = attrs.field(factory=dict)
    """Updates by the index of the job that is over."""
    again: Mapping[int, ReadinessUpdate] = attrs.field(factory=dict)
    """Updates by the index of the job that is set aside; by default, the run chooses the round's time."""
    ranks: Mapping[int, Any] = attrs.field(factory=dict)
    ranked: list[int] = attrs.field(factory=list)

    def begin(self) -> Sequence[int]:
        return self.ready

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:  # noqa: ARG002 - whatever it is
        return self.freed.get(index, ReadinessUpdate())

    def rank(self, index: int) -> Rank:
        self.ranked.append(index)
        ranks: Rank = self.ranks.get(index, ())
        return ranks

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:
        return self.again.get(index)


@attrs.define(eq=False)
class Seen:
    """The result of a run."""

    starts: list[tuple[int, float]] = attrs.field(factory=list)
    outcomes: list[Outcome[None]] = attrs.field(factory=list)
    settled: list[int] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)
    ended_at: float = math.nan
    error: PlanError | None = None

    @property
    def order(self) -> list[int]:
        """Return the jobs in the order of their starts."""
        return [index for index, _ in self.starts]

    @property
    def salvaged(self) -> list[Salvaged]:
        """Return the rounds that were reported."""
        return [event for event in self.events if isinstance(event, Salvaged)]


A = LaneSpec("a", 1, adaptive="off", retries=0)


async def do_nothing(_lanes: Lanes) -> None:
    """Do nothing."""


def run_jobs(
    readiness: Readiness,
    durations: Sequence[float],
    *,
    lanes: Sequence[LaneSpec] = (A,),
    on: Mapping[int, str] = MappingProxyType({}),
    keys: Mapping[int, str] = MappingProxyType({}),
    fatal: int | None = None,
    needs_no_lane: Callable[[Job[float]], bool] | None = None,
    watch: Callable[[Lanes], Awaitable[None]] = do_nothing,
    stop_at: float = math.inf,
    **more: Any,
) -> Seen:
    """Each job has one call of so many seconds; with a negative number, it fails each time, transiently."""
    seen = Seen()
    jobs = [Job(i, on.get(i, "a"), seconds, key=keys.get(i)) for i, seconds in enumerate(durations)]
    names = {lane.name for lane in lanes}
    plan = Plan(jobs, names, readiness=lambda: readiness, needs_no_lane=needs_no_lane)
    kept = Lanes(lanes, rng=lambda: 0.5)

    async def send(job: Job[float]) -> None:
        await trio.sleep(abs(job.payload))
        if job.payload < 0:
            raise CallError(Fault.FATAL if job.index == fatal else Fault.TRANSIENT)

    async def body(job: Job[float], calls: Calls[float]) -> None:
        seen.starts.append((job.index, trio.current_time()))
        await (send(job) if job.lane is None else calls(job.lane, send, job))

    async def emit(outcome: Outcome[None]) -> None:  # noqa: ASYNC124 - lists do not wait
        seen.outcomes.append(outcome)

    async def run(stop: trio.Event) -> None:
        try:
            await run_plan(
                plan,
                body,
                lanes=kept,
                emit=emit,
                settled=lambda outcome: seen.settled.append(outcome.index),
                observe=seen.events.append,
                stop=stop,
                **more,
            )
        except PlanError as error:
            seen.error = error
        seen.ended_at = trio.current_time()

    async def main() -> None:
        stop = trio.Event()

        async def stop_then() -> None:
            await trio.sleep_until(stop_at)
            stop.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_then)
            nursery.start_soon(watch, kept)
            await run(stop)
            nursery.cancel_scope.cancel("the run is over")

    run_virtual(main)
    return seen


def test_ready_jobs_of_a_lane_start_by_rank_and_then_by_index() -> None:
    """Ready jobs start by rank, compared as tuples, then by index."""
    ranks = {0: (2,), 1: (1, 5), 2: (1,), 3: (1, -math.inf), 5: (2,)}
    seen = run_jobs(ScriptedReadiness(range(6), ranks=ranks), [1] * 6)
    assert seen.order == [4, 2, 3, 1, 0, 5]
    assert [outcome.index for outcome in seen.outcomes] == list(range(6))


def test_a_job_that_becomes_ready_later_overtakes_those_of_a_higher_rank() -> None:
    """A job that becomes ready later overtakes unstarted jobs of a higher rank."""
    readiness = ScriptedReadiness(
        [0, 1, 2], {0: ReadinessUpdate([3])}, ranks={0: (0,), 1: (4,), 2: (6,), 3: (5,)}
    )
    assert run_jobs(readiness, [1] * 4).order == [0, 1, 3, 2]


def test_the_rank_is_computed_each_time_that_a_job_becomes_ready() -> None:
    """It is computed once each time."""
    readiness = ScriptedReadiness([0, 1], ranks={0: (1,), 1: (0,)})
    seen = run_jobs(readiness, [-1, -1], salvage_rounds=1)
    assert seen.order == [1, 0, 1, 0]
    assert readiness.ranked == [0, 1, 0, 1]


def test_ranks_order_jobs_that_have_their_key() -> None:
    """A key passes by index; the rank orders jobs that have theirs."""
    readiness = ScriptedReadiness(range(4), ranks={0: (0,), 1: (9,), 2: (8,), 3: (7,)})
    seen = run_jobs(readiness, [1] * 4, keys={0: "k", 1: "k", 2: "k"})
    assert seen.order == [0, 3, 1, 2]


def test_a_job_that_is_ready_or_waits_for_its_key_can_be_withdrawn() -> None:
    """BLOCK: a ready or key-waiting job can be withdrawn, and its key passes on."""
    readiness = ScriptedReadiness(range(5), {0: ReadinessUpdate(blocked=[(3, 0), (2, 4)])})
    seen = run_jobs(readiness, [1] * 5, keys={0: "k", 2: "k", 4: "k"})
    assert seen.order == [0, 1, 4]
    assert seen.settled[:3] == [0, 3, 2]
    assert seen.outcomes[2:4] == [Blocked(2, 4), Blocked(3, 0)]


def test_a_job_named_and_blocked_at_once_is_withdrawn() -> None:
    """A job in both `ready` and `blocked` is withdrawn."""
    readiness = ScriptedReadiness([0], {0: ReadinessUpdate([2, 1], [(2, 0)])})
    seen = run_jobs(readiness, [1] * 3)
    assert seen.order == [0, 1]
    assert seen.outcomes[2] == Blocked(2, 0)


def test_a_job_that_is_set_aside_can_be_withdrawn_and_keeps_its_failure() -> None:
    """TOTAL: a withdrawn job that was set aside keeps its failure."""
    for again in ({}, {0: ReadinessUpdate()}):
        readiness = ScriptedReadiness([0, 1], {1: ReadinessUpdate(blocked=[(0, 1)])}, again)
        seen = run_jobs(readiness, [-1, 1], salvage_rounds=1)
        assert seen.order == [0, 1]
        assert seen.settled == [1, 0]
        assert isinstance(seen.outcomes[0], Failed)
        assert seen.ended_at == 2


def test_a_job_that_waits_for_its_next_round_can_be_withdrawn() -> None:
    """A job that waits for its next round can be withdrawn and keeps its failure."""
    readiness = ScriptedReadiness(
        [0, 1], {1: ReadinessUpdate(blocked=[(0, 1)])}, {0: ReadinessUpdate([0, 2])}, {0: (5,)}
    )
    seen = run_jobs(
        readiness, [-1, 2, 3], lanes=[attrs.evolve(A, max_concurrency=2)], salvage_rounds=1
    )
    assert seen.order == [1, 0, 2]
    assert seen.settled == [1, 0, 2]
    assert seen.salvaged == [Salvaged(1.0, (0,))]
    assert isinstance(seen.outcomes[0], Failed)
    assert seen.outcomes[0].finished_at == 1


def test_a_withdrawal_of_all_jobs_of_a_lane_leaves_no_waiting_worker() -> None:
    """LEAK: after the withdrawal of all jobs of a lane no worker stays in its queue."""
    waiting = list[int]()

    async def watch(lanes: Lanes) -> None:
        for at in (0.5, 1.5):
            await trio.sleep_until(at)
            waiting.append(lanes["a"].statistics().waiting)

    lanes = [attrs.evolve(A, min_gap=1e6), LaneSpec("b", 1)]
    readiness = ScriptedReadiness([0, 1, 2], {0: ReadinessUpdate([3], [(2, 0)])})
    on = {0: "b", 3: "b"}
    seen = run_jobs(readiness, [1, 0, 1, 1], lanes=lanes, on=on, watch=watch)
    assert waiting == [1, 0]
    assert seen.ended_at == 2
    seen = run_jobs(
        ScriptedReadiness([0, 1, 2], {0: ReadinessUpdate(blocked=[(2, 0)])}),
        [1, 0, 1],
        lanes=lanes,
        on=on,
    )
    assert seen.ended_at == 1


def test_a_lane_whose_jobs_were_withdrawn_starts_jobs_that_become_ready_later() -> None:
    """A lane whose jobs were withdrawn starts jobs that become ready later."""
    lanes = [attrs.evolve(A, min_gap=4.0), LaneSpec("b", 1)]
    readiness = ScriptedReadiness(
        [0, 1, 2], {0: ReadinessUpdate([3], [(2, 0)]), 3: ReadinessUpdate([4])}
    )
    seen = run_jobs(readiness, [1, 0, 1, 1, 1], lanes=lanes, on={0: "b", 3: "b"})
    assert seen.starts[-1] == (4, 4.0)


def test_a_job_that_has_left_its_lane_can_be_withdrawn() -> None:
    """A job that has left its lane can be withdrawn."""
    looked = list[int]()

    def needs_no_lane(job: Job[float]) -> bool:
        looked.append(job.index)
        return job.index > 0

    lanes = [A, LaneSpec("b", 1)]
    readiness = ScriptedReadiness([0, 1, 2, 3], {0: ReadinessUpdate(blocked=[(2, 0)])})
    more: dict[str, Any] = {"lanes": lanes, "on": {0: "b"}, "max_live_jobs": 1}
    more["needs_no_lane"] = needs_no_lane
    seen = run_jobs(readiness, [1, 2, 1, 1], **more)
    assert sorted(looked) == [0, 1, 2, 3]
    assert seen.starts[-1] == (3, 2.0)
    assert seen.ended_at == 3
    readiness = ScriptedReadiness([0, 1, 2], {0: ReadinessUpdate(blocked=[(2, 0)])})
    assert run_jobs(readiness, [1, 2, 1], **more).ended_at == 2


def test_a_rank_is_kept_by_a_job_that_leaves_its_lane() -> None:
    """Jobs on no lane start by rank and index, too."""
    readiness = ScriptedReadiness([0, 1, 2, 3], ranks={1: (2,), 2: (1,), 3: (1,)})
    seen = run_jobs(readiness, [1, 1, 1, 1], needs_no_lane=lambda _job: True, max_live_jobs=1)
    assert seen.order == [0, 2, 3, 1]


def test_a_readiness_chooses_the_time_of_a_round() -> None:
    """The round may be at once or later."""
    readiness = ScriptedReadiness(
        [0, 1, 2, 3], {2: ReadinessUpdate([0])}, {0: ReadinessUpdate(), 1: ReadinessUpdate([1])}
    )
    seen = run_jobs(readiness, [-1, -1, 1, 1], salvage_rounds=1)
    assert seen.starts == [(0, 0), (1, 1), (1, 2), (2, 3), (0, 4), (3, 5)]
    assert seen.salvaged == [Salvaged(2.0, (1,)), Salvaged(4.0, (0,))]
    assert [type(outcome) for outcome in seen.outcomes] == [Failed, Failed, Done, Done]


def test_a_job_that_is_named_again_and_blocked_at_once_has_no_round() -> None:
    """A job named again and blocked at once gets no round, and keeps its failure."""
    readiness = ScriptedReadiness([0, 1], {}, {0: ReadinessUpdate([0], [(0, 0)])})
    seen = run_jobs(readiness, [-1, 1], salvage_rounds=1)
    assert seen.order == [0, 1]
    assert seen.salvaged == []
    assert isinstance(seen.outcomes[0], Failed)


def test_jobs_named_again_together_are_reported_together_in_index_order() -> None:
    """Jobs named again together are reported together in index order."""
    readiness = ScriptedReadiness(
        [0, 1, 2], {2: ReadinessUpdate([1, 3, 0])}, {0: ReadinessUpdate(), 1: ReadinessUpdate()}
    )
    seen = run_jobs(readiness, [-1, -1, 1, 1], salvage_rounds=1)
    assert seen.salvaged == [Salvaged(3.0, (0, 1))]
    assert seen.order == [0, 1, 2, 0, 1, 3]


def test_a_job_that_keeps_its_key_is_run_again_before_the_next_of_the_key() -> None:
    """A job that is set aside keeps its key until its outcome."""
    readiness = ScriptedReadiness([0, 1], again={0: ReadinessUpdate([0])})
    assert run_jobs(readiness, [-1, 1], keys={0: "k", 1: "k"}, salvage_rounds=1).order == [0, 0, 1]


def test_a_job_that_is_never_named_again_ends_the_run() -> None:
    """It keeps its failure."""
    seen = run_jobs(
        ScriptedReadiness([0, 1], again={0: ReadinessUpdate()}), [-1, 1, 1], salvage_rounds=1
    )
    assert str(seen.error) == "2 jobs of the plan never became ready, 1 of them again"
    assert [type(outcome) for outcome in seen.outcomes] == [Failed, Done, NotRun]


@pytest.mark.parametrize("ends", [{"stop_at": 2.5}, {"deadline": 2.5}])
def test_a_job_that_is_set_aside_when_the_run_ends_keeps_its_failure(
    ends: Mapping[str, Any],
) -> None:
    """TOTAL: a job that is set aside when the run ends keeps its failure."""
    again = {0: ReadinessUpdate(), 1: ReadinessUpdate([1, 3])}
    readiness = ScriptedReadiness([0, 1, 2], again=again, ranks={1: (1,), 2: (2,)})
    seen = run_jobs(readiness, [-1, -1, 1, 5], salvage_rounds=1, **ends)
    assert seen.order == [0, 1, 3]
    assert [type(outcome) for outcome in seen.outcomes[:3]] == [Failed, Failed, NotRun]
    assert seen.error is None


def test_a_job_named_again_on_a_closed_lane_keeps_its_failure() -> None:
    """HONEST: a job named again on a closed lane keeps its failure."""
    lanes = [attrs.evolve(A, breaker_threshold=1), LaneSpec("b", 1)]
    readiness = ScriptedReadiness(
        [0, 1], {1: ReadinessUpdate([0]), 0: ReadinessUpdate([2])}, {0: ReadinessUpdate()}
    )
    seen = run_jobs(readiness, [-1, -1, 1], lanes=lanes, on={2: "b"}, fatal=1, salvage_rounds=1)
    assert seen.starts == [(0, 0), (1, 1), (2, 2)]
    assert [type(outcome) for outcome in seen.outcomes] == [Failed, Failed, Done]
    assert isinstance(seen.outcomes[0], Failed)
    assert seen.outcomes[0].finished_at == 1


def test_a_withdrawal_costs_the_same_however_many_jobs_wait() -> None:
    """Each of ten thousand withdrawals costs a few look-ups."""
    size, looked = 10_000, 0

    class Counting(Sequence[Job[None]]):
        """Jobs that are made when they are looked up."""

        def __len__(self) -> int:
            return size

        def __getitem__(self, index: Any) -> Any:
            nonlocal looked
            looked += 1
            return Job(index, "a", None)

    freed = {i: ReadinessUpdate(blocked=[(i - 1, i)]) for i in range(2, size)}
    readiness = ScriptedReadiness(
        range(size), {0: ReadinessUpdate(blocked=[(size - 1, 0)]), **freed}
    )

    async def body(_job: Job[None], calls: Calls[None]) -> None:
        await calls("a", trio.lowlevel.checkpoint)

    async def main() -> list[Outcome[None]]:
        plan = Plan(Counting(), {"a"}, readiness=lambda: readiness)
        return await collect(plan, body, lanes=Lanes([A]))

    outcomes = run_virtual(main)
    assert outcomes[2:] == [Blocked(i, (i + 1) % size) for i in range(2, size)]
    assert looked <= 3 * size


NAMES = "the readiness of the plan names job "
BLOCKS = "the readiness of the plan blocks job "


@pytest.mark.parametrize(
    ("readiness", "message"),
    [
        (ScriptedReadiness([0, 0]), NAMES + "0 as ready twice"),
        (ScriptedReadiness([0, 1], {0: ReadinessUpdate([1])}), NAMES + "1 as ready twice"),
        (ScriptedReadiness([0, 1], {0: ReadinessUpdate([2, 2])}), NAMES + "2 as ready twice"),
        (ScriptedReadiness([0, 1], {0: ReadinessUpdate([0])}), NAMES + "0 as ready, which is over"),
        (
            ScriptedReadiness([0, 3], {0: ReadinessUpdate([3])}),
            NAMES + "3 as ready, which has started",
        ),
        (
            ScriptedReadiness([0], {0: ReadinessUpdate([1], [(1, 0), (1, 0)])}),
            BLOCKS + "1, which is over",
        ),
        (
            ScriptedReadiness([0], {0: ReadinessUpdate(blocked=[(0, 0)])}),
            BLOCKS + "0, which is over",
        ),
        (
            ScriptedReadiness([0, 3], {0: ReadinessUpdate(blocked=[(3, 0)])}),
            BLOCKS + "3, which has started",
        ),
        (
            ScriptedReadiness(
                [0, 1], {0: ReadinessUpdate(blocked=[(1, 0)]), 1: ReadinessUpdate([1])}
            ),
            NAMES + "1 as ready, which is over",
        ),
        (
            ScriptedReadiness([4, 0], {0: ReadinessUpdate([4])}),
            NAMES + "4 as ready, although it left the time of its round to the run",
        ),
        (ScriptedReadiness([4, 0], again={4: ReadinessUpdate([4, 4])}), NAMES + "4 as ready twice"),
        (
            ScriptedReadiness([4, 0], {4: ReadinessUpdate([4])}, {4: ReadinessUpdate([4])}),
            NAMES + "4 as ready, which is over",
        ),
        (
            ScriptedReadiness([4], again={4: ReadinessUpdate([9])}),
            "the readiness of the plan names 9; its jobs are 0 to 4",
        ),
        (
            ScriptedReadiness([0], ranks={0: 1}),
            "the readiness of the plan ranks job 0 as 1; a rank is a tuple of numbers",
        ),
        (
            ScriptedReadiness([0], ranks={0: (1, math.nan)}),
            "the readiness of the plan ranks job 0 as (1, nan); a rank is a tuple of numbers",
        ),
        (
            ScriptedReadiness([0], ranks={0: ("x",)}),
            "the readiness of the plan ranks job 0 as ('x',); a rank is a tuple of numbers",
        ),
    ],
)
def test_an_invalid_update_of_a_readiness_ends_the_run(
    readiness: ScriptedReadiness, message: str
) -> None:
    """A violation by a readiness ends the run with a PlanError that names the job."""
    lanes = [A, LaneSpec("b", 1), attrs.evolve(A, name="c")]
    seen = run_jobs(
        readiness, [1, 1, 1, 9, -0.5], lanes=lanes, on={3: "b", 4: "c"}, salvage_rounds=1
    )
    assert str(seen.error) == message
    assert [outcome.index for outcome in seen.outcomes] in ([], [0, 1, 2, 3, 4])
