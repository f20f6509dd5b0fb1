"""Result files of every format: their contents, and inert foreign text."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from typing import Any

import attrs
import pytest
import yaml
from finished import SUITE, mine, records_of, results_of, rows_of
from hypothesis import given
from hypothesis import strategies as st

import trioeval
from trioeval.report.formats.csv import csv_chunks, inert_cell
from trioeval.report.formats.document import document
from trioeval.report.formats.json import compact, indented, json_chunks, to_json
from trioeval.report.formats.junit import junit_chunks, xml_chunks
from trioeval.report.formats.yaml import yaml_chunks
from trioeval.report.results import Results
from trioeval.report.strip import Strip

values = st.recursive(
    # Numbers beyond 64 bits are written by the slower encoder, together with everything in the same call.
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(values, max_size=3), values)
def test_streamed_json_equals_json_written_at_once(rows: list[Any], other: Any) -> None:
    """The documents are equal wherever the stream is."""
    whole = {"a": other, "results": {"b": other, "results": rows, "c": other}, "d": other}
    streamed = whole | {"results": {"b": other, "results": iter(rows), "c": other}}
    text = "".join(json_chunks(streamed))
    assert text == indented(whole)
    assert json.loads(text) == json.loads(to_json(whole))
    assert text.split("\n")[0] == "{"


@given(values | st.integers())
def test_compact_json_has_the_same_content(value: Any) -> None:
    """Lone surrogates and numbers beyond 64 bits, which orjson refuses, are written."""
    assert json.loads(compact(value)) == json.loads(to_json(value))


@pytest.mark.parametrize("value", [{"a": "\ud800 lone"}, [2**70, -(2**70)], {1: 2}, {"a": {3}}])
def test_values_that_orjson_refuses_are_written(value: Any) -> None:
    """Indented text has two spaces for each level."""
    assert compact(value) == to_json(value)
    assert indented(value, "\n  ") == to_json(value, indent=2).replace("\n", "\n  ")


@given(st.lists(values, max_size=3), values)
def test_streamed_yaml_has_the_content_of_json(rows: list[Any], other: Any) -> None:
    """Values survive the rules of YAML 1.1; surrogates become escapes."""
    text = "".join(yaml_chunks({"a": other, "results": {"results": iter(rows), "c": other}}))
    whole = json.loads(to_json({"a": other, "results": {"results": rows, "c": other}}))
    assert yaml.safe_load(text) == escaped(whole)


def escaped(value: Any) -> Any:
    """Return a value with escapes for surrogates."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case list():
            return [escaped(part) for part in value]
        case dict():
            return {escaped(key): escaped(part) for key, part in value.items()}
        case _:
            return value


@pytest.mark.parametrize("text", ["1e3", "0o10", "no", "12:30", "2026-01-01", "~", ".5", "-1"])
def test_yaml_text_is_text_by_the_rules_of_1_1_and_1_2(text: str) -> None:
    """Ambiguous text is quoted, so that no parser reads a number, a date or a boolean."""
    assert "".join(yaml_chunks([text])) in {f'- "{text}"\n', f"- '{text}'\n"}


def read_csv(results: Results) -> list[list[str]]:
    return list(csv.reader(io.StringIO("".join(csv_chunks(results)))))


def test_a_spreadsheet_has_a_line_for_each_test_and_cells_for_each_column() -> None:
    """A line has description, variables, and for each column output, status, scores and reason."""
    head, first, second = read_csv(results_of())
    group = ["Status", "Score", "Named Scores", "Metric: m", "Grader Reason", "Comment"]
    assert head == [
        "Description",
        "word",
        "[mine] say {{word}}",
        *group,
        "[back] say {{word}}",
        *group,
    ]
    reason = 'the output does not equal "no"'
    graded = ["say hi", "FAIL", "0.75", '{"m":0.75}', "0.75", reason, ""]
    assert first == ["", "hi", *graded, *graded]
    assert second == [
        *("second", "ho"),
        *("", "ERROR", "0.00", "", "", "server: down", ""),
        *("say ho", "PASS", "1.00", "", "", "all assertions passed", ""),
    ]


@pytest.mark.parametrize("outcome", ["not_run", "interrupted", "blocked"])
def test_a_row_that_was_not_run_has_no_score_in_a_spreadsheet(outcome: str) -> None:
    """It is not an error, and averages of scores leave it out."""
    records = records_of(rows_of()[1])
    records[2]["metadata"]["trioeval"]["outcome"] = outcome
    results = attrs.evolve(results_of(), records=lambda _column: iter(records))
    line = read_csv(results)[2]
    assert line[2:5] == ["", "NOT RUN", ""]


def answers(text: Any) -> trioeval.Provider:
    async def provider(_request: trioeval.Request) -> trioeval.Reply:
        return trioeval.Reply(output=text)

    return provider


ONE = {"providers": ["mine"], "prompts": ["x"]}


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-a", "@sum", " \t=1", "\u200b=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    """An apostrophe makes a formula text, unless that is disabled."""
    cell = read_csv(results_of(ONE, answers(text)))[1][0]
    assert (cell[0], cell.replace("'", "")) == ("'", text)
    assert read_csv(results_of(ONE, answers(text), escape=False))[1][0] == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_in_cells_stay_numbers(number: float) -> None:
    """Numbers stay numbers, also negative ones."""
    assert inert_cell(repr(number)) == repr(number)


@pytest.mark.parametrize(("output", "cell"), [({"a": [1.0]}, '{"a":[1]}'), (0, "0"), ("", "")])
def test_an_output_that_is_not_text_is_json_in_its_cell(output: Any, cell: str) -> None:
    """Numbers are written like JavaScript does."""
    assert read_csv(results_of(ONE, answers(output)))[1][0] == cell


def test_junit_has_a_suite_for_each_column_and_a_case_for_each_row() -> None:
    """Cases have names, properties, and the reason if they did not pass."""
    root = ET.fromstring("".join(junit_chunks(results_of())))  # noqa: S314 - our own text
    assert root.attrib == {
        "name": "trioeval",
        "tests": "4",
        "failures": "2",
        "errors": "1",
        "skipped": "0",
        "time": "0.000",
    }
    assert [suite.get("name") for suite in root] == ["[mine] prompt 1", "[back] prompt 1"]
    failed, broken = root[0]
    assert (failed.get("name"), broken.get("name")) == ("row 0 (word=hi)", "row 2 (second)")
    assert {found.get("name"): found.get("value") for found in failed.iter("property")} == {
        "score": "0.75",
        "score.m": "0.75",
        "tokens": "5",
        "cost": "0.5",
    }
    failure, error = failed.find("failure"), broken.find("error")
    assert failure is not None
    assert failure.get("type") == "assertion"
    assert failure.text == (
        'Score: 0.75\nReason: the output does not equal "no"; output: "say hi"\n'
        "Failed assertions:\n- equals"
    )
    assert error is not None
    assert (error.get("message"), error.text) == ("server: down", "server: down")
    passed = root[1][1]
    assert [part.tag for part in passed] == ["properties"]


def test_junit_distinguishes_columns_with_equal_provider_names() -> None:
    """Columns of one provider are distinguished, also if two entries have the same label."""
    suite = {"providers": ["mine", {"id": "mine"}], "prompts": ["x", "y"]}
    root = ET.fromstring("".join(junit_chunks(results_of(suite))))  # noqa: S314 - our own text
    assert [found.get("name") for found in root] == [f"[mine] prompt {n}" for n in (1, 2, 3, 4)]


@given(st.text() | st.text(st.characters(max_codepoint=0x20)), st.text())
def test_xml_accepts_any_text_and_omits_only_invalid_characters(name: str, text: str) -> None:
    """Characters that XML cannot represent are left out; all others are preserved."""
    (found,) = ET.fromstring("".join(xml_chunks("root", {name: text})))  # noqa: S314 - our own text
    allowed = "".join(char for char in text if char in "\t\n\r" or is_xml(ord(char)))
    assert (found.text or "") == allowed
    assert found.tag in {name, "entry"}


def is_xml(code: int) -> bool:
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def test_control_characters_do_not_break_junit() -> None:
    """Control characters are not in outputs, reasons, descriptions or names of providers."""
    evil = "a\x00\x1b]<&>\"'\ud800\ufffe\n"
    suite = {
        "providers": [{"id": "mine", "label": evil[:-4] + "\n"}],
        "prompts": ["x"],
        "tests": [{"description": "d\x01<", "assert": [{"type": "equals", "value": "\x02<"}]}],
    }
    results = results_of(suite, answers(evil))
    text = "".join(junit_chunks(results)).encode()
    (found,) = ET.fromstring(text).iter("testcase")  # noqa: S314 - our own text
    assert found.get("name") == "row 0 (d <)"


def test_xml_is_the_document_as_elements() -> None:
    """The root is promptfoo's; every row is an element `results`."""
    root = ET.fromstring("".join(xml_chunks("promptfoo", document(results_of()))))  # noqa: S314 - our own text
    rows = root.findall("results/results")
    assert [row.findtext("success") for row in rows] == ["false", "false", "false", "true"]
    assert rows[0].findtext("vars/word") == "hi"
    assert rows[3].findtext("error") == ""


STRIPS = {
    "prompt_text": "say hi",
    "response_output": "it is",
    "test_vars": '"word"',
    "grading_result": "does not equal",
    "metadata": '"case"',
}


@pytest.mark.parametrize("name", STRIPS)
def test_stripped_parts_are_absent(name: str) -> None:
    """They are missing in the document and in its rows; all others are present."""
    suite = SUITE | {"prompts": ["say {{word}}"]}
    whole = "".join(json_chunks(document(results_of(suite))))
    assert STRIPS[name] in whole
    strip = Strip(**{name: True})

    async def quiet(request: trioeval.Request) -> trioeval.Reply:
        if request.test_idx:
            raise trioeval.ProviderError("server", "down", body_excerpt="it is")
        return trioeval.Reply(output="x")

    provider = quiet if name == "prompt_text" else mine
    providers = ["mine"] if name == "prompt_text" else SUITE["providers"]
    left = results_of(suite | {"providers": providers}, provider, strip=strip)
    text = "".join(json_chunks(document(left)))
    assert STRIPS[name] not in text
    assert STRIPS[name] not in "".join(junit_chunks(left))
    if name == "prompt_text":
        assert "say {{word}}" not in text
    assert "".join(junit_chunks(left)).count("<testcase") == len(list(left.shown()))
    assert len(read_csv(left)) == 3
