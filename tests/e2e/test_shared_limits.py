"""Programs that share only a limit in Redis, and a provider that enforces the same one."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from redis_server import needs_redis, open_server
from server_process import stats_of
from shared_limit import (
    AT_ONCE,
    LATE,
    allowed_until,
    limits_of,
    open_provider,
    run_programs,
    start_run,
)

from trioeval.limits import LimitState
from trioeval.limits.redis import open_redis

pytestmark = [pytest.mark.network, pytest.mark.slow, needs_redis]

HOLD = 8.0
"""Seconds after which a hold expires that is not extended."""
HINT = 2.0
"""The most seconds between two requests of a program that waits for a slot."""
SLOW = 60.0
"""Seconds that a busy machine may add; fewer than the window of the other limit has left."""


def test_four_programs_use_a_limit_fully_and_never_exceed_it(tmp_path: Path) -> None:
    """1,200 a minute and 8 at once, in windows of 5 s: no request is refused, and no slot is unused."""
    window, windows = 5.0, 2
    with open_server() as redis:
        audit = run_programs(tmp_path, redis.url, programs=4, windows=windows, window=window)
    assert audit.refused == 0
    assert audit.most_in(window) <= 100
    assert audit.most_at_once <= AT_ONCE
    assert len(audit.arrivals) == 100 * windows
    assert len(audit.arrivals) >= 0.95 * allowed_until(audit.last_start, window + LATE, 100)
    for program in range(4):
        results = json.loads((tmp_path / f"program-{program}" / "results.json").read_text())
        assert results["results"]["stats"]["successes"] == 100 * windows // 4


def test_the_slots_of_a_killed_program_are_free_when_its_holds_expire(tmp_path: Path) -> None:
    """Not before: it had held them for longer than that, and had extended them all the time."""
    limits = limits_of(600.0, 1000, timeout=HOLD)
    with (
        open_server() as redis,
        open_provider(tmp_path / "busy.jsonl", latency_s=600.0) as busy,
        open_provider(tmp_path / "idle.jsonl") as idle,
    ):
        first = start_run(tmp_path / "first", busy, redis.url, limits, AT_ONCE)
        while stats_of(busy)["in_flight"] < AT_ONCE:
            assert first.poll() is None, first.communicate()
            time.sleep(0.01)  # between two polls
        held_since = time.monotonic()
        second = start_run(tmp_path / "second", idle, redis.url, limits, AT_ONCE)
        while time.monotonic() < held_since + 1.25 * HOLD:
            assert state_of(redis.url, "m:concurrency").used == AT_ONCE
            assert stats_of(idle)["requests"] == 0
            time.sleep(0.05)  # between two polls
        first.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        first.communicate()
        while (
            state_of(redis.url, "m:rpm").used == AT_ONCE
        ):  # the second program has started nothing yet
            assert time.monotonic() < killed_at + HOLD + HINT + SLOW
            time.sleep(0.01)
        assert time.monotonic() > killed_at + HOLD / 8  # its last heartbeat was not long before
        stdout, _ = second.communicate(timeout=60)
        assert second.returncode == 0, stdout
        assert stats_of(idle)["by_status"] == {"200": AT_ONCE}
        assert state_of(redis.url, "m:concurrency").used == 0


def state_of(url: str, key: str) -> LimitState:
    """The state of a limit, read as another program would."""

    async def ask() -> Any:
        async with open_redis(url) as limits:
            return await limits.states()

    states: dict[str, LimitState] = {one.limit.key: one for one in trio.run(ask)}
    return states[key]
