"""Statistics of a column."""

import doctest
import math
import random
import statistics
import tracemalloc
from collections import Counter
from collections.abc import Hashable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioeval.columns import profile as module
from trioeval.columns.profile import EXACT, FEW, Profiler
from trioeval.columns.result import ColumnProfile, Histogram

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=3) | st.sampled_from(["a", "b", 1, 1.0]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)
FEWER = settings(max_examples=settings().max_examples // 2)


def profile_of(values: list[Any], skipped: int = 0) -> ColumnProfile:
    profiler = Profiler("a", "llm")
    for value in values:
        profiler.add(value)
    for _ in range(skipped):
        profiler.add("not looked at", skipped=True)
    return profiler.profile()


def test_the_example_holds() -> None:
    assert doctest.testmod(module).failed == 0


@given(st.lists(VALUES, max_size=30), st.randoms(use_true_random=False))
@FEWER
def test_a_profile_does_not_depend_on_the_order(values: list[Any], chance: random.Random) -> None:
    """This includes the last digits, and the sign of a zero."""
    before = repr(profile_of(values))
    chance.shuffle(values)
    assert repr(profile_of(values)) == before


@given(st.lists(VALUES, max_size=30), st.integers(0, 3))
@FEWER
def test_a_profile_equals_a_naive_count(values: list[Any], skipped: int) -> None:
    profile = profile_of(values, skipped)
    assert (profile.values, profile.skipped) == (len(values) + skipped, skipped)
    assert profile.nulls == values.count(None)
    there = [value for value in values if value is not None]
    different = {_frozen(value) for value in there}
    assert (profile.distinct, profile.is_estimate) == (len(different), False)
    lengths = [len(value) for value in there if isinstance(value, str | list)]
    if profile.lengths is None:
        assert not lengths
    else:
        edges, counts = profile.lengths.edges, profile.lengths.counts
        assert list(edges) == sorted(set(edges))
        assert counts == tuple(
            sum(low <= length < high for length in lengths) for low, high in pairwise(edges)
        )
        assert sum(counts) == len(lengths)
        assert (edges[0], edges[-1] - 1) == (min(lengths), max(lengths))
    counted = Counter(map(_frozen, there))
    if profile.common:
        expected = sorted(counted.values(), reverse=True)[:5]
        assert [count for _, count in profile.common] == expected
        assert all(counted[_frozen(value)] == count for value, count in profile.common)
    else:
        assert max(counted.values(), default=1) == 1


@given(st.lists(NUMBERS, min_size=1, max_size=20))
@example([1.7976931348623157e308, -1.7976931348623157e308])
@example([5e-324, 1e-323])
@example([1e16, 1.0, -1e16])
@FEWER
def test_figures_equal_those_of_exact_arithmetic(numbers: list[float]) -> None:
    figures = profile_of(numbers).numbers
    exact = [Fraction(number) for number in numbers]
    mean = statistics.mean(exact)
    variance = statistics.pvariance(exact)
    assert figures["min"] == float(min(numbers))
    assert figures["max"] == float(max(numbers))
    assert figures["mean"] == float(mean)
    if (
        figures["std"] == 0.0 or figures["std"] < 1e-300
    ):  # the last digits of nearly denormal numbers
        assert variance < Fraction(1, 10**600)
    else:
        assert abs(Fraction(figures["std"]) ** 2 / variance - 1) < 1e-12


def test_a_zero_has_no_sign_in_any_order() -> None:
    assert repr(profile_of([0.0, -0.0]).numbers) == repr(profile_of([-0.0, 0.0]).numbers)


def test_a_numeric_column_has_numeric_statistics() -> None:
    profile = profile_of([2, 4, 4, 4, 5, 5, 7, 9])
    assert profile.type == "int"
    assert profile.numbers == {"min": 2.0, "max": 9.0, "mean": 5.0, "std": 2.0}
    assert profile.numbers["std"] == statistics.pstdev([2, 4, 4, 4, 5, 5, 7, 9])
    assert profile.common == ((4, 3), (5, 2), (2, 1), (7, 1), (9, 1))
    assert profile.lengths is None


def test_a_text_column_has_text_statistics() -> None:
    profile = profile_of(["", "a", "ab", "abc", "x" * 100, "é", None], skipped=2)
    assert (profile.type, profile.values, profile.nulls, profile.skipped) == (
        "text | null",
        9,
        1,
        2,
    )
    assert profile.lengths == Histogram(
        edges=(0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 101.0), counts=(1, 2, 2, 0, 0, 0, 0, 1)
    )
    assert profile.common == ()  # all are distinct
    assert profile.numbers == {}


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([], "null"),
        ([None], "null"),
        ([True], "bool"),
        ([{}, [], 1, 0.5, "a", None, False], "text | int | float | bool | list | object | null"),
        ([2**70, "\ud800"], "text | int"),
    ],
)
def test_the_type_lists_all_kinds_in_a_fixed_order(values: list[Any], kinds: str) -> None:
    assert profile_of(values).type == kinds


def test_numbers_beyond_floats_have_no_statistics() -> None:
    assert profile_of([10**400]).numbers == {}


def test_frequent_values_are_listed_if_they_are_few_and_short() -> None:
    few = [*range(FEW), 7]
    assert profile_of(few).common[0] == (7, 2)
    assert profile_of([*few, FEW]).common == ()
    assert profile_of(["x" * 1000] * 3 + ["y", "y"]).common == (("y", 2),)


def test_distinct_values_are_counted_exactly_up_to_a_thousand_and_then_estimated() -> None:
    exact = profile_of([number % EXACT for number in range(3 * EXACT)])
    assert (exact.distinct, exact.is_estimate) == (EXACT, False)
    for many in (EXACT + 1, 20_000):
        profile = profile_of([f"text {number}" for number in range(many)])
        assert profile.is_estimate
        assert math.isclose(profile.distinct, many, rel_tol=0.1)  # three standard errors


def _frozen(value: Any) -> Hashable:
    """Return a hashable value that is equal for equal values of a kind."""
    match value:
        case dict():
            return ("dict", frozenset((key, _frozen(part)) for key, part in value.items()))
        case list():
            return ("list", *map(_frozen, value))
        case float():
            return ("float", value, math.copysign(1.0, value))
        case _:
            return (type(value).__name__, value)


def test_long_values_are_counted_and_not_stored() -> None:
    """The values have half a megabyte in every column; they are never listed as frequent."""
    tracemalloc.start()
    try:
        profiler = Profiler("a", "llm")
        for number in range(FEW - 1):
            for _ in range(2):
                profiler.add(f"{number}{'x' * 100_000}")
            if number == 2:
                profiler.add("short")
                profiler.add("short")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000
    profile = profiler.profile()
    assert profile.common == (("short", 2),)
    assert (profile.distinct, profile.is_estimate) == (FEW, False)
    profiler.add("y" * 1000)
    assert profiler.profile().common == ()


def test_distinct_values_never_exceed_the_number_of_values() -> None:
    """Estimates for values that are all distinct are never above their number."""
    profiles = [
        profile_of([*(f"{seed}-{number}" for number in range(2000)), None], skipped=3)
        for seed in range(12)
    ]
    assert all(one.distinct <= 2000 and one.is_estimate for one in profiles)
    assert {one.distinct for one in profiles} & {2000}
