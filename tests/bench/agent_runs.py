"""How quickly many agents that are short programs get through, and how soon a tree that will not end is gone.

    python tests/bench/agent_runs.py [AGENTS [SLOTS]]

Wanted: at most 1.2 times what the programs take if nothing else costs anything; and 2 s for the end of a tree
of three generations that ignore requests to terminate.
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

from trioeval import parse_suite, run_suite
from trioeval.agent.open import AgentOptions
from trioeval.run import Row

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
    """Agents that all do the same."""
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
    """Run a suite: its rows."""
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    await run_suite(
        parse_suite(suite, environ=dict(os.environ)),
        emit=keep,
        agents=AgentOptions(folder=folder),
    )
    return rows


def makespan(agents: int, slots: int) -> float:
    """Seconds in which all agents are done."""
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        rows = trio.run(run, suite_of(QUICK, agents, slots), Path(name) / "run")
        seconds = time.perf_counter() - start
    assert all(row.status.value == "pass" for row in rows)
    return seconds


def alone() -> float:
    """Seconds that one such program takes, without anything around it, after some that were to warm up."""
    took = []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(["sh", "-c", "sleep 0.1; touch DONE"], cwd=name, check=True)
            took.append(time.perf_counter() - start)
    return min(took)


def bare(agents: int, slots: int) -> float:
    """Seconds in which as many such programs are done that only `xargs` starts, so many at a time."""
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        line = f"seq {agents} | xargs -P {slots} -I% sh -c 'mkdir % && cd % && sleep 0.1 && touch DONE'"
        subprocess.run(["sh", "-c", line], cwd=name, check=True)
        return time.perf_counter() - start


def ending() -> float:
    """Seconds from the cancellation of a run to the end of the tree of its agent."""
    took = 0.0

    async def cancelled(folder: Path, ready: Path) -> None:
        nonlocal took
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, suite_of(f"sh {folder}/stubborn.sh 1", 1, 1), folder / "run")
            while not await trio.Path(ready).exists():  # noqa: ASYNC110 - files do not tell
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
            start = trio.current_time()
        took = trio.current_time() - start

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stubborn.sh").write_text(STUBBORN)
        ready = folder / "run" / "work" / "case-0" / "workspace" / "ready"
        trio.run(cancelled, folder, ready)
        left = found(f"{folder}/stubborn.sh")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left
    return took


def found(word: str) -> list[int]:
    """The processes that have a word in their command."""
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
        f"{ideal:.2f} s, of {one * 1000:.0f} ms each (at most {WANTED} wanted)"
    )
    print(f"end of a stubborn tree: {ending():.2f} s (at most {GONE_WITHIN:g} wanted)")


if __name__ == "__main__":
    main()
