"""Results as tables for a terminal: the first rows of a run, and one line for each column.

The layout depends on the width of the terminal: columns that do not fit follow below, or are counted.
"""

import json
import re
from collections.abc import Iterator, Sequence

import attrs
from rich.box import SIMPLE
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from trioeval.grading import output_text
from trioeval.report.counts import RowNumbers, money
from trioeval.report.formats.json import shallow
from trioeval.report.head import HeadColumn
from trioeval.report.records import PartRecord, RowRecord
from trioeval.report.statistics.estimates import Estimate
from trioeval.report.text import Figure, packed
from trioeval.report.totals import LATENCY_SHARES, ColumnTotals, Totals
from trioeval.run import Status
from trioeval.text import counted, is_template
from trioeval.text_safety import escape_control_characters

# The rows that did not pass. Rows that ended with the same error are one group: a provider that refuses every
# call would otherwise fill the list with one message.


_FAILURES_NAME = 60  # characters of the name of a test
_REASON = 300  # characters of a reason
_EXPECTED = 120  # characters of an expected value
_TELLING = (
    20  # characters of the beginning of a value, by which a reason that quotes it is recognized
)
UNFINISHED = frozenset({"not_run", "interrupted"})
"""The outcomes of rows that `trioeval resume` runs."""


_OWN_NUMBER = re.compile(r"\b(took|after) [\d.]+ (ms|s)\b")
"""A measured time, which differs in errors that are otherwise the same."""


@attrs.define(eq=False, repr=False, kw_only=True)
class FailureGroup:
    """Rows that failed alike: one row with failed assertions, or all rows with one error of a provider."""

    status: Status
    name: str
    """The name of the first row."""
    prompt_idx: int
    """The column of the first row."""
    provider: str
    reason: str
    expected: str | None
    """The expected value of the assertion; None if the reason states it, or if there is none."""
    output: str | None
    """The beginning of the output; None if it is not shown. See `RowRecord.output_excerpt`."""
    index: int
    """The number of the first row."""
    rows: RowNumbers = attrs.field(factory=RowNumbers)


@attrs.define(eq=False, repr=False)
class Failures:
    """The rows of a task that did not pass, in groups, and the rows that were not run."""

    most: int
    """The most groups, ≥ 1."""
    shows_outputs: bool = attrs.field(default=True, kw_only=True)
    """False if the groups contain no outputs."""
    count: int = 0
    """Rows that failed or ended in an error."""
    grouped: int = 0
    """The number of rows in the groups."""
    not_run: RowNumbers = attrs.field(factory=RowNumbers)
    """Rows that `trioeval resume` would run."""
    _groups: dict[tuple[object, ...], FailureGroup] = attrs.field(factory=dict)

    @property
    def groups(self) -> Sequence[FailureGroup]:
        """The groups, in the order of their first rows."""
        return [*self._groups.values()]

    def add(self, index: int, record: RowRecord) -> None:
        """Count a row, and add it to its group if that exists or if there is room for a new one."""
        if self.takes(index, record.status, record.outcome):
            self.add_counted(index, record)

    def takes(self, index: int, status: Status, outcome: str) -> bool:
        """Count a row, and return whether a group may have room for it: then it is added by `add_counted`."""
        if status.is_success:
            return False
        if status is Status.NOT_RUN:
            if outcome in UNFINISHED:
                self.not_run.add(index)
            return False
        self.count += 1
        return status is Status.ERROR or len(self._groups) < self.most

    def add_counted(self, index: int, record: RowRecord) -> None:
        """Add a row that was counted to its group if that exists or if there is room for a new one."""
        reason = str(record.reason or record.error or "no reason given")
        key: tuple[object, ...] = (index,)
        if record.status is Status.ERROR:
            key = record.provider, _OWN_NUMBER.sub("", reason)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) == self.most:
                return
            group = self._groups[key] = FailureGroup(
                status=record.status,
                name=escape_control_characters(record.name, _FAILURES_NAME),
                prompt_idx=record.prompt_idx,
                provider=escape_control_characters(record.provider, _FAILURES_NAME),
                reason=escape_control_characters(reason, _REASON),
                expected=None if record.verdict is None else _expected(record.parts, reason),
                output=record.output_excerpt if self.shows_outputs else None,
                index=index,
            )
        group.rows.add(index)
        self.grouped += 1


def _expected(parts: Sequence[PartRecord], reason: str) -> str | None:
    """Return the expected value of the first failed assertion, unless it is in the reason or a template."""
    failed = next((part for part in parts if not part.passed), None)
    if failed is None or "value" not in failed.assertion or is_template(failed.assertion["value"]):
        return None
    value = shallow(failed.assertion["value"])
    # Reasons quote values and may be cut: compare the beginning.
    quoted = json.dumps(value, ensure_ascii=False, default=str)[:_TELLING]
    return (
        None
        if quoted in reason
        else escape_control_characters(f"{failed.type} {output_text(value)}", _EXPECTED)
    )


# The first rows of a run for a table.


@attrs.frozen
class Cell:
    """The result of one row."""

    status: Status
    text: str
    """The output, or the error: inert, and cut."""
    is_cut_off: bool = False
    """True if the reply was cut off at its token limit."""


@attrs.define(eq=False, repr=False)
class FirstRows:
    """The first tests of a run; rows are added in index order."""

    width: int
    """The most characters of an output, ≥ 8."""
    tests: int
    """The most tests, ≥ 1."""
    hidden: int = 0
    """Rows of further tests."""
    numbers: dict[int, RowNumbers] = attrs.field(factory=dict)
    """The numbers of the rows of each test, by its `test_idx`."""
    names: dict[int, str] = attrs.field(factory=dict)
    """The name of each test, by its `test_idx`."""
    cells: dict[tuple[int, int], Cell] = attrs.field(factory=dict)
    """The results by `test_idx` and `prompt_idx`."""

    def add(self, record: RowRecord) -> None:
        """Add a row if it belongs to one of the first tests. Rows that were not run are left out."""
        if self.takes(record.test_idx, record.outcome):
            self.add_taken(record)

    def takes(self, test_idx: int, outcome: str) -> bool:
        """Return whether a row is shown: then it is added by `add_taken`; if it is hidden, count it."""
        if outcome in UNFINISHED:
            return False
        if test_idx in self.names or len(self.names) < self.tests:
            return True
        self.hidden += 1
        return False

    def add_taken(self, record: RowRecord) -> None:
        """Add a row that is shown."""
        test_idx = record.test_idx
        if test_idx not in self.names:
            self.names[test_idx] = escape_control_characters(record.name, self.width)
        self.numbers.setdefault(test_idx, RowNumbers()).add(record.number)
        text = escape_control_characters(shallow(record.shown), self.width)
        self.cells[test_idx, record.prompt_idx] = Cell(record.status, text, record.is_cut_off)


STATUS_STYLES = {
    Status.PASS: "green",
    Status.FAIL: "red",
    Status.ERROR: "bold yellow",
    Status.NOT_GRADED: "cyan",
    Status.NOT_RUN: "dim",
}
"""The style of each status."""


_BETWEEN, _EDGES = 3, 2  # characters between two columns, and around all of them
_LEAST_CELL = 9  # characters of the narrowest cell
_LEAST_TEST = 10  # characters of the narrowest name of a test
_LEAST_NAME = 16  # characters of the narrowest name of a provider
_TABLES = 2  # tables before the layout changes to lines
_NAME = 60  # characters of the longest name of a provider
_EXACT = 0.1  # width of an interval below which whole percents are too coarse
_ALMOST = 1e-9  # difference of scores that count as equal


def rows_table(columns: Sequence[HeadColumn], rows: FirstRows) -> RenderableType:
    """Return a table with a line for each test and a column for each provider and prompt.

    Columns that do not fit are counted below.
    """
    return _RowsTable(columns, rows)


@attrs.frozen(eq=False, repr=False)
class _RowsTable:
    columns: Sequence[HeadColumn]
    rows: FirstRows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers = (len(str(numbers)) for numbers in self.rows.numbers.values())
        first = max(len("row"), *numbers, 0) + _BETWEEN
        names = max(map(cell_len, self.rows.names.values()), default=0)
        room = options.max_width - _EDGES - first - min(names, _LEAST_TEST)
        fit = max(1, room // (_LEAST_CELL + _BETWEEN))
        shown = min(len(self.columns), fit)
        yield self._table(shown)
        if hidden := len(self.columns) - shown:
            yield Text(
                f"… and {hidden} more {'column does' if hidden == 1 else 'columns do'} not fit"
            )

    def _table(self, shown: int) -> Table:
        rows = self.rows
        table = Table(box=SIMPLE, pad_edge=False)
        table.add_column("row", justify="right", style="dim", no_wrap=True)
        table.add_column("name", overflow="fold")
        for prompt_idx, heading in enumerate(headings(self.columns[:shown], rows.width)):
            cells = (self._cell(test_idx, prompt_idx) for test_idx in rows.names)
            widest = max(cell_len(heading), *(cell.cell_len for cell in cells), 0)
            least = min(_LEAST_CELL, widest)
            table.add_column(Text(heading), overflow="fold", min_width=least)
        for test_idx, name in rows.names.items():
            found = (self._cell(test_idx, prompt_idx) for prompt_idx in range(shown))
            table.add_row(str(rows.numbers[test_idx]), Text(name), *found)
        return table

    def _cell(self, test_idx: int, prompt_idx: int) -> Text:
        cell = self.rows.cells.get((test_idx, prompt_idx))
        if cell is None:
            return Text("–")
        verdict = Text(cell.status.label, style=STATUS_STYLES[cell.status])
        if cell.is_cut_off:
            verdict.append(" (cut off)", style="yellow")
        return verdict.append(f" {cell.text}", style="default")


def columns_table(columns: Sequence[HeadColumn], totals: Totals) -> RenderableType:
    """Return a table with a line for each provider and prompt: counts, rates, intervals and usage.

    If it is too wide it becomes two tables, and if that is not enough, a few lines for each.
    """
    return _ColumnsTable([*headings(columns, _NAME)], [*_figures(totals.columns)])


@attrs.frozen(eq=False, repr=False)
class _ColumnsTable:
    names: Sequence[str]
    figures: Sequence[Figure]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - _EDGES - _LEAST_NAME
        tables: list[list[Figure]] = [[]]
        for figure in self.figures:
            if _needed([*tables[-1], figure]) > room:
                tables.append([])
            tables[-1].append(figure)
        if len(tables) > _TABLES:
            yield self._lines(options.max_width)
            return
        yield from map(self._table, tables)

    def _table(self, figures: Sequence[Figure]) -> Table:
        table = Table(box=SIMPLE, pad_edge=False)
        table.add_column("provider", overflow="fold", min_width=_LEAST_NAME)
        for figure in figures:
            table.add_column(figure.title, justify="right", no_wrap=True)
        for place, name in enumerate(self.names):
            table.add_row(Text(name), *(figure.cells[place] for figure in figures))
        return table

    def _lines(self, width: int) -> Group:
        found: list[Text] = []
        for place, name in enumerate(self.names):
            found.append(Text(f"\n{name}", style="bold", overflow="fold"))
            parts = [f"{figure.title} {figure.cells[place].plain}" for figure in self.figures]
            found += (Text(f"  {line}", overflow="fold") for line in packed(parts, width - 2))
        return Group(*found)


def _needed(figures: Sequence[Figure]) -> int:
    return sum(figure.width + _BETWEEN for figure in figures)


def _figures(columns: Sequence[ColumnTotals]) -> Iterator[Figure]:
    counts = {
        status: [own.statuses[status] for own in columns]
        for status in (Status.PASS, Status.FAIL, Status.ERROR)
    }
    for status, numbers in counts.items():
        yield Figure(
            status.value,
            [Text(str(n), style=STATUS_STYLES[status] if n else "dim") for n in numbers],
        )
    if any(own.not_graded for own in columns):
        yield Figure.of("not graded", [str(own.not_graded) for own in columns])
    if any(own.left for own in columns):
        yield Figure.of("not run", [str(own.left) for own in columns])
    if any(own.cut_off for own in columns):
        yield Figure.of("cut off", [str(own.cut_off) for own in columns])
    yield Figure.of("pass rate", [own.rate for own in columns])
    yield Figure.of("95 % CI", [_interval(own.intervals.pass_interval()) for own in columns])
    yield Figure.of("score", [_score(own, own.intervals.score_interval()) for own in columns])
    for share in LATENCY_SHARES:
        found = [_measured(own.latency_at(share)) for own in columns]
        yield Figure.of(f"p{100 * share:.0f} ms", found)
    yield Figure.of("tokens", [str(own.tokens) for own in columns])
    if any(own.from_cache for own in columns):
        cached = [
            f"{own.from_cache} of {counted(own.replies, 'reply', 'replies')}" for own in columns
        ]
        yield Figure.of("from cache", cached)
    if any(own.cost for own in columns):
        yield Figure.of("cost", ["–" if own.cost is None else money(own.cost) for own in columns])
    if any(own.attempts is not None for own in columns):
        yield Figure.of("attempts", [str(own.attempts or 0) for own in columns])
    if any(own.usage.judges for own in columns):
        used = [str(own.usage.judges["total"] if own.usage.judges else 0) for own in columns]
        yield Figure.of("grading tokens", used)


def _interval(found: Estimate | None) -> str:
    """Return an interval of a share in percent.

    Example:
        >>> _interval(Estimate(0.5, 0.1, 0.3042, 0.6958, 25, 25, 0.95))
        '30–70 %'
    """
    if found is None or found.low is None or found.high is None:
        return "–"
    digits = 1 if found.high - found.low < _EXACT else 0
    return f"{100 * found.low:.{digits}f}–{100 * found.high:.{digits}f} %"


def _score(own: ColumnTotals, judged: Estimate | None) -> str:
    """Return the mean score of rows with a verdict, and its uncertainty unless the pass rate shows that."""
    if judged is None:
        return "–"
    mean = f"{judged.mean:.3f}"
    if judged.shown is None or judged.half_width is None or not _is_more_precise(own, judged):
        return mean
    if judged.shown != (judged.low, judged.high):  # too few rows for a symmetric interval
        low, high = judged.shown
        return f"{mean} ({low:.2f}–{high:.2f})"
    return f"{mean} ± {judged.half_width:.3f}"


def _is_more_precise(own: ColumnTotals, judged: Estimate) -> bool:
    """Return whether the scores of rows with a verdict differ from their pass rate."""
    passed, failed = own.passed, own.statuses[Status.FAIL]
    return abs(judged.mean * (passed + failed) - passed) > _ALMOST * (passed + failed)


def _measured(milliseconds: float | None) -> str:
    return "–" if milliseconds is None else f"{milliseconds:.0f}"


def headings(columns: Sequence[HeadColumn], width: int) -> Iterator[str]:
    """Yield the names of columns: the provider, and the prompt if those differ; inert, and cut."""
    prompts = {(column.id, column.label) for column in columns}
    for column in columns:
        name = escape_control_characters(column.provider, width)
        yield (
            name
            if len(prompts) == 1
            else f"{name} | {escape_control_characters(column.label, width)}"
        )
