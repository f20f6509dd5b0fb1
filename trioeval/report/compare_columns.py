"""What became of the rows of one column, from one run to another."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.report.named_scores import shares_of
from trioeval.report.records import is_ended, status_of
from trioeval.report.statistics import ColumnSums, PairSums, Place
from trioeval.tasks import Status

Kind: TypeAlias = Literal["same", "better", "worse", "changed", "new", "gone", "unfinished"]
"""`changed`: another score or answer with the same verdict. Errors are worse than failures.
`unfinished`: it never came to an end in one of the runs, which says nothing of both."""

KINDS: tuple[Kind, ...] = ("same", "better", "worse", "changed", "new", "gone", "unfinished")


@attrs.frozen
class Side:
    """A row in one of the runs."""

    status: Status
    score: float

    @property
    def judged(self) -> float | None:
        """Its score; None without a verdict."""
        return self.score if self.status.has_verdict and math.isfinite(self.score) else None

    def json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        return {"status": self.status.value, "score": self.score}


@attrs.define
class SideTotals:
    """The rows of a column in one of the runs."""

    name: str | None = None
    """Provider and prompt; None where the run has no such column."""
    statuses: Counter[Status] = attrs.field(factory=Counter)
    score: float = 0
    left: int = 0
    """Rows that never came to an end; in no other number."""
    sums: ColumnSums = attrs.field(factory=ColumnSums, repr=False)
    """What intervals are made of."""

    @property
    def rows(self) -> int:
        """All of them that came to an end."""
        return self.statuses.total()

    @property
    def mean_score(self) -> float | None:
        """Over the rows that have a verdict; None where none has."""
        found = self.sums.score_interval()
        return None if found is None else found.mean

    def add(self, record: Mapping[str, Any], place: Place, name: str) -> None:
        """Count a row.

        Args:
            record: The row.
            place: Its test and its cluster.
            name: Of its column.
        """
        status = status_of(record)
        self.name = self.name or name
        if not is_ended(record):
            self.left += 1
            return
        self.statuses[status] += 1
        self.score += record["score"]
        judged = Side(status, record["score"]).judged
        test = self.sums.add(place, passed=status is Status.PASS, score=judged)
        for metric, (value, weight) in metrics_of(record).items():
            self.sums.add_metric(test, metric, value * weight, weight)

    def json(self) -> dict[str, Any] | None:
        """Ready for `json.dumps`; None where the run has no such column."""
        if self.name is None:
            return None
        counts = {status.value: self.statuses[status] for status in Status}
        ended = {"rows": self.rows, **counts, "score": self.score}
        return {"name": self.name, **ended, "unfinished": self.left}


def metrics_of(record: Mapping[str, Any]) -> Mapping[str, tuple[float, float]]:
    """The value and the weight of each metric of a row that has a verdict."""
    verdict = record.get("gradingResult")
    if verdict is None or not status_of(record).has_verdict:
        return {}
    return {
        share.name: (share.total / share.weight, share.weight)
        for share in shares_of(verdict)
        if share.weight > 0 and math.isfinite(share.total) and math.isfinite(share.weight)
    }


@attrs.define
class ColumnChange:
    """What became of the rows of one column."""

    task: str | None
    before: SideTotals = attrs.field(factory=SideTotals)
    after: SideTotals = attrs.field(factory=SideTotals)
    kinds: Counter[Kind] = attrs.field(factory=Counter)
    pairs: PairSums = attrs.field(factory=PairSums, repr=False)
    """The rows that both runs have."""

    def add_pair(
        self,
        place: Place,
        sides: tuple[Side, Side],
        metrics: tuple[Mapping[str, tuple[float, float]], Mapping[str, tuple[float, float]]],
    ) -> None:
        """Count a row that both runs have.

        Args:
            place: Its test and its cluster.
            sides: It, before and after.
            metrics: What `metrics_of` makes of both.
        """
        before, after = sides
        passed = (after.status is Status.PASS) - (before.status is Status.PASS)
        judged = before.judged, after.judged
        score = None if judged[0] is None or judged[1] is None else judged[1] - judged[0]
        test = self.pairs.add(place, passed=passed, score=score)
        old, new = metrics
        for name in old.keys() & new.keys():
            (was, own), (is_, other) = old[name], new[name]
            self.pairs.add_metric(test, name, is_ - was, (own + other) / 2)

    def json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        return {
            "task": self.task,
            "before": self.before.json(),
            "after": self.after.json(),
            "rows": {kind: self.kinds[kind] for kind in KINDS},
        }


@attrs.define
class KeptMetrics:
    """Metrics of many rows, by their numbers: 16 bytes for each."""

    _values: dict[str, "array[float]"] = attrs.field(factory=dict, repr=False)
    """Of each metric, values and weights in turn; a weight of 0 stands for nothing."""

    def add(self, row: int, metrics: Mapping[str, tuple[float, float]]) -> None:
        """Keep those of a row; rows come in order.

        Args:
            row: Its number, from 0.
            metrics: What `metrics_of` made of it.
        """
        for name, pair in metrics.items():
            if (kept := self._values.get(name)) is None:
                kept = self._values[name] = array("d")
            kept.frombytes(bytes(8 * (2 * row - len(kept))))
            kept.extend(pair)

    def of(self, row: int) -> Mapping[str, tuple[float, float]]:
        """Those of a row."""
        return dict(self._found(row))

    def _found(self, row: int) -> Iterator[tuple[str, tuple[float, float]]]:
        for name, kept in self._values.items():
            if 2 * row < len(kept) and kept[2 * row + 1]:
                yield name, (kept[2 * row], kept[2 * row + 1])
