"""Values of rows, summed by test and cluster: all that intervals need, in few bytes a test.

A million rows have to fit beside a run. So nothing of a row is kept, and of a test only numbers, in arrays:
about 25 bytes, and 20 for each value that is summed.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioeval.report.statistics.bootstrap import Bootstrap
from trioeval.report.statistics.estimates import (
    CONFIDENCE,
    LARGEST,
    ClusterSums,
    Estimate,
    at_least_one,
    clustered_proportion,
    every_one,
    ratio,
    shown_ks,
)

_FULL = 2 / 3  # of a table, above which it is made larger
_FREE = 0xFFFFFFFF


@attrs.frozen
class Place:
    """What a row is of, as numbers that are almost surely others for others."""

    test: int
    """64 bits. Repeats of a test have the same."""
    cluster: int = 0
    """64 bits; 0 for a test that is a cluster of its own."""


@attrs.define
class Numbering:
    """Numbers 64-bit keys from 0 in the order in which they come, in 12 to 24 bytes each.

    A hash table with open addressing: a dict takes a hundred bytes for each. Keys are digests,
    so their own bits spread them.

    Example:
        >>> numbering = Numbering()
        >>> [numbering.number(key) for key in (7, 2**64 - 1, 7)]
        [0, 1, 0]
    """

    _keys: "array[int]" = attrs.field(factory=lambda: array("Q"), repr=False)
    """By number."""
    _slots: "array[int]" = attrs.field(factory=lambda: array("I", [_FREE]) * 8, repr=False)
    """Numbers by place in the table, whose size is a power of 2."""

    def __len__(self) -> int:
        return len(self._keys)

    def number(self, key: int) -> int:
        """The number of a key, which gets one if it is new."""
        slot, found = self._find(key)
        if found == _FREE:
            found = self._slots[slot] = len(self._keys)
            self._keys.append(key)
            if len(self._keys) > _FULL * len(self._slots):
                self._grow()
        return found

    def _find(self, key: int) -> tuple[int, int]:
        """Where a key is, or would be, and its number."""
        slots, keys = self._slots, self._keys
        last = len(slots) - 1
        slot = key & last
        while (found := slots[slot]) != _FREE and keys[found] != key:
            slot = (slot + 1) & last
        return slot, found

    def _grow(self) -> None:
        self._slots = array("I", [_FREE]) * (2 * len(self._slots))
        for number, key in enumerate(self._keys):
            slot, _ = self._find(key)
            self._slots[slot] = number


@attrs.define
class Sums:
    """Values times weights, by the number of a test."""

    rows: "array[int]" = attrs.field(factory=lambda: array("I"), repr=False)
    totals: "array[float]" = attrs.field(factory=lambda: array("d"), repr=False)
    weights: "array[float]" = attrs.field(factory=lambda: array("d"), repr=False)
    is_share: bool = True
    """Whether all values are within 0 to 1."""

    @property
    def count(self) -> int:
        """All rows."""
        return sum(self.rows)

    def add(self, test: int, total: float, weight: float = 1) -> None:
        """Count a value times its weight, unless one of them is nothing that can be counted."""
        most = LARGEST * min(1, weight)
        if not (0 < weight <= LARGEST and -most <= total <= most):
            return
        self.is_share = self.is_share and 0 <= total <= weight
        if test >= len(self.rows):
            missing = test + 1 - len(self.rows)
            self.rows.frombytes(bytes(missing * self.rows.itemsize))
            self.totals.frombytes(bytes(8 * missing))
            self.weights.frombytes(bytes(8 * missing))
        self.rows[test] += 1
        self.totals[test] += total
        self.weights[test] += weight


@attrs.define
class Grouping:
    """Which tests there are, and which of them share a cluster."""

    _tests: Numbering = attrs.field(factory=Numbering)
    _clusters: "array[int]" = attrs.field(factory=lambda: array("Q"), repr=False)
    """By test; empty while each is its own."""

    def number(self, place: Place) -> int:
        """The number of a test, from 0."""
        test = self._tests.number(place.test)
        if place.cluster:
            if (missing := test + 1 - len(self._clusters)) > 0:
                self._clusters.extend([0] * missing)
            self._clusters[test] = place.cluster
        return test

    def mean(
        self, sums: Sums, confidence: float = CONFIDENCE, bootstrap: Bootstrap | None = None
    ) -> Estimate | None:
        """The mean of what was summed, with an interval that is drawn if that is said; None of nothing."""
        by_cluster = self.by_cluster(sums)
        found = ratio(by_cluster, sums.count, confidence)
        if found is None:
            return None
        if sums.is_share:
            found = attrs.evolve(found, within=(0.0, 1.0))
        if bootstrap is None:
            return found
        return bootstrap.interval(found, by_cluster())

    def by_cluster(self, sums: Sums) -> ClusterSums:
        """Sums of clusters that have rows: each of a test, but for those that share one."""
        if not self._clusters:
            return lambda: (
                (total, weight)
                for total, weight in zip(sums.totals, sums.weights, strict=True)
                if weight
            )
        joined: dict[int, tuple[float, float]] = {}
        alone: list[int] = []
        for test, weight in enumerate(sums.weights):
            cluster = self._clusters[test] if test < len(self._clusters) else 0
            if weight and cluster:
                total, whole = joined.get(cluster, (0.0, 0.0))
                joined[cluster] = total + sums.totals[test], whole + weight
            elif weight:
                alone.append(test)

        def found() -> Iterator[tuple[float, float]]:
            yield from joined.values()
            for test in alone:
                yield sums.totals[test], sums.weights[test]

        return found


@attrs.define
class SumsByTest:
    """What is summed of the rows of a column, or of pairs of them."""

    tests: Grouping = attrs.field(factory=Grouping)
    passes: Sums = attrs.field(factory=Sums)
    scores: Sums = attrs.field(factory=Sums)
    metrics: dict[str, Sums] = attrs.field(factory=dict)

    def add_metric(self, test: int, name: str, total: float, weight: float) -> None:
        """Count a metric of a test by its number: its value times its weight."""
        if (sums := self.metrics.get(name)) is None:
            sums = self.metrics[name] = Sums()
        sums.add(test, total, weight)


@attrs.define
class ColumnSums(SumsByTest):
    """What intervals of a column are made of.

    `passes` has 1 of a row that passed and 0 of all others, `scores` and `metrics` those of rows that have a
    verdict.
    """

    def add(self, place: Place, *, passed: bool, score: float | None) -> int:
        """Count a row.

        Args:
            place: What it is of.
            passed: Whether it passed.
            score: None of a row without a verdict.

        Returns:
            The number of its test, for `add_metric`.
        """
        test = self.tests.number(place)
        self.passes.add(test, float(passed))
        if score is not None:
            self.scores.add(test, score)
        return test

    @property
    def repeats(self) -> int:
        """The most rows of one test."""
        return max(self.passes.rows, default=0)

    def pass_interval(self, confidence: float = CONFIDENCE) -> Estimate | None:
        """The share of rows that passed."""
        sums = self.tests.by_cluster(self.passes)
        return clustered_proportion(sums, self.passes.count, confidence)

    def score_interval(
        self, confidence: float = CONFIDENCE, bootstrap: Bootstrap | None = None
    ) -> Estimate | None:
        """The mean score of rows that have a verdict."""
        return self.tests.mean(self.scores, confidence, bootstrap)

    def metric_intervals(
        self, confidence: float = CONFIDENCE, bootstrap: Bootstrap | None = None
    ) -> Mapping[str, Estimate]:
        """The weighted means of the metrics, by name, sorted."""
        found = {
            name: self.tests.mean(sums, confidence, bootstrap)
            for name, sums in sorted(self.metrics.items())
        }
        return {name: estimate for name, estimate in found.items() if estimate is not None}

    def repeated(
        self, confidence: float = CONFIDENCE
    ) -> Iterator[tuple[int, Estimate | None, Estimate | None]]:
        """For some k up to the most repeats of a test, pass@k and pass^k; nothing if no test has any.

        They are means over the tests that have at least k rows.
        """
        counts = Counter(zip(self.passes.rows, map(round, self.passes.totals), strict=True))
        for k in shown_ks(self.repeats):
            chances = {
                (n, passed): (at_least_one(n, passed, k), every_one(n, passed, k))
                for n, passed in counts
                if n >= k
            }
            some, each = (self._of_tests(chances, which, confidence) for which in (0, 1))
            yield k, some, each

    def json(self) -> dict[str, Any]:
        """The intervals, as documents tell them."""
        passes, scores = self.pass_interval(), self.score_interval()
        found: dict[str, Any] = {
            "passRate": None if passes is None else passes.json(),
            "score": None if scores is None else scores.json(),
            "namedScores": {name: one.json() for name, one in self.metric_intervals().items()},
        }
        repeats = [
            {
                "k": k,
                "passAtLeastOne": None if some is None else some.json(),
                "passAll": None if each is None else each.json(),
            }
            for k, some, each in self.repeated()
        ]
        return found | ({"repeats": repeats} if repeats else {})

    def _of_tests(
        self, chances: Mapping[tuple[int, int], tuple[float, float]], which: int, confidence: float
    ) -> Estimate | None:
        sums = Sums()
        for test, (n, total) in enumerate(zip(self.passes.rows, self.passes.totals, strict=True)):
            if (found := chances.get((n, round(total)))) is not None:
                sums.add(test, found[which])
        return self.tests.mean(sums, confidence)
