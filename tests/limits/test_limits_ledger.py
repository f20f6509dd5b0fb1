"""The decisions of the limit ledger, in single cases."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.errors import LimitError
from trioeval.limits import (
    Actual,
    Denied,
    Granted,
    LeaseRequest,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
)
from trioeval.limits.ledger import LimitLedger
from trioeval.limits.model import Overage


def rolling(
    key: str = "rpm", capacity: int = 2, window: float = 10, overage: Overage = "debt"
) -> SharedLimit:
    """A rolling limit."""
    return SharedLimit(key=key, kind="rolling", capacity=capacity, window=window, overage=overage)


def concurrency(key: str = "slots", capacity: int = 1, timeout: float = 3) -> SharedLimit:
    """A concurrency limit."""
    return SharedLimit(key=key, kind="concurrency", capacity=capacity, timeout=timeout)


def budget(key: str = "tokens", capacity: int = 1000, reset: float | None = None) -> SharedLimit:
    """A budget."""
    return SharedLimit(key=key, kind="budget", capacity=capacity, reset=reset)


def book_of(*limits: SharedLimit) -> LimitLedger:
    """Return a ledger of unused limits."""
    return LimitLedger(LimitState(limit=limit) for limit in limits)


def ask(lease_id: str, **needs: int) -> LeaseRequest:
    """Return a request for these amounts."""
    return LeaseRequest(lease_id, "job-1", tuple(Requirement(key, n) for key, n in needs.items()))


def end(lease_id: str, **actuals: int) -> Settlement:
    """Return the settlement of a lease."""
    return Settlement(lease_id, "job-1", tuple(Actual(key, n) for key, n in actuals.items()))


def state(ledger: LimitLedger, key: str, now: float) -> LimitState:
    """Return the state of one limit."""
    return next(state for state in ledger.states(now) if state.limit.key == key)


def reason(answer: Granted | Denied) -> str:
    """Return the reason of a denial; empty for a grant."""
    return "" if isinstance(answer, Granted) else answer.reason


def test_ql_01_a_denial_of_a_full_window_states_the_time_until_there_is_room() -> None:
    """Two of two requests are granted, the third when the first ends."""
    ledger = book_of(rolling())
    assert ledger.reserve(ask("1", rpm=1), 0) == ledger.reserve(ask("2", rpm=1), 0) == Granted(0)
    assert ledger.reserve(ask("3", rpm=1), 0) == Denied(
        "no_capacity", terminal=False, retry_after=10, keys=("rpm",)
    )


def test_the_wait_is_until_enough_shares_have_ended() -> None:
    """The first share that ends may be too small."""
    ledger = book_of(rolling(capacity=10))
    for second, amount in enumerate([3, 3, 4]):
        ledger.reserve(ask(str(second), rpm=amount), second)
    waits = {
        amount: denied.retry_after
        for amount in (1, 3, 4, 6, 7, 10)
        if isinstance(denied := ledger.reserve(ask(f"new {amount}", rpm=amount), 5), Denied)
    }
    assert waits == {1: 5, 3: 5, 4: 6, 6: 6, 7: 7, 10: 7}


def test_ql_02_a_window_ends_exactly_after_its_length() -> None:
    """The boundary counts as over, and an instant before it does not."""
    ledger = book_of(rolling())
    for n in range(2):
        ledger.reserve(ask(f"lease {n}", rpm=1), 0)
    assert reason(ledger.reserve(ask("early", rpm=1), math.nextafter(10, 0))) == "no_capacity"
    assert ledger.reserve(ask("late", rpm=2), 10) == Granted(10)


def test_ql_03_a_denial_takes_nothing_from_any_limit() -> None:
    """It does not matter which limit was short, or its position."""
    ledger = book_of(rolling("a", 5), rolling("b", 1), concurrency("c"))
    ledger.reserve(ask("full", b=1), 0)
    denied = ledger.reserve(ask("both", a=5, b=1, c=1), 0)
    assert isinstance(denied, Denied)
    assert denied.keys == ("b",)
    assert [state(ledger, key, 0).used for key in "abc"] == [0, 1, 0]
    assert ledger.reserve(ask("a alone", a=5), 0) == Granted(0)


def test_ql_04_unused_amounts_are_free_at_once() -> None:
    """100 are reserved, 10 used, 90 free; the 10 end on time."""
    ledger = book_of(rolling("tpm", 100, 60))
    ledger.reserve(ask("1", tpm=100), 0)
    assert ledger.complete(end("1", tpm=10), 5) == ("tpm",)
    assert ledger.reserve(ask("2", tpm=90), 5) == Granted(5)
    assert state(ledger, "tpm", 59).used == 100
    assert state(ledger, "tpm", 60).used == 90


def test_returning_a_share_leaves_other_shares() -> None:
    """Small shares at any position end with their own window."""
    ledger = book_of(rolling("tpm", 100, 60))
    for second, lease_id in enumerate("abc"):
        ledger.reserve(ask(lease_id, tpm=1 if lease_id == "c" else 50 - second), second)
    ledger.complete(end("b", tpm=0), 3)
    ledger.complete(end("a", tpm=2), 3)
    assert [state(ledger, "tpm", now).used for now in (3, 60, 61, 62)] == [3, 1, 1, 0]
    assert ledger.next_at(62) == math.inf


@pytest.mark.parametrize(("actual", "debt"), [(140, 40), (150, 50)])
def test_ql_05_usage_beyond_the_window_is_debt(actual: int, debt: int) -> None:
    """Debt is shown, and delays nothing once the window has passed."""
    ledger = book_of(rolling("tpm", 100, 60))
    ledger.reserve(ask("1", tpm=100), 0)
    ledger.complete(end("1", tpm=actual), 1)
    assert (state(ledger, "tpm", 1).used, state(ledger, "tpm", 1).debt) == (100, debt)
    assert ledger.reserve(ask("2", tpm=100), 60) == Granted(60)
    assert state(ledger, "tpm", 60).debt == debt


def test_ql_06_usage_beyond_the_reservation_counts_in_its_window() -> None:
    """It counts as far as there is room, and ends with the share."""
    ledger = book_of(rolling("tpm", 100, 60))
    ledger.reserve(ask("1", tpm=50), 0)
    ledger.complete(end("1", tpm=70), 30)
    assert (state(ledger, "tpm", 30).used, state(ledger, "tpm", 30).debt) == (70, 0)
    assert state(ledger, "tpm", 60).used == 0


def test_an_excess_does_not_count_if_the_limit_excludes_it() -> None:
    """Neither the window nor the debt grows."""
    ledger = book_of(rolling("tpm", 100, 60, overage="deny"))
    ledger.reserve(ask("1", tpm=50), 0)
    ledger.complete(end("1", tpm=170), 30)
    assert (state(ledger, "tpm", 30).used, state(ledger, "tpm", 30).debt) == (50, 0)


def test_an_excess_counts_up_to_the_capacity_in_effect_while_it_decreases() -> None:
    """The capacity in effect counts, not the pending one: 8 of 10, pending 5, and 2 more are used."""
    ledger = book_of(rolling("tpm", 10, 60))
    ledger.reserve(ask("1", tpm=8), 0)
    ledger.define(rolling("tpm", 5, 60), 1)
    ledger.complete(end("1", tpm=10), 2)
    assert (state(ledger, "tpm", 2).used, state(ledger, "tpm", 2).debt) == (10, 0)


def test_usage_reported_after_the_window_has_passed_is_debt() -> None:
    """It counts nowhere else: the window in which it was used is over."""
    ledger = book_of(rolling("tpm", 100, 60))
    ledger.reserve(ask("1", tpm=50), 0)
    assert ledger.reserve(ask("2", tpm=80), 60) == Granted(60)
    ledger.complete(end("1", tpm=65), 61)
    assert (state(ledger, "tpm", 61).used, state(ledger, "tpm", 61).debt) == (80, 15)


@pytest.mark.slow
@given(st.floats(0, 1e6), st.floats(0, 1e3), st.floats(1e-3, 1e5), st.sampled_from(["rpm", "open"]))
@example(0.2, 0.0, 0.7, "rpm")
def test_a_request_repeated_after_the_announced_wait_is_granted(
    begin: float, later: float, span: float, key: str
) -> None:
    """The hints of windows and pauses are exact to the last bit."""
    ledger = book_of(rolling("rpm", 1, span), rolling("open", 1, span))
    ledger.reserve(ask("1", rpm=1), begin)
    ledger.pause("open", begin + span, begin)
    now = begin + later
    denied = ledger.reserve(ask("2", **{key: 1}), now)
    if isinstance(denied, Denied):
        assert denied.retry_after > 0
        again = now + denied.retry_after
        assert ledger.reserve(ask("3", **{key: 1}), again) == Granted(again)


def test_ql_07_the_same_lease_is_granted_once() -> None:
    """Repeated requests are granted once, with their requirements in any order."""
    ledger = book_of(rolling(), concurrency())
    assert ledger.reserve(ask("1", rpm=1, slots=1), 3) == Granted(3)
    assert ledger.reserve(ask("1", slots=1, rpm=1), 5) == Granted(3)
    assert [one.used for one in ledger.states(5)] == [1, 1]


def test_ql_08_the_same_lease_with_other_requirements_is_rejected() -> None:
    """The first grant stays in effect."""
    ledger = book_of(rolling(), concurrency())
    ledger.reserve(ask("1", rpm=1), 0)
    for other in (ask("1", rpm=2), ask("1", rpm=1, slots=1), ask("1", slots=1)):
        denied = ledger.reserve(other, 0)
        assert isinstance(denied, Denied)
        assert (denied.reason, denied.terminal) == ("invalid_request", True)
    assert [one.used for one in ledger.states(0)] == [1, 0]


def test_ql_09_a_lease_ends_once() -> None:
    """A second end, and that of an unknown lease, change nothing; the id is never granted again."""
    ledger = book_of(budget())
    ledger.reserve(ask("1", tokens=400), 0)
    assert ledger.complete(end("1", tokens=100), 0) == ("tokens",)
    assert ledger.complete(end("1", tokens=400), 0) == ledger.complete(end("?", tokens=9), 0) == ()
    assert ledger.complete(end("1", tokens=0), 0) == ()
    assert state(ledger, "tokens", 0).used == 100
    assert reason(ledger.reserve(ask("1", tokens=400), 0)) == "lease_completed"


def test_ql_10_a_returned_hold_is_free_at_once() -> None:
    """It is free at the same instant."""
    ledger = book_of(concurrency())
    ledger.reserve(ask("1", slots=1), 0)
    assert reason(ledger.reserve(ask("2", slots=1), 1)) == "no_capacity"
    ledger.complete(end("1"), 1)
    assert ledger.reserve(ask("3", slots=1), 1) == Granted(1)


def test_ql_11_a_hold_that_is_not_extended_expires() -> None:
    """It expires at its timeout; its old owner is denied, and the end of that lease affects no new owner."""
    ledger = book_of(concurrency(timeout=3))
    ledger.reserve(ask("gone", slots=1), 0)
    assert reason(ledger.reserve(ask("early", slots=1), 2.9)) == "no_capacity"
    assert ledger.reserve(ask("next", slots=1), 4) == Granted(4)
    assert reason(ledger.reserve(ask("gone", slots=1), 4)) == "lease_expired"
    assert ledger.extend(["gone", "next"], 4) == [False, True]
    ledger.complete(end("gone"), 4)
    assert state(ledger, "slots", 4).used == 1


def test_the_first_request_after_the_end_of_a_hold_finds_it_expired() -> None:
    """The request itself finds that the hold has ended."""
    ledger = book_of(concurrency(timeout=3))
    ledger.reserve(ask("gone", slots=1), 0)
    assert reason(ledger.reserve(ask("gone", slots=1), 3)) == "lease_expired"
    ledger.reserve(ask("next", slots=1), 3)
    assert ledger.extend(["next"], 6) == [False]


def test_an_extended_hold_or_one_of_a_scope_does_not_end() -> None:
    """It must be extended in time; a hold of a scope of this process never ends by itself."""
    ledger = book_of(concurrency(capacity=2))
    ledger.reserve(ask("extended", slots=1), 0)
    ledger.reserve(ask("held", slots=1), 0, is_held=True)
    for now in range(1, 5000, 2):
        assert ledger.extend(["extended", "held"], now) == [True, True]
    assert state(ledger, "slots", 5001).used == 2
    assert state(ledger, "slots", 5002).used == 1


def test_extending_a_hold_does_not_extend_others() -> None:
    """Each hold ends by its own timeout."""
    ledger = book_of(concurrency(capacity=3))
    for second, lease_id in enumerate("abc"):
        ledger.reserve(ask(lease_id, slots=1), second / 4)
    assert ledger.extend("a", 2) == [True]
    assert [state(ledger, "slots", now).used for now in (2, 3.25, 3.5, 5)] == [3, 2, 1, 0]


def test_ql_13_a_larger_capacity_takes_effect_at_once() -> None:
    """It also cancels a pending decrease."""
    ledger = book_of(rolling(capacity=5))
    ledger.reserve(ask("1", rpm=5), 0)
    assert reason(ledger.reserve(ask("2", rpm=3), 0)) == "no_capacity"
    assert ledger.define(rolling(capacity=8), 0).limit.capacity == 8
    assert ledger.reserve(ask("3", rpm=3), 0) == Granted(0)
    assert ledger.define(rolling(capacity=2), 0).status == "decreasing"
    assert ledger.define(rolling(capacity=9), 0) == LimitState(limit=rolling(capacity=9), used=8)


def test_ql_14_a_smaller_capacity_takes_effect_when_enough_is_free() -> None:
    """Until then nothing is granted, not even what would fit."""
    ledger = book_of(rolling("tpm", 100, 60))
    ledger.reserve(ask("1", tpm=50), 0)
    ledger.reserve(ask("2", tpm=30), 0)
    message = ledger.define(rolling("tpm", 60, 60), 1)
    assert (message.status, message.pending_capacity, message.limit.capacity) == (
        "decreasing",
        60,
        100,
    )
    denied = ledger.reserve(ask("3", tpm=5), 1)
    assert isinstance(denied, Denied)
    assert (denied.reason, denied.terminal, denied.retry_after) == ("limit_decreasing", False, 59)
    assert reason(ledger.reserve(ask("more than 60", tpm=61), 1)) == "exceeds_capacity"
    ledger.complete(end("1", tpm=31), 2)
    assert state(ledger, "tpm", 2).status == "decreasing"
    ledger.complete(end("2", tpm=29), 2)
    assert state(ledger, "tpm", 2) == LimitState(limit=rolling("tpm", 60, 60), used=60)
    assert ledger.reserve(ask("4", tpm=60), 60) == Granted(60)


def test_ql_15_a_loaded_decrease_takes_effect_without_a_request() -> None:
    """It takes effect at a completion or an expiry, and at once if that much is free."""
    slots = LimitState(
        limit=concurrency(capacity=3), status="decreasing", pending_capacity=1, used=2
    )
    free = LimitState(limit=budget(), status="decreasing", pending_capacity=10, used=10)
    ledger = LimitLedger([slots, free], now=100)
    assert state(ledger, "tokens", 100).limit.capacity == 10
    assert state(ledger, "slots", 102.9).status == "decreasing"
    assert state(ledger, "slots", 103) == LimitState(limit=concurrency(capacity=1))


def test_ql_18_outstanding_amounts_of_a_budget_may_be_returned() -> None:
    """700 of 1000 are settled, 200 outstanding: 250 must wait until 100 are returned."""
    ledger = book_of(budget())
    for lease_id, amount in (("1", 700), ("2", 200)):
        ledger.reserve(ask(lease_id, tokens=amount), 0)
    ledger.complete(end("1"), 0)
    assert (state(ledger, "tokens", 0).used, state(ledger, "tokens", 0).outstanding) == (700, 200)
    denied = ledger.reserve(ask("3", tokens=250), 0)
    assert isinstance(denied, Denied)
    assert (denied.reason, denied.terminal, denied.retry_after) == ("no_capacity", False, 0.05)
    ledger.complete(end("2", tokens=100), 0)
    assert reason(ledger.reserve(ask("3", tokens=250), 0)) == "no_capacity"  # as announced
    assert reason(ledger.reserve(ask("4", tokens=200), 0)) == ""


def test_ql_19_an_amount_that_a_budget_can_never_have_is_denied_for_good() -> None:
    """900 of 1000 are settled, so a wait does not help 150."""
    ledger = book_of(budget())
    ledger.reserve(ask("1", tokens=900), 0)
    ledger.complete(end("1"), 0)
    denied = ledger.reserve(ask("2", tokens=150), 0)
    assert isinstance(denied, Denied)
    assert (denied.reason, denied.terminal, denied.keys) == ("budget_exhausted", True, ("tokens",))
    assert denied.message.startswith("budget_exhausted:tokens")
    assert ledger.reserve(ask("3", tokens=100), 0) == Granted(0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            LeaseRequest("1", "job", (Requirement("a", 1), Requirement("a", 1))),
            "a: more than one requirement for the same limit",
        ),
        (ask("1", a=0), "the amount of a is 0, 1 to 2^53-1 are allowed"),
        (ask("1", a=2**53), f"the amount of a is {2**53}, 1 to 2^53-1 are allowed"),
        (ask("1"), "0 requirements, 1 to 32 are allowed"),
        (ask("1", **{f"k{n}": 1 for n in range(33)}), "33 requirements, 1 to 32 are allowed"),
        (LeaseRequest(" ", "job", (Requirement("a", 1),)), "the lease id is blank"),
        (LeaseRequest("1", "job", (Requirement(" ", 1),)), "a key is blank"),
    ],
)
def test_ql_20_an_invalid_request_is_denied(wrong: LeaseRequest, message: str) -> None:
    """It is denied for good, and not remembered."""
    ledger = book_of(rolling("a"))
    denied = ledger.reserve(wrong, 0)
    assert isinstance(denied, Denied)
    assert (denied.reason, denied.terminal) == ("invalid_request", True)
    assert denied.message == f"invalid_request: {message}"
    assert len(ledger) == 0


def test_a_denial_for_good_states_the_requested_and_the_available_amounts() -> None:
    """This is stated for each limit that causes the denial; for a budget, what is left, and its reset."""
    ledger = book_of(rolling("tpm", 1000), rolling("rpm", 2), budget("daily", 1000, reset=86400))
    ledger.define(rolling("rpm", 1), 0)
    denied = ledger.reserve(ask("1", tpm=2087, rpm=2, daily=1), 0)
    assert isinstance(denied, Denied)
    message = "2,087 of tpm requested, the capacity is 1,000; 2 of rpm requested, the capacity is 1"
    assert denied.message == f"exceeds_capacity:tpm,rpm: {message}"
    ledger.reserve(ask("2", daily=900), 0)
    ledger.complete(end("2", daily=950), 0)
    denied = ledger.reserve(ask("3", daily=51), 86399.5)
    assert isinstance(denied, Denied)
    message = "51 of daily requested, 50 of 1,000 left, resets in 1 s"
    assert denied.message == f"budget_exhausted:daily: {message}"
    assert ledger.reserve(ask("4", daily=51), 86400) == Granted(86400)


def test_permanent_reasons_come_before_transient_ones() -> None:
    """Unknown limits come first, then amounts beyond the capacity, then transient reasons."""
    ledger = book_of(
        rolling("full", 1), rolling("less", 4), rolling("small", 1), budget("spent", 5)
    )
    ledger.reserve(ask("first", full=1, less=4, spent=5), 0)
    ledger.complete(end("first"), 0)
    ledger.define(rolling("less", 2), 0)
    wanted = {"full": 1, "less": 1, "spent": 1, "small": 2, "unknown": 1}
    seen: list[tuple[str, tuple[str, ...]]] = []
    while wanted:
        denied = ledger.reserve(ask(str(len(seen)), **wanted), 0)
        assert isinstance(denied, Denied)
        seen.append((denied.reason, denied.keys))
        for key in denied.keys:
            del wanted[key]
    assert seen == [
        ("unknown_limit_key", ("unknown",)),
        ("exceeds_capacity", ("small",)),
        ("budget_exhausted", ("spent",)),
        ("limit_decreasing", ("less",)),
        ("no_capacity", ("full",)),
    ]


def test_a_denial_is_remembered_with_its_message() -> None:
    """The id gets the same answer when there is room; a new id does not."""
    ledger = book_of(rolling(capacity=1))
    ledger.reserve(ask("1", rpm=1), 0)
    denied = ledger.reserve(ask("2", rpm=1), 1)
    assert ledger.reserve(ask("2", rpm=1), 20) == denied
    assert ledger.reserve(ask("3", rpm=1), 20) == Granted(20)


def test_a_paused_limit_grants_nothing_until_its_end() -> None:
    """The wait lasts until then; with a shortage as well, the later of both counts."""
    ledger = book_of(rolling("a", 1), concurrency("b"))
    assert ledger.pause("a", 30, 0).paused_until == 30
    denied = ledger.reserve(ask("1", a=1, b=1), 10)
    assert isinstance(denied, Denied)
    assert (denied.reason, denied.retry_after, denied.keys) == ("no_capacity", 20, ("a",))
    assert (ledger.room("a", 29), ledger.room("a", 30)) == (None, 1)
    ledger.pause("a", 30, 0)
    assert ledger.pause("a", 11, 11).paused_until is None
    assert ledger.reserve(ask("2", a=1), 11) == Granted(11)
    with pytest.raises(LimitError, match="unknown_limit_key"):
        ledger.pause("unknown", 1, 0)


def test_hints_of_requests_behind_others_grow_as_well() -> None:
    """This holds for a window with a known time too, because an earlier request may take the room."""
    ledger = book_of(rolling(capacity=9))

    def wait(name: str) -> float:
        denied = ledger.reserve(ask(name, rpm=1), 0, behind=lambda _needs: ["rpm"])
        assert isinstance(denied, Denied)
        return denied.retry_after

    assert [wait("1"), wait("2"), wait("3")] == [0.05, 0.1, 0.2]
    assert ledger.reserve(ask("4", rpm=1), 0) == Granted(0)
    assert wait("5") == 0.05


def test_hints_grow_with_consecutive_denials_up_to_two_seconds() -> None:
    """They restart after a grant, and never exceed the timeout."""
    ledger = book_of(concurrency("long", timeout=60), concurrency("short", timeout=0.3))
    ledger.reserve(ask("first", long=1, short=1), 0)

    def waits(key: str, name: str) -> list[float]:
        answers = (ledger.reserve(ask(f"{name} {n}", **{key: 1}), 0) for n in range(8))
        return [denied.retry_after for denied in answers if isinstance(denied, Denied)]

    assert waits("long", "a") == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert waits("short", "b") == [0.05, 0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3]
    ledger.complete(end("first"), 0)
    ledger.reserve(ask("second", long=1), 0)
    assert waits("long", "c")[:2] == [0.05, 0.1]


def test_a_released_lease_leaves_no_trace() -> None:
    """A returned lease is removed from its window, budget and hold, and its requests are removed too."""
    ledger = book_of(rolling(), concurrency(), budget())
    ledger.reserve(ask("1", rpm=2, slots=1, tokens=1000), 0)
    assert {*ledger.complete(end("1", rpm=0, slots=0, tokens=0), 1)} == {"rpm", "slots", "tokens"}
    assert [(one.used, one.outstanding) for one in ledger.states(1)] == [(0, 0)] * 3
    assert ledger.next_at(1) == math.inf


def test_a_period_that_rounding_makes_longer_ends_once() -> None:
    """2.2 + 0.3 is 2.5, but 2.5 - 2.2 is less than 0.3."""
    ledger = LimitLedger([LimitState(limit=budget(reset=0.3), used=10)], now=2.2)
    assert ledger.next_at(2.2) == 2.5
    ledger.reserve(ask("1", tokens=5), 2.5)
    ledger.complete(end("1"), 2.5)
    assert state(ledger, "tokens", 2.5).used == 5
    assert ledger.next_at(2.5) > 2.7


def test_a_period_continues_in_the_next_backend() -> None:
    """The period keeps its start; a start in the future becomes now."""
    began = [
        LimitLedger([LimitState(limit=budget(reset=100), used=7, began_at=at)], now=1000)
        for at in (950, 250, 2000, None)
    ]
    assert [state(ledger, "tokens", 1000).began_at for ledger in began] == [950, 950, 1000, 1000]
    assert [state(ledger, "tokens", 1000).used for ledger in began] == [7, 0, 7, 7]
    assert [state(ledger, "tokens", 1050).used for ledger in began] == [0, 0, 7, 7]
    assert state(book_of(budget()), "tokens", 0).began_at is None


def test_a_budget_resets_at_whole_periods() -> None:
    """Settled amounts are reset, outstanding ones are not."""
    ledger = LimitLedger([LimitState(limit=budget(reset=100))], now=50)
    ledger.reserve(ask("settled", tokens=600), 60)
    ledger.reserve(ask("outstanding", tokens=300), 60)
    ledger.complete(end("settled"), 70)
    assert ledger.next_at(70) == 150
    assert reason(ledger.reserve(ask("1", tokens=500), 149.9)) == "budget_exhausted"
    assert ledger.reserve(ask("2", tokens=700), 480) == Granted(480)
    ledger.complete(end("outstanding", tokens=250), 480)
    assert (state(ledger, "tokens", 480).used, state(ledger, "tokens", 480).outstanding) == (
        250,
        700,
    )
    assert ledger.next_at(480) == 550


def test_the_next_instant_is_the_first_at_which_the_state_changes_by_itself() -> None:
    """A share, a hold or a pause ends, a budget resets, or a lease is dropped."""
    ledger = book_of(rolling("w", window=50), concurrency("h", timeout=40), budget("b", reset=700))
    assert ledger.next_at(0) == math.inf
    ledger.reserve(ask("1", w=1, h=1, b=1), 1)
    assert ledger.next_at(1) == 41
    assert ledger.next_at(1, ["w"]) == 51
    assert ledger.next_at(1, ["b", "unknown"]) == 601  # it counts as used
    ledger.pause("w", 30, 1)
    assert ledger.next_at(1) == 30
    assert ledger.next_at(601, ["b"]) == 700
    assert state(ledger, "b", 699).used == 1
    assert state(ledger, "b", 700).used == 0


def test_a_lease_is_denied_behind_an_earlier_waiter() -> None:
    """A limit counts as full if earlier requests wait for it."""
    ledger = book_of(rolling("a"), concurrency("b"))
    denied = ledger.reserve(ask("1", a=1, b=1), 0, behind=lambda _needs: ("b",))
    assert denied == Denied("no_capacity", terminal=False, retry_after=0.05, keys=("b",))
    assert ledger.reserve(ask("2", a=1, b=1), 0, behind=lambda _needs: ()) == Granted(0)


def test_a_check_takes_nothing() -> None:
    """It takes nothing, and stores nothing."""
    ledger = book_of(concurrency())
    needs = (Requirement("slots", 1),)
    assert ledger.check(needs, 0) is ledger.check(needs, 0) is None
    ledger.reserve(ask("1", slots=1), 0)
    denied = ledger.check(needs, 0)
    assert isinstance(denied, Denied)
    assert denied == ledger.check(needs, 0)
    assert len(ledger) == 1


def test_restored_usage_counts() -> None:
    """A window counts as if taken now, holds count until their timeout, a budget in full."""
    states = [
        LimitState(limit=rolling("w", 5, window=60), used=4, debt=2),
        LimitState(limit=concurrency("h", 5, timeout=30), used=3),
        LimitState(limit=budget("b", 50), used=10, outstanding=20),
    ]
    paused = LimitState(limit=rolling("p"), paused_until=1001)
    ledger = LimitLedger([*states, paused], now=1000)
    assert (ledger.room("p", 1000), ledger.room("p", 1001)) == (None, 2)
    rooms = {now: [ledger.room(key, now) for key in "whb"] for now in (1001, 1030, 1060)}
    assert rooms == {1001: [1, 2, 20], 1030: [1, 5, 20], 1060: [5, 5, 20]}
    assert state(ledger, "w", 1060).debt == 2


def test_a_limit_keeps_its_kind_and_its_key() -> None:
    """A change of either would invalidate existing shares."""
    ledger = book_of(rolling("a"))
    with pytest.raises(LimitError) as wrong:
        ledger.define(concurrency("a"), 0)
    assert str(wrong.value) == (
        "invalid_request: 'a' is a rolling limit and cannot become a concurrency one"
    )
    assert ledger.limit("a") == rolling("a")
    assert ledger.limit("b") is None
    with pytest.raises(LimitError, match="two limits have the key 'a'"):
        book_of(rolling("a"), concurrency("a"))
    with pytest.raises(LimitError, match="unknown_limit_key"):
        ledger.room("b", 0)


def test_a_lease_of_a_scope_is_dropped_with_the_scope() -> None:
    """It is remembered as long as the scope lasts."""
    ledger = book_of(rolling(capacity=1, window=1), concurrency())
    ledger.reserve(ask("1", rpm=1, slots=1), 0, is_held=True)
    assert reason(ledger.reserve(ask("2", rpm=1), 0, is_held=True)) == "no_capacity"
    assert len(ledger) == 1
    assert [one.used for one in ledger.states(5000)] == [0, 1]
    ledger.complete(end("1"), 5000)
    assert len(ledger) == 0
    assert [one.used for one in ledger.states(5000)] == [0, 0]


@pytest.mark.slow
def test_ql_35_memory_is_bounded_by_time() -> None:
    """Ended, returned, denied or abandoned leases are all dropped in time."""
    ledger = book_of(
        rolling(capacity=10**9, window=30), concurrency(timeout=20), budget("b", 10**9)
    )
    most = 0
    for n in range(24_000):
        now = n / 4
        key = ("rpm", "slots", "b", "unknown")[n % 4]
        ledger.reserve(ask(str(n), **{key: 1}), now)
        if n % 3 == 0:
            ledger.complete(end(str(n)), now)
        elif n % 5 == 0:
            ledger.complete(end(str(n), **{key: 0}), now)
        if n % 100 == 0:
            most = max(most, len(ledger))
    assert most == 600 * 4
    ledger.states(24_000 / 4 + 600)
    assert len(ledger) == 0
    assert state(ledger, "b", 24_000).outstanding == 0
