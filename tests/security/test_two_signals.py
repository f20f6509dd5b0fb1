"""After two signals a run ends within five seconds, whatever its code does."""

import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import attrs
import pytest

pytestmark = [
    pytest.mark.attack("hang"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

WITHIN = 5.0
"""Seconds from the second signal."""

SLACK = 20.0
"""Seconds that a busy machine may need to run due tasks, and to report it."""

KILLED = -signal.SIGKILL
LOCKED = """
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    library.pthread_mutex_lock(mutex)
    Path("stuck").touch()
    library.pthread_mutex_lock(mutex)"""


@attrs.frozen
class Blocker:
    """Code that prevents a run from ending."""

    code: str
    first: signal.Signals = signal.SIGINT
    second: signal.Signals = signal.SIGTERM
    ends: int = 128 + signal.SIGINT
    has_children: bool = True


BLOCKERS = {
    "a search of a regular expression": Blocker("re.search('^(a|aa)+$', 'a' * 80 + 'b')"),
    "a shielded wait": Blocker("await shielded()"),
    "an error that is caught": Blocker("""
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass"""),
    "a call of C that keeps the interpreter": Blocker(LOCKED, signal.SIGTERM, ends=KILLED),
    "such a call that began between the signals": Blocker(
        """
    while not Path("first").exists():
        await trio.sleep(0.01)"""
        + LOCKED,
        signal.SIGHUP,
        ends=KILLED,
    ),
    "an iterator without end, in C": Blocker(
        "collections.deque(itertools.count(), maxlen=0)", signal.SIGINT, signal.SIGINT, KILLED
    ),
    "a thread that the interpreter waits for when all is said": Blocker(
        "threading.Thread(target=linger).start()", has_children=False
    ),
}

CODE = """
import collections, ctypes, itertools, re, threading, time
from pathlib import Path
import trio

def linger():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    Path("over").touch()
    time.sleep(600)

def has_children():
    return Path("child").exists() and Path("child").read_text().endswith("\\n")

async def shielded():
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

async def call_api(prompt, options, context):
    while {waits} and has_children():
        await trio.sleep(0.01)
    while not Path("recorded").exists():
        await trio.sleep(0.01)
    Path("began").touch()
    {block}
"""

SUITE = """
providers:
  - echo
  - id: python:block.py
    config: {mode: trio}
prompts: [hello]
tests: [{vars: {}}]
"""

EXEC = """
  - "exec:sh -c 'trap : TERM; sleep 600 & echo $$ $! > child; while :; do wait; sleep 1; done'\"
"""


@attrs.frozen
class Ended:
    """The end of a run."""

    code: int
    stderr: str
    seconds: float
    """Seconds from the second signal to the end."""
    children: list[int]
    """Processes that the run had started."""
    recorded: int
    """Rows whose results its database contains."""


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Run all of them at once: each one mostly waits."""
    folders = {name: tmp_path_factory.mktemp("blocked") for name in BLOCKERS}
    runs = {name: begin(folders[name], blocker) for name, blocker in BLOCKERS.items()}
    until = time.monotonic() + 90
    once, twice, ended = set[str](), dict[str, float](), dict[str, float]()
    try:
        while len(ended) < len(runs) and time.monotonic() < until:
            for name, run in runs.items():
                blocker, folder = BLOCKERS[name], folders[name]
                if run.poll() is not None:
                    ended.setdefault(name, time.monotonic())
                elif name in twice or not is_recorded(folder):
                    continue
                elif name in once and is_ready(folder, blocker, "stuck"):
                    if is_pending(run.pid, blocker.first):  # two at the same instant may be merged
                        continue
                    run.send_signal(blocker.second)
                    twice[name] = time.monotonic()
                elif name not in once and is_ready(folder, blocker, "began"):
                    run.send_signal(blocker.first)
                    (folder / "first").touch()
                    once.add(name)
            time.sleep(0.02)
    finally:
        for run in runs.values():
            run.kill()
        stderr = {name: run.communicate()[1] for name, run in runs.items()}
    return {
        name: Ended(
            run.wait(),
            stderr[name],
            ended.get(name, math.inf) - twice.get(name, 0.0),
            children(folders[name]),
            results(folders[name] / "runs.db"),
        )
        for name, run in runs.items()
    }


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TRIOEVAL_CACHE_PATH": str(folder / "cache"), "NO_COLOR": "1"}


def begin(folder: Path, blocker: Blocker) -> "subprocess.Popen[str]":
    code = CODE.format(block=blocker.code, waits=blocker.has_children)
    (folder / "block.py").write_text(code)
    providers = EXEC if blocker.has_children else ""
    (folder / "suite.yaml").write_text(SUITE.replace("\nprompts:", f"{providers}\nprompts:"))
    command = [sys.executable, "-m", "trioeval", "suite.yaml", "--no-progress", "--db", "runs.db"]
    return subprocess.Popen(
        ["env", "--default-signal=HUP", *command],  # nohup, for example, makes them ignored
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_recorded(folder: Path) -> bool:
    """Return whether the database contains the result of a row, for which the code waits."""
    found = results(folder / "runs.db") > 0
    if found:
        (folder / "recorded").touch()
    return found


def is_ready(folder: Path, blocker: Blocker, step: str) -> bool:
    """Return whether the code of a blocker has reached a step."""
    if not blocker.has_children:
        step = "over"
    return (folder / step).exists() or (step == "stuck" and LOCKED not in blocker.code)


def is_pending(pid: int, number: signal.Signals) -> bool:
    """Return whether a signal to a process is still pending."""
    pending = [
        int(line.split()[1], 16)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith(("SigPnd:", "ShdPnd:"))
    ]
    return any(mask >> (number - 1) & 1 for mask in pending)


def children(folder: Path) -> list[int]:
    """Return the processes that a run has started."""
    listed = folder / "child"
    return [int(one) for one in listed.read_text().split()] if listed.exists() else []


def results(database: Path) -> int:
    """Return the number of rows whose results the database contains."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM result").fetchone()
            return int(count)
    except sqlite3.OperationalError:  # it does not exist yet, or is being created
        return 0


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("blocker", BLOCKERS)
def test_the_process_ends_soon_after_the_second_signal(
    endings: dict[str, Ended], blocker: str
) -> None:
    """It has the code of its first signal if possible; its processes are gone and its records are stored."""
    ended, expected = endings[blocker], BLOCKERS[blocker]
    assert ended.seconds < WITHIN + SLACK, ended
    assert ended.code == expected.ends, ended
    if expected.ends == KILLED:
        assert "of the second signal and is killed" in ended.stderr
    else:
        assert ended.stderr.rstrip().endswith("exit 130")
    assert len(ended.children) == 2 * expected.has_children
    assert not [pid for pid in ended.children if is_alive(pid)]
    assert ended.recorded >= 1
