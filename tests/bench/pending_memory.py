"""Memory of a plan of 1,000,000 no-op jobs above what importing the kernel takes.

    python tests/bench/pending_memory.py

The peak resident size of a child process that runs the plan, less that of one that only imports.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def peak_mib(code: str) -> float:
    """Peak resident MiB of a Python process that runs `code`."""
    script = f"{code}\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=HERE, capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1]) / 1024


def main(size: int = 1_000_000) -> None:
    """Print the figure."""
    imports = "import math, trio, kernel_cost"
    base = peak_mib(imports)
    full = peak_mib(f"{imports}\ntrio.run(kernel_cost.kernel, {size}, math.inf)")
    print(f"memory of {size:,} jobs: {full - base:.1f} MiB above the {base:.1f} MiB of the imports")


if __name__ == "__main__":
    main()
