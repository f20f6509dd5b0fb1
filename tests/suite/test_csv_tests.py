"""Tests from CSV files: the meaning of columns, and mistakes, cell by cell."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.grading import Assertion
from trioeval.loading.load import parse_suite
from trioeval.report.row import row_json
from trioeval.run import collect
from trioeval.suite.model import Test
from trioeval.suite.sources.csv_tests import cell_number, read_csv_tests


def plain(data: Any) -> Test:
    """Stand in for the reader of suites: return a test whose metadata is the written data."""
    for position, assertion in enumerate(data.get("assert", ())):
        if "value" not in assertion:
            raise MistakenError(Mistake("no value", at=("assert", position, "value")))
    for name, value in data["vars"].items():
        if value == "bad":
            raise MistakenError(Mistake("a bad value", at=("vars", name)))
    return Test(metadata=data)


def read(
    tmp_path: Path, text: str | bytes, environ: Mapping[str, str] | None = None
) -> tuple[list[dict[str, Any]], list[Mistake]]:
    file = tmp_path / "t.csv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    warnings: list[Mistake] = []
    context = FileContext(directory=tmp_path, environ=environ or {}, warn=warnings.append)
    found = read_csv_tests(file, context, plain)
    return [dict(test.metadata) for test in found], warnings


def refused(
    tmp_path: Path, text: str | bytes, environ: Mapping[str, str] | None = None
) -> list[str]:
    with pytest.raises(MistakenError) as caught:
        read(tmp_path, text, environ)
    assert {part.file for part in caught.value.parts} == {tmp_path / "t.csv"}
    return [
        ":".join(map(str, part.place or ())) + f" {'.'.join(map(str, part.at))}: {part.message}"
        for part in caught.value.parts
    ]


def test_columns_are_variables_and_rows_have_numbers(tmp_path: Path) -> None:
    tests, warnings = read(tmp_path, "q, city \nabc, Rom \n,\n")
    assert tests == [
        {"description": "Row #1", "vars": {"q": "abc", "city": " Rom "}},
        {"description": "Row #2", "vars": {"q": "", "city": ""}},
    ]
    assert warnings == []


def test_cells_are_texts_as_they_are_written(tmp_path: Path) -> None:
    """Neither numbers nor JSON are read: the prompt and the records contain the characters of the file."""
    texts = {"a": "007", "b": "1e3", "c": "1.50", "d": "TRUE", "e": '{"k":   1.0, "l": [1,  2]}'}
    cells = ['"' + text.replace('"', '""') + '"' for text in texts.values()]
    (tmp_path / "t.csv").write_text(",".join(texts) + "\n" + ",".join(cells) + "\n")
    prompts = ["{{a}} {{b}} {{c}} {{d}} {{e}}", '{"e": "{{e}}", "a": "{{a}}"}']
    suite = {"providers": ["echo"], "prompts": prompts, "tests": "file://t.csv"}
    plain_row, json_row = trio.run(collect, parse_suite(suite, directory=tmp_path))
    assert plain_row.output == " ".join(texts.values())
    assert json.loads(str(json_row.output)) == {"e": texts["e"], "a": "007"}
    assert row_json(plain_row, "eval-1")["vars"] == row_json(json_row, "eval-1")["vars"] == texts


def test_special_columns_are_not_variables(tmp_path: Path) -> None:
    header = "q,__prefix,__suffix,__description,__providerOutput,__metric,__threshold,__expected"
    tests, _ = read(tmp_path, f"{header}\na,<,>,first,said,m,0.5,contains: a\nb,,,,,,,\n")
    assert tests == [
        {
            "description": "first",
            "vars": {"q": "a"},
            "providerOutput": "said",
            "threshold": 0.5,
            "assert": [{"type": "contains", "value": "a", "metric": "m"}],
            "options": {"prefix": "<", "suffix": ">"},
        },
        {"description": "Row #2", "vars": {"q": "b"}, "options": {"prefix": "", "suffix": ""}},
    ]


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("0", 0.0),
        ("", None),
        ("most", None),
        (" .5 ", 0.5),
        ("80%", None),
        ("-1e-2", -0.01),
        ("1e999", None),
    ],
)
def test_a_threshold_is_a_numeric_cell(tmp_path: Path, cell: str, wanted: float | None) -> None:
    tests, _ = read(tmp_path, f"q,__threshold\na,{cell}\n")
    assert tests[0].get("threshold") == wanted
    assert cell_number(cell) == wanted


def test_assertions_follow_the_order_of_columns_without_blank_cells(
    tmp_path: Path,
) -> None:
    tests, _ = read(tmp_path, "__expected2,q,__expected,__expectedAlso\n a ,x,  ,b\n")
    assert [part["value"] for part in tests[0]["assert"]] == ["a", "b"]


def test_metadata_has_keys_and_lists(tmp_path: Path) -> None:
    text = 'q,__metadata:kind,__metadata:tags[]\n1,k,"a, b\\,c"\n2, ,\n'
    tests, _ = read(tmp_path, text)
    assert tests[0]["metadata"] == {"kind": "k", "tags": ["a", "b,c"]}
    assert "metadata" not in tests[1]


def test_the_threshold_of_an_assertion_belongs_to_the_column_with_its_number(
    tmp_path: Path,
) -> None:
    """This also holds if earlier cells are blank."""
    header = "__expected1,__expected2,__config:__expected2:threshold"
    tests, _ = read(tmp_path, f"{header}\nsimilar: a,similar: b,0.3\n,similar: b,0.4\n,c,\n")
    assert [[part.get("threshold") for part in test["assert"]] for test in tests] == [
        [0.8, 0.3],
        [0.4],
        [None],
    ]
    assert tests[0]["metadata"] == {"threshold": 0.3}


@pytest.mark.parametrize(
    ("column", "named"), [("__expected", "__expected1"), ("__expected1", "__expected")]
)
def test_the_first_assertion_column_has_two_names(tmp_path: Path, column: str, named: str) -> None:
    tests, _ = read(tmp_path, f"{column},__config:{named}:threshold\nsimilar: a,0.3\n")
    assert tests[0]["assert"][0]["threshold"] == 0.3


def test_the_plain_test_is_valid_in_a_suite(tmp_path: Path) -> None:
    tests, _ = read(tmp_path, "q,__expected\na,not-contains: b\n")
    assert Assertion(**tests[0]["assert"][0]) == Assertion(type="not-contains", value="b")


@pytest.mark.parametrize(
    ("text", "environ", "wanted"),
    [
        (b"\xef\xbb\xbfq,r\na,b\n", {}, {"q": "a", "r": "b"}),
        (b"q;r\na,1;b\n", {"PROMPTFOO_CSV_DELIMITER": ";"}, {"q": "a,1", "r": "b"}),
        (b"q\tr\na\tb\n", {"TRIOEVAL_CSV_DELIMITER": "\t"}, {"q": "a", "r": "b"}),
        (b'q\r\n"a\r\n""b"""\r\n', {}, {"q": 'a\r\n"b"'}),
        (b'q\n5" wide\n', {}, {"q": '5" wide'}),
        (b"q,\na,b\n", {}, {"q": "a", "": "b"}),
    ],
)
def test_names_of_files_in_cells_are_kept(
    tmp_path: Path, text: bytes, environ: dict[str, str], wanted: dict[str, str]
) -> None:
    tests, _ = read(tmp_path, text, environ)
    assert [test["vars"] for test in tests] == [wanted]


def test_an_empty_line_is_a_row_of_a_single_column(tmp_path: Path) -> None:
    tests, _ = read(tmp_path, "q\na\n\nb\n")
    assert [test["vars"]["q"] for test in tests] == ["a", "", "b"]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("_expected\na\n", 'the column "_expected" is a variable'),
        ("_metadata:k\na\n", 'the column "_metadata:k" is a variable'),
        ("__treshold\n1\n", 'the column "__treshold" is a variable'),
        ("__metadata\na\n", "the column __metadata has no effect without a key"),
        ("__config:__expected\n1\n", 'the column "__config:__expected" has no effect'),
        ("q,\na,b\n", "a column has no name"),
    ],
)
def test_unusual_columns_are_accepted_with_a_warning(
    tmp_path: Path, text: str, warning: str
) -> None:
    tests, warnings = read(tmp_path, text)
    assert [mistake.message for mistake in warnings] == [warning]
    assert len(tests) == max(0, text.count("\n") - 1)


def test_a_variable_with_one_underscore_is_kept(tmp_path: Path) -> None:
    tests, warnings = read(tmp_path, "q,_expected\na,b\n")
    assert tests[0]["vars"] == {"q": "a", "_expected": "b"}
    assert (warnings[0].hint, warnings[0].place) == ('did you mean "__expected"?', (1, 3))


def test_cells_that_look_like_assertions_are_reported_once_per_type(tmp_path: Path) -> None:
    text = "q,__expected\na,contians: x\nb,Paris: x\nc,contians: y\nd,max-score\n"
    tests, warnings = read(tmp_path, text)
    assert [test["assert"][0]["type"] for test in tests] == ["equals"] * 4
    assert [(warning.place, warning.at) for warning in warnings] == [
        ((2, 3), (0, "__expected")),
        ((5, 3), (3, "__expected")),
    ]


def test_all_mistakes_are_reported_at_their_cells(tmp_path: Path) -> None:
    text = 'q,r,__expected\nbad,2,contains\n1,2\n"3\n4",5,"contains-any: ""a"\n6,bad,a,7\n'
    assert refused(tmp_path, text) == [
        "2:7 0.__expected: no value",
        "3:1 1: a row of 2 cells under a header of 3",
        '5:6 2.__expected: the quotes in "\\"a" do not match',
        "6:1 3: a row of 4 cells under a header of 3",
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("q,r\n1\n", "2:1 0: a row of 1 cell under a header of 2"),
        ("q,r\n1,2,3\n", "2:1 0: a row of 3 cells under a header of 2"),
        ("q,r\n1,2\n\n3,4\n", "3:1 1: an empty line is not a valid row"),
        ("q,r\n1,bad\n", "2:3 0.r: a bad value"),
        ("q,r,q \n1,2,3\n", '1:5 q: duplicate column "q"'),
        ('q,r\n1,"2\n', "2:3 : a quote is never closed"),
        (b"q\n\xff\n", "2:1 : byte 2 (0xff) is not UTF-8"),
        (
            "__expected,__config:__expected:weight\na,1\n",
            (
                '1:12 __config:__expected:weight: "weight" is not a setting of an assertion in '
                '"__config:__expected:weight"'
            ),
        ),
        (
            "__config:assert:threshold\n1\n",
            (
                '1:1 __config:assert:threshold: "assert" is not a column of assertions in '
                '"__config:assert:threshold"'
            ),
        ),
        (
            "__config:__expected0:threshold\n1\n",
            (
                '1:1 __config:__expected0:threshold: "__expected0" is not a column of assertions in '
                '"__config:__expected0:threshold"'
            ),
        ),
        (
            "__expected,__config:__expected:threshold\na,most\n",
            '2:3 0.__config:__expected:threshold: must be a number, got "most"',
        ),
    ],
)
def test_a_mistake_is_reported_at_its_cell(tmp_path: Path, text: str | bytes, wanted: str) -> None:
    assert refused(tmp_path, text) == [wanted]


def test_misplaced_quotes_are_refused_in_strict_mode(tmp_path: Path) -> None:
    mistakes = refused(tmp_path, 'q\n5" wide\n', {"PROMPTFOO_CSV_STRICT": "true"})
    assert mistakes == ["2:2 : a cell that contains a quote must be quoted"]
