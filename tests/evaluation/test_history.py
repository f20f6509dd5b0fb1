"""Steps see the data of a serial run, in whatever order they end."""

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trioeval.evaluation.shared_data import SharedData, serial_rank
from trioeval.loading.load import parse_suite
from trioeval.suite.expand import Expansion, expand


def steps_of(serial: tuple[bool, ...], columns: int = 1) -> Expansion:
    return expand(
        parse_suite(
            {
                "providers": [{"id": "echo", "label": f"c{place}"} for place in range(columns)],
                "prompts": ["p"],
                "tests": [{"options": {"runSerially": one}} for one in serial],
            }
        )
    )


SERIAL = st.lists(st.booleans(), min_size=1, max_size=6).map(tuple)


@given(SERIAL, st.sampled_from(["suite", "column"]), st.data())
def test_a_step_sees_the_data_of_a_serial_run(
    serial: tuple[bool, ...], scope: Any, data: st.DataObject
) -> None:
    """The latest value before it, and all turns before it: serial steps first, then by index."""
    steps = steps_of(serial, columns=2)
    storing = data.draw(st.sets(st.sampled_from(range(len(steps)))))
    in_turn = sorted(steps, key=serial_rank)
    assert [step.index for step in in_turn] == sorted(
        range(len(steps)), key=lambda index: (not serial[index // 2], index)
    )
    history = SharedData(scope)
    for step in data.draw(st.permutations(list(steps))):
        if step.index in storing:
            history.store(step, "r", step.index)
            history.add_turn(step, "talk", {"output": step.index})
    for place, step in enumerate(in_turn):
        before = [one for one in in_turn[:place] if one.index in storing]
        shared = [one for one in before if scope == "suite" or one.prompt_idx == step.prompt_idx]
        wanted = {"r": shared[-1].index} if shared else {}
        assert history.registers(step) == wanted
        assert history.turns(step, "talk") == [{"output": one.index} for one in before]


def test_conversations_and_registers_are_separate() -> None:
    """Two conversations are separate, and so are two registers."""
    first, second = steps_of((False, False))
    history = SharedData()
    history.store(first, "r", [1])
    history.store(first, "s", None)
    history.add_turn(first, ("a", 1), {"output": "x"})
    assert history.registers(second) == {"r": [1], "s": None}
    assert history.turns(second, ("a", 2)) == []
    assert history.turns(second, ("a", 1)) == [{"output": "x"}]
    assert (history.registers(first), history.turns(first, ("a", 1))) == ({}, [])


def test_a_step_that_runs_again_replaces_its_data() -> None:
    """This covers its output and its turn."""
    first, second = steps_of((False, False))
    history = SharedData()
    for text in ("a", "b"):
        history.store(first, "r", text)
        history.add_turn(first, "talk", {"output": text})
    assert history.registers(second) == {"r": "b"}
    assert history.turns(second, "talk") == [{"output": "b"}]
    assert len(history) == 2


@given(SERIAL, st.data())
def test_only_visible_values_are_kept(serial: tuple[bool, ...], data: st.DataObject) -> None:
    """Dropping values changes nothing; after all readers of a register have ended, one value is left."""
    steps = steps_of(serial)
    history, whole = SharedData(), SharedData()
    over = 0
    for step in sorted(steps, key=serial_rank):
        assert list(history.registers(step).items()) == list(whole.registers(step).items())
        name = data.draw(st.sampled_from("rs"))
        history.store(step, name, step.index)
        whole.store(step, name, step.index)
        # Rows arrive in index order, each as soon as all earlier ones have ended.
        done = {one.index for one in steps if serial_rank(one) <= serial_rank(step)}
        while over in done:
            history.on_row_end(steps[over])
            over += 1
    assert over == len(steps)
    assert len(history) <= 2


@given(SERIAL, st.sampled_from(["suite", "column"]), st.data())
def test_a_part_shows_steps_of_another_process_the_same_data(
    serial: tuple[bool, ...], scope: Any, data: st.DataObject
) -> None:
    """Law RESUME: also the data of their own steps that is added there."""
    steps = steps_of(serial, columns=2)
    in_turn = sorted(steps, key=serial_rank)
    sent = data.draw(st.sets(st.sampled_from(range(len(steps))), min_size=1))
    whole, own = SharedData(scope), SharedData(scope)

    def store(history: SharedData, step: Any) -> None:
        history.store(step, "rs"[step.index % 2], step.index)
        history.add_turn(step, step.prompt_idx, {"output": step.index})

    emitted = data.draw(st.integers(0, min(sent)))
    for step in in_turn:
        if step.index not in sent:
            store(whole, step)
    if not any(serial):
        for step in steps[:emitted]:
            whole.on_row_end(step)
    readers = [steps[index] for index in sorted(sent)]
    part = whole.part(readers, lambda step: step.prompt_idx)
    own.add(pickle.loads(pickle.dumps(part)))  # noqa: S301 - its own bytes
    for step in in_turn:
        if step.index in sent:
            assert own.registers(step) == whole.registers(step)
            assert own.turns(step, step.prompt_idx) == whole.turns(step, step.prompt_idx)
            store(whole, step)
            store(own, step)


def test_registers_are_in_the_order_of_their_first_use() -> None:
    """It is the order of a serial run, independent of the order of ends and of settling."""
    steps = steps_of((False,) * 4)
    history = SharedData()
    history.store(steps[2], "c", 1)
    history.store(steps[1], "a", 2)
    history.store(steps[0], "b", 3)
    assert list(history.registers(steps[3])) == ["b", "a", "c"]
    history.on_row_end(steps[0])
    history.on_row_end(steps[1])
    history.store(steps[2], "b", 4)
    assert history.registers(steps[3]) == {"b": 4, "a": 2, "c": 1}
    assert list(history.registers(steps[3])) == ["b", "a", "c"]
