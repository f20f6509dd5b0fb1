"""The summary of a run besides its tables: failures with their reasons, rates, and waits."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trioeval.report.activity import WAIT_WORDS, labels_of, lane_names, longest_waits
from trioeval.report.counts import RowNumbers
from trioeval.report.head import HeadColumn
from trioeval.report.records import shown_output
from trioeval.report.tables import STATUS_STYLES, FailureGroup, Failures, headings
from trioeval.report.text import cut_middle
from trioeval.report.totals import Totals
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

_WAITS = 3  # waits that are shown
_LEAST_SHARE = 0.05  # of the duration of the run; shorter waits are not shown
_SHORT = 1.0  # seconds of a run that is too short for rates
_PROVIDER = 40  # characters
_LANE = 50


def failures_view(
    columns: Sequence[HeadColumn],
    failures: Failures,
    command: Callable[[int], str | None] = lambda _index: None,
) -> RenderableType | None:
    """The rows that did not pass and their reasons, rows with the same error on one line; None if none."""
    if not failures.count:
        return None
    names = [*headings(columns, _PROVIDER)]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("row")
    for group in failures.groups:
        status = Text(group.status.name, style=STATUS_STYLES[group.status])
        table.add_row(str(group.rows), status, Text(f"{_rows_of(group, names)}: {_why(group)}"))
    rest = failures.count - failures.grouped
    parts: list[RenderableType] = [
        Text(f"{counted(failures.count, 'row')} did not pass", style="bold"),
        table,
    ]
    parts += [Text(f"… and {counted(rest, 'more row', 'more rows')}")] if rest else []
    if (shows := command(failures.groups[0].index)) is not None:
        parts.append(Text(f"one row in full: {escape_control_characters(shows)}", overflow="fold"))
    return Group(*parts, Text())


def _rows_of(group: FailureGroup, names: Sequence[str]) -> str:
    if group.rows.count > 1:
        return f"{counted(group.rows.count, 'row')} of {group.provider}"
    return f"{group.name} | {names[group.prompt_idx]}" if len(names) > 1 else group.name


def _why(failure: FailureGroup) -> str:
    expected = "" if failure.expected is None else f"; expected: {failure.expected}"
    return f"{failure.reason}{expected}{'' if failure.output is None else shown_output(failure.output)}"


@attrs.frozen(kw_only=True)
class RunUsage:
    """The duration and the usage of a run, all of its executions together."""

    seconds: float
    rows: int
    """Rows that ended."""
    tokens: int
    activity: Sequence[Mapping[str, Any]]
    """The results of `Activity.json`, one for each execution."""
    hidden: Collection[str] = ()
    """Lanes without providers, by name."""

    @classmethod
    def of(
        cls,
        seconds: float,
        totals: Sequence[Totals],
        activity: Sequence[Mapping[str, Any]],
        hidden: Collection[str] = (),
    ) -> "RunUsage":
        """Return the usage of a run.

        Args:
            seconds: The duration of all executions.
            totals: The totals of its tasks.
            activity: The results of `Activity.json`, one for each execution.
            hidden: Lanes without providers, by name.
        """
        ran = [one for one in totals if one.rows]
        return cls(
            seconds=seconds,
            rows=sum(one.ended for one in ran),
            tokens=sum(column.tokens for one in ran for column in one.columns),
            activity=activity,
            hidden=hidden,
        )


def usage_lines(took: RunUsage) -> Iterator[str]:
    r"""Yield rows and tokens per second, and the longest waits of lanes; nothing for a very short run.

    Example:
        >>> lanes = {"openai": {"waits": {"tokens": 31.0, "slot": 2.0}}}
        >>> took = RunUsage(seconds=44.0, rows=11, tokens=880, activity=[{"lanes": lanes}])
        >>> print(*usage_lines(took), sep="\n")
        0.25 rows/s, 20 tokens/s over 44 s
        waited 31 s of 44 s: openai tpm
    """
    if took.seconds < _SHORT:
        return
    whole = _number(took.seconds)
    if took.rows:
        rates = [f"{_number(took.rows / took.seconds)} rows/s"]
        rates += [f"{_number(took.tokens / took.seconds)} tokens/s"] if took.tokens else []
        yield f"{', '.join(rates)} over {whole} s"
    waits = (wait for wait in longest_waits(took.activity) if wait.lane not in took.hidden)
    keys = (key for execution in took.activity for key in execution["lanes"])
    shown = (key for key in keys if key not in took.hidden)
    names = lane_names(shown, labels_of(took.activity))
    for _, wait in zip(range(_WAITS), waits, strict=False):
        if wait.seconds >= _LEAST_SHARE * took.seconds:
            seconds = _number(min(wait.seconds, took.seconds))
            name = cut_middle(escape_control_characters(names[wait.lane]), _LANE)
            yield f"waited {seconds} s of {whole} s: {name} {WAIT_WORDS[wait.why]}"


def not_run_line(
    rows: RowNumbers, task: str | None = None, resume: str | None = None
) -> str | None:
    """Return the line about rows that were not run, with the command that runs them; None without such rows.

    Args:
        rows: The numbers of the rows.
        task: The id of the task; None if the suite has only one.
        resume: The command; None leaves it out.

    Example:
        >>> numbers = RowNumbers()
        >>> numbers.add_range(range(3, 50))
        >>> not_run_line(numbers, resume="trioeval resume eval-1")
        '47 rows not run: 3–49; continue with trioeval resume eval-1'
    """
    if not rows.count:
        return None
    of = "" if task is None else f"task {escape_control_characters(task, _LANE)}: "
    command = "" if resume is None else f"; continue with {resume}"
    return f"{of}{counted(rows.count, 'row')} not run: {rows}{command}"


NO_ASSERTIONS = (
    "no row was graded, as no test has an assertion: add assert to tests or to defaultTest"
)
"""The hint for a suite without assertions."""


def not_graded_line(totals: Sequence[Totals]) -> str | None:
    """Return the hint for a run without any graded row; None if a row was graded, or if none ended."""
    not_graded = sum(one.not_graded for one in totals)
    return NO_ASSERTIONS if not_graded and not sum(one.rated for one in totals) else None


def cut_off_line(totals: Sequence[Totals]) -> str | None:
    """Return the hint about replies that were cut off; None if none was.

    Example:
        >>> from trioeval.report.totals import ColumnTotals
        >>> cut_off_line([Totals([ColumnTotals(cut_off=3)])])
        '3 replies were cut off at their token limit (finish_reason: length): raise max_tokens'
    """
    cut_off = sum(one.cut_off for one in totals)
    if not cut_off:
        return None
    were = "was cut off at its" if cut_off == 1 else "were cut off at their"
    replies = counted(cut_off, "reply", "replies")
    return f"{replies} {were} token limit (finish_reason: length): raise max_tokens"


def hint_lines(totals: Sequence[Totals]) -> Iterator[str]:
    """Yield what users should change in their suite."""
    yield from filter(None, (not_graded_line(totals), cut_off_line(totals)))


def _number(found: float) -> str:
    """Return a number with two or three significant digits, never with an exponent.

    Example:
        >>> [_number(found) for found in (0.0312, 0.25, 31.04, 44, 12345.6)]
        ['0.031', '0.25', '31', '44', '12346']
    """
    if found >= 10:  # noqa: PLR2004 - two digits are there
        return f"{found:.0f}"
    return f"{found:.1f}".removesuffix(".0") if found >= 1 else f"{found:.2g}"
