"""Totals that are updated while rows are added and removed."""

import math
from array import array

from finished import rows_of, totals_of
from hypothesis import given
from hypothesis import strategies as st

from trioeval.report.totals import nearest_rank
from trioeval.run import Status


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0, 1))
def test_a_percentile_is_the_value_at_its_rank(values: list[float], share: float) -> None:
    """It equals the result of sorting; the values are unchanged."""
    given_values = array("d", values)
    rank = max(0, math.ceil(share * len(values)) - 1)
    assert nearest_rank(given_values, share) == sorted(values)[rank]
    assert given_values == array("d", values)


def test_an_empty_list_has_no_percentile() -> None:
    """A column whose rows were all not run has none."""
    assert nearest_rank(array("d"), 0.5) is None


def test_totals_are_the_sums_of_their_rows() -> None:
    """This holds for each column and for all together."""
    suite, rows = rows_of()
    totals = totals_of(suite, rows)
    assert totals.rows == 4
    assert [totals.count(status) for status in Status] == [1, 2, 1, 0, 0]
    assert totals.pass_rate == 25
    assert totals.outcome("done", "failed") == 4
    assert (list(totals.vars), totals.has_descriptions) == (["word"], True)
    first, second = totals.columns
    assert (first.rows, first.score, first.cost, first.usage["total"]) == (2, 0.75, 0.5, 5)
    assert (second.rows, second.score, second.metrics) == (2, 1.75, ["m"])


def test_a_run_without_rows_has_passed() -> None:
    """A run with no rows has not failed."""
    suite, _ = rows_of()
    assert totals_of(suite, []).pass_rate == 100
