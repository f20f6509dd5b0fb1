"""Values of rows, summed by test and cluster: the data of intervals, in few bytes for each test.

A million rows have to fit beside a run, so nothing is held of a row, and of a test only numbers in arrays:
about 25 bytes, and 20 for each summed value.
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

_FULL = 2 / 3  # of the table; a fuller one is enlarged
_FREE = 0xFFFFFFFF


@attrs.define  # not frozen: every row has one
class RowPlace:
    """The test and the cluster of a row as digests."""

    test: int
    """64 bits, the same for repeats of a test."""
    cluster: int = 0
    """64 bits; 0 if the test is its own cluster."""


@attrs.define
class KeyNumbers:
    """A numbering of 64-bit keys from 0, in the order of their arrival, in 12 to 24 bytes for each.

    A hash table with open addressing, as a dict takes a hundred bytes for each key. Keys are digests, and
    their own bits spread them.

    Example:
        >>> numbering = KeyNumbers()
        >>> [numbering.number(key) for key in (7, 2**64 - 1, 7)]
        [0, 1, 0]
    """

    _keys: "array[int]" = attrs.field(factory=lambda: array("Q"), repr=False)
    """The keys by number."""
    _slots: "array[int]" = attrs.field(factory=lambda: array("I", [_FREE]) * 8, repr=False)
    """The numbers by position in the table, whose size is a power of 2."""

    def __len__(self) -> int:
        return len(self._keys)

    def number(self, key: int) -> int:
        """Return the number of a key; a new key gets the next number."""
        slot, found = self._find(key)
        if found == _FREE:
            found = self._slots[slot] = len(self._keys)
            self._keys.append(key)
            if len(self._keys) > _FULL * len(self._slots):
                self._grow()
        return found

    def _find(self, key: int) -> tuple[int, int]:
        """Return the position of a key in the table, and its number."""
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
    """Sums of values times weights, by the number of a test."""

    rows: "array[int]" = attrs.field(factory=lambda: array("I"), repr=False)
    totals: "array[float]" = attrs.field(factory=lambda: array("d"), repr=False)
    weights: "array[float]" = attrs.field(factory=lambda: array("d"), repr=False)
    is_share: bool = True
    """True if all values are within 0 to 1."""

    @property
    def count(self) -> int:
        """The number of all rows."""
        return sum(self.rows)

    def add(self, test: int, total: float, weight: float = 1) -> None:
        """Count a value times its weight, unless one of them is out of range."""
        most = LARGEST if weight >= 1 else LARGEST * weight
        if not (0 < weight <= LARGEST and -most <= total <= most):
            return
        self.is_share = self.is_share and 0 <= total <= weight
        if test == len(self.rows):  # as a rule, the next test
            self.rows.append(1)
            self.totals.append(total)
            self.weights.append(weight)
            return
        if test > len(self.rows):
            missing = test + 1 - len(self.rows)
            self.rows.frombytes(bytes(missing * self.rows.itemsize))
            self.totals.frombytes(bytes(8 * missing))
            self.weights.frombytes(bytes(8 * missing))
        self.rows[test] += 1
        self.totals[test] += total
        self.weights[test] += weight


@attrs.define
class TestClusters:
    """The tests, and the clusters that they share."""

    _tests: KeyNumbers = attrs.field(factory=KeyNumbers)
    _clusters: "array[int]" = attrs.field(factory=lambda: array("Q"), repr=False)
    """The clusters by test; empty while each test is its own."""

    def number(self, place: RowPlace) -> int:
        """Return the number of a test, from 0."""
        test = self._tests.number(place.test)
        if place.cluster:
            if (missing := test + 1 - len(self._clusters)) > 0:
                self._clusters.extend([0] * missing)
            self._clusters[test] = place.cluster
        return test

    def mean(
        self, sums: Sums, confidence: float = CONFIDENCE, bootstrap: Bootstrap | None = None
    ) -> Estimate | None:
        """Return the mean of the sums, with a bootstrap interval if one is given; None without values."""
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
        """Yield the sums of clusters with rows; a test without a cluster is its own."""
        if not self._clusters:
            if all(sums.weights):
                return lambda: zip(sums.totals, sums.weights, strict=True)
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
    """The sums of the rows of a column, or of pairs of rows."""

    tests: TestClusters = attrs.field(factory=TestClusters)
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
    """The data of the intervals of a column.

    `passes` has 1 for a row that passed and 0 for others, `scores` and `metrics` those of rows with a
    verdict.
    """

    def add(self, place: RowPlace, *, passed: bool, score: float | None) -> int:
        """Count a row.

        Args:
            place: Its test and its cluster.
            passed: Whether the row passed.
            score: The score; None without a verdict.

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
        """Return the share of rows that passed, with its interval."""
        sums = self.tests.by_cluster(self.passes)
        return clustered_proportion(sums, self.passes.count, confidence)

    def score_interval(
        self, confidence: float = CONFIDENCE, bootstrap: Bootstrap | None = None
    ) -> Estimate | None:
        """Return the mean score of the rows with a verdict."""
        return self.tests.mean(self.scores, confidence, bootstrap)

    def metric_intervals(
        self, confidence: float = CONFIDENCE, bootstrap: Bootstrap | None = None
    ) -> Mapping[str, Estimate]:
        """Return the weighted means of the metrics, by name, sorted."""
        found = {
            name: self.tests.mean(sums, confidence, bootstrap)
            for name, sums in sorted(self.metrics.items())
        }
        return {name: estimate for name, estimate in found.items() if estimate is not None}

    def repeated(
        self, confidence: float = CONFIDENCE
    ) -> Iterator[tuple[int, Estimate | None, Estimate | None]]:
        """Yield pass@k and pass^k for some k up to the most repeats; nothing if no test has repeats.

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
        """Return the intervals in the format of documents."""
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
