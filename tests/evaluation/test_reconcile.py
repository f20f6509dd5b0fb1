"""Matching of a stored run with a changed suite, and its summary."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from trioeval import load_suite, parse_suite
from trioeval.errors import UsageError
from trioeval.evaluation.identity import Identities
from trioeval.evaluation.reconcile import (
    Reconciled,
    Retry,
    StoredIdentity,
    needs_new_replies,
    parse_retry,
    reconcile,
    runs_again,
    summarize,
)
from trioeval.suite.expand import Expansion, expand


def steps_of(*tests: Any, **more: Any) -> Expansion:
    """A suite of tests, each a word or an object."""
    listed = [{"vars": {"x": test}} if isinstance(test, str) else test for test in tests]
    document = {"providers": ["echo"], "prompts": ["say {{x}}"], "tests": listed, **more}
    return expand(parse_suite(document))


def stored(steps: Expansion) -> Iterator[StoredIdentity]:
    """Return the records of a run of them."""
    identities = Identities()
    for step in steps:
        found = identities.of(step, steps.providers[step.column.provider_index])
        yield StoredIdentity(step.index, found.id, found.content)


def asserting(word: str, value: str) -> Mapping[str, Any]:
    return {"vars": {"x": word}, "assert": [{"type": "contains", "value": value}]}


def states(found: Reconciled) -> str:
    """One letter per row."""
    return "".join(found.state(index)[0] for index in range(len(found.steps)))


def test_the_same_suite_keeps_every_row() -> None:
    """Every row stays at its position."""
    steps = steps_of("a", "b", "c")
    found = reconcile(stored(steps), steps_of("a", "b", "c"))
    assert dict(found.moves) == {0: 0, 1: 1, 2: 2}
    assert found.is_same
    assert list(found.moved()) == []
    assert summarize(found) == "of 3 rows: 3 kept"


def test_inserting_a_test_moves_all_others_and_changes_none() -> None:
    """They are kept at their new positions."""
    found = reconcile(stored(steps_of("a", "b")), steps_of("new", "a", "b"))
    assert states(found) == "nkk"
    assert dict(found.moves) == {1: 0, 2: 1}
    assert list(found.moved()) == [(0, 1), (1, 2)]
    assert 0 not in found.moves
    assert -1 not in found.moves
    assert 3 not in found.moves
    assert not found.is_same
    assert summarize(found).splitlines() == [
        "of 3 rows: 2 kept (2 of them at other positions), 1 new",
        "  new: 0 (x=new)",
    ]


def test_a_changed_assertion_changes_only_its_row() -> None:
    """This also applies if the row has moved."""
    before = steps_of("a", asserting("b", "1"), "c")
    found = reconcile(stored(before), steps_of("z", "a", asserting("b", "2"), "c"))
    assert states(found) == "nkck"
    assert dict(found.moves) == {1: 0, 2: 1, 3: 2}


def test_rows_that_the_suite_no_longer_has_are_removed() -> None:
    """The summary names them if a name is known."""
    found = reconcile(stored(steps_of("a", "b", "c", "d")), steps_of("d", "b"))
    assert found.gone == [0, 2]
    assert summarize(found, "the old {}".format).splitlines() == [
        "of 2 rows: 2 kept (1 of them at other positions); 2 are gone",
        "  gone: 0 (the old 0), 2 (the old 2)",
    ]
    assert summarize(found).endswith("  gone: 0, 2")


def test_repeats_are_distinguished_by_their_order() -> None:
    """Additional ones are new at the end, missing ones are removed from there."""
    three, two = (steps_of("a", "b", evaluateOptions={"repeat": repeat}) for repeat in (3, 2))
    found = reconcile(stored(two), three)
    assert dict(found.moves) == {0: 0, 1: 1, 3: 2, 4: 3}
    assert states(found) == "kknkkn"
    back = reconcile(stored(three), two)
    assert dict(back.moves) == {0: 0, 1: 1, 2: 3, 3: 4}
    assert back.gone == [2, 5]


def test_rows_with_equal_ids_are_matched_by_content() -> None:
    """A test that is inserted before another one with the same variables does not take its row."""
    before = steps_of(asserting("a", "1"), asserting("a", "2"))
    now = steps_of(asserting("a", "0"), asserting("a", "1"), asserting("a", "2"))
    assert states(reconcile(stored(before), now)) == "nkk"
    turned = reconcile(stored(before), steps_of(asserting("a", "2"), asserting("a", "1")))
    assert dict(turned.moves) == {0: 1, 1: 0}
    assert states(turned) == "kk"
    edited = reconcile(stored(before), steps_of(asserting("a", "2"), asserting("a", "3")))
    assert states(edited) == "kc"
    assert dict(edited.moves) == {0: 1, 1: 0}


def test_other_settings_of_the_suite_change_every_row() -> None:
    """New rows stay new."""
    found = reconcile(stored(steps_of("a")), steps_of("b", "a"), same_settings=False)
    assert states(found) == "nc"


def test_changes_of_rows_that_were_never_recorded_are_unknown() -> None:
    """A killed run has fewer rows than its suite; the summary reports this."""
    steps = steps_of("a", "b", "c")
    killed = list(stored(steps))[1:2]
    found = reconcile(killed, steps, expected=3)
    assert not found.is_same
    assert found.unrecorded == 2
    assert summarize(found).splitlines()[:2] == [
        "of 3 rows: 1 kept, 2 new, or not run before",
        "  2 unrecorded rows run as the suite says now",
    ]
    assert not reconcile(killed, steps).is_same
    assert not reconcile(killed, steps_of("b"), expected=3).is_same


def test_calls_of_unrecorded_rows_move_with_their_rows() -> None:
    """They are matched by the row's id, equal ones in their order, after recorded ones."""
    before = steps_of("a", "b", "a", "gone", "c")
    ids = [one.id for one in stored(before)]
    written = [one for one in stored(before) if one.index == 2]
    begun = [(index, ids[index]) for index in (0, 1, 3, 4)]
    found = reconcile(written, steps_of("c", "new", "a", "a", "b"), started_rows=begun, expected=5)
    assert dict(found.moves) == {2: 2}
    assert dict(found.begun) == {0: 4, 3: 0, 4: 1}
    assert sorted(found.moved_calls()) == [(0, 3), (1, 4), (4, 0)]
    assert found.dropped == [3]
    assert states(found) == "nnknn"


def test_at_most_ten_rows_of_a_kind_are_named() -> None:
    """The other rows are counted."""
    now = steps_of(*(f"word {i}" for i in range(13)))
    lines = summarize(reconcile([], now)).splitlines()
    assert lines[0] == "of 13 rows: 13 new"
    assert lines[1].startswith("  new: 0 (x=word 0), 1 (x=word 1), ")
    assert lines[1].endswith(", 9 (x=word 9), and 3 more")
    gone = summarize(reconcile(stored(now), steps_of("other")))
    assert gone.splitlines()[-1].endswith(", 9, and 3 more")


def test_a_suite_without_rows_has_nothing_to_keep() -> None:
    """A run without rows has nothing to keep either."""
    none = expand(attrs.evolve(steps_of("a").suite, tests=()))
    found = reconcile(stored(steps_of("a")), none)
    assert found.gone == [0]
    assert len(found.moves) == 0
    assert summarize(found) == "of 0 rows: none; 1 is gone\n  gone: 0"
    assert summarize(reconcile([], none)) == "of 0 rows: none"


def test_all_columns_of_a_test_move_with_it() -> None:
    """A new column adds its rows and moves the others."""
    before = steps_of("a", "b")
    now = steps_of("a", "b", providers=["echo", {"id": "echo", "label": "two"}])
    found = reconcile(stored(before), now)
    assert states(found) == "knkn"
    assert dict(found.moves) == {0: 0, 2: 1}


def test_a_large_file_is_read_once_and_not_held_in_memory(tmp_path: Path) -> None:
    """Both sides are read in parallel: the buffer is as large as the distance by which rows have moved."""
    file = tmp_path / "tests.jsonl"
    lines = [json.dumps({"vars": {"x": f"word {i}"}}) for i in range(3000)]
    file.write_text("\n".join(lines), encoding="utf-8")
    suite = tmp_path / "suite.json"
    suite.write_text(
        json.dumps({"providers": ["echo"], "prompts": ["say {{x}}"], "tests": "tests.jsonl"}),
        encoding="utf-8",
    )
    before = list(stored(expand(load_suite(suite))))
    file.write_text("\n".join(['{"vars": {"x": "new"}}', *lines]), encoding="utf-8")
    steps = expand(load_suite(suite))
    looked: list[int] = []

    class Watched(Iterator[StoredIdentity]):
        """Records how far it was read."""

        def __init__(self) -> None:
            self.rest = iter(before)

        def __next__(self) -> StoredIdentity:
            found = next(self.rest)
            looked.append(found.index)
            return found

    found = reconcile(Watched(), steps)
    assert found.count("kept") == 3000
    assert looked == list(range(3000))
    assert list(found.indices("new")) == [0]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("failed", "failed"),
        (" Errors ", "errors"),
        ("timeouts", "timeouts"),
        ("3", "3"),
        ("17, 3", "3,17"),
        ("20-25,3,4,5,21-30", "3-5,20-30"),
        ("7-7", "7"),
    ],
)
def test_rows_to_run_again_are_given_in_words_or_numbers(text: str, right: str) -> None:
    """Rows may be in any order, and each counts once."""
    assert str(parse_retry(text)) == right
    assert parse_retry(right) == parse_retry(text)


@pytest.mark.parametrize(
    "text", ["", "all", "3,", "-1", "5-3", "1.5", "3;4", "failed,errors", "²", "9" * 30]
)
def test_an_invalid_selection_of_rows_is_refused(text: str) -> None:
    """The message has the valid forms."""
    with pytest.raises(UsageError) as caught:
        parse_retry(text)
    assert str(caught.value) == (
        f"invalid rows to run again: {text!r}; use failed, errors, timeouts, none, or rows such as 3,17,20-25"
    )


def test_a_row_number_beyond_the_run_is_refused_before_it_starts() -> None:
    """The message names the largest one."""
    assert parse_retry("3,17").beyond(18) is None
    assert parse_retry("3,17").beyond(17) == 17
    assert parse_retry("errors").beyond(0) is None


ENDINGS: Mapping[str, tuple[str, bool | None]] = {
    "passed": ("done", True),
    "failed": ("done", False),
    "error": ("failed", None),
    "timed out": ("timed_out", None),
    "interrupted": ("interrupted", None),
    "not run": ("not_run", None),
    "blocked": ("blocked", None),
}
UNENDED = {"interrupted", "not run", "blocked"}


@pytest.mark.parametrize(
    ("retry", "again", "anew"),
    [
        (Retry(), set(), set()),
        (Retry("errors"), {"error", "timed out"}, set()),
        (Retry("timeouts"), {"timed out"}, set()),
        (Retry("failed"), {"failed"}, {"failed"}),
        (
            parse_retry("0-9"),
            {"passed", "failed", "error", "timed out"},
            {"passed", "failed", "error", "timed out"},
        ),
        (parse_retry("4,6"), set(), set()),
    ],
)
def test_retries_select_rows_and_those_that_need_new_replies(
    retry: Retry, again: set[str], anew: set[str]
) -> None:
    """An unfinished row always runs again, and never repeats calls that have replies."""
    found = {
        name
        for name, (outcome, passed) in ENDINGS.items()
        if runs_again(retry, outcome, passed=passed, index=5)
    }
    assert found == UNENDED | again
    assert anew == {
        name
        for name, (outcome, passed) in ENDINGS.items()
        if needs_new_replies(retry, outcome, passed=passed, index=5)
    }
