"""Messages per second of a bus, and the longest append.

    python tests/bench/bus.py

Messages of about 200 bytes without fsync: by one writer that waits for each; by ten in one process, which
write together; by ten processes, with one writer each and with ten. The baseline of the same run is a plain
`write` of the same bytes under the same lock, one message at a time. The messages are then read back.
"""

import fcntl
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import trio

from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import MessageDraft
from trioeval.agent.bus.reading import last_messages, read_bus
from trioeval.agent.bus.segments import frame
from trioeval.agent.bus.settings import BusSettings

MESSAGES = 20_000
EACH = 2_000  # messages of a process
PROCESSES = 10
ROUNDS = 3
SETTINGS = BusSettings(fsync="never")
TARGETS = {
    "one writer": (20_000, None),
    "ten writers, one process": (10_000, 0.02),
    "ten processes": (5_000, 0.1),
    "ten processes, ten writers each": (5_000, 0.1),
}


async def write(folder: Path, writers: int, messages: int) -> tuple[float, float, float]:
    """Return the start of the first append, the end of the last, and the seconds of the slowest."""
    worst = 0.0

    async def one() -> None:
        nonlocal worst
        for number in range(messages // writers):
            began = time.perf_counter()
            body = f"message {number} of a bench"
            await bus.append(
                MessageDraft(
                    type="INFO", project_id="bench", task_id="calc", run_id="run-1", body=body
                )
            )
            worst = max(worst, time.perf_counter() - began)

    async with open_bus(folder, SETTINGS, rng=random.random) as bus:
        began = time.monotonic()
        async with trio.open_nursery() as nursery:
            for _ in range(writers):
                nursery.start_soon(one)
        return began, time.monotonic(), worst


def alone(folder: Path, writers: int) -> tuple[float, float]:
    """Return the messages per second of one process, and the slowest append."""
    began, ended, worst = trio.run(write, folder, writers, MESSAGES)
    return MESSAGES / (ended - began), worst


def together(folder: Path, writers: int) -> tuple[float, float]:
    """Return the messages per second of ten processes that start together, and the slowest append."""
    command = [sys.executable, __file__, str(folder), str(writers)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    results = [json.loads(child.communicate()[0]) for child in children]
    seconds = max(one[1] for one in results) - min(one[0] for one in results)
    return PROCESSES * EACH / seconds, max(one[2] for one in results)


def bare(folder: Path, _writers: int) -> tuple[float, float]:
    """Return the messages per second of only lock, write and unlock."""
    folder.mkdir()
    payload = b'{"body":"' + b"x" * 180 + b'"}'
    with (folder / "lock").open("w") as lock, (folder / "log").open("ab", buffering=0) as log:
        began = time.perf_counter()
        for number in range(MESSAGES):
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(log.fileno(), frame(number, payload))
            fcntl.flock(lock, fcntl.LOCK_UN)
        return MESSAGES / (time.perf_counter() - began), 0.0


MEASURES: dict[str, tuple[Callable[[Path, int], tuple[float, float]], int]] = {
    "one writer": (alone, 1),
    "ten writers, one process": (alone, 10),
    "ten processes": (together, 1),
    "ten processes, ten writers each": (together, 10),
    "bare": (bare, 1),
}


def child(folder: str, writers: str) -> None:
    """Run one of the ten processes."""
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(trio.run(write, Path(folder), int(writers), EACH)))


def main() -> None:
    """Print the figures."""
    best: dict[str, float] = {}
    worst: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as root:
        for turn in range(ROUNDS):
            for name, (measure, writers) in MEASURES.items():
                rate, slowest = measure(Path(root, f"{name} {turn}"), writers)
                best[name] = max(best.get(name, 0.0), rate)
                worst[name] = max(worst.get(name, 0.0), slowest)
        folder = Path(root, "ten processes 0")
        began = time.perf_counter()
        count = len(read_bus(folder).messages)
        read = count / (time.perf_counter() - began)
        began = time.perf_counter()
        last_messages(folder, 10)
        last = time.perf_counter() - began
        assert count == PROCESSES * EACH
    print(f"messages a second in the best of {ROUNDS} rounds; the worst append of all")
    for name, (rate, limit) in TARGETS.items():
        at_most = f", at most {limit * 1e3:.0f}" if limit else ""
        print(
            f"{name:<34}{best[name]:>9,.0f} a second (target {rate:,}), {best[name] / best['bare']:.2f} of "
            f"the baseline; worst {worst[name] * 1e3:.1f} ms{at_most}"
        )
    print(f"{'lock, write, unlock':<34}{best['bare']:>9,.0f} a second")
    print(
        f"{'read back, with JSON':<34}{read:>9,.0f} a second; the last ten in {last * 1e3:.2f} ms"
    )


if __name__ == "__main__":
    child(*sys.argv[1:]) if len(sys.argv) > 1 else main()
