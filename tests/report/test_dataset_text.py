"""Datasets as text and tables."""

import io
from pathlib import Path
from typing import Any

import attrs
import pytest
from made_datasets import CUT, FINE, MADE, PROBLEM, TOPIC
from rich.console import Console, RenderableType

from trioeval.columns.result import ColumnProfile, DatasetResult, DroppedRow, Histogram
from trioeval.report.columns import (
    Profile,
    dataset_json,
    dataset_lines,
    dropped_view,
    read_dataset,
    row_values,
    rows_view,
    trouble,
    values_of,
)


def drawn(picture: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(picture)
    found = console.file
    assert isinstance(found, io.StringIO)
    return found.getvalue()


def test_lines_show_folder_failures_and_usage() -> None:
    """The lines have the folder, the first failure, and the usage."""
    written = "98 of 100 rows written to datasets/problems (Parquet, 4 groups)"
    assert list(dataset_lines(MADE, Path("/a"))) == [
        f"{written}; 2 dropped: problem failed 1, filtered 1",
        "first failure: row 7, column 'problem': down",
        "104 calls, 1200 tokens, $0.2500 in 12.3 s",
    ]
    assert next(dataset_lines(CUT)).endswith("; 50 not run: the deadline")


def test_a_failed_dataset_shows_its_reason_once() -> None:
    """The first failure is often the error of the dataset, and is shown once."""
    failed = attrs.evolve(
        MADE,
        error=f"too much failed; {MADE.first_error}",
        early_shutdown=True,
        partial_groups=(1, 3),
    )
    _, shut, why, used = dataset_lines(failed)
    assert shut == "too many permanent failures: no further rows were started; 2 partial groups"
    assert why == "failed: too much failed; row 7, column 'problem': down"
    assert used.startswith("104 calls")


@pytest.mark.parametrize(
    ("result", "message", "left"),
    [
        (FINE, None, False),
        (MADE, "dataset problems: 1 row lost", False),
        (CUT, "dataset problems: 50 rows not run (the deadline)", True),
        (attrs.evolve(FINE, error="gone"), "dataset problems: failed (gone)", True),
        (
            attrs.evolve(FINE, written=0, dropped={"filtered": 100}),
            "dataset problems: no rows",
            False,
        ),
        (
            attrs.evolve(MADE, not_run={"lane": 2, "shared_limit": 1}),
            "dataset problems: 1 row lost, 3 rows not run (a closed lane 2, a shared limit 1)",
            True,
        ),
        (
            DatasetResult(task="a", requested=0, written=0, not_run={"blocked": 0}),
            "dataset a: rows not run (another task)",
            True,
        ),
    ],
)
def test_lost_rows_are_a_problem_and_filtered_rows_are_not(
    result: DatasetResult,
    message: str | None,
    left: bool,  # noqa: FBT001
) -> None:
    """Rows that were dropped on purpose are not a problem, unless none is left."""
    assert trouble(result) == message
    assert result.is_left is left


def test_columns_are_shown_on_any_terminal() -> None:
    """Columns are a table, or lines on a narrow terminal; foreign text is inert."""
    wide = drawn(Profile(MADE.columns), 120)
    assert "problem" in wide
    heading = wide.splitlines()[0 if wide.splitlines()[0].strip() else 1]
    assert heading.split() == [
        *("column", "kind", "type", "nulls", "distinct", "values"),
        *("calls", "failed", "tokens", "cost"),
    ]
    narrow = drawn(Profile(MADE.columns), 40)
    assert narrow.splitlines()[0] == "topic (sampler, text)"
    assert all(len(line) <= 40 for line in narrow.splitlines())
    for text in (wide, narrow):
        assert "\x1b" not in text
        assert "apples 52" in text


def test_counts_of_calls_are_shown_if_a_column_has_any() -> None:
    """A column without makers has no kind, and datasets that are read have none either."""
    text = drawn(Profile([attrs.evolve(TOPIC, kind="")]), 120)
    assert "calls" not in text
    assert "kind" not in text
    assert "about 95" in drawn(Profile([attrs.evolve(PROBLEM, is_estimate=True)]), 120)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (attrs.evolve(TOPIC, distinct=9), "apples 52, tr [31mains 46, …"),
        (PROBLEM, "16 to 63 characters"),
        (attrs.evolve(PROBLEM, type="list"), "16 to 63 members"),
        (attrs.evolve(PROBLEM, lengths=None), ""),
        (attrs.evolve(PROBLEM, lengths=Histogram(edges=(2, 3), counts=(9,))), "2 characters"),
        (
            attrs.evolve(TOPIC, common=((True, 3), ({"a": None}, 2), ("b", 1)), distinct=3),
            'true 3, {"a":null} 2, b 1',
        ),
    ],
)
def test_values_are_summarised_by_the_most_informative_statistic(
    column: ColumnProfile, expected: str
) -> None:
    """Frequent values precede lengths."""
    assert values_of(column) == expected


def test_rows_are_shown_one_after_the_other() -> None:
    """Each value is on a line and cut; a single row is shown whole."""
    rows: list[tuple[int, dict[str, Any]]] = [
        (3, {"a": "x\x1b[2J\ny", "b": {"k": [1]}}),
        (7, {"a": None, "b": "z" * 99}),
    ]
    lines = drawn(rows_view(rows, 20), 40).splitlines()
    assert lines[:3] == ["row 3", "  a: x [2J y", '  b: {"k":[1]}']
    assert "  b: zzzzzzzzzzzzzzzzzzz…" in lines
    whole = drawn(row_values(rows[1][1]), 200)
    assert "z" * 99 in whole


def test_rows_dropped_by_an_expression_are_labelled() -> None:
    """The cause alone is unclear behind the name of a column."""
    gone = DroppedRow(row=0, cause="expression", column="n")
    assert dropped_view([gone], 1) == "  row 0: n left out by expression"
    result = DatasetResult(task="a", requested=4, written=1, dropped={"expression": 3})
    assert next(iter(dataset_lines(result))) == (
        "1 of 4 rows made; 3 dropped: left out by expression 3"
    )


def test_a_limited_number_of_failures_is_listed() -> None:
    """The first dropped rows are listed, and the others are counted."""
    assert not dropped_view((), 5)
    line = "  row 7: problem failed after 6 calls: down"
    assert dropped_view(MADE.failures[:1], 2) == f"{line}\n  … and 1 more"
    assert dropped_view(MADE.failures[:1], 1) == line


def test_interrupted_final_processors_are_reported() -> None:
    """All rows are written, but processors did not finish."""
    cut = DatasetResult(task="a", requested=2, written=2, groups=1, unfinished="deadline")
    assert cut.is_left
    message = "processors of afterGeneration cut off (the deadline)"
    assert trouble(cut) == f"dataset a: {message}"
    assert any(message in line for line in dataset_lines(cut))
    assert read_dataset(dataset_json(cut)) == cut
