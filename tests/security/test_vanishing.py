"""Attacks: inputs whose rows would be lost silently, so that a suite passes that should not."""

import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import parse_suite
from trioeval.suite.model import Suite

pytestmark = pytest.mark.attack("rows that vanish")

ROWS = [["q", "__expected"], *([f"a{row}", f"a{row}"] for row in range(5))]
SHEET = "xl/worksheets/sheet1.xml"


def loaded(file: Path) -> Suite:
    suite = {"providers": ["echo"], "prompts": ["{{q}}"], "tests": file.name}
    return parse_suite(suite, directory=file.parent, environ={})


def sheet(folder: Path, change: Callable[[str], str], rows: list[list[Any]] = ROWS) -> Path:
    """Create a spreadsheet with XML that openpyxl would not write."""
    file = folder / "t.xlsx"
    book = openpyxl.Workbook()
    for row in rows:
        book.worksheets[0].append(row)
    book.save(file)
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[SHEET] = change(parts[SHEET].decode()).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return file


@pytest.mark.parametrize("size", ["A1:B3", "A1", "A1:A9", "B2:B3", "A1:XFD1048576", None])
def test_a_sheet_with_a_wrong_size_is_read_completely(tmp_path: Path, size: str | None) -> None:
    """A stale dimension hides neither rows nor columns."""
    new = "" if size is None else f'<dimension ref="{size}"/>'
    file = sheet(tmp_path, lambda text: re.sub(r"<dimension[^>]*/>", new, text))
    tests = loaded(file).tests
    assert [test.vars["q"] for test in tests] == [f"a{row}" for row in range(5)]
    assert all(test.assertions for test in tests)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: re.sub(r'(<row r="3".*?</row>)(<row r="4".*?</row>)', r"\2\1", text),
            "row 3 follows row 4",
        ),
        (lambda text: text.replace('<row r="4"', '<row r="3"'), "row 3 follows row 3"),
        (
            lambda text: re.sub(r'(<c r="A3".*?</c>)(<c r="B3".*?</c>)', r"\2\1", text),
            "the cell A3 is out of order in its row",
        ),
        (lambda text: text.replace('r="B3"', 'r="A3"'), "the cell A3 is out of order in its row"),
        (
            lambda text: text.replace('<row r="6"', '<row r="999999999"'),
            "row 999999999 is out of range",
        ),
    ],
    ids=[
        "rows in another order",
        "a row twice",
        "cells in another order",
        "a cell twice",
        "far down",
    ],
)
def test_rows_and_cells_that_would_be_skipped_are_refused(
    tmp_path: Path, change: Callable[[str], str], message: str
) -> None:
    """No spreadsheet program writes such a file, and readers disagree about it."""
    with pytest.raises(SuiteError) as refused:
        loaded(sheet(tmp_path, change))
    assert message in str(refused.value)
    assert "open it in a spreadsheet program and save it again" in str(refused.value)


@pytest.mark.parametrize("stored", ["", "<v></v>", "<v/>"])
def test_a_formula_without_a_stored_value_is_refused(tmp_path: Path, stored: str) -> None:
    """Programs that only write sheets do not compute; the row would have no text."""
    rows = [*ROWS, ["=1+1", "2"]]
    file = sheet(
        tmp_path, lambda text: re.sub(r"(</f>)<v ?/>|(</f>)<v></v>", rf"</f>{stored}", text), rows
    )
    with pytest.raises(
        SuiteError, match=r"t\.xlsx:7:1: .*the value of this formula is not in the file"
    ):
        loaded(file)


def test_a_formula_has_its_stored_value(tmp_path: Path) -> None:
    """Spreadsheet programs save it."""
    rows = [*ROWS, ["=1+1", "2"]]
    file = sheet(
        tmp_path, lambda text: re.sub(r"</f><v ?/>|</f><v></v>", "</f><v>2</v>", text), rows
    )
    assert loaded(file).tests[-1].vars["q"] == "2"


def test_a_hidden_first_sheet_is_reported(tmp_path: Path) -> None:
    """The file shows other rows than those that are run."""
    book = openpyxl.Workbook()
    hidden = book.worksheets[0]
    hidden.append(["q"])
    hidden.append(["hidden"])
    hidden.sheet_state = "hidden"
    book.create_sheet("seen").append(["q"])
    book.active = 1
    book.save(tmp_path / "t.xlsx")
    [warning] = loaded(tmp_path / "t.xlsx").warnings
    assert 'the first sheet, "Sheet", is hidden' in warning.message


def test_rows_with_other_line_breaks_than_the_first_line_are_reported(tmp_path: Path) -> None:
    """CSV has one kind of line break; another kind is an ordinary character, and rows become one."""
    (tmp_path / "t.csv").write_bytes(b"q\r\na\nb\nc\n")
    suite = loaded(tmp_path / "t.csv")
    assert len(suite.tests) == 1
    [warning] = suite.warnings
    assert warning.line == 2
    assert "their line breaks are of another kind" in warning.message
    (tmp_path / "t.csv").write_bytes(b'q\r\n"a\nb"\r\nc\r\n')
    assert (len(loaded(tmp_path / "t.csv").tests), loaded(tmp_path / "t.csv").warnings) == (2, ())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b'q,__expected\n"a,x\nc,d\n'),
        ("t.csv", b"q,q\na,b\n"),
        ("t.csv", b"q,r\na\n"),
        ("t.csv", "q\na\nb\n".encode("utf-16")),
        ("t.jsonl", b'{"vars": {"q": "a"}}\n{"vars": {"q":'),
        ("t.jsonl", b'{"vars": {"q": "a"}}{"vars": {"q": "b"}}\n'),
        ("t.jsonl", b'{"vars": {"q": "a"}}\nnull\n'),
        ("t.jsonl", b'{"vars": {"q": "a"}}\n\0\0\0\n{"vars": {"q": "b"}}\n'),
        ("t.jsonl", b'{"vars": {"q": "a"}, "vars": {"q": "b"}}\n'),
        ("t.jsonl", b'{"vars": {"q": "a"}}\r{"vars": {"q": "b"}}\r'),
        ("t.yaml", b"- vars: {q: a}\n---\n- vars: {q: b}\n"),
        ("t.yaml", b"- vars: {q: a}\n...\n- vars: {q: b}\n"),
        ("t.yaml", b"- vars: {q: a, q: b}\n"),
        ("t.yaml", b"- vars: {q: a}\n-\n"),
        ("t.json", b'[{"vars": {"q": "a", "q": "b"}}]'),
        ("t.json", b'[{"vars": {"q": "a"}}] [1]'),
        ("t.xlsx", b"PK\3\4 no sheet"),
    ],
)
def test_a_file_that_cannot_be_read_completely_is_refused(
    tmp_path: Path, name: str, content: bytes
) -> None:
    """The reason is reported; none of its rows are run, so no part of them can pass for all."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SuiteError, match=name):
        loaded(tmp_path / name)


@pytest.mark.parametrize(
    "content", [b"q,r\na\0b,x\nc,d\n", b"q,r\na\x1a,x\nc,d\n", b"q,r\na,x\nc,d"]
)
def test_no_character_ends_a_table_early(tmp_path: Path, content: bytes) -> None:
    """This covers NUL, old end-of-file characters, and a last line without an end."""
    (tmp_path / "t.csv").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(loaded(tmp_path / "t.csv").tests) == 2
