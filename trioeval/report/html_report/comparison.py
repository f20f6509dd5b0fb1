"""The page of two runs: better, worse and different rows, with both outputs side by side."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from markupsafe import Markup

from trioeval.report.compare import By, Comparison, RowChange, column_name, compared_line
from trioeval.report.compare_runs import KINDS, ColumnChange, SideTotals
from trioeval.report.counts import percent
from trioeval.report.html_report.details import details_json
from trioeval.report.html_report.inert_text import plain
from trioeval.report.html_report.page import Packs, page_chunks
from trioeval.report.html_report.run_page import (
    CELL_FIELDS,
    NAME,
    cell_json,
    minute_text,
    test_name,
    title_of,
)
from trioeval.report.records import RowRecord
from trioeval.report.results import Results
from trioeval.run import Status


def compare_chunks(
    before: Sequence[Results],
    after: Sequence[Results],
    *,
    by: By = "row",
    sentences: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the text of a page about two runs, a few hundred rows at a time.

    Rows that are the same in both runs are counted and not shown.

    Args:
        before: The old run, or its tasks.
        after: The new run, or its tasks.
        by: The rule that matches rows; see `Comparison`.
        sentences: Sentences about both runs, such as whether they differ beyond chance.
    """
    old, new = before[0].head, after[0].head
    found = _Compared(before, after, by)
    name = title_of(after[0])
    title = f"Two runs of {name}" if name != new.eval_id else "Comparison of two runs"
    shown: dict[str, Any] = {
        "title": title,
        "about": [
            f"from {old.eval_id} ({minute_text(old.utc_created)})",
            f"to {new.eval_id} ({minute_text(new.utc_created)})",
        ],
        "totals": None,
        "sentences": [],
        "parts": [
            {
                "name": None,
                "sentence": None,
                "lines": [],
                "dataset": None,
                "errors": [],
                "not_run": None,
            }
        ],
        "comparison": _ComparisonSummary(found, sentences),
        "has_charts": False,
        "has_lanes": False,
        "packs": map(Markup, found.packs()),
    }
    sides = [("Before", old.eval_id), ("After", new.eval_id)]
    columns = [{"provider": name, "prompt": plain(run, NAME)} for name, run in sides]
    return page_chunks(shown, {"fields": CELL_FIELDS, "parts": [{"columns": columns}], "lanes": []})


@attrs.define
class _LastRecord:
    """A reader of records that remembers the last one."""

    record: RowRecord = attrs.field(init=False)
    number: int = -1

    def of(self, parts: Sequence[Results]) -> Iterator[RowRecord]:
        records = (record for results in parts for record in results.rows())
        for self.number, self.record in enumerate(records):
            yield self.record


class _Compared:
    """Both runs, read one after the other; of the old run the shown rows are remembered."""

    def __init__(
        self,
        before: Sequence[Results],
        after: Sequence[Results],
        by: By,
    ) -> None:
        self._before, self._after = before, after
        self._old = _LastRecord()
        self.strip = after[0].info.strip
        self.comparison = Comparison(lambda: self._old.of(before), by=by)

    def packs(self) -> Iterator[str]:
        """Yield all data of rows as elements of the page."""
        index, details = Packs(0, "index"), Packs(0, "details")
        is_shown = bytearray()  # one for each row of the old run: whether it is shown
        rows = 0
        new = _LastRecord()
        for change in self.comparison.changes(new.of(self._after)):
            if (place := change.before_row) is not None:
                is_shown.extend(bytes(max(0, place + 1 - len(is_shown))))
                is_shown[place] = 1
            cell = None
            record = (self._old if change.after is None else new).record.stripped(self.strip)
            if change.after is not None:
                cell = cell_json(record, rows)
                rows += 1
                yield from details.add(details_json(record, details.most))
            yield from index.add(_line(change, record, cell))
        yield from index.rest()
        yield from details.rest()
        yield from self._packs_before(is_shown, details.characters)

    def _packs_before(self, wanted: bytearray, characters: int) -> Iterator[str]:
        index, details = Packs(0, "index-before"), Packs(0, "before", characters)
        rows = 0
        for record, is_shown in zip(self._old.of(self._before), wanted, strict=False):
            if is_shown:
                shown = record.stripped(self.strip)
                yield from index.add([self._old.number, cell_json(shown, rows)])
                yield from details.add(details_json(shown, details.most))
                rows += 1
        yield from index.rest()
        yield from details.rest()


def _line(change: RowChange, record: RowRecord, cell: Any) -> list[Any]:
    task = "" if change.task is None else f"{change.task}: "
    return [
        change.number,
        test_name(record),
        [None, cell],
        change.kind,
        plain(task + column_name(record), NAME),
        change.before_row,
    ]


@attrs.frozen
class _ComparisonSummary:
    """The summary of both runs for the template, which is rendered after the rows."""

    _of: _Compared
    sentences: Sequence[str]
    kinds: Sequence[str] = KINDS

    @property
    def line(self) -> str:
        return compared_line(self._of.comparison)

    @property
    def columns(self) -> Iterator[tuple[str, list[str]]]:
        for column in self._of.comparison.columns:
            sides = (column.before, column.after)
            counts = [str(column.kinds[kind]) for kind in KINDS]
            yield self._name(column), [*counts, *map(_passed, sides), *map(_score, sides)]

    def _name(self, column: ColumnChange) -> str:
        names = dict.fromkeys(
            # A provider and a prompt; if prompts are hidden, so are their labels.
            side.name.partition(" | ")[0] if self._of.strip.prompt_text else side.name
            for side in (column.before, column.after)
            if side.name is not None
        )
        task = "" if column.task is None else f"{column.task}: "
        return task + " → ".join(names)


def _passed(side: SideTotals) -> str:
    return f"{percent(side.statuses[Status.PASS], side.rated)} %" if side.rated else "–"


def _score(side: SideTotals) -> str:
    return "–" if side.mean_score is None else f"{side.mean_score:.3f}"
