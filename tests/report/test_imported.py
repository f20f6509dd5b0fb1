"""Result files of promptfoo as records, and the problems of invalid files."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from finished import SUITE, records_of, results_of, rows_of
from hypothesis import given
from hypothesis import strategies as st
from page_data import PageData
from test_several_parts import of_task

from trioeval.errors import SuiteError
from trioeval.report.compare import Comparison
from trioeval.report.formats.csv import csv_chunks
from trioeval.report.formats.document import run_document
from trioeval.report.formats.imported import Imported, ImportedTask, imported
from trioeval.report.formats.json import json_chunks, to_json
from trioeval.report.formats.junit import junit_chunks
from trioeval.report.html_report import html_chunks
from trioeval.report.records import RowRecord
from trioeval.report.results import Results, RunInfo
from trioeval.report.row_view import row_view
from trioeval.report.strip import KEEP_ALL, Strip
from trioeval.report.totals import Totals
from trioeval.run import Status

DATA = Path(__file__).parent / "data"
DOCUMENT = DATA / "promptfoo-0.123.1.json"
LINES = DATA / "promptfoo-0.123.1.jsonl"
"""The JSON and JSON Lines files that promptfoo 0.123.1 wrote of one run."""


def read(file: Path) -> ImportedTask:
    (task,) = imported(file.read_bytes(), file).tasks
    return task


def read_json(document: Any) -> Imported:
    return imported(to_json(document).encode("utf-8", "backslashreplace"), Path("r.json"))


def problems_of(document: Any) -> list[str]:
    with pytest.raises(SuiteError) as met:
        read_json(document)
    return [f"{problem.path}: {problem.message}" for problem in met.value.problems]


def results_from(task: ImportedTask, strip: Strip = KEEP_ALL) -> Results:
    totals = Totals.of(task.head.columns)
    for record in task.records:
        totals.add(RowRecord.of(record))
    for column, derived in zip(totals.columns, task.derived, strict=True):
        column.derived |= derived

    def records(column: int | None) -> Any:
        return (row for row in task.records if column is None or row["promptIdx"] == column)

    return Results(
        head=task.head,
        totals=totals,
        info=RunInfo(
            utc_exported="2026-01-01T00:00:01+00:00", duration_ms=task.duration_ms, strip=strip
        ),
        records=records,
        tests=lambda: iter(task.tests),
    )


def test_a_promptfoo_document_returns_its_rows_in_order() -> None:
    """Verdicts, outputs, parts and metrics are read unchanged."""
    task = read(DOCUMENT)
    places = [(row["testIdx"], row["promptIdx"]) for row in task.records]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [row["failureReason"] for row in task.records] == [0, 1, 0, 2, 0, 0]
    assert [row["metadata"]["trioeval"]["outcome"] for row in task.records][2:4] == [
        "done",
        "failed",
    ]
    assert task.records[0]["response"]["output"] == "Say hello <now>"
    assert task.records[5]["response"]["output"] == {
        "said": "Say json naïve <now>",
        "n": [1, 2.5],
    }
    assert task.records[3]["error"] == "the model is down"
    parts = task.records[0]["gradingResult"]["componentResults"]
    assert [part["score"] for part in parts] == [1, 0.5, 1, 0]
    assert [column.provider for column in task.head.columns] == ["echo", "loud"]
    assert task.head.eval_id.startswith("eval-")
    assert task.head.versions["promptfooVersion"] == "0.123.1"
    assert task.head.config["providers"][1]["config"]["apiKey"] == "[redacted]"
    assert len(task.tests) == 3
    assert task.derived == [{"twice": 4}, {"twice": 0}]
    assert task.duration_ms > 0


def test_totals_equal_those_of_promptfoo() -> None:
    """The numbers of all columns equal promptfoo's, as do costs and tokens."""
    exported = json.loads(DOCUMENT.read_text())["results"]
    results = results_from(read(DOCUMENT))
    found = json.loads("".join(json_chunks(run_document([results]))))["results"]
    for ours, theirs in zip(found["prompts"], exported["prompts"], strict=True):
        not_graded = ours["metrics"].pop(
            "testNotGradedCount", 0
        )  # only in our files, like intervals
        assert ours["metrics"].pop("statistics")["passRate"]["n"] == 3 - not_graded
        assert flat(ours["metrics"]) == pytest.approx(flat(theirs["metrics"]))
    assert found["stats"]["successes"] == exported["stats"]["successes"]
    assert found["stats"]["failures"] == exported["stats"]["failures"]
    assert found["stats"]["errors"] == exported["stats"]["errors"]


def flat(found: Mapping[str, Any], path: str = "") -> dict[str, float]:
    """Return all numbers of a document by path."""
    numbers: dict[str, float] = {}
    for name, part in found.items():
        numbers |= (
            flat(part, f"{path}.{name}") if isinstance(part, Mapping) else {f"{path}.{name}": part}
        )
    return numbers


def test_an_imported_run_can_be_written_in_every_format() -> None:
    """An imported run can be stored and shown."""
    for file in (DOCUMENT, LINES):
        results = results_from(read(file))
        assert results.totals.count(Status.ERROR) == 1
        assert "".join(csv_chunks(results)).count("\n") == 4
        assert "".join(junit_chunks(results)).count("<testcase ") == 6
        cells = [cell for row in PageData("".join(html_chunks(results))).cells() for cell in row]
        assert [cell is not None and cell["status"] for cell in cells].count(2) == 1


def test_json_lines_and_document_of_one_run_are_equal() -> None:
    """Lines may be in any order; columns come from rows."""
    lines, document = read(LINES), read(DOCUMENT)
    comparison = Comparison(lambda: map(RowRecord.of, lines.records))
    assert [*comparison.changes(map(RowRecord.of, document.records))] == []
    assert comparison.kinds == {"same": 6}
    names = [(column.provider, column.label) for column in lines.head.columns]
    assert names == [(column.provider, column.label) for column in document.head.columns]


@pytest.mark.parametrize(
    "parts",
    [
        [results_of()],
        [of_task(results_of(), "first"), of_task(results_of(), "second", "first")],
    ],
    ids=["one", "tasks"],
)
def test_an_exported_document_is_read_back(parts: Sequence[Results]) -> None:
    """A document that was read is written unchanged, with one task or several."""
    document = json.loads("".join(json_chunks(run_document(parts))))
    found = read_json(document)
    assert found.eval_id == "e1"
    assert [task.head.depends_on for task in found.tasks] == [
        part.head.depends_on for part in parts
    ]
    again = run_document([results_from(task) for task in found.tasks])
    assert json.loads("".join(json_chunks(again))) == document


def test_an_exported_record_is_read_unchanged() -> None:
    """Nothing is lost or added."""
    _, rows = rows_of()
    records = records_of(rows)
    lines = "\n".join(map(to_json, records)).encode()
    (task,) = imported(lines, Path("r.jsonl")).tasks
    assert list(task.records) == records


def table_of_version_2() -> dict[str, Any]:
    """Return the run of `DOCUMENT` in an older format."""
    document = json.loads(DOCUMENT.read_text())
    results = document["results"]
    rows = {(row["testIdx"], row["promptIdx"]): row for row in results.pop("results")}
    body = [
        {
            "vars": [rows[test, 0]["vars"]["word"]],
            "test": rows[test, 0]["testCase"],
            "outputs": [
                {
                    "pass": row["success"],
                    "text": (row["response"] or {}).get("output"),
                    "prompt": row["prompt"]["raw"],
                    **{
                        name: row[name]
                        for name in ("score", "namedScores", "latencyMs", "cost", "tokenUsage")
                    },
                    "gradingResult": row["gradingResult"],
                    **({"error": row["error"]} if row.get("error") else {}),
                }
                for row in (rows[test, column] for column in (0, 1))
            ],
        }
        for test in range(3)
    ]
    head = {"prompts": results.pop("prompts"), "vars": ["word"]}
    return {**document, "results": {**results, "version": 2, "table": {"head": head, "body": body}}}


def test_a_version_2_table_is_the_same_run() -> None:
    """The cells of an old table are rows."""
    (task,) = read_json(table_of_version_2()).tasks
    comparison = Comparison(lambda: map(RowRecord.of, task.records))
    assert [*comparison.changes(map(RowRecord.of, read(DOCUMENT).records))] == []
    assert comparison.kinds == {"same": 6}


def test_empty_table_cells_are_not_rows() -> None:
    """A file with a gap can be written in all formats."""
    document = table_of_version_2()
    document["results"]["table"]["body"][0]["outputs"][1] = None
    document["config"]["env"] = "none"
    (task,) = read_json(document).tasks
    assert [(row["testIdx"], row["promptIdx"]) for row in task.records][:2] == [(0, 0), (1, 0)]
    results = results_from(task)
    assert None in [cell for row in PageData("".join(html_chunks(results))).cells() for cell in row]
    assert "".join(csv_chunks(results)).count("\n") == 4


def least() -> dict[str, Any]:
    """Return a minimal document."""
    return {
        "results": {
            "prompts": [{"raw": "p", "provider": "m"}],
            "results": [{"testIdx": 0, "promptIdx": 0, "success": True}],
        }
    }


def test_missing_fields_get_defaults() -> None:
    """A position and a success are enough for a row in all formats."""
    (task,) = read_json(least()).tasks
    (record,) = task.records
    _, rows = rows_of()
    assert set(records_of(rows)[0]) == set(record)
    assert (record["score"], record["failureReason"], record["vars"]) == (1, 0, {})
    results = results_from(task)
    for chunks in (csv_chunks, junit_chunks, html_chunks):
        assert "".join(chunks(results))
    again = read_json(least())
    assert again.eval_id == read_json(least()).eval_id  # the id is a digest of the content


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"testIdx": None}, "testIdx: must be a whole number ≥ 0, got null"),
        ({"promptIdx": -1}, "promptIdx: must be a whole number ≥ 0, got -1"),
        ({"promptIdx": 3}, "promptIdx: must be less than 1, got 3"),
        ({"success": None}, "success: must be true or false, got null"),
        ({"failureReason": 7}, "failureReason: must be 0, 1 or 2, got 7"),
        ({"score": "1"}, 'score: must be a number, got "1"'),
        ({"score": 10**400}, "score: must be a number, got a number with very many digits"),
        ({"score": True}, "score: must be a number, got true"),
        ({"vars": [1]}, "vars: must be an object, got [1]"),
        ({"error": {}}, "error: must be a text, got {}"),
        ({"response": "x"}, 'response: must be an object, got "x"'),
        ({"testCase": {"assert": {}}}, "testCase.assert: must be a list, got {}"),
        ({"namedScores": {"a": "b"}}, 'namedScores.a: must be a number, got "b"'),
        (
            {"gradingResult": {"pass": True, "componentResults": [{}]}},
            "gradingResult.componentResults[0].pass: must be true or false, got null",
        ),
        ({"tokenUsage": {"total": "9"}}, 'tokenUsage.total: must be a number, got "9"'),
        (
            {"metadata": {"trioeval": {"outcome": "x"}}},
            "metadata.trioeval.outcome: must be one of done, failed, timed_out, ",
        ),
        ({"provider": {"id": 5}}, "provider.id: must be a text, got 5"),
    ],
)
def test_values_of_the_wrong_type_are_reported_with_their_path(
    change: dict[str, Any], problem: str
) -> None:
    """An invalid file is not imported."""
    document = least()
    document["results"]["results"][0] |= change
    problems = problems_of(document)
    assert any(one.startswith(f"$.results.results[0].{problem}") for one in problems)


def test_problems_are_reported_together_up_to_a_limit() -> None:
    """The first twenty problems are reported, and the others are counted."""
    document = least()
    row = document["results"]["results"][0]
    document["results"]["results"] = [row | {"testIdx": n, "score": "x"} for n in range(50)]
    problems = problems_of(document)
    assert len(problems) == 21
    assert problems[-1] == "$: and 30 more problems"


def test_two_rows_in_one_position_are_rejected() -> None:
    """They are reported as a problem."""
    document = least()
    document["results"]["results"] *= 2
    assert problems_of(document) == ["$: has two rows of testIdx 0 and promptIdx 0"]
    row = json.dumps(document["results"]["results"][0]).encode()
    with pytest.raises(SuiteError, match="has two rows of testIdx 0"):
        imported(row + b"\n" + row, Path("a.jsonl"))


@pytest.mark.parametrize(
    ("data", "file", "message"),
    [
        (b"", "a.json", "is not JSON: Expecting value"),
        (b"{", "a.json", r"a.json:1:2: \$: is not JSON"),
        (b"[]", "a.json", r"a.json: must be an object, got \[\]"),
        (b"{}", "a.json", r"\$.results: must be an object with the results of a run, got null"),
        (b'{"results": []}', "a.json", "results of a run, got "),
        (b'{"tasks": 3}', "a.json", r"\$.tasks: must be an object, got 3"),
        (b"\xff\xfe", "a.json", "must be UTF-8, got byte 0xff at 0"),
        (b"", "a.jsonl", "has no rows"),
        (b"\n{}\nno\n", "a.jsonl", "a.jsonl:3: "),
        (b"[" * 100_000, "a.json", "is nested too deeply"),
    ],
)
def test_a_file_that_is_not_a_result_file_is_rejected(data: bytes, file: str, message: str) -> None:
    """Problems have the file, and the line and column if possible."""
    with pytest.raises(SuiteError, match=message):
        imported(data, Path(file))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return all containers of a document with each of their keys."""
    keys: Sequence[Any] = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    return [found for key in keys for found in [(value, key), *_places(value[key])]]


@pytest.mark.slow
@given(st.data())
def test_any_document_is_read_or_rejected(data: st.DataObject) -> None:
    """A rejected document has problems with paths."""
    source = data.draw(st.sampled_from(SOURCES))
    document = copy.deepcopy(source)
    container, key = data.draw(st.sampled_from(_places(document)))
    container[key] = data.draw(st.sampled_from(JUNK))
    try:
        found = read_json(document)
    except SuiteError:
        return
    for task in found.tasks:
        results = results_from(task, data.draw(st.sampled_from([KEEP_ALL, KEEP_LITTLE])))
        for chunks in (csv_chunks, junit_chunks, html_chunks):
            assert "".join(chunks(results))
        assert "".join(json_chunks(run_document([results])))
        for record in task.records:
            assert row_view(RowRecord.of(record))


JUNK: Sequence[Any] = [None, True, 3, -1.5, "x", [], {}, [[]], {"a": []}, [None], 10**30]
KEEP_LITTLE = Strip(
    prompt_text=True, response_output=True, test_vars=True, grading_result=True, metadata=True
)
SOURCES = [
    json.loads(DOCUMENT.read_text()),
    table_of_version_2(),
    json.loads("".join(json_chunks(run_document([results_of(SUITE)])))),
]


def test_an_imported_run_has_its_longest_task() -> None:
    """Imported rows match rows of the same suite."""
    (task,) = read_json(least()).tasks
    both = Imported([task, attrs.evolve(task, duration_ms=7.0)])
    assert both.duration_ms == 7.0
