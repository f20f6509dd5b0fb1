"""Types of values."""

import doctest
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.columns import cell_types as types
from trioeval.columns.cell_types import ColumnType, common_type, fits

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def test_the_examples_hold() -> None:
    assert doctest.testmod(types).failed == 0


@given(st.lists(JSON, max_size=5))
def test_all_values_fit_their_common_type(values: list[Any]) -> None:
    wanted = common_type(iter(values))
    assert all(fits(value, wanted) for value in values)
    assert common_type(values[::-1]) == wanted


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([], "text"),
        ([None, None], "text"),
        (["a", None], "text"),
        ([True, None, False], "bool"),
        ([1, 2], "int"),
        ([1, 2.5, 3], "float"),
        ([1, True], "json"),
        ([1, "a"], "json"),
        ([2.5, 2**63], "json"),
        ([[0.5, 1.5]], "json"),
        ([{"a": 1}], "json"),
    ],
)
def test_the_common_type_is_the_narrowest(values: list[Any], wanted: ColumnType) -> None:
    assert common_type(values) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("", "text json"),
        (True, "bool json"),
        (0, "int float json"),
        (-(2**63), "int float json"),
        (2**63, "json"),
        (0.5, "float json"),
        (float("inf"), ""),
        ([], "vector json"),
        ([1, 0.5], "vector json"),
        ([1, True], "json"),
        ([1, float("nan")], ""),
        ({"a": [None]}, "json"),
        ({1: "a"}, ""),
        ({"a": [{1, 2}]}, ""),
        ((1, 2), ""),
        (b"a", ""),
        (10**4200, "json"),
        pytest.param(10**4300, "", id="huge"),
    ],
)
def test_a_value_fits_exactly_these_types(value: Any, wanted: str) -> None:
    assert [one for one in get_args(ColumnType) if fits(value, one)] == wanted.split()


def test_a_deep_value_is_checked_without_recursion_errors() -> None:
    value: Any = {1, 2}
    for _ in range(100_000):
        value = [value]
    assert not fits(value, "json")
