"""200 calls of 50 ms at width 20 over loopback HTTP: first request to last reply, against the ideal.

    python tests/bench/http_width.py

The fake provider runs in a process of its own. The suite is graded; the ideal is 200 / 20 × 50 ms.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request

import trio

from trioeval import parse_suite, prepare, run_suite
from trioeval.tasks import Row

CALLS, WIDTH, LATENCY = 200, 20, 0.05
ROUNDS = 5


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


def once(base_url: str) -> tuple[float, float]:
    """Run the suite; returns wall seconds by the server's clock, and CPU seconds of the client."""
    urllib.request.urlopen(urllib.request.Request(base_url[:-3] + "/reset", method="POST")).read()
    rows: list[Row] = []

    async def keep(row: Row) -> None:
        rows.append(row)

    prepared = prepare(parse_suite(suite_for(base_url)), environ={})
    cpu = time.process_time()
    trio.run(lambda: run_suite(prepared, emit=keep))
    cpu = time.process_time() - cpu
    assert all(row.status.value == "pass" for row in rows), rows[0]
    stats = json.load(urllib.request.urlopen(base_url[:-3] + "/stats"))
    return stats["last_reply_at"] - stats["first_request_at"], cpu


def main() -> None:
    """Print the figures."""
    command = [sys.executable, "-m", "trioeval", "fake-provider", "--port", "0"]
    server = subprocess.Popen(
        [*command, "--latency", str(LATENCY)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ,
    )
    try:
        assert server.stdout is not None
        base_url = server.stdout.readline().strip()
        once(base_url)  # imports, first connections
        ideal = CALLS / WIDTH * LATENCY
        walls, cpus = zip(*(once(base_url) for _ in range(ROUNDS)), strict=True)
        ratios = [wall / ideal for wall in walls]
        print(
            f"{CALLS} calls of {LATENCY * 1000:.0f} ms at width {WIDTH}: "
            f"{statistics.median(ratios):.3f} × ideal (of {ROUNDS}: {min(ratios):.3f} to "
            f"{max(ratios):.3f}); {statistics.median(cpus) / CALLS * 1000:.2f} ms CPU a test"
        )
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
