"""Pairs of rows of one column in two runs: what is found of their differences."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.report.statistics.bootstrap import Bootstrap
from trioeval.report.statistics.estimates import CONFIDENCE, Estimate
from trioeval.report.statistics.grouped import Grouping, Place, Sums
from trioeval.report.statistics.paired import chance_of, clustered_mcnemar
from trioeval.report.statistics.paired_shares import clustered_paired_proportion
from trioeval.report.statistics.power import detectable, needed

Answer: TypeAlias = Literal["better", "worse", "no difference"]
"""Of the later run, beyond chance."""

EFFECTS = (0.01, 0.02, 0.05, 0.1)
"""Differences for which it is told how many rows they need."""

_MOST = 1e7
"""Deviations that a difference may be small: it would take as many rows as nobody has."""


@attrs.frozen(kw_only=True)
class Finding:
    """One number of a column in two runs: is it another one?"""

    before: Estimate | None
    """Of all rows of the earlier run; None where it has none."""
    after: Estimate | None
    difference: Estimate | None
    """Of the rows that both have; None where there are none."""
    p_value: float | None
    """How often chance alone makes so large a difference; None where nobody can know."""
    most: float = math.inf
    """The largest difference that there can be; of pass rates 1."""
    adjusted: float | None = None
    """The same, with regard to all the other questions that were asked."""

    @property
    def answer(self) -> Answer | None:
        """Whether it is better or worse beyond chance; None where nobody can know."""
        if self.difference is None or self.adjusted is None:
            return None
        if self.adjusted > 1 - self.difference.confidence:
            return "no difference"
        return "better" if self.difference.mean > 0 else "worse"

    @property
    def detectable(self) -> float | None:
        """The least difference that so many rows show in four of five comparisons.

        None if that is unknown, or if not even the largest that there can be is shown so often.
        """
        found = self.difference
        if found is None or found.standard_error is None:
            return None
        least = detectable(found.standard_error, found.clusters - 1, confidence=found.confidence)
        return least if least < self.most else None

    def needed(self, effect: float) -> int | None:
        """Rows, grouped like these, that show a difference in four of five comparisons.

        Args:
            effect: The difference, > 0.

        Returns:
            None if that is unknown, or more than anybody has.
        """
        found = self.difference
        if found is None or found.standard_error is None:
            return None
        deviation = found.standard_error * math.sqrt(found.n)
        if deviation > _MOST * effect:
            return None
        return needed(effect, deviation, confidence=found.confidence)

    def json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        told = {"before": self.before, "after": self.after, "difference": self.difference}
        return {
            **{name: None if one is None else one.json() for name, one in told.items()},
            "pValue": self.p_value,
            "adjustedPValue": self.adjusted,
            "answer": self.answer,
            "detectable": self.detectable,
            "neededRows": None
            if self.difference is None or self.difference.standard_error is None
            else {str(effect): self.needed(effect) for effect in EFFECTS},
        }


@attrs.define
class PairSums:
    """Differences, after - before, summed by test and cluster."""

    tests: Grouping = attrs.field(factory=Grouping)
    passes: Sums = attrs.field(factory=Sums)
    """1 of a row that became better, and -1 of one that became worse."""
    scores: Sums = attrs.field(factory=Sums)
    """Of rows that have a verdict in both runs."""
    metrics: dict[str, Sums] = attrs.field(factory=dict)
    better: int = 0
    """Rows of which only the later run passes."""
    worse: int = 0
    is_score_pass: bool = True
    """Whether the scores of all rows say the same as whether they passed."""

    def add(self, place: Place, *, passed: int, score: float | None) -> int:
        """Count a pair.

        Args:
            place: What it is of.
            passed: 1 if only the later one passed, -1 if only the earlier one, else 0.
            score: The difference of the scores; None unless both have a verdict.

        Returns:
            The number of its test, for `add_metric`.
        """
        test = self.tests.number(place)
        self.passes.add(test, passed)
        self.better += passed > 0
        self.worse += passed < 0
        if score is not None:
            self.scores.add(test, score)
        self.is_score_pass = self.is_score_pass and score == passed
        return test

    def add_metric(self, test: int, name: str, difference: float, weight: float) -> None:
        """Count the difference of a metric of a pair."""
        if (sums := self.metrics.get(name)) is None:
            sums = self.metrics[name] = Sums()
        sums.add(test, difference * weight, weight)

    def passed(
        self, before: Estimate | None, after: Estimate | None, confidence: float = CONFIDENCE
    ) -> Finding:
        """Whether other rows pass, by McNemar's test; of clusters, where rows belong together."""
        by_cluster = self.tests.by_cluster(self.passes)
        parted = self.better, self.worse
        found = clustered_paired_proportion(by_cluster, parted, self.passes.count, confidence)
        signs = (round(total) for total, _ in by_cluster())
        p_value = None if found is None else clustered_mcnemar(signs)
        return Finding(before=before, after=after, difference=found, p_value=p_value, most=1.0)

    def scored(
        self,
        before: Estimate | None,
        after: Estimate | None,
        confidence: float = CONFIDENCE,
        bootstrap: Bootstrap | None = None,
    ) -> Finding:
        """Whether scores are others, by Student's t, however the interval is made."""
        found = self.tests.mean(self.scores, confidence, bootstrap)
        return _found(found, before, after)

    def measured(
        self,
        before: Mapping[str, Estimate],
        after: Mapping[str, Estimate],
        confidence: float = CONFIDENCE,
        bootstrap: Bootstrap | None = None,
    ) -> Iterator[tuple[str, Finding]]:
        """The same of each metric, by name, sorted."""
        for name in sorted({*before, *after}):
            sums = self.metrics.get(name, _NOTHING)
            found = self.tests.mean(sums, confidence, bootstrap)
            yield name, _found(found, before.get(name), after.get(name))


def _found(found: Estimate | None, before: Estimate | None, after: Estimate | None) -> Finding:
    p_value = None if found is None else chance_of(found)
    if found is not None:
        are_shares = all(side is not None and side.within is not None for side in (before, after))
        found = attrs.evolve(found, within=(-1.0, 1.0) if are_shares else None)
    return Finding(before=before, after=after, difference=found, p_value=p_value)


_NOTHING = Sums()


def adjusted(findings: Sequence[Finding], p_values: Sequence[float | None]) -> Sequence[Finding]:
    """The same findings with adjusted p-values."""
    return [attrs.evolve(found, adjusted=p) for found, p in zip(findings, p_values, strict=True)]
