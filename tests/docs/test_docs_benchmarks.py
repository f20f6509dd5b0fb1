"""The pages about measurements name the scripts and the versions that exist."""

import re
import sys

from snippets import DOCS, ROOT

sys.path.insert(0, str(ROOT / "tests/bench/peers"))
from compare import PROMPTFOO

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
