"""A plan with finished jobs: all reports about jobs use the right indices."""

import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import attrs
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioeval import Row, collect, parse_suite
from trioeval.evaluation.groups import GroupReadiness, Layout
from trioeval.evaluation.registers import CellAccess, CellReadiness, SerialReadiness
from trioeval.evaluation.resumed import ResumedTask
from trioeval.kernel import (
    Blocked,
    Calls,
    Done,
    Edge,
    Failed,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    Rank,
    Readiness,
    ReadinessUpdate,
    run_plan,
)
from trioeval.report.row import row_json
from trioeval.run import RowsNotRun, RunOptions, run_with_options
from trioeval.suite.expand import Expansion, Step, expand
from trioeval.testing import run_virtual


@attrs.define(eq=False)
class Kept:
    """Rows of which only the indices matter, or their records."""

    indices: frozenset[int]
    records: Mapping[int, Mapping[str, Any]] = attrs.field(factory=dict)

    def __contains__(self, index: object) -> bool:
        return index in self.indices

    def __len__(self) -> int:
        return len(self.indices)

    def record(self, index: int) -> Mapping[str, Any]:
        return self.records[index]


class Forgetful:
    """Rows that leave no data."""

    shares_data = False

    def may_store(self, step: Step) -> bool:
        raise AssertionError(step)

    def may_share(self, step: Step) -> bool:
        raise AssertionError(step)

    def restore(self, step: Step, record: Mapping[str, Any]) -> None:
        raise AssertionError(step, record)

    def on_row_end(self, step: Step) -> None:
        raise AssertionError(step)


@attrs.define(eq=False)
class Toy:
    """A body whose jobs take a second each and record their order."""

    made: Plan[str]
    failing: frozenset[int] = frozenset()
    started: list[tuple[int, float]] = attrs.field(factory=list)
    ended: dict[int, float] = attrs.field(factory=dict)
    outcomes: list[Outcome[int]] = attrs.field(factory=list)

    def plan(self) -> Plan[str]:
        return self.made

    async def perform(self, job: Job[str], calls: Calls[str]) -> int:  # noqa: ARG002 - makes none
        assert job.payload == f"job {job.index}"
        self.started.append((job.index, trio.current_time()))
        await trio.sleep(1)
        self.ended[job.index] = trio.current_time()
        if job.index in self.failing:
            raise ValueError(job.index)
        return job.index

    def rows(self, outcome: Outcome[int], waits: Mapping[str, float] | None = None) -> list[Row]:  # noqa: ARG002
        self.outcomes.append(outcome)
        return []

    def unstarted(self, _jobs: range) -> None:
        """Every job that never started is reported separately."""

    def on_emitted(self, row: Row) -> None:
        raise AssertionError(row)


@functools.cache
def steps_of(size: int, *, compared: bool = False, columns: int = 1) -> Expansion:
    asserted = [{"type": "contains", "value": "x"}, {"type": "max-score"}] if compared else []
    suite = parse_suite(
        {
            "providers": [{"id": "echo", "label": str(i)} for i in range(columns)],
            "prompts": ["x"],
            "tests": [{"vars": {"x": str(i)}, "assert": asserted} for i in range(size // columns)],
        }
    )
    return expand(suite)


def jobs_of(size: int, key: Callable[[int], Any] = lambda _: None) -> list[Job[str]]:
    return [Job(index, "a", f"job {index}", key=key(index)) for index in range(size)]


def resumed(toy: Toy, size: int, kept: Sequence[int]) -> ResumedTask:
    return ResumedTask(toy, Kept(frozenset(kept)), steps_of(size), None, Forgetful())


def run(toy: Toy, size: int, kept: Sequence[int], width: int = 3, **more: Any) -> ResumedTask:
    body = resumed(toy, size, kept)

    async def emit(outcome: Outcome[Any]) -> None:  # noqa: ASYNC124 - nothing to wait for
        body.rows(outcome)

    async def main() -> None:
        await body.restore()
        await run_plan(
            body.plan(),
            body.perform,
            lanes=Lanes([LaneSpec("a", max_concurrency=width)]),
            emit=emit,
            max_live_jobs=width,
            **more,
        )

    run_virtual(main)
    return body


def test_only_remaining_jobs_run_under_their_own_indices() -> None:
    """Their outcomes have these indices, in order."""
    toy = Toy(Plan.of(jobs_of(6)), failing=frozenset({4}))
    body = run(toy, 6, [0, 3])
    assert sorted(index for index, _ in toy.started) == [1, 2, 4, 5]
    assert [outcome.index for outcome in toy.outcomes] == [1, 2, 4, 5]
    assert [type(outcome) for outcome in toy.outcomes] == [Done, Done, Failed, Done]
    assert list(body.kept_rows()) == [0, 3]


def test_no_kept_rows_give_the_whole_plan_and_all_give_an_empty_one() -> None:
    """Neither case is special for the kernel."""
    toy = Toy(Plan.of(jobs_of(3)))
    run(toy, 3, [])
    assert [outcome.index for outcome in toy.outcomes] == [0, 1, 2]
    ordered = attrs.evolve(
        Plan.of(jobs_of(3), serial_indices=[1]), readiness=lambda: SerialReadiness.of(3, [1])
    )
    for plan in (ordered, Plan.of(jobs_of(3), serial=True)):
        toy = Toy(plan)
        run(toy, 3, [0, 1, 2])
        assert not toy.outcomes


def test_serial_jobs_stay_serial() -> None:
    """Kept rows delay no others."""
    toy = Toy(Plan.of(jobs_of(5), serial_indices=[1, 3]))
    run(toy, 5, [0, 1])
    assert toy.started == [(3, 0), (2, 1), (4, 1)]
    whole = Toy(Plan.of(jobs_of(4), serial=True))
    run(whole, 4, [1])
    assert whole.started == [(0, 0), (2, 1), (3, 2)]


def test_jobs_of_one_key_run_one_at_a_time() -> None:
    """Kept rows between them make no difference."""
    toy = Toy(Plan.of(jobs_of(5, key=lambda index: index % 2)))
    run(toy, 5, [2])
    assert sorted(toy.started) == [(0, 0), (1, 0), (3, 1), (4, 1)]


def test_dependencies_on_kept_rows_are_done() -> None:
    """A remaining job blocks others under its own index."""
    edges: dict[int, list[int | Edge]] = {
        2: [0, Edge(1)],
        3: [0],
        4: [Edge(1, "always")],
        5: [4, 2],
    }
    toy = Toy(Plan.of(jobs_of(6), edges=edges), failing=frozenset({1}))
    run(toy, 6, [0])
    assert toy.started == [(1, 0), (3, 0), (4, 1)]
    assert toy.outcomes[1] == Blocked(2, by=1)
    assert toy.outcomes[4] == Blocked(5, by=2)


def test_jobs_without_a_lane_are_found_by_their_own_index() -> None:
    """The plan is queried with the original index."""
    indices: list[int] = []

    def needs_no_lane(job: Job[str]) -> bool:
        assert job.payload == f"job {job.index}"
        indices.append(job.index)
        return job.index == 4

    toy = Toy(attrs.evolve(Plan.of(jobs_of(5)), needs_no_lane=needs_no_lane))
    run(toy, 5, [0, 2], width=1)
    assert indices == [1, 3, 4]
    assert resumed(Toy(Plan.of(jobs_of(2))), 2, [0]).plan().needs_no_lane is None


@attrs.define(eq=False)
class Chain(Readiness):
    """Every job needs the one before it to be done."""

    size: int

    def begin(self) -> Sequence[int]:
        return [0]

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        if index + 1 == self.size:
            return ReadinessUpdate()
        return ReadinessUpdate([index + 1]) if done else ReadinessUpdate((), [(index + 1, index)])


def test_a_readiness_that_blocks_jobs_blocks_remaining_ones() -> None:
    """A kept row counts as done, also after a failed one, and releases its dependents."""
    toy = Toy(attrs.evolve(Plan.of(jobs_of(6)), readiness=lambda: Chain(6)), failing=frozenset({1}))
    run(toy, 6, [0, 3])
    assert [index for index, _ in toy.started] == [1, 4, 5]
    assert toy.outcomes[1] == Blocked(2, by=1)


class Ranked(Readiness):
    """Everything may start; 2 is named again whenever it is set aside, and 4 withdraws 1."""

    def begin(self) -> Sequence[int]:
        return range(6)

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:  # noqa: ARG002 - whatever it is
        return ReadinessUpdate(blocked=[(1, 4)]) if index == 4 else ReadinessUpdate()

    def rank(self, index: int) -> Rank:
        return (-index,)

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:
        return ReadinessUpdate([index]) if index == 2 else None


def test_ranks_rounds_and_withdrawals_are_those_of_the_whole_plan() -> None:
    """They use the positions of jobs among the remaining ones."""
    toy = Toy(attrs.evolve(Plan.of(jobs_of(6)), readiness=Ranked))
    make = resumed(toy, 6, [0, 3]).plan().readiness
    assert make is not None
    left = make()
    assert left.begin() == [0, 1, 2, 3]
    assert [left.rank(place) for place in range(4)] == [(-1,), (-2,), (-4,), (-5,)]
    assert [left.on_set_aside(place) for place in range(3)] == [
        None,
        ReadinessUpdate([1], []),
        None,
    ]
    assert left.on_outcome(2, done=True) == ReadinessUpdate([], [(0, 2)])
    run(toy, 6, [0, 3], width=1)
    assert [index for index, _ in toy.started] == [5, 4, 2]
    assert toy.outcomes[0] == Blocked(1, by=4)


BEHIND_KEPT = [
    *[CellAccess()] * 6,
    CellAccess(writes=frozenset("y")),
    CellAccess(reads=frozenset("y"), writes=frozenset("x")),
    *[CellAccess()] * 3,
    CellAccess(reads=frozenset("x")),
]
"""The seventh step remains, the eighth is kept and reads from it, and the last one reads from that."""

INDICES = st.frozensets(st.integers(0, 11))
ORDERS = st.sampled_from(["one by one", "side by side"])
CELLS = st.lists(
    st.builds(
        CellAccess,
        st.frozensets(st.sampled_from("xyz"), max_size=2),
        st.frozensets(st.sampled_from("xyz"), max_size=1),
    ),
    min_size=12,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(CELLS, INDICES, INDICES, st.integers(1, 12), ORDERS)
@example(BEHIND_KEPT, frozenset({0, 7}), frozenset(), 12, "side by side")
def test_every_remaining_job_runs_once_and_after_its_dependencies(
    cells: list[CellAccess], kept: frozenset[int], serial: frozenset[int], ahead: int, order: str
) -> None:
    """Readers wait for earlier writers only; a kept one takes no time, in its turn."""
    strict = order == "one by one"

    def ready() -> CellReadiness | SerialReadiness:
        return (
            SerialReadiness.of(12, serial)
            if strict
            else CellReadiness.of(12, serial, cells.__getitem__, ahead)
        )

    plan = attrs.evolve(Plan.of(jobs_of(12), serial_indices=serial), readiness=ready)
    toy = Toy(plan)
    run(toy, 12, sorted(kept), width=12)
    left = sorted(set(range(12)) - kept)
    assert sorted(index for index, _ in toy.started) == left
    assert [outcome.index for outcome in toy.outcomes] == left
    starts = dict(toy.started)
    for reader, writer in itertools.product(set(left) - serial, repeat=2):
        if writer < reader and (strict or cells[reader].reads & cells[writer].writes):
            assert toy.ended[writer] <= starts[reader]
    if not strict and ahead == 12 and not serial:
        depth: dict[int, int] = {}
        for reader in range(12):
            before = [
                depth[writer] + (writer not in kept)
                for writer in range(reader)
                if cells[reader].reads & cells[writer].writes
            ]
            depth[reader] = max(before, default=0)
        assert starts == {index: depth[index] for index in left}


@pytest.mark.slow
@settings(max_examples=60)
@given(st.frozensets(st.integers(0, 7)), ORDERS)
def test_groups_are_kept_completely_or_not_at_all(kept: frozenset[int], order: str) -> None:
    """This includes the job that compares them, which waits for its steps as usual."""
    steps = steps_of(8, compared=True, columns=2)
    layout = Layout.of(steps.spans)
    plan = Plan.of(jobs_of(len(layout)))
    plan = attrs.evolve(
        plan,
        readiness=lambda: GroupReadiness(
            layout, SerialReadiness.of(8, ()) if order == "one by one" else None
        ),
    )
    toy = Toy(plan)
    body = ResumedTask(toy, Kept(kept), steps, layout, Forgetful())
    whole = [start for start in (0, 2, 4, 6) if {start, start + 1} <= kept]
    assert list(body.kept_rows()) == [step for start in whole for step in (start, start + 1)]

    async def emit(outcome: Outcome[Any]) -> None:  # noqa: ASYNC124 - nothing to wait for
        body.rows(outcome)

    lanes = Lanes([LaneSpec("a", max_concurrency=12)])
    run_virtual(lambda: run_plan(body.plan(), body.perform, lanes=lanes, emit=emit))
    gone = {job for start in whole for job in range(start // 2 * 3, start // 2 * 3 + 3)}
    assert sorted(toy.ended) == sorted(set(range(12)) - gone)
    starts = dict(toy.started)
    for job in range(2, 12, 3):
        if job not in gone:
            assert starts[job] >= max(toy.ended[job - 1], toy.ended[job - 2])


@attrs.define(eq=False)
class Notes:
    """A journal of rows without replies."""

    rows: Kept
    resumed: bool = True

    def begin(self, suite: object) -> None:
        pass

    async def end(self, *, finished: bool, duration: float) -> None:
        pass

    def dataset_ended(self, result: object) -> None:
        pass

    def call(self, call: object) -> None:
        pass

    def recorded_reply(self, key: object) -> None:
        pass

    def job(self, key: object) -> NoReturn:
        raise AssertionError(key)

    def row(self, row: Row) -> None:
        pass

    def first_single_row(self, _task: str | None, rows: range) -> int:
        """Every row is returned alone."""
        return rows.start

    def rows_not_run(self, rows: RowsNotRun) -> None:
        raise AssertionError(rows)

    def superseding_record(self, row: Row) -> None:
        pass

    def reject(self, key: object) -> None:
        pass

    def needs_new_reply(self, task: str | None, index: int) -> bool:  # noqa: ARG002
        return False

    async def durable(self, row: Row | None = None, *, urgent: bool = True) -> None:
        pass

    def reused_rows(self, task: str | None) -> Kept:  # noqa: ARG002 - there is one
        return self.rows

    def dataset(self, task: str | None) -> None:
        pass

    def agents(self, task: str | None) -> None:
        pass


@pytest.mark.slow
def test_changes_of_kept_rows_by_extensions_are_visible_to_later_rows(tmp_path: Path) -> None:
    """A hook gave the row a register and a conversation, which its test does not name."""
    (tmp_path / "hook.py").write_text(
        "def beforeEach(context, info=None):\n"
        "    test = context['test']\n"
        "    if test['vars']['q'] == '1':\n"
        "        test.setdefault('options', {})['storeOutputAs'] = 'r'\n"
        "    test['metadata'] = {'conversationId': test['vars']['q'] > '1'}\n"
        "    return context\n",
        encoding="utf-8",
    )
    suite = parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["{{q}}{{r}}{% for turn in _conversation %}<{{turn.output}}>{% endfor %}"],
            "tests": [{"vars": {"q": q}} for q in "1234"],
            "extensions": ["file://hook.py:beforeEach"],
        },
        directory=tmp_path,
    )
    whole = trio.run(collect, suite)
    assert [row.output for row in whole] == ["1", "21", "31<21>", "41<21><31<21>>"]
    records = {row.index: json.loads(json.dumps(row_json(row, "eval-1"))) for row in whole}
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    async def main() -> None:
        kept = Kept(frozenset({0, 1, 2}), records)
        await run_with_options(suite, RunOptions(emit=keep, journal=Notes(kept)))

    trio.run(main)
    assert [row.output for row in rows] == ["41<21><31<21>>"]
