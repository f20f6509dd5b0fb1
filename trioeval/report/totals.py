"""Running totals of a run: everything that reports show besides its rows.

Rows are counted in order and not held. Memory grows by one number for each row, its latency, because an
exact percentile needs all of them, and by some numbers for each test, which its repeats share, because an
interval needs them. Sums are added in the order of the rows, so they do not depend on which row finished
first.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from trioeval.documents.files import FileContext, names_file
from trioeval.documents.mistakes import MistakenError
from trioeval.evaluation.identity import canonical, number_of_test
from trioeval.grading import quote
from trioeval.grading.expressions import ExpressionError, parse
from trioeval.question_eval.counts import QuestionCounts
from trioeval.report.counts import rate_text
from trioeval.report.records import RowRecord
from trioeval.report.statistics.grouped import ColumnSums, RowPlace
from trioeval.report.usage import UsageSum
from trioeval.run import Status
from trioeval.suite.model import DerivedMetric
from trioeval.suite.test_form import COUNT
from trioeval.text import counted

if TYPE_CHECKING:
    from trioeval.question_eval.counts import QuestionOutcome
    from trioeval.report.statistics.estimates import Estimate

# The groups of rows that are not independent: repeats of a test, and tests of a cluster.


CLUSTER = "cluster"
"""The default key of a test's metadata that names its cluster."""


def place_of(record: RowRecord, cluster: str | None = None) -> RowPlace:
    """Return the test and the cluster of a row.

    Rows of one column belong to the same test if they have the same variables and the same description.

    Args:
        record: The row.
        cluster: The key of metadata, or else the variable, that names the cluster. None uses the key
            `cluster` of metadata only.

    Example:
        >>> first = {
        ...     "vars": {"a": 1},
        ...     "testCase": {"description": None, "metadata": {"cluster": "x"}},
        ... }
        >>> second = first | {"vars": {"a": 2}}
        >>> one, other = place_of(RowRecord.of(first)), place_of(RowRecord.of(second))
        >>> one.test == other.test, one.cluster == other.cluster
        (False, True)
    """
    test = record.test
    # The variables of the test are the same in all columns and repeats; those of a row may hold outputs.
    variables = test.get("vars") or record.vars
    known_as = test.get("case") or test.get("description")
    own = number_of_test(variables, known_as)
    return RowPlace(own, cluster_number(cluster_of(test, record.vars, cluster)))


def cluster_number(named: Any) -> int:
    """Return the digest of what names a cluster: 64 bits; 0 for None."""
    if named is None:
        return 0
    digest = hashlib.blake2b(canonical(named).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big") | 1


def cluster_of(
    test: Mapping[str, Any], variables: Mapping[str, Any], name: str | None = None
) -> Any:
    """Return the value that names the cluster of a row, as for `place_of`; None without a cluster.

    Args:
        test: The test of the row, as JSON.
        variables: The variables of the row.
        name: The key of metadata, or else the variable; None uses the key `cluster` of metadata only.
    """
    metadata = test.get("metadata")
    found = (
        metadata.get(CLUSTER if name is None else name) if isinstance(metadata, Mapping) else None
    )
    return variables.get(name) if found is None and name is not None else found


# Metrics of a row: the contribution of its verdict to each of them.


@attrs.define  # not frozen: every row has some
class MetricShare:
    """The contribution of one row to a metric."""

    name: str
    total: float
    """The score times the weight."""
    weight: float
    count: int
    """The number of assertions with this metric."""


def shares_of(verdict: Mapping[str, Any]) -> Iterator[MetricShare]:
    """Yield the contribution of a verdict to each of its metrics.

    Args:
        verdict: A verdict as in a record; see `trioeval.report.row.verdict_text`.

    Example:
        >>> verdict = {
        ...     "namedScores": {"m": 0.5},
        ...     "namedScoreWeights": {"m": 2},
        ...     "componentResults": [],
        ... }
        >>> list(shares_of(verdict))
        [MetricShare(name='m', total=1.0, weight=2, count=1)]
    """
    if not verdict["namedScores"]:
        return
    counts: dict[str, int] = {}
    for part in verdict["componentResults"]:
        # The metric of a set is stored elsewhere; only its members are counted here.
        metric = part.get("assertion", {}).get("metric")
        if metric is not None:
            counts[metric] = counts.get(metric, 0) + 1
    weights = verdict.get("namedScoreWeights", {})
    for name, score in verdict["namedScores"].items():
        # A name from elsewhere, such as an extension, is one contribution.
        count = counts.get(name, 1)
        weight = weights.get(name)
        if weight is None:
            yield MetricShare(name, score, count, count)
        else:
            yield MetricShare(name, score * weight, weight, count)


LATENCY_SHARES = (0.50, 0.95)
"""The shares of calls whose greatest latency reports show."""


class ColumnIntervals(Protocol):
    """The intervals of a column that reports show, at the default confidence."""

    def pass_interval(self) -> Estimate | None:
        """Return the share of rows that passed; None without rated rows."""
        ...

    def score_interval(self) -> Estimate | None:
        """Return the mean score of the graded rows; None without any."""
        ...

    def json(self) -> dict[str, Any]:
        """Return the intervals in the format of documents."""
        ...


@attrs.define
class ColumnTotals:
    """The totals of the rows of one column."""

    statuses: Counter[Status] = attrs.field(factory=Counter)
    outcomes: Counter[str] = attrs.field(factory=Counter)
    """The number of rows by outcome: `done`, `failed`, `timed_out`, `interrupted`, `blocked`, `not_run`."""
    score: float = 0
    passed_parts: int = 0
    failed_parts: int = 0
    latency_ms: float = 0
    latencies: array[float] = attrs.field(factory=lambda: array("d"), repr=False)
    """Milliseconds of each measured call; replies from the cache are left out."""
    replies: int = 0
    """Rows with a reply."""
    cut_off: int = 0
    """Rows whose reply was cut off at its token limit, with an output or without."""
    from_cache: int = 0
    """Rows whose reply came from the cache."""
    cached_tokens: int = 0
    """Tokens of those replies when they were made; they are not used again."""
    usage: UsageSum = attrs.field(factory=UsageSum)
    cost: float | None = None
    """US dollars; None while no row has a cost."""
    grading_cost: float | None = None
    """US dollars of judges, which `cost` does not include."""
    named_scores: dict[str, float] = attrs.field(factory=dict)
    """Sums of score times weight, by metric."""
    named_weights: dict[str, float] = attrs.field(factory=dict)
    named_counts: Counter[str] = attrs.field(factory=Counter)
    derived: dict[str, float] = attrs.field(factory=dict)
    """Derived metrics, computed when all rows are counted."""
    questions: QuestionCounts = attrs.field(factory=QuestionCounts)
    """The outcomes of questions, if rows are questions."""
    attempts: int | None = None
    """Attempts of agents; None without agents."""
    sums: ColumnSums = attrs.field(factory=ColumnSums, repr=False)
    """The data of intervals."""

    @property
    def intervals(self) -> ColumnIntervals:
        """The intervals that reports show."""
        return self.sums

    def latency_at(self, share: float) -> float | None:
        """Return the latency that so large a share of measured calls does not exceed; None without calls.

        Args:
            share: One of `LATENCY_SHARES`.
        """
        return nearest_rank(self.latencies, share)

    @property
    def tokens(self) -> int:
        """Tokens used by this run, without judges."""
        return self.usage["total"] - self.cached_tokens

    @property
    def rows(self) -> int:
        """The number of rows of the column."""
        return self.statuses.total()

    @property
    def left(self) -> int:
        """Rows that did not end because the run was stopped, or that are blocked; rates leave them out."""
        return self.statuses[Status.NOT_RUN]

    @property
    def ended(self) -> int:
        """Rows that ended."""
        return self.rows - self.left

    @property
    def passed(self) -> int:
        """Rows whose assertions hold."""
        return self.statuses[Status.PASS]

    @property
    def not_graded(self) -> int:
        """Rows with a reply that nothing graded."""
        return self.statuses[Status.NOT_GRADED]

    @property
    def rated(self) -> int:
        """Rows that the pass rate is about: those that ended, except those that were not graded."""
        return self.ended - self.not_graded

    @property
    def rate(self) -> str:
        """The pass rate as text."""
        return rate_text(self.passed, self.rated, not_graded=self.not_graded)

    def add(self, record: RowRecord, place: RowPlace | None = None) -> None:
        """Count a row.

        Args:
            record: The record with all of its parts.
            place: Its test and its cluster; None computes them.
        """
        self.statuses[record.status] += 1
        self.outcomes[record.outcome] += 1
        self.score += record.score
        self.latency_ms += record.latency_ms or 0
        self.replies += record.response is not None
        self.cut_off += record.is_cut_off
        if record.is_from_cache:
            self.from_cache += 1
            self.cached_tokens += record.tokens
        elif record.latency_ms is not None:
            self.latencies.append(record.latency_ms)
        self.usage.add(record.usage)
        if record.cost is not None:
            self.cost = (self.cost or 0) + record.cost
        self.usage.add_judges(record.usage)
        if record.grading_cost is not None:
            self.grading_cost = (self.grading_cost or 0) + record.grading_cost
        self.questions.add_record(record.json)
        if (agent := record.agent) is not None:
            self.attempts = (self.attempts or 0) + len(agent.attempts)
        if record.status not in {Status.NOT_GRADED, Status.NOT_RUN}:
            self._add_ended(record, place_of(record) if place is None else place)

    def add_not_run(self, outcome: str, rows: int, question: QuestionOutcome | None) -> None:
        """Count rows that never started; if they are questions, with their outcome."""
        self.statuses[Status.NOT_RUN] += rows
        self.outcomes[outcome] += rows
        if question is not None:
            self.questions.add_many(question, rows)

    def _add_ended(self, record: RowRecord, place: RowPlace) -> None:
        is_judged = record.status.is_graded
        score = record.score if is_judged else None
        test = self.sums.add(place, passed=record.status is Status.PASS, score=score)
        if record.verdict is None:
            return
        for part in record.verdict["componentResults"]:
            if part["pass"]:
                self.passed_parts += 1
            else:
                self.failed_parts += 1
        for share in shares_of(record.verdict):
            name = share.name
            self.named_scores[name] = self.named_scores.get(name, 0) + share.total
            self.named_weights[name] = self.named_weights.get(name, 0) + share.weight
            self.named_counts[name] += share.count
            if is_judged:
                self.sums.add_metric(test, name, share.total, share.weight)

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics, sorted."""
        return sorted(self.named_counts)

    def json(self) -> dict[str, Any]:
        """Return the metrics of the column in a document."""
        return {
            "score": self.score,
            "testPassCount": self.passed + self.not_graded,
            "testFailCount": self.statuses[Status.FAIL],
            "testErrorCount": self.statuses[Status.ERROR],
            **({"testNotRunCount": self.left} if self.left else {}),
            **({"testNotGradedCount": self.not_graded} if self.not_graded else {}),
            **({"testCutOffCount": self.cut_off} if self.cut_off else {}),
            "assertPassCount": self.passed_parts,
            "assertFailCount": self.failed_parts,
            "totalLatencyMs": self.latency_ms,
            "tokenUsage": self.usage.json(),
            "namedScores": {
                **{metric: self.named_scores[metric] for metric in self.metrics},
                **self.derived,
            },
            "namedScoresCount": {metric: self.named_counts[metric] for metric in self.metrics},
            "namedScoreWeights": {metric: self.named_weights[metric] for metric in self.metrics},
            "cost": self.cost,
            **({} if self.grading_cost is None else {"gradingCost": self.grading_cost}),
            **({"questions": self.questions.json()} if self.questions.total else {}),
            **({"statistics": self.intervals.json()} if self.rows else {}),
        }


@attrs.define
class Totals:
    """The totals of all rows. `add` gets rows in index order."""

    columns: Sequence[ColumnTotals]
    vars: dict[str, None] = attrs.field(factory=dict)
    """Names of the variables of all rows, in the order of their first row."""
    has_descriptions: bool = False
    """True if a test has a title."""
    cluster: str | None = None
    """The key that names the cluster of a row; see `place_of`."""
    _last: tuple[int, RowPlace] = attrs.field(default=(-1, RowPlace(0)), init=False, repr=False)
    """The test index of the last row, and the test and cluster that its other columns share."""

    @classmethod
    def of(cls, columns: Sized, *, cluster: str | None = None) -> Totals:
        """Return totals without rows.

        Args:
            columns: The columns of a task.
            cluster: What names the cluster of a row; see `place_of`.
        """
        return cls([ColumnTotals() for _ in range(len(columns))], cluster=cluster)

    @classmethod
    def joined(cls, several: Iterable[Totals]) -> Totals:
        """Return the totals of several tasks together, for reading only."""
        found = cls([])
        for totals in several:
            found.columns = [*found.columns, *totals.columns]
            found.vars |= totals.vars
            found.has_descriptions = found.has_descriptions or totals.has_descriptions
        return found

    def add(self, record: RowRecord) -> None:
        """Count a row with all of its parts."""
        if self._last[0] != record.test_idx:
            self._last = record.test_idx, place_of(record, self.cluster)
        self.columns[record.prompt_idx].add(record, self._last[1])
        self.vars.update(dict.fromkeys(record.vars))
        self.has_descriptions = self.has_descriptions or record.title is not None

    def add_not_run(
        self, outcome: str, columns: Mapping[int, int], question: QuestionOutcome | None = None
    ) -> None:
        """Count rows that never started.

        Args:
            outcome: Their outcome.
            columns: The number of rows of each column, by column number.
            question: The outcome of their questions, if they are questions.
        """
        for column, rows in columns.items():
            self.columns[column].add_not_run(outcome, rows, question)

    @property
    def usage(self) -> UsageSum:
        """The usage of all columns."""
        found = UsageSum()
        for used in (column.usage.json() for column in self.columns):
            found.add(used)
            found.add_judges(used)
        return found

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return sum(column.rows for column in self.columns)

    @property
    def left(self) -> int:
        """Rows that did not end because the run was stopped, or that are blocked."""
        return sum(column.left for column in self.columns)

    def count(self, status: Status) -> int:
        """Return the number of rows with a status."""
        return sum(column.statuses[status] for column in self.columns)

    def outcome(self, *names: str) -> int:
        """Return the number of rows with one of these outcomes."""
        return sum(column.outcomes[name] for column in self.columns for name in names)

    @property
    def ended(self) -> int:
        """Rows that ended."""
        return self.rows - self.left

    @property
    def not_graded(self) -> int:
        """Rows with a reply that nothing graded."""
        return sum(column.not_graded for column in self.columns)

    @property
    def cut_off(self) -> int:
        """Rows whose reply was cut off at its token limit."""
        return sum(column.cut_off for column in self.columns)

    @property
    def passed(self) -> int:
        """Rows whose assertions hold."""
        return sum(column.passed for column in self.columns)

    @property
    def rated(self) -> int:
        """Rows that the pass rate is about: those that ended, except those that were not graded."""
        return self.ended - self.not_graded

    @property
    def successes(self) -> int:
        """Rows that passed or were not graded, as promptfoo counts them."""
        return self.passed + self.not_graded

    @property
    def pass_rate(self) -> float:
        """Percent of the rows that succeeded, of those that ended; 100 if none did.

        Exit codes depend on it. Rows without assertions count as successes, as they do for promptfoo.
        """
        return 100 * self.successes / self.ended if self.ended else 100.0


def counts_text(totals: Totals) -> str:
    """The number of rows with each status; rows that are not graded or not run only if there are any.

    Example:
        >>> counts = {Status.PASS: 1, Status.ERROR: 1, Status.NOT_GRADED: 2}
        >>> counts_text(Totals([ColumnTotals(Counter(counts))]))
        '1 passed, 0 failed, 1 error, 2 not graded'
    """
    counts = [
        f"{totals.passed} passed",
        f"{totals.count(Status.FAIL)} failed",
        counted(totals.count(Status.ERROR), "error"),
    ]
    counts += [f"{totals.not_graded} not graded"] if totals.not_graded else []
    counts += [f"{totals.left} not run"] if totals.left else []
    return ", ".join(counts)


def success_text(totals: Totals) -> str:
    """Return that every row of some was a success, as a sentence without a period.

    Example:
        >>> success_text(Totals([ColumnTotals(Counter({Status.PASS: 1}))]))
        'every row passed'
    """
    if not totals.not_graded:
        return "every row passed"
    return "every graded row passed" if totals.rated else "no row was graded"


def nearest_rank(values: array[float], share: float) -> float | None:
    """Return the least value that at least a share of the values does not exceed; None without values.

    Sorting would make an object of every number; this narrows the array down to the value, in linear time on
    average.

    Args:
        values: In any order.
        share: 0 to 1.

    Example:
        >>> nearest_rank(array("d", [30, 10, 20]), 0.5)
        20.0
    """
    if not values:
        return None
    rank = max(0, -int(-share * len(values) // 1) - 1)
    while True:
        pivot = values[len(values) // 2]
        below = array("d", (value for value in values if value < pivot))
        if rank < len(below):
            values = below
            continue
        above = array("d", (value for value in values if value > pivot))
        if rank < len(values) - len(above):
            return pivot
        rank -= len(values) - len(above)
        values = above


# Derived metrics: numbers computed once from the metrics of a column, when all of its rows are counted.


LIMIT = 10.0
"""The time limit of a user's function for a column, in seconds."""


def derive(
    metrics: Sequence[DerivedMetric], column: ColumnTotals, context: FileContext
) -> Iterator[str]:
    """Add derived metrics to a column.

    Args:
        metrics: The metrics; each may use those before it.
        column: The column with all of its rows; one without rows gets none.
        context: The folder and environment of functions.

    Yields:
        The problem of a metric, which is then left out.
    """
    if not column.rows:
        return
    names = {**column.named_scores, COUNT: float(column.rows)}
    for metric in metrics:
        try:
            value = _value(metric, names, context)
        except (ExpressionError, MistakenError) as error:
            yield f"the derived metric {quote(metric.name)} is left out: {error}"
        else:
            column.derived[metric.name] = names[metric.name] = value


def _value(metric: DerivedMetric, names: Mapping[str, float], context: FileContext) -> float:
    from trioeval.suite.sources.code import call_function, code_file

    if not names_file(metric.value):
        return parse(metric.value).value(names)
    file, function = code_file(metric.value, context)
    found = call_function(file, function or "", [dict(names)], context, limit=LIMIT)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        msg = f"{metric.value} must return a finite number, got {quote(found)}"
        raise ExpressionError(msg)
    return float(found)
