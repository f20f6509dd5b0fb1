"""Tests from files of every kind, and messages about those that cannot be read."""

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.suite.model import Test
from trioeval.suite.sources.tests import read_tests


def plain(data: Any) -> Test:
    """Stand in for the reader of suites: return a test whose metadata is the written data."""
    if data.get("vars") == {"q": "elsewhere"}:
        raise MistakenError(
            Mistake("wrong elsewhere", at=("a",), file=Path("other.json"), place=(3, 4))
        )
    if data.get("threshold") == "bad":
        raise MistakenError(Mistake("a bad threshold", at=("threshold",)))
    return Test(metadata=data)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in {
        "a.csv": "q\none\n",
        "b.json": '[{"vars": {"q": "two"}}]',
        "c.jsonl": '{"vars": {"q": "three"}}\n',
        "d.yaml": "- vars: {q: four}\n",
        "e.yml": "vars: {q: five}\n",
        "sub/v.yaml": "q: six\n",
        "sub/f.yaml": "- vars: v.yaml\n  metadata: file://m.json\n- file://e.yml\n- f1.yaml\n",
        "sub/f1.yaml": "vars: [v.yaml, w.json]\n",
        "sub/w.json": '{"r": "seven"}',
        "m.json": '{"k": "v"}',
        "g.py": "def generate_tests(*config):\n    return [{'vars': {'q': part}} for part in config]\n"
        "def one():\n    return {'vars': {}}\n"
        "def bad():\n    return [{}, {'threshold': 'bad'}, 'none.yaml']\n"
        "def fails():\n    raise ValueError('no such thing')\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path


def read(
    directory: Path, reference: str | Mapping[str, Any], *, alone: bool = False
) -> list[Mapping[str, Any]]:
    context = FileContext(directory=directory, allow_empty=True)
    found = read_tests(reference, context, plain, alone=alone)
    return [test.metadata for test in found]


@pytest.mark.parametrize(
    ("reference", "wanted"),
    [
        ("a.csv", ["one"]),
        ("file://a.csv", ["one"]),
        ("b.json", ["two"]),
        ("c.jsonl", ["three"]),
        ("d.yaml", ["four"]),
        ("e.yml", ["five"]),
        ("[a-e].*", ["one", "two", "three", "four", "five"]),
        ({"path": "file://a.csv"}, ["one"]),
        ({"path": "g.py"}, []),
        ({"path": "g.py", "config": 1}, [1]),
        ({"path": "g.py:generate_tests", "config": "file://m.json"}, [{"k": "v"}]),
        ("file://g.py", []),
    ],
)
def test_files_are_read_by_their_suffix(
    files: Path, reference: str | Mapping[str, Any], wanted: list[Any]
) -> None:
    assert [test["vars"]["q"] for test in read(files, reference)] == wanted


def test_files_named_by_a_test_are_read(files: Path) -> None:
    """Names with `file://` are relative to the suite; variables and other names to the file."""
    assert read(files, "sub/f.yaml") == [
        {"vars": {"q": "six"}, "metadata": {"k": "v"}},
        {"vars": {"q": "five"}},
        {"vars": {"q": "six", "r": "seven"}},
    ]


def test_references_of_a_file_are_resolved_in_it(files: Path) -> None:
    (files / "t.yaml").write_text("- vars: {q: a}\n- {$ref: '#/0', threshold: 1}\n")
    assert read(files, "t.yaml") == [{"vars": {"q": "a"}}, {"vars": {"q": "a"}, "threshold": 1}]


@pytest.mark.parametrize(
    ("reference", "alone", "wanted"),
    [
        ("a.csv", False, "Row #1"),
        ("b.json", True, "Row #1"),
        ("b.json", False, None),
        ("c.jsonl", True, "Row #1"),
        ("c.jsonl", False, None),
        ({"path": "c.jsonl"}, False, "Row #1"),
        ("d.yaml", True, None),
    ],
)
def test_tests_are_numbered_like_in_promptfoo(
    files: Path, reference: str | Mapping[str, Any], *, alone: bool, wanted: str | None
) -> None:
    (test,) = read(files, reference, alone=alone)
    assert test.get("description") == wanted


@pytest.mark.parametrize(
    ("reference", "wanted"),
    [
        ("none.csv", 'file not found: "none.csv"\n  did you mean "a.csv"?'),
        ("none/*.csv", "no file matches"),
        ("../*.csv", "no file matches"),
        ("huggingface://models/x", "tests from huggingface://… are not supported"),
        ("hf://x/y", "write hf://datasets/OWNER/NAME"),
        ("az://account/box/t.csv", "tests from az://… are not supported"),
        ("tests.js", 'file not found: "tests.js"'),
        ("old.xls#1", 'tests from "old.xls#1" are not supported\n  save the file as .xlsx'),
        ("g.py:one", "one must return a list of tests, got an object"),
        ("g.py:fails", "no such thing"),
        ("none.py", 'file not found: "none.py"'),
        ({"path": "az://account/t.csv"}, "tests from az://… are not supported"),
        ({"path": "none.csv"}, 'file not found: "none.csv"'),
        ({"path": 5}, "must be the name of a file, got 5"),
        ({"path": "a.csv", "confg": 1}, '"confg" is not a key here\n  did you mean "config"?'),
        ({"path": "g.py", "config": "file://none.json"}, 'file not found: "file://none.json"'),
    ],
)
def test_unreadable_files_are_reported(
    files: Path, reference: str | Mapping[str, Any], wanted: str
) -> None:
    with pytest.raises(MistakenError) as caught:
        read(files, reference)
    text = "\n".join(f"{part.message}\n  {part.hint}" for part in caught.value.parts)
    assert wanted in text


def test_a_file_outside_of_the_suites_folder_is_refused(files: Path) -> None:
    context = FileContext(directory=files / "sub")
    with pytest.raises(MistakenError, match="outside of the suite's folder"):
        read_tests("../a.csv", context, plain)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("t.yaml", "- vars: {}\n- threshold: bad\n- 5\n", [(2, 14), (3, 3)]),
        ("t.json", '[{"threshold": "bad"},\n {"vars": "none.yaml"}]', [(1, 16), (2, 11)]),
        ("t.json", '{"threshold": "bad"}', [(1, 15)]),
        ("t.yaml", "- a: 1\n  a: 2\n", [(2, 3)]),
        ("t.yaml", "- $ref: '#/1/metadata/t'\n- metadata: {t: {threshold: bad}}\n", [(2, 29)]),
        ("t.yaml", "- $ref: '#/7'\n", [(1, 9)]),
        ("t.txt", "", []),
    ],
)
def test_all_mistakes_of_a_file_are_reported_with_their_places(
    files: Path, name: str, text: str, wanted: list[tuple[int, int]]
) -> None:
    (files / name).write_text(text)
    with pytest.raises(MistakenError) as caught:
        read(files, name)
    assert [part.place for part in caught.value.parts if part.place] == wanted
    if wanted:
        assert {part.file for part in caught.value.parts} == {files / name}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "q\nelsewhere\n"),
        ("t.jsonl", '{"vars": {"q": "elsewhere"}}\n'),
        ("t.yaml", "vars: {q: elsewhere}\n"),
        ("t.py", "def generate_tests():\n    return [{'vars': {'q': 'elsewhere'}}]\n"),
    ],
)
def test_a_mistake_in_another_file_is_reported_there(files: Path, name: str, text: str) -> None:
    (files / name).write_text(text)
    with pytest.raises(MistakenError) as caught:
        read(files, name)
    mistakes = [(part.file, part.place, part.at) for part in caught.value.parts]
    assert mistakes == [(Path("other.json"), (3, 4), ("a",))]


def test_mistakes_of_several_files_are_reported_together(files: Path) -> None:
    for name in ("1.x.yaml", "2.x.yaml"):
        (files / name).write_text("- threshold: bad\n")
    with pytest.raises(MistakenError) as caught:
        read(files, "*.x.yaml")
    assert [part.file for part in caught.value.parts] == [files / "1.x.yaml", files / "2.x.yaml"]


def test_mistakes_in_the_result_of_a_generator_name_its_file(files: Path) -> None:
    with pytest.raises(MistakenError) as caught:
        read(files, "g.py:bad")
    mistakes = [(part.file, part.at, part.hint) for part in caught.value.parts]
    assert mistakes[0] == (files / "g.py", (1, "threshold"), "returned by bad")
    assert mistakes[1][:2] == (files / "g.py", (2,))


@pytest.fixture
def book(tmp_path: Path) -> Path:
    made = openpyxl.Workbook()
    first = made.active
    assert first is not None
    for row in (["q", "n", "__expected"], ["a", 5, "contains: a"], [], [None, 1.5, None, None]):
        first.append(row)
    second = made.create_sheet("More tests")
    second.append(["q", "when"])
    second.append([True, datetime(2024, 5, 6, 7, 8, tzinfo=None)])  # noqa: DTZ001 - sheets have no zones
    ragged = made.create_sheet("Ragged")
    ragged.append(["q"])
    ragged.append(["a", "b"])
    made.save(tmp_path / "t.xlsx")
    return tmp_path


def test_a_sheet_is_a_table(book: Path) -> None:
    assert read(book, "t.xlsx") == [
        {
            "description": "Row #1",
            "vars": {"q": "a", "n": "5"},
            "assert": [{"type": "contains", "value": "a"}],
        },
        {"description": "Row #2", "vars": {"q": "", "n": "1.5"}},
    ]


@pytest.mark.parametrize("sheet", ["2", "More tests"])
def test_a_sheet_is_selected_by_name_or_number(book: Path, sheet: str) -> None:
    assert [test["vars"] for test in read(book, f"file://t.xlsx#{sheet}")] == [
        {"q": "true", "when": "2024-05-06T07:08:00"}
    ]


@pytest.mark.parametrize(
    ("sheet", "message", "place"),
    [
        ("4", 'unknown sheet "4"', None),
        ("More", 'unknown sheet "More"', None),
        ("Ragged", "a row of 2 cells under a header of 1", (2, 1)),
    ],
)
def test_a_mistake_in_a_sheet_is_reported_with_row_and_column(
    book: Path, sheet: str, message: str, place: tuple[int, int] | None
) -> None:
    with pytest.raises(MistakenError) as caught:
        read(book, f"t.xlsx#{sheet}")
    (mistake,) = caught.value.parts
    assert (mistake.message, mistake.place, mistake.file) == (message, place, book / "t.xlsx")


def test_an_invalid_workbook_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_text("q\na\n")
    with pytest.raises(MistakenError, match="not a spreadsheet"):
        read(tmp_path, "t.xlsx")


def test_sheets_need_an_extra(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(
        MistakenError, match=r'tests from "t\.xlsx" require the extra xlsx'
    ) as caught:
        read(book, "t.xlsx")
    assert caught.value.parts[0].hint == "pip install trioeval[xlsx], or save the sheet as CSV"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.csv", "", "the file has no tests"),
        ("none.csv", "q\n", "no rows below the header"),
        ("none.json", "[]", "the file has no tests"),
        ("none.jsonl", "", "the file has no tests"),
        ("none.jsonl", "\n", "the file has no tests"),
        ("none.yaml", "[]", "the file has no tests"),
        ("none.py", "def generate_tests():\n    return []\n", "the file has no tests"),
    ],
)
def test_a_file_without_tests_is_refused_unless_it_is_allowed(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    """The mistake names the file and --allow-empty; with that, it is a warning."""
    (tmp_path / name).write_text(text)
    with pytest.raises(MistakenError) as caught:
        read_tests(f"file://{name}", FileContext(directory=tmp_path), plain)
    hint = "add a test, or pass --allow-empty"
    mistake = Mistake(message, hint, file=tmp_path / name)
    assert caught.value.parts == (mistake,)
    warnings: list[Mistake] = []
    context = FileContext(directory=tmp_path, allow_empty=True, warn=warnings.append)
    assert list(read_tests(name, context, plain)) == []
    assert warnings == [Mistake(message, file=tmp_path / name)]


def test_a_sheet_without_tests_is_refused(tmp_path: Path) -> None:
    """A header alone is not a test."""
    book = openpyxl.Workbook()
    book.create_sheet("tests", 0).append(["q"])
    book.save(tmp_path / "none.xlsx")
    with pytest.raises(MistakenError, match="no rows below the header"):
        read_tests("none.xlsx", FileContext(directory=tmp_path), plain)


@pytest.mark.parametrize("name", ["many.csv", "many.json", "many.yaml", "many.py"])
def test_only_the_first_mistakes_of_a_file_are_reported(files: Path, name: str) -> None:
    """The number of the others follows."""
    many = [{"threshold": "bad"}] * 60
    texts = {
        ".csv": "q\n" + "too,many\n" * 60,
        ".json": "[\n" + ",\n".join(map(json.dumps, many)) + "\n]",
        ".yaml": "- threshold: bad\n" * 60,
        ".py": f"def generate_tests():\n    return {many}\n",
    }
    (files / name).write_text(texts[Path(name).suffix])
    with pytest.raises(MistakenError) as caught:
        read(files, name)
    *mistakes, last = caught.value.parts
    assert len(mistakes) == 50
    assert last.message == "… and 10 more mistakes"
    assert last.file == files / name
    lines = [part.place[0] for part in (*mistakes, last) if part.place]
    assert lines == ([] if name == "many.py" else [*range(lines[0], lines[0] + 51)])
