"""Columns made by a function of the suite, in real processes."""

from pathlib import Path
from typing import Any

import pytest
import trio
from made_locally import column_of, group_order, make_cell, make_group, with_code

from trioeval.columns.makers.base import CellError, Made
from trioeval.columns.makers.code import PythonCellMaker, PythonGroupMaker, function_of, values_of
from trioeval.columns.model import PythonColumn
from trioeval.errors import DatasetError
from trioeval.evaluation.scripts import open_scripts

CODE = """
import os, time
from pathlib import Path

def double(row):
    row["a"] *= 2
    return row["a"]

async def both(row):
    return {"x": row["a"], "y": -row["a"]}

def fails(row):
    raise ValueError(f"not {row['a']}")

def sums(rows, numbers):
    return [row["a"] + number for row, number in zip(rows, numbers)]

def few(rows, numbers):
    return [row["a"] for row in rows][1:]

def count(start, rows):
    return list(range(start, start + rows))

def one(start, rows):
    return 1

def more(start, rows):
    return [0] * (rows + 1)

def slow(row):
    time.sleep(60)

def dies_once(row):
    mark = Path("died")
    if not mark.exists():
        mark.touch()
        os._exit(3)
    return row["a"]

made = 0

def counts(start, rows):
    global made
    made += rows
    return list(range(made - rows, made))

def draw():
    number = 0
    while True:
        yield number
        number += 1

numbers = draw()

def draws(start, rows):
    return [next(numbers) for _ in range(rows)]

loaded = None

def loads(start, rows):
    global loaded
    loaded = loaded or list(range(100))
    return loaded[start:start + rows]

def meets(row):
    mine, other = Path(f"at{row['a']}"), Path(f"at{1 - row['a']}")
    mine.touch()
    while not other.exists():
        time.sleep(0.01)
    return row["a"]

def dies(row):
    with open("deaths", "a") as file:
        file.write("x")
    os._exit(3)
"""

slow = pytest.mark.slow  # processes


def python(folder: Path, function: str, **more: Any) -> PythonColumn:
    target = f"file://{folder / 'gen.py'}:{function}"
    return PythonColumn(**{"name": "x", "outputs": ("x",), "target": target, **more})


def cell(folder: Path, function: str, values: dict[str, Any], **more: Any) -> Any:
    async def body(scripts: Any) -> Any:
        return await make_cell(
            PythonCellMaker(python(folder, function, **more), scripts), 4, values
        )

    return with_code(folder, CODE, body)


def group(folder: Path, function: str, order: Any, **more: Any) -> Made:
    async def body(scripts: Any) -> Made:
        return await make_group(PythonGroupMaker(python(folder, function, **more), scripts), order)

    return with_code(folder, CODE, body)


@slow
def test_co_21_a_cell_function_gets_a_copy_of_the_row(tmp_path: Path) -> None:
    values = {"a": 3}
    assert cell(tmp_path, "double", values) == {"x": 6}
    assert values == {"a": 3}


@slow
def test_co_25_a_function_makes_several_columns_at_once(tmp_path: Path) -> None:
    assert cell(tmp_path, "both", {"a": 3}, outputs=("x", "y")) == {"x": 3, "y": -3}


@slow
def test_a_function_that_raises_is_reported_with_its_exception(tmp_path: Path) -> None:
    with pytest.raises(CellError, match=r"gen\.py:fails: ValueError: not 3"):
        cell(tmp_path, "fails", {"a": 3})


@slow
def test_a_function_that_exceeds_its_time_is_ended(tmp_path: Path) -> None:
    with pytest.raises(CellError, match=r"gen\.py:slow did not answer within 0\.5 seconds$"):
        cell(tmp_path, "slow", {}, timeout_s=0.5)


@slow
def test_a_full_function_gets_rows_and_their_numbers(tmp_path: Path) -> None:
    order = group_order([{"a": 10}, {"a": 20}], [5, 7], 1, 5)
    made = group(tmp_path, "sums", order, scope="full")
    assert made == [(5, {"x": 15}), (7, {"x": 27})]


@slow
def test_co_22_a_full_function_must_return_a_member_for_each_row(tmp_path: Path) -> None:
    with pytest.raises(
        CellError, match=r"gen\.py:few must return one member for each of 2 rows, got 1"
    ):
        group(tmp_path, "few", group_order([{"a": 1}, {"a": 2}]), scope="full")


@slow
def test_co_24_a_scratch_function_gets_the_first_row_and_the_number(tmp_path: Path) -> None:
    made = group(tmp_path, "count", group_order(2, group=3, start=6), scope="scratch", ordered=True)
    assert [row for row, _ in made] == column_of(made, "x") == [6, 7]


@slow
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("one", r"gen\.py:one must return a list with one member per row, got 1"),
        ("more", r"gen\.py:more must return one member for each of 2 rows, got 3"),
    ],
)
def test_co_23_a_scratch_function_must_return_the_requested_number(
    tmp_path: Path, function: str, message: str
) -> None:
    with pytest.raises(CellError, match=message):
        group(tmp_path, function, group_order(2), scope="scratch")


@slow
def test_co_57_a_process_that_dies_once_is_called_again(tmp_path: Path) -> None:
    assert cell(tmp_path, "dies_once", {"a": 3}) == {"x": 3}
    assert (tmp_path / "died").exists()


@slow
def test_co_57_a_process_that_dies_twice_fails_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioeval.providers.programs.workers._LAST_WORDS", 30.0)
    with pytest.raises(CellError, match=r"gen\.py:dies: the worker ended with exit code 3"):
        cell(tmp_path, "dies", {})
    assert (tmp_path / "deaths").read_text() == "xx"


@slow
@pytest.mark.parametrize(("function", "name"), [("counts", "made"), ("draws", "numbers")])
def test_an_ordered_function_with_state_is_refused_in_a_new_process(
    tmp_path: Path, function: str, name: str
) -> None:
    """A new process has no state of earlier groups: a resumed run would repeat values."""
    column = python(tmp_path, function, scope="scratch", ordered=True)

    async def from_the_beginning(scripts: Any) -> list[Any]:
        maker = PythonGroupMaker(column, scripts)
        orders = [group_order(2, group=number, start=2 * number) for number in range(3)]
        return [
            value for order in orders for value in column_of(await make_group(maker, order), "x")
        ]

    assert with_code(tmp_path, CODE, from_the_beginning) == list(range(6))
    message = rf"gen\.py:{function} keeps state from call to call: {name}; .* the run was resumed"
    with pytest.raises(DatasetError, match=message):
        group(tmp_path, function, group_order(2, group=3, start=6), scope="scratch", ordered=True)


@slow
@pytest.mark.parametrize("function", ["count", "loads"])
def test_an_ordered_function_without_state_continues(tmp_path: Path, function: str) -> None:
    order = group_order(2, group=3, start=6)
    made = group(tmp_path, function, order, scope="scratch", ordered=True)
    assert column_of(made, "x") == [6, 7]


@slow
def test_cells_are_made_by_several_processes_at_once(tmp_path: Path) -> None:
    """Each call waits for the other one, which would never start in a single process."""

    async def body(scripts: Any) -> None:
        maker = PythonCellMaker(python(tmp_path, "meets", workers=2), scripts)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for row in range(2):
                    nursery.start_soon(make_cell, maker, row, {"a": row})

    with_code(tmp_path, CODE, body)


def test_a_function_has_one_process_per_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column or the environment may set another number."""
    monkeypatch.setattr("os.cpu_count", lambda: 6)

    async def workers(environ: dict[str, str], wanted: int | None) -> int:
        async with open_scripts(tmp_path, environ) as scripts:
            return scripts.workers_of(wanted)

    assert trio.run(workers, {}, None) == 6
    assert trio.run(workers, {"TRIOEVAL_PYTHON_WORKERS": "3"}, None) == 3
    assert trio.run(workers, {"TRIOEVAL_PYTHON_WORKERS": "3"}, 2) == 2


PAIR = PythonColumn(name="x", outputs=("x", "y"), extras=("z",), target="file:///w/gen.py:f")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], 'gen.py:f must return an object with "x", "y" for row 3, got a list'),
        ({"x": 1}, 'gen.py:f did not return "y" for row 3; it returned "x"'),
        ({}, 'gen.py:f did not return "x", "y" for row 3; it returned nothing'),
        (
            {"x": 1, "y": 2, "zz": 3},
            'gen.py:f returned "zz" for row 3, which are not its columns; did you mean "z"?',
        ),
    ],
)
def test_a_result_without_all_outputs_is_refused(value: Any, message: str) -> None:
    with pytest.raises(CellError) as caught:
        values_of(PAIR, value, 3)
    assert str(caught.value) == message


def test_side_effects_may_be_missing() -> None:
    assert values_of(PAIR, {"x": 1, "y": None}) == {"x": 1, "y": None, "z": None}
    assert values_of(PAIR, {"x": 1, "y": 2, "z": 3}) == {"x": 1, "y": 2, "z": 3}


def test_a_single_output_without_side_effects_may_be_any_value() -> None:
    one = PythonColumn(name="x", target="file:///w/gen.py:f")
    assert values_of(one, {"x": 1}) == {"x": {"x": 1}}


def test_a_target_names_file_and_function() -> None:
    assert function_of("file:///w/a:b/gen.py:K.make") == (Path("/w/a:b/gen.py"), "K.make")
