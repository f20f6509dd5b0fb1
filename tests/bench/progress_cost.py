"""The cost of the progress display: a suite of the `echo` provider with and without it, in turns.

    python tests/bench/progress_cost.py [TESTS] [ROUNDS]

Each run is a separate process with a pseudo-terminal, from its first import to its exit. Target: at most 2 %
more time. What counts the lanes' events belongs to every run, shown or not, because it is kept with it;
it is in both figures. The time of the processor says more than the clock where other programs run.
"""

import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WANTED = 2.0  # percent
TESTS, ROUNDS = 5000, 9


def drain(handle: int) -> None:
    """Read what comes out of a pseudo-terminal until its other end is closed."""
    try:
        while os.read(handle, 65536):
            pass
    except OSError:  # Linux reports the closed other end so
        return


def timed_run(folder: Path, *flags: str) -> tuple[float, float]:
    """Seconds of the clock and of the processor that one run takes."""
    ours, theirs = pty.openpty()
    reader = threading.Thread(target=drain, args=(ours,))
    reader.start()
    command = [sys.executable, "-m", "trioeval", "suite.json", "--no-table", "--no-write", *flags]
    environ = {**os.environ, "TERM": "xterm"}
    environ.pop("GITHUB_ACTIONS", None)
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environ, stderr=theirs)
    os.close(theirs)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    reader.join()
    os.close(ours)
    return wall, used.ru_utime + used.ru_stime


def main() -> None:
    """Print the figures."""
    words = [*map(int, sys.argv[1:])]
    tests, rounds = [*words, *(TESTS, ROUNDS)[len(words) :]]
    suite = {
        "providers": ["echo"],
        "prompts": ["Say {{word}}, and nothing else."],
        "tests": [
            {"vars": {"word": f"w{n}"}, "assert": [{"type": "contains", "value": f"w{n}"}]}
            for n in range(tests)
        ],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "suite.json").write_text(json.dumps(suite))
        timed_run(folder, "--no-progress")  # warms the files up
        found = [
            (timed_run(folder, "--no-progress"), timed_run(folder, "--progress-mode", "live"))
            for _ in range(rounds)
        ]
    for at, kind in enumerate(("clock", "processor")):
        bare = statistics.median(one[at] for one, _ in found)
        shown = statistics.median(two[at] for _, two in found)
        ratio = statistics.median(two[at] / one[at] for one, two in found)
        print(
            f"{kind:10} {bare:.3f} s without, {shown:.3f} s with progress;"
            f" {100 * (shown / bare - 1):+.1f} % of the medians, {100 * (ratio - 1):+.1f} % of the pairs"
        )
    print(f"target: +{WANTED:g} % at most")


if __name__ == "__main__":
    main()
