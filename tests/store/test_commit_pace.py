"""The pauses between commits, on a clock of its own."""

from hypothesis import given
from hypothesis import strategies as st

from trioeval.store.writer import BURST, RATE, CommitPace


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
