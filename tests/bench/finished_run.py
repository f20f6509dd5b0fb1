"""The cost of resuming and exporting a finished stored run of many rows.

    python tests/bench/finished_run.py [ROWS]

The commands run as for a user, including start-up. Target for 100,000 rows: resumed within 3 s; exported to
JSON within 10 s and 150 MB.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = "Some words."  # a row has about two kilobytes of its own


def timed(folder: Path, *arguments: str) -> tuple[float, str]:
    """Run a command and return its seconds and a line of figures."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "trioeval", *arguments]
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (folder / "output.txt").read_text()
    seconds, busy = time.perf_counter() - began, used.ru_utime + used.ru_stime
    peak = used.ru_maxrss * 1024 / 1e6
    return seconds, f"{seconds:7.2f} s, {busy:6.2f} s of them on a processor, {peak:4.0f} MB"


def main() -> None:
    """Make the run, and print the figures."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "tests.jsonl").open("w") as file:
            for number in range(rows):
                check = {"type": "contains", "value": "words"}
                test = {"vars": {"n": number, "words": WORDS}, "assert": [check]}
                file.write(json.dumps(test) + "\n")
        suite = {
            "providers": ["echo"],
            "prompts": ["{{n}}: {{words}}"],
            "tests": "file://tests.jsonl",
        }
        (folder / "suite.json").write_text(json.dumps(suite))
        quiet = ("--no-table", "--no-progress")
        seconds, figures = timed(folder, "run", "suite.json", *quiet)
        size = sum(file.stat().st_size for file in (folder / ".trioeval").glob("results.db*")) / 1e6
        print(f"{'first run':22}{figures}; {rows / seconds:,.0f} rows/s, {size:.0f} MB stored")
        for label, arguments in (
            ("resumed", ("run", "suite.json", "--resume", *quiet)),
            ("resumed by name", ("resume", *quiet)),
            ("shown in a list", ("runs",)),
            ("exported to JSON", ("export", "latest", "-o", "out.json")),
            ("exported to JSONL", ("export", "latest", "-o", "out.jsonl")),
            ("exported to CSV", ("export", "latest", "-o", "out.csv")),
            ("compared with itself", ("compare", "latest", "latest", "--json")),
        ):
            print(f"{label:22}{timed(folder, *arguments)[1]}")
        mean = (folder / "out.jsonl").stat().st_size / rows
        print(f"a row has {mean:.0f} bytes of JSON")
        print("target for 100,000 rows: resumed 3 s; exported to JSON 10 s, 150 MB")


if __name__ == "__main__":
    main()
