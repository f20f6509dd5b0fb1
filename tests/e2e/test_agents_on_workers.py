"""Agents on workers: a killed worker or run leaves no process behind, and no attempt is repeated."""

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from agent_suites import Bench, agent_of, finish, wait_until
from distributed import LocalCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.timeout(300),  # each program starts a cluster
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]

NOTE_WORKER = "cut -d' ' -f4 /proc/$PPID/stat >$suite/$TRIOEVAL_CASE.worker\n"
"""The process that has started the supervisor of an agent is a worker."""

TWO_ATTEMPTS = """
echo "output $TRIOEVAL_ATTEMPT"
case $TRIOEVAL_ATTEMPT in 0) exit 3;; esac
echo found >found.txt
touch "$TRIOEVAL_DONE"
"""

HELD_ONCE = (
    NOTE_WORKER
    + """
echo "output $TRIOEVAL_ATTEMPT"
case $TRIOEVAL_ATTEMPT in 0) exit 3;; esac
if [ -e "$suite/left" ]; then
    if alive $(cat "$suite/left"); then log dirty; else log clean; fi
else
    leave left
    log held
    hold
fi
touch "$TRIOEVAL_DONE"
"""
)
SHOW_PROMPT = 'cat "$TRIOEVAL_PROMPT"\ntouch "$TRIOEVAL_DONE"\n'
HOOKS = """
def beforeAll(context, _hook):
    suite = context["suite"]
    suite["tests"] = [{**one, "vars": {"tone": "calm", **one["vars"]}} for one in suite["tests"]]
    return {"suite": suite}


def afterEach(context, _hook):
    result = context["result"]
    result["namedScores"]["length"] = len(result["response"]["output"])
    return {"result": result}


def afterAll(context, _hook):
    with open("ends.txt", "a") as file:
        file.write(f"{len(context['results'])} ")
"""
ONCE = 'echo once\ntouch "$TRIOEVAL_DONE"\n'
ON = ("s.json", "--on", "local:2")


def facts_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a row says about its case, without times, paths and ids."""
    agent = agent_of(row)
    attempts = [
        (one["number"], one["ok"], one.get("exitCode"), one.get("failure"))
        for one in agent["attempts"]
    ]
    return (
        row["success"],
        row["error"],
        row["response"]["output"],
        agent["outcome"],
        agent["message"],
        attempts,
        agent["dependsOn"],
    )


def wait_ended(process: int) -> None:
    """Wait until a process has ended."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(process)
        ended, _, _ = select.select([handle], [], [], 60)
        os.close(handle)
        assert ended, f"process {process} remains"


def test_cases_on_workers_equal_those_of_one_process(cluster: LocalCluster, tmp_path: Path) -> None:
    """Attempts, outputs, workspaces, assertions in them, and dependencies."""
    found = []
    on = ("--on", cluster.scheduler_address)
    for name, words in (("here", ("s.json",)), ("there", ("s.json", *on))):
        bench = Bench(tmp_path / name)
        bench.folder.mkdir()
        bench.write(
            {"a": TWO_ATTEMPTS, "b": ONCE, "c": "exit 4", "d": ONCE},
            {
                "a": {"assert": [{"type": "file-exists", "value": "found.txt"}]},
                "b": {"dependsOn": ["a"]},
                "d": {"dependsOn": ["c"], "onFailedDependency": "run"},
            },
            maxRestarts=2,
        )
        with bench.run(*words) as program:
            output = finish(program, 100)
        assert "warning" not in output
        found.append({case: facts_of(row) for case, row in bench.rows.items()})
        started = bench.started()
        assert started.index("b 0") > started.index("a 1")
        assert started.index("d 0") > started.index("c 1")
        assert (bench.case("a") / "workspace" / "found.txt").exists()
    here, there = found
    assert there == here


def test_cases_that_read_what_others_leave_equal_those_of_one_process(tmp_path: Path) -> None:
    """Registers, conversations, serial cases and extensions."""
    found = []
    for name, words in (("here", ("s.json",)), ("there", ON)):
        bench = Bench(tmp_path / name)
        bench.folder.mkdir()
        (bench.folder / "hooks.py").write_text(HOOKS)
        bench.write(
            dict.fromkeys("abcd", SHOW_PROMPT),
            {
                "a": {"vars": {"word": "{{last}}"}, "options": {"storeOutputAs": "first"}},
                "b": {"vars": {"word": "{{first}}"}, "metadata": {"conversationId": 1}},
                "c": {"vars": {"word": "c"}, "metadata": {"conversationId": 1}},
                "d": {
                    "vars": {"word": "d"},
                    "options": {"storeOutputAs": "last", "runSerially": True},
                },
            },
            top={
                "evaluateOptions": {"serialize": "auto"},
                "extensions": [
                    f"file://hooks.py:{one}" for one in ("beforeAll", "afterEach", "afterAll")
                ],
            },
            prompts=[
                "{{tone}} {{word}}:{% for turn in _conversation %} {{turn.output}}{% endfor %}"
            ],
        )
        with bench.run(*words) as program:
            output = finish(program, 0)
        assert "warning" not in output
        assert (bench.folder / "ends.txt").read_text() == "4 "
        assert bench.started()[0] == "d 0"
        found.append(
            {case: (facts_of(row), row["namedScores"]) for case, row in bench.rows.items()}
        )
    here, there = found
    assert there == here
    assert "calm calm d" in here["a"][0][2]


def test_a_case_of_a_killed_worker_continues_with_its_next_attempt(tmp_path: Path) -> None:
    """Laws RESUME and LEAK: its processes have ended before another worker continues it."""
    bench = Bench(tmp_path)
    bench.write({"a": HELD_ONCE, "b": ONCE}, maxRestarts=5)
    with bench.run(*ON) as program:
        bench.wait_logged("a 1 held", "b 0 ends")
        os.kill(bench.pid("a.worker"), signal.SIGKILL)
        output = finish(program, 0)
    assert "Traceback" not in output
    assert bench.log.count("a 1 clean") == 1
    assert [line for line in bench.started() if line.startswith("a")] == ["a 0", "a 1", "a 1"]
    wait_ended(bench.pid("left"))
    agent = agent_of(bench.rows["a"])
    assert [one["number"] for one in agent["attempts"]] == [0, 1]
    assert agent["message"] == "done after 2 attempts"


def test_a_killed_run_ends_the_agents_of_its_workers_and_is_continued(tmp_path: Path) -> None:
    """Laws RESUME, LEAK and ONCE: here, with the next attempt."""
    bench = Bench(tmp_path)
    bench.write({"a": HELD_ONCE, "b": ONCE}, maxRestarts=5)
    with bench.run(*ON) as program:
        bench.wait_logged("a 1 held", "b 0 ends")
        program.kill()
        program.wait()
        wait_ended(bench.pid("a.worker"))
    wait_ended(bench.pid("left"))
    with bench.program("resume", "--no-progress", "--no-table", "-o", "rows.jsonl") as again:
        finish(again, 0)
    assert bench.log.count("a 1 clean") == 1
    assert [line for line in bench.started() if line.startswith("a")] == ["a 0", "a 1", "a 1"]
    assert [one["number"] for one in agent_of(bench.rows["a"])["attempts"]] == [0, 1]


def test_an_interrupt_lets_attempts_end_and_starts_no_more(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Law DRAIN: the case of a running attempt is left for `resume`."""
    bench = Bench(tmp_path)
    script = 'log held\nhold\ncase $TRIOEVAL_ATTEMPT in 1) touch "$TRIOEVAL_DONE";; esac\n'
    bench.write({"a": script}, maxRestarts=5)
    with bench.run(*ON) as program:
        bench.wait_logged("a 0 held")
        program.send_signal(signal.SIGINT)
        assert program.stdout is not None
        wait_until(lambda: "stopping" in program.stdout.readline(), bench)  # type: ignore[union-attr]
        bench.release("a")
        finish(program, 130)
    assert bench.started() == ["a 0"]
    on = ("--on", cluster.scheduler_address)
    with bench.program("resume", *on, "--no-progress", "--no-table") as again:
        bench.release("a")
        finish(again, 0)
    assert bench.started() == ["a 0", "a 1"]
