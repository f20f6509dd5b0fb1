"""Tasks of questions in a suite file: their settings, inherited keys, and invalid values."""

import json
from pathlib import Path
from typing import Any

import pytest

from trioeval.errors import SuiteError
from trioeval.evaluation.identity import Identities, settings_digest
from trioeval.evaluation.reconcile import StoredIdentity, reconcile
from trioeval.evaluation.suite_files import CodeFiles, files_of
from trioeval.loading.load import load_suite, parse_suite
from trioeval.question_eval.form import QUESTION_PROMPT, as_question, as_test
from trioeval.question_eval.model import Question, QuestionBudget, QuestionSettings, Tool
from trioeval.run import prepare
from trioeval.suite.expand import expand
from trioeval.suite.filters import Filters, select_tests
from trioeval.suite.model import LimitsSettings, Suite, Test

QUESTIONS = [
    {"id": "sky", "question": "Sky?", "answers": ["Red", "Blue"], "correctAnswers": ["Blue"]},
    {"question": "{{x}} file://a?", "answers": ["1", "2", "3"], "correctAnswers": ["1", "3"]},
    {"id": "sea", "question": "Sea?", "answers": ["Red", "Blue"], "correctAnswers": ["Blue"]},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create files of questions and of tools in a folder."""
    write(tmp_path, QUESTIONS)
    (tmp_path / "tools.py").write_text("def add(x):\n    return x\n")
    return tmp_path


def write(folder: Path, questions: list[dict[str, Any]]) -> None:
    text = json.dumps({"version": 1, "questions": questions})
    (folder / "questions.json").write_text(text)


def parsed(folder: Path, *entries: dict[str, Any], **top: Any) -> Suite:
    tasks = [
        {"type": "question_eval", "questionsFile": "questions.json", **entry} for entry in entries
    ]
    return parse_suite({"providers": ["echo"], **top, "tasks": tasks}, directory=folder)


def settings_of(folder: Path, **entry: Any) -> QuestionSettings:
    (task,) = parsed(folder, entry).tasks
    assert isinstance(task.suite.settings, QuestionSettings)
    return task.suite.settings


def problems_of(folder: Path, *entries: dict[str, Any], **top: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parsed(folder, *entries, **top)
    return [str(problem).partition("\n")[0] for problem in caught.value.problems]


def test_questions_are_the_tests_of_their_task(folder: Path) -> None:
    """Their texts are used unchanged: they are not templates or file names, and lists are not expanded."""
    (task,) = parsed(folder, {"id": "colours"}).tasks
    suite = task.suite
    assert suite.prompts == (QUESTION_PROMPT,)
    assert isinstance(suite.settings, QuestionSettings)
    assert suite.settings.file == folder / "questions.json"
    assert suite.files == ()
    assert [as_question(test) for test in suite.tests] == list(suite.settings.questions)
    assert [(step.test.description, step.vars) for step in expand(suite)] == [
        (
            one.get("id"),
            {
                "question": one["question"],
                "answers": one["answers"],
                "correctAnswers": one["correctAnswers"],
            },
        )
        for one in QUESTIONS
    ]


def test_every_provider_gets_every_question(folder: Path) -> None:
    """This includes a provider with `prompts`; questions are repeated as configured."""
    providers = ["echo", {"id": "echo:b", "label": "b", "prompts": ["mine"]}]
    suite = parse_suite(
        {
            "providers": providers,
            "evaluateOptions": {"repeat": 2},
            "tasks": [
                {"type": "question_eval", "questions_file": "file://questions.json"},
                {"type": "prompt_eval", "prompts": [{"raw": "x", "label": "mine"}]},
            ],
        },
        directory=folder,
    )
    steps = expand(suite.tasks[0].suite)
    assert len(steps) == 2 * 2 * len(QUESTIONS)
    assert [entry.prompts for entry in suite.tasks[0].suite.providers] == [None, None]
    assert suite.tasks[1].suite.providers[1].prompts == ("mine",)


def test_prompts_and_tests_of_the_top_do_not_apply_to_questions(folder: Path) -> None:
    """Providers and limits apply; the entry overrides the top."""
    (task,) = parsed(
        folder,
        {
            "description": "colours",
            "evaluateOptions": {"timeoutMs": 5},
            "providers": ["b"],
            "dependsOn": [],
        },
        providers=["echo", {"id": "echo:b", "label": "b"}],
        defaultTest={"threshold": 0.5, "vars": {"question": "other"}},
        derivedMetrics=[{"name": "n", "value": "1"}],
        evaluateOptions={"repeat": 3, "timeoutMs": 9},
        env={"A": "b"},
        metadata={"team": "red"},
        lanes={"wide": {"maxConcurrency": 9}},
    ).tasks
    suite = task.suite
    assert suite.description == "colours"
    assert [entry.label for entry in suite.providers] == ["b"]
    assert (suite.evaluate_options.repeat, suite.evaluate_options.timeout_ms) == (3, 5)
    assert suite.env == {"A": "b"}
    assert suite.derived_metrics == ()
    assert suite.default_test == Test(metadata={"team": "red"})
    assert set(suite.lanes) == {"wide"}


def test_an_entry_configures_its_questions(folder: Path) -> None:
    """Both spellings are accepted; `concurrency` means `workers`."""
    tool = {
        "name": "add",
        "target": "file://tools.py:add",
        "description": "adds",
        "parameters": {"type": "object"},
    }
    settings = settings_of(
        folder,
        budget={"maxTokens": 500, "max_seconds": 2.5},
        workers=3,
        fail_fast=True,
        tools=[tool],
    )
    assert settings.budget == QuestionBudget(max_tokens=500, max_seconds=2.5, max_steps=0)
    assert (settings.workers, settings.fail_fast) == (3, True)
    target = f"file://{folder}/tools.py:add"
    parameters = {"type": "object"}
    assert settings.tools == (
        Tool(name="add", target=target, description="adds", parameters=parameters),
    )
    assert settings_of(folder, concurrency=4).workers == 4
    bare = settings_of(folder, budget=None, workers=None)
    assert bare == QuestionSettings(file=bare.file, questions=bare.questions)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"concurrency": -1}, "concurrency: must be at least 1, got -1"),
        ({"concurrency": 0}, "concurrency: must be at least 1, got 0"),
        ({"workers": 1.5}, "workers: must be a whole number, got 1.5"),
        (
            {"workers": 1, "concurrency": 2},
            "concurrency: workers and concurrency are the same key: write one of them",
        ),
        ({"questionsFile": "qestions.json"}, 'questionsFile: file not found: "qestions.json"'),
        ({"questionsFile": "."}, 'questionsFile: "." is a folder'),
        ({"questionsFile": 5}, "questionsFile: must be a file name, got 5"),
        (
            {"questionsFile": "/etc/passwd"},
            'questionsFile: "/etc/passwd" is outside of the suite\'s folder {folder}',
        ),
        ({"budget": {"maxSteps": -1}}, "budget.maxSteps: must be at least 0, got -1"),
        ({"budget": {"maxStep": 1}}, 'budget.maxStep: "maxStep" is not a key here'),
        ({"failFast": "yes"}, 'failFast: must be true or false, got the text "yes"'),
        ({"prompts": ["a"]}, "prompts: prompts is a key of tasks of type prompt_eval"),
        ({"default_test": {}}, "default_test: default_test is a key of tasks of type prompt_eval"),
        ({"model": "m"}, 'model: "model" is not a key here'),
        ({"tools": [{"name": "add"}]}, 'tools[0]: "target" is missing'),
        (
            {"tools": [{"name": "a b", "target": "file://tools.py:add"}]},
            'tools[0].name: "a b" is not a valid tool name',
        ),
        (
            {"tools": [{"name": "add", "target": "file://tools.py"}]},
            'tools[0].target: tools are functions in Python files, got "file://tools.py"',
        ),
        (
            {"tools": [{"name": "add", "target": "file://tools.py:sub"}]},
            'tools[0].target: function "sub" not found in "tools.py"',
        ),
        (
            {
                "tools": [
                    {
                        "name": "add",
                        "target": "file://tools.py:add",
                        "parameters": {"type": "array"},
                    }
                ]
            },
            'tools[0].parameters.type: must be "object", got the text "array"',
        ),
        (
            {"tools": [{"name": "add", "target": "file://tools.py:add"}] * 2},
            'tools[1].name: tools[0] has the same name, "add"',
        ),
    ],
)
def test_qe_21_invalid_entries_are_reported(
    folder: Path, entry: dict[str, Any], message: str
) -> None:
    """Each mistake is reported at its place."""
    assert problems_of(folder, entry) == [f"$.tasks[0].{message}".replace("{folder}", str(folder))]


def test_qe_21_concurrency_belongs_to_questions(folder: Path) -> None:
    """So do all other settings of questions; and a question file is required."""
    other = {"type": "prompt_eval", "concurrency": 2, "budget": {}}
    assert problems_of(folder, other) == [
        "$.tasks[0].questionsFile: questionsFile is a key of tasks of type question_eval",
        "$.tasks[0].concurrency: concurrency is a key of tasks of type question_eval",
        "$.tasks[0].budget: budget is a key of tasks of type question_eval",
    ]
    assert problems_of(folder, {"questionsFile": None}) == [
        '$.tasks[0]: "questionsFile" is missing'
    ]


def test_all_mistakes_of_an_entry_and_its_file_are_reported_at_once(folder: Path) -> None:
    """Those of the top are reported once."""
    write(folder, [{**QUESTIONS[0], "answers": []}, {}])
    top = [{"id": "echo", "lable": "x"}]
    message = problems_of(folder, {"workers": 0}, {"tools": 5}, providers=top)
    assert [line.replace(f"{folder}/", "") for line in message] == [
        '$.providers[0].lable: "lable" is not a key here',
        "$.tasks[0].workers: must be at least 1, got 0",
        "questions.json:1:75: $.questions[0].answers: no answers are given",
        "questions.json:1:108: $.questions[1].question: is required",
        "questions.json:1:108: $.questions[1].answers: is required",
        "questions.json:1:108: $.questions[1].correctAnswers: is required",
        "$.tasks[1].tools: must be a list, got 5",
    ]


def test_all_mistakes_of_a_tool_are_reported_at_once(folder: Path) -> None:
    """A mistake in one field does not hide those in others."""
    tools: list[dict[str, Any]] = [
        {"name": "a b", "target": "tools.js:add", "parameters": {"type": "array"}},
        {"name": 5, "target": "file://none.py:add", "parameters": []},
    ]
    assert problems_of(folder, {"tools": tools}) == [
        '$.tasks[0].tools[0].name: "a b" is not a valid tool name',
        '$.tasks[0].tools[0].target: tools are functions in Python files, got "tools.js:add"',
        '$.tasks[0].tools[0].parameters.type: must be "object", got the text "array"',
        "$.tasks[0].tools[1].name: must be text, got 5",
        '$.tasks[0].tools[1].target: file not found: "none.py"',
        "$.tasks[0].tools[1].parameters: must be an object, got a list",
    ]


def test_qe_22_workers_of_the_task_come_before_those_of_the_limits() -> None:
    """Without either there is one worker."""
    file = Path("q.json")
    five = LimitsSettings(workers=5)
    assert QuestionSettings(file=file, workers=3).rows_at_once(five) == 3
    assert QuestionSettings(file=file).rows_at_once(five) == 5
    assert QuestionSettings(file=file).rows_at_once(LimitsSettings()) == 1
    assert QuestionSettings(file=file).rows_at_once(None) == 1


def hinted(folder: Path, *entries: dict[str, Any], **top: Any) -> list[str]:
    """Return the mistakes with their hints."""
    with pytest.raises(SuiteError) as caught:
        parsed(folder, *entries, **top)
    return [" | ".join(str(one).splitlines()) for one in caught.value.problems]


def test_a_question_file_must_be_a_single_file(folder: Path) -> None:
    """An invalid name is reported with a useful hint."""
    (folder / "below").mkdir()
    names = {
        "below": '"below" is a folder |   write the name of a file',
        "*.json": 'file not found: "*.json"',
        " ": 'must be a file name, got the text " "',
    }
    for name, told in names.items():
        assert hinted(folder, {"questionsFile": name}) == [f"$.tasks[0].questionsFile: {told}"]
    told = "questionsFile and questions_file are the same key: write one of them"
    assert hinted(folder, {"questions_file": "questions.json"}) == [
        f"$.tasks[0].questions_file: {told}"
    ]


def test_misplaced_keys_are_reported_with_their_place(folder: Path) -> None:
    """The hints point to the top of the file, or to providers."""
    found = hinted(folder, {"limits": {}, "lanes": {}, "command_line_options": {}, "model": "m"})
    top = "write it at the top of the file"
    wanted = {
        "limits": top,
        "lanes": top,
        "command_line_options": top,
        "model": "name the model under providers",
    }
    assert found == [
        f'$.tasks[0].{key}: "{key}" is not a key here |   {hint}' for key, hint in wanted.items()
    ]


def test_filters_of_the_top_are_those_of_question_tasks(folder: Path) -> None:
    """Providers use them in their requests."""
    (folder / "shout.py").write_text("def shout(text):\n    return text.upper()\n")
    config = {"method": "POST", "body": "{{ prompt | shout }}"}
    providers = [{"id": "http://127.0.0.1:9/", "config": config}]
    filters = {"shout": "shout.py"}
    (task,) = parsed(folder, {}, providers=providers, nunjucksFilters=filters).tasks
    assert prepare(task.suite, environ={}).size == 3
    suite = parsed(folder, {}, providers=providers)
    with pytest.raises(SuiteError, match="No filter named 'shout'"):
        prepare(suite, environ={})


def test_filters_apply_to_questions_as_to_tests(folder: Path) -> None:
    """They filter by index and by id."""
    (task,) = parsed(folder, {}).tasks
    chosen = select_tests(task.suite, Filters(range=slice(1, 3), first_n=1))
    assert [as_question(step.test).question for step in expand(task.suite, chosen)] == [
        QUESTIONS[1]["question"]
    ]


def test_questions_of_another_folder_are_found_there(folder: Path) -> None:
    """Paths are relative to their own file, also in a suite of several files."""
    below = folder / "below"
    below.mkdir()
    write(below, QUESTIONS[:1])
    (below / "tools.py").write_text("def add(x):\n    return x\n")
    entry = {
        "type": "question_eval",
        "questions_file": "questions.json",
        "tools": [{"name": "add", "target": "file://tools.py:add"}],
    }
    (below / "more.json").write_text(json.dumps({"tasks": [entry]}))
    (folder / "suite.json").write_text(json.dumps({"providers": ["echo"]}))
    (task,) = load_suite(folder / "suite.json", below / "more.json").tasks
    assert isinstance(task.suite.settings, QuestionSettings)
    assert [len(task.suite.tests), task.suite.settings.tools[0].target] == [
        1,
        f"file://{below}/tools.py:add",
    ]


def _identities(suite: Suite) -> list[StoredIdentity]:
    steps = expand(suite)
    identities = Identities()
    found = (identities.of(step, steps.providers[0]) for step in steps)
    return [StoredIdentity(place, one.id, one.content) for place, one in enumerate(found)]


def test_a_changed_question_is_a_new_row(folder: Path) -> None:
    """Each part counts; the other questions keep their rows at their new indices."""
    stored = _identities(parsed(folder, {}).tasks[0].suite)
    first, second, third = QUESTIONS
    write(folder, [third, {**second, "correctAnswers": ["1"]}, first])
    found = reconcile(stored, expand(parsed(folder, {}).tasks[0].suite))
    assert [found.state(place) for place in range(3)] == ["kept", "new", "kept"]
    assert list(found.gone) == [1]
    assert sorted(found.moved()) == [(0, 2), (2, 0)]


def test_budgets_and_tools_decide_how_questions_end(folder: Path) -> None:
    """The code of a tool counts too; the number of workers does not."""

    def digest(**entry: Any) -> str:
        suite = parsed(folder, entry).tasks[0].suite
        return settings_digest(suite, CodeFiles(folder))

    tool = {"name": "add", "target": "file://tools.py:add"}
    with_tool = digest(tools=[tool])
    others = [digest(), digest(budget={"maxSteps": 2}), digest(tools=[{**tool, "name": "sum"}])]
    assert len({with_tool, *others}) == 4
    assert digest(workers=5, failFast=True) == digest()
    (folder / "tools.py").write_text("def add(x):\n    return -x\n")
    assert digest(tools=[tool]) != with_tool
    suite = parsed(folder, {"tools": [tool]})
    assert {folder / "tools.py", folder / "questions.json"} <= set(files_of(suite))


def test_a_question_is_converted_to_a_test_and_back() -> None:
    """This holds with and without an id."""
    for name in (None, "a"):
        question = Question(id=name, question="?", answers=("a", "b"), correct_answers=("b",))
        assert as_question(as_test(question)) == question
