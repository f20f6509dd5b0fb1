"""The usage of judges in all reports, separate from that of providers."""

import csv
import io
import xml.etree.ElementTree as ET

from finished import headed, results_of, rows_of, totals_of
from rich.console import Console

import trioeval
from trioeval.cli.run.exit_status import spent_line
from trioeval.report.formats.csv import csv_chunks
from trioeval.report.formats.junit import junit_chunks
from trioeval.report.results import Results
from trioeval.report.tables import columns_table

JUDGED = {
    "providers": ["echo"],
    "prompts": ["{{word}}"],
    "tests": [
        {
            "vars": {"word": "hi"},
            "assert": [{"type": "llm-rubric", "value": "is kind", "provider": "mine"}],
        },
        {"vars": {"word": "ho"}},
    ],
}


async def judge(_request: trioeval.Request) -> trioeval.Reply:
    output = '{"pass": true, "score": 1, "reason": "it is"}'
    return trioeval.Reply(output=output, usage=trioeval.Usage(total=570), cost=0.019)


async def free(_request: trioeval.Request) -> trioeval.Reply:
    return trioeval.Reply(output='{"pass": true, "score": 1, "reason": "it is"}')


def cells_of(results: Results) -> list[list[str]]:
    return list(csv.reader(io.StringIO("".join(csv_chunks(results)))))


def properties_of(results: Results) -> list[dict[str | None, str | None]]:
    root = ET.fromstring("".join(junit_chunks(results)))  # noqa: S314 - our own text
    return [
        {one.get("name"): one.get("value") for one in case.iter("property")}
        for case in root.iter("testcase")
    ]


def test_a_spreadsheet_has_cells_for_judges_if_there_are_any() -> None:
    """Rows without judges have empty cells, as have unknown costs."""
    head, judged, alone = cells_of(results_of(JUDGED, judge))
    assert head[-4:] == ["Grader Reason", "Grading Tokens", "Grading Cost", "Comment"]
    assert (judged[-3:], alone[-3:]) == (["570", "0.019", ""], ["", "", ""])
    assert cells_of(results_of(JUDGED, free))[1][-3:] == ["0", "", ""]
    plain = {**JUDGED, "tests": [{"vars": {"word": "hi"}}]}
    assert cells_of(results_of(plain))[0][-2:] == ["Grader Reason", "Comment"]


def test_tasks_without_judges_have_empty_judge_cells() -> None:
    """All lines have equally many cells."""
    plain = {**JUDGED, "tests": [{"vars": {"word": "hi"}}]}
    text = "".join(csv_chunks(results_of(plain), results_of(JUDGED, judge)))
    assert len({len(line) for line in csv.reader(io.StringIO(text))}) == 1


def test_junit_contains_the_usage_of_judges() -> None:
    """Judged cases have properties."""
    judged, alone = properties_of(results_of(JUDGED, judge))
    assert (judged["grading.tokens"], judged["grading.cost"]) == ("570", "0.019")
    assert not alone.keys() & {"grading.tokens", "grading.cost"}
    assert "grading.cost" not in properties_of(results_of(JUDGED, free))[0]


def test_the_table_and_a_line_show_the_usage_of_judges() -> None:
    """Without judges neither the table nor the line mentions them."""
    suite, rows = rows_of(JUDGED, judge)
    totals = totals_of(suite, rows)
    console = Console(file=io.StringIO(), width=140)
    with console.capture() as shown:
        console.print(columns_table(headed(suite).columns, totals))
    head, _, line, *_ = [one for one in shown.get().splitlines() if one.strip()]
    assert (head.split()[-3:], line.split()[-2:]) == (["tokens", "grading", "tokens"], ["0", "570"])
    assert spent_line(totals) == ("used: 0 tokens; by judges: 570 tokens, $0.0190, in 1 request")


def test_without_judges_only_costs_have_a_line() -> None:
    """Tokens alone are only in the table."""
    assert spent_line(totals_of(*rows_of())) == "used: 5 tokens, $0.5000"
    assert spent_line(totals_of(*rows_of({**JUDGED, "tests": [{"vars": {"word": "a"}}]}))) is None
