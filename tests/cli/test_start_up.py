"""Start-up: a run imports only the modules that it uses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MOST_MODULES = 255
"""Modules of trioeval that a run of echo imports: raise it only for code that every run needs."""

UNUSED = (
    "trioeval.agent.cases",
    "trioeval.agent.task",
    "trioeval.columns.model",
    "trioeval.columns.open",
    "trioeval.columns.result",
    "trioeval.evaluation.hooks",
    "trioeval.evaluation.reconcile",
    "trioeval.grading.judges",
    "trioeval.grading.kinds.json",
    "trioeval.grading.kinds.scripts",
    "trioeval.kernel.mapping",
    "trioeval.limits.memory",
    "trioeval.providers.http.adapter",
    "trioeval.providers.programs.entries",
    "trioeval.providers.programs.workers",
    "trioeval.providers.vendors.openai",
    "trioeval.question_eval.model",
    "trioeval.report.formats.document",
    "trioeval.report.run_metrics",
    "trioeval.scripting.javascript",
    "trioeval.store.cache",
    "trioeval.store.dataset",
    "trioeval.store.planner",
    "trioeval.suite.sources.csv_tests",
    "trioeval.telemetry",
    "trioeval.web.app",
)
"""Task types, assertion kinds, vendors, report formats and services that it has no use for."""

RUN = """
import json, sys
from trioeval.__main__ import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def imported(folder: Path, suite: dict[str, object]) -> set[str]:
    """Return the names of the modules of a process that has run a suite."""
    (folder / "suite.json").write_text(json.dumps(suite))
    process = subprocess.run(
        [sys.executable, "-c", RUN, "suite.json"],
        cwd=folder,
        env={key: text for key, text in os.environ.items() if key != "COVERAGE_PROCESS_START"},
        capture_output=True,
        text=True,
        check=False,
    )
    return set(json.loads(process.stderr.splitlines()[-1]))


def test_a_run_of_echo_imports_only_what_it_uses(tmp_path: Path) -> None:
    """Each further module would delay the first row of every run."""
    test = {"vars": {"word": "a"}, "assert": [{"type": "contains", "value": "hello"}]}
    suite = {"providers": ["echo"], "prompts": ["hello {{word}}"], "tests": [test]}
    modules = imported(tmp_path, suite)
    own = {name for name in modules if name.split(".")[0] == "trioeval"}
    assert not own & {*UNUSED}
    assert len(own) <= MOST_MODULES
    assert not modules & {
        "cyclopts",
        "httpx2",
        "httpcore2",
        "asyncio",
        "filelock.asyncio",
        "openai",
        "prometheus_client",
    }


def test_a_prompt_that_is_no_template_needs_no_template_engine(tmp_path: Path) -> None:
    """It is imported for the first text that does more than name variables."""
    engine = {"_quickjs", "trioeval.templates.nunjucks"}
    plain: dict[str, object] = {"providers": ["echo"], "prompts": ["hello"]}
    assert not imported(tmp_path, plain) & {"jinja2", *engine}
    named = {**plain, "prompts": ["hello {{ word }}"], "tests": [{"vars": {"word": "a"}}]}
    assert not imported(tmp_path, named) & {"jinja2", *engine}
    looped = {**plain, "prompts": ["{% for x in [1, 2] %}{{ x }}{% endfor %}"]}
    assert imported(tmp_path, looped) >= engine


@pytest.mark.parametrize(
    ("task", "used", "unused"),
    [
        (
            {"type": "agent", "prompts": ["x"], "tests": [{"id": "a"}], "maxRestarts": 1},
            "trioeval.agent.task",
            "trioeval.columns.open",
        ),
        (
            {
                "type": "columns",
                "rows": 1,
                "columns": [
                    {"name": "n", "type": "sampler", "sampler": "uniform", "low": 0, "high": 1}
                ],
            },
            "trioeval.columns.open",
            "trioeval.question_eval.task",
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_a_task_imports_the_code_of_its_own_type(
    tmp_path: Path, task: dict[str, object], used: str, unused: str
) -> None:
    """Code of other types is not imported to run it."""
    suite = {"providers": ["echo"], "tasks": [{"id": "t", **task}]}
    modules = imported(tmp_path, suite)
    assert used in modules
    assert unused not in modules
