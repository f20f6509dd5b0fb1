"""Two runs row by row: better, worse or different rows, and rows that only one of the runs has.

Rows are matched by their content, not by their position; the n-th of equal rows matches the n-th.
About 200 bytes are held for each row of the old run, and for both runs the data of intervals. The new run
is read once and not held.
"""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from trioeval.evaluation.identity import RecordedIdentities
from trioeval.report.compare_runs import (
    KINDS,
    ColumnChange,
    ColumnFindings,
    ComparedRow,
    Findings,
    KeptMetrics,
    Kind,
    Side,
    UnreadRow,
    metrics_of,
)
from trioeval.report.formats.json import compact, record_json
from trioeval.report.records import RowRecord
from trioeval.report.statistics.bootstrap import Bootstrap
from trioeval.report.statistics.grouped import RowPlace
from trioeval.report.text import FittingTable
from trioeval.report.totals import cluster_number, cluster_of
from trioeval.run import Status
from trioeval.text import KEY, counted
from trioeval.text_safety import escape_control_characters

By: TypeAlias = Literal["row", "test"]
"""The rows that match: those with the same provider, prompt and test, or all rows with the same test in the
same column, whatever their provider, to compare models or prompts."""

SourceRow: TypeAlias = RowRecord | UnreadRow
"""A row to compare."""

_RANKS = {Status.NOT_RUN: 0, Status.ERROR: 0, Status.FAIL: 1, Status.PASS: 2, Status.NOT_GRADED: 3}
_BY_RANK = {rank: status for status, rank in _RANKS.items()}
_NAME = 200  # characters of the name of a test


@attrs.frozen(kw_only=True)
class RowChange:
    """A row that differs between the runs. Rows that did not end in one of them are left out."""

    kind: Kind
    task: str | None
    test_idx: int
    """The number of its test in the new run, or in the old one if the row is gone."""
    prompt_idx: int
    """The number of its column, like `test_idx`."""
    name: str = attrs.field(metadata={KEY: "test"})
    """The name of its test, cut."""
    column: str
    """The provider and the prompt."""
    before: Side | None
    after: Side | None
    is_answered_otherwise: bool = attrs.field(default=False, metadata={KEY: "otherOutput"})
    """True if both runs have the row, with different outputs."""
    number: int | None = attrs.field(default=None, metadata={KEY: None})
    """The number of the row in the new run, or in the old one if the row is gone."""
    before_row: int | None = attrs.field(default=None, metadata={KEY: None})
    """Its position among the rows of the old run; None if that lacks it."""

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        return record_json(self)


@attrs.define
class Comparison:
    """The comparison of a run with an older one.

    Example:
        >>> row = {"promptIdx": 0, "testIdx": 0, "score": 1, "failureReason": 0, "vars": {"a": 1}}
        >>> row |= {
        ...     "provider": {"id": "p"},
        ...     "prompt": {"label": "q"},
        ...     "testCase": {"assert": [{"type": "equals", "value": "yes"}]},
        ... }
        >>> row |= {"response": {"output": "yes"}}
        >>> old, new = RowRecord.of(row), RowRecord.of(row | {"failureReason": 1, "score": 0})
        >>> comparison = Comparison(lambda: [old])
        >>> [found.kind for found in comparison.changes([new])]
        ['worse']
        >>> comparison.kinds["worse"], comparison.kinds["same"]
        (1, 0)
    """

    old: Callable[[], Iterable[SourceRow]]
    """Returns the rows of the old run; called again if that has rows that the new run lacks."""
    by: By = "row"
    clusters: Mapping[str | None, str | None] = attrs.field(factory=dict)
    """The key that names the cluster of a row, by task; see `place_of`."""
    _identities: RecordedIdentities = attrs.field(factory=RecordedIdentities, init=False)
    _columns: dict[object, ColumnChange] = attrs.field(factory=dict, init=False)
    _places: dict[bytes, int] = attrs.field(factory=dict, init=False)
    """The position of each row of the old run."""
    _ranks: bytearray = attrs.field(factory=bytearray, init=False)
    _scores: "array[float]" = attrs.field(factory=lambda: array("d"), init=False)
    _metrics: KeptMetrics = attrs.field(factory=KeptMetrics, init=False)
    _outputs: "array[int]" = attrs.field(factory=lambda: array("q"), init=False)
    _is_ended: bytearray = attrs.field(factory=bytearray, init=False)
    _is_met: bytearray = attrs.field(factory=bytearray, init=False)

    def __attrs_post_init__(self) -> None:
        several = _Several()
        for source in self.old():
            row = self._read(source)
            self._column(row).before.add(row)
            key = several.next(row.key) if row.key in self._places else row.key
            self._places[key] = len(self._ranks)
            self._metrics.add(len(self._ranks), row.metrics)
            self._ranks.append(_RANKS[row.side.status])
            self._scores.append(row.side.score)
            self._is_ended.append(row.is_ended)
            self._outputs.append(row.output)
        self._is_met = bytearray(len(self._ranks))

    @property
    def columns(self) -> Sequence[ColumnChange]:
        """The changes of each column, those of the old run first; complete when all changes were read."""
        return [*self._columns.values()]

    @property
    def kinds(self) -> Counter[Kind]:
        """The number of rows of each kind; complete when all changes were read."""
        return sum((column.kinds for column in self.columns), Counter())

    def changes(self, new: Iterable[SourceRow]) -> Iterator[RowChange]:
        """Yield all rows that differ: those of the new run in order, then those that are gone.

        Rows that did not end in one of the runs are only counted.
        """
        several = _Several()
        for source in new:
            row = self._read(source)
            column, place = self._column(row), self._place(row, several, self._is_met)
            column.after.add(row)
            if not row.is_ended or (place is not None and not self._is_ended[place]):
                column.kinds["unfinished"] += 1
                continue
            if place is None:
                column.kinds["new"] += 1
                yield _row_change(source, kind="new", before=None, after=_shown_side(source))
                continue
            before = Side(_BY_RANK[self._ranks[place]], self._scores[place])
            other = self._outputs[place] != row.output
            kind = _kind(before, row.side, is_answered_otherwise=other)
            column.kinds[kind] += 1
            column.add_pair(before, row, self._metrics.of(place))
            if kind != "same":
                after = _shown_side(source)
                yield _row_change(
                    source, kind=kind, before=before, after=after, other=other, place=place
                )
        if all(self._is_met):
            return
        # A run that is still running may have new rows, also between the earlier ones.
        seen, several = bytearray(len(self._ranks)), _Several()
        for source in self.old():
            row = self._read(source)
            place = self._place(row, several, seen)
            if place is not None and not self._is_met[place]:
                if not self._is_ended[place]:
                    self._column(row).kinds["unfinished"] += 1
                    continue
                self._column(row).kinds["gone"] += 1
                before = _shown_side(source)
                yield _row_change(source, kind="gone", before=before, after=None, place=place)

    def _place(self, row: ComparedRow, several: "_Several", seen: bytearray) -> int | None:
        """Return the position of a row in the old run; of equal rows, the next unmatched one."""
        place = self._places.get(row.key)
        if place is not None and seen[place]:
            place = self._places.get(several.next(row.key))
        if place is not None:
            seen[place] = 1
        return place

    def _read(self, source: SourceRow) -> ComparedRow:
        """Read from the JSON of a row what is compared."""
        found, status = source.json, source.status
        get = found.get
        identity = self._identities.of(found)
        task, prompt_idx = get("task"), get("promptIdx", 0)
        key = identity.row if self.by == "row" else self._identities.of_test(found, prompt_idx)
        cluster = cluster_of(identity.test, identity.variables, self.clusters.get(task))
        return ComparedRow(
            key=key if task is None else key + task.encode("utf-8", "surrogatepass"),
            task=task,
            prompt_idx=prompt_idx,
            column=identity.column,
            place=RowPlace(identity.number, cluster_number(cluster)),
            side=Side(status, get("score", 0.0)),
            is_ended=source.is_ended,
            output=_output_hash(get("response")),
            metrics=metrics_of(get("gradingResult"), status),
        )

    def _column(self, row: ComparedRow) -> ColumnChange:
        key = (row.task, row.column if self.by == "row" else row.prompt_idx)
        if (found := self._columns.get(key)) is None:
            found = self._columns[key] = ColumnChange(row.task)
        return found


@attrs.define
class _Several:
    """A counter of equal rows."""

    _counts: Counter[bytes] = attrs.field(factory=Counter)

    def next(self, key: bytes) -> bytes:
        self._counts[key] += 1
        return key + self._counts[key].to_bytes(4, "big")


def column_name(record: RowRecord) -> str:
    """Return the provider and the prompt of a row."""
    return f"{record.provider} | {record.prompt_label}"


def _record(source: SourceRow) -> RowRecord:
    return source if isinstance(source, RowRecord) else source.record


def _shown_side(source: SourceRow) -> Side:
    record = _record(source)
    return Side(source.status, record.score)


def _output_hash(response: Any) -> int:
    is_object = type(response) is dict or isinstance(response, Mapping)
    output = response.get("output") if is_object else None
    return hash(output if isinstance(output, str) else (compact(output),))


def _kind(before: Side, after: Side, *, is_answered_otherwise: bool) -> Kind:
    statuses = {before.status, after.status}
    if Status.NOT_GRADED in statuses and statuses & {Status.PASS, Status.FAIL}:
        return "changed"  # only one of the runs has graded it: neither is better
    gained = _RANKS[after.status] - _RANKS[before.status]
    if gained:
        return "better" if gained > 0 else "worse"
    is_same = math.isclose(before.score, after.score) and not is_answered_otherwise
    return "same" if is_same else "changed"


def _row_change(
    source: SourceRow,
    *,
    kind: Kind,
    before: Side | None,
    after: Side | None,
    other: bool = False,
    place: int | None = None,
) -> RowChange:
    record = _record(source)
    return RowChange(
        kind=kind,
        task=record.task,
        test_idx=record.test_idx,
        prompt_idx=record.prompt_idx,
        name=record.name[:_NAME],
        column=column_name(record),
        before=before,
        after=after,
        is_answered_otherwise=other,
        number=record.number,
        before_row=place,
    )


# A comparison of two runs as text and as JSON.


_STYLES: Mapping[str, str] = {"better": "green", "worse": "red", "changed": "yellow"}
_COLUMN = 60  # characters of a name
_HUGE = 1e9


def changes_table(changes: Iterable[RowChange], width: int) -> FittingTable:
    """Return a table with a line for each change.

    Args:
        changes: The changes to show.
        width: Characters of the name of a test that are shown, ≥ 8.
    """
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("row", justify="right", style="dim")
    for name in ("name", "provider | prompt", "", "before", "after", ""):
        table.add_column(name, overflow="fold")
    for change in changes:
        name = change.column if change.task is None else f"{change.task}: {change.column}"
        table.add_row(
            str(change.number),
            Text(escape_control_characters(change.name, width)),
            Text(escape_control_characters(name, _COLUMN)),
            Text(change.kind, style=_STYLES.get(change.kind, "dim")),
            _side(change.before),
            _side(change.after),
            "other answer" if change.is_answered_otherwise else "",
        )
    return FittingTable(table, names=2)


def comparison_json(
    old: str,
    new: str,
    comparison: Comparison,
    changes: Iterable[RowChange],
    findings: Callable[[], Findings],
    *,
    bootstrap: Bootstrap | None = None,
) -> dict[str, Any]:
    """Return a comparison for `json_chunks`; its rows and columns are iterators.

    Args:
        old: The id of the old run.
        new: The id of the new run.
        comparison: The comparison.
        changes: All of its changes; they are read before the columns.
        findings: Returns the findings; called when all rows were read.
        bootstrap: The bootstrap of the intervals; None if none is used.
    """
    return {
        "before": old,
        "after": new,
        "bootstrap": None if bootstrap is None else bootstrap.json(),
        "rows": (change.json() for change in changes),
        "columns": (
            {**column.json(), "statistics": found.json()}
            for column, found in _with_findings(comparison, findings)
        ),
    }


def _with_findings(
    comparison: Comparison, findings: Callable[[], Findings]
) -> Iterator[tuple[ColumnChange, ColumnFindings]]:
    yield from zip(comparison.columns, findings().columns, strict=True)


def compared_line(comparison: Comparison) -> str:
    """Return the number of rows of each kind.

    Example:
        >>> comparison = Comparison(list)
        >>> list(comparison.changes([])), compared_line(comparison)
        ([], 'no rows to compare')
    """
    kinds = comparison.kinds
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    return f"{counted(kinds.total(), 'row')}: {counts}" if counts else "no rows to compare"


def left_out_lines(columns: Sequence[ColumnChange]) -> Iterator[str]:
    """Yield the numbers of rows of each run that did not end or were not graded; nothing without any."""
    runs = {
        "earlier": [column.before for column in columns],
        "later": [column.after for column in columns],
    }
    for name, sides in runs.items():
        if left := sum(side.left for side in sides):
            rows = "1 row" if left == 1 else f"{left:,} rows"
            yield f"{rows} of the {name} run did not end; the comparison leaves them out"
    for name, sides in runs.items():
        if count := sum(side.not_graded for side in sides):
            rows = "1 row" if count == 1 else f"{count:,} rows"
            were = "was" if count == 1 else "were"
            yield f"{rows} of the {name} run {were} not graded; pass rates and scores leave them out"


def name_of_column(column: ColumnChange) -> str:
    """Return the name of a column, in both runs if it differs; inert."""
    names = dict.fromkeys(
        escape_control_characters(side.name, _COLUMN)
        for side in (column.before, column.after)
        if side.name is not None
    )
    task = "" if column.task is None else f"{escape_control_characters(column.task, _COLUMN)}: "
    return task + " → ".join(names)


def number_of(value: float) -> str:
    """Return a score in few characters, even if it is huge.

    Example:
        >>> number_of(0.5), number_of(-1e200)
        ('0.500', '-1e+200')
    """
    return f"{value:.3f}" if abs(value) < _HUGE else f"{value:.4g}"


def _side(side: Side | None) -> str:
    if side is None:
        return "–"
    if side.status is Status.NOT_GRADED:
        return side.status.label
    return f"{side.status.label} {side.score:.3g}"


def first_of(changes: Iterator[RowChange], most: int) -> tuple[list[RowChange], int]:
    """Return the first changes, and the number of the others."""
    first: list[RowChange] = []
    rest = 0
    for change in changes:
        if len(first) < most:
            first.append(change)
        else:
            rest += 1
    return first, rest
