"""Runs of sessions and the command line: each reads and continues what the other has stored."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import trioeval
from trioeval.cli import run_command_line

Command = Callable[[str], tuple[int, str, str]]

PROGRAM = """
import sys, trio, trioeval

SUITE = trioeval.parse_suite({
    "providers": [{"id": "model", "lane": {"maxConcurrency": 1}}],
    "prompts": ["say {{word}}"],
    "tests": [{"vars": {"word": f"w{i}"}} for i in range(6)],
})
last = int(sys.argv[1])

async def model(request):
    print(request.vars["word"], flush=True)
    if int(request.vars["word"][1:]) >= last:
        await trio.sleep_forever()
    return request.prompt

async def main():
    async with trioeval.open_session(store="mine.db", providers={"model": model}) as session:
        async with session.run(SUITE, id="mine", resume=True) as run:
            async for row in run.rows():
                print("row", row.index, flush=True)

try:
    trio.run(main)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIOEVAL_DB", "mine.db")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(line: str) -> tuple[int, str, str]:
        code = run_command_line(line.split())
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@contextmanager
def program(last: int) -> Iterator[subprocess.Popen[str]]:
    """Run the program in a process of its own; its call of this row never ends."""
    arguments = [sys.executable, "program.py", str(last)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], *lines: str) -> list[str]:
    """Return the lines that a program prints until it has printed these."""
    assert process.stdout is not None
    left, found = set(lines), []
    for line in process.stdout:
        found.append(line.strip())
        left.discard(found[-1])
        if not left:
            return found
    pytest.fail(f"the program ended without {left}")


def suite_of(*words: str, **more: Any) -> dict[str, Any]:
    tests = [
        {"vars": {"word": word}, "assert": [{"type": "contains", "value": "h"}]} for word in words
    ]
    return {"providers": ["echo"], "prompts": ["say {{word}}"], "tests": tests, **more}


def run_in_session(
    suite: Any, run_id: str, *, resume: bool = False, stop: bool = False
) -> trioeval.RunSummary:
    """Run a suite in a session of this process."""

    async def main() -> trioeval.RunSummary:
        async with trioeval.open_session(store="mine.db") as session:
            async with session.run(suite, id=run_id, resume=resume) as run:
                if stop:
                    run.stop()
            assert run.summary is not None
            return run.summary

    return trio.run(main)


def test_interrupted_and_killed_programs_continue_in_another_process(
    folder: Path, command: Command
) -> None:
    """ONCE and RESUME: no reply that was recorded is requested again, and no row is lost."""
    with program(2) as interrupted:
        until(interrupted, "w2", "row 1")
        interrupted.send_signal(signal.SIGINT)
        assert until(interrupted, "interrupted")[-1] == "interrupted"
        assert interrupted.wait() == 0
    code, shown, _ = command("show mine")
    assert (code, shown.startswith("mine: interrupted")) == (0, True)
    with program(4) as killed:
        lines = until(killed, "w4", "row 3")
        assert lines.index("row 1") < lines.index("row 2")
        assert [line for line in lines if line.startswith("w")] == ["w2", "w3", "w4"]
        killed.kill()
        killed.wait()
    code, shown, _ = command("show mine")
    assert (code, shown.startswith("mine: died")) == (0, True)
    with program(9) as last:
        lines = until(last, "row 5")
        assert last.wait() == 0
    assert [line for line in lines if line.startswith("w")] == ["w4", "w5"]
    assert [line for line in lines if line.startswith("row")] == [f"row {i}" for i in range(6)]
    command("export mine -o mine.json")
    results = json.loads((folder / "mine.json").read_text())["results"]["results"]
    assert [row["response"]["output"] for row in results] == [f"say w{i}" for i in range(6)]
    code, shown, _ = command("show mine")
    assert shown.startswith("mine: finished")


def test_the_command_line_reads_runs_of_sessions(folder: Path, command: Command) -> None:
    """Derived metrics, the work of lanes and all tasks are stored, and two runs are compared."""
    first_task = suite_of("hi", "ho", "x")
    second_task = {
        "prompts": ["and {{output}}"],
        "tests": {"fromTask": "first"},
        "dependsOn": ["first"],
    }
    suite = trioeval.parse_suite(
        {
            "providers": first_task.pop("providers"),
            "derivedMetrics": [{"name": "two", "value": "1 + 1"}],
            "tasks": [
                {"id": "first", "type": "prompt_eval", **first_task},
                {"id": "second", "type": "prompt_eval", **second_task},
            ],
        }
    )
    first = run_in_session(suite, "one")
    assert (first.ended, first.rows) == ("finished", 6)
    run_in_session(trioeval.parse_suite(suite_of("hi", "ho", "hx")), "two")
    code, shown, _ = command("show one")
    assert (code, shown.startswith("one: finished")) == (0, True)
    assert "task first" in shown
    assert "task second" in shown
    code, _, _ = command("export one -o one.json")
    assert code == 0
    results = json.loads((folder / "one.json").read_text())["tasks"]["second"]["results"]
    assert [row["response"]["output"] for row in results["results"]] == [
        f"and say {word}" for word in ("hi", "ho", "x")
    ]
    assert results["prompts"][0]["metrics"]["namedScores"] == {"two": 2.0}
    with trioeval.read_store("mine.db") as reader:
        assert len(reader.activity(reader.run("one"))) == 1
    run_in_session(trioeval.parse_suite(suite_of("hi", "ho", "x")), "three")
    code, compared, _ = command("compare three two")
    assert (code, compared.splitlines()[-1]) == (0, "4 rows: 2 same, 1 new, 1 gone")


def test_a_suite_file_continues_on_both_sides(folder: Path, command: Command) -> None:
    """A session begins, the command line finishes; and the other way round."""
    (folder / "s.json").write_text(json.dumps(suite_of("hi", "ho", "h")))
    begun = run_in_session("s.json", "mine", stop=True)
    assert (begun.ended, begun.not_run) == ("stopped", 3)
    code, _, stderr = command("resume mine --no-progress")
    assert (code, ": 3 passed," in stderr.splitlines()[-1]) == (0, True)
    code, _, stderr = command("run s.json --no-progress")
    assert code == 0
    with trioeval.read_store("mine.db") as reader:
        other = reader.run("latest").id
    (folder / "s.json").write_text(json.dumps(suite_of("hey", "hi", "h")))
    again = run_in_session("s.json", other, resume=True)
    assert (again.ended, again.passed, again.rows) == ("finished", 3, 3)
    code, _, stderr = command(f"resume {other} --no-progress")
    assert (code, "no row is left to run" in stderr) == (0, True)


def test_a_suite_of_a_program_is_named_when_it_cannot_be_continued(
    folder: Path, command: Command
) -> None:
    run_in_session(trioeval.parse_suite(suite_of("hi")), "mine", stop=True)
    code, _, stderr = command("resume mine")
    assert code == 2
    assert "its suite is part of the program" in stderr
    assert 'session.run(suite, id="mine", resume=True)' in stderr
