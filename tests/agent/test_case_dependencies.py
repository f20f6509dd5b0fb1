"""Cases of a task that depend on each other, on the virtual clock."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.agent.case_order import DependencyGate, dependency_gates
from trioeval.agent.protocols import FileMarker
from trioeval.errors import AgentError, BlockedError, UsageError
from trioeval.evaluation.outcomes import StoppedError
from trioeval.kernel import StopReason
from trioeval.suite.dependencies import Dependent, FailedDependency
from trioeval.testing import run_virtual

POLICIES: tuple[FailedDependency, ...] = ("skip", "block", "fail", "run")
NAMES = "abcdef"


@attrs.define(eq=False)
class Flag(FileMarker):
    """A marker that the test sets, and that can be invalid."""

    path: Path = Path("DONE")
    event: trio.Event = attrs.field(factory=trio.Event)
    trouble: AgentError | None = None

    def is_set(self) -> bool:
        return self.event.is_set() and self.trouble is None

    async def wait(self) -> None:
        await self.event.wait()
        if self.trouble is not None:
            raise self.trouble


@attrs.frozen(kw_only=True)
class Case:
    """A case and its course."""

    name: str
    needs: str = ""
    """The names of its dependencies, one letter each."""
    policy: FailedDependency = "skip"
    takes: float = 1.0
    """The number of seconds from its start to its end."""
    done: bool = True
    cut: bool = False
    """True if it is interrupted at its end; the budget is used up."""
    limit: float | None = None
    marked_at: float | None = None
    """The time at which its marker is set from outside."""
    cancelled_at: float | None = None
    writes: float = 0.0
    """The number of seconds that its bus takes for a message."""

    @property
    def dependent(self) -> Dependent:
        return Dependent(name=self.name, depends_on=tuple(self.needs), when_failed=self.policy)


@attrs.define(eq=False)
class Ran:
    """The ends of the cases of a column."""

    began: dict[str, float] = attrs.field(factory=dict)
    over: dict[str, float] = attrs.field(factory=dict)
    ended: dict[str, str] = attrs.field(factory=dict)
    """`done`, `failed`, `cancelled`, `skipped: …` or `refused: …`."""
    posted: dict[str, list[str]] = attrs.field(factory=dict)
    waited: dict[str, list[tuple[float, str]]] = attrs.field(factory=dict)
    """The dependencies for which each case has waited, and since when."""
    warned: list[str] = attrs.field(factory=list)
    gave_up_at: list[float] = attrs.field(factory=list)

    def warn(self, line: str) -> None:
        self.warned.append(line)
        self.gave_up_at.append(trio.current_time())


async def perform(gate: DependencyGate, case: Case, ran: Ran) -> None:
    """Wait and work like the body of a job."""
    ending, flag = "cancelled", Flag()
    posted = ran.posted.setdefault(case.name, [])
    waited = ran.waited.setdefault(case.name, [])

    async def post(kind: str, body: str) -> None:
        await trio.sleep(case.writes)
        posted.append(f"{kind} {body}")

    def waiting(by: Sequence[str]) -> None:
        waited.append((trio.current_time(), "".join(by)))

    async def mark(at: float) -> None:
        await trio.sleep_until(at)
        flag.event.set()

    async with trio.open_nursery() as nursery:
        if case.marked_at is not None:
            nursery.start_soon(mark, case.marked_at)
        scope = trio.CancelScope(
            deadline=math.inf if case.cancelled_at is None else case.cancelled_at
        )
        try:
            with scope:
                await gate.wait(
                    case.name,
                    done=flag,
                    post=post,
                    timeout=case.limit,
                    waiting=waiting,
                )
                ran.began[case.name] = trio.current_time()
                if not flag.event.is_set():
                    await trio.sleep(case.takes)
                ending = "done" if case.done or flag.event.is_set() else "failed"
                ending = "cut" if case.cut else ending
        except BlockedError as error:
            ending = f"skipped: {error.by}: {error}"
        except AgentError as error:
            ending = f"refused: {error}"
        except StoppedError as error:
            ending = "stopped" if error.cut is StopReason.STOP else f"left: {error.cut.name}"
        ran.ended[case.name] = ending
        ran.over[case.name] = trio.current_time()
        cut = StopReason.BUDGET if case.cut and case.name in ran.began else None
        gate.over(case.name, done=ending == "done", cut=cut)
        nursery.cancel_scope.cancel()


async def silence(kind: str, body: str) -> None:
    await trio.lowlevel.checkpoint()


def gate_of(*cases: Case) -> DependencyGate:
    return dependency_gates({"": [case.dependent for case in cases]}, warn=print)[""]


def ran(*cases: Case, stop_at: float = math.inf) -> Ran:
    """Start all cases at once in one column."""
    found = Ran()
    return run_virtual(_run_all, {"": cases}, {"": found}, stop_at, found.warn)[""]


async def _run_all(
    columns: Mapping[str, Sequence[Case]],
    found: Mapping[str, Ran],
    stop_at: float,
    warn: Callable[[str], None],
) -> Mapping[str, Ran]:
    gates = dependency_gates(
        {column: [case.dependent for case in cases] for column, cases in columns.items()},
        warn=warn,
    )
    with trio.move_on_after(stop_at):
        async with trio.open_nursery() as nursery:
            for column, cases in columns.items():
                for case in cases:
                    nursery.start_soon(perform, gates[column], case, found[column])
    return found


def test_a_case_starts_when_its_last_dependency_is_done() -> None:
    """It starts at that instant; a case without dependencies starts at once and posts no message."""
    found = ran(
        Case(name="c", needs="ab"), Case(name="a", takes=2), Case(name="b", takes=5), Case(name="d")
    )
    assert found.began == {"a": 0, "b": 0, "d": 0, "c": 5}
    assert found.posted["a"] == found.posted["d"] == []
    assert found.waited["d"] == []
    assert found.waited["c"] == [(0, "ab"), (2, "b"), (5, "")]


def test_ag_73_a_failed_dependency_is_handled_by_policy() -> None:
    """The case is skipped or fails at once, is given up when nothing else runs, or starts after all."""
    found = ran(
        Case(name="a", done=False),
        Case(name="b", takes=9),
        Case(name="s", needs="ab", policy="skip"),
        Case(name="f", needs="ab", policy="fail"),
        Case(name="w", needs="ab", policy="block"),
        Case(name="r", needs="ab", policy="run"),
    )
    assert found.ended == {
        "a": "failed",
        "b": "done",
        "s": "skipped: a: blocked by case a, which is not done",
        "f": "refused: case a, which it depends on, is not done",
        "w": "skipped: a: blocked forever: w waits for a (failed)",
        "r": "done",
    }
    assert found.over == {"a": 1, "s": 1, "f": 1, "b": 9, "w": 10, "r": 10}
    assert found.began["r"] == 9
    assert found.posted["r"] == [
        "PROGRESS blocked by a, b",
        "PROGRESS blocked by b",
        "WARNING starts although these are not done: a",
    ]


def test_ag_73_a_case_fails_when_it_has_waited_too_long() -> None:
    """It names the dependencies; a case that starts before is not affected by the limit."""
    found = ran(
        Case(name="a", takes=7),
        Case(name="b", takes=2),
        Case(name="c", needs="ab", policy="block", limit=5),
        Case(name="d", needs="b", limit=5, takes=30),
        Case(name="e", needs="c"),
    )
    assert found.ended["c"] == "refused: it has waited 5 s for a (dependencyTimeout)"
    assert found.over["c"] == found.over["e"] == 5
    assert found.ended["d"] == "done"
    assert found.ended["e"].startswith("skipped: c")


def test_a_skipped_case_is_never_done() -> None:
    """All of its dependents are skipped as well, at the same instant."""
    found = ran(
        Case(name="a", done=False),
        Case(name="b", needs="a"),
        Case(name="c", needs="b"),
        Case(name="d", needs="c", policy="run"),
    )
    assert {name: found.over[name] for name in "abc"} == {"a": 1, "b": 1, "c": 1}
    assert found.ended["c"] == "skipped: b: blocked by case b, which is not done"
    assert found.ended["d"] == "done"


def test_ag_74_cases_blocked_by_a_failed_case_end_when_nothing_else_runs() -> None:
    """Each ends with its chain and a readable message; the run ends.

    Their own dependents follow their policies.
    """
    found = ran(
        Case(name="a", done=False),
        Case(name="b", needs="a", policy="block"),
        Case(name="c", needs="b", policy="block"),
        Case(name="d", needs="c", policy="run", takes=3),
        Case(name="e", needs="c"),
        Case(name="f", needs="d", policy="block"),
        Case(name="g", takes=20),
    )
    assert found.ended == {
        "a": "failed",
        "g": "done",
        "b": "skipped: a: blocked forever: b waits for a (failed)",
        "c": "skipped: b: blocked forever: c waits for b, b for a (failed)",
        "d": "done",
        "e": "skipped: c: blocked by case c, which is not done",
        "f": "done",
    }
    assert found.warned == [
        "case b is blocked forever: b waits for a (failed)",
        "case c is blocked forever: c waits for b, b for a (failed)",
    ]
    assert found.over["b"] == found.over["c"] == 20
    assert found.began["d"] == 20


def test_dependents_of_an_interrupted_case_are_interrupted_for_every_policy() -> None:
    """They end at once, also later ones: a resume continues all of them. Failed cases remain failed."""
    found = ran(
        Case(name="a", done=False, cut=True),
        Case(name="e", done=False),
        Case(name="g", takes=9),
        *(Case(name=policy[0], needs="ga", policy=policy) for policy in POLICIES),
        Case(name="x", needs="r", policy="fail"),
        Case(name="y", needs="ae", policy="fail"),
        Case(name="z", needs="ga", policy="block", marked_at=0.5),
    )
    assert {found.ended[name] for name in "sbfrx"} == {"left: BUDGET"}
    assert found.ended["y"] == "refused: case e, which it depends on, is not done"
    assert (found.ended["z"], found.ended["g"]) == ("done", "done")
    assert {found.over[name] for name in "sbfrxy"} == {1}
    assert found.warned == []

    async def late() -> None:
        gate = gate_of(*(Case(name="a"), Case(name="b", needs="a", policy="run")))
        gate.over("a", done=False, cut=StopReason.BUDGET)
        gate.over("a", done=True)  # reported before
        with pytest.raises(StoppedError):
            await gate.wait("b", done=Flag(), post=silence)

    run_virtual(late)


def test_a_missing_dependency_is_never_done() -> None:
    """This holds for every policy: its end cannot be known."""
    found = ran(*(Case(name=policy[0], needs="?", policy=policy) for policy in POLICIES))
    assert set(found.over.values()) == {0}
    assert found.ended["r"] == "skipped: ?: blocked forever: r waits for ? (not in this run)"


def test_ag_75_blockers_are_posted_on_change_and_their_end_once() -> None:
    """Three changes lead to three messages and one fact."""
    found = ran(
        Case(name="x", needs="abc"),
        Case(name="a", takes=1),
        Case(name="b", takes=2),
        Case(name="c", takes=3),
    )
    assert found.posted["x"] == [
        "PROGRESS blocked by a, b, c",
        "PROGRESS blocked by b, c",
        "PROGRESS blocked by c",
        "FACT dependencies satisfied",
    ]


def test_ag_75_changes_during_a_slow_post_are_posted_once() -> None:
    """A slow bus gets the current state, and never an outdated one."""
    found = ran(
        Case(name="x", needs="abc", writes=2.5),
        Case(name="a", takes=1),
        Case(name="b", takes=2),
        Case(name="c", takes=3),
    )
    assert found.posted["x"] == [
        "PROGRESS blocked by a, b, c",
        "PROGRESS blocked by c",
        "FACT dependencies satisfied",
    ]
    assert found.began["x"] == 7.5


@pytest.mark.parametrize("policy", POLICIES)
def test_ag_76_the_own_marker_of_a_case_ends_its_wait_without_a_fact(
    policy: FailedDependency,
) -> None:
    """It ends the wait even if a dependency failed; the dependents of the case start."""
    found = ran(
        Case(name="a", takes=9),
        Case(name="x", needs="a", policy=policy, marked_at=4),
        Case(name="y", needs="x"),
    )
    assert found.ended["x"] == "done"
    assert found.began == {"a": 0, "x": 4, "y": 4}
    assert found.posted["x"] == ["PROGRESS blocked by a"]


def test_ag_76_a_case_with_an_existing_marker_does_not_wait() -> None:
    """Nothing is posted at all, although its dependency has failed."""

    async def main() -> list[str]:
        posted: list[str] = []

        async def post(kind: str, body: str) -> None:
            await trio.lowlevel.checkpoint()
            posted.append(kind)

        cases = [Dependent(name="a"), Dependent(name="b", depends_on=("a",))]
        gate = dependency_gates({"": cases}, warn=posted.append)[""]
        gate.over("a", done=False)
        flag = Flag()
        flag.event.set()
        await gate.wait("b", done=flag, post=post)
        return posted

    assert run_virtual(main) == []


def test_a_marker_error_is_raised_unchanged() -> None:
    """It is raised without a group; the case has ended, and its dependents are notified."""
    cases = (Case(name="a"), Case(name="b", needs="a"), Case(name="c", needs="b"))
    gate = dependency_gates({"": [case.dependent for case in cases]}, warn=print)[""]

    async def main() -> None:
        flag = Flag(trouble=AgentError("DONE is a folder"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: fails(flag, "b", AgentError, "DONE is a folder"))
            nursery.start_soon(lambda: fails(Flag(), "c", BlockedError, "blocked by case b"))
            await trio.sleep(1)
            flag.event.set()

    async def fails(flag: Flag, name: str, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            await gate.wait(name, done=flag, post=silence)

    run_virtual(main)


def test_ag_08_a_dependency_wait_can_be_cancelled() -> None:
    """Regression: a dependency wait ends at once when it is cancelled, and leaves the others in order."""
    found = ran(
        Case(name="a", takes=50),
        Case(name="b", needs="a", cancelled_at=3, policy="block"),
        Case(name="c", needs="b"),
        Case(name="d", needs="a"),
        Case(name="e", needs="b", policy="run"),
    )
    assert found.ended["b"] == "cancelled"
    assert found.over["b"] == found.over["c"] == 3
    assert found.began == {"a": 0, "e": 3, "d": 50}


def test_ag_08_a_cancelled_run_ends_all_waits_at_once() -> None:
    """No case starts because another one was interrupted."""
    found = ran(
        Case(name="a", takes=math.inf),
        Case(name="b", needs="a", policy="run"),
        Case(name="c", needs="b", policy="run"),
        stop_at=5,
    )
    assert found.began == {"a": 0}
    assert found.warned == []


def test_ag_08_a_stopped_run_ends_all_waits_at_once() -> None:
    """No dependent is blocked, fails or starts, in any order of ends; done cases are kept."""

    async def main() -> Mapping[str, str]:
        stop, found, warned = trio.Event(), Ran(), Ran()
        cases = [
            Case(name="a", takes=5, done=False),
            *(Case(name=policy[0], needs="a", policy=policy) for policy in POLICIES),
            Case(name="m", needs="a", marked_at=2),
            Case(name="n", needs="sbfr"),
        ]
        columns = {"": [case.dependent for case in cases]}
        gate = dependency_gates(columns, warn=warned.warn, stop=stop)[""]
        async with trio.open_nursery() as nursery:
            for case in cases:
                nursery.start_soon(perform, gate, case, found)
            await trio.sleep(5)
            stop.set()
            assert trio.current_time() == 5
        assert found.began == {"a": 0, "m": 2}
        assert set(found.over.values()) == {2, 5}
        assert warned.warned == []
        with pytest.raises(StoppedError):
            await gate.wait("n", done=Flag(), post=silence)
        return found.ended

    ended = run_virtual(main)
    assert ended == {**dict.fromkeys("sbfrn", "stopped"), "a": "failed", "m": "done"}


def test_columns_are_independent() -> None:
    """A failed case of one column delays none of another; messages name the column."""
    found = {name: Ran() for name in ("one", "two")}
    warned: list[str] = []
    columns = {
        "one": [Case(name="a", done=False), Case(name="b", needs="a", policy="block")],
        "two": [Case(name="a", takes=4), Case(name="b", needs="a", policy="block")],
    }
    run_virtual(_run_all, columns, found, math.inf, warned.append)
    assert found["one"].over == {"a": 1, "b": 1}
    assert found["two"].began == {"a": 0, "b": 4}
    assert warned == ["case b of one is blocked forever: b waits for a (failed)"]


def test_a_dependency_unfinished_in_an_earlier_execution_is_reported_first() -> None:
    """It never ends, and is not waited for."""
    cases = [Case(name="a"), Case(name="b"), Case(name="c", needs="ab")]
    found = Ran()

    async def main() -> None:
        gate = gate_of(*cases)
        gate.over("a", done=True)
        gate.over("b", done=True)
        await perform(gate, cases[-1], found)

    run_virtual(main)
    assert found.began == {"c": 0}
    assert found.posted["c"] == []


def test_cyclic_dependencies_are_rejected() -> None:
    """The message contains the cycle."""
    with pytest.raises(UsageError, match="a -> b -> a"):
        dependency_gates(
            {"": [Case(name="a", needs="b").dependent, Case(name="b", needs="a").dependent]},
            warn=print,
        )


@st.composite
def plans(draw: st.DrawFn) -> Sequence[Case]:
    """Draw up to six cases; some fail, are cancelled, are marked, or have a limited wait."""
    instants = st.none() | st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5])
    found: list[Case] = []
    for place, name in enumerate(NAMES[: draw(st.integers(1, len(NAMES)))]):
        needed = draw(st.sets(st.sampled_from(NAMES[:place]), max_size=3)) if place else set()
        rare = draw(st.integers(0, 7))
        found.append(
            Case(
                name=name,
                needs="".join(draw(st.permutations(sorted(needed)))),
                policy=draw(st.sampled_from(POLICIES)),
                takes=draw(st.sampled_from([0.0, 1.0, 2.0])),
                done=draw(st.booleans()),
                limit=draw(instants) if rare == 1 else None,
                marked_at=draw(instants) if rare == 2 else None,
                cancelled_at=draw(instants) if rare == 3 else None,
                cut=rare == 4,
                writes=draw(st.sampled_from([0.0, 0.0, 0.25])),
            )
        )
    return draw(st.permutations(found))


@pytest.mark.slow
@given(plan=plans())
@example(  # given up and marked at one instant
    plan=(
        Case(name="a", takes=0, done=False),
        Case(name="b", needs="a", policy="block", marked_at=2.0),
        Case(name="c", takes=2.0),
    )
)
@example(  # given up and cancelled at one instant
    plan=(
        Case(name="a", done=False),
        Case(name="b", takes=1.0, done=False),
        Case(name="c", needs="ab", policy="block", cancelled_at=1.0),
    )
)
@example(  # blocked, but interrupted before
    plan=(
        Case(name="a", takes=1.0, done=False),
        Case(name="b", needs="a", policy="block"),
        Case(name="c", takes=0.0, cut=True),
        Case(name="d", needs="abc", policy="block"),
    )
)
def test_every_case_ends_and_starts_only_when_allowed(plan: Sequence[Case]) -> None:
    """For any failure, cancellation or marker, no case waits for ever, and messages are true."""
    found = ran(*plan)
    assert found.ended.keys() == {case.name for case in plan}
    for case in plan:
        check_case(case, found)
    names = [warning.split()[1] for warning in found.warned]
    assert len(names) == len(set(names))
    given_up = {name for name, ending in found.ended.items() if "forever" in ending}
    # A case that is cancelled at the instant at which it was given up ends as cancelled.
    assert given_up <= set(names) <= given_up | {one.name for one in plan if one.cancelled_at}
    for name, at in found.began.items():  # nothing is given up while anything else runs
        assert not any(at < given_up_at < found.over[name] for given_up_at in found.gave_up_at)


def check_case(case: Case, found: Ran) -> None:
    name, ending = case.name, found.ended[case.name]
    done = {other for other in case.needs if found.ended[other] == "done"}
    left = {other for other in case.needs if found.ended[other] in {"cut", "left: BUDGET"}}
    assert bool(left) or not ending.startswith("left")
    posted, progress = found.posted[name], [one for one in found.posted[name] if "PROGRESS" in one]
    assert all(one != other for one, other in itertools.pairwise(progress))
    facts = [one for one in posted if not one.startswith("PROGRESS")]
    assert facts == posted[len(progress) :]
    assert len(facts) <= 1
    if name in found.began:
        at = found.began[name]
        marked = case.marked_at is not None and case.marked_at <= at
        before = {other for other in case.needs if found.over[other] <= at}
        assert marked or before == set(case.needs)
        assert marked or not left
        assert marked or case.policy == "run" or done == set(case.needs)
        if not marked and case.policy == "run" and done != set(case.needs):
            assert facts[0].startswith("WARNING")
        elif not marked and facts:
            assert facts == ["FACT dependencies satisfied"]
        if not marked and found.waited[name] and done == set(case.needs):
            assert facts
    if ending.startswith("skipped"):
        lost = ending.split(":")[1].strip()
        assert lost in case.needs
        assert found.ended[lost] != "done"
        assert case.policy == ("block" if "forever" in ending else "skip")
    if found.waited[name]:
        assert all(by for _, by in found.waited[name][:-1])
        if name in found.began:  # a case that ended without starting still lacks a dependency
            assert found.waited[name][-1][1] == ""
        elif case.cancelled_at is None:
            assert found.waited[name][-1][1] != ""
