"""Dependencies: starts, blocked jobs, and plans that are rejected."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio

from trioeval.errors import PlanError
from trioeval.kernel import (
    Blocked,
    Calls,
    Done,
    Edge,
    Failed,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    NotRun,
    Outcome,
    Plan,
    Readiness,
    ReadinessUpdate,
    collect,
    run_plan,
)
from trioeval.testing import run_virtual

Edges = Mapping[int, Sequence[int | Edge]]


async def take(job: Job[float], calls: Calls[float]) -> None:
    """Make a call of so many seconds; with a negative number, it fails after as many."""
    await calls(job.lane, send, job.payload)


async def send(seconds: float) -> None:
    await trio.sleep(abs(seconds))
    if seconds < 0:
        raise ValueError


def run_edges(durations: Sequence[float], edges: Edges, width: int = 9) -> list[Outcome[None]]:
    plan = Plan.of([Job(i, "a", seconds) for i, seconds in enumerate(durations)], edges=edges)
    return run_virtual(lambda: collect(plan, take, lanes=Lanes([LaneSpec("a", width)])))


def starts(outcomes: Sequence[Outcome[None]]) -> list[float | None]:
    return [o.started_at if isinstance(o, Done | Failed) else None for o in outcomes]


def test_a_job_starts_when_the_last_of_its_dependencies_is_done() -> None:
    """BLOCK: a job starts when its last dependency is done, wherever it is listed."""
    assert starts(run_edges([1, 2, 4, 1], {1: [0], 2: [0], 3: [1, 2]})) == [0.0, 1.0, 1.0, 5.0]
    assert starts(run_edges([1, 2], {0: [1]})) == [2.0, 0.0]


def test_a_failure_blocks_dependants_on_its_success_and_releases_others() -> None:
    """BLOCK: a failure blocks dependants on its success, and `always` follows any outcome."""
    edges: Edges = {1: [0], 2: [1], 3: [Edge(0, "always")], 4: [Edge(2, "always"), 3]}
    outcomes = run_edges([-1, 1, 1, 1, 1], edges)
    assert outcomes[1:3] == [Blocked(1, 0), Blocked(2, 1)]
    assert starts(outcomes) == [0.0, None, None, 1.0, 2.0]


def test_a_job_is_blocked_by_the_first_of_its_dependencies_to_fail_and_only_once() -> None:
    """A job is blocked once, by its first dependency to fail."""
    outcomes = run_edges([-2, -1, 3, 1], {3: [0, 1, 2]})
    assert outcomes[3] == Blocked(3, 1)


@pytest.mark.slow
def test_ten_thousand_jobs_are_blocked_one_by_another() -> None:
    """A chain of ten thousand blocked jobs causes no recursion error."""
    size = 10_000
    outcomes = run_edges([-1] + [1] * (size - 1), {i: [i - 1] for i in range(1, size)})
    assert outcomes[1:] == [Blocked(i, i - 1) for i in range(1, size)]


def test_released_jobs_start_in_index_order_among_the_others() -> None:
    """Released jobs start in index order among the others."""
    assert starts(run_edges([1, 1, 1, 1, 1, 1], {2: [0]}, width=1)) == [0, 1, 2, 3, 4, 5]
    assert starts(run_edges([4, 1, 1, 1, 1, 1], {1: [0]}, width=2)) == [0, 4, 0, 1, 2, 3]


def test_serial_jobs_may_depend_on_serial_jobs_before_them() -> None:
    """A blocked serial job is skipped."""
    plan = Plan.of(
        [Job(0, "a", -1.0), Job(1, "a", 1.0), Job(2, "a", 1.0), Job(3, "a", 1.0)],
        serial_indices=[0, 1, 2],
        edges={1: [0], 2: [Edge(0, "always")], 3: [2]},
    )
    outcomes = run_virtual(lambda: collect(plan, take, lanes=Lanes([LaneSpec("a")])))
    assert outcomes[1] == Blocked(1, 0)
    assert starts(outcomes) == [0.0, None, 1.0, 2.0]


JOIN = "the edges of a plan must join its jobs (0 to 3): "


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ({0: [1], 1: [2], 2: [0]}, "jobs depend on each other in a cycle: 0 → 1 → 2 → 0"),
        ({1: [1]}, "jobs depend on each other in a cycle: 1 → 1"),
        ({1: [4]}, JOIN + "1 depends on 4, which does not exist"),
        ({1: [-1], 9: [0]}, JOIN + "1 depends on -1, which does not exist; job 9 does not exist"),
        ({1: [0, Edge(0, "always")]}, JOIN + "1 depends on 0 twice"),
    ],
    ids=["circle", "itself", "nowhere", "all at once", "twice"],
)
def test_impossible_edges_are_rejected(edges: Edges, message: str) -> None:
    """They are rejected before anything starts, with the path or the indices."""
    with pytest.raises(PlanError) as caught:
        run_edges([1, 1, 1, 1], edges)
    text = str(caught.value)
    if "circle" in message:  # at any node of the cycle
        path = text.removeprefix("jobs depend on each other in a cycle: ").split(" → ")
        depends = [(int(path[n]), int(path[n + 1])) for n in range(len(path) - 1)]
        assert path[0] == path[-1]
        assert all(on in edges[index] for index, on in depends)
        assert len(text) == len(message)
    else:
        assert text == message


def test_the_order_of_a_key_counts_as_a_dependency_in_a_cycle() -> None:
    """A cycle through the order of a key is rejected."""
    jobs = [Job(i, "a", 1.0, key="k") for i in range(2)]
    with pytest.raises(PlanError, match="in a cycle: "):
        run_virtual(
            lambda: collect(Plan.of(jobs, edges={0: [1]}), take, lanes=Lanes([LaneSpec("a")]))
        )


@pytest.mark.parametrize(
    ("serial", "serial_indices", "edges", "message"),
    [
        (True, (), {0: [1]}, "a serial plan runs in index order, so job 0 cannot depend on 1"),
        (False, (1,), {1: [0]}, "serial job 1 depends on 0; serial jobs run before all others"),
        (False, (0, 1), {0: [1]}, "serial job 0 depends on 1; serial jobs run before all others"),
    ],
)
def test_edges_against_the_order_of_serial_jobs_are_rejected(
    serial: bool,  # noqa: FBT001 - a column
    serial_indices: Sequence[int],
    edges: Edges,
    message: str,
) -> None:
    """Edges that contradict the order of serial jobs are rejected."""
    jobs = [Job(i, "a", 1.0) for i in range(2)]
    plan = Plan.of(jobs, serial=serial, serial_indices=serial_indices, edges=edges)
    with pytest.raises(PlanError, match=message):
        run_virtual(lambda: collect(plan, take, lanes=Lanes([LaneSpec("a")])))


def test_an_edge_is_of_one_of_two_kinds() -> None:
    """An edge of an unknown kind is rejected."""
    with pytest.raises(PlanError) as caught:
        Edge(0, "never")  # type: ignore[arg-type]
    assert str(caught.value) == "Edge.when must be success or always, got 'never'"


class Decides(Readiness):
    """A readiness that depends on job 0: if done, it releases 1 and blocks 2, otherwise the reverse."""

    def begin(self) -> Sequence[int]:
        return [0]

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        if index:
            return ReadinessUpdate()
        return ReadinessUpdate([1], [(2, 0)]) if done else ReadinessUpdate([2], [(1, 0)])


class NeverReady(Decides):
    """A readiness that never releases any job but the first."""

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:  # noqa: ARG002 - it forgets
        return ReadinessUpdate()


@pytest.mark.parametrize("first", [1.0, -1.0])
def test_a_readiness_decides_while_the_plan_runs(first: float) -> None:
    """A readiness may react to outcomes."""
    jobs = [Job(0, "a", first), Job(1, "a", 1.0), Job(2, "b", 1.0)]
    plan = Plan(jobs, {"a", "b"}, readiness=Decides)
    outcomes = run_virtual(lambda: collect(plan, take, lanes=Lanes([LaneSpec("a"), LaneSpec("b")])))
    if first > 0:
        assert outcomes[1:] == [Done(1, 1.0, 2.0, 0.0, 1, None), Blocked(2, 0)]
    else:
        assert outcomes[1:] == [Blocked(1, 0), Done(2, 1.0, 2.0, 0.0, 1, None)]


def test_keys_apply_under_a_readiness() -> None:
    """Keys apply to jobs that a readiness releases together."""

    class Together(NeverReady):
        def begin(self) -> Sequence[int]:
            return [2, 1, 0]

    plan = Plan([Job(i, "a", 1.0, key="k") for i in range(3)], {"a"}, readiness=Together)
    outcomes = run_virtual(lambda: collect(plan, take, lanes=Lanes([LaneSpec("a")])))
    assert sorted(start for start in starts(outcomes) if start is not None) == [0.0, 1.0, 2.0]


def test_a_readiness_that_forgets_a_job_ends_the_run() -> None:
    """A readiness that never names a job ends the run with the number of missing jobs."""
    emitted: list[Outcome[None]] = []

    async def emit(outcome: Outcome[None]) -> None:  # noqa: ASYNC124 - lists do not wait
        emitted.append(outcome)

    async def main() -> None:
        plan = Plan([Job(i, "a", 1.0) for i in range(3)], {"a"}, readiness=NeverReady)
        await run_plan(plan, take, lanes=Lanes([LaneSpec("a")]), emit=emit)

    with pytest.raises(PlanError) as caught:
        run_virtual(main)
    assert str(caught.value) == "2 jobs of the plan never became ready"
    assert emitted[:1] == [Done(0, 0.0, 1.0, 0.0, 1, None)]


@pytest.mark.parametrize("extra", [{"edges": {1: [Edge(0)]}}, {"serial": True}])
def test_a_readiness_decides_alone(extra: Mapping[str, object]) -> None:
    """A plan with a readiness cannot have edges or be serial as a whole."""
    plan = Plan([Job(i, "a", 1.0) for i in range(2)], {"a"}, readiness=Decides, **extra)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="cannot have edges or be serial as a whole"):
        run_virtual(lambda: collect(plan, take, lanes=Lanes([LaneSpec("a")])))


class Listed(Readiness):
    """A readiness with given updates that records the outcomes it is notified of."""

    def __init__(self, ready: Sequence[int], freed: Mapping[int, ReadinessUpdate]) -> None:
        self.ready = ready
        self.freed = freed
        self.outcomes_seen: list[tuple[int, bool]] = []

    def begin(self) -> Sequence[int]:
        return self.ready

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        self.outcomes_seen.append((index, done))
        return self.freed.get(index, ReadinessUpdate())


def run_listed(
    listed: Listed, serial: Sequence[int], durations: Sequence[float], **more: Any
) -> list[Outcome[None]]:
    """There is one job for each duration, half of them on either of two wide lanes."""
    jobs = [Job(i, "ab"[i % 2], seconds) for i, seconds in enumerate(durations)]
    plan = Plan(jobs, {"a", "b"}, serial, readiness=lambda: listed)
    lanes = [LaneSpec("a", 9), LaneSpec("b", 9)]
    return run_virtual(lambda: collect(plan, take, lanes=Lanes(lanes), **more))


@pytest.mark.parametrize("named", [[0, 2], [0, 1, 2, 3], [3, 2, 1, 0]])
def test_serial_jobs_run_first_whether_a_readiness_names_them_or_not(named: Sequence[int]) -> None:
    """SERIAL: serial jobs run first, once each, whether a readiness names them or not."""
    outcomes = run_listed(Listed(named, {}), [1, 3], [1, 1, 1, 1])
    assert starts(outcomes) == [2.0, 0.0, 2.0, 1.0]


def test_a_readiness_is_notified_of_serial_jobs() -> None:
    """BLOCK: a readiness is notified of the outcomes of serial jobs."""
    freed = {1: ReadinessUpdate([0]), 3: ReadinessUpdate([2], [(4, 3)])}
    listed = Listed([], freed)
    outcomes = run_listed(listed, [1, 3, 5], [1, 1, 1, -1, 1, 1])
    assert starts(outcomes) == [3.0, 0.0, 3.0, 1.0, None, 2.0]
    assert outcomes[4] == Blocked(4, 3)
    assert sorted(listed.outcomes_seen) == [(i, i not in (3, 4)) for i in range(6)]


def test_a_plan_of_only_serial_jobs_needs_no_update_of_its_readiness() -> None:
    """A plan that has only serial jobs runs without an update of its readiness."""
    listed = Listed([], {})
    assert starts(run_listed(listed, range(3), [1, 1, 1])) == [0.0, 1.0, 2.0]
    assert listed.outcomes_seen == [(0, True), (1, True), (2, True)]


@pytest.mark.parametrize("blocks", [0, 2])
def test_a_readiness_cannot_block_a_serial_job(blocks: int) -> None:
    """A readiness that blocks a serial job ends the run with a PlanError."""
    with pytest.raises(PlanError) as caught:
        run_listed(
            Listed([3], {0: ReadinessUpdate(blocked=[(blocks, 0)])}), [0, 1, 2], [1, 1, 1, 1]
        )
    assert str(caught.value) == (
        f"the readiness of the plan blocks job {blocks}, which is serial: it runs anyway"
    )


def test_a_readiness_that_forgets_a_job_behind_serial_ones_ends_the_run() -> None:
    """A missing job is reported after the serial jobs, not before."""
    with pytest.raises(PlanError) as caught:
        run_listed(Listed([0], {}), [1], [1, 1, 1])
    assert str(caught.value) == "1 jobs of the plan never became ready"


def test_the_deadline_cuts_serial_jobs_and_those_that_wait_for_them() -> None:
    """TOTAL: at the deadline the running serial job is interrupted and the rest is not run."""
    listed = Listed([0], {1: ReadinessUpdate([2])})
    outcomes = run_listed(listed, [1, 3], [1, 1, 1, 5], deadline=3.0)
    assert [type(outcome) for outcome in outcomes] == [NotRun, Done, NotRun, Interrupted]
