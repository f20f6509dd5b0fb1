"""When to give up, and when to warn: the pure part of CO-63 and CO-64."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.columns.buffer import FailureWindow, TransientFailureWarning

FEWER = settings(max_examples=settings().max_examples // 3)


def test_co_63_a_window_of_two_gives_up_at_one_failure_once_it_is_full() -> None:
    window = FailureWindow(2, 0.5)
    assert [window.add(failed=failed) for failed in (True, False, False, False, True)] == [
        False, True, False, False, True,
    ]  # fmt: skip


def test_co_64_unreported_calls_give_up_nothing() -> None:
    """Refusals and transient failures are not added: successes between them fill the window."""
    window = FailureWindow(2, 0.5)
    assert not any(window.add(failed=False) for _ in range(100))


@given(st.integers(1, 12), st.floats(0.01, 1.0), st.lists(st.booleans(), max_size=40))
@FEWER
def test_a_window_equals_a_naive_check_of_the_last_calls(
    calls: int, error_rate: float, outcomes: list[bool]
) -> None:
    window, last = FailureWindow(calls, error_rate), deque[bool](maxlen=calls)
    for failed in outcomes:
        last.append(failed)
        is_time = len(last) == calls and sum(last) / calls >= error_rate
        assert window.add(failed=failed) == is_time


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 30)), max_size=120))
@FEWER
def test_a_warning_comes_at_half_of_twenty_and_once_a_minute(
    outcomes: list[tuple[bool, float]],
) -> None:
    warning, last, now, warned = TransientFailureWarning(), deque[bool](maxlen=20), 0.0, -60.0
    for transient, wait in outcomes:
        now += wait
        last.append(transient)
        expected = len(last) == 20 and sum(last) >= 10 and now - warned >= 60
        assert warning.add(transient=transient, now=now) == expected
        if expected:
            warned = now


def test_the_first_warning_has_no_delay() -> None:
    warning = TransientFailureWarning()
    assert [warning.add(transient=True, now=0.0) for _ in range(21)] == [False] * 19 + [True, False]
    assert warning.add(transient=True, now=60.0)
