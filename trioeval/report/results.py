"""The data of all result files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from trioeval.report.formats.json import compact
from trioeval.report.head import Head, HeadColumn, stripped_config, stripped_test
from trioeval.report.records import STRIPPED_PROMPT, RowRecord
from trioeval.report.strip import KEEP_ALL, Strip
from trioeval.report.totals import Totals

if TYPE_CHECKING:
    from trioeval.columns.result import DatasetResult


@attrs.frozen(kw_only=True)
class RunInfo:
    """The facts about a run in a document, besides its tasks."""

    utc_exported: str
    """The time of the export, ISO 8601."""
    duration_ms: float
    strip: Strip = KEEP_ALL
    """The parts that are left out of all files."""
    escape_formulas: bool = True
    """True if cells of a spreadsheet that look like formulas are made inert."""
    omit_zero_counters: bool = False
    """True if documents and JSON Lines leave out token counters that are zero."""
    activity: Sequence[Mapping[str, Any]] = ()
    """The results of `Activity.json`, one for each execution."""
    database: str = "results"
    """The name of the database file of the run, without its suffix."""
    suite: str | None = None
    """The path of its suite; None if it did not come from a file."""
    media: Path | None = None
    """The folder of the media of the run; None if they are not available."""

    def row_json(self, record: RowRecord) -> Mapping[str, Any]:
        """Return a row as documents have it, without the parts that must not be shown."""
        found = record.stripped(self.strip).json
        if not self.omit_zero_counters:
            return found
        return row_without_zeros(found)

    def row_line(self, record: RowRecord) -> str:
        """Return the same row as a line of JSON Lines."""
        if self.omit_zero_counters:
            return compact(self.row_json(record))
        return record.stripped(self.strip).text

    def usage_json(self, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the token usage of many rows as documents have it."""
        if not self.omit_zero_counters:
            return usage
        return _without_zeros(usage)


@attrs.frozen(kw_only=True)
class Results:
    """An ended run, or a task of one. Its rows are read as often as needed, and never held together."""

    head: Head
    totals: Totals
    info: RunInfo
    records: Callable[[int | None], Iterator[Mapping[str, Any]]]
    """Returns the JSON of the rows of one `prompt_idx`, or of all, in index order."""
    numbered: Callable[[int | None], Iterator[tuple[int, Mapping[str, Any]]]] | None = None
    """Like `records`, each with the number of its row. None numbers the rows of `records` from 0."""
    tests: Callable[[], Iterator[Any]] = lambda: iter(())
    """Returns the tests of the suite; see `config_tests`."""
    dataset: DatasetResult | None = None
    """The result of a `columns` task, which has no rows here; None for any other task."""
    never_began: Sequence[Mapping[str, Any]] = ()
    """Rows that are counted but have no records; see `range_json`."""

    @property
    def task(self) -> str | None:
        """The id of the task; None if the suite has only one."""
        return self.head.task

    @property
    def unlisted(self) -> int:
        """The number of rows without records."""
        return sum(one["lastRow"] - one["firstRow"] + 1 for one in self.never_began)

    @property
    def columns(self) -> Sequence[HeadColumn]:
        """The providers and prompts, by `prompt_idx`."""
        return self.head.columns

    def rows(self, prompt_idx: int | None = None) -> Iterator[RowRecord]:
        """Yield the rows of one `prompt_idx`, or all, with all of their parts."""
        read = self.numbered or (lambda _: enumerate(self.records(None)))
        for index, found in read(prompt_idx):
            record = RowRecord.of(found, index=index)
            if prompt_idx is None or record.prompt_idx == prompt_idx:
                yield record

    def shown(self, prompt_idx: int | None = None) -> Iterator[RowRecord]:
        """Yield the rows without the parts that must not be shown."""
        return (record.stripped(self.info.strip) for record in self.rows(prompt_idx))

    def shown_config(self) -> dict[str, Any]:
        """Return the suite without the parts that must not be shown; its tests are an iterator."""
        strip = self.info.strip
        found: dict[str, Any] = {}
        for name, part in stripped_config(self.head.config, strip).items():
            found[name] = part
            if name == "prompts":
                found["tests"] = (stripped_test(test, strip) for test in self.tests())
        return found

    def shown_dataset(self) -> DatasetResult | None:
        """Return the result of the dataset without the parts that must not be shown."""
        from trioeval.report.columns import stripped_dataset

        return None if self.dataset is None else stripped_dataset(self.dataset, self.info.strip)

    def prompt_text(self, text: str) -> str:
        """Return the text or label of a prompt, or its replacement if prompts must not be shown."""
        return STRIPPED_PROMPT if self.info.strip.prompt_text else text


def utc(instant: datetime) -> str:
    """Return an instant as JavaScript formats it."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def range_json(rows: range, outcome: str, error: str | None) -> dict[str, Any]:
    """Return consecutive rows that never started as JSON data.

    Example:
        >>> range_json(range(5, 9), "not_run", "not run: the run was stopped")["lastRow"]
        8
    """
    return {"firstRow": rows.start, "lastRow": rows.stop - 1, "outcome": outcome, "error": error}


# Rows and totals without the token counters that are zero, for smaller result files.
#
# A `tokenUsage` stays an object, so that programs find one; a `tokensUsed` without any counter is left out.

_USED, _SPENT, _PARTS = "tokenUsage", "tokensUsed", "componentResults"


def _without_zeros(counters: Mapping[str, Any]) -> dict[str, Any]:
    """Return counters without those that are zero, and without groups of them that are then empty.

    Example:
        >>> _without_zeros({"total": 3, "cached": 0, "completionDetails": {"reasoning": 0}})
        {'total': 3}
    """
    left = {
        name: _without_zeros(value) if isinstance(value, Mapping) else value
        for name, value in counters.items()
    }
    return {name: value for name, value in left.items() if value not in (0, {})}


def row_without_zeros(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a row without token counters that are zero: its own, and those of its judges.

    Example:
        >>> parts = [{"pass": True, "tokensUsed": {"total": 0}}]
        >>> row_without_zeros(
        ...     {"tokenUsage": {"total": 0}, "gradingResult": {"componentResults": parts}}
        ... )
        {'tokenUsage': {}, 'gradingResult': {'componentResults': [{'pass': True}]}}
    """
    found = _sparse(row)
    for name in ("response", "gradingResult"):
        if isinstance(part := row.get(name), Mapping):
            found[name] = _sparse(part)
    match row.get("metadata"):  # the verdicts of a row that then ended in an error
        case {"trioeval": Mapping() as own, **about} if _PARTS in own:
            found["metadata"] = {**about, "trioeval": _sparse(own)}
    return found


def _sparse(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a row without zeros in its counters, and in those of its own parts."""
    found = dict(part)
    for name in (_USED, _SPENT):
        if isinstance(counters := part.get(name), Mapping):
            found[name] = _without_zeros(counters)
    if found.get(_SPENT) == {}:
        del found[_SPENT]
    if isinstance(parts := part.get(_PARTS), list):
        found[_PARTS] = [_sparse(one) if isinstance(one, Mapping) else one for one in parts]
    return found
