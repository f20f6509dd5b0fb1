"""The pages about measurements name the scripts and the versions that exist."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from snippets import DOCS, ROOT

sys.path.insert(0, str(ROOT / "tests/bench/peers"))
from compare import PROMPTFOO, table_of

BENCH = ROOT / "tests/bench"


def test_the_page_of_benchmarks_names_every_script() -> None:
    """A script that the page does not name is not found, and a name without a script cannot be run."""
    page = (DOCS / "reference/benchmarks.md").read_text(encoding="utf-8")
    scripts = {path.name for path in BENCH.glob("*.py")} | {"peers/compare.py"}
    assert set(re.findall(r"`([\w/]+\.py)`", page)) == scripts


def test_the_comparison_names_the_installed_versions() -> None:
    """The page's versions are those that the script installs."""
    page = (DOCS / "comparison.md").read_text(encoding="utf-8")
    pinned = dict(
        line.split("==")
        for line in (BENCH / "peers/requirements.txt").read_text(encoding="utf-8").splitlines()
    )
    assert f"promptfoo {PROMPTFOO.partition('@')[2]}" in page
    assert f"Inspect AI {pinned['inspect-ai']}" in page
    assert f"pydantic-evals {pinned['pydantic-evals']}" in page


def test_a_table_shows_medians_and_missing_values() -> None:
    """Counts are whole numbers, large figures are rounded, and a value that a round lacks is "none"."""
    rounds = {
        "a": [{"replies": 1, "s": 0.5}, {"replies": 3, "s": 812.34}, {"replies": 3, "s": 700.8}],
        "b": [{"replies": 0, "s": math.nan}, {"replies": 0, "s": 1.0}, {"replies": 0, "s": 2.0}],
    }
    assert table_of(rounds).splitlines() == [
        "| tool | replies | s |",
        "| --- | --- | --- |",
        "| a | 3 | 701 |",
        "| b | 0 | none |",
    ]


@pytest.mark.slow
def test_the_plain_scenario_runs_with_trioeval_alone(tmp_path: Path) -> None:
    """It needs no installation of another tool."""
    script = str(BENCH / "peers/compare.py")
    flags = ["--tools", "trioeval", "--scenarios", "plain", "--rounds", "1", "--many", "300"]
    done = subprocess.run(
        [sys.executable, script, str(tmp_path), *flags], capture_output=True, text=True, check=True
    )
    *_, head, _, row = done.stdout.splitlines()
    assert head.startswith(
        "| tool | replies | seconds | status 429 | whole run | CPU s | peak MiB |"
    )
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert row.startswith("| trioeval | 200 | ")
    assert cells["status 429"] == "0"
    assert cells["replies of 300"] == "300"
