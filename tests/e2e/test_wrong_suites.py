"""Messages about wrong suites, with real files."""

from pathlib import Path

import pytest
from test_command_line import trioeval

pytestmark = pytest.mark.slow


def test_errors_of_the_file_are_reported_before_those_of_its_providers(tmp_path: Path) -> None:
    """Each list is complete: two runs show all problems."""
    right = "providers:\n- id: echo\n  transform: '}{'\n- opnai:x\n"
    suites = {
        "prompts: ['{% if x %}']\ntests: file://t.csv\npromts: 1\n": ["5:11", "6:8", "7:1"],
        "prompts: ['{{x}}']\n": ["3:14", "4:3"],
    }
    for rest, places in suites.items():
        (tmp_path / "s.yaml").write_text(right + rest)
        done = trioeval("s.yaml", cwd=tmp_path)
        assert done.returncode == 2
        found = [line.split(": ")[0] for line in done.stderr.splitlines() if line[0] != " "]
        assert found == [f"s.yaml:{place}" for place in places]


def test_a_suite_must_not_be_named_twice(tmp_path: Path) -> None:
    """This holds for any second name of the file."""
    (tmp_path / "s.yaml").write_text("providers: [echo]\nprompts: [a]\n")
    for again in ("s.yaml", "./s.yaml", "*.yaml"):
        done = trioeval("s.yaml", "-c", again, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (2, "s.yaml is named twice\n")
