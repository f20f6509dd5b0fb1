"""Rows summed by test and cluster give the same numbers as all values, in any order, in little memory."""

import itertools
import math
import tracemalloc
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from finished import SUITE, records_of, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.report.records import RowRecord
from trioeval.report.statistics.estimates import Estimate, at_least_one, every_one, mean, proportion
from trioeval.report.statistics.grouped import ColumnSums, KeyNumbers, RowPlace
from trioeval.report.totals import Totals, place_of

KEYS = st.integers(0, 2**64 - 1) | st.integers(0, 5) | st.integers(0, 5).map(lambda n: n << 61)
rows = st.lists(
    st.tuples(st.integers(0, 6), st.booleans(), st.none() | st.floats(0, 1)),
    min_size=1,
    max_size=30,
)


@attrs.frozen(eq=False)
class Approx:
    """Compare an estimate except for rounding."""

    found: Estimate | None

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        one, two = self.found, other
        if one is None or not isinstance(two, Estimate):
            return one is two
        same = (one.n, one.clusters) == (two.n, two.clusters)
        figures = (
            attrs.astuple(each, filter=lambda field, _: bool(field.eq)) for each in (one, two)
        )
        numbers = zip(*figures, strict=True)
        return same and all(
            (old is new) if old is None or new is None else math.isclose(old, new, abs_tol=1e-9)
            for old, new in numbers
        )


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(KEYS, max_size=60))
def test_keys_are_numbered_in_order_of_arrival(keys: list[int]) -> None:
    """Each has one number, also keys whose low bits are equal."""
    numbering = KeyNumbers()
    known: dict[int, int] = {}
    for key in keys:
        assert numbering.number(key) == known.setdefault(key, len(known))
    assert len(numbering) == len(known)


def summed(drawn: Sequence[tuple[int, bool, float | None]], *, shared: bool = False) -> ColumnSums:
    sums = ColumnSums()
    for test, passed, score in drawn:
        number = sums.add(RowPlace(test, 1 + test % 3 if shared else 0), passed=passed, score=score)
        if score is not None:
            sums.add_metric(number, "m", 2 * score, 2)
    return sums


@settings(max_examples=settings().max_examples // 4)
@given(rows, st.booleans(), st.permutations(range(30)))
def test_sums_give_the_same_estimate_as_all_values(
    drawn: list[tuple[int, bool, float | None]],
    shared: bool,  # noqa: FBT001
    order: list[int],
) -> None:
    """This holds for clusters by test or by a shared key, in any order."""
    groups = [1 + test % 3 if shared else test for test, _, _ in drawn]
    sums = summed(drawn, shared=shared)
    assert Approx(sums.score_interval()) == mean([score for _, _, score in drawn], groups)
    if (measured := sums.metric_intervals().get("m")) is not None:
        assert Approx(measured) == sums.score_interval()
    passes, plain = sums.pass_interval(), mean([float(passed) for _, passed, _ in drawn], groups)
    assert passes is not None
    assert plain is not None
    assert passes.mean == pytest.approx(plain.mean)
    assert passes.clusters == plain.clusters
    turned = summed([drawn[place] for place in order if place < len(drawn)], shared=shared)
    assert Approx(turned.pass_interval()) == passes
    assert Approx(turned.score_interval()) == sums.score_interval()


def test_tests_without_repeats_have_the_interval_of_wilson() -> None:
    """Each test is a separate cluster."""
    sums = summed([(test, test % 4 > 0, 1.0) for test in range(40)])
    assert sums.pass_interval() == proportion(30, 40)
    assert [*sums.repeated()] == []
    assert ColumnSums().pass_interval() is None


@settings(max_examples=settings().max_examples // 2)
@given(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.integers(1, 7)
)
def test_tries_are_drawn_without_replacement(tries: tuple[int, int], k: int) -> None:
    """Pass@k and pass^k are shares of all choices of k tries."""
    n, passed = tries
    if k > n:
        with pytest.raises(ValueError, match="must be 1 ≤ k ≤ n"):
            every_one(n, passed, k)
        return
    choices = [*itertools.combinations([1] * passed + [0] * (n - passed), k)]
    assert at_least_one(n, passed, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    assert every_one(n, passed, k) == pytest.approx(sum(map(all, choices)) / len(choices))


def test_repeats_are_averaged_over_tests() -> None:
    """Chen et al. (2021): 1 - Π (1 - k / i) for i from n - c + 1 to n; their standard errors are separate."""
    counts = {0: 2, 1: 5, 2: 0, 3: 1}
    drawn = [(test, place < passed, 1.0) for test, passed in counts.items() for place in range(5)]
    found = {k: (some, each) for k, some, each in summed(drawn).repeated()}
    assert [*found] == [1, 2, 3, 4, 5]

    def published(passed: int, k: int) -> float:
        if 5 - passed < k:
            return 1.0
        return 1 - math.prod(1 - k / i for i in range(5 - passed + 1, 6))

    for k, (some, each) in found.items():
        assert Approx(some) == mean([published(passed, k) for passed in counts.values()])
        assert each is not None
        assert each.n == 4
    assert Approx(found[1][0]) == found[1][1]


def test_repeats_of_a_test_are_one_cluster_in_every_column() -> None:
    """Tests are identified by their content; other tests in between have no effect."""
    holds = [{"type": "contains", "value": "say"}]
    tests = [
        {"vars": {"word": ["hi", "ho"]}, "assert": holds},
        {"vars": {"word": "hu"}, "metadata": {"cluster": 3}, "assert": holds},
    ]
    _, found = rows_of(SUITE | {"tests": tests, "evaluateOptions": {"repeat": 3}})
    totals = Totals.of(SUITE["providers"])
    for record in records_of(found):
        totals.add(RowRecord.of(record))
    for column in totals.columns:
        interval = column.sums.pass_interval()
        assert interval is not None
        assert (interval.n, interval.clusters) == (9, 3)
        data = column.json()["statistics"]
        assert [one["k"] for one in data["repeats"]] == [1, 2, 3]
        assert data["passRate"]["clusters"] == 3


def record_of(cluster: Any = None, **variables: Any) -> RowRecord:
    metadata = {} if cluster is None else {"cluster": cluster, "book": cluster}
    test = {"description": None, "metadata": metadata, "vars": {}}
    return RowRecord.of({"vars": variables, "testCase": test})


def test_a_cluster_comes_from_metadata_or_a_variable() -> None:
    """The default is the key `cluster`; a configured key is looked up in metadata first."""
    one, other = record_of("x", a=1, text="t"), record_of("x", a=2, text="u")
    third = record_of(None, a=3, text="t")
    assert place_of(one).cluster == place_of(other).cluster != place_of(third).cluster == 0
    assert place_of(one, "book").cluster == place_of(one).cluster
    assert place_of(one, "text").cluster == place_of(third, "text").cluster != 0
    assert (
        place_of(record_of({"deep": [1]}, a=1)).cluster
        == place_of(record_of({"deep": [1]})).cluster
    )
    assert place_of(one, "nothing") == RowPlace(place_of(one).test)


def test_a_test_needs_few_bytes() -> None:
    """It needs under 120 bytes for its pass, its score and a metric; a dict alone would need as many."""
    sums = ColumnSums()
    tracemalloc.start()
    for test in range(5000):
        key = test * 0x9E3779B97F4A7C15 % 2**64
        number = sums.add(RowPlace(key), passed=True, score=0.5)
        sums.add_metric(number, "m", 0.5, 1)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 120 * 5000
