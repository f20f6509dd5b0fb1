"""Whether one run is better or worse than another one beyond chance: the numbers of all columns.

Two questions are asked of each column: whether other rows pass, and whether scores are others. They decide,
and their p-values are adjusted for their number by Holm's method, so that the chance to call two equal runs
different stays that of one question however many columns there are. Where the scores of a column say the same
as whether its rows passed, that is one question. Metrics are shown with the same care, among themselves, and
decide nothing.

An error has not passed; it has no score, and a pair with one has no difference of scores. Rows that never
came to an end are no pairs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.report.compare_columns import ColumnChange
from trioeval.report.statistics import CONFIDENCE, Bootstrap, Estimate, Finding, adjusted, holm


@attrs.frozen(kw_only=True)
class ColumnFindings:
    """What was found of one column."""

    passed: Finding
    scored: Finding
    metrics: Mapping[str, Finding]
    """By name."""
    is_score_pass: bool
    """Whether the scores of all pairs say the same as whether they passed."""

    @property
    def deciding(self) -> Sequence[Finding]:
        """Those that say whether the column is better or worse."""
        return (self.passed,) if self.is_score_pass else (self.passed, self.scored)

    @property
    def pairs(self) -> int:
        """Rows that both runs have."""
        return 0 if self.passed.difference is None else self.passed.difference.n

    def named(self) -> Iterator[tuple[str, Finding]]:
        """All of them with what they are of."""
        yield "pass rate", self.passed
        yield "score", self.scored
        yield from self.metrics.items()

    def told(self) -> Iterator[tuple[str, Finding]]:
        """Those of them that say something, for people: no score that is the pass rate."""
        is_same = self.is_score_pass and all(
            _mean(one) == _mean(other)
            for one, other in (
                (self.passed.before, self.scored.before),
                (self.passed.after, self.scored.after),
            )
        )
        for name, found in self.named():
            if found is not self.scored or not is_same:
                yield name, found

    def json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        return {
            "passRate": self.passed.json(),
            "score": self.scored.json(),
            "namedScores": {name: found.json() for name, found in self.metrics.items()},
        }


@attrs.frozen
class Findings:
    """What was found of two runs."""

    columns: Sequence[ColumnFindings]
    """In the order of the columns."""
    bootstrap: Bootstrap | None = None
    """How intervals of scores and metrics were drawn, if they were."""

    @property
    def pairs(self) -> int:
        """Rows that both runs have."""
        return sum(column.pairs for column in self.columns)

    @property
    def is_worse(self) -> bool:
        """Whether some column is worse beyond chance."""
        return "worse" in self._answers()

    @property
    def is_better(self) -> bool:
        """Whether some column is better beyond chance."""
        return "better" in self._answers()

    @property
    def is_known(self) -> bool:
        """Whether anything can be said: not if there is no pair, or each column is one cluster."""
        return any(answer is not None for answer in self._answers())

    def _answers(self) -> set[str | None]:
        return {found.answer for column in self.columns for found in column.deciding}


def _mean(found: Estimate | None) -> float | None:
    return None if found is None else found.mean


def findings_of(
    columns: Iterable[ColumnChange],
    confidence: float = CONFIDENCE,
    bootstrap: Bootstrap | None = None,
) -> Findings:
    """What is found of the columns of two runs, all of whose rows were read.

    Args:
        columns: What became of each.
        confidence: Of intervals, and of what is called better or worse.
        bootstrap: How intervals of scores and metrics are drawn; None takes Student's. It decides nothing.
    """
    raw = [_column(column, confidence, bootstrap) for column in columns]
    asked = [found for column in raw for found in column.deciding]
    decided = iter(_adjusted(asked))
    measured = iter(_adjusted([found for column in raw for found in column.metrics.values()]))
    return Findings([_with(column, decided, measured) for column in raw], bootstrap)


def _adjusted(findings: Sequence[Finding]) -> Sequence[Finding]:
    return adjusted(findings, holm([found.p_value for found in findings]))


def _with(
    column: ColumnFindings, decided: Iterator[Finding], measured: Iterator[Finding]
) -> ColumnFindings:
    passed = next(decided)
    if column.is_score_pass:  # one question, and one answer
        own = column.scored
        scored = attrs.evolve(own, p_value=passed.p_value, adjusted=passed.adjusted)
    else:
        scored = next(decided)
    metrics = {name: next(measured) for name in column.metrics}
    return attrs.evolve(column, passed=passed, scored=scored, metrics=metrics)


def _column(column: ColumnChange, confidence: float, bootstrap: Bootstrap | None) -> ColumnFindings:
    before, after, pairs = column.before.sums, column.after.sums, column.pairs
    passed = [sums.pass_interval(confidence) for sums in (before, after)]
    scored = [sums.score_interval(confidence, bootstrap) for sums in (before, after)]
    metrics = [sums.metric_intervals(confidence, bootstrap) for sums in (before, after)]
    return ColumnFindings(
        passed=pairs.passed(passed[0], passed[1], confidence),
        scored=pairs.scored(scored[0], scored[1], confidence, bootstrap),
        metrics=dict(pairs.measured(metrics[0], metrics[1], confidence, bootstrap)),
        is_score_pass=pairs.is_score_pass,
    )
