"""The order of tasks by the rules alone: every graph, every policy, every order of ends."""

from collections.abc import Mapping, Sequence

import attrs
from hypothesis import given
from hypothesis import strategies as st

from trioeval.evaluation.outcomes import TaskEnd
from trioeval.evaluation.prepared import PreparedTask
from trioeval.loading.load import parse_suite
from trioeval.run import prepare
from trioeval.run.task_graph import StartableTask, TaskOrder
from trioeval.suite.dependencies import FailedDependency, Unsatisfied

NAMES = "abcdefg"
POLICIES: tuple[FailedDependency, ...] = ("skip", "block", "fail", "run")
ENDS: tuple[TaskEnd, ...] = ("complete", "complete", "incomplete", "cut")
EMPTY = prepare(parse_suite({"providers": ["echo"]}))


def task(name: str, needs: Sequence[str] = (), policy: FailedDependency = "skip") -> PreparedTask:
    return PreparedTask(id=name, depends_on=tuple(needs), prepared=EMPTY, when_failed=policy)


@st.composite
def graphs(draw: st.DrawFn) -> Sequence[PreparedTask]:
    """Draw up to seven tasks; each depends on some before it."""
    policies: st.SearchStrategy[FailedDependency] = st.sampled_from(POLICIES)
    found = []
    for place, name in enumerate(NAMES[: draw(st.integers(1, len(NAMES)))]):
        needs = draw(st.sets(st.sampled_from(NAMES[:place]), max_size=3)) if place else set()
        found.append(task(name, sorted(needs), draw(policies)))
    return draw(st.permutations(found))


@attrs.define
class Going:
    """A run of tasks in progress."""

    tasks: Sequence[PreparedTask]
    started: dict[str, StartableTask] = attrs.field(factory=dict)
    ends: dict[str, TaskEnd] = attrs.field(factory=dict)
    """The ends of tasks that have ended."""

    def start(self, found: Sequence[StartableTask]) -> None:
        active = [name for name in self.started if name not in self.ends]
        for one in found:
            part = self.tasks[one.place]
            assert part.id is not None
            assert part.id not in self.started
            self.check(part, one, active)
        self.started |= {self.tasks[one.place].id or "": one for one in found}

    def check(self, part: PreparedTask, one: StartableTask, active: Sequence[str]) -> None:
        ends = {other: self.ends[other] for other in part.depends_on}  # all have ended
        lost = [other for other, end in ends.items() if end == "incomplete"]
        cut = [other for other, end in ends.items() if end == "cut"]
        if not lost or part.when_failed == "run":
            assert one.lacking == (Unsatisfied(cut[0], "cut") if cut else None)
        elif part.when_failed == "block":
            assert one.lacking == Unsatisfied(lost[0], "stuck")
            assert active == []
        else:
            assert one.lacking == Unsatisfied(lost[0], part.when_failed)
        assert (one.chain is not None) == (part.when_failed == "block" and bool(lost))
        assert one.chain is None or one.chain.startswith(f"{part.id} waits for {lost[0]}")


@given(tasks=graphs(), data=st.data())
def test_every_task_starts_once_and_according_to_its_policy(
    tasks: Sequence[PreparedTask], data: st.DataObject
) -> None:
    """It starts when all of its dependencies have ended; a held task only when no other task is running."""
    order, going = TaskOrder.of(tasks), Going(tasks)
    going.start(order.begin())
    while active := [name for name in going.started if name not in going.ends]:
        name = data.draw(st.sampled_from(active))
        one = going.started[name]
        going.ends[name] = data.draw(st.sampled_from(ENDS))
        if one.lacking is not None:
            going.ends[name] = "cut" if one.lacking.how == "cut" else "incomplete"
        going.start(order.over(one.place, going.ends[name]))
        waiting = [part for part in tasks if part.id not in going.started]
        for part in waiting:  # it could not start before now
            is_held = part.when_failed == "block" and any(
                going.ends.get(other) == "incomplete" for other in part.depends_on
            )
            assert is_held or any(other not in going.ends for other in part.depends_on)
    assert going.started.keys() == {part.id for part in tasks}


def test_chains_lead_to_a_task_that_ran_and_is_not_complete() -> None:
    """They pass through tasks that were not run, and not through tasks that ran anyway."""
    tasks = [
        task("a"),
        task("b", "a", "run"),
        task("c", "b"),
        task("d", "c", "block"),
    ]
    order = TaskOrder.of(tasks)
    assert order.begin() == [StartableTask(0)]
    assert order.over(0, "incomplete") == [StartableTask(1)]
    assert order.over(1, "incomplete") == [StartableTask(2, Unsatisfied("b", "skip"))]
    chain: Mapping[int, str | None] = {one.place: one.chain for one in order.over(2, "incomplete")}
    assert chain == {3: "d waits for c, c for b (not complete)"}
