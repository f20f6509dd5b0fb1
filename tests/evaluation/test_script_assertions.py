"""Assertions in code, in real processes: their context, and the handling of their results."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval.errors import SuiteError
from trioeval.loading.load import parse_suite
from trioeval.report.row import row_json
from trioeval.run import Row, Status, run_suite
from trioeval.scripting.evaluator import program as evaluator
from trioeval.suite.plain import plain_test

pytestmark = pytest.mark.slow  # processes

CHECKS = """
import os

calls = []

def get_assert(output, context):
    return output == "abc"

def least(output, context):
    return len(output) >= context["config"]["least"]

def judged(output, context):
    assert context["prompt"] == "say hi", context["prompt"]
    assert context["vars"] == {"word": "hi", "n": [1]}, context["vars"]
    assert context["test"]["vars"]["word"] == "hi"
    assert context["test"]["description"] == "one"
    assert context["test"]["assert"][0] == {"type": "python", "value": "file://checks.py:judged"}
    assert context["provider"] == {"id": "echo"}
    assert context["test"]["options"] == {}
    assert context["metadata"] == {}
    response = context["providerResponse"]
    assert response["output"] == "say hi"
    assert "raw" not in response
    assert (response["cached"], response["metadata"]) == (False, {})
    assert response["tokenUsage"]["numRequests"] == 1
    assert response["tokenUsage"]["completionDetails"]["reasoning"] == 0
    assert "config" not in context
    return True

def again(output, context):
    calls.append(os.getpid())
    return len(calls)

def word(output, context):
    return "{{word}}"

def words(output, context):
    return ["zz", context["vars"]["word"]]

def judge(output, context):
    return {"pass": True, "score": 1, "reason": ""}

def fail(output, context):
    raise KeyError(output)
"""
SCRIPTS = """
module.exports = (output, context) => output.length >= context.config.least;
module.exports.word = (output) => output.slice(0, 2);
module.exports.fail = () => { throw new Error("no luck"); };
"""


def suite_of(folder: Path, *assertions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A suite with one test, as data."""
    (folder / "checks.py").write_text(CHECKS)
    (folder / "checks.js").write_text(SCRIPTS)
    test = {"vars": {"word": "hi"}, "assert": list(assertions), **more}
    return {"providers": ["echo"], "prompts": ["say {{word}}"], "tests": [test]}


def rows_of(folder: Path, suite: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []

    async def emit(row: Row) -> None:
        await trio.lowlevel.checkpoint()
        rows.append(row)

    async def main() -> None:
        with trio.fail_after(60):
            await run_suite(parse_suite(suite, directory=folder), emit=emit)

    trio.run(main)
    return rows


def row_of(folder: Path, *assertions: dict[str, Any], **more: Any) -> Row:
    return rows_of(folder, suite_of(folder, *assertions, **more))[0]


def scores(row: Row) -> list[float]:
    assert row.verdict is not None, row.error
    return [part.score for part in row.verdict.parts]


def problem(folder: Path, *assertions: dict[str, Any]) -> str:
    with pytest.raises(SuiteError) as caught:
        parse_suite(suite_of(folder, *assertions), directory=folder)
    return str(caught.value)


def test_a_script_gets_the_context_of_its_row(tmp_path: Path) -> None:
    """Both languages use the same names."""
    in_javascript = "context.vars.n[0] === 1 && context.test.description === 'one'"
    row = row_of(
        tmp_path,
        {"type": "python", "value": "file://checks.py:judged"},
        {"type": "javascript", "value": in_javascript},
        {"type": "python", "value": "context['providerResponse']['output'] == output"},
        description="one",
        vars={"word": "hi", "n": [1]},
    )
    assert row.status is Status.PASS, row.error


def test_a_script_sees_the_transformed_output_and_the_sent_prompt(tmp_path: Path) -> None:
    """It gets the output that it judges; the original one is `raw` if it differs."""
    row = row_of(
        tmp_path,
        {"type": "javascript", "value": "context.providerResponse.output.a === 'say hi'"},
        {"type": "javascript", "value": "context.providerResponse.raw === 'say hi'"},
        {"type": "python", "value": "context['test']['options'] == {'transform': '({a: output})'}"},
        options={"transform": "({a: output})"},
    )
    assert row.status is Status.PASS, row.error


def test_files_of_code_judge_with_their_config(tmp_path: Path) -> None:
    """The function is the named one, or the default of such a file."""
    row = row_of(
        tmp_path,
        {"type": "python", "value": "file://checks.py"},
        {"type": "python", "value": "file://checks.py:least", "config": {"least": 3}},
        {"type": "javascript", "value": "file://checks.js", "config": {"least": 4}},
        {"type": "not-python", "value": "file://checks.py:fail"},
        providerOutput="abc",
        threshold=0.5,
    )
    assert scores(row) == [1, 1, 0, 0]
    assert row.verdict is not None
    assert row.verdict.parts[3].reason == "checks.py:fail: KeyError: 'abc'"


def test_processes_are_reused_for_the_next_assertion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pool serves all inline code of a suite, and each function of a file has its own."""
    monkeypatch.setenv("TRIOEVAL_PYTHON_WORKERS", "1")
    pid = {"type": "python", "value": "__import__('os').getpid()"}
    other = {"type": "python", "value": "import os\nreturn os.getpid()"}
    again = {"type": "python", "value": "file://checks.py:again"}
    suite = suite_of(tmp_path, pid, other, again)
    suite["tests"] *= 3
    found = [scores(row) for row in rows_of(tmp_path, suite)]
    assert len({row[0] for row in found} | {row[1] for row in found}) == 1
    assert found[0][0] != os.getpid()
    assert sorted(row[2] for row in found) == [1, 2, 3]


def test_programs_compute_values(tmp_path: Path) -> None:
    """Their results are compared unchanged: they are not templates."""
    row = row_of(
        tmp_path,
        {"type": "contains", "value": "file://checks.py:word"},
        {"type": "not-equals", "value": "file://checks.js:word"},
        {"type": "equals", "value": "file://checks.js:word", "transform": "output.slice(0, 2)"},
        providerOutput="a {{word}}",
    )
    assert scores(row) == [1, 1, 1]
    assert row.verdict is not None
    assert row.verdict.parts[0].metadata == {"renderedAssertionValue": "{{word}}"}
    written = row_json(row, "eval")["testCase"]["assert"][0]
    assert written == {"type": "contains", "value": "file://checks.py:word"}
    assert plain_test(row.step.test)["assert"][0] == written


@pytest.mark.parametrize(
    ("value", "status", "error"),
    [
        ("file://checks.py:judge", Status.ERROR, "must return the value to compare with"),
        ("file://checks.py:get_assert", Status.ERROR, "must return the value to compare with"),
        ("file://checks.py:words", Status.ERROR, 'or a number, got ["zz","hi"], from'),
        ("file://checks.py:fail", Status.FAIL, "KeyError"),
        ("file://checks.py:gone", Status.FAIL, "function gone not found"),
        ("file://checks.js:fail", Status.ERROR, "no luck"),
        ("file://checks.js:fial", Status.ERROR, 'it exports no function "fial"'),
    ],
)
def test_programs_without_a_value(value: str, status: Status, error: str, tmp_path: Path) -> None:
    """A failing Python program fails the assertion, also under `not-`; a verdict is not a value."""
    suite = suite_of(tmp_path, {"type": "not-contains", "value": value})
    with (tmp_path / "checks.py").open("a") as file:
        file.write("# gone\n")
    (row,) = rows_of(tmp_path, suite)
    assert (row.status, row.score) == (status, 0)
    assert error in str(row.error)


@pytest.mark.parametrize(
    ("assertion", "message"),
    [
        (
            {"type": "equals", "value": ["file://checks.py"]},
            "a program cannot compute a member of a list",
        ),
        ({"type": "python", "value": "file://checks.ts"}, "file not found"),
        ({"type": "python", "value": "file://typed.ts:f"}, "is TypeScript, so it needs Node"),
        ({"type": "python", "value": "file://check.py"}, 'did you mean "checks.py"?'),
        ({"type": "python", "value": "file://checks.py:fial"}, 'function "fial" not found'),
        ({"type": "python", "value": "file://wrong.py"}, "not Python"),
        ({"type": "javascript", "value": "file://wrong.js"}, "is not JavaScript"),
        (
            {"type": "ruby", "value": "true"},
            'program "no-ruby" not found in PATH, required for Ruby code',
        ),
        (
            {"type": "equals", "value": "file://check.rb"},
            'program "no-ruby" not found in PATH, required for Ruby code',
        ),
        ({"type": "webhook", "value": "example.com"}, "begins with http:// or https://"),
        ({"type": "webhook"}, '"value" is missing'),
        ({"type": "python"}, '"value" is missing'),
        ({"type": "not-python", "value": "1 +"}, '"1 +" is not Python: invalid syntax'),
        ({"type": "python", "value": "import time; x"}, "code on one line is an expression"),
        ({"type": "javascript", "value": "1 +"}, "is not JavaScript: SyntaxError"),
        ({"type": "javascript", "value": "while (x) {}"}, "code on one line is an expression"),
        ({"type": "javascript", "value": "file://needs.js"}, '"needs.js" uses require in line 3'),
        (
            {"type": "javascript", "value": "file://module.mjs"},
            '"module.mjs" is an ES module: it uses import in line 1',
        ),
        ({"type": "javascript", "value": "process.env.A === output"}, "uses process in line 1"),
        ({"type": "javascript", "value": "const a = 1\nreturn fetch(a)"}, "uses fetch in line 2"),
    ],
)
def test_invalid_code_is_reported_before_a_run(
    assertion: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the position and the valid forms."""
    monkeypatch.setenv("TRIOEVAL_RUBY", "no-ruby")
    monkeypatch.setenv("TRIOEVAL_NODE", "no-node")
    for name, text in {
        "typed.ts": "",
        "wrong.py": "def (",
        "wrong.js": "(",
        "check.rb": "",
        "needs.js": "// it's a \"note\nconst text = 'require(1)';\nconst fs = require('fs');\n",
        "module.mjs": "import fs from 'node:fs';\nexport default (output) => true;\n",
    }.items():
        (tmp_path / name).write_text(text)
    found = problem(tmp_path, assertion)
    assert message in found
    assert found.startswith(("$.tests[0].assert[0]", f"{tmp_path / 'wrong.py'}:1:5: "))


STAND_IN = f"""#!{sys.executable}
import os, shutil, sys

program, channel, lifeline, file, name, largest, memory = sys.argv[1:]
if file == program:
    file = {evaluator.__file__!r}
else:
    shutil.copy(file, file + ".py")
    file += ".py"
worker = program[: -len("rb")] + "py"
os.execv(sys.executable, [sys.executable, worker, channel, lifeline, file, name, largest, memory])
"""


def test_ruby_is_called_like_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The named interpreter is used; here one that understands another language."""
    ruby = tmp_path / "my-ruby"
    ruby.write_text(STAND_IN)
    ruby.chmod(0o755)
    monkeypatch.setenv("PROMPTFOO_RUBY", str(ruby))
    (tmp_path / "check.rb").write_text("def get_assert(output, context):\n    return len(output)\n")
    row = row_of(
        tmp_path,
        {"type": "ruby", "value": "output == 'abc'"},
        {"type": "ruby", "value": "size = len(output)\nreturn size / 4", "threshold": 0.9},
        {"type": "ruby", "value": "file://check.rb"},
        {"type": "not-ruby", "value": "nonsense"},
        {"type": "equals", "value": "file://check.rb", "transform": "output.length"},
        providerOutput="abc",
    )
    assert scores(row) == [1, 0.75, 3, 0, 0]
