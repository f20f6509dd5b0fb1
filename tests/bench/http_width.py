"""200 calls of 50 ms at width 20 over loopback HTTP: first request to last reply, against the ideal.

    python tests/bench/http_width.py

The fake provider runs in one process and the command line in another, as a user runs them. The suite is
graded and written to a file. The ideal is 200 / 20 × 50 ms; the server records both times.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from server_process import fake_provider, reset, stats_of

CALLS, WIDTH, LATENCY = 200, 20, 0.05
ROUNDS = 7


def suite_for(base_url: str) -> dict[str, object]:
    """A graded suite of `CALLS` rows on one lane."""
    return {
        "providers": [
            {
                "id": "openai:chat:fake",
                "config": {"apiBaseUrl": base_url},
                "lane": {"maxConcurrency": WIDTH},
            }
        ],
        "prompts": ["say {{word}}"],
        "tests": [
            {"vars": {"word": f"w{n}"}, "assert": [{"type": "contains", "value": f"w{n}"}]}
            for n in range(CALLS)
        ],
    }


def once(base_url: str, folder: Path) -> tuple[float, float]:
    """Run the suite; returns seconds by the server's clock, and CPU seconds of the client."""
    reset(base_url)
    suite = folder / "suite.json"
    suite.write_text(json.dumps(suite_for(base_url)))
    before = os.times()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "trioeval",
            str(suite),
            "--no-cache",
            "--no-table",
            "-o",
            folder / "o.json",
        ],
        check=True,
        capture_output=True,
    )
    after = os.times()
    stats = stats_of(base_url)
    assert stats["ok"] == CALLS
    cpu = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return stats["last_reply_at"] - stats["first_request_at"], cpu


def main() -> None:
    """Print the figures."""
    ideal = CALLS / WIDTH * LATENCY
    with (
        fake_provider("--latency", str(LATENCY)) as base_url,
        tempfile.TemporaryDirectory() as folder,
    ):
        runs = [once(base_url, Path(folder)) for _ in range(ROUNDS)]
    ratios = [wall / ideal for wall, _ in runs]
    cpu = statistics.median(cpu for _, cpu in runs)
    print(
        f"{CALLS} calls of {LATENCY * 1000:.0f} ms at width {WIDTH}: "
        f"{statistics.median(ratios):.3f} × ideal (of {ROUNDS}: {min(ratios):.3f} to "
        f"{max(ratios):.3f}); {cpu:.2f} s CPU for the whole command, imports included"
    )


if __name__ == "__main__":
    main()
