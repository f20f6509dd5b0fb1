"""Several programs that share one limit, a provider that enforces the same one, and an audit of its log.

    python tests/e2e/shared_limit.py [windows] [seconds of a window]

measures for any duration; by default three windows of a minute. It needs `redis-server`.

**Comparison.** The provider counts requests as they arrive, in every window of a given length, and
refuses excess requests with a bare 429, from which lanes can learn nothing. The limits count requests
when they are granted. A delayed request arrives closer to the next ones than it was
granted, so two parties that count the same window in two places never agree exactly. No tolerance is
granted here: the provider's window is enforced to the last microsecond, and that of the limits is longer by
`LATE`, which costs its share of the throughput.

**The ideal.** One client that knows the provider's window, without any distance to it: its first
requests are sent at once, as many at a time as are allowed, and the next ones when the window has ended.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
from chaos import ENV

sys.path.insert(0, str(Path(__file__).parents[1]))
from server_process import open_server

SERVER = """
import json, pathlib, sys
from trioeval.cli.commands.fake_provider import serve_until_interrupted
from trioeval.cli.interrupts import Interrupts
from trioeval.providers.fake import FakeSettings
settings, log = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
serve_until_interrupted(FakeSettings(**settings), Interrupts.installed(), log=log)
"""

PER_MINUTE, AT_ONCE, LATENCY = 1200, 8, 0.05
LATE = 0.5
"""Seconds by which one request may take longer than another from its grant to its arrival. Most of it is
for an overloaded machine, on which a process may be paused for a while."""


@attrs.frozen
class Arrival:
    """A request, as the provider saw it."""

    at: float
    replied_at: float
    over_at: float
    """In seconds since 1970."""
    status: int


@attrs.frozen
class Audit:
    """The arrivals in the log of a provider, and what follows from them."""

    arrivals: Sequence[Arrival]
    """Ordered by time."""

    @classmethod
    def of(cls, log: Path) -> "Audit":
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        arrivals = [
            Arrival(at, at + one["busy_seconds"], one["utc_at"], one["status"])
            for one in entries
            for at in [one["utc_at"] - one["seconds"]]
        ]
        return cls(sorted(arrivals, key=lambda one: one.at))

    @property
    def refused(self) -> int:
        """Requests that exceeded the limit."""
        return sum(one.status == 429 for one in self.arrivals)

    @property
    def last_start(self) -> float:
        """Seconds from the first request to the last."""
        return self.arrivals[-1].at - self.arrivals[0].at

    @property
    def took(self) -> float:
        """Seconds from the first request to the last reply."""
        return max(one.over_at for one in self.arrivals) - self.arrivals[0].at

    def most_in(self, window: float) -> int:
        """The most requests in any window, excluding its end."""
        most = first = 0
        for last, one in enumerate(self.arrivals):
            while one.at - self.arrivals[first].at >= window:
                first += 1
            most = max(most, last - first + 1)
        return most

    @property
    def most_at_once(self) -> int:
        """The most requests that the provider handled at one instant."""
        served = [one for one in self.arrivals if one.replied_at > one.at]
        edges = [(one.at, 1) for one in served] + [(one.replied_at, -1) for one in served]
        most = now = 0
        for _, step in sorted(edges):
            now += step
            most = max(most, now)
        return most


def ideal_starts(requests: int, window: float, capacity: int) -> list[float]:
    """Seconds until each request of a single client that knows the window."""
    ends = [0.0] * AT_ONCE
    starts = list[float]()
    for number in range(requests):
        ends.sort()
        turn = starts[number - capacity] + window if number >= capacity else 0.0
        starts.append(max(ends[0], turn))
        ends[0] = starts[-1] + LATENCY
    return starts


def allowed_until(instant: float, window: float, capacity: int) -> int:
    """The number of requests that such a client has made by then."""
    enough = round(instant / window + 2) * capacity
    return sum(start <= instant for start in ideal_starts(enough, window, capacity))


@contextmanager
def open_provider(log: Path, **settings: Any) -> Iterator[str]:
    """Start a fake provider in a separate process, and return its base URL."""
    log.touch()
    with open_server([sys.executable, "-c", SERVER, json.dumps(settings), str(log)]) as url:
        yield url


def limits_of(window: float, capacity: int, timeout: float) -> list[dict[str, Any]]:
    """A rolling window and a number of concurrent requests."""
    return [
        {"key": "m:rpm", "kind": "rolling", "capacity": capacity, "windowSeconds": window},
        {
            "key": "m:concurrency",
            "kind": "concurrency",
            "capacity": AT_ONCE,
            "timeoutSeconds": timeout,
        },
    ]


def start_run(
    folder: Path, base_url: str, redis_url: str, limits: Sequence[Any], requests: int
) -> subprocess.Popen[str]:
    """Start the command with a suite of the given number of requests; it writes `results.json`."""
    folder.mkdir()
    lane = {"maxConcurrency": AT_ONCE, "retries": 0, "limits": ["m:rpm", "m:concurrency"]}
    suite = {
        "providers": [{"id": "openai:chat:m", "config": {"apiBaseUrl": base_url}, "lane": lane}],
        "prompts": ["{{question}}"],
        "tests": [{"vars": {"question": f"{folder.name} {n}"}} for n in range(requests)],
        "limits": {"backend": "redis", "url": redis_url, "limits": list(limits)},
    }
    (folder / "suite.json").write_text(json.dumps(suite))
    command = [
        sys.executable,
        "-m",
        "trioeval",
        "suite.json",
        "-o",
        "results.json",
        "--no-progress",
        "--no-table",
    ]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENV
    )


def run_programs(
    folder: Path, redis_url: str, *, programs: int, windows: int, window: float
) -> Audit:
    """Let programs share a limit for a number of windows, and return an audit of the provider's log."""
    capacity = round(PER_MINUTE * window / 60)
    limits = limits_of(window + LATE, capacity, timeout=30.0)
    log = folder / "log.jsonl"
    enforced = {"rpm": capacity, "window_s": window, "max_in_flight": AT_ONCE}
    with open_provider(log, latency_s=LATENCY, hints="none", **enforced) as base_url:
        share = capacity * windows // programs
        runs = [
            start_run(folder / f"program-{n}", base_url, redis_url, limits, share)
            for n in range(programs)
        ]
        for run in runs:
            entries, _ = run.communicate()
            assert run.returncode == 0, entries
    return Audit.of(log)


def main(windows: int = 3, window: float = 60.0) -> None:
    """Print the throughput of four programs under a limit."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "limits"))
    from redis_server import open_server

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        redis = stack.enter_context(open_server())
        began = time.monotonic()
        audit = run_programs(folder, redis.url, programs=4, windows=windows, window=window)
    capacity, requests = round(PER_MINUTE * window / 60), len(audit.arrivals)
    best = ideal_starts(requests, window, capacity)[-1] + LATENCY
    print(f"{requests} requests of 4 programs, {capacity} in any {window:g} s, {AT_ONCE} at once")
    print(f"refused with 429      {audit.refused}")
    print(f"most in a window      {audit.most_in(window)} of {capacity}")
    print(f"most at once          {audit.most_at_once} of {AT_ONCE}")
    print(f"first to last reply   {audit.took:.2f} s, ideal {best:.2f} s: {best / audit.took:.1%}")
    print(f"with their starts     {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(*[kind(word) for kind, word in zip((int, float), sys.argv[1:], strict=False)])
