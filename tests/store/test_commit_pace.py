"""The pauses between commits, on a clock of its own."""

from hypothesis import given
from hypothesis import strategies as st

from trioeval.store.writer import LONGEST_PAUSE, SAVED, SHARE, CommitPace

QUIET = (SAVED + SHARE * LONGEST_PAUSE) / SHARE
"""Seconds of rest after which as much as possible is saved."""

durations = st.floats(0, 10)


@given(st.lists(st.tuples(durations, durations), min_size=1))
def test_commits_in_a_row_take_their_share_of_the_time(commits: list[tuple[float, float]]) -> None:
    """A commit that waited long for another program counts as one that needs the longest pause."""
    now, pace = 0.0, CommitPace(0.0)
    taken = 0.0
    for took, idle in commits:
        pause = pace.pause(now)
        assert 0 <= pause <= LONGEST_PAUSE * (1 + 1e-9)
        now += pause
        assert pace.pause(now) <= 1e-9
        assert taken <= SAVED + SHARE * now + 1e-6
        pace.spend(took)
        taken += min(took, SHARE * LONGEST_PAUSE)
        now += took + idle


@given(st.lists(durations, min_size=1))
def test_a_write_after_a_quiet_time_does_not_wait(commits: list[float]) -> None:
    now, pace = 0.0, CommitPace(0.0)
    for took in commits:
        now += pace.pause(now)
        pace.spend(took)
        now += took
    assert pace.pause(now + QUIET) == 0
    pace.spend(SAVED)
    assert pace.pause(now + QUIET) <= 1e-9


@given(st.floats(0.001, SHARE * LONGEST_PAUSE), st.integers(100, 1000))
def test_pauses_are_no_longer_than_the_share_requires(took: float, commits: int) -> None:
    """At full load nine tenths of the time remain for what is not a commit, and no more."""
    now, pace = 0.0, CommitPace(0.0)
    for _ in range(commits):
        now += pace.pause(now)
        pace.spend(took)
        now += took
    assert took * commits >= SHARE * (now - took) * 0.99
