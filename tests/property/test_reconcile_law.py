"""Rows of a stored run are matched with a changed suite like in a slow search."""

from collections import Counter
from collections.abc import Iterator, Sequence

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioeval import parse_suite
from trioeval.evaluation.identity import Identities, Identity
from trioeval.evaluation.reconcile import StoredIdentity, reconcile
from trioeval.grading import Assertion
from trioeval.suite.expand import Expansion, expand
from trioeval.suite.model import Test

pytestmark = pytest.mark.slow

SUITE = parse_suite({"providers": ["echo"], "prompts": ["{{x}}"], "tests": [{"vars": {}}]})

Written = list[tuple[str, str]]
"""A word for the id of a row, and one for its content."""

WRITTEN: st.SearchStrategy[Written] = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("12")), max_size=12
)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "edit", "rename", "move", "double"]),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    max_size=5,
)


def steps_of(rows: Written) -> Expansion:
    tests = tuple(
        Test(vars={"x": word}, assertions=(Assertion(type="contains", value=value),))
        for word, value in rows
    )
    return expand(attrs.evolve(SUITE, tests=tests))


def identities(steps: Expansion) -> Sequence[Identity]:
    known = Identities()
    return [known.of(step, steps.providers[0]) for step in steps]


def stored(steps: Expansion) -> Iterator[StoredIdentity]:
    for index, found in enumerate(identities(steps)):
        yield StoredIdentity(index, found.id, found.content)


def searched(before: Written, now: Written) -> dict[int, tuple[int, str]]:
    """Match by search: first the earliest of completely equal rows, then of those with equal ids."""
    free = dict(enumerate(before))
    found: dict[int, tuple[int, str]] = {}
    for state, parts in (("kept", 2), ("changed", 1)):
        for index, row in enumerate(now):
            fits = [place for place, other in sorted(free.items()) if other[:parts] == row[:parts]]
            if index not in found and fits:
                found[index] = fits[0], state
                del free[fits[0]]
    return found


@settings(max_examples=100)
@given(WRITTEN, WRITTEN)
@example([("a", "1"), ("a", "1")], [("a", "1")])
@example([("a", "1"), ("a", "2")], [("a", "2"), ("a", "3"), ("a", "1")])
def test_rows_are_matched_like_in_a_search(before: Written, now: Written) -> None:
    """Each stored row matches at most one row of the suite; unmatched rows are removed."""
    steps = steps_of(now)
    found = reconcile(stored(steps_of(before)), steps)
    right = searched(before, now)
    assert dict(found.moves) == {index: place for index, (place, _) in right.items()}
    assert [found.state(index) for index in range(len(now))] == [
        right[index][1] if index in right else "new" for index in range(len(now))
    ]
    taken = set(found.moves.values())
    assert len(taken) == len(found.moves)
    assert set(found.gone) == set(range(len(before))) - taken
    assert list(found.gone) == sorted(found.gone)


@settings(max_examples=100)
@given(WRITTEN, EDITS)
def test_unedited_rows_are_kept(before: Written, edits: list[tuple[str, int, int]]) -> None:
    """All unedited rows are kept, wherever they moved, and none matches another content."""
    now = list(before)
    for what, one, other in edits:
        place = one % (len(now) + 1)
        match what:
            case "insert":
                now.insert(place, ("new", str(other)))
            case "delete":
                del now[place : place + 1]
            case "edit":
                now[place : place + 1] = [(word, "3") for word, _ in now[place : place + 1]]
            case "rename":
                now[place : place + 1] = [("e", value) for _, value in now[place : place + 1]]
            case "move":
                now = now[place:] + now[:place]
            case _:
                now = now + now[place:]
    steps = steps_of(now)
    found = reconcile(stored(steps_of(before)), steps)
    same = Counter(before) & Counter(now)
    assert found.count("kept") == same.total()
    for index, place in found.moves.items():
        assert before[place][0] == now[index][0]
        assert (before[place] == now[index]) == (found.state(index) == "kept")
    new = Counter(word for word, _ in now) - Counter(word for word, _ in before)
    assert found.count("new") == new.total()


@settings(max_examples=100)
@given(WRITTEN)
def test_an_unchanged_suite_keeps_all_rows(rows: Written) -> None:
    """They keep their indices, even if some are equal."""
    steps = steps_of(rows)
    found = reconcile(stored(steps), steps)
    assert dict(found.moves) == {index: index for index in range(len(rows))}
    assert found.is_same
    assert not list(found.moved())


@settings(max_examples=100)
@given(WRITTEN, st.data())
def test_rows_missing_in_the_store_shift_no_others(rows: Written, data: st.DataObject) -> None:
    """After a killed run, each stored row is kept, and equal ones stay in order."""
    steps = steps_of(rows)
    there = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    left = [row for row, is_there in zip(stored(steps), there, strict=True) if is_there]
    found = reconcile(left, steps, expected=len(rows))
    assert found.count("kept") == len(left)
    assert found.is_same == (len(left) == len(rows))
    assert not found.gone
