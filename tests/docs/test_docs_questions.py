"""The shipped questions, their recorded replies, and the script that makes questions of other data."""

import doctest
import json
import math
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from server_process import fake_provider
from snippets import DOCS
from workbench import lay_out, load

from trioeval.loading.load import load_suite
from trioeval.question_eval.model import Question, QuestionSettings
from trioeval.question_eval.result import judged

EXAMPLES = DOCS / "examples"
SCRIPT = DOCS / "howto" / "questions_from_gsm8k.py"
TUTORIAL = DOCS / "tutorial.md"
SUBJECTS = {
    *("arithmetic", "geometry", "geography", "physics", "chemistry", "biology"),
    *("computing", "language", "logic"),
}
_OVER = re.compile(r"(\S+): (?:correct|incorrect|parse error)\b")

script = load(SCRIPT)


def trioeval(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trioeval", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def shipped() -> dict[str | None, Question]:
    settings = load_suite(EXAMPLES / "questions.json").tasks[0].suite.settings
    assert isinstance(settings, QuestionSettings)
    return {question.id: question for question in settings.questions}


def test_the_shipped_questions_cover_nine_subjects() -> None:
    """Each has eight different questions, and no position of the answer is a better guess than others."""
    questions = shipped().values()
    named = Counter(str(question.id).rpartition("-")[0] for question in questions)
    assert named == dict.fromkeys(SUBJECTS, 8)
    assert len({question.question for question in questions}) == 72
    assert {len(question.answers) for question in questions} == {4}
    places = Counter(q.answers.index(right) for q in questions for right in q.correct_answers)
    assert all(16 <= places[place] <= 24 for place in range(4)), places


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("arithmetic-1", {17 * 6}),
        ("arithmetic-3", {240 * 15 // 100}),
        ("arithmetic-5", {n for n in (51, 53, 57, 59) if all(n % d for d in range(2, n))}),
        ("arithmetic-6", {100 % 7}),
        ("arithmetic-8", {-8 - (-3)}),
        ("geometry-2", {math.isqrt(6**2 + 8**2)}),
        ("geometry-4", {4 * math.isqrt(49)}),
        ("computing-1", {0b1011}),
        ("computing-3", {len("a" * 3 + "bc")}),
        ("computing-5", {math.ceil(math.log2(1000 + 1))}),
        ("computing-8", {0xFF}),
        ("logic-2", {6 * 7}),
        ("logic-8", {math.comb(5, 2)}),
    ],
)
def test_computable_answers_are_right(name: str, right: set[int]) -> None:
    """The correct answers are all the computed ones, and no others."""
    assert set(shipped()[name].correct_answers) == set(map(str, right))


def test_the_recorded_replies_are_the_output_of_their_script() -> None:
    """They are equal byte by byte, so the file can be verified."""
    made = subprocess.run(
        [sys.executable, "question_replies.py", "general-knowledge.yaml"],
        cwd=EXAMPLES,
        capture_output=True,
        check=True,
    )
    assert made.stdout == (EXAMPLES / "question-replies.jsonl").read_bytes()


def test_the_recorded_replies_fail_in_every_way_of_the_tutorial() -> None:
    """Most are right; some are wrong, name another choice, or do not end as the prompt demands."""
    found: Counter[str] = Counter()
    by_prompt = {q.question: q for q in shipped().values()}
    for line in (EXAMPLES / "question-replies.jsonl").read_text().splitlines():
        recorded = json.loads(line)
        question = recorded["prompt"].partition("Question:\n")[2].partition("\n\nChoices:")[0]
        result = judged(by_prompt[question], recorded["output"])
        fault = result.parse_error
        wrong = fault.kind if fault else f"listed: {result.answer_listed}"
        found["correct" if result.correct else wrong] += 1
    assert found["correct"] == 111
    assert set(found) == {
        *("correct", "listed: True", "listed: False", "missing_answer", "trailing_text"),
    }


@pytest.mark.slow
def test_after_an_interrupt_only_the_other_questions_are_sent(tmp_path: Path) -> None:
    """This is the tutorial: Ctrl-C in the middle, then resume."""
    lay_out(TUTORIAL, tmp_path)
    suite = tmp_path / "one_by_one.yaml"
    suite.write_text(suite.read_text().replace("thorough", "quick"))  # so it takes less time
    flags = ["one_by_one.yaml", "--no-table", "--verbose"]
    with subprocess.Popen(
        [sys.executable, "-m", "trioeval", *flags],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stderr is not None
        answered = set()
        for line in run.stderr:
            if over := _OVER.search(line):
                answered.add(over[1])
                if len(answered) == 3:
                    run.send_signal(signal.SIGINT)
            last = line
    assert run.returncode == 130
    assert 3 <= len(answered) < 72
    assert "exit 130: interrupted by SIGINT; continue with: trioeval resume eval-" in last
    resumed = trioeval(tmp_path, "resume", "--verbose")
    assert resumed.returncode == 100, resumed.stderr
    question = re.findall(r"(\S+): running", resumed.stderr)
    assert len(question) == len(set(question)) == 72 - len(answered)
    assert answered.isdisjoint(question)
    assert "48 passed, 24 failed, 0 errors; exit 100: 24 rows failed" in resumed.stderr


def record(question: str, answer: str, **verdicts: tuple[str, bool]) -> dict[str, Any]:
    models = {
        name: {"solution": text, "is_correct": right} for name, (text, right) in verdicts.items()
    }
    return {"question": question, "final_answer": answer, "models": models}


RECORDS = [
    record("One and one?", "2", a=("1 + 1 = 2\nA: 2", True), b=("A: 3", False)),
    record("Nine times 1,200?", "10,800", a=("A: 10800", True), b=("A: $10,800.00", True)),
    record("Half of 5?", "2.50", a=("A: 2.5", True), b=("A: 2", False)),
    # The same answer as that of the first question, in another spelling.
    record("Four less two?", "2.0", a=("A: 2", True), b=("A: -2", False)),
    record("Two less four?", "-2", a=("A: -2", True), b=("A: 2", False)),
    record(" What are {{ 3 + 4 }} and {% if %}? ", "7", a=("A: 7.", True), b=("It is 7", False)),
    record("Which colour is the sky?", "Blue", a=("A: BLUE", True), b=("A: Black & Blue", False)),
    record("How many in <b>all</b>?", "11", a=("A: 11\nA: 12", False), b=("A: 12\nA: 11", True)),
    record("Which tag is it?", "R & D", a=("A: R & D", True), b=("", False)),
    record("What was not asked of b?", "40", a=("A:", False)),
]


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(found)}\n" for found in records))
    return path


@pytest.mark.slow
@pytest.mark.network
def test_replayed_solutions_are_correct_if_they_were_judged_correct(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole procedure over loopback: script, questions, fake provider, run, comparison."""
    # Each of its models answered each of the other questions.
    lines = write_lines(tmp_path / "in.jsonl", RECORDS[:-1])
    assert script.main([str(lines), str(tmp_path)]) == 0
    flags = ["--replay", "replies.jsonl"]
    with fake_provider(*flags, cwd=tmp_path) as url:
        script.main([str(lines), str(tmp_path), "--base-url", url])
        flags = ["-o", "out.jsonl", "--no-table", "--no-write", "--no-cache"]
        done = trioeval(tmp_path, "suite.json", *flags)
    capsys.readouterr()
    assert "10 passed, 8 failed, 0 errors; exit 100: 8 rows failed" in done.stderr
    assert script.main(["--check", str(tmp_path / "out.jsonl"), str(lines)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a: 8 of 9 correct, 8 are recorded as correct",
        "b: 2 of 9 correct, 2 are recorded as correct",
        "no row differs",
    ]


def test_choices_are_the_answer_and_three_answers_of_other_questions() -> None:
    """They differ in any spelling, their positions depend on the seed, and they are the same every time."""
    questions = script.make_questions(RECORDS, seed=0)
    assert questions == script.make_questions(RECORDS, seed=0)
    assert questions != script.make_questions(RECORDS, seed=1)
    known = {script.plain(found["final_answer"]).casefold() for found in RECORDS}
    assert len(known) == len(RECORDS) - 1
    for number, (question, found) in enumerate(zip(questions, RECORDS, strict=True), 1):
        answers = {answer.casefold() for answer in question["answers"]}
        assert len(question["answers"]) == len(answers) == 4
        assert answers <= known
        assert question["correctAnswers"] == [script.plain(found["final_answer"])]
        assert set(question["correctAnswers"]) <= set(question["answers"])
        assert question["id"] == f"row-{number}"
    assert (
        len({question["answers"].index(*question["correctAnswers"]) for question in questions}) > 1
    )


def test_too_few_different_answers_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script prints the required number."""
    lines = write_lines(tmp_path / "in.jsonl", RECORDS[:4])
    with pytest.raises(SystemExit) as ended:
        script.main([str(lines), str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "in.jsonl: 4 different answers are needed, and there are 3" in capsys.readouterr().err


def test_models_that_were_not_recorded_can_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have no replies; without a name it is an error."""
    bare = [{key: found[key] for key in ("question", "final_answer")} for found in RECORDS]
    lines = write_lines(tmp_path / "in.jsonl", bare)
    assert script.main([str(lines), str(tmp_path / "out"), "--model", "m"]) == 0
    assert "10 questions for m; 0 recorded replies" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"questions.json", "suite.json"}
    with pytest.raises(SystemExit):
        script.main([str(lines), str(tmp_path / "other")])
    assert "no models are recorded; name some with --model" in capsys.readouterr().err


def test_rows_that_differ_from_the_recording_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The report has both verdicts, and the exit code reflects them; rows of other models are ignored."""

    def row(number: int, model: str, **fields: object) -> dict[str, Any]:
        question = {"id": f"row-{number}", "correctAnswers": ["2"], **fields}
        return {"provider": {"label": model}, "question": question}

    rows = [
        row(1, "a", correct=False, outcome="incorrect", agentAnswer="5"),
        row(1, "b", correct=True, outcome="correct", agentAnswer="2"),
        row(4, "a", correct=False, outcome="parse_error"),
        row(1, "other", correct=False, outcome="incorrect", agentAnswer="5"),
    ]
    assert script.check(rows, RECORDS) == 1
    assert capsys.readouterr().out.splitlines() == [
        "a: 0 of 2 correct, 2 are recorded as correct",
        "b: 1 of 1 correct, 0 are recorded as correct",
        "row 1, a: is incorrect and is recorded as True; '2' against '5'",
        "row 1, b: is correct and is recorded as False; '2' against '2'",
        "row 4, a: is parse_error and is recorded as True; '2' against 'parse_error'",
    ]


def test_the_examples_of_the_script_hold() -> None:
    """The script also stays short enough to be copied and changed."""
    assert len(SCRIPT.read_text().splitlines()) < 200
    assert doctest.testmod(script).failed == 0
