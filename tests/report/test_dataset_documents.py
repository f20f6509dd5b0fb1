"""Result files of tasks that generate datasets."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import attrs
import pytest
from finished import results_of
from made_datasets import CUT, FINE, MADE, results_of_dataset
from page_data import PageData

from trioeval.report.columns import dataset_json
from trioeval.report.files import FORMATS, write_results
from trioeval.report.formats.csv import csv_chunks
from trioeval.report.formats.document import document
from trioeval.report.formats.junit import junit_chunks
from trioeval.report.html_report import html_chunks
from trioeval.report.results import Results
from trioeval.report.strip import Strip


def exam() -> Results:
    """Return a task with rows next to it."""
    found = results_of()
    return attrs.evolve(found, head=attrs.evolve(found.head, task="exam"))


def test_a_document_has_the_dataset_of_each_task(tmp_path: Path) -> None:
    """The dataset is next to the common members of a task, which are empty."""
    path = tmp_path / "r.json"
    write_results(path, [results_of_dataset(MADE), exam()])
    tasks = json.loads(path.read_text())["tasks"]
    assert tasks["problems"]["dataset"] == json.loads(json.dumps(dataset_json(MADE)))
    assert tasks["problems"]["results"]["results"] == []
    assert tasks["problems"]["results"]["stats"]["successes"] == 0
    assert "dataset" not in tasks["exam"]


def test_stripped_parts_are_stripped_from_columns() -> None:
    """JSON documents include the dataset."""
    stripped = document(results_of_dataset(MADE, strip=Strip(response_output=True)))
    assert "apples" not in json.dumps(stripped["dataset"])


@pytest.mark.parametrize("suffix", sorted(FORMATS))
def test_every_format_accepts_a_run_of_datasets_alone(suffix: str, tmp_path: Path) -> None:
    """A dataset has no rows and no columns, which is valid."""
    path = tmp_path / f"r{suffix}"
    write_results(path, [results_of_dataset(MADE)])
    assert path.exists()


def test_a_table_of_rows_omits_datasets() -> None:
    """JUnit has a case for the dataset."""
    with_dataset = "".join(csv_chunks(exam(), results_of_dataset(MADE)))
    assert list(csv.reader(io.StringIO(with_dataset))) == list(
        csv.reader(io.StringIO("".join(csv_chunks(exam()))))
    )


def test_junit_has_a_case_for_each_dataset() -> None:
    """The case fails with a reason if rows are lost or not run."""
    text = "".join(junit_chunks(*map(results_of_dataset, (MADE, FINE, CUT)), exam()))
    root = ET.fromstring(text)  # noqa: S314 - our own text
    lost, fine, cut, *others = root
    assert (root.get("tests"), root.get("failures")) == ("7", "4")
    assert sum(int(suite.get("tests", "")) for suite in root) == 7
    assert [suite.get("name") for suite in others] == [
        "exam: [mine] prompt 1",
        "exam: [back] prompt 1",
    ]
    failure = lost.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "dataset problems: 1 row lost"
    assert failure.text == "row 7: problem failed after 6 calls: down\nrow 9: problem filtered"
    assert fine.find("testcase/failure") is None
    assert (fine.findtext("testcase/system-out") or "").startswith("98 of 100 rows written to ")
    why = cut.find("testcase/failure")
    assert why is not None
    assert why.get("message") == "dataset problems: 50 rows not run (the deadline)"


def test_a_page_has_a_table_of_columns() -> None:
    """Foreign text in the page is inert, and the page has no table of rows."""
    evil = attrs.evolve(
        MADE, first_error="<b>\x1b[1m", columns=(attrs.evolve(MADE.columns[0], name="<i>"),)
    )
    page = "".join(html_chunks(results_of_dataset(evil), exam()))
    dataset, _, rows = page.partition("<h2>exam</h2>")
    assert "98 of 100 rows written to /a/datasets/problems (Parquet, 4 groups)" in dataset
    assert "<b class=fail>complete</b>: 1 row lost</p>" in dataset
    assert "<td>&lt;i&gt;</td><td>sampler</td>" in dataset
    assert "<b>\x1b" not in page
    assert 'class="matrix"' not in dataset
    assert 'class="matrix"' in rows
    assert [part is None for part in PageData(page).data["parts"]] == [True, False]
    assert " 0 rows" not in PageData("".join(html_chunks(results_of_dataset(FINE)))).text
