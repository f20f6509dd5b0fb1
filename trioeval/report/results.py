"""What all result files are made from."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.columns.result import DatasetResult
from trioeval.report.columns import stripped_dataset
from trioeval.report.head import Head, HeadColumn, stripped_config, stripped_test
from trioeval.report.records import STRIPPED_PROMPT, RowRecord
from trioeval.report.totals import Totals
from trioeval.suite.tests import KEEP_ALL, Strip


@attrs.frozen(kw_only=True)
class RunInfo:
    """What a document says of the run beside its tasks."""

    utc_exported: str
    """ISO 8601."""
    duration_ms: float
    strip: Strip = KEEP_ALL
    """What is left out of all files."""
    escape_formulas: bool = True
    """Whether cells of a spreadsheet that look like formulas are made harmless."""
    activity: Sequence[Mapping[str, Any]] = ()
    """What lanes did in each execution of the run, as `Activity.json` told it."""
    database: str = "results"
    """The name of the file that the run is kept in, without its suffix."""
    suite: str | None = None
    """The path of its suite; None where it came from no file."""


@attrs.frozen(kw_only=True)
class Results:
    """A run that is over, or a task of one. Its rows are read as often as needed, and never all held."""

    head: Head
    totals: Totals
    info: RunInfo
    records: Callable[[int | None], Iterator[Mapping[str, Any]]]
    """Gives the JSON of the rows of one `prompt_idx`, or of all, in index order."""
    numbered: Callable[[int | None], Iterator[tuple[int, Mapping[str, Any]]]] | None = None
    """Like `records`, each with the number of its row. None numbers the rows of `records` from 0."""
    tests: Callable[[], Iterator[Any]] = lambda: iter(())
    """Gives what `config_tests` makes of the suite."""
    dataset: DatasetResult | None = None
    """How the dataset of a task of type `columns` ended, which has no rows here; None of any other task."""
    never_began: Sequence[Mapping[str, Any]] = ()
    """Rows that are counted and have no records, as `range_json` tells them."""

    @property
    def task(self) -> str | None:
        """The id of the task that it is of; None where the suite has no tasks but is one."""
        return self.head.task

    @property
    def unlisted(self) -> int:
        """Rows that are counted and have no records."""
        return sum(one["lastRow"] - one["firstRow"] + 1 for one in self.never_began)

    @property
    def columns(self) -> Sequence[HeadColumn]:
        """Its providers and prompts, by `prompt_idx`."""
        return self.head.columns

    def rows(self, prompt_idx: int | None = None) -> Iterator[RowRecord]:
        """The rows of one `prompt_idx`, or all, with nothing left out."""
        read = self.numbered or (lambda _: enumerate(self.records(None)))
        for index, found in read(prompt_idx):
            record = RowRecord.of(found, index=index)
            if prompt_idx is None or record.prompt_idx == prompt_idx:
                yield record

    def shown(self, prompt_idx: int | None = None) -> Iterator[RowRecord]:
        """The same, as far as they may be shown."""
        return (record.stripped(self.info.strip) for record in self.rows(prompt_idx))

    def shown_config(self) -> dict[str, Any]:
        """The suite, as far as it may be shown; its tests stand in it as an iterator."""
        strip = self.info.strip
        found: dict[str, Any] = {}
        for name, part in stripped_config(self.head.config, strip).items():
            found[name] = part
            if name == "prompts":
                found["tests"] = (stripped_test(test, strip) for test in self.tests())
        return found

    def shown_dataset(self) -> DatasetResult | None:
        """How its dataset ended, as far as it may be shown."""
        return None if self.dataset is None else stripped_dataset(self.dataset, self.info.strip)

    def prompt_text(self, text: str) -> str:
        """The text or label of a prompt, as far as it may be shown."""
        return STRIPPED_PROMPT if self.info.strip.prompt_text else text


def range_json(rows: range, outcome: str, error: str | None) -> dict[str, Any]:
    """Rows that never began, one after another, as JSON data.

    Example:
        >>> range_json(range(5, 9), "not_run", "not run: the run was stopped")["lastRow"]
        8
    """
    return {"firstRow": rows.start, "lastRow": rows.stop - 1, "outcome": outcome, "error": error}
