"""The order in which steps may start: counted waiting against the rule itself."""

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pace import takes_less

from trioeval.evaluation.registers import CellAccess, CellReadiness, SerialReadiness

CELLS = st.frozensets(st.sampled_from("abc"), max_size=2)
ACCESSES = st.lists(st.builds(CellAccess, reads=CELLS, writes=CELLS), max_size=10)


def waits_for(accesses: Sequence[CellAccess], serial: frozenset[int], index: int) -> set[int]:
    """The rule: every earlier step that may write a value that this one may read; serial ones run before."""
    return {
        earlier
        for earlier in range(index)
        if earlier not in serial and accesses[earlier].writes & accesses[index].reads
    }


@given(ACCESSES, st.frozensets(st.integers(0, 9), max_size=3), st.randoms(use_true_random=False))
def test_a_step_is_ready_when_the_last_step_that_it_waits_for_has_ended(
    accesses: list[CellAccess], serial: frozenset[int], chance: random.Random
) -> None:
    """It is ready neither earlier nor later, once, for any order of ends."""
    size = len(accesses)
    order = CellReadiness.of(size, serial, accesses.__getitem__)
    waiting = {i: waits_for(accesses, serial, i) for i in range(size) if i not in serial}
    ready = list(order.begin())
    assert ready == [index for index, others in waiting.items() if not others]
    for index in sorted(serial & set(range(size))):
        assert not order.on_outcome(index, done=True).ready  # no step waits for these
    ended: set[int] = set()
    while ready:
        index = ready.pop(chance.randrange(len(ready)))
        ended.add(index)
        freed = order.on_outcome(index, done=chance.random() < 0.5)
        wanted = [
            other
            for other, others in waiting.items()
            if index in others and others <= ended and other not in ended
        ]
        assert list(freed.ready) == wanted
        assert freed.blocked == ()
        ready += freed.ready
    assert ended == set(waiting)


@given(
    ACCESSES,
    st.frozensets(st.integers(0, 9), max_size=3),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_a_long_run_examines_a_limited_number_of_steps(
    accesses: list[CellAccess], serial: frozenset[int], ahead: int, chance: random.Random
) -> None:
    """Each step starts once, never before those it waits for, and none is examined too early."""
    size = len(accesses)
    looked: list[int] = []

    def access(index: int) -> CellAccess:
        looked.append(index)
        return accesses[index]

    order = CellReadiness.of(size, serial, access, ahead)
    ready, ended = list(order.begin()), set[int]()
    while ready:
        assert len(looked) - len(ended) <= ahead
        index = ready.pop(chance.randrange(len(ready)))
        assert waits_for(accesses, serial, index) <= ended
        ended.add(index)
        ready += order.on_outcome(index, done=True).ready
    assert ended == set(range(size)) - serial
    assert looked == sorted(ended)


@given(st.integers(0, 8), st.frozensets(st.integers(0, 9)))
def test_serial_order_is_index_order_without_the_serial_steps(
    size: int, serial: frozenset[int]
) -> None:
    """The end of a serial step, which comes before all others, starts nothing."""
    order = SerialReadiness.of(size, serial)
    ready, seen = list(order.begin()), []
    for index in sorted(serial & set(range(size))):
        assert not order.on_outcome(index, done=False).ready
    while ready:
        (index,) = ready
        seen.append(index)
        ready = list(order.on_outcome(index, done=index % 2 == 0).ready)
    assert seen == [index for index in range(size) if index not in serial]


def test_a_value_that_steps_read_and_write_makes_a_chain() -> None:
    """Like the turns of a conversation; a step that only writes waits for no other."""
    turn = CellAccess(frozenset("c"), frozenset("c"))
    accesses: Mapping[int, CellAccess] = {
        0: turn,
        1: CellAccess(),
        2: turn,
        3: CellAccess(writes=turn.writes),
    }
    order = CellReadiness.of(4, (), accesses.__getitem__)
    assert order.begin() == [0, 1, 3]
    assert order.on_outcome(3, done=True).ready == []
    assert order.on_outcome(0, done=False).ready == [2]


@pytest.mark.slow
def test_order_costs_microseconds_a_step() -> None:
    """Ten thousand steps with ten conversations, and a register that every tenth step writes and all read."""
    size = 10_000

    def access(index: int) -> CellAccess:
        conversation = frozenset({f"conversation {index % 10}"})
        register = frozenset({"register"})
        return CellAccess(
            conversation | register, conversation | register if index % 100 == 0 else conversation
        )

    def submit() -> None:
        order = CellReadiness.of(size, (), access)
        ready = list(order.begin())
        for index in ready:
            ready += order.on_outcome(index, done=True).ready
        assert len(ready) == size

    assert takes_less(0.6, submit)  # some 60 ms on an idle machine
