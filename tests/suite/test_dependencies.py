"""The dependency tracker, compared with a plain model on random graphs."""

import itertools
from collections.abc import Mapping, Sequence

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.errors import UsageError
from trioeval.suite.dependencies import (
    Dependent,
    FailedDependency,
    Tracker,
    Unsatisfied,
    WaitingFor,
    chain_text,
    cycle_in,
    parse_names,
)

POLICIES: tuple[FailedDependency, ...] = ("skip", "block", "fail", "run")
NAMES = "abcdefgh"


def needs(name: str, *others: str, policy: FailedDependency = "skip") -> Dependent:
    return Dependent(name=name, depends_on=others, when_failed=policy)


def test_ag_70_names_are_split_trimmed_and_deduplicated() -> None:
    """The first of equal names keeps its position; a text is the same as a list."""
    assert parse_names([" a ", "b, c", "a", "c", ""], "t") == ("a", "b", "c")
    assert parse_names(" b ,, a") == ("b", "a")
    assert parse_names(()) == ()


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("a, t", "'t' cannot depend on itself"),
        ("../a", "'../a' is not a valid name"),
        ("a/b", "'a/b' is not a valid name"),
        ("a\\b", r"is not a valid name: remove '/', '\' and '..'"),
        ("..", "'..' is not a valid name"),
    ],
)
def test_ag_70_the_test_itself_and_paths_are_refused(names: str, problem: str) -> None:
    """The message contains the invalid name."""
    with pytest.raises(UsageError) as caught:
        parse_names(names, "t")
    assert problem in str(caught.value)


def test_ag_71_a_cycle_is_reported_in_a_fixed_order() -> None:
    """The order of the names does not matter."""
    graph = {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}
    assert cycle_in(graph) == ("a", "b", "c", "a")
    assert cycle_in(dict(reversed(graph.items()))) == ("a", "b", "c", "a")
    with pytest.raises(UsageError, match="they wait for each other: a -> b -> c -> a"):
        Tracker.of([needs(name, *on) for name, on in graph.items()])


def test_names_of_a_graph_must_be_unique() -> None:
    """The duplicate name is reported."""
    with pytest.raises(UsageError, match="'a' occurs twice"):
        Tracker.of([needs("a"), needs("b"), needs("a")])


def test_a_cycle_at_any_depth_is_found() -> None:
    """Any depth of a graph is supported."""
    size = 5000
    graph = {f"{place:05}": [f"{place + 1:05}"] for place in range(size)}
    assert cycle_in(graph) is None
    assert cycle_in({**graph, f"{size:05}": ["00007"]}) == (
        *(f"{place:05}" for place in range(7, size + 1)),
        "00007",
    )


def test_a_long_chain_is_reported_completely() -> None:
    """Any depth of a graph is supported."""
    size = 1200
    waiting = [needs(str(place), str(place + 1), policy="block") for place in range(size)]
    tracker = Tracker.of([*waiting, needs(str(size))])
    tracker.over(str(size), done=False)
    assert tracker.stuck(())["0"] == tuple(map(str, range(size + 1)))


def test_ag_72_blockers_are_the_unfinished_dependencies_in_order() -> None:
    """They include failed and unknown names."""
    others = ("failed", "done", "running", "missing")
    tracker = Tracker.of(
        [needs("x", *others, policy="block"), *map(needs, ("done", "running", "failed"))]
    )
    assert tracker.over("done", done=True) == ["x"]
    tracker.over("failed", done=False)
    assert tracker.state("x") == WaitingFor(("failed", "running", "missing"))


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        ("skip", Unsatisfied("b", "skip")),
        ("fail", Unsatisfied("b", "fail")),
        ("block", WaitingFor(("a", "b"))),
        ("run", WaitingFor(("a",))),
    ],
)
def test_ag_73_the_policy_determines_the_effect_of_a_failure(
    policy: FailedDependency, state: WaitingFor | Unsatisfied
) -> None:
    """It applies at once, even while another name runs."""
    tracker = Tracker.of([needs("x", "a", "b", policy=policy), needs("a"), needs("b")])
    assert tracker.state("x") == WaitingFor(("a", "b"))
    tracker.over("b", done=False)
    assert tracker.state("x") == state
    assert tracker.lost("x") == ("b",)


def test_the_first_reported_end_counts() -> None:
    """A name that is not done never will be."""
    tracker = Tracker.of([needs("x", "a"), needs("a")])
    assert tracker.over("a", done=False) == ["x"]
    assert tracker.over("a", done=True) == ()
    assert tracker.state("x") == Unsatisfied("a", "skip")


def test_ag_74_blocked_names_are_reported_with_their_chain() -> None:
    """The chain includes skipped names; names with the policy `run`, and their dependents, are not stuck."""
    tracker = Tracker.of(
        [
            needs("a"),
            needs("b", "a"),
            needs("c", "b", policy="block"),
            needs("d", "c", policy="block"),
            needs("e", "unknown"),
            needs("f", "d", policy="run"),
            needs("g", "f", policy="block"),
        ]
    )
    tracker.over("a", done=False)
    tracker.over("b", done=False)
    stuck = tracker.stuck(())
    assert stuck == {"c": ("c", "b", "a"), "d": ("d", "c", "b", "a"), "e": ("e", "unknown")}
    assert [tracker.why(chain) for chain in stuck.values()] == [
        "c waits for b, b for a (failed)",
        "d waits for c, c for b, b for a (failed)",
        "e waits for unknown (not in this run)",
    ]
    assert set(tracker.stuck(["c"])) == {"e"}


def test_a_chain_of_two_is_a_sentence() -> None:
    """The end is the state of the last one."""
    assert chain_text(("a", "b")) == "a waits for b (failed)"


@attrs.frozen
class Drawn:
    """A graph, and the end of each name that starts."""

    dependents: Sequence[Dependent]
    done: Mapping[str, bool]


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    """Draw up to eight names, which may depend on earlier ones and on an unknown one."""
    size = draw(st.integers(1, len(NAMES)))
    found = []
    for place, name in enumerate(NAMES[:size]):
        known = st.lists(st.sampled_from(NAMES[:place] or "?"), max_size=3, unique=True)
        others = [one for one in draw(known) if one != "?"]
        if draw(st.integers(0, 9)) == 0:
            others.insert(draw(st.integers(0, len(others))), "?")
        found.append(needs(name, *others, policy=draw(st.sampled_from(POLICIES))))
    done = {one.name: draw(st.booleans()) for one in found}
    return Drawn(draw(st.permutations(found)), done)


@attrs.define
class Plain:
    """The same rules, implemented top-down and without memory."""

    by_name: Mapping[str, Dependent]
    over: dict[str, bool]
    active: set[str]

    def state(self, name: str) -> WaitingFor | Unsatisfied | None:
        one = self.by_name[name]
        lost = [other for other in one.depends_on if self.over.get(other) is False]
        if lost and one.when_failed in {"skip", "fail"}:
            return Unsatisfied(lost[0], "fail" if one.when_failed == "fail" else "skip")
        ended = {other for other, done in self.over.items() if done or one.when_failed == "run"}
        left = tuple(other for other in one.depends_on if other not in ended)
        return WaitingFor(left) if left else None

    def may_begin(self, name: str) -> bool:
        """Return whether a name can start in any way."""
        one = self.by_name.get(name)
        if one is None or name in self.over:
            return self.over.get(name, False)
        if name in self.active:
            return True
        if one.when_failed == "run":
            return all(other in self.by_name for other in one.depends_on)
        return all(map(self.may_begin, one.depends_on))

    def stuck(self) -> set[str]:
        return {
            name
            for name, one in self.by_name.items()
            if name not in self.over
            and not self.may_begin(name)
            and not isinstance(self.state(name), Unsatisfied)
            and (one.when_failed == "block" or "?" in one.depends_on)
        }


@given(drawn=graphs(), data=st.data())
def test_every_run_of_every_graph_equals_the_plain_model(drawn: Drawn, data: st.DataObject) -> None:
    """Every intermediate state equals the model's, stuck names can never change, and every run ends."""
    tracker = Tracker.of(drawn.dependents)
    plain = Plain({one.name: one for one in drawn.dependents}, {}, set())
    helped_at = data.draw(st.integers(0, 2 * len(NAMES)))
    for step in range(3 * len(NAMES)):
        left = [name for name in plain.by_name if name not in plain.over]
        states = {name: plain.state(name) for name in left}
        assert {name: tracker.state(name) for name in left} == states
        stuck = tracker.stuck(plain.active)
        assert set(stuck) == plain.stuck()
        for name, chain in stuck.items():
            check_chain(plain, name, chain)
        if not left:
            return
        waits = {name for name in left if isinstance(states[name], WaitingFor)}
        moving = [name for name in left if name not in waits or name in plain.active]
        if step == helped_at:
            plain.active |= waits  # users marked these as done: nothing blocks them any more
            continue
        # A stuck name is given up when nothing else runs, as by a gate.
        name = data.draw(st.sampled_from(moving or sorted(stuck)))
        if name in waits or name in plain.active or states[name] is not None:
            done = name in plain.active and drawn.done[name]
            before = {other: tracker.state(other) for other in left}
            plain.active.discard(name)
            plain.over[name] = done
            changed = tracker.over(name, done=done)
            for other in set(left) - {name}:
                assert tracker.state(other) == before[other] or other in changed
        else:
            plain.active.add(name)
    raise AssertionError("it never ends")


def check_chain(plain: Plain, name: str, chain: Sequence[str]) -> None:
    assert chain[0] == name
    assert len(chain) > 1
    for one, other in itertools.pairwise(chain):
        assert other in plain.by_name[one].depends_on
        assert not plain.over.get(other, False)
    assert chain[-1] == "?" or plain.over[chain[-1]] is False


@given(
    graph=st.dictionaries(
        st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3), max_size=len(NAMES)
    )
)
@settings(max_examples=settings().max_examples // 2)
def test_ag_71_a_cycle_is_found_if_one_exists(graph: Mapping[str, Sequence[str]]) -> None:
    """A cycle exists if names cannot be removed one by one, each without remaining dependencies."""
    left = dict(graph)
    while free := [name for name, on in left.items() if not set(on) & left.keys()]:
        for name in free:
            del left[name]
    circle = cycle_in(graph)
    assert (circle is not None) == bool(left)
    if circle is not None:
        assert circle[0] == circle[-1]
        assert all(other in graph[one] for one, other in itertools.pairwise(circle))
        assert len(set(circle)) == len(circle) - 1
