"""Values of rows, summed by test and cluster: all that intervals need, in few bytes a test.

A million rows have to fit beside a run. So nothing of a row is kept, and of a test only numbers, in arrays:
about 25 bytes, and 20 for each value that is summed.
"""

from array import array
from collections.abc import Iterator

import attrs

from trioeval.report.statistics.bootstrap import Bootstrap
from trioeval.report.statistics.estimates import CONFIDENCE, LARGEST, ClusterSums, Estimate, ratio

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
