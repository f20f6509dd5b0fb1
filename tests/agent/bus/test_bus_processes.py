"""Several processes on one bus lose, tear and mix up no message, even if one of them is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bus_files import bodies, files, written

from trioeval.agent.bus.reading import read_bus

pytestmark = pytest.mark.slow

WRITER = """
import random, sys
from pathlib import Path
import trio
from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import MessageDraft
from trioeval.agent.bus.settings import BusSettings

folder, names, count, rotate = sys.argv[1:]
settings = BusSettings(rotate_bytes=int(rotate) or None)

async def main():
    async def write(name):
        for number in range(int(count)):
            await bus.append(MessageDraft(type="INFO", project_id="p", body=f"{name} {number} " + "x" * 40))

    async with open_bus(Path(folder), settings, rng=random.random) as bus:
        async with trio.open_nursery() as nursery:
            for name in names.split():
                nursery.start_soon(write, name)

trio.run(main)
"""
HOLDER = """
import os, sys, time
from filelock import FileLock
from pathlib import Path
folder = Path(sys.argv[1])
lock = FileLock(folder / ".lock")
lock.acquire()
with (folder / "bus-00000001.log").open("ab") as file:
    file.write(b"@trioeval-bus/1 100 01234567 2\\n{\\"msg_id")
print("holds", flush=True)
time.sleep(60)
"""


def run_writers(folder: Path, *names: str, count: int, rotate: int = 0) -> None:
    """Start one process for each text, with one writer for each word of it."""
    command = [sys.executable, "-c", WRITER, str(folder)]
    children = [subprocess.Popen([*command, some, str(count), str(rotate)]) for some in names]
    assert [child.wait(timeout=60) for child in children] == [0] * len(names)


def check(folder: Path, writers: int, count: int) -> None:
    """Check that each message exists once, numbered in file order, each writer's messages in order."""
    reading = read_bus(folder)
    assert reading.corrupt == []
    assert [one.seq for one in reading.messages] == list(range(1, writers * count + 1))
    assert len({one.msg_id for one in reading.messages}) == writers * count
    found = [body.split()[:2] for body in bodies([*reading.messages])]
    for name in range(writers):
        own = [int(number) for writer, number in found if writer == str(name)]
        assert own == list(range(count))


def test_ag_53_three_processes_tear_no_message(tmp_path: Path) -> None:
    run_writers(tmp_path, "0", "1", "2", count=200)
    check(tmp_path, 3, 200)


def test_ag_58_rotations_by_many_writers_lose_no_message(tmp_path: Path) -> None:
    """Renaming files periodically, or whenever the lock is free, would lose most of them."""
    run_writers(tmp_path, "0 1 2 3", "4 5 6", "7", count=150, rotate=4096)
    check(tmp_path, 8, 150)
    found = files(tmp_path)
    assert len(found) > 40
    assert [path.name for path in found] == [
        f"bus-{number:08}.log" for number in range(1, len(found) + 1)
    ]
    assert all(path.stat().st_size < 4096 + 300 for path in found)


def test_ag_57_a_writer_killed_with_the_lock_does_not_block_others(tmp_path: Path) -> None:
    """Its incomplete record is removed; the messages before and after it exist."""
    written(tmp_path, "before")
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        os.kill(holder.pid, signal.SIGKILL)
    (message,) = written(tmp_path, "after")
    assert message.seq == 2
    reading = read_bus(tmp_path)
    assert bodies([*reading.messages]) == ["before", "after"]
    assert reading.corrupt == []
