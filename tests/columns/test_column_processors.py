"""Allowed and forbidden changes of rows by processors."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_locally import with_code

from trioeval.columns.finish import read_answer, stages_of, without_columns
from trioeval.columns.makers.base import CellError
from trioeval.columns.model import Processor
from trioeval.columns.spec import Processed

ROWS = [(2, {"a": 1, "b": "x"}), (3, {"a": 2, "b": "y"}), (5, {"a": 3, "b": "z"})]
CODE = """
def odd(rows, numbers):
    kept = [(dict(row, a=-row["a"]), number) for row, number in zip(rows, numbers) if row["a"] % 2]
    return [row for row, _ in kept], [number for _, number in kept]

def fails(rows, numbers):
    raise ValueError("no")
"""


def answer(*numbers: int) -> list[Any]:
    known = dict(ROWS)
    return [[dict(known.get(number, {"a": 0, "b": ""})) for number in numbers], list(numbers)]


@given(st.lists(st.sampled_from([2, 3, 5, 7])))
def test_co_60_co_61_a_processor_may_only_remove_rows(numbers: list[int]) -> None:
    """A valid result is a part of the input, in its order, with each row once."""
    is_right = numbers == [number for number in (2, 3, 5) if number in numbers]
    try:
        found = read_answer(ROWS, answer(*numbers), "f")
    except CellError:
        assert not is_right
    else:
        assert is_right
        assert [number for number, _ in found] == numbers


@pytest.mark.parametrize(
    ("given_back", "message"),
    [
        (answer(2, 7), "f: it added row 7"),
        (answer(3, 2), "f: it changed the order of rows: row 2 comes after row 3"),
        (answer(2, 2), "f: it returned row 2 twice"),
        (None, "f must return a list of rows and a list of their numbers, got null"),
        ([[], [], []], "f must return a list of rows and a list of their numbers, got a list"),
        ([[{}], []], "f must return a number for each row, got 1 row and 0 numbers"),
        ([[{}], ["2"]], 'f: a row number must be a whole number, got the text "2"'),
        ([[{}], [True]], "f: a row number must be a whole number, got true"),
        ([[1], [2]], "f: row 2 must be an object, got 1"),
        ([[{"a": 1}], [2]], 'f: row 2 has no column "b"'),
        ([[{"a": 1, "b": 2, "d": 1, "c": 3}], [2]], 'f: row 2 has an additional column "c", "d"'),
    ],
)
def test_invalid_processor_results_are_refused(given_back: Any, message: str) -> None:
    with pytest.raises(CellError) as caught:
        read_answer(ROWS, given_back, "f")
    assert str(caught.value) == message


def test_columns_are_removed_by_name_and_pattern() -> None:
    columns = ["a", "a__trace", "b__trace", "trace__", "[x]", "a\nb"]

    def left_out(*patterns: str) -> frozenset[str]:
        dropping = Processor(stage="after_batch", drop_columns=patterns)
        return without_columns(dropping, [(0, dict.fromkeys(columns, 1))]).left_out

    assert left_out("*__trace") == {"a__trace", "b__trace"}
    assert left_out("a*") == {"a", "a__trace", "a\nb"}
    assert left_out("[x]", "?") == {"[x]"}
    assert left_out("*") == set(columns)
    assert left_out() == set()


def test_removed_columns_are_stored_aside_if_requested() -> None:
    dropping = Processor(stage="after_batch", drop_columns=("b", "nothing*"))
    assert without_columns(dropping, ROWS) == Processed(
        rows=[(2, {"a": 1}), (3, {"a": 2}), (5, {"a": 3})],
        aside=[(2, {"b": "x"}), (3, {"b": "y"}), (5, {"b": "z"})],
        left_out=frozenset({"b"}),
    )
    gone = Processor(stage="after_batch", drop_columns=("b",), keep_aside=False)
    assert without_columns(gone, ROWS).aside == ()
    nothing = Processor(stage="after_batch", drop_columns=("q",))
    assert without_columns(nothing, ROWS) == Processed(ROWS)


@pytest.mark.slow
def test_processors_run_by_stage_in_their_order(tmp_path: Path) -> None:
    target = f"file://{tmp_path / 'gen.py'}"
    processors = [
        Processor(stage="before_batch", target=f"{target}:odd"),
        Processor(stage="after_batch", target=f"{target}:fails", on_error="drop_group"),
        Processor(stage="before_batch", drop_columns=("b",)),
    ]

    async def body(scripts: Any) -> None:
        stages = stages_of(processors, scripts)
        assert [one.name for one in stages.before_batch] == ["processors[0]", "processors[2]"]
        assert stages.after_generation == ()
        first, second = stages.before_batch
        odd = await first.run(0, ROWS)
        assert odd == Processed([(2, {"a": -1, "b": "x"}), (5, {"a": -3, "b": "z"})])
        assert (await second.run(0, odd.rows)).rows == [(2, {"a": -1}), (5, {"a": -3})]
        [fails] = stages.after_batch
        assert fails.on_error == "drop_group"
        with pytest.raises(CellError, match=r"gen\.py:fails: ValueError: no"):
            await fails.run(0, ROWS)

    with_code(tmp_path, CODE, body)
