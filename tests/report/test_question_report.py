"""Questions in reports: documents, spreadsheets, pages, JUnit, tables and single rows."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from finished import headed, records_of, totals_of
from page_data import PageData
from rich.console import Console

import trioeval
from trioeval.question_eval.counts import OUTCOMES, QuestionCounts
from trioeval.report.formats.csv import csv_chunks
from trioeval.report.formats.document import run_document
from trioeval.report.formats.junit import junit_chunks
from trioeval.report.html_report import html_chunks
from trioeval.report.question_eval import run_sentence, sentence
from trioeval.report.records import RowRecord, left
from trioeval.report.results import Results, RunInfo
from trioeval.report.row_view import row_view
from trioeval.report.strip import Strip
from trioeval.report.tables import FirstRows
from trioeval.report.totals import ColumnTotals, Totals
from trioeval.testing import run_virtual

_SAID = ("The sky is <answer>Blue</answer>", "<answer>Red</answer>", "dunno", None)


async def pupil(request: trioeval.Request) -> trioeval.Reply:
    number = int(request.vars["question"].removeprefix("Colour ").removesuffix("?"))
    usage = trioeval.Usage(prompt=2, completion=3, total=5)
    return trioeval.Reply(output=_SAID[number], usage=usage, cost=0.5)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Return one correct question, one incorrect, one without an answer, and one that failed."""
    questions = [
        {
            "id": f"q{n}",
            "question": f"Colour {n}?",
            "answers": ["Red", "Blue"],
            "correctAnswers": ["Blue"],
        }
        for n in range(4)
    ]
    (tmp_path / "q.json").write_text(json.dumps({"version": 1, "questions": questions}))
    task = {"id": "quiz", "type": "question_eval", "questionsFile": "q.json"}
    document = {"providers": ["pupil"], "tasks": [task]}
    suite = trioeval.parse_suite(document, directory=tmp_path).tasks[0].suite
    rows = run_virtual(lambda: trioeval.collect(suite, providers={"pupil": pupil}))
    records = records_of(rows)

    def read(column: int | None) -> Iterator[Mapping[str, Any]]:
        return (row for row in records if column is None or row["promptIdx"] == column)

    info = RunInfo(utc_exported="2026-01-01T00:00:01+00:00", duration_ms=1000.0)
    return Results(
        head=headed(suite, task="quiz"), totals=totals_of(suite, rows), info=info, records=read
    )


def only(results: Results, index: int) -> Mapping[str, Any]:
    return list(results.records(None))[index]


def test_a_record_contains_the_result_of_its_question(results: Results) -> None:
    """Results are in camelCase, without unknown values; `outcome` is one of seven words."""
    found = dict(only(results, 1)["question"])
    events = [event["event"] for event in found.pop("events")]
    assert events == ["queued", "scheduled", "reserving", "running", "parsing", "incorrect"]
    assert found == {
        "id": "q1",
        "question": "Colour 1?",
        "answers": ["Red", "Blue"],
        "correctAnswers": ["Blue"],
        "outcome": "incorrect",
        "correct": False,
        "agentAnswer": "Red",
        "answerListed": True,
        "tokensTotal": 5,
        "wallTimeSeconds": 0.0,
        "waitSeconds": 0.0,
        "attempts": 1,
        "agentSteps": 1,
    }
    fault = only(results, 2)["question"]["parseError"]
    assert fault == {"kind": "missing_answer", "message": "the reply has no </answer>"}
    error = only(results, 3)["question"]["runError"]
    assert error == {
        "kind": "empty_reply",
        "message": "the reply has no output",
        "retryable": True,
    }


def test_a_document_contains_the_status_of_the_task(results: Results) -> None:
    """A task has status and reason by precedence, and the counts of all questions."""
    task = run_document([results])["tasks"]["quiz"]
    assert (task["status"], task["failureReason"]) == ("error", "runtime_error")
    summary = {
        "questionsTotal": 4,
        "questionsEnded": 4,
        "questionsCorrect": 1,
        "questionsIncorrect": 3,
        "questionsByOutcome": {
            "correct": 1,
            "incorrect": 1,
            "parse_error": 1,
            "runtime_error": 1,
        },
        "accuracy": 0.25,
    }
    assert task["questionEval"] == {"questionsFile": "q.json", "summary": summary}
    assert task["results"]["prompts"][0]["metrics"]["questions"] == summary


def test_a_document_sums_all_question_tasks(results: Results) -> None:
    """Other tasks are not counted."""
    quiz, other = results.head, attrs.evolve(results.head, task="other", questions_file=None)
    empty = Totals.of(results.columns)
    parts = [
        results,
        attrs.evolve(results, head=other),
        attrs.evolve(results, head=attrs.evolve(quiz, task="none"), totals=empty),
    ]
    document = run_document(parts)
    assert list(document["tasks"]) == ["quiz", "other", "none"]
    assert document["summary"] == {
        "tasksTotal": 2,
        "tasksPassed": 0,
        "tasksFailed": 0,
        "tasksErrored": 2,
        "passRate": 0.0,
        "tokensTotal": 20,
        "questionsTotal": 4,
        "questionsEnded": 4,
        "questionsCorrect": 1,
        "questionsIncorrect": 3,
        "questionAccuracy": 0.25,
    }
    assert "summary" in run_document(parts[:1])
    assert "summary" not in run_document(parts[1:2])


def test_several_tasks_have_a_common_summary(results: Results) -> None:
    """Several tasks have a summary on a page and on a terminal; a single one does not."""
    first = (results.head, results.totals)
    passed = QuestionCounts.of(["correct"])
    second = (results.head, Totals([ColumnTotals(questions=passed)]))
    expected = (
        "2 tasks of questions: 1 passed, 0 failed, 1 error; "
        "2 of 5 correct, accuracy 0.400; 20 tokens"
    )
    assert run_sentence([first, second]) == expected
    assert run_sentence([first]) is None
    head = attrs.evolve(results.head, questions_file=None)
    assert run_sentence([first, (head, results.totals)]) is None
    page = "".join(html_chunks(results, attrs.evolve(results, totals=second[1])))
    assert f"<p>{expected}</p>" in page


def test_a_task_without_questions_is_an_error(results: Results) -> None:
    """Tasks without questions after filtering are errors: qe_40."""
    empty = attrs.evolve(results.totals, columns=[type(results.totals.columns[0])()])
    data = run_document([attrs.evolve(results, totals=empty)])["tasks"]["quiz"]
    assert (data["status"], data["failureReason"]) == ("error", "no_questions")
    assert data["questionEval"]["summary"]["accuracy"] == 0
    assert sentence(results.head, empty) == ("error (no_questions): 0 of 0 correct, accuracy 0.000")


def test_a_table_shows_the_chosen_answer(results: Results) -> None:
    """A question is shown by its text and its chosen answer, not by the whole reply."""
    first = FirstRows(60, 50)
    for record in results.records(None):
        test_case = {**record["testCase"], "description": None}
        first.add(RowRecord.of({**record, "testCase": test_case}))
    assert list(first.names.values()) == [f"Colour {n}?" for n in range(4)]
    assert [(cell.status.value, cell.text) for cell in first.cells.values()] == [
        ("pass", "Blue"),
        ("fail", "Red"),
        ("fail", "no answer: missing_answer"),
        ("error", "empty_reply: the reply has no output"),
    ]


def test_a_table_shows_the_reason_of_a_missing_answer(results: Results) -> None:
    """An exhausted budget is shown in place of the reply, unless replies are stripped."""
    reason = "3 steps are made, and 2 are allowed"
    run_error = {"kind": "budget_exceeded", "message": reason}
    question = {"outcome": "budget_exceeded", "runError": run_error}
    record = {**only(results, 2), "question": question}
    assert RowRecord.of(record).shown == f"budget exceeded: {reason}"
    bare = RowRecord.of(only(results, 1)).stripped(Strip(response_output=True))
    assert bare.shown == "[output stripped]"


def test_a_page_shows_the_answer_and_has_the_reply(results: Results) -> None:
    """The details of a row have the reply, the correct answer and the events."""
    page = PageData("".join(html_chunks(results)))
    assert [cell["text"] for (cell,) in page.cells() if cell is not None] == [
        "Blue",
        "Red",
        "no answer: missing_answer",
        "empty_reply: the reply has no output",
    ]
    assert [row["output"] for row in page.details()] == [
        "The sky is <answer>Blue</answer>",
        "<answer>Red</answer>",
        "dunno",
        None,
    ]
    block = dict(page.block(1, "question"))
    assert (block["ended"], block["answer"], block["right"]) == ("incorrect", "Red", "Blue")
    assert page.block(1, "events").splitlines()[0] == "    0.000 s  queued"
    assert page.block(3, "error") == "empty_reply: the reply has no output"
    assert "answer" not in dict(page.block(3, "question"))


def test_a_spreadsheet_has_outcome_and_answer(results: Results) -> None:
    """Spreadsheets have columns for questions."""
    head, *lines = csv.reader(io.StringIO("".join(csv_chunks(results))))
    assert head[-4:] == ["Outcome", "Answer", "Grader Reason", "Comment"]
    assert [line[-4:-2] for line in lines] == [
        ["correct", "Blue"],
        ["incorrect", "Red"],
        ["parse_error", ""],
        ["runtime_error", ""],
    ]
    assert {len(line) for line in (head, *lines)} == {len(head)}


def test_other_tasks_have_empty_question_cells(results: Results) -> None:
    """Each line has as many cells as the heading."""
    other = attrs.evolve(results, head=attrs.evolve(results.head, task="other"))
    head, *lines = csv.reader(io.StringIO("".join(csv_chunks(results, other))))
    assert {len(line) for line in lines} == {len(head)}


def test_junit_contains_the_outcome_of_a_question(results: Results) -> None:
    """JUnit has the outcome as the type of a failure, and as properties."""
    text = "".join(junit_chunks(results))
    assert '<property name="outcome" value="correct"/>' in text
    assert '<property name="answer" value="Red"/>' in text
    assert 'type="incorrect"' in text
    assert 'type="parse_error"' in text


def test_pages_and_terminals_show_a_summary_line(results: Results) -> None:
    """The line has status, accuracy, and other outcomes."""
    expected = (
        "error (runtime_error): 1 of 4 correct, accuracy 0.250, 1 parse error, 1 runtime error"
    )
    assert sentence(results.head, results.totals) == expected
    assert f"<p>{expected}</p>" in "".join(html_chunks(results))
    assert sentence(attrs.evolve(results.head, questions_file=None), results.totals) is None


def test_a_summary_counts_outcomes_in_order(results: Results) -> None:
    """Counts of any size fit."""
    many = {"skipped": 3, "parse_error": 10, "correct": 2, "runtime_error": 2, "cancelled": 100}
    found = QuestionCounts.of(name for name in OUTCOMES for _ in range(many.get(name, 0)))
    totals = Totals([ColumnTotals(questions=found)])
    assert sentence(results.head, totals) == (
        "error (runtime_error): 2 of 14 correct, accuracy 0.143, "
        "10 parse errors, 2 runtime errors, 100 cancelled, 3 skipped"
    )


def test_one_row_shows_its_answers_and_events(results: Results) -> None:
    """A single row shows the correct answer, the given answer, and the times of events."""
    console = Console(width=100, file=io.StringIO())
    with console.capture() as captured:
        console.print(row_view(RowRecord.of(only(results, 1))))
    text = captured.get()
    assert "question: incorrect\n  right: Blue\n  answer: Red\n" in text
    assert "      0.000 s  parsing" in text


@pytest.mark.parametrize(
    ("strip", "hidden"),
    [
        (Strip(test_vars=True), {"question", "answers", "correctAnswers"}),
        (Strip(response_output=True), {"agentAnswer"}),
    ],
)
def test_stripped_parts_are_not_in_question_reports(
    results: Results, strip: Strip, hidden: set[str]
) -> None:
    """Pages and terminals use the same words."""
    record = only(results, 1)
    assert set(record["question"]) - set(RowRecord.of(record).stripped(strip).question) == hidden


@pytest.mark.parametrize(
    ("strip", "secrets"),
    [
        (Strip(test_vars=True), ["Blue"]),
        (Strip(response_output=True), ["Red", "markup"]),
    ],
)
def test_reasons_omit_stripped_answers(results: Results, strip: Strip, secrets: list[str]) -> None:
    """Stripping removes the correct and the given answer, and keeps the outcome."""
    wrong, without = only(results, 1), only(results, 2)
    events = [*wrong["question"]["events"], {"event": "incorrect", "answer": "Red"}]
    record = {**wrong, "question": {**wrong["question"], "events": events}, "testCase": {}}
    found = RowRecord.of(record).stripped(strip).json
    shown = {
        name: found[name]
        if name != "question"
        else left(found[name], {"answers", "correctAnswers"})
        for name in ("error", "gradingResult", "question")
    }
    assert not [secret for secret in secrets if secret in json.dumps(shown)]
    assert (found["error"], found["gradingResult"]["reason"]) == ("incorrect", "incorrect")
    markup = "malformed_answer: the answer has markup in it: Red"
    found = RowRecord.of({**without, "error": markup}).stripped(strip).json
    assert (found["error"], found["gradingResult"]["reason"]) == ("parse_error", "parse_error")
    failed = RowRecord.of(only(results, 3))
    assert failed.stripped(strip).error == failed.error
