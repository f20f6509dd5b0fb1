"""Question files: accepted content, and all mistakes of a file at once."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite
from trioeval.question_eval.answer import normalized
from trioeval.question_eval.form import questions_in
from trioeval.question_eval.model import Question, QuestionSettings
from trioeval.suite.model import Suite

SKY = {"question": "Sky?", "answers": ["Red", "Blue"], "correct_answers": ["Blue"]}


def document(*questions: Any, **more: Any) -> dict[str, Any]:
    return {"version": 1, "questions": list(questions), **more}


def loaded(folder: Path, name: str, text: str) -> Suite:
    """Load a suite with one task whose questions are in a file."""
    (folder / name).write_text(text)
    entry = {"id": "sky", "type": "question_eval", "questionsFile": name}
    (folder / "suite.json").write_text(json.dumps({"providers": ["echo"], "tasks": [entry]}))
    return load_suite(folder / "suite.json").tasks[0].suite


def questions_of(folder: Path, name: str, text: str) -> tuple[Question, ...]:
    settings = loaded(folder, name, text).settings
    assert isinstance(settings, QuestionSettings)
    return settings.questions


def problems_of(folder: Path, name: str, text: str) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        loaded(folder, name, text)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def mistakes_in(data: Any) -> list[tuple[str, str]]:
    """Return the paths and messages of all mistakes."""
    with pytest.raises(MistakenError) as caught:
        questions_in(data)
    found = []
    for part in caught.value.parts:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in part.at)
        found.append(("".join(steps).removeprefix("."), part.message))
    return found


def test_qe_01_yaml_and_json_are_the_same_and_trimmed(tmp_path: Path) -> None:
    """Both spellings of the keys are accepted; a file that is not `.json` is YAML."""
    padded = {
        "id": " q1 ",
        "question": "\tSky? \n",
        "answers": [" Red", "Blue "],
        "correct_answers": [" Blue"],
    }
    camel = {**padded, "correctAnswers": padded["correct_answers"]}
    del camel["correct_answers"]
    expected = (
        Question(id="q1", question="Sky?", answers=("Red", "Blue"), correct_answers=("Blue",)),
    )
    for name in ("q.yaml", "q.yml", "q.questions", "q"):
        assert questions_of(tmp_path, name, yaml.safe_dump(document(padded))) == expected
    assert questions_of(tmp_path, "q.json", json.dumps(document(padded))) == expected
    assert questions_of(tmp_path, "Q.JSON", json.dumps(document(camel))) == expected


def test_qe_02_all_issues_are_in_one_error_with_exact_fields() -> None:
    """The cases are a duplicate id, and a correct answer that is not among the answers."""
    unknown = {**SKY, "id": " a ", "correct_answers": ["Green", "blue"]}
    assert mistakes_in(document({**SKY, "id": "a"}, unknown)) == [
        ("questions[1].id", '$.questions[0] has the same id, "a"'),
        ("questions[1].correct_answers[0]", '"Green" is not one of the answers'),
    ]


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ({}, "is required"),
        ({"version": None}, "is required"),
        ({"version": 0}, "is required"),
        ({"version": 2}, "unsupported version 2"),
        ({"version": -1}, "unsupported version -1"),
        ({"version": True}, "must be the whole number 1, got true"),
        ({"version": 1.0}, "must be the whole number 1, got 1.0"),
        ({"version": "1"}, 'must be the whole number 1, got the text "1"'),
    ],
)
def test_qe_03_the_version_is_one(version: dict[str, Any], message: str) -> None:
    """It is required."""
    assert mistakes_in({**version, "questions": [SKY]}) == [("version", message)]


def test_qe_04_invalid_question_files_are_reported(tmp_path: Path) -> None:
    """The cases are two documents, misspelt keys on both levels, and blank, empty or missing values."""
    two = f"{yaml.safe_dump(document(SKY))}---\nx: 1\n"
    (problem,) = problems_of(tmp_path, "q.yaml", two)
    assert problem.startswith("q.yaml:9:1: $: not YAML: expected a single document in the stream")
    assert mistakes_in(
        document(
            {**SKY, "answer": "Red", "question": " \n"},
            {**SKY, "answers": []},
            {**SKY, "answers": ["", "Blue"], "correct_answers": []},
            {"correctAnswers": ["x"], "correct_answers": ["x"]},
            "Sky?",
            version_=1,
        )
    ) == [
        ("version_", '"version_" is not a key here'),
        ("questions[0].answer", '"answer" is not a key here'),
        ("questions[0].question", "must not be blank"),
        ("questions[1].answers", "no answers are given"),
        ("questions[2].answers[0]", "must not be blank"),
        ("questions[2].correct_answers", "no correct answers are given"),
        (
            "questions[3].correct_answers",
            "correctAnswers and correct_answers are the same key: write one of them",
        ),
        ("questions[3].question", "is required"),
        ("questions[3].answers", "is required"),
        ("questions[4]", 'a question must be an object, got the text "Sky?"'),
    ]


def test_duplicate_answers_are_reported() -> None:
    """It would be unclear which answer is meant."""
    same = {**SKY, "answers": ["Straße", "Weg", "STRASSE "], "correctAnswers": ["Weg"]}
    del same["correct_answers"]
    assert mistakes_in(document(same)) == [
        ("questions[0].answers[2]", '"STRASSE" is the same answer as "Straße"')
    ]
    same = {**SKY, "answers": ["4", "4", "5"], "correct_answers": ["5"]}
    assert mistakes_in(document(same)) == [
        ("questions[0].answers[1]", '"4" is the same answer as "4"')
    ]


@pytest.mark.parametrize("name", ["", " \t"])
def test_a_blank_id_is_reported(name: str) -> None:
    """A question without a name must have no id instead."""
    assert mistakes_in(document({**SKY, "id": name})) == [("questions[0].id", "must not be blank")]
    assert questions_in(document({**SKY, "id": None}))[0].id is None


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        ([], [("", "a question file must be an object, got a list")]),
        ({"version": 1}, [("questions", "is required")]),
        ({"version": 1, "questions": {}}, [("questions", "must be a list, got an object")]),
        (
            document({**SKY, "id": 5, "answers": [1, "Blue"], "correct_answers": "Blue"}),
            [
                ("questions[0].id", "must be text, got 5"),
                ("questions[0].answers[0]", "must be text, got 1"),
                ("questions[0].correct_answers", 'must be a list, got the text "Blue"'),
            ],
        ),
    ],
)
def test_values_are_not_converted(data: Any, problems: list[tuple[str, str]]) -> None:
    """A number in an answer could mean 1 or 1.0."""
    assert mistakes_in(data) == problems


def test_qe_40_no_questions_and_unreadable_files_are_reported_at_load(tmp_path: Path) -> None:
    """They are reported before the first call, with their position."""
    assert problems_of(tmp_path, "q.json", '{"version": 1,\n "questions": []}') == [
        "q.json:2:15: $.questions: no questions are given"
    ]
    (problem,) = problems_of(tmp_path, "q.json", '{"version": 1,')
    assert problem.startswith("q.json:1:15: $: not JSON: ")
    assert problems_of(tmp_path, "q.yaml", "") == ["q.yaml: the file is empty"]


def test_mistakes_are_placed_in_their_file_with_line_and_column(tmp_path: Path) -> None:
    """They are reported together with those of the suite, which come first."""
    text = "version: 3\nquestions:\n- question: a\n  answers: [x, X]\n  correct_answers: [y]\n"
    (tmp_path / "q.yaml").write_text(text)
    entry = {"type": "question_eval", "questionsFile": "q.yaml", "workers": 0}
    (tmp_path / "s.json").write_text(json.dumps({"providers": ["echo"], "tasks": [entry]}))
    with pytest.raises(SuiteError) as caught:
        load_suite(tmp_path / "s.json")
    problems = [str(one).replace(f"{tmp_path}/", "") for one in caught.value.problems]
    assert [line.partition("\n")[0] for line in problems] == [
        "s.json:1:99: $.tasks[0].workers: must be at least 1, got 0",
        "q.yaml:1:10: $.version: unsupported version 3",
        'q.yaml:4:16: $.questions[0].answers[1]: "X" is the same answer as "x"',
        'q.yaml:5:21: $.questions[0].correct_answers[0]: "y" is not one of the answers',
    ]


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1).filter(
    str.strip
)
QUESTIONS = st.builds(
    lambda name, text, answers, correct: {
        **({"id": name} if name else {}),
        "question": text,
        "answers": answers,
        "correctAnswers": [answers[place % len(answers)] for place in correct],
    },
    st.none() | WORDS,
    WORDS,
    st.lists(WORDS, min_size=1, max_size=4, unique_by=normalized),
    st.lists(st.integers(0, 9), min_size=1, max_size=2),
)


@pytest.mark.slow
@given(
    st.lists(
        QUESTIONS,
        min_size=1,
        max_size=4,
        unique_by=lambda one: one.get("id", "").strip() or id(one),
    )
)
def test_every_valid_file_is_read_unchanged(questions: list[dict[str, Any]]) -> None:
    """Its order is kept; only surrounding blanks are removed."""
    found = questions_in(document(*questions))
    assert [
        {
            **({"id": one.id} if one.id else {}),
            "question": one.question,
            "answers": list(one.answers),
            "correctAnswers": list(one.correct_answers),
        }
        for one in found
    ] == [
        {
            **({"id": one["id"].strip()} if "id" in one else {}),
            "question": one["question"].strip(),
            "answers": [answer.strip() for answer in one["answers"]],
            "correctAnswers": [answer.strip() for answer in one["correctAnswers"]],
        }
        for one in questions
    ]
    for one in found:
        listed = set(map(normalized, one.answers))
        assert len(listed) == len(one.answers)
        assert listed.issuperset(map(normalized, one.correct_answers))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", " ", "a", "A"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["version", "questions", "question", "answers", "correct_answers", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(ANYTHING)
def test_any_file_content_is_accepted_or_reported(data: Any) -> None:
    """Each mistake is reported once, with a message and a place."""
    parts: tuple[Mistake, ...] = ()
    found: tuple[Question, ...] = ()
    try:
        found = questions_in(data)
    except MistakenError as error:
        parts = error.parts
    assert bool(found) != bool(parts)
    assert len(set(parts)) == len(parts)
