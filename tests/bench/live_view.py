"""The cost of two viewers for a run with 200 calls in flight, compared with none.

    python tests/bench/live_view.py

The fake provider, the run and `trioeval view` are separate processes, as for a user. A viewer is a connection
that reads the events of the run's page as a browser does, and fetches the rows at each `rows` event. Rounds
are interleaved; a round is the time from the run's first request to its last reply, by the provider's clock.
"""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from server_process import fake_provider, open_server, reset, stats_of

CALLS, WIDTH, LATENCY = 6000, 200, 0.25
ROUNDS, VIEWERS = 7, 2
ALLOWED = 1.05


def suite_for(base_url: str) -> dict[str, object]:
    """`CALLS` rows on one lane of `WIDTH` slots."""
    return {
        "providers": [
            {"id": "openai:chat:fake", "config": {"apiBaseUrl": base_url}, "lane": "fake"}
        ],
        "lanes": {"fake": {"maxConcurrency": WIDTH, "adaptive": "off"}},
        "prompts": ["say {{word}}"],
        "tests": [
            {"vars": {"word": f"w{n}"}, "assert": [{"type": "contains", "value": f"w{n}"}]}
            for n in range(CALLS)
        ],
    }


def read(url: str) -> str:
    """Return the text of a page."""
    with urllib.request.urlopen(url) as reply:
        text: str = reply.read().decode()
    return text


def watch(view: str, seen: list[int]) -> None:
    """Wait until the list shows the run, then read its events until it ends."""
    host, _, port = view.removeprefix("http://").strip("/").partition(":")
    run = None
    while run is None:
        found = re.search(r'href="/run/([^"?]+)">[^<]*</a>[\s\S]{0,200}?badge running', read(view))
        run = None if found is None else found[1]
        time.sleep(0.05)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"GET /events/{run} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
        received = b""
        while b"event: over" not in received:
            chunk = connection.recv(65536)
            if not chunk:
                break
            received = received[-20:] + chunk
            seen[0] += chunk.count(b"event: points")
            if b"event: rows" in received:
                read(f"{view}rows/{run}")


def once(base_url: str, folder: Path, view: str | None) -> float:
    """Run the suite, with viewers if a view is given, and return its seconds."""
    reset(base_url)
    seen = [0]
    viewers = [
        threading.Thread(target=watch, args=(view, seen))
        for _ in range(VIEWERS if view is not None else 0)
    ]
    for viewer in viewers:
        viewer.start()
    flags = ["--no-table", "--no-progress", "--no-cache", "--db", str(folder / "runs.db")]
    subprocess.run(
        [sys.executable, "-m", "trioeval", str(folder / "suite.json"), *flags],
        check=True,
        capture_output=True,
    )
    for viewer in viewers:
        viewer.join()
    stats = stats_of(base_url)
    assert stats["ok"] == CALLS, stats
    assert view is None or seen[0] > VIEWERS, "the viewers received no events"
    return float(stats["last_reply_at"] - stats["first_request_at"])


def main() -> None:
    """Print the figures; fail if watching costs more than is allowed."""
    os.environ["NO_PROXY"] = "*"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags = ["--latency", str(LATENCY), "--hints", "none"]
        view_command = [
            sys.executable,
            "-m",
            "trioeval",
            "view",
            "--port",
            "0",
            "--db",
            str(folder / "runs.db"),
        ]
        with fake_provider(*flags, cwd=folder) as base_url:
            (folder / "suite.json").write_text(json.dumps(suite_for(base_url)))
            once(base_url, folder, None)  # warm-up, which also creates the database
            with open_server(view_command, folder) as url:
                alone, watched = [], []
                for _ in range(ROUNDS):
                    alone.append(once(base_url, folder, None))
                    watched.append(once(base_url, folder, url))
    plain, seen = statistics.median(alone), statistics.median(watched)
    ratio = seen / plain
    print(
        f"{CALLS} calls of {LATENCY * 1000:.0f} ms, {WIDTH} in flight: {plain:.2f} s alone, "
        f"{seen:.2f} s with {VIEWERS} viewers: {ratio:.3f} (at most {ALLOWED})"
    )
    sys.exit(ratio > ALLOWED)


if __name__ == "__main__":
    main()
