"""Result files of a run with several tasks, which are distinguished."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import attrs
import yaml
from finished import SUITE, results_of, rows_of

from trioeval.report.files import write_results
from trioeval.report.formats.csv import csv_chunks
from trioeval.report.formats.document import run_document
from trioeval.report.formats.junit import junit_chunks
from trioeval.report.records import RowRecord
from trioeval.report.results import Results
from trioeval.report.row import row_json
from trioeval.report.totals import ColumnTotals, Totals
from trioeval.run import Status


def of_task(results: Results, task: str, *depends_on: str) -> Results:
    head = attrs.evolve(results.head, task=task, depends_on=depends_on)
    return attrs.evolve(results, head=head)


def two() -> Sequence[Results]:
    """Return the same run as two tasks, with other variables in the second one."""
    other = {"providers": ["mine"], "tests": [{"vars": {"prompt": "x", "z": 1}}]}
    return [
        of_task(results_of(), "first"),
        of_task(results_of(other), "second", "first"),
    ]


def test_a_document_contains_each_task(tmp_path: Path) -> None:
    """Each has its id as key, and is streamed like any other, in every format."""
    parts = two()
    for suffix in ("json", "yaml", "xml"):
        write_results(tmp_path / f"r.{suffix}", parts)
    found = json.loads((tmp_path / "r.json").read_text())
    assert list(found) == ["evalId", "tasks", "shareableUrl", "metadata"]
    assert list(found["tasks"]) == ["first", "second"]
    assert found["tasks"]["second"]["dependsOn"] == ["first"]
    assert len(found["tasks"]["first"]["results"]["results"]) == 4
    assert yaml.safe_load((tmp_path / "r.yaml").read_text()) == found
    root = ET.parse(tmp_path / "r.xml").getroot()  # noqa: S314 - our own text
    assert len(root.findall("tasks/first/results/results")) == 4


def test_a_run_without_tasks_has_the_document_of_its_only_part() -> None:
    """The document has no enclosing member."""
    assert "results" in run_document([results_of()])


def test_a_table_has_the_columns_of_all_tasks() -> None:
    """Cells of other tasks are empty; variables are joined; the first column is the task."""
    first, *lines = csv.reader(io.StringIO("".join(csv_chunks(*two()))))
    assert first[:5] == ["Task", "Description", "word", "prompt", "z"]
    assert [line[0] for line in lines] == ["first", "first", "second"]
    place = first.index("[mine] {{prompt}}")
    assert [line[place + 1 : place + 3] for line in lines] == [
        ["", ""],
        ["", ""],
        ["NOT GRADED", ""],
    ]
    assert {len(line) for line in lines} == {len(first)}


def test_junit_counts_all_tasks_and_names_them() -> None:
    """The counts at the top are those of the whole run."""
    root = ET.fromstring("".join(junit_chunks(*two())))  # noqa: S314 - our own text
    assert root.get("tests") == "5"
    assert [suite.get("name") for suite in root] == [
        "first: [mine] prompt 1",
        "first: [back] prompt 1",
        "second: [mine] prompt 1",
    ]


def test_scores_added_by_an_extension_are_counted_like_metrics() -> None:
    """Each counts once with weight 1; scores of assertions keep their weights."""
    _, rows = rows_of()
    scored = next(row for row in rows if row.verdict is not None and row.verdict.parts)
    assert scored.verdict is not None
    scores = {**scored.verdict.named_scores, "extra": 0.25}
    totals = ColumnTotals()
    verdict = attrs.evolve(scored.verdict, named_scores=scores)
    totals.add(RowRecord.of(row_json(attrs.evolve(scored, verdict=verdict), "e1")))
    assert totals.named_scores == {"m": 3, "extra": 0.25}
    assert totals.named_weights == {"m": 4, "extra": 1}
    assert totals.metrics == ["extra", "m"]


def test_joined_totals_are_the_sums_of_all_parts() -> None:
    """Rows, statuses and ends of rows are added."""
    joined = Totals.joined(part.totals for part in two())
    assert joined.rows == 2 * len(SUITE["providers"]) + 1
    alone = [part.totals for part in two()]
    for status in Status:
        assert joined.count(status) == sum(totals.count(status) for totals in alone)
    assert joined.outcome("done") == sum(totals.outcome("done") for totals in alone)
