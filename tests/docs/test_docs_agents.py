"""The example of three repairs: a scripted agent that is restarted, real processes, and a resume."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from snippets import DOCS, blocks

from trioeval.cli.app import run_command_line

EXAMPLE = DOCS / "examples" / "repairs"
HOWTO = DOCS / "howto" / "agent-eval.md"
RESTARTS = {"words": 1, "money": 2, "dates": 3}


def run(*arguments: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows that a command of trioeval writes; it must succeed."""
    flags = ["-o", "out.jsonl", "--no-table", "--no-progress"]
    assert run_command_line([*arguments, *flags]) == 0
    lines = Path("out.jsonl").read_text().splitlines()
    return [row for line in lines if "provider" in (row := json.loads(line))]


@pytest.mark.slow
def test_three_repairs_need_one_two_and_three_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tests pass then; a resume repeats nothing; the shipped projects stay broken."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    here = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([here, os.environ["PATH"]]))
    rows = run("repairs.yaml")
    assert [row["success"] for row in rows] == [True, True, True]
    agents = {row["testCase"]["case"]: row["response"]["metadata"]["agent"] for row in rows}
    assert {name: len(agent["attempts"]) - 1 for name, agent in agents.items()} == RESTARTS
    for name, agent in agents.items():
        assert agent["outcome"] == "done"
        assert {attempt["exitCode"] for attempt in agent["attempts"]} == {0}
        project = f"projects/{name}/{name}.py"
        assert Path(project).read_text() == (EXAMPLE / project).read_text()
    assert run("resume") == rows


def test_the_page_shows_the_suite_as_it_is() -> None:
    """The suite is shown completely."""
    shown = next(block for block in blocks(HOWTO) if block.language == "yaml")
    assert yaml.safe_load(shown.text) == yaml.safe_load((EXAMPLE / "repairs.yaml").read_text())
