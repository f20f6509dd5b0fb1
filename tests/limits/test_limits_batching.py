"""Batches of leases: full or due, in order, with an answer for every item."""

from collections.abc import Callable, Sequence

import attrs
import pytest
import trio
from hypothesis import event, given
from hypothesis import strategies as st

from trioeval.errors import LimitError
from trioeval.limits import (
    Decision,
    Denied,
    Granted,
    LeaseRequest,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
    Unknown,
)
from trioeval.limits.backend import Backend
from trioeval.limits.batching import CLOSE_GRACE, open_batching
from trioeval.testing import run_virtual


def ask(name: str, key: str = "rpm") -> LeaseRequest:
    return LeaseRequest(name, "job", (Requirement(key, 1),))


def grants(asks: Sequence[LeaseRequest]) -> list[Decision]:
    return [Granted(float(len(asks))) for _ in asks]


@attrs.define(eq=False)
class RecordingBackend:
    """A backend that records requests, takes time and answers by a function."""

    decide: Callable[[Sequence[LeaseRequest]], list[Decision]] = grants
    latency: float = 1.0
    reserved: list[tuple[float, list[str]]] = attrs.field(factory=list)
    completed: list[tuple[float, list[str]]] = attrs.field(factory=list)
    finished: int = 0

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        self.reserved.append((trio.current_time(), [one.lease_id for one in asks]))
        await trio.sleep(self.latency)
        self.finished += 1
        return self.decide(asks)

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        self.completed.append((trio.current_time(), [one.lease_id for one in settlements]))
        await trio.sleep(self.latency)
        self.decide([])
        self.finished += 1

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        return [True for _ in lease_ids]

    async def states(self) -> Sequence[LimitState]:
        return [LimitState(limit=SharedLimit(key="rpm", kind="budget", capacity=1))]

    async def define(self, limit: SharedLimit, /) -> LimitState:
        return LimitState(limit=limit)

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        limit = SharedLimit(key=key, kind="budget", capacity=1)
        return LimitState(limit=limit, paused_until=seconds)

    async def remove(self, key: str, /) -> None:
        raise LimitError("unknown_limit_key", "there is none", keys=(key,))


async def hand_in(
    backend: Backend,
    at: float,
    asks: Sequence[LeaseRequest],
    answers: dict[str, tuple[float, Decision]],
) -> None:
    await trio.sleep_until(at)
    for one, decision in zip(asks, await backend.reserve(asks), strict=True):
        answers[one.lease_id] = (trio.current_time(), decision)


def together(
    backend_double: RecordingBackend,
    handed: Sequence[tuple[float, Sequence[LeaseRequest]]],
    *,
    size: int,
    flush: float,
) -> dict[str, tuple[float, Decision]]:
    """Submit everything at its time; return the time and the answer of each."""
    answers: dict[str, tuple[float, Decision]] = {}

    async def main() -> None:
        async with (
            open_batching(backend_double, size=size, flush=flush) as backend,
            trio.open_nursery() as nursery,
        ):
            for at, asks in handed:
                nursery.start_soon(hand_in, backend, at, asks, answers)

    run_virtual(main)
    return answers


def test_a_batch_is_sent_when_it_is_full_or_due() -> None:
    """Two items fill a batch at once; the third waits for others, but not too long."""
    backend_double = RecordingBackend()
    answers = together(
        backend_double, [(0, [ask("a")]), (1, [ask("b")]), (2, [ask("c")])], size=2, flush=16
    )
    assert backend_double.reserved == [(1, ["a", "b"]), (18, ["c"])]
    assert answers == {"a": (2, Granted(2)), "b": (2, Granted(2)), "c": (19, Granted(1))}


def test_more_items_than_a_batch_are_sent_in_several_batches() -> None:
    """Each batch keeps the order, and the rest waits for others."""
    backend_double = RecordingBackend()
    answers = together(backend_double, [(0, [ask(name) for name in "abcde"])], size=2, flush=4)
    assert sorted(backend_double.reserved) == [(0, ["a", "b"]), (0, ["c", "d"]), (4, ["e"])]
    assert list(answers) == list("abcde")


def test_a_slow_batch_does_not_delay_others() -> None:
    """The second batch is sent before the first is answered."""
    backend_double = RecordingBackend(latency=100)
    together(backend_double, [(0, [ask("a")]), (10, [ask("b")])], size=8, flush=1)
    assert [at for at, _ in backend_double.reserved] == [1, 11]


def test_ql_31_a_batch_of_three_is_answered_in_order() -> None:
    """A granted, an invalid and a denied item each get their own answer."""
    decided: dict[str, Decision] = {
        "ok": Granted(0.0),
        "invalid": Denied("invalid_request", terminal=True),
        "denied": Denied("no_capacity", terminal=False, retry_after=1.0, keys=("rpm",)),
    }
    backend_double = RecordingBackend(lambda asks: [decided[one.lease_id] for one in asks])
    answers = together(backend_double, [(0, [ask(name)]) for name in decided], size=3, flush=1)
    assert len(backend_double.reserved) == 1
    assert {name: decision for name, (_, decision) in answers.items()} == decided


@pytest.mark.parametrize("fault", ["lost", "short", "long"])
def test_ql_32_a_batch_that_fails_is_unknown_for_every_item(fault: str) -> None:
    """The outcome is unknown, so the same ids are requested again."""

    def decide(asks: Sequence[LeaseRequest]) -> list[Decision]:
        if len(backend_double.reserved) > 1:
            return grants(asks)
        if fault == "lost":
            raise LimitError("limiter_unavailable", "no connection")
        return grants(asks)[1:] if fault == "short" else [*grants(asks), Granted(0.0)]

    backend_double = RecordingBackend(decide)
    messages = {
        "lost": "no connection",
        "short": "1 answers for 2 requests",
        "long": "3 answers for 2 requests",
    }

    async def main() -> None:
        async with open_batching(backend_double, size=2) as backend:
            asks = [ask("a"), ask("b")]
            assert await backend.reserve(asks) == [Unknown(messages[fault])] * 2
            assert await backend.reserve(asks) == [Granted(2.0)] * 2

    run_virtual(main)
    assert [names for _, names in backend_double.reserved] == [["a", "b"]] * 2


def test_a_refusal_of_the_backend_is_raised_to_each_caller() -> None:
    """A refusal is not an unknown outcome, because a retry would not help."""

    def decide(_asks: Sequence[LeaseRequest]) -> list[Decision]:
        raise LimitError("invalid_request", "the token is wrong")

    async def main() -> None:
        async with open_batching(RecordingBackend(decide)) as backend:
            with pytest.raises(LimitError, match="invalid_request: the token is wrong"):
                await backend.reserve([ask("a")])
            assert await backend.extend(["a"]) == [True]

    run_virtual(main)


def test_a_failed_complete_is_raised_for_each_item_of_its_batch() -> None:
    """Each item raises its own error, so that each may be repeated."""

    def decide(_asks: Sequence[LeaseRequest]) -> list[Decision]:
        raise LimitError("limiter_unavailable", "no connection")

    backend_double = RecordingBackend(decide)
    errors: list[LimitError] = []

    async def complete(backend: Backend, name: str) -> None:
        with pytest.raises(LimitError, match="limiter_unavailable: no connection") as caught:
            await backend.complete([Settlement(name, "job")])
        errors.append(caught.value)

    async def main() -> None:
        async with open_batching(backend_double) as backend, trio.open_nursery() as nursery:
            nursery.start_soon(complete, backend, "a")
            nursery.start_soon(complete, backend, "b")

    run_virtual(main)
    assert sorted(backend_double.completed[0][1]) == ["a", "b"]
    assert errors[0] is not errors[1]


def test_reserves_and_completes_have_separate_batches() -> None:
    """One batch of each, and the rest goes straight through."""
    backend_double = RecordingBackend()

    async def main() -> None:
        async with open_batching(backend_double, flush=2) as backend:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(backend.reserve, [ask("a")])
                nursery.start_soon(backend.complete, [Settlement("b", "job")])
            await backend.complete([])
            assert await backend.reserve([]) == []
            assert await backend.extend(["a", "b"]) == [True, True]
            (state,) = await backend.states()
            assert await backend.define(state.limit) == state
            assert (await backend.pause("rpm", 5.0)).paused_until == 5.0
            with pytest.raises(LimitError, match="unknown_limit_key"):
                await backend.remove("rpm")

    run_virtual(main)
    assert backend_double.reserved == [(2, ["a"])]
    assert backend_double.completed == [(2, ["b"])]


def test_ql_33_closing_a_batcher_answers_every_item() -> None:
    """Waiting items are sent at once; items without an answer in time are unknown."""
    backend_double = RecordingBackend(latency=1.0)
    answers: dict[str, tuple[float, Decision]] = {}

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            async with open_batching(backend_double, flush=1000) as backend:
                nursery.start_soon(hand_in, backend, 0.0, [ask("a"), ask("b")], answers)
                await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(LimitError, match="closed before the request was sent"):
                await backend.reserve([ask("c")])

    run_virtual(main)
    assert answers == {"a": (1, Granted(2)), "b": (1, Granted(2))}
    backend_double.latency = 1000.0
    run_virtual(main)
    late = Unknown("closed before an answer arrived")
    assert answers == {"a": (CLOSE_GRACE, late), "b": (CLOSE_GRACE, late)}


def test_a_cancelled_block_still_sends_completes_of_its_cleanup() -> None:
    """A complete in a shielded cleanup reaches the backend despite the cancellation."""
    backend_double = RecordingBackend()

    async def main() -> None:
        with trio.move_on_after(5) as scope:
            async with open_batching(backend_double, flush=0) as backend:
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.move_on_after(3, shield=True):
                        await backend.complete([Settlement("a", "job")])
        assert scope.cancelled_caught
        assert trio.current_time() == 6

    run_virtual(main)
    assert backend_double.completed == [(5, ["a"])]
    assert backend_double.finished == 1


def test_a_cancelled_open_ends() -> None:
    """Nothing has started, so there is nothing to wait for."""

    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel("at once")
            async with open_batching(RecordingBackend()):
                raise AssertionError  # never reached
        assert trio.current_time() == 0

    run_virtual(main)


def test_an_error_of_the_block_is_not_wrapped() -> None:
    """The inner nursery does not wrap it."""

    async def main() -> None:
        async with open_batching(RecordingBackend()):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_virtual(main)


@attrs.frozen
class Asker:
    """A client that requests leases at some time, and may be cancelled."""

    at: int
    leases: int
    patience: int


askers = st.builds(
    Asker, at=st.integers(0, 12), leases=st.integers(0, 4), patience=st.integers(0, 12)
)


@pytest.mark.slow
@given(
    st.lists(askers, max_size=8),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(0, 6),
    st.integers(0, 20),
    st.random_module(),
)
def test_items_are_sent_once_in_order_and_in_time(
    people: list[Asker],
    size: int,
    flush: int,
    latency: int,
    end: int,
    _seed: object,
) -> None:
    """A batch is never too large, early or late, and every wait ends, despite cancellations."""
    backend_double = RecordingBackend(latency=latency)
    handed: list[tuple[int, str]] = []
    answered: dict[str, tuple[int, Decision]] = {}
    given_up: dict[str, int] = {}

    async def main() -> None:
        async with (
            trio.open_nursery() as nursery,
            open_batching(backend_double, size=size, flush=flush) as backend,
        ):
            for number, person in enumerate(people):
                nursery.start_soon(wait_for, backend, number, person)
            await trio.sleep_until(end)

    async def wait_for(backend: Backend, number: int, person: Asker) -> None:
        await trio.sleep_until(person.at)
        names = [f"{number}.{place}" for place in range(person.leases)]
        if person.at >= end:
            return  # closed, or about to close
        handed.extend((person.at, name) for name in names)
        with trio.move_on_after(person.patience) as scope:
            for name, decision in zip(
                names, await backend.reserve([ask(name) for name in names]), strict=True
            ):
                answered[name] = (round(trio.current_time()), decision)
        if scope.cancelled_caught:
            given_up.update(dict.fromkeys(names, round(trio.current_time())))

    run_virtual(main)
    sent = [name for _, names in backend_double.reserved for name in names]
    order = [name for _, name in handed]
    assert len(sent) == len(set(sent))
    assert set(order) == answered.keys() | given_up.keys()
    assert set(order) - set(sent) <= given_up.keys()
    at_by_name = {name: at for at, name in handed}
    earlier: set[str] = set()
    for sent_at, names in backend_double.reserved:
        assert 1 <= len(names) <= size
        assert names == sorted(names, key=order.index)
        first = min(at_by_name[name] for name in names)
        assert sent_at <= min(first + flush, end)
        assert all(given_up.get(name, sent_at) >= sent_at for name in names)
        # Full, closed, or due because of an item whose client may have given up since.
        full = len(names) == size
        due = any(sent_at == at + flush for at, name in handed if name not in earlier)
        assert full or due or sent_at == end
        earlier.update(names)
        event("full" if full else "due")
    sent_at_by_name = {
        name: sent_at for sent_at, names in backend_double.reserved for name in names
    }
    for name, (at, decision) in answered.items():
        if isinstance(decision, Granted):
            assert at >= sent_at_by_name[name] + latency
        else:
            assert at == end + CLOSE_GRACE
    event("given up" if given_up else "all answered")


def test_a_batcher_is_a_backend() -> None:
    """It can replace any backend."""

    async def main() -> None:
        async with open_batching(RecordingBackend()) as backend:
            assert isinstance(backend, Backend)

    run_virtual(main)
