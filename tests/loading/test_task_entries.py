"""Tasks of a suite file: what they inherit from its top, and the positions of their mistakes."""

from pathlib import Path
from typing import Any

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import in_every_task, load_suite, parse_suite
from trioeval.suite.model import BudgetSettings, Suite

_LEAVE_OUT = "\n  each of them waits for the next; remove one dependency"
_NEEDS_ROWS = """a task that takes the rows of "a" cannot run without them
  write "skip", "block" or "fail\""""
GPT = {"id": "openai:chat:gpt-4.1", "label": "gpt"}


def parsed(*tasks: dict[str, Any], **top: Any) -> Suite:
    entries = [{"type": "prompt_eval", **task} for task in tasks]
    return parse_suite({"providers": ["echo", GPT], **top, "tasks": entries})


def problems_of(*tasks: Any, **top: Any) -> list[str]:
    entries = [
        {"type": "prompt_eval", **task} if isinstance(task, dict) else task for task in tasks
    ]
    with pytest.raises(SuiteError) as caught:
        parse_suite({"providers": ["echo", GPT], **top, "tasks": entries}, strict=True)
    return [str(problem) for problem in caught.value.problems]


def test_a_task_inherits_from_the_top() -> None:
    """It inherits everything except prompts, tests and keys of the command line."""
    top: dict[str, Any] = {
        "description": "all",
        "defaultTest": {"threshold": 0.5},
        "env": {"A": "b"},
        "lanes": {"wide": {"maxConcurrency": 9}},
        "metadata": {"team": "red"},
        "tags": {"k": "v"},
    }
    (task,) = parsed({"prompts": ["Hello"], "tests": [{"vars": {"x": 1}}]}, **top).tasks
    alone = parse_suite(
        {
            **{key: part for key, part in top.items() if key != "description"},
            "providers": ["echo", GPT],
            "prompts": ["Hello"],
            "tests": [{"vars": {"x": 1}}],
        }
    )
    assert (task.id, task.depends_on, task.suite) == ("task-1", (), alone)


def test_settings_of_a_task_override_those_of_the_top() -> None:
    """A list, the default test, a description; options are merged key by key, in either spelling."""
    suite = parsed(
        {
            "id": "one",
            "description": "first",
            "default_test": {"vars": {"y": 2}},
            "evaluateOptions": {"max_concurrency": 1},
            "providers": ["echo:other"],
        },
        {"dependsOn": "one"},
        defaultTest={"threshold": 0.5},
        evaluateOptions={"repeat": 3, "maxConcurrency": 7, "budget": {"requests": 5}},
    )
    one, two = suite.tasks
    assert one.suite.description == "first"
    assert one.suite.default_test is not None
    assert one.suite.default_test.threshold is None
    assert [entry.id for entry in one.suite.providers] == ["echo:other"]
    options = one.suite.evaluate_options
    assert (options.repeat, options.max_concurrency) == (3, 1)
    assert options.budget == BudgetSettings(requests=5)
    assert two.depends_on == ("one",)
    assert two.suite.evaluate_options == suite.evaluate_options


def test_a_text_selects_a_provider_of_the_top_or_is_an_id() -> None:
    """Labels have precedence over ids; the whole entry of the top is used."""
    suite = parsed(
        {"providers": ["gpt", "exec:cat"]},
        {"providers": "echo"},
        providers=[GPT, {"echo": {"label": "back", "delay": 5}}],
    )
    first, second = (task.suite.providers for task in suite.tasks)
    assert [(entry.id, entry.label) for entry in first] == [
        ("openai:chat:gpt-4.1", "gpt"),
        ("exec:cat", None),
    ]
    assert second == (suite.providers[1],)


def test_the_top_needs_no_providers_if_every_task_has_some() -> None:
    """A task without any is a mistake."""
    suite = parsed({"providers": ["echo"]}, providers=[])
    assert suite.tasks[0].suite.providers[0].id == "echo"
    assert problems_of({"providers": ["echo"]}, {}, providers=[]) == [
        '$.providers: the suite has no providers\n  for example "providers": ["echo"]'
    ]


def test_a_suite_with_tasks_has_no_rows_of_its_own() -> None:
    """They would belong to no task."""
    assert problems_of({}, prompts=["a"], tests=[], scenarios=[]) == [
        f"$.{key}: {key} and $.tasks exclude each other\n  move it to one of the tasks"
        for key in ("prompts", "scenarios", "tests")
    ]


def test_mistakes_of_the_top_are_reported_once_and_those_of_tasks_in_them() -> None:
    """This holds for any number of tasks that inherit them."""
    problems = problems_of(
        {"tests": [{"vrs": {}}]},
        {"evaluateOptions": {"timeoutMs": -1}, "prompts": ["{% if %}"]},
        {"providers": ["gpt", {"id": "echo", "colour": 1}], "defaultTest": {"promts": []}},
        providers=["echo", {**GPT, "dely": 1}],
        evaluateOptions={"repeat": 0},
        nonsense=1,
    )
    assert sorted(text.split(": ")[0] for text in problems) == [
        "$.evaluateOptions.repeat",
        "$.nonsense",
        "$.providers[1].dely",
        "$.tasks[0].tests[0].vrs",
        "$.tasks[1].evaluateOptions.timeoutMs",
        "$.tasks[1].prompts[0]",
        "$.tasks[2].defaultTest.promts",
        "$.tasks[2].providers[1].colour",
    ]


def test_targets_are_named_with_the_key_of_the_file() -> None:
    """This also holds if a task names one."""
    with pytest.raises(SuiteError) as caught:
        parse_suite({"targets": [{"id": "echo", "lable": 1}], "tasks": [{"type": "prompt_eval"}]})
    assert [problem.path for problem in caught.value.problems] == ["$.targets[0].lable"]
    suite = parse_suite({"targets": [{"id": "echo", "x": 1}], "tasks": [{"type": "prompt_eval"}]})
    assert [problem.path for problem in suite.warnings] == ["$.targets[0].x"]


def test_keys_and_types_of_tasks_are_checked() -> None:
    """Unknown keys and types are reported with a suggestion; for an unknown type nothing else is."""
    assert problems_of(
        {"promts": [], "dependsOn": [1], "depends_on": []},
        {"type": "agents", "columns": []},
        {"type": "prompteval"},
        {"type": 3},
        {"id": "a b"},
        {"id": ""},
        "echo",
    ) == [
        '$.tasks[0].promts: "promts" is not a key here\n  did you mean "prompts"?',
        "$.tasks[0].depends_on: dependsOn and depends_on are the same key: write one of them",
        "$.tasks[0].dependsOn: must be a list of the ids of tasks, got a list",
        '$.tasks[1].type: the text "agents" is not a type of task\n  did you mean "agent"?',
        '$.tasks[2].type: the text "prompteval" is not a type of task\n  did you mean "prompt_eval"?',
        "$.tasks[3].type: 3 is not a type of task\n  write prompt_eval",
        '$.tasks[4].id: must be text without spaces, got the text "a b"',
        '$.tasks[5].id: must be text without spaces, got the text ""',
        '$.tasks[6]: must be an object, got the text "echo"',
    ]
    with pytest.raises(SuiteError, match='"type" is missing'):
        parse_suite({"providers": ["echo"], "tasks": [{}]})


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "the list of tasks is empty"),
        ({}, "must be a list of tasks"),
    ],
)
def test_tasks_are_a_list(tasks: object, message: str) -> None:
    """The list must not be empty."""
    with pytest.raises(SuiteError, match=message):
        parse_suite({"providers": ["echo"], "tasks": tasks})


def test_dependencies_must_exist_and_be_acyclic() -> None:
    """Refused are unknown tasks, the task itself, and cycles with their path; all types of tasks have ids."""
    assert problems_of(
        {"id": "a", "dependsOn": ["c", "a"]},
        {"id": "b", "dependsOn": ["a", "later", "fist"]},
        {"id": "c", "dependsOn": ["b"]},
        {"id": "later", "type": "agents"},
        {"id": "first"},
    ) == [
        '$.tasks[3].type: the text "agents" is not a type of task\n  did you mean "agent"?',
        "$.tasks[0].dependsOn[1]: a task cannot depend on itself\n  name another task",
        '$.tasks[1].dependsOn[2]: unknown task "fist"\n  did you mean "first"?',
        "$.tasks[0].dependsOn: tasks wait for each other: a → c → b → a" + _LEAVE_OUT,
    ]


def test_the_policy_for_failed_dependencies_is_parsed() -> None:
    """Tasks of all types may set it; one whose tests are rows of another task cannot run without them."""
    tasks = parsed(
        {"id": "a"},
        {"dependsOn": "a"},
        {"dependsOn": "a", "onFailedDependency": "run"},
        {"dependsOn": "a", "on_failed_dependency": "block", "tests": {"fromTask": "a"}},
    ).tasks
    assert [task.when_failed for task in tasks] == ["skip", "skip", "run", "block"]
    assert problems_of(
        {"id": "a"},
        {"onFailedDependency": "wait"},
        {"onFailedDependency": "run", "tests": {"fromTask": "a"}},
    ) == [
        '$.tasks[1].onFailedDependency: must be skip, block, fail or run, got the text "wait"',
        "$.tasks[2].onFailedDependency: " + _NEEDS_ROWS,
    ]


def test_every_cycle_is_reported() -> None:
    """Each is reported once, even if they share a task."""
    problems = problems_of(
        {"id": "a", "dependsOn": ["b"]},
        {"id": "b", "dependsOn": ["a", "c"]},
        {"id": "c", "dependsOn": ["b"]},
    )
    assert [text.split("\n")[0].partition("other: ")[2] for text in problems] == [
        "a → b → a",
        "b → c → b",
    ]


def test_task_ids_must_be_unique() -> None:
    """Default ids count as well."""
    assert problems_of({"id": "x"}, {"id": "x"}, {"id": "task-4"}, {}) == [
        '$.tasks[1].id: duplicate id "x": $.tasks[0] has it as well',
        '$.tasks[3].id: duplicate id "task-4": $.tasks[2] has it as well',
    ]


def test_settings_of_the_whole_run_are_only_allowed_at_the_top() -> None:
    """There is one deadline and one budget."""
    options = {"max_eval_time_ms": 5, "budget": {"usd": 1}}
    hint = "\n  move it to $.evaluateOptions: it applies to all tasks together"
    assert sorted(problems_of({"evaluateOptions": options})) == [
        f"$.tasks[0].evaluateOptions.budget: budget cannot be set in a task{hint}",
        f"$.tasks[0].evaluateOptions.max_eval_time_ms: max_eval_time_ms cannot be set in a task{hint}",
    ]


def test_an_ambiguous_provider_name_is_refused() -> None:
    """The intended one would be unclear."""
    top = ["echo", {"id": "echo", "label": "x"}]
    (problem,) = problems_of({"providers": ["echo"]}, providers=top)
    assert problem == (
        '$.tasks[0].providers[0]: "echo" names 2 providers\n'
        "  give labels to $.providers[0], $.providers[1], and name one of them"
    )


def test_mistakes_have_positions_in_the_file(tmp_path: Path) -> None:
    """The position is that of the entry, or of the inherited part."""
    file = tmp_path / "s.toml"
    file.write_text(
        'providers = ["echo"]\n'
        "[evaluateOptions]\n"
        "repeat = 0\n"
        "[[tasks]]\n"
        'type = "prompt_eval"\n'
        "[[tasks]]\n"
        'type = "prompt_eval"\n'
        'dependsOn = ["x"]\n'
    )
    with pytest.raises(SuiteError) as caught:
        load_suite(file)
    assert [(one.path, one.line) for one in caught.value.problems] == [
        ("$.evaluateOptions.repeat", 3),
        ("$.tasks[1].dependsOn[0]", 8),
    ]


def test_files_of_tasks_are_relative_to_the_suite_that_names_them(tmp_path: Path) -> None:
    """Two suites in different folders each have a task that reads a file next to the suite."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.txt").write_text(f"from {name}")
        (tmp_path / name / "s.yaml").write_text(
            "providers: [echo]\n"
            f"tasks: [{{id: {name}, type: prompt_eval, prompts: ['file://p.txt']}}]\n"
        )
    suite = load_suite(tmp_path / "a" / "s.yaml", tmp_path / "b" / "s.yaml")
    found = {task.id: [prompt.raw for prompt in task.suite.prompts] for task in suite.tasks}
    assert found == {"a": ["from a"], "b": ["from b"]}
    assert {task.suite.directory for task in suite.tasks} == {tmp_path / "a"}


def test_a_change_reaches_every_task() -> None:
    """It also reaches the suite itself, last."""
    suite = parsed({"id": "a"}, {"id": "b"})
    seen: list[int] = []

    def change(one: Suite) -> Suite:
        seen.append(len(one.tasks))
        return one

    assert in_every_task(suite, change) == suite
    assert seen == [0, 0, 2]
