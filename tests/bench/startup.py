"""`python -m trioeval --version` against `python -c "import trio"`, in turns.

python tests/bench/startup.py
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 15


def seconds(*arguments: str) -> float:
    """Duration of one whole process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    """Print the figures."""
    version, help_, bare = [], [], []
    for _ in range(ROUNDS):
        bare.append(seconds("-c", "import trio"))
        version.append(seconds("-m", "trioeval", "--version"))
        help_.append(seconds("-m", "trioeval", "--help"))
    base = statistics.median(bare)
    print(
        f"--version: {statistics.median(version) * 1000:.0f} ms, "
        f"{statistics.median(version) / base:.2f} × import trio ({base * 1000:.0f} ms); "
        f"--help: {statistics.median(help_) / base:.2f} ×"
    )


if __name__ == "__main__":
    main()
