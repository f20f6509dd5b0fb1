"""Unknown keys: a misspelling is a mistake, any other has no effect, which a warning says."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from trioeval.documents.mistakes import is_misspelt, nearest
from trioeval.documents.structure import fields_by_key
from trioeval.errors import SuiteError
from trioeval.grading import Assertion
from trioeval.loading.load import load_suite, parse_suite
from trioeval.suite.model import (
    CommandLineOptions,
    EvaluateOptions,
    ProviderEntry,
    Scenario,
    Suite,
    Test,
)

NEAR = [
    (Suite, "provders", "providers"),
    (Suite, "promtps", "prompts"),
    (Suite, "prompt", "prompts"),
    (Suite, "default-test", "defaultTest"),
    (Suite, "scenario", "scenarios"),
    (Test, "asserts", "assert"),
    (Test, "vrs", "vars"),
    (Test, "treshold", "threshold"),
    (Assertion, "treshold", "threshold"),
    (Assertion, "valeu", "value"),
    (Assertion, "tpye", "type"),
    (ProviderEntry, "lable", "label"),
    (ProviderEntry, "lanes", "lane"),
    (EvaluateOptions, "concurrency", "maxConcurrency"),
    (EvaluateOptions, "timeout", "timeoutMs"),
    (Scenario, "conifg", "config"),
]


@pytest.mark.parametrize(("model", "key", "meant"), NEAR)
def test_a_key_near_to_a_known_one_is_a_misspelling(model: type, key: str, meant: str) -> None:
    """The known one is suggested."""
    known = fields_by_key(model)
    assert is_misspelt(key, known)
    assert nearest(key, known) == f'did you mean "{meant}"?'


# Keys that configurations for promptfoo 0.123.1 contain, by the model that reads their level.
FOREIGN: dict[type, list[str]] = {
    Suite: [
        "outputs",
        "notes",
        "author",
        "version",
        "x-foo",
        "name",
        "title",
        "questions",
        "model",
        "temperature",
        "evalId",
        "config",
        "sharing",
        "redteam",
        "tracing",
        "telemetry",
        "writeLatestResults",
        "inputs",
        "results",
        "system",
    ],
    Test: [
        "id",
        "name",
        "reason",
        "notes",
        "tags",
        "outputs",
        "expected",
        "category",
        "display",
        "context",
    ],
    Assertion: [
        "reason",
        "description",
        "notes",
        "name",
        "tags",
        "id",
        "expected",
        "severity",
        "message",
    ],
    ProviderEntry: ["description", "inputs", "tags", "temperature", "model", "apiKey", "display"],
    Scenario: ["tags", "name", "notes", "id"],
    EvaluateOptions: ["eventSource", "abortSignal", "progressCallback", "verbose", "outputs"],
    CommandLineOptions: [
        "config",
        "remote",
        "resume",
        "providers",
        "prompts",
        "tests",
        "assertions",
        "input",
    ],
}


@pytest.mark.parametrize(
    ("model", "key"), [(m, key) for m, keys in FOREIGN.items() for key in keys]
)
def test_keys_of_other_tools_are_not_taken_for_misspellings(model: type, key: str) -> None:
    """They are far from every key of their level."""
    assert not is_misspelt(key, fields_by_key(model).keys())


EVERYWHERE = """\
providers:
  - id: echo
    colour: red
  - {echo:b: {colour: red}}
prompts:
  - raw: "{{x}}"
    file: p.txt
outputs: [a]
x-foo: silent
evaluateOptions: {colour: red}
commandLineOptions: {colour: red}
defaultTest: {colour: red}
scenarios:
  - colour: red
    config: [{vars: {x: 1}, colour: red}]
    tests: [{colour: red, vars: {y: 1}}]
derivedMetrics:
  - {name: m, value: "1", colour: red}
lanes: {slow: {colour: red}}
tests:
  - vars: {x: 1}
    colour: red
    id: first
    options: {provider: {id: echo, colour: red}}
    assert:
      - {type: contains, value: "1", reason: because}
      - type: assert-set
        assert: [{type: contains, value: "1", reason: because}]
  - {path: tests.jsonl, rows: 5}
"""
IGNORED = """\
suite.yaml:3:5: $.providers[0].colour: "colour"
suite.yaml:4:15: $.providers[1]["echo:b"].colour: "colour"
suite.yaml:7:5: $.prompts[0].file: "file"
suite.yaml:8:1: $.outputs: "outputs"
suite.yaml:10:19: $.evaluateOptions.colour: "colour"
suite.yaml:11:22: $.commandLineOptions.colour: "colour"
suite.yaml:12:15: $.defaultTest.colour: "colour"
suite.yaml:14:5: $.scenarios[0].colour: "colour"
suite.yaml:15:29: $.scenarios[0].config[0].colour: "colour"
suite.yaml:16:14: $.scenarios[0].tests[0].colour: "colour"
suite.yaml:18:27: $.derivedMetrics[0].colour: "colour"
suite.yaml:19:16: $.lanes.slow.colour: "colour"
suite.yaml:22:5: $.tests[0].colour: "colour"
suite.yaml:23:5: $.tests[0].id: id
suite.yaml:24:36: $.tests[0].options.provider.colour: "colour"
suite.yaml:26:38: $.tests[0].assert[0].reason: "reason"
suite.yaml:28:47: $.tests[0].assert[1].assert[0].reason: "reason"
suite.yaml:29:25: $.tests[1].rows: "rows"
tests.jsonl:1:1: $.colour: "colour"
""".splitlines()
PROBLEMS = [
    f"{line} {'belongs to tests of tasks of type agent' if line.endswith('id') else 'is not a key here'}"
    for line in IGNORED
]


def written(folder: Path, text: str = EVERYWHERE) -> Path:
    (folder / "suite.yaml").write_text(text)
    line = json.dumps({"vars": {"x": 2}, "colour": "red"})
    (folder / "tests.jsonl").write_text(f"{line}\n" * 500)
    return Path("suite.yaml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_unknown_key_has_no_effect_on_any_level(folder: Path) -> None:
    """Each has one warning, at its place, and 500 equal ones of a file are counted."""
    suite = load_suite(written(folder), environ={})
    found = [str(warning) for warning in suite.warnings]
    ends = [f"{line} and has no effect" for line in PROBLEMS]
    ends[-1] += " (500 times)"
    assert sorted(found) == sorted(ends)


def test_strict_makes_them_mistakes(folder: Path) -> None:
    """All are reported, at the same places, together with other mistakes."""
    with pytest.raises(SuiteError) as caught:
        load_suite(written(folder, EVERYWHERE + "tags: 5\n"), environ={}, strict=True)
    found = [str(problem).partition("\n")[0] for problem in caught.value.problems]
    of_suite = [*PROBLEMS[:-1], "suite.yaml:30:7: $.tags: must be an object, got 5"]
    assert sorted(line for line in found if line.startswith("suite")) == sorted(of_suite)
    assert sum(line.startswith("tests.jsonl") for line in found) == 500
    with pytest.raises(SuiteError):
        parse_suite({"providers": ["echo"], "notes": 1}, strict=True)


def test_a_warning_hides_no_mistake_and_a_mistake_no_other(folder: Path) -> None:
    """A misspelling is refused although another key is merely ignored."""
    with pytest.raises(SuiteError) as caught:
        load_suite(written(folder, EVERYWHERE + "promtps: [a]\n"), environ={})
    assert str(caught.value) == (
        'suite.yaml:30:1: $.promtps: "promtps" is not a key here\n  did you mean "prompts"?'
    )


TASKS: list[tuple[dict[str, Any], str]] = [
    ({"type": "prompt_eval", "prompts": ["a"]}, "colour"),
    (
        {
            "type": "columns",
            "rows": 1,
            "columns": [{"name": "a", "type": "expression", "template": "x"}],
        },
        "author",
    ),
    (
        {
            "type": "question_eval",
            "questions": {"fromTask": "t", "question": "q", "answers": "a", "correctAnswers": "c"},
        },
        "colour",
    ),
    ({"type": "agent", "prompts": ["a"], "tests": [{"id": "a"}]}, "colour"),
]


@pytest.mark.parametrize(("task", "key"), TASKS, ids=[task["type"] for task, _ in TASKS])
def test_tasks_of_all_types_have_the_same_rule(task: dict[str, Any], key: str) -> None:
    """A misspelling is refused; another key is reported at its task, and so is one of the top, once."""
    source = {
        "id": "t",
        "type": "columns",
        "rows": 1,
        "columns": [{"name": n, "type": "expression", "template": "x"} for n in ("q", "a", "c")],
    }
    top = {"providers": [{"id": "echo", "colour": 1}], "defaultTest": {"colour": 1}}
    suite = parse_suite({**top, "tasks": [source, {**task, key: 1}]})
    paths = [warning.path for warning in suite.warnings if "no effect" in warning.message]
    assert f"$.tasks[1].{key}" in paths
    assert len(paths) == len(set(paths))
    with pytest.raises(SuiteError, match="did you mean"):
        parse_suite({**top, "tasks": [source, {**task, "providrs": ["echo"]}]})


def test_an_ignored_key_changes_nothing() -> None:
    """The suite is equal to the one without it."""
    plain = {"providers": ["echo"], "tests": [{"vars": {"x": 1}}]}
    noted = {
        **plain,
        "notes": [1, {"a": "{{ not a template"}],
        "tests": [{"vars": {"x": 1}, "n": 2}],
    }
    assert attrs.evolve(parse_suite(noted), warnings=()) == parse_suite(plain)
