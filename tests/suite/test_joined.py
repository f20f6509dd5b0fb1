"""Several sources of tests as one sequence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.suite.model import Test
from trioeval.suite.tests import Joined, checked_places

PARTS = st.lists(
    st.lists(st.integers(0, 9).map(lambda n: Test(threshold=n)), max_size=3).map(tuple)
)


@given(PARTS)
def test_joined_tests_equal_the_tests_of_their_parts(parts: list[tuple[Test, ...]]) -> None:
    """This holds by index from either end, by slice and by iteration; joining again changes nothing."""
    flat = [test for part in parts for test in part]
    joined = Joined.of(*parts)
    assert len(joined) == len(flat)
    assert list(joined) == flat
    assert [joined[place - len(flat)] for place in range(len(flat))] == flat
    assert joined[1:7:2] == flat[1:7:2]
    assert list(Joined.of(joined, (), Joined.of())) == flat
    assert list(checked_places(joined)) == list(range(len(flat)))
    with pytest.raises(IndexError):
        joined[len(flat)]
