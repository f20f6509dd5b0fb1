"""The pauses between commits, on a clock of their own, and commits that do not wait."""

import sqlite3
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trioeval.store.writer import BURST, RATE, CommitPace, Writer
from trioeval.store.writes import StepWrite


@given(st.lists(st.floats(0, 1), min_size=1))
def test_commits_keep_their_rate(times_between: list[float]) -> None:
    """Every span of time has at most the commits of the rate and one burst; no pause is longer."""
    now, pace = 0.0, CommitPace(0.0)
    commits: list[float] = []
    for idle in times_between:
        for _ in range(7):
            pause = pace.pause(now)
            assert 0 <= pause <= 1 / RATE + 1e-9
            now += pause
            pace.spend(now)
            commits.append(now)
        now += idle
    for first, since in enumerate(commits):
        for last in range(first, len(commits)):
            assert last - first + 1 <= BURST + RATE * (commits[last] - since) + 1 + 1e-6


@given(st.lists(st.floats(0, 1), max_size=50))
def test_writes_after_a_quiet_time_do_not_wait(times_between: list[float]) -> None:
    now, pace = 0.0, CommitPace(0.0)
    for idle in times_between:
        now += pace.pause(now) + idle
        pace.spend(now)
    now += BURST / RATE
    for _ in range(int(BURST)):
        assert pace.pause(now) <= 1e-9
        pace.spend(now)
    assert pace.pause(now) > 0


def test_a_commit_waits_for_more_unless_it_is_urgent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a pause writes are gathered; an urgent one ends it, and so does closing."""
    monkeypatch.setattr(CommitPace, "pause", lambda _self, _now: 3600.0)
    commits: list[int] = []

    async def main() -> None:
        path = tmp_path / "x.db"
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        writer = Writer(
            connection, path, patience_s=1.0, after_commit=lambda: commits.append(len(made))
        )
        made: list[int] = []
        writer.start()
        with trio.fail_after(30):
            first = writer.put(StepWrite(lambda _: made.append(1)))
            with trio.move_on_after(0.2) as waiting:
                await writer.wait_done(first, urgent=False)
            assert waiting.cancelled_caught
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: writer.wait_done(first, urgent=False))
                last = writer.put(StepWrite(lambda _: made.append(2)))
                await writer.wait_done(last)
            assert commits == [2]
            writer.put(StepWrite(lambda _: made.append(3)))
            await writer.aclose()
            assert commits == [2, 3]

    trio.run(main)
