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
        st.tuples(st.just("tell"), st.sets(st.sampled_from("abc"))),
    ),
    max_size=25,
)


@example(steps=[("join", {"a", "b"}), ("deny", 0, {"a"}, False), ("join", {"b"}), ("want", 0)])
@given(STEPS)
def test_nobody_asks_for_what_an_earlier_one_claims_and_nobody_else_is_kept_from_asking(
    steps: list[tuple[object, ...]],
) -> None:
    """After every step of denials, departures and notifications."""
    turns, there = RequestTurns(), list[RequestTurn]()
    for number, step in enumerate(steps):
        asked_before = {turn.number for turn in there if turn.is_asking}
        take(turns, there, step, 6.0 * number)
        claimed = set[str]()
        for turn in there:
            if turn.is_asking:  # an earlier one may come back to what it left free for a while
                assert turn.number in asked_before or claimed.isdisjoint(turn.keys)
            elif turn.wants:
                assert claimed & turn.keys
            claimed |= turn.keys if turn.is_asking else turn.claims
            assert turn.claims <= turn.keys
    assert len(turns) == len(there)


def tell_nobody(_keys: frozenset[str]) -> None:
    """Ignore a report."""


def take(
    turns: RequestTurns, there: list[RequestTurn], step: tuple[object, ...], now: float
) -> None:
    match step:
        case ("join", set() as keys):
            there.append(turns.join(keys, tell_nobody))
        case ("leave", int(place)) if place < len(there):
            turns.leave(there.pop(place))
        case ("deny", int(place), set() as keys, bool(is_long)) if place < len(there):
            if there[place].is_asking:
                turns.denied(there[place], keys, now, is_long=is_long)
                assert there[place].is_asking or there[place].claims
        case ("want", int(place)) if place < len(there):
            turns.want(there[place])
        case ("tell", set() as keys):
            turns.tell(keys)
        case _:
            pass


def test_those_that_need_the_same_ask_one_after_the_other() -> None:
    """Also after a denial."""
    turns = RequestTurns()
    first, second = turns.join("ab", tell_nobody), turns.join("ba", tell_nobody)
    turns.denied(first, "a", 0.0, is_long=False)
    assert not second.is_asking
    turns.leave(first)
    assert second.is_asking


def test_a_short_wait_keeps_what_was_denied_before() -> None:
    """Two limits that are full by turns do not starve a large request."""
    turns = RequestTurns()
    large = turns.join("ab", tell_nobody)
    turns.denied(large, "a", 0.0, is_long=False)
    turns.want(large)
    turns.denied(large, "b", 0.0, is_long=False)
    assert not turns.join("a", tell_nobody).is_asking
    assert not turns.join("b", tell_nobody).is_asking


def test_what_lacked_each_time_is_claimed_and_the_rest_is_not() -> None:
    """The other limit was full only because other calls were served: a claim would leave it idle."""
    turns = RequestTurns()
    waiting = turns.join("xy", tell_nobody)
    for keys in ("xy", "x", "xy"):
        turns.want(waiting)
        turns.denied(waiting, keys, 0.0, is_long=False)
    other = turns.join("y", tell_nobody)
    assert other.is_asking
    assert not turns.join("x", tell_nobody).is_asking


def test_what_was_denied_by_turns_is_claimed_for_a_bounded_time_that_grows() -> None:
    """Other programs may keep what it lacks for ever; its own program's leases end some day."""
    turns = RequestTurns()
    waiting = turns.join("xy", tell_nobody)

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


def test_a_long_wait_gives_the_others_free() -> None:
    """A limit with room does not stay idle for a minute."""
    turns = RequestTurns()
    large = turns.join("ab", tell_nobody)
    turns.denied(large, "a", 0.0, is_long=False)
    turns.want(large)
    turns.denied(large, "b", 0.0, is_long=True)
    assert turns.join("a", tell_nobody).is_asking
    assert not turns.join("b", tell_nobody).is_asking


def test_news_that_comes_while_one_asks_is_not_lost() -> None:
    """The denial may be older; news of other limits is ignored."""
    turns = RequestTurns()
    asker = turns.join("ab", tell_nobody)
    turns.tell("b")
    turns.denied(asker, "a", 0.0, is_long=False)
    assert not asker.is_asking
    turns.want(asker)
    turns.tell("a")
    turns.denied(asker, "a", 0.0, is_long=False)
    assert asker.is_asking


def test_news_of_anything_is_news_of_everything() -> None:
    """After a lost connection, notifications may have been missed."""
    turns = RequestTurns()
    waiting, asking = turns.join("a", tell_nobody), turns.join("b", tell_nobody)
    turns.denied(waiting, "a", 0.0, is_long=True)
    turns.tell(())
    assert waiting.is_asking
    turns.denied(asking, "b", 0.0, is_long=True)
    assert asking.is_asking


def test_a_denial_that_names_no_limit_means_all() -> None:
    """No waiter may overtake on a guess."""
    turns = RequestTurns()
    first = turns.join("ab", tell_nobody)
    turns.denied(first, (), 0.0, is_long=False)
    assert not turns.join("b", tell_nobody).is_asking


def test_who_stands_behind_a_denied_one_is_told_what_it_waits_for() -> None:
    """Once for each reason; not while the earlier request may be answered at any instant."""
    turns, told = RequestTurns(), list[frozenset[str]]()
    first = turns.join("ab", tell_nobody)
    second = turns.join("ab", told.append)
    assert told == []
    turns.mark_unanswered(first)
    assert told == [frozenset("ab")]
    told.clear()
    turns.denied(first, "a", 0.0, is_long=True)
    turns.tell("b")
    assert told == [frozenset("a")]
    turns.want(first)
    turns.denied(first, "b", 0.0, is_long=True)
    assert told == [frozenset("a"), frozenset("b")]
    turns.join("b", told.append)
    assert told[2:] == [frozenset("b")]
    turns.leave(first)
    assert second.is_asking
