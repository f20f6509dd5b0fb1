"""Running totals of a run: everything that is told of it besides its rows.

Rows are counted as they come and forgotten. What grows with them is one number a row, its latency, because
nothing less gives an exact percentile, and some numbers a test, which its repeats share, because nothing less
gives an interval. Sums are made in the order of the rows, so they do not depend on which row was finished
first.
"""

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import attrs

from trioeval.documents.files import Around, names_file
from trioeval.documents.mistakes import MistakenError
from trioeval.evaluation.identity import canonical, number_of_test
from trioeval.grading import quote
from trioeval.grading.expressions import ExpressionError, parse
from trioeval.question_eval.answer import QuestionOutcome
from trioeval.question_eval.result import QuestionCounts
from trioeval.report.counts import counted
from trioeval.report.records import RowRecord
from trioeval.report.statistics import ColumnSums, Place
from trioeval.report.usage import UsageSum
from trioeval.run import Status
from trioeval.suite.model import DerivedMetric
from trioeval.suite.sources.code import call_function, code_file
from trioeval.suite.test_form import COUNT

# Which rows belong together when it comes to chance: repeats of a test, and tests of a cluster.


CLUSTER = "cluster"
"""The key of a test's metadata that names its cluster, where the suite names no other one."""


def place_of(record: RowRecord, cluster: str | None = None) -> Place:
    """The test and the cluster of a row.

    Rows of one column are of the same test if they have the same variables under the same description.

    Args:
        record: The row.
        cluster: What names its cluster: a key of metadata, or else a variable. None looks at the key
            `cluster` of metadata alone.

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
    # Those of the test are the same in all columns and repeats; those of a row may hold earlier outputs.
    variables = test.get("vars") or record.vars
    known_as = test.get("case") or test.get("description")
    own = number_of_test(variables, known_as)
    named = cluster_of(record, cluster)
    if named is None:
        return Place(own)
    digest = hashlib.blake2b(canonical(named).encode("utf-8", "surrogatepass"), digest_size=8)
    shared = int.from_bytes(digest.digest(), "big") | 1
    return Place(own, shared)


def cluster_of(record: RowRecord, name: str | None = None) -> Any:
    """The value that names the cluster of a row, as for `place_of`; None where it is of none."""
    metadata = record.test.get("metadata")
    found = (
        metadata.get(CLUSTER if name is None else name) if isinstance(metadata, Mapping) else None
    )
    return record.vars.get(name) if found is None and name is not None else found


# Metrics of a row: what its verdict adds to each of them.


@attrs.frozen
class Share:
    """What one row adds to a metric."""

    name: str
    total: float
    """Its score times its weight."""
    weight: float
    count: int
    """Assertions that have told of it."""


def shares_of(verdict: Mapping[str, Any]) -> Iterator[Share]:
    """What a verdict adds to each metric that it names.

    Args:
        verdict: As `verdict_json` makes it.

    Example:
        >>> verdict = {
        ...     "namedScores": {"m": 0.5},
        ...     "namedScoreWeights": {"m": 2},
        ...     "componentResults": [],
        ... }
        >>> list(shares_of(verdict))
        [Share(name='m', total=1.0, weight=2, count=1)]
    """
    told: dict[str, int] = {}
    for part in verdict["componentResults"]:
        # A set has its metric elsewhere, and that of its members counts.
        metric = part.get("assertion", {}).get("metric")
        if metric is not None:
            told[metric] = told.get(metric, 0) + 1
    weights = verdict.get("namedScoreWeights", {})
    for name, score in verdict["namedScores"].items():
        # A name that comes from elsewhere, such as an extension, is one contribution.
        count = told.get(name, 1)
        weight = weights.get(name)
        if weight is None:
            yield Share(name, score, count, count)
        else:
            yield Share(name, score * weight, weight, count)


@attrs.define
class ColumnTotals:
    """What is known of the rows of one column."""

    statuses: Counter[Status] = attrs.field(factory=Counter)
    outcomes: Counter[str] = attrs.field(factory=Counter)
    """How rows ended: `done`, `failed`, `timed_out`, `interrupted`, `blocked` or `not_run`."""
    score: float = 0
    passed_parts: int = 0
    failed_parts: int = 0
    latency_ms: float = 0
    latencies: "array[float]" = attrs.field(factory=lambda: array("d"), repr=False)
    """Milliseconds of each call that was measured, those of replies from the cache not among them."""
    not_graded: int = 0
    """Rows that succeeded and have no assertion; `statuses` counts them as passed."""
    replies: int = 0
    """Rows with a reply."""
    from_cache: int = 0
    """Rows whose reply came from the cache."""
    cached_tokens: int = 0
    """What those replies used when they were made; nothing was used for them now."""
    usage: UsageSum = attrs.field(factory=UsageSum)
    cost: float | None = None
    """US dollars; None while no row told any."""
    grading_cost: float | None = None
    """Likewise of judges, whose cost is not among that."""
    named_scores: dict[str, float] = attrs.field(factory=dict)
    """Sums of score times weight, by metric."""
    named_weights: dict[str, float] = attrs.field(factory=dict)
    named_counts: Counter[str] = attrs.field(factory=Counter)
    derived: dict[str, float] = attrs.field(factory=dict)
    """Derived metrics, when all rows are there."""
    questions: QuestionCounts = attrs.field(factory=QuestionCounts)
    """How questions ended, where rows are such."""
    attempts: int | None = None
    """Attempts of agents; None where no agent worked."""
    sums: ColumnSums = attrs.field(factory=ColumnSums, repr=False)
    """What intervals are made of."""

    @property
    def tokens(self) -> int:
        """Those that were used now, without judges."""
        return self.usage["total"] - self.cached_tokens

    @property
    def rows(self) -> int:
        """All rows of the column."""
        return self.statuses.total()

    @property
    def left(self) -> int:
        """Rows that never came to an end, as the run was stopped before; of no rate and no interval."""
        return self.statuses[Status.NOT_RUN]

    @property
    def ended(self) -> int:
        """All other rows."""
        return self.rows - self.left

    @property
    def passed(self) -> int:
        """Rows whose assertions hold."""
        return self.statuses[Status.PASS] - self.not_graded

    @property
    def rated(self) -> int:
        """Rows that the pass rate is about: those that ended, except those without assertions."""
        return self.ended - self.not_graded

    def add(self, record: RowRecord, place: Place | None = None) -> None:
        """Count one more row.

        Args:
            record: With nothing left out.
            place: Its test and its cluster; None looks for them.
        """
        self.statuses[record.status] += 1
        self.outcomes[record.outcome] += 1
        self.score += record.score
        self.latency_ms += record.latency_ms or 0
        self.replies += record.response is not None
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
        if not record.is_graded:
            self.not_graded += 1
        elif record.status is not Status.NOT_RUN:
            self._add_ended(record, place_of(record) if place is None else place)

    def add_not_run(self, outcome: str, rows: int, question: QuestionOutcome | None) -> None:
        """Count rows that never began; where they are questions, how those ended."""
        self.statuses[Status.NOT_RUN] += rows
        self.outcomes[outcome] += rows
        if question is not None:
            self.questions.add_many(question, rows)

    def _add_ended(self, record: RowRecord, place: Place) -> None:
        is_judged = record.status.has_verdict
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
        """Names of the metrics, sorted."""
        return sorted(self.named_counts)

    def json(self) -> dict[str, Any]:
        """The metrics of the column in a document."""
        return {
            "score": self.score,
            "testPassCount": self.statuses[Status.PASS],
            "testFailCount": self.statuses[Status.FAIL],
            "testErrorCount": self.statuses[Status.ERROR],
            **({"testNotRunCount": self.left} if self.left else {}),
            **({"testNotGradedCount": self.not_graded} if self.not_graded else {}),
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
            **({"statistics": self.sums.json()} if self.rows else {}),
        }


@attrs.define
class Totals:
    """What is known of all rows. `add` gets them in index order."""

    columns: Sequence[ColumnTotals]
    vars: dict[str, None] = attrs.field(factory=dict)
    """Names of the variables of all rows, in the order in which they turn up."""
    has_descriptions: bool = False
    """Whether some test has one."""
    cluster: str | None = None
    """What names the cluster of a row; see `place_of`."""
    _last: tuple[int, Place] = attrs.field(default=(-1, Place(0)), init=False, repr=False)
    """The test index of the row before, whose test other columns have as well."""

    @classmethod
    def of(cls, columns: Sized, *, cluster: str | None = None) -> "Totals":
        """No rows yet of so many columns.

        Args:
            columns: Of a task.
            cluster: What names the cluster of a row; see `place_of`.
        """
        return cls([ColumnTotals() for _ in range(len(columns))], cluster=cluster)

    @classmethod
    def joined(cls, several: Iterable["Totals"]) -> "Totals":
        """Those of several runs together, to be read and not added to."""
        found = cls([])
        for totals in several:
            found.columns = [*found.columns, *totals.columns]
            found.vars |= totals.vars
            found.has_descriptions = found.has_descriptions or totals.has_descriptions
        return found

    def add(self, record: RowRecord) -> None:
        """Count one more row, with nothing left out."""
        if self._last[0] != record.test_idx:
            self._last = record.test_idx, place_of(record, self.cluster)
        self.columns[record.prompt_idx].add(record, self._last[1])
        self.vars.update(dict.fromkeys(record.vars))
        self.has_descriptions = self.has_descriptions or record.title is not None

    def add_not_run(
        self, outcome: str, columns: Mapping[int, int], question: QuestionOutcome | None = None
    ) -> None:
        """Count rows that never began.

        Args:
            outcome: How they ended, in a word.
            columns: How many each column has, by its number.
            question: How their questions ended, where they are such.
        """
        for column, rows in columns.items():
            self.columns[column].add_not_run(outcome, rows, question)

    @property
    def usage(self) -> UsageSum:
        """What all columns used together."""
        found = UsageSum()
        for used in (column.usage.json() for column in self.columns):
            found.add(used)
            found.add_judges(used)
        return found

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(column.rows for column in self.columns)

    @property
    def left(self) -> int:
        """Rows that never came to an end, as the run was stopped before."""
        return sum(column.left for column in self.columns)

    def count(self, status: Status) -> int:
        """Rows with a status."""
        return sum(column.statuses[status] for column in self.columns)

    def outcome(self, *names: str) -> int:
        """Rows that ended in one of these ways."""
        return sum(column.outcomes[name] for column in self.columns for name in names)

    @property
    def ended(self) -> int:
        """All other rows, of which the pass rate is."""
        return self.rows - self.left

    @property
    def not_graded(self) -> int:
        """Rows that succeeded and have no assertion."""
        return sum(column.not_graded for column in self.columns)

    @property
    def passed(self) -> int:
        """Rows whose assertions hold."""
        return sum(column.passed for column in self.columns)

    @property
    def rated(self) -> int:
        """Rows that ended, except those without assertions."""
        return self.ended - self.not_graded

    @property
    def pass_rate(self) -> float:
        """Percent of the rows that succeeded, of those that ended; 100 if none did.

        Exit codes depend on it. Rows without assertions count as successes, as they do for promptfoo.
        """
        return 100 * self.count(Status.PASS) / self.ended if self.ended else 100.0


def counts_text(totals: Totals) -> str:
    """The number of rows with each status; rows that are not graded or not run only if there are any.

    Example:
        >>> column = ColumnTotals(Counter({Status.PASS: 3, Status.ERROR: 1}), not_graded=2)
        >>> counts_text(Totals([column]))
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


def percent(part: int, whole: int) -> str:
    """A share in percent with one decimal; only all of it is 100.0, and only nothing 0.0.

    Args:
        part: 0 to `whole`.
        whole: At least 1.

    Example:
        >>> percent(299_999, 300_000), percent(1, 300_000), percent(1, 3)
        ('99.9', '0.1', '33.3')
    """
    shown = 1000 * part / whole
    within = min(max(round(shown), 1), 999)
    return f"{(within if 0 < part < whole else round(shown)) / 10:.1f}"


def nearest_rank(values: "array[float]", share: float) -> float | None:
    """The least of the values that at least a share of them does not exceed; None of no values.

    Sorting would make an object of every number; this narrows the array down to the one that is wanted.
    Takes linear time on average.

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


# Derived metrics: numbers made of the metrics of a column, once, when all of its rows are there.


LIMIT = 10.0
"""Seconds that a function of the user's may take for a column."""


def derive(metrics: Sequence[DerivedMetric], column: ColumnTotals, around: Around) -> Iterator[str]:
    """Add derived metrics to a column.

    Args:
        metrics: Each may use those before it.
        column: With all of its rows; one without any gets none.
        around: Where functions run.

    Yields:
        What is wrong with one of them, which then is left out.
    """
    if not column.rows:
        return
    names = {**column.named_scores, COUNT: float(column.rows)}
    for metric in metrics:
        try:
            value = _value(metric, names, around)
        except (ExpressionError, MistakenError) as error:
            yield f"the derived metric {quote(metric.name)} is left out: {error}"
        else:
            column.derived[metric.name] = names[metric.name] = value


def _value(metric: DerivedMetric, names: Mapping[str, float], around: Around) -> float:
    if not names_file(metric.value):
        return parse(metric.value).value(names)
    file, function = code_file(metric.value, around)
    found = call_function(file, function or "", [dict(names)], around, limit=LIMIT)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        msg = f"{metric.value} must give a finite number, got {quote(found)}"
        raise ExpressionError(msg)
    return float(found)
