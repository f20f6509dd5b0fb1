"""Two runs row by row: matching rows, and their changes."""

import copy
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from finished import SUITE, records_of, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from trioeval.report.compare import (
    Comparison,
    RowChange,
    changes_table,
    compared_line,
    comparison_json,
    first_of,
    left_out_lines,
)
from trioeval.report.compare_runs import KINDS, findings_of
from trioeval.report.formats.json import json_chunks
from trioeval.report.records import RowRecord

Record = dict[str, Any]


def made(word: str, status: int = 0, output: str = "out", **more: Any) -> Record:
    """Return a row as far as a comparison reads it."""
    return {
        "testIdx": 0,
        "promptIdx": 0,
        "provider": {"id": "p", "label": ""},
        "prompt": {"label": "q"},
        "vars": {"word": word},
        "testCase": {"description": None, "assert": [{"type": "equals", "value": "out"}]},
        "response": {"output": output},
        "score": [1.0, 0.0, 0.0][status],
        "failureReason": status,
        **more,
    }


def compared(
    old: Sequence[Record], new: Sequence[Record], **how: Any
) -> tuple[Comparison, list[RowChange]]:
    comparison = Comparison(lambda: map(RowRecord.of, old), **how)
    return comparison, [*comparison.changes(map(RowRecord.of, new))]


def kinds_of(old: Sequence[Record], new: Sequence[Record], **how: Any) -> list[str]:
    return [change.kind for change in compared(old, new, **how)[1]]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (made("a"), made("a"), []),
        (made("a", 1), made("a", 0), ["better"]),
        (made("a", 0), made("a", 1), ["worse"]),
        (made("a", 1), made("a", 2), ["worse"]),
        (made("a", 2), made("a", 1), ["better"]),
        (made("a"), made("a", output="other"), ["changed"]),
        (made("a"), made("a", score=0.5), ["changed"]),
        (made("a"), made("a", score=1 + 1e-15), []),
        (made("a"), made("a", response=None), ["changed"]),
        (made("a", testCase={}), made("a", testCase={}), []),
        (made("a", testCase={}), made("a", testCase={}, output="other"), ["changed"]),
        (made("a", testCase={}), made("a", 1), ["changed"]),
        (made("a"), made("a", testCase={}), ["changed"]),
        (made("a", testCase={}), made("a", 2), ["worse"]),
        (made("a", 2), made("a", testCase={}), ["better"]),
        (made("a"), made("a", testIdx=7, promptIdx=3), []),
        (made("a"), made("b"), ["new", "gone"]),
        (made("a"), made("a", provider={"id": "p", "label": "other"}), ["new", "gone"]),
        (made("a"), made("a", task="t"), ["new", "gone"]),
    ],
)
def test_each_row_has_one_kind_of_change(old: Record, new: Record, kind: list[str]) -> None:
    """The verdict decides first, then the score and the output; the position does not matter."""
    assert kinds_of([old], [new]) == kind


def test_rows_of_different_models_match_by_test() -> None:
    """On request rows of different providers match if they are in the same column."""
    other = made("a", 1, provider={"id": "x", "label": ""}, prompt={"label": "z"})
    comparison, (change,) = compared([made("a")], [other], by="test")
    assert (change.kind, change.column) == ("worse", "x | z")
    (column,) = comparison.columns
    assert (column.before.name, column.after.name) == ("p | q", "x | z")


def test_equal_rows_match_by_order() -> None:
    """The n-th of equal rows matches the n-th; further rows are new or gone."""
    old = [made("a", 0), made("a", 1), made("a", 0)]
    new = [made("a", 0), made("a", 0), made("a", 0), made("a", 1)]
    assert kinds_of(old, new) == ["better", "new"]
    assert kinds_of(new, old) == ["worse", "gone"]


words = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.sampled_from("xy")), max_size=9
)


@settings(max_examples=settings().max_examples // 4)
@given(words, words)
def test_every_row_is_counted_once(old: list[Any], new: list[Any]) -> None:
    """The rows of both runs add up, and swapping the runs inverts every kind."""
    before, after = ([made(*one) for one in rows] for rows in (old, new))
    there, changes = compared(before, after)
    back, _ = compared(after, before)
    kinds = there.kinds
    assert kinds.total() - kinds["new"] == len(old)
    assert kinds.total() - kinds["gone"] == len(new)
    assert kinds.total() - kinds["same"] == len(changes)
    turned = {"better": "worse", "worse": "better", "new": "gone", "gone": "new"}
    assert {kind: back.kinds[kind] for kind in KINDS} == {
        kind: kinds[turned.get(kind, kind)]  # type: ignore[index]
        for kind in KINDS
    }


def test_a_run_equals_itself() -> None:
    """A comparison of a run with itself finds only equal rows."""
    _, rows = rows_of(SUITE | {"evaluateOptions": {"repeat": 3}})
    records = records_of(rows)
    comparison, changes = compared(records, copy.deepcopy(records))
    assert (changes, comparison.kinds["same"]) == ([], 12)
    assert compared_line(comparison) == "12 rows: 12 same"


def printed(table: RenderableType, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_changes_are_shown_as_a_table_and_a_line() -> None:
    """Foreign text is inert in both."""
    evil = "\x1b[31m[bold]evil\nx"
    old = [made(evil), made("b"), made("c", 1), made("d")]
    new = [made(evil, 2), made("b", output="else"), made("c"), made("e")]
    comparison, _ = compared(old, new)
    shown, rest = first_of(
        Comparison(lambda: map(RowRecord.of, old)).changes(map(RowRecord.of, new)), 4
    )
    assert rest == 1
    table = printed(changes_table(shown, 40))
    assert "\x1b" not in table
    assert "word= [31m[bold]evil x" in table
    assert [line.split()[-5:] for line in table.splitlines()[3:7]] == [
        ["worse", "PASS", "1", "ERROR", "0"],
        ["1", "PASS", "1", "other", "answer"],
        ["better", "FAIL", "0", "PASS", "1"],
        ["q", "new", "–", "PASS", "1"],
    ]
    assert compared_line(comparison) == "5 rows: 1 better, 1 worse, 1 changed, 1 new, 1 gone"


def test_narrow_terminals_show_lines_instead_of_a_table() -> None:
    """Comparisons as JSON are complete and uncut."""
    old, new = [made("a"), made("b"), made("c", 1)], [made("a", 2), made("b", output="else")]
    _, changes = compared(old, new)
    assert printed(changes_table(changes[:1], 40), 40).splitlines() == [
        "",
        "0 word=a",
        "  provider | prompt p | q, worse,",
        "  before PASS 1, after ERROR 0",
    ]


def test_rows_added_during_a_comparison_are_ignored() -> None:
    """Rows that were added meanwhile, also between the others, are neither missing nor the end."""
    known, later = [made("a"), made("c"), made("c", 1)], [made("b"), made("c"), made("e")]
    readings = iter([known, [known[0], later[0], *known[1:], *later[1:]]])
    comparison = Comparison(lambda: map(RowRecord.of, next(readings)))
    gone = [*comparison.changes([RowRecord.of(made("c"))])]
    assert [(change.kind, change.name) for change in gone] == [
        ("gone", "word=a"),
        ("gone", "word=c"),
    ]
    assert comparison.kinds["gone"] == 2


def test_json_comparisons_are_complete() -> None:
    """Comparisons are streamed: rows first, then their sums."""
    old, new = [made("a"), made("b")], [made("a", 1)]
    comparison = Comparison(lambda: map(RowRecord.of, old))
    changes = comparison.changes(map(RowRecord.of, new))
    document = comparison_json(
        "r1", "r2", comparison, changes, lambda: findings_of(comparison.columns)
    )
    found = json.loads("".join(json_chunks(document)))
    assert (found["before"], found["after"]) == ("r1", "r2")
    assert [row["kind"] for row in found["rows"]] == ["worse", "gone"]
    assert found["rows"][0] | {"test": "", "column": ""} == {
        "kind": "worse",
        "task": None,
        "testIdx": 0,
        "promptIdx": 0,
        "test": "",
        "column": "",
        "before": {"status": "pass", "score": 1.0},
        "after": {"status": "fail", "score": 0.0},
        "otherOutput": False,
    }
    (column,) = found["columns"]
    assert column["rows"] == dict.fromkeys(KINDS, 0) | {"worse": 1, "gone": 1}
    assert column["before"]["pass"] == 2
    assert column["statistics"]["passRate"]["after"]["n"] == 1
    assert column["statistics"]["score"]["difference"]["mean"] == -1


def test_a_column_of_only_one_run_is_marked() -> None:
    """A missing side is null in JSON."""
    comparison, _ = compared([], [made("a", task="t")])
    (column,) = comparison.columns
    assert column.json()["before"] is None


def left(word: str, outcome: str = "not_run", **more: Any) -> Record:
    """Return a row that did not end."""
    return made(word, 2, metadata={"trioeval": {"outcome": outcome}}, **more)


def test_unfinished_rows_are_not_paired() -> None:
    """Unfinished rows of either run are counted, and are neither worse nor gone."""
    old = [made("a"), made("b"), left("c"), left("d"), left("e", "interrupted")]
    new = [made("a"), left("b"), made("c"), left("f"), left("e")]
    comparison, changes = compared(old, new)
    assert changes == []
    assert comparison.kinds == {"same": 1, "unfinished": 5}
    (column,) = comparison.columns
    assert (column.before.left, column.after.left) == (3, 3)
    after = column.json()["after"]
    assert (after["rows"], after["error"], after["unfinished"]) == (2, 0, 3)
    assert [*left_out_lines(comparison.columns)] == [
        "3 rows of the earlier run did not end; the comparison leaves them out",
        "3 rows of the later run did not end; the comparison leaves them out",
    ]
    assert [*left_out_lines(compared(old[:2], new[:1])[0].columns)] == []
    ended = {"trioeval": {"outcome": "failed"}}
    assert kinds_of([made("a")], [made("a", 2, metadata=ended)]) == ["worse"]
