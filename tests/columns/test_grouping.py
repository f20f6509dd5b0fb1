"""Rows in groups."""

import doctest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_graphs import groupings

from trioeval.columns import graph as module
from trioeval.columns.graph import RowGrouping
from trioeval.errors import DatasetError

FEWER = settings(max_examples=settings().max_examples // 3)


def sizes(grouping: RowGrouping) -> list[int]:
    return [len(rows) for rows in grouping.groups()]


def test_the_example_holds() -> None:
    assert doctest.testmod(module).failed == 0


def test_co_20_five_rows_in_groups_of_two() -> None:
    grouping = RowGrouping(2, (5,))
    assert [list(rows) for rows in grouping.groups()] == [[0, 1], [2, 3], [4]]


def test_co_73_more_rows_make_new_groups() -> None:
    grouping = RowGrouping(2, (5,))
    assert sizes(grouping.extended(7)) == [2, 2, 1, 2]
    assert sizes(grouping.extended(6)) == [2, 2, 1, 1]
    assert sizes(grouping.extended(6).extended(7)) == [2, 2, 1, 1, 1]
    assert grouping.extended(5) is grouping
    with pytest.raises(DatasetError, match="5 rows cannot be reduced to 4"):
        grouping.extended(4)


@given(groupings(most=9))
@FEWER
def test_each_row_is_in_one_group_in_row_order(grouping: RowGrouping) -> None:
    assert [row for rows in grouping.groups() for row in rows] == list(range(grouping.rows))
    assert len(list(grouping.groups())) == len(grouping)
    for group in range(len(grouping)):
        for row in grouping.rows_of(group):
            assert grouping.group_of(row) == group
    assert [group for part in grouping.parts for group in part] == list(range(len(grouping)))
    for part in grouping.parts:
        assert {len(grouping.rows_of(group)) for group in part[:-1]} <= {grouping.size}


@given(groupings(), st.integers(1, 9))
@FEWER
def test_an_extension_keeps_the_existing_groups(grouping: RowGrouping, more: int) -> None:
    extended = grouping.extended(grouping.rows + more)
    assert list(extended.groups())[: len(grouping)] == list(grouping.groups())
    assert extended.rows == grouping.rows + more


@pytest.mark.parametrize(("size", "targets"), [(0, (1,)), (1, ()), (1, (0,)), (1, (2, 2))])
def test_invalid_sizes_are_refused(size: int, targets: tuple[int, ...]) -> None:
    with pytest.raises(DatasetError, match="at least 1"):
        RowGrouping(size, targets)


def test_unknown_groups_and_rows_are_index_errors() -> None:
    grouping = RowGrouping(2, (5,))
    for group in (-1, 3):
        with pytest.raises(IndexError, match=f"group {group} does not exist; there are 3"):
            grouping.rows_of(group)
    for row in (-1, 5):
        with pytest.raises(IndexError, match=f"row {row} does not exist; there are 5"):
            grouping.group_of(row)
