"""Hostile texts in all reports: no payload is executed, and no text is lost."""

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from finished import headed, records_of, totals_of
from hostile import (
    HUGE,
    SUITE,
    TEXTS,
    assert_inert_csv,
    assert_inert_html,
    assert_inert_markdown,
    assert_inert_terminal,
    assert_inert_xml,
    hostile_rows,
)
from rich.console import Console

from trioeval.report.files import FORMATS
from trioeval.report.formats.csv import inert_cell
from trioeval.report.formats.json import compact
from trioeval.report.head import config_tests
from trioeval.report.results import Results, RunInfo
from trioeval.report.row_view import row_view
from trioeval.report.run_list import run_line, runs_table
from trioeval.report.stored import StoredRunFacts
from trioeval.report.summary import RunUsage, failures_view, usage_lines
from trioeval.report.tables import Failures, FirstRows, columns_table, rows_table
from trioeval.text_safety import escape_control_characters, inert_lines

NAMES = " ".join(text for text in TEXTS.values() if len(text) < 200)


@pytest.fixture(scope="module")
def results() -> Results:
    """Return a run of all texts."""
    suite, rows = hostile_rows()
    records = records_of(rows)

    def read(column: int | None) -> Iterator[Mapping[str, Any]]:
        return iter(records if column in {None, 0} else ())

    return Results(
        head=headed(suite),
        totals=totals_of(suite, rows),
        info=RunInfo(utc_exported="2026-01-01T00:00:01+00:00", duration_ms=1000.0),
        records=read,
        tests=lambda: config_tests(suite),
    )


def text_of(results: Results, suffix: str) -> str:
    return "".join(FORMATS[suffix]([results]))


def shown(*pictures: Any, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for picture in pictures:
        console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 120])
def test_the_summary_is_inert(results: Results, width: int) -> None:
    """Tables, names, outputs, reasons and lanes are inert; markup of rich is text."""
    first, failures = FirstRows(40, 500), Failures(500)
    for index, record in enumerate(results.rows()):
        first.add(record)
        failures.add(index, record)
    text = shown(
        rows_table(results.columns, first),
        failures_view(results.columns, failures, lambda index: f"show {NAMES} {index}"),
        columns_table(results.columns, results.totals),
        width=width,
    )
    assert_inert_terminal(text, longest=width)
    assert "[bold red]hostile[/bold red]" in text.replace("\n", "") or width < 120
    lane = {"lanes": {NAMES: {"waits": {"slot": 2.0}}}}
    took = RunUsage(seconds=3.0, rows=1, tokens=0, activity=[lane])
    assert_inert_terminal("\n".join(usage_lines(took)), longest=200)


def test_rows_and_lists_of_runs_are_inert(results: Results) -> None:
    """Details of a row and lists of runs are inert."""
    for record in results.rows():
        assert_inert_terminal(shown(row_view(record), width=100), longest=100)
    run = StoredRunFacts(
        number=1,
        id=NAMES,
        suite=NAMES,
        description=NAMES,
        state="died",
        utc_created=NAMES,
        utc_finished=None,
        executions=1,
        duration_ms=0,
        rows=1,
        passed=0,
        failed=1,
        errors=0,
        outcomes={},
        tokens=0,
        cost=0,
        versions={},
        flags={},
        files={},
        derived=None,
        tasks=(NAMES,),
        sizes=(1,),
        parts=(1,),
    )
    assert_inert_terminal(shown(runs_table([run]), width=100), longest=100)
    assert_inert_terminal(run_line(run))


@pytest.mark.parametrize("name", TEXTS)
def test_each_text_is_inert_on_one_line_and_on_several(name: str) -> None:
    """Cut and uncut texts are inert."""
    text = TEXTS[name]
    for found in (escape_control_characters(text), escape_control_characters(text, 40)):
        assert_inert_terminal(found)
        assert "\n" not in found
    assert_inert_terminal(inert_lines(text, 100_000))


def test_huge_texts_are_truncated() -> None:
    """A megabyte on a line, and a hundred thousand lines, are cut."""
    for text in HUGE.values():
        assert len(escape_control_characters(text, 40)) <= 40
        assert len(inert_lines(text, 1000)) < 1100


def test_ordinary_combining_marks_are_kept() -> None:
    """A flood of combining marks is cut; ordinary text is not."""
    for text in (TEXTS["hebrew"], TEXTS["arabic"].strip(), "นี่คือน้ำ", "क्षत्रिय", "Việt Nam"):
        assert escape_control_characters(text) == text
    assert len(escape_control_characters(TEXTS["flood"])) < 20


def test_xml_is_valid_and_has_only_its_own_elements(results: Results) -> None:
    """JUnit XML contains no payload."""
    root = assert_inert_xml(text_of(results, ".junit.xml"))
    assert {element.tag for element in root.iter()} == {
        *("testsuites", "testsuite", "properties", "property", "testcase", "failure", "error")
    }
    assert len(root.findall(".//testcase")) == len(TEXTS)
    whole = assert_inert_xml(text_of(results, ".xml"))
    replies = [found.text or "" for found in whole.iterfind("./results/results/response/output")]
    assert TEXTS["script_end"] in replies


def test_no_spreadsheet_cell_is_executed(results: Results) -> None:
    """No cell is a formula behind blanks, tabs, line ends or invisible characters, or in wide characters."""
    lines = assert_inert_csv(text_of(results, ".csv"))
    assert len(lines) == len(TEXTS) + 1
    cells = {cell for line in lines for cell in line}
    outputs = {
        record["response"]["output"]
        for record in results.records(None)
        if record["response"] is not None
    }
    assert {inert_cell(text) for text in outputs} <= cells
    assert [inert_cell(text) for text in ("-1.5", "+2e3", "1", "a=1", "")] == [
        *("-1.5", "+2e3", "1", "a=1", "")
    ]


def test_data_formats_keep_every_text(results: Results) -> None:
    """JSON, JSON Lines and YAML preserve every character."""
    records = [*results.records(None)]
    assert [json.loads(compact(record)) for record in records] == records
    document = json.loads(text_of(results, ".json"))
    assert document["results"]["results"] == records
    lines = yaml.load(text_of(results, ".yaml"), yaml.CSafeLoader)["results"]["results"]
    for record, line in zip(records, lines, strict=True):
        output = (record["response"] or {"output": ""})["output"]
        if output.isprintable() or not any("\ud800" <= char <= "\udfff" for char in output):
            assert line["response"] == record["response"]
    assert SUITE["description"] == document["config"]["description"]


def test_pages_execute_nothing(results: Results) -> None:
    """A page has no markup or script of a payload."""
    assert_inert_html(text_of(results, ".html"))


def test_markdown_has_no_foreign_markup(results: Results) -> None:
    """Markdown has no link, image, heading or HTML of a payload."""
    text = text_of(results, ".md")
    assert_inert_markdown(text)
    assert_inert_terminal(text)
