"""200 calls of 50 ms at width 20 over loopback HTTP: first request to last reply, against the ideal.

    python tests/bench/http_width.py

The fake provider runs in one process and the command line in another, as a user runs them. The suite is
graded and written to a file. The ideal is 200 / 20 × 50 ms; both instants are taken by the server.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

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
    home = base_url.removesuffix("/v1")
    urllib.request.urlopen(urllib.request.Request(f"{home}/reset", method="POST")).read()
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
    stats = json.load(urllib.request.urlopen(f"{home}/stats"))
    assert stats["ok"] == CALLS
    cpu = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return stats["last_reply_at"] - stats["first_request_at"], cpu


def main() -> None:
    """Print the figures."""
    command = [sys.executable, "-m", "trioeval", "fake-provider", "--port", "0"]
    server = subprocess.Popen(
        [*command, "--latency", str(LATENCY)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        base_url = server.stdout.readline().strip()
        ideal = CALLS / WIDTH * LATENCY
        with tempfile.TemporaryDirectory() as folder:
            runs = [once(base_url, Path(folder)) for _ in range(ROUNDS)]
        ratios = [wall / ideal for wall, _ in runs]
        cpu = statistics.median(cpu for _, cpu in runs)
        print(
            f"{CALLS} calls of {LATENCY * 1000:.0f} ms at width {WIDTH}: "
            f"{statistics.median(ratios):.3f} × ideal (of {ROUNDS}: {min(ratios):.3f} to "
            f"{max(ratios):.3f}); {cpu:.2f} s CPU for the whole command, imports included"
        )
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
