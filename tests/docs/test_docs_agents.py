"""The example of three repairs: a scripted agent that is started again, real processes, twice."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from snippets import DOCS, ROOT, blocks

EXAMPLE = DOCS / "examples" / "repairs"
HOWTO = DOCS / "howto" / "agent-eval.md"
RESTARTS = {"words": 1, "money": 2, "dates": 3}


def run(folder: Path, *arguments: str) -> Sequence[Mapping[str, Any]]:
    """The rows that a command of trioeval writes, which ends well."""
    done = subprocess.run(
        [sys.executable, "-m", "trioeval", *arguments, "-o", "out.jsonl", "--no-table"],
        cwd=folder,
        env=os.environ
        | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = (folder / "out.jsonl").read_text().splitlines()
    return [row for line in lines if "provider" in (row := json.loads(line))]


@pytest.mark.slow
def test_three_repairs_need_one_two_and_three_restarts(tmp_path: Path) -> None:
    """All tests pass then; nothing is done again when the run is resumed; the projects stay broken."""
    folder = tmp_path / "repairs"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__*"))
    rows = run(folder, "repairs.yaml")
    assert [row["success"] for row in rows] == [True, True, True]
    agents = {row["testCase"]["case"]: row["response"]["metadata"]["agent"] for row in rows}
    assert {name: len(agent["attempts"]) - 1 for name, agent in agents.items()} == RESTARTS
    assert {agent["outcome"] for agent in agents.values()} == {"done"}
    for name, agent in agents.items():
        assert [attempt["exitCode"] for attempt in agent["attempts"]] == [0] * (RESTARTS[name] + 1)
        project = f"projects/{name}/{name}.py"
        assert (folder / project).read_text() == (EXAMPLE / project).read_text()
    assert run(folder, "resume") == rows


def test_the_page_shows_the_suite_as_it_is() -> None:
    """All of it."""
    shown = next(block for block in blocks(HOWTO) if block.language == "yaml")
    assert yaml.safe_load(shown.text) == yaml.safe_load((EXAMPLE / "repairs.yaml").read_text())
