"""The time of the commands that read stored runs of many rows, each as a whole process.

    python tests/bench/read_runs.py [ROWS]

Beside them, in the same run: the program without imports (`--version`), and the reading of all records with
SQLite alone. Each command runs several times in turns with the others; the least processor times are shown.
Targets for 100,000 rows: `show`, `show --limit` and `show --failed` 1 s, `runs` 0.5 s, `compare` 6 s.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3
EACH_FAILS = 50  # every so many rows fail
TARGETS = {"show": 1.0, "show --limit 5": 1.0, "show --failed": 1.0, "runs": 0.5, "compare": 6.0}
SELECT = (
    "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]); "
    "print(sum(len(body) for (body,) in connection.execute('SELECT body FROM record')))"
)


def write_suite(folder: Path, rows: int) -> None:
    """Write a suite of so many tests with one assertion and one metric each."""
    with (folder / "tests.jsonl").open("w") as file:
        for number in range(rows):
            value = "missing" if number % EACH_FAILS == 0 else "words"
            check = {"type": "contains", "value": value, "metric": "words"}
            test = {"vars": {"n": number, "words": "Some words."}, "assert": [check]}
            file.write(json.dumps(test) + "\n")
    suite = {"providers": ["echo"], "prompts": ["{{n}}: {{words}}"], "tests": "file://tests.jsonl"}
    (folder / "suite.json").write_text(json.dumps(suite))


def spent(folder: Path, command: list[str], codes: tuple[int, ...] = (0,)) -> tuple[float, float]:
    """Run a command; return its processor time in seconds, and its memory in MB."""
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in codes, (folder / "output.txt").read_text()
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


def main() -> None:
    """Make two runs, and print the figures."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    program = [sys.executable, "-m", "trioeval"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder, rows)
        quiet = ["--no-table", "--no-progress"]
        for _ in range(2):
            spent(folder, [*program, "run", "suite.json", *quiet], (100,))
        database = folder / ".trioeval" / "results.db"
        commands = {
            "--version": [*program, "--version"],
            "SELECT of all records": [sys.executable, "-c", SELECT, str(database)],
            "show": [*program, "show", "latest"],
            "show --limit 5": [*program, "show", "latest", "--limit", "5"],
            "show --failed": [*program, "show", "latest", "--failed"],
            "runs": [*program, "runs"],
            "compare": [*program, "compare", "latest~1", "latest"],
        }
        found: dict[str, list[tuple[float, float]]] = {label: [] for label in commands}
        for _ in range(ROUNDS):
            for label, command in commands.items():
                found[label].append(spent(folder, command))
    baseline = min(found["SELECT of all records"])[0]
    print(f"{rows:,} rows; processor time of whole processes, the least of {ROUNDS}")
    for label, figures in found.items():
        seconds, memory = min(figures)
        target = f"; target {TARGETS[label]:g} s for 100,000 rows" if label in TARGETS else ""
        print(
            f"{label:22}{seconds:7.2f} s, {seconds / baseline:6.1f} x the SELECT, {memory:4.0f} MB{target}"
        )


if __name__ == "__main__":
    main()
