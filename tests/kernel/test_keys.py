"""Jobs that share a key run in index order, one at a time, however the previous one ends."""

from collections.abc import Mapping, Sequence

import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel import (
    Blocked,
    Calls,
    Done,
    Edge,
    Failed,
    Job,
    Lanes,
    LaneSpec,
    NotRun,
    Outcome,
    Plan,
    StopReason,
    collect,
)
from trioeval.testing import run_virtual


async def take(job: Job[float], calls: Calls[float]) -> None:
    """Make a call of so many seconds; with a negative number, it fails after as many."""
    await calls(job.lane, send, job.payload)


async def send(seconds: float) -> None:
    await trio.sleep(abs(seconds))
    if seconds < 0:
        raise CallError(Fault.FATAL, "no such key")


def outcomes_of(
    jobs: Sequence[Job[float]],
    lanes: Sequence[LaneSpec],
    edges: Mapping[int, Sequence[int | Edge]] | None = None,
) -> list[Outcome[None]]:
    return run_virtual(lambda: collect(Plan.of(jobs, edges=edges), take, lanes=Lanes(lanes)))


def times(outcomes: Sequence[Outcome[None]]) -> list[tuple[float, float] | None]:
    return [(o.started_at, o.finished_at) if isinstance(o, Done) else None for o in outcomes]


def test_jobs_of_one_key_run_one_at_a_time_in_index_order_and_others_freely() -> None:
    """Jobs of one key run in index order, one at a time, and others freely."""
    jobs = [Job(i, "a", 2.0, key=key) for i, key in enumerate(["k", "m", "k", None, "m", "k"])]
    assert times(outcomes_of(jobs, [LaneSpec("a", 9)])) == [
        (0.0, 2.0),
        (0.0, 2.0),
        (2.0, 4.0),
        (0.0, 2.0),
        (2.0, 4.0),
        (4.0, 6.0),
    ]


def test_a_key_applies_across_lanes() -> None:
    """A key applies across lanes."""
    jobs = [Job(0, "a", 3.0, key="k"), Job(1, "b", 1.0, key="k"), Job(2, "b", 1.0)]
    outcomes = outcomes_of(jobs, [LaneSpec("a", 1), LaneSpec("b", 1)])
    assert times(outcomes) == [(0.0, 3.0), (3.0, 4.0), (0.0, 1.0)]


def test_a_failed_job_passes_its_key_on() -> None:
    """A failed job passes its key on: a key is an order, not a dependency."""
    jobs = [Job(0, "a", -1.0, key="k"), Job(1, "a", 1.0, key="k")]
    failed, done = outcomes_of(jobs, [LaneSpec("a")])
    assert isinstance(failed, Failed)
    assert done == Done(1, 1.0, 2.0, 0.0, 1, None)


def test_a_job_blocked_while_it_waits_for_its_key_is_skipped() -> None:
    """A job that is blocked while it waits for its key is skipped."""
    jobs = [Job(i, "a", 4.0, key="k") for i in range(3)] + [Job(3, "a", -1.0)]
    outcomes = outcomes_of(jobs, [LaneSpec("a", 4)], {1: [3]})
    assert outcomes[1] == Blocked(1, 3)
    assert times(outcomes) == [(0.0, 4.0), None, (4.0, 8.0), None]


def test_a_job_blocked_while_it_has_its_key_passes_it_on() -> None:
    """A job that is blocked while it has its key passes it on."""
    jobs = [Job(0, "a", 4.0, key="k"), Job(1, "a", 4.0, key="k"), Job(2, "a", -1.0)]
    outcomes = outcomes_of(jobs, [LaneSpec("a", 4)], {0: [2]})
    assert outcomes[0] == Blocked(0, 2)
    assert times(outcomes) == [None, (1.0, 5.0), None]


def test_jobs_of_one_key_are_blocked_together() -> None:
    """Two jobs of one key that depend on a failure are both blocked."""
    jobs = [Job(0, "a", 4.0, key="k"), Job(1, "a", 4.0, key="k"), Job(2, "a", -1.0)]
    outcomes = outcomes_of(jobs, [LaneSpec("a", 4)], {0: [2], 1: [2]})
    assert outcomes[:2] == [Blocked(0, 2), Blocked(1, 2)]


def test_an_unstarted_job_of_a_closed_lane_passes_its_key_on() -> None:
    """An unstarted job of a closed lane passes its key on at that instant."""
    jobs = [Job(0, "shut", -1.0), Job(1, "shut", 1.0, key="k"), Job(2, "free", 1.0, key="k")]
    shut = LaneSpec("shut", 1, breaker_threshold=1)
    outcomes = outcomes_of(jobs, [shut, LaneSpec("free", 1)])
    reason = "1 calls in a row were refused: no such key"
    assert outcomes[1:] == [NotRun(1, StopReason.LANE, reason), Done(2, 1.0, 2.0, 0.0, 1, None)]


def test_a_job_whose_dependency_is_met_still_waits_for_its_key() -> None:
    """A job waits for both its dependency and its key, in any order."""
    jobs = [Job(0, "a", 4.0, key="k"), Job(1, "a", 1.0), Job(2, "a", 1.0, key="k")]
    assert times(outcomes_of(jobs, [LaneSpec("a", 4)], {2: [1]}))[2] == (4.0, 5.0)
    jobs = [Job(0, "a", 1.0, key="k"), Job(1, "a", 4.0), Job(2, "a", 1.0, key="k")]
    assert times(outcomes_of(jobs, [LaneSpec("a", 4)], {2: [1]}))[2] == (4.0, 5.0)
