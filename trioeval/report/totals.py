"""Running totals of a run: everything that is told of it besides its rows.

Rows are counted as they come and forgotten. What grows with them is one number a row, its latency, because
nothing less gives an exact percentile, and some numbers a test, which its repeats share, because nothing less
gives an interval. Sums are made in the order of the rows, so they do not depend on which row was finished
first.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import attrs

from trioeval.report.agent_facts import agent_of
from trioeval.report.clusters import place_of
from trioeval.report.named_scores import shares_of
from trioeval.report.records import is_from_cache, own_of, status_of, title_of_test
from trioeval.report.statistics import CONFIDENCE, ColumnSums, Estimate, Place
from trioeval.report.usage import UsageSum
from trioeval.tasks import Status
from trioeval.tasks.question_result import QuestionOutcome
from trioeval.tasks.question_status import QuestionCounts


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

    def add(self, record: Mapping[str, Any], place: Place | None = None) -> None:
        """Count one more row.

        Args:
            record: As `row_json` made it, with nothing left out.
            place: Its test and its cluster; None looks for them.
        """
        own = own_of(record)
        status = status_of(record)
        self.statuses[status] += 1
        self.outcomes[own["outcome"]] += 1
        self.score += record["score"]
        latency_ms = record["latencyMs"]
        self.latency_ms += latency_ms or 0
        if is_from_cache(record):
            self.from_cache += 1
            self.cached_tokens += record["tokenUsage"]["total"]
        elif latency_ms is not None:
            self.latencies.append(latency_ms)
        self.usage.add(record["tokenUsage"])
        if record["cost"] is not None:
            self.cost = (self.cost or 0) + record["cost"]
        self.usage.add_judges(record["tokenUsage"])
        if (grading_cost := own.get("gradingCost")) is not None:
            self.grading_cost = (self.grading_cost or 0) + grading_cost
        self.questions.add_record(record)
        if (agent := agent_of(record)) is not None:
            self.attempts = (self.attempts or 0) + len(agent.attempts)
        if status is not Status.NOT_RUN:
            self._add_ended(record, status, place)

    def add_not_run(self, outcome: str, rows: int, question: QuestionOutcome | None) -> None:
        """Count rows that never began; where they are questions, how those ended."""
        self.statuses[Status.NOT_RUN] += rows
        self.outcomes[outcome] += rows
        if question is not None:
            self.questions.add_many(question, rows)

    def _add_ended(self, record: Mapping[str, Any], status: Status, place: Place | None) -> None:
        judged = record["score"] if status.has_verdict else None
        where = place_of(record) if place is None else place
        test = self.sums.add(where, passed=status is Status.PASS, score=judged)
        if record["gradingResult"] is not None:
            self._add_verdict(record["gradingResult"], None if judged is None else test)

    def _add_verdict(self, verdict: Mapping[str, Any], test: int | None) -> None:
        for part in verdict["componentResults"]:
            if part["pass"]:
                self.passed_parts += 1
            else:
                self.failed_parts += 1
        for share in shares_of(verdict):
            name = share.name
            self.named_scores[name] = self.named_scores.get(name, 0) + share.total
            self.named_weights[name] = self.named_weights.get(name, 0) + share.weight
            self.named_counts[name] += share.count
            if test is not None:
                self.sums.add_metric(test, name, share.total, share.weight)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics, sorted."""
        return sorted(self.named_counts)

    def pass_interval(self, confidence: float = CONFIDENCE) -> Estimate | None:
        """The share of the rows that passed, 0 to 1, of those that came to an end; None if none did.

        Errors did not pass.
        """
        return self.sums.pass_interval(confidence)

    def score_interval(self, confidence: float = CONFIDENCE) -> Estimate | None:
        """The mean score of the rows that have a verdict; None where none has."""
        return self.sums.score_interval(confidence)

    def metric_intervals(self, confidence: float = CONFIDENCE) -> Mapping[str, Estimate]:
        """The weighted mean of each metric over the rows that have a verdict, by name, sorted."""
        return self.sums.metric_intervals(confidence)

    def json(self) -> dict[str, Any]:
        """The metrics of the column in a document."""
        return {
            "score": self.score,
            "testPassCount": self.statuses[Status.PASS],
            "testFailCount": self.statuses[Status.FAIL],
            "testErrorCount": self.statuses[Status.ERROR],
            **({"testNotRunCount": self.left} if self.left else {}),
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
    usage: UsageSum = attrs.field(factory=UsageSum)
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

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one more row.

        Args:
            record: As `row_json` made it, with nothing left out.
        """
        if self._last[0] != record["testIdx"]:
            self._last = record["testIdx"], place_of(record, self.cluster)
        self.columns[record["promptIdx"]].add(record, self._last[1])
        self.vars.update(dict.fromkeys(record["vars"]))
        self.has_descriptions = self.has_descriptions or title_of_test(record) is not None
        self.usage.add(record["tokenUsage"])
        self.usage.add_judges(record["tokenUsage"])

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
    def pass_rate(self) -> float:
        """Percent of the rows that passed, of those that came to an end; 100 where none did."""
        return 100 * self.count(Status.PASS) / self.ended if self.ended else 100.0


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
