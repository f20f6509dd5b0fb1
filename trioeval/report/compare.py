"""Two runs row by row: what became better, worse or another answer, and what only one of them has.

Rows are matched by what they are, not by where they stand; the n-th of equal rows with the n-th of them.
Of the old run a few numbers a row are held, about 200 bytes, and of both what intervals are made of; the new
one is read once and forgotten.
"""

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from trioeval.evaluation.identity import row_id, row_id_of
from trioeval.inert import inert
from trioeval.report.compare_runs import (
    KINDS,
    ColumnChange,
    ColumnFindings,
    Findings,
    KeptMetrics,
    Kind,
    Side,
    metrics_of,
)
from trioeval.report.counts import counted
from trioeval.report.formats.json import compact, record_json
from trioeval.report.records import RowRecord
from trioeval.report.statistics import Bootstrap, Place
from trioeval.report.text import FittingTable
from trioeval.report.totals import place_of
from trioeval.run import Status
from trioeval.text import KEY

By: TypeAlias = Literal["row", "test"]
"""Whether rows are equal that ask the same provider with the same prompt about the same test, or all that
ask about the same test in the same column, whoever is asked: to compare models or prompts."""

_RANKS = {Status.NOT_RUN: 0, Status.ERROR: 0, Status.FAIL: 1, Status.PASS: 2}
_BY_RANK = {rank: status for status, rank in _RANKS.items()}
_NAME = 200  # characters of the name of a test
_DIGEST = 8  # bytes that tell answers apart


@attrs.frozen(kw_only=True)
class RowChange:
    """A row that is not the same in both runs; none that never came to an end in one of them."""

    kind: Kind
    task: str | None
    test_idx: int
    """In the new run; of a row that is gone, in the old one."""
    prompt_idx: int
    """Likewise."""
    name: str = attrs.field(metadata={KEY: "test"})
    """Of its test; cut."""
    column: str
    """Its provider and prompt."""
    before: Side | None
    after: Side | None
    is_answered_otherwise: bool = attrs.field(default=False, metadata={KEY: "otherOutput"})
    """Whether both runs have it, with different outputs."""
    number: int | None = attrs.field(default=None, metadata={KEY: None})
    """The number of the row in the new run, or in the old one if the row is gone."""
    before_row: int | None = attrs.field(default=None, metadata={KEY: None})
    """Its number among the rows of the old run, where that has it."""

    def json(self) -> dict[str, Any]:
        """Ready for `json.dumps`."""
        return record_json(self)


@attrs.define
class Comparison:
    """Compares a run with an older one.

    Example:
        >>> row = {"promptIdx": 0, "testIdx": 0, "score": 1, "failureReason": 0, "vars": {"a": 1}}
        >>> row |= {
        ...     "provider": {"id": "p"},
        ...     "prompt": {"label": "q"},
        ...     "testCase": {"description": ""},
        ... }
        >>> row |= {"response": {"output": "yes"}}
        >>> old, new = RowRecord.of(row), RowRecord.of(row | {"failureReason": 1, "score": 0})
        >>> comparison = Comparison(lambda: [old])
        >>> [found.kind for found in comparison.changes([new])]
        ['worse']
        >>> comparison.kinds["worse"], comparison.kinds["same"]
        (1, 0)
    """

    old: Callable[[], Iterable[RowRecord]]
    """Gives the records of the old run; asked twice if it has rows that the new one has not."""
    by: By = "row"
    clusters: Mapping[str | None, str | None] = attrs.field(factory=dict)
    """What names the cluster of a row, by task; see `place_of`."""
    _columns: dict[object, ColumnChange] = attrs.field(factory=dict, init=False)
    _places: dict[bytes, int] = attrs.field(factory=dict, init=False)
    """Of each row that the old run has, its number there."""
    _ranks: bytearray = attrs.field(factory=bytearray, init=False)
    _scores: "array[float]" = attrs.field(factory=lambda: array("d"), init=False)
    _metrics: KeptMetrics = attrs.field(factory=KeptMetrics, init=False)
    _outputs: bytearray = attrs.field(factory=bytearray, init=False)
    _is_ended: bytearray = attrs.field(factory=bytearray, init=False)
    _is_met: bytearray = attrs.field(factory=bytearray, init=False)

    def __attrs_post_init__(self) -> None:
        several = _Several()
        for record in self.old():
            self._column(record).before.add(record, self._group(record), column_name(record))
            key = _key(record, self.by)
            self._places[several.next(key) if key in self._places else key] = len(self._ranks)
            self._metrics.add(len(self._ranks), metrics_of(record))
            self._ranks.append(_RANKS[record.status])
            self._scores.append(record.score)
            self._is_ended.append(record.is_ended)
            self._outputs += _output_digest(record)
        self._is_met = bytearray(len(self._ranks))

    @property
    def columns(self) -> Sequence[ColumnChange]:
        """What became of each, those of the old run first; complete when all changes were read."""
        return [*self._columns.values()]

    @property
    def kinds(self) -> Counter[Kind]:
        """How many rows there are of each kind; complete when all changes were read."""
        return sum((column.kinds for column in self.columns), Counter())

    def changes(self, new: Iterable[RowRecord]) -> Iterator[RowChange]:
        """All rows that are not the same: those of the new run in its order, then those that are gone.

        Rows that never came to an end in one of the runs are counted alone.
        """
        several = _Several()
        for record in new:
            column = self._column(record)
            group, place = self._group(record), self._place(record, several, self._is_met)
            column.after.add(record, group, column_name(record))
            if not record.is_ended or (place is not None and not self._is_ended[place]):
                column.kinds["unfinished"] += 1
                continue
            found = self._change(record, place)
            column.kinds[found.kind] += 1
            if place is not None and found.before is not None and found.after is not None:
                metrics = self._metrics.of(place), metrics_of(record)
                column.add_pair(group, (found.before, found.after), metrics)
            if found.kind != "same":
                yield found
        if all(self._is_met):
            return
        # A run that goes on has more rows by now, also between those that it had.
        seen, several = bytearray(len(self._ranks)), _Several()
        for record in self.old():
            place = self._place(record, several, seen)
            if place is not None and not self._is_met[place]:
                if not self._is_ended[place]:
                    self._column(record).kinds["unfinished"] += 1
                    continue
                self._column(record).kinds["gone"] += 1
                side = Side(record.status, record.score)
                yield _told(record, kind="gone", before=side, after=None, place=place)

    def _place(self, record: RowRecord, several: "_Several", seen: bytearray) -> int | None:
        """Where the old run has the row; of equal ones, the next that was not seen."""
        key = _key(record, self.by)
        place = self._places.get(key)
        if place is not None and seen[place]:
            place = self._places.get(several.next(key))
        if place is not None:
            seen[place] = 1
        return place

    def _change(self, record: RowRecord, place: int | None) -> RowChange:
        after = Side(record.status, record.score)
        if place is None:
            return _told(record, kind="new", before=None, after=after)
        before = Side(_BY_RANK[self._ranks[place]], self._scores[place])
        digest = self._outputs[place * _DIGEST : (place + 1) * _DIGEST]
        other = digest != _output_digest(record)
        kind = _kind(before, after, is_answered_otherwise=other)
        return _told(record, kind=kind, before=before, after=after, other=other, place=place)

    def _group(self, record: RowRecord) -> Place:
        """The test and the cluster of a row."""
        return place_of(record, self.clusters.get(record.task))

    def _column(self, record: RowRecord) -> ColumnChange:
        task = record.task
        key = (task, column_name(record) if self.by == "row" else record.prompt_idx)
        if (found := self._columns.get(key)) is None:
            found = self._columns[key] = ColumnChange(task)
        return found


@attrs.define
class _Several:
    """Numbers rows that are equal to one before."""

    _counts: Counter[bytes] = attrs.field(factory=Counter)

    def next(self, key: bytes) -> bytes:
        self._counts[key] += 1
        return key + self._counts[key].to_bytes(4, "big")


def column_name(record: RowRecord) -> str:
    """The provider and the prompt of a row, as they are called."""
    return f"{record.provider} | {record.prompt_label}"


def _key(record: RowRecord, by: By) -> bytes:
    if by == "row":
        found = row_id_of(record.json)
    else:
        named = record.test.get("case") or record.test.get("description")
        found = row_id("", str(record.prompt_idx), record.vars, named)
    return bytes.fromhex(found) + (record.task or "").encode("utf-8", "surrogatepass")


def _output_digest(record: RowRecord) -> bytes:
    text = compact(record.output).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=_DIGEST).digest()


def _kind(before: Side, after: Side, *, is_answered_otherwise: bool) -> Kind:
    gained = _RANKS[after.status] - _RANKS[before.status]
    if gained:
        return "better" if gained > 0 else "worse"
    is_same = math.isclose(before.score, after.score) and not is_answered_otherwise
    return "same" if is_same else "changed"


def _told(
    record: RowRecord,
    *,
    kind: Kind,
    before: Side | None,
    after: Side | None,
    other: bool = False,
    place: int | None = None,
) -> RowChange:
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


# A comparison of two runs for people, and as JSON.


_STYLES: Mapping[str, str] = {"better": "green", "worse": "red", "changed": "yellow"}
_COLUMN = 60  # characters of a name
_HUGE = 1e9


def changes_table(changes: Iterable[RowChange], width: int) -> FittingTable:
    """One line a row that is not the same.

    Args:
        changes: Those that are shown.
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
            Text(inert(change.name, width)),
            Text(inert(name, _COLUMN)),
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
    """A comparison, for `json_chunks` and its like: its rows, and what is summed up, are iterators.

    Args:
        old: The id of the old run.
        new: That of the new one.
        comparison: Of both.
        changes: What it tells, all of it; read before the sums.
        findings: Tells what is found of the columns; asked when all rows were read.
        bootstrap: How it draws intervals, if it does.
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
    """How many rows there are of each kind.

    Example:
        >>> comparison = Comparison(list)
        >>> list(comparison.changes([])), compared_line(comparison)
        ([], 'no rows to compare')
    """
    kinds = comparison.kinds
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    return f"{counted(kinds.total(), 'row')}: {told}" if told else "no rows to compare"


def unfinished_lines(columns: Iterable[ColumnChange]) -> Iterator[str]:
    """How many rows of each run never came to an end; nothing where all did."""
    sides = [(column.before.left, column.after.left) for column in columns]
    for which, name in enumerate(("earlier", "later")):
        if left := sum(side[which] for side in sides):
            rows = "1 row" if left == 1 else f"{left:,} rows"
            yield f"{rows} of the {name} run never came to an end; nothing else is said of them"


def name_of_column(column: ColumnChange) -> str:
    """What a column is called, in both runs if they call it otherwise; inert."""
    names = dict.fromkeys(
        inert(side.name, _COLUMN) for side in (column.before, column.after) if side.name is not None
    )
    task = "" if column.task is None else f"{inert(column.task, _COLUMN)}: "
    return task + " → ".join(names)


def number_of(value: float) -> str:
    """A score on few characters, also a huge one.

    Example:
        >>> number_of(0.5), number_of(-1e200)
        ('0.500', '-1e+200')
    """
    return f"{value:.3f}" if abs(value) < _HUGE else f"{value:.4g}"


def _side(side: Side | None) -> str:
    return "–" if side is None else f"{side.status.name} {side.score:.3g}"


def first_of(changes: Iterator[RowChange], most: int) -> tuple[list[RowChange], int]:
    """The first changes, and how many there are beside them."""
    kept: list[RowChange] = []
    rest = 0
    for change in changes:
        if len(kept) < most:
            kept.append(change)
        else:
            rest += 1
    return kept, rest
