"""Ids of runs sort by time, and no two are the same."""

import itertools
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.agent.protocols import RunIds, new_run_id, own_run_ids
from trioeval.errors import UsageError

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
OWNERS = st.sampled_from(["0", "5f0c", "z9"])


@settings(max_examples=settings().max_examples // 3)
@given(st.lists(st.tuples(MOMENTS, OWNERS, st.integers(0, 99_999)), unique=True, max_size=8))
def test_ids_sort_by_tenths_of_milliseconds(parts: list[tuple[datetime, str, int]]) -> None:
    """Ids of one instant sort by owner and number, and are equal only if both are."""

    def tenth(part: tuple[datetime, str, int]) -> tuple[datetime, int, str, int]:
        utc, owner, number = part
        return utc.replace(microsecond=0), utc.microsecond // 100, owner, number

    assert sorted(new_run_id(*part) for part in parts) == [
        new_run_id(*part) for part in sorted(parts, key=tenth)
    ]
    several = {tenth(part) for part in parts}
    assert len({new_run_id(*part) for part in parts}) == len(several)


@settings(max_examples=settings().max_examples // 3)
@given(st.lists(MOMENTS, min_size=2, max_size=9))
def test_ids_of_an_owner_are_ascending(moments: list[datetime]) -> None:
    """They are ascending even if the clock is set back."""
    clock = iter(moments)
    ids = RunIds("5f0c", lambda: next(clock))
    made = [ids() for _moment in moments]
    assert made == sorted(set(made))


def test_other_time_zones_are_converted_and_invalid_owners_rejected() -> None:
    """An id is a valid file name."""
    zone = timezone(timedelta(hours=2))
    moment = datetime(2026, 1, 15, 1, 30, tzinfo=zone)
    assert new_run_id(moment, "a", 0) == "20260114-2330000000-a-000000"
    for owner in ("", "a/b", "A", "a-b"):
        with pytest.raises(UsageError, match="must consist of lower-case letters and digits, got"):
            new_run_id(moment, owner, 0)
    with pytest.raises(UsageError, match="needs a zone"):
        new_run_id(datetime(2026, 1, 15), "a", 0)  # noqa: DTZ001 - that is what is refused


def test_programs_have_separate_owners() -> None:
    """No two programs ever create the same id."""
    ids = [own_run_ids() for _program in range(3)]
    assert len({one.owner for one in ids}) == 3
    made = [one() for one in itertools.chain(ids, ids)]
    assert len(set(made)) == 6
