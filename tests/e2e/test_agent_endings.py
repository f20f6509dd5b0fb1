"""Endings of agent cases: retried, blocked by other cases, and stopped by limits of their usage."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_suites import Bench, agent_of, finish, outcome_of

from trioeval.cli import run_command_line

pytestmark = pytest.mark.slow

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run a command in the folder of the test, and return its exit code and its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> tuple[int, str]:
        code = run_command_line([*words])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


QUIET = ("--no-progress", "--no-table", "-o", "rows.jsonl")


def test_failed_cases_start_again_and_cases_without_a_verdict_continue(
    tmp_path: Path, command: Command
) -> None:
    """A folder that no longer counts is set aside; finished attempts are not made again."""
    bench = Bench(tmp_path)
    bench.write(
        {
            "good": "touch DONE",
            "gives-up": "touch old; [ ! -e $suite/mended ] || { [ -e old ]; touch DONE; }",
            "folder": "if [ -e $suite/mended ]; then touch DONE; else mkdir DONE; fi",
        },
        {"folder": {"dependsOn": ["good"]}},
        maxRestarts=2,
    )
    assert command("s.json", *QUIET)[0] == 100
    ended = {"good": "pass", "gives-up": "fail", "folder": "fail"}
    assert bench.outcomes == ended
    assert "not done after 2 attempts of 2" in bench.rows["gives-up"]["error"]
    assert "DONE is a folder" in bench.rows["folder"]["error"]
    (tmp_path / "log").unlink()

    (tmp_path / "mended").touch()
    folder = bench.case("gives-up")
    (folder / "workspace" / "mine").touch()
    assert command("resume", "--retry", "failed", "-o", "rows.jsonl")[0] == 0
    assert set(bench.outcomes.values()) == {"pass"}
    assert sorted(bench.started()) == ["folder 0", "gives-up 0"]
    aside = folder.with_name("gives-up.old-1")
    assert (aside / "workspace" / "mine").exists()
    assert (aside / "logs" / "attempt-001.stdout").exists()
    assert not (folder / "workspace" / "mine").exists()
    assert len(agent_of(bench.rows["gives-up"])["attempts"]) == 1
    assert agent_of(bench.rows["folder"])["message"] == "done after 1 attempt"
    assert command("resume")[0] == 0


# Row 6 has a result.
LATE_HAS_ENDED = """"$TRIOEVAL_PYTHON" -c '
import sqlite3, sys
database = sqlite3.connect(f"file:{sys.argv[1]}/.trioeval/results.db?mode=ro", uri=True)
sys.exit(not database.execute("SELECT 1 FROM result WHERE test = 6").fetchall())' "$suite"
""".rstrip()


def test_ag_73_and_74_dependents_of_a_failed_case_follow_their_policy(
    tmp_path: Path, command: Command
) -> None:
    """Policies, the report of blocked cases, and the graph of the run; a resume runs the remaining cases."""
    bench = Bench(tmp_path)
    bench.write(
        {
            "base": "[ ! -e $suite/mended ] || touch DONE",
            "skips": "touch DONE",
            "fails": "touch DONE",
            "runs": "touch DONE",
            "blocks": "touch DONE",
            "behind": "touch DONE",
            "late": "touch DONE",
            "slow": f"until {LATE_HAS_ENDED}; do sleep 0.05; done; touch DONE",
        },
        {
            "skips": {"dependsOn": ["base"]},
            "fails": {"dependsOn": "base, slow", "onFailedDependency": "fail"},
            "runs": {"dependsOn": ["base"], "onFailedDependency": "run"},
            "blocks": {"dependsOn": ["base"], "onFailedDependency": "block"},
            "behind": {"dependsOn": ["blocks"], "onFailedDependency": "block"},
            "late": {"dependsOn": ["slow"], "dependencyTimeout": 0.1},
        },
        maxRestarts=1,
    )
    code, output = command("s.json", *QUIET)
    assert code == 100
    assert bench.outcomes == {
        "base": "fail",
        "skips": "blocked",
        "fails": "failed",
        "runs": "pass",
        "blocks": "blocked",
        "behind": "blocked",
        "late": "failed",
        "slow": "pass",
    }
    rows = bench.rows
    assert rows["skips"]["error"] == "blocked by case base, which is not done"
    assert rows["fails"]["error"] == "case base, which it depends on, is not done"
    assert "has waited 0.1 s for slow" in rows["late"]["error"]
    stuck = [line for line in output.splitlines() if "is blocked forever" in line]
    assert stuck == [
        "warning: case blocks is blocked forever: blocks waits for base (failed)",
        "warning: case behind is blocked forever: behind waits for blocks, blocks for base (failed)",
    ]
    assert not {"skips 0", "blocks 0", "behind 0", "late 0"} & {*bench.started()}
    drawn = command("runs", "--graph", "latest")[1]
    for case in bench.outcomes:
        assert case in drawn

    (tmp_path / "mended").touch()
    assert command("resume", "--retry", "failed", "-o", "rows.jsonl")[0] == 100
    again = {case for case, outcome in bench.outcomes.items() if outcome != "pass"}
    assert again == {"fails", "late"}  # errors; no retry was requested


def test_reported_usage_counts_against_limits_and_the_budget(
    tmp_path: Path, command: Command
) -> None:
    """Limits end their cases; a run over its budget starts no further attempt, and can continue."""
    bench = Bench(tmp_path)
    report = """printf '{"tokens": {"prompt": 3, "completion": 2}, "cost": 0.01}' >$TRIOEVAL_REPORT
        [ $TRIOEVAL_ATTEMPT -lt 5 ] || touch DONE"""
    bench.write({"one": report}, maxTokens=8)
    assert command("s.json", *QUIET)[0] == 100
    (row,) = bench.rows.values()
    assert agent_of(row)["gaveUp"] == "max_tokens"
    assert "10 of 8 tokens" in row["error"]
    assert row["tokenUsage"]["total"] == 10
    assert row["cost"] == pytest.approx(0.02)

    bench.write({"one": report}, maxCost=0.03)
    assert command("s.json", *QUIET)[0] == 100
    assert agent_of(bench.rows["one"])["gaveUp"] == "max_cost"
    assert len(agent_of(bench.rows["one"])["attempts"]) == 3

    for budget, attempts in (({"usd": 0.025}, 3), ({"tokens": 20}, 4)):
        bench.write({"one": report, "two": report}, top={"evaluateOptions": {"budget": budget}})
        code, output = command("s.json", *QUIET, "-j", "1")
        assert code == 100, output
        assert "2 rows not run because of the budget" in output
        made = [
            len(agent_of(row)["attempts"]) if row["response"] else 0 for row in bench.rows.values()
        ]
        assert sum(made) == attempts
    code, output = command("resume", "--max-tokens", "1000", "-o", "rows.jsonl")
    assert code == 0, output
    assert [len(agent_of(row)["attempts"]) for row in bench.rows.values()] == [6, 6]
    assert [outcome_of(row) for row in bench.rows.values()] == ["pass", "pass"]


def test_a_continued_suite_with_more_columns_finds_its_cases(
    tmp_path: Path, command: Command
) -> None:
    """An interrupted case continues in its workspace, whatever its name is by then."""
    bench = Bench(tmp_path)
    bench.write({"one": "touch mine; kill -INT $(cut -d' ' -f4 /proc/$PPID/stat)"}, restartDelay=30)
    with bench.run("s.json") as program:
        finish(program, 130)
    assert bench.outcomes == {"one": "interrupted"}
    label = {"id": "exec:sh {{suite}}/agent.sh", "label": "other"}
    bench.write(
        {"one": "[ $TRIOEVAL_ATTEMPT = 0 ] || [ -e mine ] || exit 1; touch DONE"},
        providers=["exec:sh {{suite}}/agent.sh", label],
    )
    code, output = command("resume", "--reconcile")
    assert code == 0, output
    assert sorted(bench.started()[1:]) == ["one.exec-sh-suite-agent.sh 1", "one.other 0"]


def test_hundreds_of_waiting_cases_open_few_files(tmp_path: Path) -> None:
    """A program may open a limited number of files; each waiting case posts to its bus."""
    bench = Bench(tmp_path)
    names = [f"case-{number}" for number in range(80)]
    scripts = dict.fromkeys(names, "exit 1")
    base = "until [ $(ls ../.. | wc -l) -gt 80 ]; do sleep 0.01; done"
    tests = {name: {"dependsOn": ["base"]} for name in names}
    bench.write({"base": base, **scripts}, tests, maxRestarts=1)
    line = 'ulimit -n 60 && exec "$0" -m trioeval "$@"'
    with subprocess.Popen(
        ["sh", "-c", line, sys.executable, "s.json", *QUIET],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        output = finish(program, 100)
    assert "warning" not in output
    assert bench.outcomes == {"base": "fail", **dict.fromkeys(names, "blocked")}
