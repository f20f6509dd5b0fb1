"""Plans and listings of tests run no code of a suite: each form of code leaves a mark if it runs."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trioeval.cli import run_command_line
from trioeval.cli.run.plan import plan_lines
from trioeval.loading.load import load_suite
from trioeval.pytest_plugin.loading import load_file, named_items
from trioeval.run import prepare

pytestmark = pytest.mark.attack("code in a plan")

PROGRAM = """
from pathlib import Path

Path(__file__).with_name("ran").write_text("ran")


def f(*a):
    return {}


def generate_tests(*a):
    return [{"vars": {"x": "1"}}]


def hook(*a):
    return a[-1]


def beforeAll(*a):
    return a[0]


def call_api(*a):
    return {"output": "a"}
"""
MARK = "__import__('pathlib').Path('ran').write_text('ran')"
PLAIN: Mapping[str, Any] = {
    "providers": ["echo"],
    "prompts": ["{{x}}"],
    "tests": [{"vars": {"x": "1"}}],
}


def default(**options: Any) -> dict[str, Any]:
    return {"defaultTest": {"options": options}}


def columns(**column: Any) -> dict[str, Any]:
    entry = {"name": "a", **column}
    return {
        "providers": ["echo"],
        "tasks": [{"id": "d", "type": "columns", "rows": 2, "columns": [entry]}],
    }


FORMS: Mapping[str, tuple[dict[str, Any], str]] = {
    "tests": ({**PLAIN, "tests": "file://mine.py"}, "the tests that generate_tests"),
    "tests with a config": (
        {**PLAIN, "tests": [{"path": "file://mine.py:f", "config": {"a": 1}}]},
        "the tests that f",
    ),
    "tests of scenarios": (
        {**PLAIN, "scenarios": [{"config": [{}], "tests": "file://mine.py"}]},
        "the tests that generate_tests",
    ),
    "tests of a task": (
        {
            "providers": ["echo"],
            "tasks": [
                {"id": "t", "type": "prompt_eval", "prompts": ["a"], "tests": "file://mine.py"}
            ],
        },
        "the tests that generate_tests",
    ),
    "hook": ({**PLAIN, "extensions": ["file://mine.py:hook"]}, "what beforeAll of mine.py:hook"),
    "hook of one event": (
        {**PLAIN, "extensions": ["file://mine.py:beforeAll"]},
        "what beforeAll of mine.py:beforeAll",
    ),
    "filter": (
        {**PLAIN, "nunjucksFilters": {"f": "mine.py"}, "prompts": ["{{ x | f }}"]},
        'what the filter "f" makes',
    ),
    "transformVars": ({**PLAIN, **default(transformVars="file://mine.py:f")}, "the variables that"),
    "transformVars of Python": (
        {**PLAIN, **default(transformVars=f"python:{MARK}")},
        "the variables that transformVars makes for 1 tests",
    ),
    "config of a provider": (
        {
            **PLAIN,
            "providers": [
                {"id": "openai:m", "config": {"apiKey": "k", "metadata": "file://mine.py:f"}}
            ],
        },
        "the part of a config",
    ),
    "config of a prompt": (
        {**PLAIN, "prompts": [{"raw": "a", "config": {"b": {"c": "file://mine.py:f"}}}]},
        "the part of a config",
    ),
    "provider in a thread": (
        {**PLAIN, "providers": [{"id": "python:mine.py", "config": {"mode": "thread"}}]},
        "",
    ),
    "provider on Trio": (
        {**PLAIN, "providers": [{"id": "file://mine.py", "config": {"mode": "trio"}}]},
        "",
    ),
    "judge in a thread": (
        {
            **PLAIN,
            "defaultTest": {
                "options": {"provider": {"id": "python:mine.py", "config": {"mode": "thread"}}},
                "assert": [{"type": "llm-rubric", "value": "a"}],
            },
        },
        "",
    ),
    "provider of its own": ({**PLAIN, "providers": ["python:mine.py"]}, ""),
    "program": ({**PLAIN, "providers": ["exec:touch ran"]}, ""),
    "variable": ({**PLAIN, "tests": [{"vars": {"x": "file://mine.py"}}]}, ""),
    "prompt": ({**PLAIN, "prompts": ["file://mine.py:f", "exec:touch ran"]}, ""),
    "assertion": (
        {**PLAIN, "tests": [{"assert": [{"type": "python", "value": MARK}]}]},
        "",
    ),
    "assertion type": ({**PLAIN, "assertionTypes": {"mine": "file://mine.py:f"}}, ""),
    "derived metric": (
        {**PLAIN, "derivedMetrics": [{"name": "m", "value": "file://mine.py:f"}]},
        "",
    ),
    "transform": ({**PLAIN, **default(transform=f"python:{MARK}")}, ""),
    "column": (columns(type="python", target="file://mine.py:f"), ""),
    "column of an expression": (columns(type="expression", python=MARK), ""),
}


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a suite, which is not written yet, next to its program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PROGRAM)
    return tmp_path / "s.trioeval.json"


@pytest.mark.parametrize(("suite_keys", "unknown"), FORMS.values(), ids=FORMS)
def test_a_plan_runs_no_code(suite_keys: dict[str, Any], unknown: str, suite: Path) -> None:
    """It lists what is unknown before the run."""
    suite.write_text(json.dumps(suite_keys))
    prepared = prepare(load_suite(suite, plans=True), environ={})
    lines = list(plan_lines(prepared))
    assert not suite.with_name("ran").exists()
    unknown_lines = [line for line in lines if line.startswith("not known before the run: ")]
    assert len(unknown_lines) == bool(unknown)
    assert all(unknown in line for line in unknown_lines)


@pytest.mark.parametrize("form", ["tests", "hook", "filter", "transformVars", "tests of a task"])
def test_a_listing_of_tests_runs_no_code(form: str, suite: Path) -> None:
    """They are shown as one item if only a run can determine the rows."""
    suite.write_text(json.dumps(FORMS[form][0]))
    loaded = load_file(suite, None, plans=True)
    assert len(list(named_items(loaded))) == 1
    assert not suite.with_name("ran").exists()


@pytest.mark.parametrize("form", ["tests", "hook", "filter", "assertion", "program"])
def test_showing_a_run_runs_no_code(
    form: str, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored run is read from its database, and the schema needs no suite."""
    monkeypatch.setenv("TRIOEVAL_CONFIG_DIR", str(suite.parent))
    suite.write_text(json.dumps(FORMS[form][0]))
    database = suite.with_name("runs.db")
    run_command_line(
        ["run", str(suite), "--db", str(database), "--no-progress", "--no-table", "--no-cache"]
    )
    mark = suite.with_name("ran")
    assert mark.exists()
    mark.unlink()
    for words in (["show", "--db", str(database)], ["schema"]):
        assert run_command_line(words) == 0
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["trioeval run", "pytest --collect-only -q -p no:cacheprovider"])
def test_the_commands_run_no_code(module: str, suite: Path) -> None:
    """The commands are called as by users."""
    suite_keys = {
        key: part for form in FORMS for key, part in FORMS[form][0].items() if key != "tasks"
    }
    suite_keys |= {
        "tests": "file://mine.py",
        "extensions": ["file://mine.py:hook"],
        "providers": ["echo"],
    }
    suite.write_text(json.dumps(suite_keys))
    flags = ["--plan"] if module.startswith("trioeval") else []
    words = [sys.executable, "-m", *module.split(), suite.name, *flags]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not suite.with_name("ran").exists()
