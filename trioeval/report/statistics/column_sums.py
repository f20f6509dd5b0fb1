"""Rows of one column: what its intervals are made of."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioeval.report.statistics.bootstrap import Bootstrap
from trioeval.report.statistics.estimates import CONFIDENCE, Estimate
from trioeval.report.statistics.grouped import Grouping, Place, Sums
from trioeval.report.statistics.proportions import clustered_proportion
from trioeval.report.statistics.repeats import at_least_one, every_one, shown_ks


@attrs.define
class ColumnSums:
    """What intervals of a column are made of."""

    tests: Grouping = attrs.field(factory=Grouping)
    passes: Sums = attrs.field(factory=Sums)
    """1 of a row that passed, and 0 of all others."""
    scores: Sums = attrs.field(factory=Sums)
    """Of rows that have a verdict."""
    metrics: dict[str, Sums] = attrs.field(factory=dict)

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

    def add_metric(self, test: int, name: str, total: float, weight: float) -> None:
        """Count a metric of a row: its value times its weight."""
        if (sums := self.metrics.get(name)) is None:
            sums = self.metrics[name] = Sums()
        sums.add(test, total, weight)

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
