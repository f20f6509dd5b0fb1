"""Lease ids: their form, their order, and their uniqueness by chance."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.limits.model import lease_id, lease_ids

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
MOMENTS = st.integers(0, 2**48 - 1)
CHANCES = st.integers(0, 2**80 - 1)


@given(MOMENTS, CHANCES)
def test_an_id_contains_its_time_and_its_random_bits(moment: int, chance: int) -> None:
    """All 128 bits can be read back."""
    text = lease_id(moment, chance)
    assert len(text) == 26
    number = 0
    for letter in text:
        number = number * 32 + ALPHABET.index(letter)
    assert divmod(number, 2**80) == (moment, chance)


@given(st.tuples(MOMENTS, CHANCES), st.tuples(MOMENTS, CHANCES))
def test_ids_sort_by_their_times(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Text order is the order of creation times, then of random bits."""
    assert (lease_id(*one) < lease_id(*other)) == (one < other)


@pytest.mark.parametrize("chance", [-1, 2**80])
def test_random_bits_out_of_range_are_rejected(chance: int) -> None:
    """A larger number would overlap the time."""
    with pytest.raises(ValueError, match=r"chance must be from 0 to 2\*\*80 - 1"):
        lease_id(0, chance)


def test_a_maker_draws_eighty_bits_when_called() -> None:
    """Time and random bits come only from its arguments."""
    moments, chance = iter([1.0, 2.5]), Random(7)  # noqa: S311 - repeatable
    new = lease_ids(lambda: next(moments), chance.getrandbits)
    again = Random(7)  # noqa: S311 - repeatable
    assert new() == lease_id(1000, again.getrandbits(80))
    assert new() == lease_id(2500, again.getrandbits(80))
