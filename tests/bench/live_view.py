"""What it costs a run that two browsers watch it: 200 calls in flight, with viewers and without.

    python tests/bench/live_view.py

The fake provider, the run and `trioeval view` are processes of their own, as a user has them. A viewer is
a connection that reads the events of the run's page as a browser does, and the rows whenever it is told
to. Rounds are interleaved; a round is the time from the run's first request to its last reply, by the
clock of the provider.
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
    """A page."""
    with urllib.request.urlopen(url) as reply:
        text: str = reply.read().decode()
    return text


def watch(view: str, seen: list[int]) -> None:
    """Wait for the run in the list, and hear its events until it is over."""
    host, _, port = view.removeprefix("http://").strip("/").partition(":")
    run = None
    while run is None:
        found = re.search(r'href="/run/([^"?]+)">[^<]*</a>[\s\S]{0,200}?badge running', read(view))
        run = None if found is None else found[1]
        time.sleep(0.05)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"GET /events/{run} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
        heard = b""
        while b"event: over" not in heard:
            chunk = connection.recv(65536)
            if not chunk:
                break
            heard = heard[-20:] + chunk
            seen[0] += chunk.count(b"event: points")
            if b"event: rows" in heard:
                read(f"{view}rows/{run}")


def once(base_url: str, folder: Path, view: str | None) -> float:
    """Run the suite, with viewers if there is a view; seconds."""
    home = base_url.removesuffix("/v1")
    urllib.request.urlopen(urllib.request.Request(f"{home}/reset", method="POST")).read()
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
    stats = json.load(urllib.request.urlopen(f"{home}/stats"))
    assert stats["ok"] == CALLS, stats
    assert view is None or seen[0] > VIEWERS, "nobody saw anything"
    return float(stats["last_reply_at"] - stats["first_request_at"])


def start(*words: str, cwd: Path) -> tuple[subprocess.Popen[str], str]:
    """A server, and what it prints first."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trioeval", *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def main() -> None:
    """Print the figures; fail if watching costs more than is allowed."""
    os.environ["NO_PROXY"] = "*"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fake, base_url = start(
            "fake-provider", "--port", "0", "--latency", str(LATENCY), "--hints", "none", cwd=folder
        )
        (folder / "suite.json").write_text(json.dumps(suite_for(base_url)))
        once(base_url, folder, None)  # warm
        view, url = start("view", "--port", "0", "--db", str(folder / "runs.db"), cwd=folder)
        try:
            alone, watched = [], []
            for _ in range(ROUNDS):
                alone.append(once(base_url, folder, None))
                watched.append(once(base_url, folder, url))
        finally:
            view.terminate()
            fake.terminate()
    plain, seen = statistics.median(alone), statistics.median(watched)
    ratio = seen / plain
    print(
        f"{CALLS} calls of {LATENCY * 1000:.0f} ms, {WIDTH} in flight: {plain:.2f} s alone, "
        f"{seen:.2f} s with {VIEWERS} viewers: {ratio:.3f} (at most {ALLOWED})"
    )
    sys.exit(ratio > ALLOWED)


if __name__ == "__main__":
    main()
