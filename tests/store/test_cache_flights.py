"""Single flight: one call for all equal concurrent requests, however the callers end."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Literal

import attrs
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.errors import BudgetError, CallError, Fault, ProviderError
from trioeval.store.cache.single_flight import SharedResult, SingleFlight, again
from trioeval.testing import run_virtual

Ending = Literal["value", "refused", "budget"]


@attrs.frozen
class Asker:
    """A caller that makes one request."""

    key: bytes
    at: float
    takes: float
    """Seconds of its call if it makes one."""
    ending: Ending
    """The result of the call."""
    cancelled_after: float | None


@attrs.define
class Trace:
    """The events of a run."""

    calls: list[tuple[bytes, int, float, float]] = attrs.field(factory=list)
    """Key, caller, start and end of each call."""
    ends: dict[int, Any] = attrs.field(factory=dict)
    """By caller: a `SharedResult`, an error, or "cancelled"."""
    ended_at: dict[int, float] = attrs.field(factory=dict)
    waits: dict[int, tuple[float, float]] = attrs.field(factory=dict)
    left: int = 0


ASKERS = st.lists(
    st.builds(
        Asker,
        key=st.sampled_from([b"a", b"a", b"b"]),
        at=st.integers(0, 6),
        takes=st.integers(0, 4),
        ending=st.sampled_from(["value", "value", "refused", "budget"]),
        cancelled_after=st.none() | st.integers(0, 5),
    ),
    max_size=8,
)


async def play(askers: list[Asker]) -> Trace:
    trace, flights = Trace(), SingleFlight[str]()

    async def ask(who: int, asker: Asker) -> None:
        await trio.sleep(asker.at)

        async def fetch() -> str:
            began = trio.current_time()
            try:
                await trio.sleep(asker.takes)
            finally:
                trace.calls.append((asker.key, who, began, trio.current_time()))
            match asker.ending:
                case "value":
                    return f"of {who}"
                case "refused":
                    raise CallError(Fault.REFUSED, f"of {who}")
                case _:
                    raise BudgetError("tokens", limit=1, used=who, wanted=1)

        @contextmanager
        def waiting() -> Iterator[None]:
            began = trio.current_time()
            try:
                yield
            finally:
                trace.waits[who] = (began, trio.current_time())

        after = asker.cancelled_after
        with trio.move_on_after(1e6 if after is None else after) as scope:
            try:
                trace.ends[who] = await flights.join(asker.key, fetch, waiting)
            except (CallError, BudgetError) as error:
                trace.ends[who] = error
        if scope.cancelled_caught:
            trace.ends[who] = "cancelled"
        trace.ended_at[who] = trio.current_time()

    async with trio.open_nursery() as nursery:
        for who, asker in enumerate(askers):
            nursery.start_soon(ask, who, asker)
    trace.left = len(flights)
    return trace


@given(ASKERS)
@example(
    [Asker(b"a", 0, 2, "value", 1), Asker(b"a", 0, 2, "value", 1), Asker(b"a", 0, 2, "value", None)]
)
@example([Asker(b"a", 0, 2, "budget", None), Asker(b"a", 1, 2, "refused", 1)])
def test_one_call_at_a_time_and_all_waiters_get_its_result(askers: list[Asker]) -> None:
    """At most one call per key is in progress; its value or failure goes to all waiters."""
    trace = run_virtual(play, askers)
    assert trace.left == 0, "a key was left behind"
    assert set(trace.ends) == set(range(len(askers)))
    for key in {asker.key for asker in askers}:
        spans = sorted((began, ended) for one, _, began, ended in trace.calls if one == key)
        assert all(ended <= began for (_, ended), (began, _) in pairwise(spans))
    made = Counter(who for _, who, _, _ in trace.calls)
    assert all(count == 1 for count in made.values()), "a caller made two calls"
    for who, asker in enumerate(askers):
        match trace.ends[who]:
            case SharedResult(value, is_own):
                assert is_own == (who in made)
                maker = int(value.removeprefix("of "))
                assert askers[maker].key == asker.key
                assert askers[maker].ending == "value"
            case CallError() as error:
                maker = int(error.message.removeprefix("of "))
                assert askers[maker].key == asker.key
                assert (maker == who) == (who in made)
            case BudgetError() as error:  # it affects no other caller
                assert error.used == who
            case _:
                assert asker.cancelled_after is not None


@given(ASKERS)
def test_no_caller_waits_without_a_call_in_progress(askers: list[Asker]) -> None:
    """While a caller waits, a call is in progress: a leader that ends hands over at that instant."""
    trace = run_virtual(play, askers)
    for who, (began, ended) in trace.waits.items():
        key = askers[who].key
        covered = began
        for one, _, start, end in sorted(trace.calls, key=lambda call: (call[2], call[3])):
            if one == key and start <= covered <= end:
                covered = end
        assert covered >= ended
        assert not any(caller == who and start < ended for _, caller, start, _ in trace.calls), (
            "it waited and called at once"
        )


def test_a_hundred_concurrent_callers_make_one_call() -> None:
    """A hundred concurrent callers make one call and get its value at the same instant."""
    askers = [Asker(b"a", 0, 5, "value", None) for _ in range(100)]
    trace = run_virtual(play, askers)
    assert len(trace.calls) == 1
    assert set(trace.ended_at.values()) == {5}
    assert sum(landing.is_own for landing in trace.ends.values()) == 1


def test_a_cancelled_leader_hands_over_to_the_first_waiter() -> None:
    """A cancelled leader hands over to the first waiter only."""
    askers = [Asker(b"a", n * 0.1, 5, "value", 1 if n == 0 else None) for n in range(5)]
    trace = run_virtual(play, askers)
    assert [(who, began) for _, who, began, _ in trace.calls] == [(0, 0), (1, 1)]
    assert [trace.ends[who] for who in range(5)] == [
        "cancelled",
        SharedResult("of 1", is_own=True),
        *3 * [SharedResult("of 1", is_own=False)],
    ]


def test_a_leader_that_is_woken_and_cancelled_at_once_hands_over() -> None:
    """A leader that is woken and cancelled at once hands over."""
    askers = [
        Asker(b"a", 0, 9, "value", 2),
        Asker(b"a", 0.5, 9, "value", 1.5),  # cancelled at 2, too
        Asker(b"a", 0.6, 9, "value", None),
    ]
    trace = run_virtual(play, askers)
    assert trace.ends[2] == SharedResult("of 2", is_own=True)
    assert trace.ended_at[2] == 11


def test_a_failure_of_the_call_is_raised_for_all_waiters() -> None:
    """A failure of the call goes to all waiters without a new call."""
    askers = [Asker(b"a", 0, 1, "refused", None) for _ in range(5)]
    trace = run_virtual(play, askers)
    assert len(trace.calls) == 1
    assert len({id(error) for error in trace.ends.values()}) == 5
    assert {str(error) for error in trace.ends.values()} == {f"of {trace.calls[0][1]}"}


def test_an_exhausted_budget_affects_only_its_caller() -> None:
    """An exhausted budget concerns one caller; the others call one after another."""
    askers = [Asker(b"a", 0, 1, "budget", None) for _ in range(3)]
    trace = run_virtual(play, askers)
    assert [(began, ended) for _, _, began, ended in trace.calls] == [(0, 1), (1, 2), (2, 3)]


def test_each_waiter_gets_its_own_copy_of_a_failure() -> None:
    """Each waiter gets its own copy of the failure, without a foreign traceback."""
    first = ProviderError("rate_limited", "slow down", status=429, retry_after=2, retries=0)
    try:
        raise first
    except ProviderError:
        second = again(first)
    assert second is not first
    assert vars(second) == vars(first)
    assert second.args == first.args
    assert second.__traceback__ is None


def test_a_waiter_that_fails_while_it_leaves_hands_over() -> None:
    """A waiter whose context raises hands over the lead."""

    async def main() -> list[Any]:
        flights, ends = SingleFlight[str](), list[Any]()

        @contextmanager
        def broken() -> Iterator[None]:
            yield
            raise ValueError("no")

        @contextmanager
        def quiet() -> Iterator[None]:
            yield

        async def fetch() -> str:
            await trio.sleep(1)
            raise BudgetError("tokens", limit=1, used=1, wanted=1)

        async def ask(waiting: Any) -> None:
            try:
                await flights.join(b"a", fetch, waiting)
            except (ValueError, BudgetError) as error:
                ends.append((type(error), trio.current_time()))

        async with trio.open_nursery() as nursery:
            for waiting in (quiet, broken, quiet):
                nursery.start_soon(ask, waiting)
                await trio.sleep(0.01)
        assert len(flights) == 0
        return ends

    assert [kind for kind, _ in run_virtual(main)] == [BudgetError, ValueError, BudgetError]


@pytest.mark.parametrize("count", [1, 50])
def test_only_the_next_waiter_is_woken(count: int) -> None:
    """Each leader that ends wakes one waiter only."""
    askers = [Asker(b"a", 0, 1, "value", 0.5)] + [Asker(b"a", 0.1, 1, "value", None)] * count
    trace = run_virtual(play, askers)
    assert len(trace.calls) == 2
    assert len(trace.waits) == count
