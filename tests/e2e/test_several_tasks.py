"""A suite of three tasks and a suite with extensions, as a user runs them, with real files."""

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from test_command_line import trioeval

pytestmark = pytest.mark.slow

SUITE = """
providers = ["echo", { id = "exec:false", label = "down" }]
commandLineOptions = { promptSuffix = "!" }

[[tasks]]
id = "smoke"
type = "prompt_eval"
providers = ["echo"]
prompts = ["ping"]
tests = [{ assert = [{ type = "equals", value = "ping!" }] }]

[[tasks]]
id = "tone"
type = "prompt_eval"
dependsOn = ["smoke"]
prompts = ["Is {{word}} kind?"]
tests = [{ vars = { word = ["please", "hey"] } }]

[[tasks]]
id = "last"
type = "prompt_eval"
dependsOn = ["tone"]
providers = ["echo"]
prompts = ["never asked"]
"""


def test_three_tasks_of_a_toml_file(tmp_path: Path) -> None:
    """Every file names the task of every row; blocked rows are recorded without calls."""
    (tmp_path / "suite.toml").write_text(SUITE)
    kinds = ("json", "jsonl", "csv", "yaml", "junit.xml")
    outputs = [part for kind in kinds for part in ("-o", f"r.{kind}")]
    done = trioeval("suite.toml", "--no-progress", *outputs, cwd=tmp_path)
    assert done.returncode == 100, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.endswith("exit 100: 2 rows ended in errors, 1 row blocked by a failed dependency")
    shown = trioeval("show", "latest", "9", "--task", "tone", cwd=tmp_path)
    assert shown.stderr.endswith(
        "has no row 9 of task tone; 4 of 4 rows are stored, numbered from 0\n"
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("task ")] == [
        "task smoke",
        "task tone",
        "task last",
    ]
    document = json.loads((tmp_path / "r.json").read_text())
    assert yaml.safe_load((tmp_path / "r.yaml").read_text()) == document
    found = {
        name: [row["metadata"]["trioeval"]["outcome"] for row in task["results"]["results"]]
        for name, task in document["tasks"].items()
    }
    assert found == {
        "smoke": ["done"],
        "tone": ["done", "failed", "done", "failed"],
        "last": ["blocked"],
    }
    assert document["tasks"]["last"]["dependsOn"] == ["tone"]
    assert document["tasks"]["last"]["results"]["results"][0]["error"] == "blocked by task tone"
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [row["task"] for row in lines] == ["smoke"] + 4 * ["tone"] + ["last"]
    assert len({row["id"] for row in lines}) == 6
    table = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [line["Task"] for line in table] == ["smoke", "tone", "tone", "last"]
    assert [line["[echo] ping"] for line in table] == ["ping!", "", "", ""]
    suites = ET.parse(tmp_path / "r.junit.xml").getroot()  # noqa: S314 - our own text
    assert [suite.get("name") for suite in suites] == [
        "smoke: [echo] prompt 1",
        "tone: [echo] prompt 1",
        "tone: [down] prompt 1",
        "last: [echo] prompt 1",
    ]


def test_flags_reach_every_task(tmp_path: Path) -> None:
    """Filters apply inside each task; the rows of an earlier result are found."""
    (tmp_path / "suite.toml").write_text(SUITE)
    trioeval("suite.toml", "-o", "r.json", cwd=tmp_path)
    again = trioeval("suite.toml", "--filter-errors-only", "r.json", "-o", "a.jsonl", cwd=tmp_path)
    assert again.returncode == 100, again.stderr
    one = trioeval(
        "suite.toml", "--filter-providers", "echo", "--filter-range", "0:1", cwd=tmp_path
    )
    assert one.returncode == 0, one.stderr
    assert one.stderr.splitlines()[-1].startswith("4 rows in ")
    none = trioeval("suite.toml", "--filter-range", "7:", cwd=tmp_path)
    assert none.returncode == 2
    assert "no rows match the filters (pass --allow-empty to accept this)" in none.stderr


def test_one_task_runs_with_its_dependencies(tmp_path: Path) -> None:
    """The others make no calls and are not checked."""
    keyless = "providers = ['openai:gpt-4.1']\nprompts = ['hi']\n"
    (tmp_path / "suite.toml").write_text(
        f"{SUITE}\n[[tasks]]\nid = 'keyless'\ntype = 'prompt_eval'\n{keyless}"
    )
    one = trioeval("suite.toml", "--task", "smoke", "-o", "r.json", cwd=tmp_path)
    assert one.returncode == 0, one.stderr
    assert list(json.loads((tmp_path / "r.json").read_text())["tasks"]) == ["smoke"]
    chain = trioeval("suite.toml", "--task", "last", "--plan", cwd=tmp_path)
    assert chain.returncode == 0, chain.stderr
    assert [name for name in ("smoke", "tone", "last", "keyless") if name in chain.stdout] == [
        "smoke",
        "tone",
        "last",
    ]
    several = trioeval(
        "suite.toml",
        "--task",
        "smoke",
        "--task",
        "tone",
        "--filter-providers",
        "echo",
        cwd=tmp_path,
    )
    assert several.returncode == 0, several.stderr
    assert several.stderr.splitlines()[-1].startswith("3 rows in ")


def test_an_unknown_task_is_named(tmp_path: Path) -> None:
    """The message lists the tasks of the suite."""
    (tmp_path / "suite.toml").write_text(SUITE)
    wrong = trioeval("suite.toml", "--task", "smok", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "the suite has no task smok: its tasks are smoke, tone, last" in wrong.stderr
    (tmp_path / "plain.json").write_text('{"providers": ["echo"], "prompts": ["hi"]}')
    plain = trioeval("plain.json", "--task", "x", cwd=tmp_path)
    assert plain.returncode == 2
    assert "the suite has no task x: it has no tasks" in plain.stderr


def test_extensions_of_a_suite_run_and_warn(tmp_path: Path) -> None:
    """A failure after a row is a warning, and the run passes."""
    (tmp_path / "hooks.py").write_text(
        "def afterEach(context, options):\n"
        "    context['result']['namedScores']['n'] = 2\n"
        "    return context\n"
        "def afterAll(context, options):\n"
        "    raise RuntimeError('no mail was sent')\n"
    )
    suite = {
        "providers": ["echo"],
        "prompts": ["hi"],
        "extensions": ["file://hooks.py:afterEach", "file://hooks.py:afterAll"],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    done = trioeval("suite.json", "-o", "r.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    assert row["namedScores"] == {"n": 2}
    assert "warning: afterAll of hooks.py:afterAll failed" in done.stderr
    assert "no mail was sent" in done.stderr
