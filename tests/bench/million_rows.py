"""A run of a million tests from a JSONL file through the command line: time, memory, progress and the store.

    python tests/bench/million_rows.py [ROWS]

The provider is `echo`, each test has one assertion and short texts. The first run writes its progress to a
pipe, the second to a terminal. The texts of the store are what the suite and the provider made: the
variables, the prompt and the output of each row.

Targets: at most 300 MB, the first progress within 2 s, and at most 1 kB of the store for a row beside its
texts.
"""

import json
import os
import pty
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import attrs

ROWS = 1_000_000
COMMAND = [sys.executable, "-m", "trioeval", "run", "suite.json", "--no-table"]


@attrs.frozen
class Measured:
    """The figures of one run."""

    wall: float
    cpu: float
    first: float
    """Seconds until the first progress."""
    memory: float
    """The largest resident size in MB."""
    store: int
    """Bytes of the database."""
    texts: int
    """Bytes of the texts of its rows."""


def write_suite(folder: Path, rows: int) -> int:
    """Write a suite of so many tests; return the bytes of the texts of their rows."""
    texts = 0
    with (folder / "tests.jsonl").open("w") as file:
        for number in range(rows):
            question = f"How many apples are left of {number} if {number // 3} are eaten?"
            check = {"type": "contains", "value": str(number)}
            file.write(json.dumps({"vars": {"question": question}, "assert": [check]}) + "\n")
            texts += 3 * len(question)
    suite = {"prompts": ["{{question}}"], "providers": ["echo"], "tests": "file://tests.jsonl"}
    (folder / "suite.json").write_text(json.dumps(suite))
    return texts


def measure(folder: Path, rows: int, texts: int, *, terminal: bool) -> Measured:
    """Run the suite into a new database."""
    database = folder / "results.db"
    reading, writing = pty.openpty() if terminal else os.pipe()
    began = time.perf_counter()
    process = subprocess.Popen(
        [*COMMAND, "--db", str(database)],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=writing, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(writing)
    first, said = None, b""
    while more := read(reading):
        said = (said + more)[-100_000:]
        if first is None and b" rows" in said:
            first = time.perf_counter() - began
    os.close(reading)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    assert process.returncode == 0, said.decode()
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM result").fetchone() == (rows,)
    size = sum(file.stat().st_size for file in folder.glob("results.db*"))
    for file in folder.glob("results.db*"):
        file.unlink()
    return Measured(
        wall, used.ru_utime + used.ru_stime, wall if first is None else first,
        used.ru_maxrss * 1024 / 1e6, size, texts,
    )  # fmt: skip


def read(descriptor: int) -> bytes:
    """Return what comes next; nothing at the end, which is an error on a terminal."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def main() -> None:
    """Print the figures."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = write_suite(folder, rows)
        for terminal in (False, True):
            found = measure(folder, rows, texts, terminal=terminal)
            print(
                f"{rows:,} rows, progress to a {'terminal' if terminal else 'pipe'}: {found.wall:.0f} s,"
                f" {found.cpu:.0f} s of processor time\n"
                f"  memory          {found.memory:7.0f} MB; target 300 MB\n"
                f"  first progress  {found.first:7.2f} s; target 2 s\n"
                f"  store           {found.store / rows:7.0f} bytes a row, of which its texts"
                f" {found.texts / rows:.0f}; target 1,000 beside them",
                flush=True,
            )


if __name__ == "__main__":
    main()
