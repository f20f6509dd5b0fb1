"""From a CSV file to results in two commands, as a new user types them."""

import csv
import re
import shlex
from pathlib import Path

import pytest
from server_process import fake_provider, stats_of
from test_command_line import last_line, trioeval

pytestmark = pytest.mark.slow


def test_a_table_of_200_questions_runs_against_a_server(tmp_path: Path) -> None:
    """The suite runs as it was written, and the hint under the failures shows why a row failed."""
    with (tmp_path / "questions.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "question", "answer"])
        table.writerows([n, f"What is {n} mod 2?", n % 2] for n in range(200))
    with fake_provider("--reply", "1") as base_url:
        model = ("--model", "small", "--base-url", base_url)
        written = trioeval("init", "--csv", "questions.csv", *model, cwd=tmp_path)
        assert written.returncode == 0, written.stderr
        program, *arguments = shlex.split(written.stdout)
        assert program == "trioeval"
        done = trioeval(*arguments, cwd=tmp_path)
        assert stats_of(base_url)["requests"] == 200
    assert done.returncode == 100
    assert "100 passed, 100 failed, 0 errors" in last_line(done)
    hint = re.search(r"trioeval (show \S+ 0)$", done.stdout + done.stderr, re.MULTILINE)
    assert hint is not None
    row = trioeval(*hint[1].split(), cwd=tmp_path)
    assert row.returncode == 0
    assert "FAIL" in row.stdout
    assert 'the output does not equal "0"' in row.stdout
    assert "What is 0 mod 2?" in row.stdout
