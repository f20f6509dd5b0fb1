"""Columns that are computed from others: templates and Python."""

from pathlib import Path
from typing import Any

import pytest
import trio
from made_locally import column_of, group_order, made_by, make_group, with_code

from trioeval.columns.makers.base import CellError
from trioeval.columns.makers.code import PythonExpressionMaker, TemplateMaker
from trioeval.columns.model import ExpressionColumn
from trioeval.columns.reply_json import member, read_text_as, read_value_as


def template(text: str, as_type: Any = "text", **more: Any) -> TemplateMaker:
    column = ExpressionColumn(name="x", outputs=("x",), template=text, as_type=as_type)
    return TemplateMaker(column, **more)


def test_each_row_is_rendered_with_its_own_values() -> None:
    order = group_order([{"a": 1, "b": "p"}, {"a": 2.0, "b": None}], [7, 9], 2, 6)
    assert made_by(template("{{ a }}-{{ b }}"), order) == [(7, {"x": "1-p"}), (9, {"x": "2-"})]


def test_values_of_other_columns_are_never_templates() -> None:
    order = group_order([{"a": "{{ b }}{% for %}", "b": "secret"}])
    assert column_of(made_by(template("<{{ a }}>"), order), "x") == ["<{{ b }}{% for %}>"]


def test_objects_and_lists_are_written_as_json() -> None:
    order = group_order([{"a": {"b": [1, None, "ü"]}}])
    assert column_of(made_by(template("{{ a }}{{ a.b }}"), order), "x") == [
        '{"b":[1,null,"ü"]}[1,null,"ü"]'
    ]
    assert order.values == [{"a": {"b": [1, None, "ü"]}}]


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


def test_a_row_that_is_nested_too_deeply_fails_alone() -> None:
    order = group_order([{"a": [1]}, {"a": nested(5000)}, {"a": {"b": 2}}])
    assert column_of(made_by(template("{{ a }}"), order), "x") == [
        "[1]",
        "a value is nested more than 100 levels deep",
        '{"b":2}',
    ]


def test_expressions_have_the_filters_and_environment_of_the_suite() -> None:
    maker = template(
        "{{ a | twice }}{{ env.E }}", filters={"twice": lambda a: a * 2}, env={"E": "!"}
    )
    assert column_of(made_by(maker, group_order([{"a": "z"}])), "x") == ["zz!"]


def test_a_failed_row_has_a_reason_and_the_others_are_made() -> None:
    order = group_order([{"a": "3"}, {"a": "x"}, {"b": 1}], start=4)
    assert column_of(made_by(template("{{ a }}", "int"), order), "x") == [
        3,
        '"x" is not a whole number',
        "{{ a }} is not defined; the row has b",
    ]


def test_rendering_many_rows_lets_other_tasks_run() -> None:
    """Another Trio task gets several turns while a thousand rows are rendered."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await make_group(template("{{ a }}"), group_order([{"a": 1}] * 1000))
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert turns >= 5


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        (" 12\n", "int", 12),
        ("-3", "int", -3),
        ("1e3", "float", 1000.0),
        (".5", "float", 0.5),
        ("True", "bool", True),
        ("false ", "bool", False),
        (' {"a": [1]}', "json", {"a": [1]}),
        (" x ", "text", " x "),
    ],
)
def test_a_text_is_parsed_as_the_type_of_its_column(text: str, wanted: Any, value: Any) -> None:
    found = read_text_as(text, wanted)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        *[(text, "int") for text in ("", "1.0", "1_000", "٣", "1e3", "0x1", "1" * 5000)],
        *[(text, "float") for text in ("", "nan", "inf", "1e999", "1,5", "1_0")],
        *[(text, "bool") for text in ("", "1", "yes")],
        *[(text, "json") for text in ("", "{", "NaN", "[" * 100_000)],
    ],
)
def test_a_text_of_another_type_is_refused(text: str, wanted: Any) -> None:
    with pytest.raises(CellError):
        read_text_as(text, wanted)


@pytest.mark.parametrize(
    ("given", "wanted", "value"),
    [
        (3.0, "int", 3),
        ("3", "int", 3),
        (3, "float", 3.0),
        (3, "text", "3"),
        ({"a": 1}, "text", '{"a":1}'),
        (None, "int", None),
        (False, "bool", False),
        ("x", "json", "x"),
    ],
)
def test_a_value_is_converted_to_a_type_that_it_fits(given: Any, wanted: Any, value: Any) -> None:
    found = read_value_as(given, wanted)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        (3.5, "int", "3.5 is not a whole number"),
        (True, "int", "true is not a whole number"),
        (True, "float", "true is not a number"),
        ([1], "float", "[1] is not a number"),
        (1, "bool", "1 is neither true nor false"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(given: Any, wanted: Any, message: str) -> None:
    with pytest.raises(CellError) as caught:
        read_value_as(given, wanted)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        *[(10**400, "int"), (10**400, "float"), (2**63, "int"), (1e300, "int")],
        *[(float("inf"), "float"), (float("nan"), "int"), (float("inf"), "json")],
        *[([float("nan")], "json"), (nested(101), "json")],
    ],
)
def test_a_value_that_no_column_can_store_is_refused(given: Any, wanted: Any) -> None:
    """Only its row fails: later errors would concern the whole group."""
    with pytest.raises(CellError):
        read_value_as(given, wanted)
    if wanted == "int" and given > 0:
        with pytest.raises(CellError):
            read_text_as(str(int(given)), wanted)


def test_json_may_be_nested_up_to_a_limit() -> None:
    assert read_value_as(nested(100), "json") == nested(100)
    assert read_text_as("[" * 100 + "]" * 100, "json") == nested(100)
    with pytest.raises(CellError, match="more than 100 levels deep"):
        read_text_as("[" * 101 + "]" * 101, "json")


def test_a_dotted_name_is_first_looked_up_as_a_column() -> None:
    row = {"a.b": 1, "a": {"b": 2, "c": {"d": None}}}
    assert (member(row, "a.b"), member(row, "a.c.d"), member(row, "a")) == (1, None, row["a"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("q", 'column "q" does not exist; known are a'),
        ("a.bb", 'member "bb" does not exist in "a"; did you mean "b"?'),
        ("a.b.c", '"a.b" is 2, which has no member "c"'),
    ],
)
def test_an_unknown_dotted_name_lists_the_known_names(name: str, message: str) -> None:
    with pytest.raises(LookupError) as caught:
        member({"a": {"b": 2}}, name)
    assert caught.value.args == (message,)


def python(
    tmp_path: Path, code: str, rows: list[dict[str, Any]], as_type: Any = "json"
) -> list[Any]:
    column = ExpressionColumn(name="x", outputs=("x",), python=code, as_type=as_type)

    async def body(scripts: Any) -> list[Any]:
        made = await make_group(PythonExpressionMaker(column, scripts), group_order(rows))
        assert [row for row, _ in made] == list(range(len(rows)))
        return column_of(made, "x")

    return with_code(tmp_path, "", body)


@pytest.mark.slow
def test_python_expressions_see_columns_by_name_and_fail_row_by_row(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b c": 0}, {"a": "x", "b c": 0}, {"a": None, "b c": 0}]
    assert python(tmp_path, "a + 1", rows) == [
        2,
        'TypeError: can only concatenate str (not "int") to str',
        "TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'",
    ]


@pytest.mark.slow
def test_python_expressions_run_in_batches(tmp_path: Path) -> None:
    found = python(
        tmp_path, "[a, __import__('os').getpid()]", [{"a": place} for place in range(2500)]
    )
    assert [value for value, _ in found] == list(range(2500))
    assert len({process for _, process in found}) == 1


@pytest.mark.slow
def test_python_results_must_fit_their_type_and_be_json(tmp_path: Path) -> None:
    rows = [{"a": "3"}, {"a": "4.5"}]
    assert python(tmp_path, "float(a)", rows, "int") == [3, "4.5 is not a whole number"]
    [error, _] = python(tmp_path, "{a}", rows)
    assert error == "TypeError: Object of type set is not JSON serializable"


@pytest.mark.slow
def test_a_row_that_cannot_be_sent_to_python_fails_alone(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": [1]}, {"a": nested(900)}, {"a": [3]}]
    deep = "a value is nested more than 100 levels deep"
    assert python(tmp_path, "a[0]", rows) == [1, deep, 3]
    large = "1000000000000000000000000000000 is too large for a column of type int"
    assert python(tmp_path, "a", [{"a": 1}, {"a": 10**30}], "int") == [1, large]
