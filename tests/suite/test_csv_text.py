"""The rows of CSV texts, by the rules of the parser of promptfoo."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.documents.mistakes import MistakenError
from trioeval.suite.sources.csv_text import place_at, read_rows


def rows(text: str, delimiter: str = ",", *, strict: bool = False) -> list[tuple[str, ...]]:
    return [row.cells for row in read_rows(text, delimiter=delimiter, strict=strict)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("a", [("a",)]),
        ("a\n", [("a",)]),
        ("\n", [("",)]),
        ("a,", [("a", "")]),
        ("a,b\n1,2", [("a", "b"), ("1", "2")]),
        ("a\n\nb\n", [("a",), ("",), ("b",)]),
        ("a,b\n1,2\n\n", [("a", "b"), ("1", "2"), ("",)]),
        (" a , b\n", [(" a ", " b")]),
        ('"a,b",c\n', [("a,b", "c")]),
        ('"a\nb",c\n', [("a\nb", "c")]),
        ('"a ""b"" c"\n', [('a "b" c',)]),
        ('""\n', [("",)]),
    ],
)
def test_cells_are_the_texts_between_delimiters(text: str, wanted: list[tuple[str, ...]]) -> None:
    assert rows(text) == wanted
    assert rows(text, strict=True) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a\r\nb\r\n", [("a",), ("b",)]),
        ("a\rb\r", [("a",), ("b",)]),
        # The first line break defines the only kind.
        ("a\nb\r\n", [("a",), ("b\r",)]),
        ("a\r\nb\nc\r\n", [("a",), ("b\nc",)]),
        # One between quotes does not count.
        ('"a\nb"\r\nc\nd\r\n', [("a\nb",), ("c\nd",)]),
    ],
)
def test_the_first_line_break_ends_all_rows(text: str, wanted: list[tuple[str, ...]]) -> None:
    assert rows(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('5" screen,b\n', [('5" screen', "b")]),
        ('"very" good,b\n', [('"very" good', "b")]),
        ('"very" "good",b\n', [('"very" "good"', "b")]),
        ('a "b, c" d\n', [('a "b', ' c" d')]),
        ('"a ""b"" c" d\n', [('"a "b" c" d',)]),
    ],
)
def test_misplaced_quotes_are_literal_unless_strict(
    text: str, wanted: list[tuple[str, ...]]
) -> None:
    assert rows(text) == wanted
    with pytest.raises(MistakenError):
        rows(text, strict=True)


@pytest.mark.parametrize(
    ("text", "strict", "message", "place"),
    [
        ('a,b\n1,"x\ny', False, "a quote is never closed", (2, 3)),
        ('a\r\n"x', True, "a quote is never closed", (2, 1)),
        ('a\n"x" y\n', True, "a quote inside of a quoted cell must be doubled", (2, 3)),
        ('a\nb,5" x\n', True, "a cell that contains a quote must be quoted", (2, 4)),
    ],
)
def test_a_misplaced_quote_is_reported_with_its_position(
    text: str, *, strict: bool, message: str, place: tuple[int, int]
) -> None:
    with pytest.raises(MistakenError) as caught:
        rows(text, strict=strict)
    (mistake,) = caught.value.parts
    assert (mistake.message, mistake.place) == (message, place)


@pytest.mark.parametrize("delimiter", [";", "\t", "||", "."])
def test_any_text_can_be_the_delimiter(delimiter: str) -> None:
    text = f'a{delimiter}"b{delimiter}c"\n1{delimiter}2,3\n'
    assert rows(text, delimiter) == [("a", f"b{delimiter}c"), ("1", "2,3")]


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_a_cell_is_at_the_position_that_its_row_reports(line_break: str) -> None:
    text = line_break.join(["ab,c", '"x', 'y",zz', ""])
    places = [[place_at(text, start) for start in row.starts] for row in read_rows(text)]
    assert places == [[(1, 1), (1, 4)], [(2, 1), (3, 4)]]


TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.text("ab,;\"\n\r '", max_size=5), min_size=width, max_size=width), min_size=1
    )
)


@pytest.mark.slow
@given(table=TABLES, delimiter=st.sampled_from([",", ";"]), strict=st.booleans())
def test_quoted_cells_are_read_back_unchanged(
    table: list[list[str]], delimiter: str, *, strict: bool
) -> None:
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(table)
    assert rows(written.getvalue(), delimiter, strict=strict) == [tuple(row) for row in table]


@pytest.mark.slow
@given(st.text('ab,"\n', max_size=12))
def test_a_text_that_strict_mode_accepts_is_read_equally_without_it(text: str) -> None:
    try:
        strictly = rows(text, strict=True)
    except MistakenError:
        return
    assert rows(text) == strictly
