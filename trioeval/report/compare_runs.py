"""The changes of the rows of one column between two runs."""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.evaluation.status import has_ended
from trioeval.report.records import RowRecord
from trioeval.report.statistics.bootstrap import Bootstrap
from trioeval.report.statistics.estimates import CONFIDENCE, Estimate
from trioeval.report.statistics.grouped import ColumnSums, RowPlace
from trioeval.report.statistics.paired import DifferenceFinding, PairSums, adjusted, holm
from trioeval.report.totals import shares_of
from trioeval.run import Status

Kind: TypeAlias = Literal["same", "better", "worse", "changed", "new", "gone", "unfinished"]
"""The kind of a change. `changed`: another score or output, the same verdict, or a row that only one of the
runs has graded; an error is worse than a fail.
`unfinished`: the row did not end in one of the runs, and is not compared."""

KINDS: tuple[Kind, ...] = ("same", "better", "worse", "changed", "new", "gone", "unfinished")


@attrs.define  # not frozen: every row has one
class Side:
    """A row in one of the runs."""

    status: Status
    score: float

    @property
    def judged(self) -> float | None:
        """The score; None if it was not graded."""
        return self.score if self.status.is_graded and math.isfinite(self.score) else None


@attrs.define  # not frozen: every row has one
class UnreadRow:
    """A stored row of which a comparison reads a few members only; its record is made if it is shown."""

    json: Mapping[str, Any] = attrs.field(repr=False)
    """The members of its JSON that a comparison reads."""
    index: int
    status: Status
    outcome: str
    read: Callable[[], Mapping[str, Any]] = attrs.field(repr=False)
    """Returns all of its JSON."""

    @property
    def is_ended(self) -> bool:
        """True if its job ended by itself."""
        return has_ended(self.outcome)

    @property
    def record(self) -> RowRecord:
        """The whole record."""
        return RowRecord.of(self.read(), index=self.index)


@attrs.define  # not frozen: every row has one
class ComparedRow:
    """The members of a row that a comparison needs."""

    key: bytes
    """The same for rows that match."""
    task: str | None
    prompt_idx: int
    column: str
    """The provider and the prompt."""
    place: RowPlace
    side: Side
    is_ended: bool
    output: int
    """The hash of the output: 64 bits, in this process alone."""
    metrics: Mapping[str, tuple[float, float]]
    """The value and the weight of each metric."""


@attrs.define
class SideTotals:
    """The rows of a column in one of the runs."""

    name: str | None = None
    """Provider and prompt; None if the run lacks the column."""
    statuses: Counter[Status] = attrs.field(factory=Counter)
    score: float = 0
    left: int = 0
    """Rows that did not end; no other number includes them."""
    sums: ColumnSums = attrs.field(factory=ColumnSums, repr=False)
    """The data of intervals."""

    @property
    def rows(self) -> int:
        """The number of rows that ended."""
        return self.statuses.total()

    @property
    def not_graded(self) -> int:
        """Rows with a reply that nothing graded."""
        return self.statuses[Status.NOT_GRADED]

    @property
    def rated(self) -> int:
        """Rows that the pass rate is about: those that ended, except those that were not graded."""
        return self.rows - self.not_graded

    @property
    def mean_score(self) -> float | None:
        """The mean score of the graded rows; None if there are none."""
        found = self.sums.score_interval()
        return None if found is None else found.mean

    def add(self, row: ComparedRow) -> None:
        """Count a row of the column."""
        self.name = self.name or row.column
        if not row.is_ended:
            self.left += 1
            return
        status = row.side.status
        self.statuses[status] += 1
        if status is Status.NOT_GRADED:
            return
        self.score += row.side.score
        test = self.sums.add(row.place, passed=status is Status.PASS, score=row.side.judged)
        for metric, (value, weight) in row.metrics.items():
            self.sums.add_metric(test, metric, value * weight, weight)

    def json(self) -> dict[str, Any] | None:
        """Return JSON data; None if the run lacks the column."""
        if self.name is None:
            return None
        counts = {status.value: self.statuses[status] for status in Status}
        ended = {"rows": self.rows, **counts, "score": self.score}
        return {"name": self.name, **ended, "unfinished": self.left}


_NO_METRICS: Mapping[str, tuple[float, float]] = {}


def metrics_of(
    verdict: Mapping[str, Any] | None, status: Status
) -> Mapping[str, tuple[float, float]]:
    """Return the value and weight of each metric of a verdict, if its row was graded."""
    if not verdict or not status.is_graded or not verdict["namedScores"]:
        return _NO_METRICS
    return {
        share.name: (share.total / share.weight, share.weight)
        for share in shares_of(verdict)
        if share.weight > 0 and math.isfinite(share.total) and math.isfinite(share.weight)
    }


@attrs.define
class ColumnChange:
    """The changes of the rows of one column."""

    task: str | None
    before: SideTotals = attrs.field(factory=SideTotals)
    after: SideTotals = attrs.field(factory=SideTotals)
    kinds: Counter[Kind] = attrs.field(factory=Counter)
    pairs: PairSums = attrs.field(factory=PairSums, repr=False)
    """Rows that are in both runs."""

    def add_pair(
        self, before: Side, row: ComparedRow, old: Mapping[str, tuple[float, float]]
    ) -> None:
        """Count a row that is in both runs; one that was not graded in one of them forms no pair.

        Args:
            before: The row in the old run.
            row: The row in the new run.
            old: The metrics of the row in the old run.
        """
        after, new = row.side, row.metrics
        if Status.NOT_GRADED in {before.status, after.status}:
            return
        passed = (after.status is Status.PASS) - (before.status is Status.PASS)
        judged = before.judged, after.judged
        score = None if judged[0] is None or judged[1] is None else judged[1] - judged[0]
        test = self.pairs.add(row.place, passed=passed, score=score)
        for name in old.keys() & new.keys():
            (was, own), (is_, other) = old[name], new[name]
            weight = (own + other) / 2
            self.pairs.add_metric(test, name, (is_ - was) * weight, weight)

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {
            "task": self.task,
            "before": self.before.json(),
            "after": self.after.json(),
            "rows": {kind: self.kinds[kind] for kind in KINDS},
        }


@attrs.define
class KeptMetrics:
    """The metrics of many rows, by row number, in 16 bytes each."""

    _values: dict[str, "array[float]"] = attrs.field(factory=dict, repr=False)
    """Values and weights of each metric in turn; a weight of 0 marks a missing value."""

    def add(self, row: int, metrics: Mapping[str, tuple[float, float]]) -> None:
        """Store the metrics of a row; rows are added in order."""
        for name, pair in metrics.items():
            if (values := self._values.get(name)) is None:
                values = self._values[name] = array("d")
            values.frombytes(bytes(8 * (2 * row - len(values))))
            values.extend(pair)

    def of(self, row: int) -> Mapping[str, tuple[float, float]]:
        """Return the metrics of a row."""
        return dict(self._found(row))

    def _found(self, row: int) -> Iterator[tuple[str, tuple[float, float]]]:
        for name, values in self._values.items():
            if 2 * row < len(values) and values[2 * row + 1]:
                yield name, (values[2 * row], values[2 * row + 1])


# Whether one run is better or worse than another beyond chance, for all columns.
#
# Two hypotheses are tested for each column: that other rows pass, and that scores differ. These tests
# decide. Their p-values are adjusted for their number by Holm's method, so that the chance to call two
# equal runs different does not grow with the number of columns. If the scores of a column only repeat
# whether its rows passed, there is one test. The p-values of metrics are adjusted among themselves, and
# metrics decide nothing.
#
# An error counts as not passed; it has no score, so a pair with one has no difference of scores. Rows that
# did not end, or were not graded, form no pairs.


@attrs.frozen(kw_only=True)
class ColumnFindings:
    """The findings about one column."""

    passed: DifferenceFinding
    scored: DifferenceFinding
    metrics: Mapping[str, DifferenceFinding]
    """The findings about metrics, by name."""
    is_score_pass: bool
    """True if the scores of all pairs only repeat whether the rows passed."""

    @property
    def deciding(self) -> Sequence[DifferenceFinding]:
        """The findings that decide whether the column is better or worse."""
        return (self.passed,) if self.is_score_pass else (self.passed, self.scored)

    @property
    def pairs(self) -> int:
        """Rows that are in both runs."""
        return 0 if self.passed.difference is None else self.passed.difference.n

    def named(self) -> Iterator[tuple[str, DifferenceFinding]]:
        """All findings with their names."""
        yield "pass rate", self.passed
        yield "score", self.scored
        yield from self.metrics.items()

    def findings(self) -> Iterator[tuple[str, DifferenceFinding]]:
        """The findings to show: a score that equals the pass rate is left out."""
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
        """Return JSON data."""
        return {
            "passRate": self.passed.json(),
            "score": self.scored.json(),
            "namedScores": {name: found.json() for name, found in self.metrics.items()},
        }


@attrs.frozen
class Findings:
    """The findings about two runs."""

    columns: Sequence[ColumnFindings]
    """The findings in the order of the columns."""
    bootstrap: Bootstrap | None = None
    """The bootstrap of the intervals of scores and metrics; None if none was used."""

    @property
    def pairs(self) -> int:
        """Rows that are in both runs."""
        return sum(column.pairs for column in self.columns)

    @property
    def is_worse(self) -> bool:
        """True if a column is worse beyond chance."""
        return "worse" in self._answers()

    @property
    def is_better(self) -> bool:
        """True if a column is better beyond chance."""
        return "better" in self._answers()

    @property
    def is_known(self) -> bool:
        """True if the runs can be compared: not without any pair, or if each column is one cluster."""
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
    """Return the findings about two runs whose rows were all read.

    Args:
        columns: The changes of each column.
        confidence: The confidence of intervals, and of calling a column better or worse.
        bootstrap: The bootstrap of intervals of scores and metrics; None uses Student's t. Decides nothing.
    """
    raw = [_column(column, confidence, bootstrap) for column in columns]
    deciding = [found for column in raw for found in column.deciding]
    decided = iter(_adjusted(deciding))
    measured = iter(_adjusted([found for column in raw for found in column.metrics.values()]))
    return Findings([_with(column, decided, measured) for column in raw], bootstrap)


def _adjusted(findings: Sequence[DifferenceFinding]) -> Sequence[DifferenceFinding]:
    return adjusted(findings, holm([found.p_value for found in findings]))


def _with(
    column: ColumnFindings,
    decided: Iterator[DifferenceFinding],
    measured: Iterator[DifferenceFinding],
) -> ColumnFindings:
    passed = next(decided)
    if column.is_score_pass:  # one test and one answer
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
