"""What steps see of what others left: that of a serial run, in whatever order they end."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trioeval.suite import Expansion, expand, parse_suite
from trioeval.tasks.history import History, rank


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
def test_a_step_sees_what_a_serial_run_would_show_it(
    serial: tuple[bool, ...], scope: Any, data: st.DataObject
) -> None:
    """The latest value before it, and all turns before it: serial steps first, then by index."""
    steps = steps_of(serial, columns=2)
    storing = data.draw(st.sets(st.sampled_from(range(len(steps)))))
    in_turn = sorted(steps, key=rank)
    assert [step.index for step in in_turn] == sorted(
        range(len(steps)), key=lambda index: (not serial[index // 2], index)
    )
    history = History(scope)
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


def test_conversations_and_registers_do_not_meet() -> None:
    """Nor do two of either."""
    first, second = steps_of((False, False))
    history = History()
    history.store(first, "r", [1])
    history.store(first, "s", None)
    history.add_turn(first, ("a", 1), {"output": "x"})
    assert history.registers(second) == {"r": [1], "s": None}
    assert history.turns(second, ("a", 2)) == []
    assert history.turns(second, ("a", 1)) == [{"output": "x"}]
    assert (history.registers(first), history.turns(first, ("a", 1))) == ({}, [])
