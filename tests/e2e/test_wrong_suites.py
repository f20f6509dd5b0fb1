"""What a user is told of suites that are wrong: real processes and files."""

from pathlib import Path

import pytest
from test_command_line import trioeval

pytestmark = pytest.mark.slow


def test_the_loader_and_the_providers_are_told_of_together(tmp_path: Path) -> None:
    """One look at the messages is enough to mend all of it."""
    (tmp_path / "s.yaml").write_text(
        "providers:\n- id: echo\n  transform: '}{'\n- opnai:x\n"
        "prompts: ['{% if x %}']\ntests: file://t.csv\nbogus: 1\n"
    )
    done = trioeval("s.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert [line.split(": ")[0] for line in done.stderr.splitlines() if line[0] != " "] == [
        "s.yaml:3:14",
        "s.yaml:4:3",
        "s.yaml:5:11",
        "s.yaml:6:8",
        "s.yaml:7:1",
    ]


def test_a_suite_is_not_laid_over_itself(tmp_path: Path) -> None:
    """Whatever it is called the second time."""
    (tmp_path / "s.yaml").write_text("providers: [echo]\nprompts: [a]\n")
    for again in ("s.yaml", "./s.yaml", "*.yaml"):
        done = trioeval("s.yaml", "-c", again, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (2, "s.yaml is named twice\n")
