"""Rows of earlier tasks as tests, questions and seeds: their settings and mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest
from columns_suites import LLM, A, B, fill

from trioeval.columns.model import ColumnsSettings, SeedColumns
from trioeval.errors import SuiteError
from trioeval.grading import Assertion
from trioeval.loading.load import load_suite, parse_suite
from trioeval.question_eval.model import QuestionSettings
from trioeval.suite.model import PromptEvalSettings, RowsOfTask, Suite
from trioeval.templates import unclosed_tag

DATA: dict[str, Any] = {"id": "data", "type": "columns", "rows": 2, "columns": [A, B, LLM]}
PROMPTS: dict[str, Any] = {"id": "ask", "type": "prompt_eval", "prompts": ["{{ q }}"]}
ROWS = {"type": "seed", "fromTask": "ask", "columns": {"q": "vars.q", "output": "output"}}

_SAME = "are the same key: write one of them"
_VARS = 'for example {"question": "problem", "answer": "{{ answer }}"}'
_ALONE = "move them to a separate task"
_CIRCLE = "each of them waits for the next; remove one dependency"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A question file."""
    question = {"question": "?", "answers": ["a"], "correctAnswers": ["a"]}
    (tmp_path / "questions.json").write_text(json.dumps({"version": 1, "questions": [question]}))
    return fill(tmp_path)


def parsed(folder: Path, *tasks: dict[str, Any]) -> Suite:
    providers = [{"id": "echo", "label": "writer"}]
    return parse_suite({"providers": providers, "tasks": [*tasks]}, directory=folder, strict=True)


def exam(**tests: Any) -> dict[str, Any]:
    return {"id": "exam", "type": "prompt_eval", "tests": {"fromTask": "data", **tests}}


def quiz(**questions: Any) -> dict[str, Any]:
    entry = {"fromTask": "data", "question": "text", "answers": "a", "correctAnswers": "b"}
    return {"id": "quiz", "type": "question_eval", "questions": {**entry, **questions}}


def hinted(folder: Path, *tasks: dict[str, Any]) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parsed(folder, *tasks)
    return [
        " | ".join(line.strip() for line in str(one).splitlines()) for one in caught.value.problems
    ]


def test_rows_may_be_the_tests_of_a_later_task(folder: Path) -> None:
    """They are known when that task has ended; it runs first, even without `dependsOn`."""
    assertion = {"type": "equals", "value": "{{ right }}"}
    _, found = parsed(
        folder,
        DATA,
        exam(vars={"q": "text", "right": "{{ a }}!"}, limit=5, **{"assert": [assertion]}),
    ).tasks
    assert found.depends_on == ("data",)
    assert (found.suite.tests, len(found.suite.prompts)) == ((), 1)
    assert found.suite.rows_of == RowsOfTask(
        task="data",
        vars={"q": "text", "right": "{{ a }}!"},
        assertions=(Assertion(type="equals", value="{{ right }}"),),
        limit=5,
    )
    _, found = parsed(folder, DATA, {**exam(), "dependsOn": ["data"]}).tasks
    assert (found.depends_on, found.suite.rows_of) == (("data",), RowsOfTask(task="data"))
    assert found.suite.settings == PromptEvalSettings()


def test_rows_may_be_the_questions_of_a_later_task(folder: Path) -> None:
    """They replace a file, and are not known at load."""
    _, found = parsed(folder, DATA, {**quiz(id="a", limit=3), "workers": 2}).tasks
    assert found.depends_on == ("data",)
    assert found.suite.tests == ()
    assert found.suite.settings == QuestionSettings(workers=2)
    assert found.suite.rows_of == RowsOfTask(
        task="data",
        question={"question": "text", "answers": "a", "correctAnswers": "b", "id": "a"},
        limit=3,
    )


def test_rows_may_be_the_seeds_of_a_later_dataset(folder: Path) -> None:
    """The rows may be those of a dataset, or replies."""
    of_data = {"type": "seed", "from_task": "data", "columns": ["text"]}
    tasks = parsed(
        folder,
        PROMPTS,
        DATA,
        {"id": "more", "type": "columns", "columns": [of_data, ROWS]},
    ).tasks
    settings = tasks[2].suite.settings
    assert isinstance(settings, ColumnsSettings)
    assert tasks[2].depends_on == ("data", "ask")
    assert settings.columns == (
        SeedColumns(name="text", outputs=("text",), from_task="data", columns={"text": "text"}),
        SeedColumns(
            name="q",
            outputs=("q", "output"),
            from_task="ask",
            columns={"q": "vars.q", "output": "output"},
        ),
    )


def test_a_task_may_precede_its_source_in_the_file(folder: Path) -> None:
    """The order is that of dependencies."""
    assert parsed(folder, exam(vars={"q": "text"}), DATA).tasks[0].depends_on == ("data",)


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (exam(fromTask="dat"), 'tests.fromTask: unknown task "dat" | did you mean "data"?'),
        (
            exam(fromTask="exam"),
            "tests.fromTask: a task cannot depend on itself | name another task",
        ),
        (exam(fromTask=5), "tests.fromTask: must be text, got 5"),
        (exam(fromTask=""), "tests.fromTask: must not be empty"),
        (
            exam(from_task="data"),
            f"tests.from_task: fromTask and from_task {_SAME}",
        ),
        (exam(lmit=5), 'tests.lmit: "lmit" is not a key here | did you mean "limit"?'),
        (exam(limit=0), "tests.limit: must be at least 1, got 0"),
        (
            exam(question={}),
            'tests.question: "question" is not a key here | nearest are assert, vars, limit',
        ),
        (
            exam(vars=["a"]),
            f"tests.vars: must be an object, got a list | {_VARS}",
        ),
        (exam(vars={"x": 5}), "tests.vars.x: must be text, got 5"),
        (exam(vars={"x": "txt"}), 'tests.vars.x: the rows have no "txt" | did you mean "text"?'),
        (
            exam(vars={"x": "{{ text }}{{ txt }}"}),
            'tests.vars.x: the rows have no "txt" | did you mean "text"?',
        ),
        (
            exam(vars={"x": "{{ a and }}"}),
            "tests.vars.x: not a template: line 1: unexpected token: }}",
        ),
        (exam(vars={"x": "{{ a"}), f"tests.vars.x: {unclosed_tag('{{ a')}"),
        (
            exam(**{"assert": [{"type": "contians", "value": "x"}]}),
            (
                'tests.assert[0].type: "contians" is not an assertion type | '
                'did you mean "contains" or "icontains"?'
            ),
        ),
        (
            {**exam(), "scenarios": [{"config": [{}]}]},
            f"scenarios: scenarios and tests of fromTask exclude each other | {_ALONE}",
        ),
        (quiz(fromTask="dta"), 'questions.fromTask: unknown task "dta" | did you mean "data"?'),
        (quiz(question=None), "questions.question: must be text, got null"),
        (quiz(answers=["a"]), "questions.answers: must be text, got a list"),
        (quiz(id=""), "questions.id: must not be empty"),
        (
            quiz(correctAnswers="right"),
            'questions.correctAnswers: the rows have no "right" | known are a, b, text',
        ),
        (
            {**quiz(), "questionsFile": "questions.json"},
            "questions: both questionsFile and questions are given: write one of them",
        ),
        ({**quiz(), "questions": []}, "questions: must be an object, got a list"),
        (
            {**exam(), "questions": {}},
            "questions: questions is a key of tasks of type question_eval | leave it out",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_sources_are_reported_at_their_places(
    folder: Path, task: Any, problem: str
) -> None:
    """The hints are checked as well."""
    assert hinted(folder, DATA, task) == [f"$.tasks[1].{problem}"]


def test_columns_that_are_not_written_are_not_available(folder: Path) -> None:
    """Such columns are not kept, or a processor removes them."""
    processors = [{"stage": "afterGeneration", "dropColumns": ["te*"]}]
    data = {**DATA, "columns": [{**A, "keep": False}, B, {**LLM, "trace": "trail"}]}
    data["processors"] = processors
    seed = {"type": "seed", "fromTask": "data", "columns": ["a", "trail"]}
    more = {"id": "more", "type": "columns", "columns": [seed]}
    assert hinted(folder, data, exam(vars={"x": "text", "y": "trail.x"}), more) == [
        '$.tasks[1].tests.vars.x: the rows have no "text" | known are b, trail',
        '$.tasks[2].columns[0].columns[0]: the rows have no "a" | known are b, trail',
    ]


def test_rows_of_other_tasks_have_other_names(folder: Path) -> None:
    """Variables are below `vars`."""
    tests = {"fromTask": "ask", "vars": {"x": "{{ vars.q }} {{ output }}", "y": "q", "z": "ouput"}}
    seed = {**ROWS, "columns": {"q": "question"}}
    seeded = "$.tasks[2].columns[0].columns.q"
    known = "known are error, output, pass, prompt, provider, score, vars"
    assert hinted(
        folder,
        PROMPTS,
        {**PROMPTS, "id": "again", "tests": tests},
        {"id": "more", "type": "columns", "columns": [seed]},
    ) == [
        f'$.tasks[1].tests.vars.y: the rows have no "q" | write "vars.q" for a variable; {known}',
        '$.tasks[1].tests.vars.z: the rows have no "ouput" | did you mean "output"?',
        f'{seeded}: the rows have no "question" | write "vars.question" for a variable; {known}',
    ]


def test_an_invalid_source_causes_no_further_mistakes(folder: Path) -> None:
    """Its columns are not known."""
    data = {**DATA, "columns": [{**A, "low": 10}]}
    assert hinted(folder, data, exam(vars={"x": "nothing"})) == [
        "$.tasks[0].columns[0].low: low is 10, above high, 9 | low must come first"
    ]


def test_cyclic_tasks_are_reported(folder: Path) -> None:
    """The mistake is at the task that uses the rows."""
    first = {"id": "one", "type": "columns", "columns": [{**ROWS, "fromTask": "two"}]}
    second = {**PROMPTS, "id": "two", "dependsOn": ["one"]}
    assert hinted(folder, first, second) == [
        f"$.tasks[0].columns[0].fromTask: tasks wait for each other: one → two → one | {_CIRCLE}"
    ]


def test_only_tasks_may_use_rows(folder: Path) -> None:
    """A suite without tasks has no earlier tasks."""
    with pytest.raises(SuiteError, match="a test needs at least one of"):
        parse_suite({"providers": ["echo"], "tests": {"fromTask": "data"}}, directory=folder)


def test_mistakes_of_files_have_lines(folder: Path) -> None:
    """Their positions are like those of all other mistakes."""
    (folder / "suite.json").write_text(
        json.dumps({"providers": ["echo"], "tasks": [PROMPTS, exam(vars={"x": "y"})]}, indent=1)
    )
    with pytest.raises(SuiteError) as caught:
        load_suite(folder / "suite.json")
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == (
        "$.tasks[1].tests.fromTask",
        'unknown task "data"',
    )
    assert problem.line is not None


_CODE = "code must not contain templates over rows of fromTask: their contents would run"
_READS = "remove the templates, and read context['vars'] in the code"


def test_code_from_rows_is_refused(folder: Path) -> None:
    """The output of a model would run."""
    code = {"type": "python", "value": "output == '{{ text }}'"}
    inverted = {"type": "not-javascript", "value": "output == '{{ text }}'"}
    assertions = [{"type": "contains", "value": "{{ text }}"}, code]
    nested = [{"type": "assert-set", "assert": [inverted]}]
    found = hinted(folder, DATA, exam(**{"assert": [*assertions, *nested]}, vars={"text": "text"}))
    for place, one in zip(("assert[1]", "assert[2].assert[0]"), found, strict=True):
        assert f"tests.{place}.value: {_CODE}" in one
        assert _READS in one
    by_default = {**exam(), "defaultTest": {"assert": [code]}}
    (one,) = hinted(folder, DATA, by_default)
    assert f"defaultTest.assert[0].value: {_CODE}" in one


def test_code_that_reads_variables_is_accepted(folder: Path) -> None:
    code = {"type": "python", "value": "output == context['vars']['text']"}
    suite = parsed(folder, DATA, exam(**{"assert": [code]}))
    assert suite.tasks[1].suite.rows_of is not None
