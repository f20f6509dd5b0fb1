"""Kills of workers and of the coordinator at any instant: the rows are those of one uninterrupted process.

The provider is a separate process that refuses and fails at random and keeps a log, so its log shows what was
paid, when, and how often. Redis has the limits and the journal.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import trio
from clusters import local_cluster, processes
from distributed import LocalCluster
from redis_server import RedisServer, needs_redis, open_server
from server_process import fake_provider, stats_of

from trioeval.run import Row, Status, collect

pytestmark = [
    needs_redis,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="ends processes by their numbers"),
    pytest.mark.timeout(300),  # a cluster, several programs and their restarts on a busy machine
]

DEEP = os.environ.get("TRIOEVAL_PROFILE") == "deep"
ROWS = 120
WORKERS = 3
WIDTH = 9
RPM = 2400
BURST = 2
LATENCY = 0.15
LATE = 1.0
"""Seconds by which a request may start late on a busy machine."""
ARRIVES_WITHIN = 3.0
"""Seconds after which the worker of a reply has it, also on a busy machine."""
NOTICED_WITHIN = 15.0
"""Seconds after which workers have noticed that the coordinator is gone, and have ended their calls."""


def suite(url: str, redis: str) -> dict[str, Any]:
    config = {"apiBaseUrl": url, "apiKey": "k"}
    lane = {
        "maxConcurrency": WIDTH,
        "rpm": RPM,
        "burst": BURST,
        "retries": 20,
        "retryDelay": 0.02,
        "refusalDelay": 0.02,
    }
    return {
        "providers": [{"id": "openai:chat:m", "config": config, "lane": lane}],
        "prompts": ["say {{word}}"],
        "limits": {"backend": "redis", "url": redis, "namespace": "kills"},
        "tests": [
            {"vars": {"word": f"word {number}"}, "assert": [{"type": "contains", "value": "1"}]}
            for number in range(ROWS)
        ],
    }


@attrs.frozen
class Kill:
    """A process that is killed once so many replies were sent."""

    replies: int
    victim: str


def kills_of(random: Random) -> list[Kill]:
    """Draw kills of two workers and of the coordinator, in any order."""
    victims = ["worker", "worker", "coordinator"]
    random.shuffle(victims)
    at = sorted(random.sample(range(5, ROWS - 15), len(victims)))
    return [Kill(replies, victim) for replies, victim in zip(at, victims, strict=True)]


@contextmanager
def program(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """Run trioeval, and kill it at the end of the block."""
    command = [
        sys.executable,
        "-m",
        "trioeval",
        *words,
        "--no-progress",
        "--no-table",
        "--no-cache",
    ]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_replies(url: str, process: "subprocess.Popen[str]", count: int) -> None:
    """Wait until the provider has sent so many good replies, or the program has ended."""
    while process.poll() is None and stats_of(url)["ok"] < count:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)


def check_rows(path: Path, alone: Sequence[Row]) -> None:
    """Check that the rows of a result file are those of a run in one process, in order."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [
        (row["testIdx"], row["response"]["output"], row["success"], row["score"]) for row in rows
    ] == [(row.index, row.output, row.status is Status.PASS, row.score) for row in alone]


def check_starts(log: Sequence[dict[str, Any]]) -> None:
    """Check laws PACE and WIDTH with the log of the provider, for requests that may arrive late."""
    starts = sorted(one["utc_at"] - one["seconds"] for one in log)
    for seconds in (1.0, 2.0):
        most = BURST + (seconds + LATE) * RPM / 60
        for place, first in enumerate(starts):
            count = sum(1 for at in starts[place:] if at < first + seconds)
            assert count <= most, f"law PACE: {count} starts in {seconds} s"
    changes = sorted(
        [(one["utc_at"] - one["seconds"], 1) for one in log] + [(one["utc_at"], -1) for one in log]
    )
    in_flight = 0
    for _at, change in changes:
        in_flight += change
        assert in_flight <= WIDTH, "law WIDTH"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with open_server() as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Start worker processes in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    with local_cluster(WORKERS) as started:
        yield started


@pytest.mark.parametrize("seed", range(1, 9) if DEEP else [2])
def test_kills_at_any_instant_change_no_row_and_repeat_only_calls_in_flight(
    cluster: LocalCluster, redis: RedisServer, tmp_path: Path, seed: int
) -> None:
    """Laws TOTAL, ORDER, ONCE, RESUME, PACE and WIDTH over several processes."""
    random = Random(f"kills {seed}")  # noqa: S311 - no secret
    kills = kills_of(random)
    print(f"seed {seed}: {kills}")
    log = tmp_path / "log.jsonl"
    faults = ("--failure-rate", "0.05", "--throttle-rate", "0.05", "--seed", str(seed))
    killed_at: list[float] = []
    on = ("--on", cluster.scheduler_address)
    with fake_provider("--latency", str(LATENCY), *faults, "--log", str(log)) as url:
        (tmp_path / "s.json").write_text(json.dumps(suite(url, redis.url)))
        words: tuple[str, ...] = ("s.json",)
        while True:
            with program(tmp_path, *words, *on, "-o", "o.jsonl") as process:
                while kills:
                    kill = kills[0]
                    wait_replies(url, process, kill.replies)
                    if process.poll() is not None:
                        break
                    kills.pop(0)
                    if kill.victim == "coordinator":
                        process.kill()
                        killed_at.append(time.time())
                        break
                    os.kill(random.choice([*processes(cluster).values()]), signal.SIGKILL)
                    killed_at.append(time.time())
                _, text = process.communicate(timeout=200)
            if process.returncode != -signal.SIGKILL:
                break
            words = ("resume",)
        assert process.returncode == 100, text
        assert not kills
        served = [json.loads(line) for line in log.read_text().splitlines()]
        alone = trio.run(collect, str(tmp_path / "s.json"))
    check_rows(tmp_path / "o.jsonl", alone)
    check_starts(served)
    paid = Counter(one["prompt"] for one in served if one["status"] == 200)
    assert len(paid) == ROWS
    for prompt in (one for one, count in paid.items() if count > 1):
        sent = sorted(one["utc_at"] for one in served if one["prompt"] == prompt)
        in_flight = [
            at for at in killed_at if at - ARRIVES_WITHIN <= sent[0] <= at + NOTICED_WITHIN
        ]
        assert in_flight, f"{prompt}: paid again, although its reply had arrived"
    assert sum(paid.values()) - ROWS <= WIDTH * len(killed_at)
    left = redis.command("KEYS", "*:run:*")
    assert left == b"*0\r\n", "nothing of the run stays on the server"
