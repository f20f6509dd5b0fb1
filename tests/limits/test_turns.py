"""The order of the requests of one program, without a clock and without a network."""

from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.limits.turns import KEPT, RequestTurn, RequestTurns

KEYS = st.sets(st.sampled_from("abc"), min_size=1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), KEYS),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("deny"), st.integers(0, 5), KEYS, st.booleans()),
        st.tuples(st.just("want"), st.integers(0, 5)),
        st.tuples(st.just("notify"), st.sets(st.sampled_from("abc"))),
    ),
    max_size=25,
)


@example(steps=[("join", {"a", "b"}), ("deny", 0, {"a"}, False), ("join", {"b"}), ("want", 0)])
@given(STEPS)
def test_only_claims_of_earlier_requests_hold_back_a_request(
    steps: list[tuple[object, ...]],
) -> None:
    """After every step of denials, departures and notifications."""
    turns, there = RequestTurns(), list[RequestTurn]()
    for number, step in enumerate(steps):
        asked_before = {turn.number for turn in there if turn.is_asking}
        take(turns, there, step, 6.0 * number)
        claimed = set[str]()
        for turn in there:
            if turn.is_asking:  # an earlier one may claim again what it left free for a while
                assert turn.number in asked_before or claimed.isdisjoint(turn.keys)
            elif turn.wants:
                assert claimed & turn.keys
            claimed |= turn.keys if turn.is_asking else turn.claims
            assert turn.claims <= turn.keys
    assert len(turns) == len(there)


def ignore(_keys: frozenset[str]) -> None:
    """Ignore a report."""


def take(
    turns: RequestTurns, there: list[RequestTurn], step: tuple[object, ...], now: float
) -> None:
    match step:
        case ("join", set() as keys):
            there.append(turns.join(keys, ignore))
        case ("leave", int(place)) if place < len(there):
            turns.leave(there.pop(place))
        case ("deny", int(place), set() as keys, bool(is_long)) if place < len(there):
            if there[place].is_asking:
                turns.denied(there[place], keys, now, is_long=is_long)
                assert there[place].is_asking or there[place].claims
        case ("want", int(place)) if place < len(there):
            turns.want(there[place])
        case ("notify", set() as keys):
            turns.notify_room(keys)
        case _:
            pass


def test_requests_with_the_same_needs_are_sent_one_after_the_other() -> None:
    """This holds after a denial too."""
    turns = RequestTurns()
    first, second = turns.join("ab", ignore), turns.join("ba", ignore)
    turns.denied(first, "a", 0.0, is_long=False)
    assert not second.is_asking
    turns.leave(first)
    assert second.is_asking


def test_a_short_wait_keeps_its_earlier_claims() -> None:
    """Two limits that are full in turn do not starve a large request."""
    turns = RequestTurns()
    large = turns.join("ab", ignore)
    turns.denied(large, "a", 0.0, is_long=False)
    turns.want(large)
    turns.denied(large, "b", 0.0, is_long=False)
    assert not turns.join("a", ignore).is_asking
    assert not turns.join("b", ignore).is_asking


def test_only_limits_that_lacked_at_each_denial_are_claimed() -> None:
    """The other limit was full only because other calls were served: a claim would leave it idle."""
    turns = RequestTurns()
    waiting = turns.join("xy", ignore)
    for keys in ("xy", "x", "xy"):
        turns.want(waiting)
        turns.denied(waiting, keys, 0.0, is_long=False)
    other = turns.join("y", ignore)
    assert other.is_asking
    assert not turns.join("x", ignore).is_asking


def test_limits_denied_in_turn_are_claimed_for_a_growing_bounded_time() -> None:
    """Other programs may hold what it lacks for ever; leases of its own program end some day."""
    turns = RequestTurns()
    waiting = turns.join("xy", ignore)

    def denied(keys: str, now: float) -> frozenset[str]:
        turns.want(waiting)
        turns.denied(waiting, keys, now, is_long=False)
        return waiting.claims

    assert denied("y", 0.0) == {"y"}
    assert denied("x", 1.0) == {"x", "y"}
    assert denied("x", 1.0 + KEPT - 0.1) == {"x", "y"}
    assert denied("x", 1.0 + KEPT) == {"x"}
    assert denied("x", 500.0) == {"x"}
    assert denied("y", 500.0) == {"x", "y"}
    assert denied("x", 500.0 + 2 * KEPT - 0.1) == {"x", "y"}
    assert denied("y", 500.0 + 2 * KEPT) == {"y"}


def test_a_long_wait_releases_the_claims_of_other_limits() -> None:
    """A limit with room does not stay idle for a minute."""
    turns = RequestTurns()
    large = turns.join("ab", ignore)
    turns.denied(large, "a", 0.0, is_long=False)
    turns.want(large)
    turns.denied(large, "b", 0.0, is_long=True)
    assert turns.join("a", ignore).is_asking
    assert not turns.join("b", ignore).is_asking


def test_a_notification_during_a_request_is_not_lost() -> None:
    """The denial may be older; notifications of other limits are ignored."""
    turns = RequestTurns()
    asker = turns.join("ab", ignore)
    turns.notify_room("b")
    turns.denied(asker, "a", 0.0, is_long=False)
    assert not asker.is_asking
    turns.want(asker)
    turns.notify_room("a")
    turns.denied(asker, "a", 0.0, is_long=False)
    assert asker.is_asking


def test_a_notification_without_keys_applies_to_all() -> None:
    """After a lost connection, notifications may have been missed."""
    turns = RequestTurns()
    waiting, asking = turns.join("a", ignore), turns.join("b", ignore)
    turns.denied(waiting, "a", 0.0, is_long=True)
    turns.notify_room(())
    assert waiting.is_asking
    turns.denied(asking, "b", 0.0, is_long=True)
    assert asking.is_asking


def test_a_denial_that_names_no_limit_means_all() -> None:
    """A waiter must not overtake on a guess."""
    turns = RequestTurns()
    first = turns.join("ab", ignore)
    turns.denied(first, (), 0.0, is_long=False)
    assert not turns.join("b", ignore).is_asking


def test_a_request_behind_a_denied_one_is_notified_of_its_reason() -> None:
    """It is notified once for each reason, but not while the earlier request may still be answered."""
    turns, reasons = RequestTurns(), list[frozenset[str]]()
    first = turns.join("ab", ignore)
    second = turns.join("ab", reasons.append)
    assert reasons == []
    turns.mark_unanswered(first)
    assert reasons == [frozenset("ab")]
    reasons.clear()
    turns.denied(first, "a", 0.0, is_long=True)
    turns.notify_room("b")
    assert reasons == [frozenset("a")]
    turns.want(first)
    turns.denied(first, "b", 0.0, is_long=True)
    assert reasons == [frozenset("a"), frozenset("b")]
    turns.join("b", reasons.append)
    assert reasons[2:] == [frozenset("b")]
    turns.leave(first)
    assert second.is_asking
