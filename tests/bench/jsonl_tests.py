"""A suite with a million tests in JSONL: how long it takes to load, to the first step, and the memory.

    python tests/bench/jsonl_tests.py [LINES]

Target for 1,000,000 lines: loaded in at most 0.7 s, with at most 30 MB of memory above the imports. Each
figure comes from a separate process.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trioeval.loading.load import load_suite
from trioeval.suite.expand import expand

LINES = 1_000_000


def write(folder: Path, lines: int) -> Path:
    """The suite and its tests."""
    with (folder / "tests.jsonl").open("w") as out:
        for n in range(lines):
            question = f"How many apples are left of {n} if {n // 3} are eaten?"
            expected = {"type": "contains", "value": str(n - n // 3)}
            out.write(json.dumps({"vars": {"question": question, "n": n}, "assert": [expected]}))
            out.write("\n")
    suite = folder / "suite.json"
    document = {"prompts": ["{{question}}"], "providers": ["echo"], "tests": "tests.jsonl"}
    suite.write_text(json.dumps(document))
    return suite


def megabytes() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(file: Path) -> None:
    """Measure one round and print its figures."""
    before = megabytes()
    began = time.perf_counter()
    suite = load_suite(file)
    loaded = time.perf_counter()
    steps = expand(suite)
    first = steps[0]
    reached = time.perf_counter()
    count = min(10_000, len(steps))
    for index in range(count):
        steps[index * (len(steps) // count)]
    looked = time.perf_counter()
    assert first.vars["n"] == 0
    print(f"load                {loaded - began:6.2f} s")
    print(f"load to first step  {reached - began:6.2f} s")
    print(f"a step              {(looked - reached) / count * 1e6:6.0f} us")
    print(f"memory              {megabytes() - before:6.1f} MB above {before:.0f} MB")


def main() -> None:
    """Make the files, and measure three times."""
    if len(sys.argv) > 1 and sys.argv[1].endswith(".json"):
        measure(Path(sys.argv[1]))
        return
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    with tempfile.TemporaryDirectory() as folder:
        suite = write(Path(folder), lines)
        for _ in range(3):
            subprocess.run([sys.executable, __file__, suite], check=True)


if __name__ == "__main__":
    main()
