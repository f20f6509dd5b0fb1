"""What is told of a run at its end beside its tables: what failed and why, how fast it was, its waits."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trioeval.inert import inert
from trioeval.report.activity import WAIT_WORDS, lane_names, longest_waits
from trioeval.report.head import HeadColumn
from trioeval.report.tables import STATUS_STYLES, Failure, Failures, headings
from trioeval.report.text import cut_middle
from trioeval.report.totals import Totals

_WAITS = 3  # that are told
_LEAST_SHARE = 0.05  # of the time that a run took, of a wait that is told
_SHORT = 1.0  # seconds of a run of which no rate says anything
_PROVIDER = 40  # characters
_LANE = 50


def failures_view(
    columns: Sequence[HeadColumn],
    failures: Failures,
    command: Callable[[int], str | None] = lambda _index: None,
) -> RenderableType | None:
    """The first rows that did not pass, each with its reason; None where there are none."""
    if not failures.count:
        return None
    names = [*headings(columns, _PROVIDER)]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("row")
    for failure in failures.first:
        told = Text(failure.status.name, style=STATUS_STYLES[failure.status])
        of = f"{failure.name} | {names[failure.prompt_idx]}" if len(names) > 1 else failure.name
        table.add_row(str(failure.index), told, Text(f"{of}: {_why(failure)}"))
    rest = failures.count - len(failures.first)
    count = "1 row" if failures.count == 1 else f"{failures.count} rows"
    parts: list[RenderableType] = [Text(f"{count} did not pass", style="bold"), table]
    parts += [Text(f"… and {rest} more")] if rest else []
    if (shows := command(failures.first[0].index)) is not None:
        parts.append(Text(f"one row in full: {inert(shows)}", overflow="fold"))
    return Group(*parts, Text())


def _why(failure: Failure) -> str:
    return failure.reason + ("" if failure.expected is None else f"; expected: {failure.expected}")


@attrs.frozen(kw_only=True)
class Took:
    """What a run took, all of its executions together."""

    seconds: float
    rows: int
    """Those that were run to their end."""
    tokens: int
    activity: Sequence[Mapping[str, Any]]
    """What lanes did in each execution, as `Activity.json` told it."""
    hidden: Collection[str] = ()
    """Lanes on which nobody is asked, by name."""

    @classmethod
    def of(
        cls,
        seconds: float,
        totals: Sequence[Totals],
        activity: Sequence[Mapping[str, Any]],
        hidden: Collection[str] = (),
    ) -> "Took":
        """That of a run.

        Args:
            seconds: All of its executions.
            totals: Of its tasks.
            activity: As above.
            hidden: As above.
        """
        ran = [one for one in totals if one.rows]
        return cls(
            seconds=seconds,
            rows=sum(one.ended for one in ran),
            tokens=sum(column.tokens for one in ran for column in one.columns),
            activity=activity,
            hidden=hidden,
        )


def took_lines(took: Took) -> Iterator[str]:
    r"""How many rows and tokens a second, and what lanes waited for; nothing of a run of an instant.

    Example:
        >>> lanes = {"openai": {"waits": {"tokens": 31.0, "slot": 2.0}}}
        >>> took = Took(seconds=44.0, rows=11, tokens=880, activity=[{"lanes": lanes}])
        >>> print(*took_lines(took), sep="\n")
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
    names = lane_names(key for key in keys if key not in took.hidden)
    for _, wait in zip(range(_WAITS), waits, strict=False):
        if wait.seconds >= _LEAST_SHARE * took.seconds:
            seconds = _number(min(wait.seconds, took.seconds))
            name = cut_middle(inert(names[wait.lane]), _LANE)
            yield f"waited {seconds} s of {whole} s: {name} {WAIT_WORDS[wait.why]}"


def unfinished_line(totals: Sequence[Totals], missing: int = 0) -> str | None:
    """How many rows of a run were not run to their end; None if all were.

    Args:
        totals: Of its tasks.
        missing: Rows of which nothing is known.
    """
    left = missing + sum(one.outcome("not_run", "interrupted") for one in totals)
    if not left:
        return None
    rows = missing + sum(one.rows for one in totals)
    ended = sum(one.ended for one in totals)
    rates = f"; rates are of the {ended} that were" if ended else ""
    return f"not finished: {left} of {rows} rows are still to be run{rates}"


def _number(found: float) -> str:
    """With two or three digits that matter, and never as a power of ten.

    Example:
        >>> [_number(found) for found in (0.0312, 0.25, 31.04, 44, 12345.6)]
        ['0.031', '0.25', '31', '44', '12346']
    """
    if found >= 10:  # noqa: PLR2004 - two digits are there
        return f"{found:.0f}"
    return f"{found:.1f}".removesuffix(".0") if found >= 1 else f"{found:.2g}"
