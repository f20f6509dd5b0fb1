"""`python -m trioeval`: `--version`, `--help` and a suite of one row, each beside `import trio`, in turns.

Target: a row of echo takes at most 3.5 times as long as `import trio`.

python tests/bench/startup.py
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 15


def seconds(folder: str, *arguments: str) -> float:
    """Duration of one whole process in a folder."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=folder)
    return time.perf_counter() - started


def main() -> None:
    """Print the figures."""
    bare: list[float] = []
    others: dict[str, list[float]] = {"--version": [], "--help": [], "a row of echo": []}
    with tempfile.TemporaryDirectory() as folder:
        suite = {"providers": ["echo"], "prompts": ["hello"]}
        Path(folder, "suite.json").write_text(json.dumps(suite))
        for _ in range(ROUNDS):
            bare.append(seconds(folder, "-c", "import trio"))
            others["--version"].append(seconds(folder, "-m", "trioeval", "--version"))
            others["--help"].append(seconds(folder, "-m", "trioeval", "--help"))
            others["a row of echo"].append(seconds(folder, "-m", "trioeval", "suite.json"))
    base = statistics.median(bare)
    print(f"import trio: {base * 1000:.0f} ms")
    for name, found in others.items():
        median = statistics.median(found)
        print(f"{name}: {median * 1000:.0f} ms, {median / base:.2f} × import trio")


if __name__ == "__main__":
    main()
