"""Total time of many short agent programs, and the time to end a process tree that ignores termination.

    python tests/bench/agent_runs.py [AGENTS [SLOTS]]

Target: at most 1.2 times the time of the programs alone, and at most 2 s to end a tree of three generations
that ignore SIGTERM.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio

from trioeval import parse_suite
from trioeval.agent.open import AgentOptions
from trioeval.run import Row, RunOptions, run_with_options

AGENTS, SLOTS = 50, 10
TAKES = 0.1
"""Seconds that each agent sleeps."""
WANTED, GONE_WITHIN = 1.2, 2.0
QUICK = "sh -c 'sleep 0.1; touch DONE'"
STUBBORN = """
trap "" TERM
if [ "$1" = 3 ]; then : >>"$TRIOEVAL_WORKSPACE/ready"; else sh "$0" $(($1 + 1)) & fi
while :; do sleep 0.05; done
"""


def suite_of(command: str, agents: int, slots: int) -> dict[str, Any]:
    """Return a suite of agents that all run one command."""
    return {
        "agents": {"maxConcurrentRuns": slots},
        "tasks": [
            {
                "id": "work",
                "type": "agent",
                "prompts": ["Do it."],
                "providers": [f"exec:{command}"],
                "tests": [{"id": f"case-{number}"} for number in range(agents)],
            }
        ],
    }


async def run(suite: dict[str, Any], folder: Path) -> list[Row]:
    """Run a suite and return its rows."""
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - only appends
        rows.append(row)

    await run_with_options(
        parse_suite(suite, environ=dict(os.environ)),
        RunOptions(emit=keep, agents=AgentOptions(folder=folder)),
    )
    return rows


def makespan(agents: int, slots: int) -> float:
    """Return the seconds until all agents have ended."""
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        rows = trio.run(run, suite_of(QUICK, agents, slots), Path(name) / "run")
        seconds = time.perf_counter() - start
    assert all(row.status.value == "pass" for row in rows)
    return seconds


def alone() -> float:
    """Return the seconds of one such program alone: the least of five."""
    took = []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(["sh", "-c", "sleep 0.1; touch DONE"], cwd=name, check=True)
            took.append(time.perf_counter() - start)
    return min(took)


def bare(agents: int, slots: int) -> float:
    """Return the seconds of as many such programs started by `xargs`, with the same concurrency."""
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        line = f"seq {agents} | xargs -P {slots} -I% sh -c 'mkdir % && cd % && sleep 0.1 && touch DONE'"
        subprocess.run(["sh", "-c", line], cwd=name, check=True)
        return time.perf_counter() - start


def ending() -> float:
    """Return the seconds from the cancellation of a run to the end of its agent's process tree."""
    took = 0.0

    async def cancelled(folder: Path, ready: Path) -> None:
        nonlocal took
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, suite_of(f"sh {folder}/stubborn.sh 1", 1, 1), folder / "run")
            while not await trio.Path(ready).exists():  # noqa: ASYNC110 - files send no events
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
            start = trio.current_time()
        took = trio.current_time() - start

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stubborn.sh").write_text(STUBBORN)
        ready = folder / "run" / "work" / "case-0" / "workspace" / "ready"
        trio.run(cancelled, folder, ready)
        left = processes_with(f"{folder}/stubborn.sh")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left
    return took


def processes_with(word: str) -> list[int]:
    """Return the ids of the processes whose command contains a word."""
    pids = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word in file.read_text().split("\0"):
                pids.append(int(file.parent.name))
    return pids


def main() -> None:
    agents, slots = (
        [*map(int, sys.argv[1:]), AGENTS, SLOTS][:2] if sys.argv[2:] else (AGENTS, SLOTS)
    )
    one = alone()
    ideal = -(-agents // slots) * one
    seconds = makespan(agents, slots)
    print(f"by xargs alone: {bare(agents, slots):.2f} s")
    print(
        f"{agents} agents at {slots} slots: {seconds:.2f} s, {seconds / ideal:.2f} of the ideal "
        f"{ideal:.2f} s, of {one * 1000:.0f} ms each (at most {WANTED} targeted)"
    )
    print(f"end of a stubborn tree: {ending():.2f} s (at most {GONE_WITHIN:g} targeted)")


if __name__ == "__main__":
    main()
