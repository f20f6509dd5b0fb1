"""Tasks of agents in a suite file: cases, their names and dependencies, workspaces, and invalid entries."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.agent.cases import WorkspaceTemplates, with_cases, with_names
from trioeval.agent.form import with_dependencies
from trioeval.agent.model import AgentSettings, Case, case_of
from trioeval.documents.files import FileContext
from trioeval.errors import SuiteError
from trioeval.grading import quote
from trioeval.loading.load import load_suite, parse_suite
from trioeval.loading.structure import converter_of
from trioeval.run.rows_of_task import with_placeholder_test, with_rows
from trioeval.suite.expand import expand
from trioeval.suite.extensions import read_extensions, with_before_all
from trioeval.suite.model import RunLimits, Suite, Test
from trioeval.suite.plain import plain_test
from trioeval.templates import Templates


def parsed(entry: dict[str, Any], folder: Path | None = None, **top: Any) -> Suite:
    """Return the suite of a task of agents."""
    task = {"id": "t", "type": "agent", "prompts": ["Do {{x}}"], "tests": [{"id": "one"}], **entry}
    suite = parse_suite({"providers": ["echo"], **top, "tasks": [task]}, directory=folder)
    return suite.tasks[0].suite


def problems_of(entry: dict[str, Any], folder: Path | None = None, **top: Any) -> list[str]:
    """Return the mistakes of an entry, without hints."""
    return [text.partition("\n")[0] for text in messages_of(entry, folder, **top)]


def messages_of(entry: dict[str, Any], folder: Path | None = None, **top: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parsed(entry, folder, **top)
    return [str(problem).replace("$.tasks[0]", "$") for problem in caught.value.problems]


def cases_of(suite: Suite) -> list[Case]:
    cases = [case_of(test) for test in suite.tests]
    assert None not in cases
    return [case for case in cases if case is not None]


def names_of(*tests: Test) -> list[str]:
    return [test.extra.name for test in with_names(tests) if test.extra is not None]


def test_an_agent_task_is_a_suite_with_settings() -> None:
    """Every key has a field; the top provides the same as for prompt tasks, and the limits of all agents."""
    suite = parsed(
        {
            "maxRestarts": 7,
            "restart_delay": 0,
            "restartBackoff": 1.5,
            "maxRestartDelay": 9,
            "identicalFailures": 2,
            "attemptTimeout": 60,
            "childTimeout": 5,
            "grace": 0.5,
            "maxTokens": 1000,
            "maxCost": 2.5,
            "maxSteps": 4,
            "allowCommands": True,
            "doneFile": "out/DONE",
            "evaluateOptions": {"repeat": 2},
        },
        agents={
            "maxConcurrentRuns": 4,
            "maxConcurrentRootTasks": 2,
            "busRotateBytes": 4096,
            "busKeepSegments": 3,
        },
        defaultTest={"vars": {"x": "it"}},
        evaluateOptions={"maxConcurrency": 3},
    )
    assert suite.settings == AgentSettings(
        done_file="out/DONE",
        max_restarts=7,
        restart_delay=0,
        restart_backoff=1.5,
        max_restart_delay=9,
        identical_failures=2,
        attempt_timeout=60,
        child_timeout=5,
        grace=0.5,
        max_tokens=1000,
        max_cost=2.5,
        max_steps=4,
        allow_commands=True,
    )
    assert suite.run_limits == RunLimits(
        max_concurrent_runs=4,
        max_concurrent_root_tasks=2,
        bus_rotate_bytes=4096,
        bus_keep_segments=3,
    )
    steps = expand(suite)
    assert [(step.repeat_index, step.vars) for step in steps] == [
        (0, {"x": "it"}),
        (1, {"x": "it"}),
    ]
    assert suite.evaluate_options.max_concurrency == 3
    assert cases_of(suite) == [Case(name="one")]


def test_a_test_is_parsed_as_a_case() -> None:
    """Both spellings are accepted; `normalized` uses the same names."""
    suite = parsed(
        {
            "tests": [
                {"id": "a"},
                {"id": "b", "vars": {"x": 1}},
                {
                    "id": "c",
                    "depends_on": [" a ", "b, a", ""],
                    "onFailedDependency": "block",
                    "dependencyTimeout": 60,
                },
                {
                    "description": "Then the rest",
                    "dependsOn": "c, a",
                    "on_failed_dependency": "run",
                },
                {"vars": {"x": 2}, "id": None},
            ]
        }
    )
    assert cases_of(suite) == [
        Case(name="a"),
        Case(name="b"),
        Case(name="c", depends_on=("a", "b"), when_failed="block", dependency_timeout=60),
        Case(name="then-the-rest", depends_on=("c", "a"), when_failed="run"),
        Case(name="case-5"),
    ]


def test_cases_are_named_by_id_description_or_index() -> None:
    """A name that is an id is not given to another case."""
    assert names_of(
        Test(description="Répare-le !"),
        Test(description="repare le"),
        Test(description="修理"),
        Test(extra=Case(name="case-5")),
        Test(),
        Test(extra=Case(name="repare-le-2")),
    ) == ["repare-le", "repare-le-3", "case-3", "case-5", "case-5-2", "repare-le-2"]


@given(st.lists(st.one_of(st.none(), st.text(max_size=120)), max_size=8))
def test_generated_names_are_valid_and_unique(descriptions: Sequence[str | None]) -> None:
    """This holds for any description; a generated name is a valid id."""
    names = names_of(*(Test(description=text) for text in descriptions))
    assert len(set(names)) == len(descriptions)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name)
        assert ".." not in name


def test_the_first_assertion_of_a_case_is_that_its_agent_is_done() -> None:
    """It precedes those of the default test, and is left out if a test contains it itself."""
    default = {"assert": [{"type": "contains", "value": "d"}]}
    suite = parsed(
        {
            "tests": [
                {"id": "a", "assert": [{"type": "equals", "value": "x"}]},
                {"id": "b", "options": {"disableDefaultAsserts": True}},
                {"id": "c", "assert": [{"type": "not-agent-done"}]},
                {"id": "d", "assert": [{"type": "agent-done", "weight": 0}]},
            ]
        },
        defaultTest=default,
    )
    assert [[one.type for one in step.test.assertions] for step in expand(suite)] == [
        ["agent-done", "contains", "equals"],
        ["agent-done"],
        ["contains", "not-agent-done"],
        ["contains", "agent-done"],
    ]
    assert [len(test.assertions) for test in suite.tests] == [1, 0, 1, 1]


def test_other_tasks_have_no_done_assertion() -> None:
    """Assertions that need a workspace are rejected too, also inherited ones."""
    plain = parse_suite({"providers": ["echo"], "prompts": ["a"]})
    assert expand(plain)[0].test.assertions == ()
    with pytest.raises(SuiteError) as caught:
        parse_suite(
            {
                "providers": ["echo"],
                "defaultTest": {"assert": [{"type": "agent-done"}]},
                "tasks": [
                    {"type": "agent", "prompts": ["a"], "tests": [{"id": "one"}]},
                    {
                        "type": "prompt_eval",
                        "prompts": ["a"],
                        "tests": [
                            {
                                "assert": [
                                    {
                                        "type": "assert-set",
                                        "assert": [{"type": "not-file-exists", "value": "x"}],
                                    },
                                    {"type": "command", "value": "true"},
                                ]
                            }
                        ],
                    },
                ],
            }
        )
    only = "is only for tests of tasks of type agent"
    assert [str(problem) for problem in caught.value.problems] == [
        f"$.tasks[1].tests[0].assert[0].assert[0].type: file-exists {only}",
        f"$.tasks[1].tests[0].assert[1].type: command {only}",
        f"$.defaultTest.assert[0].type: agent-done {only}",
    ]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("maxRestarts", 0, "must be at least 1, got 0"),
        ("maxRestarts", 1.5, "must be a whole number, got 1.5"),
        ("restartDelay", -1, "must be at least 0, got -1"),
        ("restartBackoff", 0.5, "must be at least 1, got 0.5"),
        ("restartBackoff", float("inf"), "must be a finite number, got Infinity"),
        ("maxRestartDelay", -1, "must be at least 0, got -1"),
        ("identicalFailures", 0, "must be at least 1, got 0"),
        ("attemptTimeout", 0, "must be more than 0, got 0"),
        ("childTimeout", 0, "must be more than 0, got 0"),
        ("grace", -0.5, "must be at least 0, got -0.5"),
        ("maxTokens", 0, "must be at least 1, got 0"),
        ("maxCost", 0, "must be more than 0, got 0"),
        ("maxSteps", 0, "must be at least 1, got 0"),
        ("allowCommands", "yes", 'must be true or false, got the text "yes"'),
        ("doneFile", "", "must not be empty"),
        ("doneFile", "/DONE", 'must be a file in the workspace, got "/DONE"'),
        ("doneFile", "a/../../DONE", 'must be a file in the workspace, got "a/../../DONE"'),
        ("doneFile", "out/", 'must be a file in the workspace, got "out/"'),
        ("doneFile", ".", 'must be a file in the workspace, got "."'),
        ("doneFile", "C:\\DONE", 'must be a file in the workspace, got "C:\\\\DONE"'),
        ("doneFile", "a\0b", 'must be a file in the workspace, got "a\\u0000b"'),
        ("doneFile", "{{x}}", 'applies to all cases and must not be a template, got "{{x}}"'),
        ("workspace", 5, "must be text, got 5"),
        ("workspace", "no/where", "folder not found: "),
        ("workspace", "{{ x | }}", "not a template"),
        ("workspace", "../", '"../" is outside of the suite\'s folder'),
    ],
)
def test_ag_11_each_invalid_parameter_is_rejected(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    """Each is a separate problem at its key."""
    (problem,) = problems_of({key: value}, tmp_path)
    assert problem.startswith(f"$.{key}: {message}")


def test_ag_11_all_invalid_parameters_are_reported_at_once(tmp_path: Path) -> None:
    """The mistakes of the task, of its tests and of the top, in file order, with line and column."""
    file = tmp_path / "suite.yaml"
    file.write_text(
        "providers: [echo]\n"
        "agents: {maxConcurrentRuns: -1, maxConcurrentRootTasks: 1.5}\n"
        "tasks:\n"
        "  - type: agent\n"
        "    prompts: [a]\n"
        "    workspace: nowhere\n"
        "    grace: -1\n"
        "    tests:\n"
        "      - {id: a/b}\n"
        "      - {id: b, dependsOn: [../a, c], dependencyTimeout: 0}\n"
        "      - {id: c, dependsOn: [x], workspace: nothing}\n"
        "      - {id: d, onFailedDependency: wait}\n"
    )
    with pytest.raises(SuiteError) as caught:
        load_suite(file)
    places = [(one.line, one.column, one.path) for one in caught.value.problems]
    assert places == [
        (2, 29, "$.agents.maxConcurrentRuns"),
        (2, 57, "$.agents.maxConcurrentRootTasks"),
        (6, 16, "$.tasks[0].workspace"),
        (7, 12, "$.tasks[0].grace"),
        (9, 14, "$.tasks[0].tests[0].id"),
        (10, 29, "$.tasks[0].tests[1].dependsOn[0]"),
        (10, 58, "$.tasks[0].tests[1].dependencyTimeout"),
        (11, 29, "$.tasks[0].tests[2].dependsOn[0]"),
        (11, 44, "$.tasks[0].tests[2].workspace"),
        (12, 37, "$.tasks[0].tests[3].onFailedDependency"),
    ]


def test_misplaced_keys_are_reported_with_the_intended_key() -> None:
    """They are keys of other tools, of other task types, and of the top."""
    assert messages_of(
        {
            "maxAttempts": 3,
            "restarts": 3,
            "timeout": 5,
            "command": "python agent.py",
            "maxRestrts": 3,
            "scenarios": [],
            "agents": {},
            "workers": 2,
        }
    ) == [
        '$.maxAttempts: "maxAttempts" is not a key here\n  write "maxRestarts": it counts all attempts',
        '$.restarts: "restarts" is not a key here\n  write "maxRestarts": it counts all attempts',
        '$.timeout: "timeout" is not a key here\n  write "attemptTimeout", in seconds',
        '$.command: "command" is not a key here\n  write "providers": ["exec:<command>"]',
        '$.maxRestrts: "maxRestrts" is not a key here\n  did you mean "maxRestarts"?',
        "$.scenarios: scenarios is a key of tasks of type prompt_eval\n  leave it out",
        '$.agents: "agents" is not a key here\n  write it at the top of the file',
        "$.workers: workers is a key of tasks of type question_eval\n  leave it out",
    ]


def test_case_keys_are_only_valid_in_tests_of_agents() -> None:
    """They are rejected in tests of other tasks, and in a default test."""
    document = {"providers": ["echo"], "prompts": ["a"], "tests": [{"id": "a", "dependsOn": "b"}]}
    with pytest.raises(SuiteError) as caught:
        parse_suite(document)
    assert [str(problem).partition("\n")[0] for problem in caught.value.problems] == [
        "$.tests[0].id: id belongs to tests of tasks of type agent",
        "$.tests[0].dependsOn: dependsOn belongs to tests of tasks of type agent",
    ]
    assert problems_of({"defaultTest": {"workspace": "."}}) == [
        "$.defaultTest.workspace: workspace belongs to single tests, not to defaultTest"
    ]


def test_variables_may_not_have_names_of_case_fields(tmp_path: Path) -> None:
    """They would mean something else in commands than in prompts; each is reported at its place."""
    (tmp_path / "more.csv").write_text("case,x\n1,2\n3,4\n")
    entry = {"tests": [{"vars": {"attempt": 1, "x": 2, "suite": 3}}, "more.csv"]}
    places = {
        "defaultTest.vars.prompt": "prompt",
        "tests[0].vars.attempt": "attempt",
        "tests[0].vars.suite": "suite",
        "tests": "case",
    }
    assert problems_of(entry, tmp_path, defaultTest={"vars": {"prompt": "p", "cases": 1}}) == [
        f'$.{at}: the variable name "{name}" is reserved: every case has it with another meaning'
        for at, name in places.items()
    ]


@pytest.mark.parametrize("name", ["a/b", "a b", "..", "a..b", "x" * 101, "ä", ""])
def test_case_names_must_be_valid_file_names_on_every_system(name: str) -> None:
    """They are parts of paths."""
    (problem,) = problems_of({"tests": [{"id": name}]})
    assert problem == f"$.tests[0].id: {quote(name)} is not a valid id of a case"


def test_case_names_must_be_unique() -> None:
    """The second one is reported at its place."""
    assert problems_of({"tests": [{"id": "a"}, {"id": "b"}, {"id": "a"}, {"id": "a"}]}) == [
        '$.tests[2].id: another test has the id "a", too',
        '$.tests[3].id: another test has the id "a", too',
    ]


def test_ag_70_dependencies_must_be_names_of_other_cases() -> None:
    """The case itself, paths and unknown names are reported at their places, with the nearest name."""
    assert messages_of(
        {
            "tests": [
                {"id": "calc", "dependsOn": ["parser", " calc "]},
                {"id": "parser", "dependsOn": "a/b"},
                {"id": "text", "dependsOn": ["x\\y", 5]},
                {"id": "last", "dependsOn": ["calc", "praser, nothing"]},
            ]
        }
    ) == [
        "$.tests[1].dependsOn: 'a/b' is not a valid name: remove '/', '\\' and '..'",
        "$.tests[2].dependsOn: must be a list of the ids of tests, got a list",
        "$.tests[0].dependsOn[1]: a case cannot depend on itself",
        f'$.tests[3].dependsOn[1]: {unknown("praser")}\n  did you mean "parser"?',
        f"$.tests[3].dependsOn[1]: {unknown('nothing')}\n  known are calc, parser, text",
    ]


def unknown(name: str) -> str:
    return f'unknown case "{name}", on which "last" depends'


def test_ag_71_cycles_are_reported_in_a_fixed_order() -> None:
    """Each is reported once with all its cases, independent of where the file begins."""
    tests = [{"id": "c", "dependsOn": ["a"]}, {"id": "b", "dependsOn": ["c"]}]
    tests += [{"id": "a", "dependsOn": ["b"]}, {"id": "e", "dependsOn": "d"}]
    tests += [{"id": "d", "dependsOn": ["c", "e"]}]
    assert messages_of({"tests": tests}) == [
        f"$.tests[{place}].dependsOn: the dependencies of cases form a cycle: {way}\n"
        "  each of them waits for the next; remove one dependency"
        for place, way in ((2, "a → b → c → a"), (4, "d → e → d"))
    ]


def test_nothing_else_may_order_cases() -> None:
    """Registers, serial tests and conversations would contradict their dependencies."""
    two: dict[str, Any] = {"id": "b", "dependsOn": "a", "options": {"runSerially": True}}
    entry = {
        "prompts": ["{{ _conversation | length }}"],
        "defaultTest": {"options": {"storeOutputAs": "r"}},
        "tests": [{"id": "a"}, two],
    }
    beside = "with dependsOn: cases have an order already"
    assert problems_of(entry) == [
        f"$.tests[1].options.runSerially: runSerially cannot be combined {beside}",
        f"$.defaultTest.options.storeOutputAs: registers cannot be combined {beside}",
        f"$.prompts: a prompt uses _conversation {beside}",
    ]
    parsed({**entry, "tests": [{"id": "a"}, {**two, "dependsOn": []}]})


def test_a_dependency_means_one_row_of_each_column() -> None:
    """Alternatives of a variable are several rows of one case."""
    tests: list[dict[str, Any]] = [{"id": "a"}, {"id": "b", "vars": {"x": "1"}, "dependsOn": "a"}]
    several = {"vars": {"x": ["1", "2"]}}
    hint = 'write a test for each, or set "disableVarExpansion" in its options'
    assert messages_of({"tests": [{**tests[0], **several}, tests[1]]}) == [
        f'$.tests[0].vars: "a" has 2 rows, but dependsOn requires exactly one\n  {hint}'
    ]
    whole = {**several, "options": {"disableVarExpansion": True}}
    parsed({"tests": [{**tests[0], **whole}, tests[1]]})
    parsed({"tests": [*tests, {"id": "c", **several}]})


def test_tests_of_files_are_cases(tmp_path: Path) -> None:
    """Besides tests in the suite; contradictions between them are reported with their names."""
    (tmp_path / "more.yaml").write_text(
        "- {id: file, dependsOn: [here]}\n- {description: From file, vars: {x: 1}}\n"
    )
    (tmp_path / "table.csv").write_text("x,__description\n1,A row\n")
    entry: dict[str, Any] = {"tests": [{"id": "here"}, "more.yaml", "table.csv", {"id": "last"}]}
    names = [case.name for case in cases_of(parsed(entry, tmp_path))]
    assert names == ["here", "file", "from-file", "a-row", "last"]
    entry["tests"][0]["dependsOn"] = ["fiel"]
    entry["tests"][3]["dependsOn"] = ["last", "nothing"]
    (tmp_path / "more.yaml").write_text("- {id: file, dependsOn: [gone]}\n")
    assert problems_of(entry, tmp_path) == [
        '$.tests[0].dependsOn[0]: unknown case "fiel", on which "here" depends',
        '$.tests: unknown case "gone", on which "file" depends',
        "$.tests[3].dependsOn[0]: a case cannot depend on itself",
        '$.tests[3].dependsOn[1]: unknown case "nothing", on which "last" depends',
    ]
    (tmp_path / "more.yaml").write_text("- {id: fi le}\n")
    (problem,) = problems_of({"tests": [{"id": "a", "dependsOn": "file"}, "more.yaml"]}, tmp_path)
    assert "more.yaml" in problem  # the existence of a case `file` is unknown


def test_rows_of_a_task_may_be_cases() -> None:
    """They are named by their index."""
    document = {
        "providers": ["echo"],
        "tasks": [
            {"id": "first", "type": "prompt_eval", "prompts": ["a"]},
            {"type": "agent", "prompts": ["{{x}}"], "tests": {"fromTask": "first"}},
        ],
    }
    suite = parse_suite(document).tasks[1].suite
    assert suite.tests == ()
    assert cases_of(with_placeholder_test(suite)) == [Case(name="case-1")]
    known = with_rows(suite, [{"output": "1"}, {"output": "2"}], Templates())
    assert cases_of(known) == [Case(name="case-1"), Case(name="case-2")]
    assert [one.type for one in expand(known)[1].test.assertions] == ["agent-done"]


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """Create a suite folder with two projects, of which one contains the done file."""
    for name in ("calc", "over"):
        (tmp_path / "projects" / name).mkdir(parents=True)
    (tmp_path / "projects" / "over" / "DONE").write_text("")
    (tmp_path / "notes.txt").write_text("no bundle")
    return tmp_path


def test_workspaces_are_checked_if_their_variables_are_known(projects: Path) -> None:
    """The workspace of a test replaces that of the task; messages name the case."""
    entry: dict[str, Any] = {
        "workspace": "projects/{{name}}",
        "defaultTest": {"vars": {"name": "calc"}},
        "tests": [
            {"id": "a"},
            {"id": "b", "vars": {"name": "clac"}},
            {"id": "c", "vars": {"name": "over"}},
            {"id": "d", "vars": {"name": "gone"}, "workspace": "projects/calc"},
            {"id": "e", "workspace": "projects/{{other}}"},
            {"id": "f", "vars": {"name": ["no", "nor"]}},
            {"id": "g", "vars": {"name": "{{other}}"}},
            {"id": "h", "vars": {"name": "no"}, "options": {"transformVars": "{...vars}"}},
            {"id": "i", "workspace": "projects/over"},
        ],
    }
    entry["tests"][7]["options"] = {"transformVars": "file://t.py:f"}
    (projects / "t.py").write_text("def f(variables, context):\n    return {'name': 'calc'}\n")
    done = f"{projects}/projects/over already contains DONE, which marks a task as done"
    hint = "remove it, or give the task another doneFile"
    assert messages_of(entry, projects) == [
        '$.workspace: file or folder not found: "projects/clac" (case b)\n  did you mean "calc"?',
        f"$.workspace: {done}: {hint} (case c)",
        "$.tests[4].workspace: {{ other }} is not defined; the test has name (case e)",
        f"$.tests[8].workspace: {done}: {hint} (case i)",
    ]


def test_a_workspace_may_be_a_bundle(projects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening one requires git; any other file is rejected."""
    (projects / "p.bundle").write_bytes(b"# v2 git bundle\nrest")
    assert parsed({"workspace": "p.bundle"}, projects).settings == AgentSettings(
        workspace="p.bundle"
    )
    assert problems_of({"workspace": "notes.txt"}, projects) == [
        '$.workspace: "notes.txt" is neither a folder nor a file of `git bundle`'
    ]
    monkeypatch.setenv("PATH", str(projects))
    assert problems_of({"workspace": "p.bundle"}, projects) == [
        '$.workspace: program "git" not found in PATH, required for opening "p.bundle"'
    ]


def test_a_workspace_path_is_rendered_with_the_variables_of_its_case(projects: Path) -> None:
    """A missing variable is not rendered as empty: the folder above would be copied."""
    found = WorkspaceTemplates.of(FileContext(directory=projects), Templates())
    assert found.find("projects/{{name}}", {"name": "calc"}) == projects / "projects" / "calc"
    assert problems_of({"workspace": "projects/{{name}}", "tests": [{"id": "a"}]}, projects) == [
        "$.workspace: {{ name }} is not defined; the test has no variables (case a)"
    ]
    task = {"workspace": "{{name}}", "tests": [{"id": "a", "vars": {"name": " "}}]}
    assert problems_of(task, projects) == [
        '$.workspace: the workspace "{{name}}" is an empty path (case a)'
    ]


def test_workspaces_of_another_file_are_relative_to_that_file(
    projects: Path, tmp_path: Path
) -> None:
    """Templates of names are relative to it as well."""
    other = tmp_path / "other"
    (other / "own").mkdir(parents=True)
    test = {"id": "a", "vars": {"n": "own"}, "workspace": "{{n}}"}
    task = {"type": "agent", "prompts": ["a"], "workspace": "own", "tests": [test]}
    (other / "suite.json").write_text(json.dumps({"tasks": [task]}))
    (projects / "suite.json").write_text(json.dumps({"providers": ["echo"]}))
    suite = load_suite(projects / "suite.json", other / "suite.json").tasks[0].suite
    assert isinstance(suite.settings, AgentSettings)
    assert suite.settings.workspace == f"{other}/./own"
    assert cases_of(suite)[0].workspace == f"{other}/./{{{{n}}}}"


def test_a_case_survives_the_round_trip_to_plain_form() -> None:
    """Hooks, which get and return plain tests, lose nothing."""
    suite = parsed(
        {
            "tests": [
                {"id": "a", "vars": {"x": 1}},
                {"description": "two", "dependsOn": "a", "onFailedDependency": "fail"},
            ]
        }
    )
    plain = [plain_test(test) for test in suite.tests]
    assert plain == [
        {"vars": {"x": 1}, "id": "a"},
        {"description": "two", "id": "two", "dependsOn": ["a"], "onFailedDependency": "fail"},
    ]
    assert parsed({"tests": plain}).tests == suite.tests


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("append({'vars': {'x': 5}})", ["a", "b", "case-3"]),
        ("append({'id': 'c', 'dependsOn': 'b'})", ["a", "b", "c"]),
        ("append({'id': 'a'})", None),
    ],
)
def test_hooks_may_change_cases(tmp_path: Path, change: str, names: list[str] | None) -> None:
    """Tests that extensions add get names as well, and are checked with the others."""
    code = f"def beforeAll(context, options):\n    context['suite']['tests'].{change}\n"
    (tmp_path / "h.py").write_text(f"{code}    return context\n")
    suite = parsed({"tests": [{"id": "a"}, {"id": "b", "dependsOn": "a"}]}, tmp_path)
    context = FileContext(directory=tmp_path)
    extensions = read_extensions(["file://h.py:beforeAll"], context)

    def changed() -> Suite:
        return with_before_all(suite, extensions, context, converter_of, with_cases)

    if names is not None:
        assert [case.name for case in cases_of(changed())] == names
        return
    with pytest.raises(ValueError, match='another test has the id "a", too'):
        changed()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"prompts": None}, "$: no prompts are given, so agents have nothing to do"),
        ({"tests": None}, "$: no tests are given"),
        ({"tests": []}, "$.tests: the list of tests is empty"),
    ],
)
def test_a_task_of_agents_needs_prompts_and_tests(entry: dict[str, Any], problem: str) -> None:
    """The defaults of other tasks would let an agent work without a task."""
    assert problems_of(entry) == [problem]


def test_a_misspelt_case_key_is_reported_with_the_intended_one() -> None:
    """It is reported alone, and beside valid keys."""
    hints = [
        text.partition("\n")[2].strip()
        for test in ({"dependOn": "b"}, {"id": "a", "onFailedDependancy": "skip"})
        for text in messages_of({"tests": [test]})
    ]
    assert hints == ['did you mean "dependsOn"?', 'did you mean "onFailedDependency"?']


@settings(max_examples=settings().max_examples // 8)
@given(st.lists(st.sets(st.integers(0, 6), max_size=3), max_size=7), st.sets(st.integers(0, 6)))
def test_selecting_a_case_selects_its_dependencies(
    needs: list[set[int]], selected: set[int]
) -> None:
    """No others are run, and a warning names the added cases."""
    tests = [
        {"id": f"c{place}", "dependsOn": [f"c{one}" for one in sorted(on) if one < place]}
        for place, on in enumerate([set(), *needs])
    ]
    suite = parsed({"tests": tests})
    places = selected & set(range(len(tests)))
    found, warnings = with_dependencies(suite, places)
    wanted = set(places)
    for place in range(len(tests) - 1, -1, -1):
        if place in wanted:
            wanted |= {one for one in ({*needs[place - 1]} if place else ()) if one < place}
    assert found == wanted
    message = " ".join(warning.message for warning in warnings)
    added = sorted(wanted - places)
    assert [
        name for name in message.replace(",", "").split() if name in {f"c{n}" for n in wanted}
    ] == [f"c{place}" for place in added[:5]]
    assert (f"and {len(added) - 5} more" in message) == (len(added) > 5)
