"""A run as a page of Markdown: for the summary of a step of GitHub Actions, or a comment.

Foreign text stands in spans of code. In them nothing is markup: no HTML, link, image, mention or emphasis.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trioeval.columns.makers.base import OWN_LANES
from trioeval.inert import inert
from trioeval.report.activity import WAIT_WORDS, longest_waits
from trioeval.report.columns import dataset_lines
from trioeval.report.records import RowRecord
from trioeval.report.results import Results
from trioeval.report.statistics import Estimate
from trioeval.report.summary import unfinished_line
from trioeval.report.totals import ColumnTotals, Totals, nearest_rank, percent
from trioeval.run import Status

# Workflow commands of GitHub Actions: lines of a log that make the runner do something. Pure.


_IN_TEXT = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY = {**_IN_TEXT, ":": "%3A", ",": "%2C"}


def workflow_command(
    name: str, text: str = "", properties: Mapping[str, str | None] | None = None
) -> str:
    r"""A command on one line, whatever stands in it.

    Args:
        name: Such as `error` or `group`.
        text: What it says.
        properties: What it says it of; those that are None are left out.

    Example:
        >>> workflow_command("error", "100 %\nx", {"file": "a,b.yaml", "line": None})
        '::error file=a%2Cb.yaml::100 %25%0Ax'
    """
    given = (properties or {}).items()
    said = [f"{key}={_escaped(fact, _IN_PROPERTY)}" for key, fact in given if fact is not None]
    head = f"{name} {','.join(said)}" if said else name
    # What is a command of the old kind stands for one wherever it stands.
    return f"::{head}::{_escaped(text, _IN_TEXT)}".replace("##[", "##\\[")


def without_commands(text: str) -> str:
    r"""Text of others in which no command is left: a backslash stands in what would be one.

    The runner takes a line for a command if it begins with `::`, blanks aside, or has `##[` in it.

    Example:
        >>> without_commands("a::b\n  ::error::x\n##[group]")
        'a::b\n  \\::error::x\n##\\[group]'
    """
    return _AT_FIRST.sub(r"\1\2\\::", text).replace("##[", "##\\[")


_AT_FIRST = re.compile(r"(^|[\r\n])([^\S\r\n]*)::")


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in text)


_NAME = 80  # characters of a name
_REASON = 300  # of why a row did not pass
_FAILURES = 50  # rows of a task that are told of
_WAITS = 5  # waits that are told of
_HEADINGS = (
    "provider",
    "passed",
    "failed",
    "errors",
    "pass rate",
    "95 % interval",
    "p50 ms",
    "p95 ms",
    "tokens",
    "US dollars",
)
_BACKTICKS = re.compile("`+")


def code(text: object, width: int = _NAME) -> str:
    r"""Foreign text as a span of code, which fits into a cell of a table too; a dash if there is none.

    Example:
        >>> print(code("a | b <i>"), code("`x`"), code(""))
        `a \| b <i>` `` `x` `` –
    """
    plain = inert(text, width)
    if not plain:
        return "–"
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(plain)), default=0))
    # A backslash before that of the pipe would make it end the cell.
    cell = plain.replace("\\|", "\\ |").replace("|", "\\|")
    blank = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{blank}{cell}{blank}{fence}"


def markdown_chunks(*parts: Results) -> Iterator[str]:
    """The page of a run."""
    first, *_ = parts
    description = first.head.config.get("description")
    yield "## trioeval" + (f": {code(description)}" if description else "") + "\n\n"
    totals = Totals.joined(part.totals for part in parts)
    if totals.rows:
        yield f"{_sum(totals, first)}\n\n"
    if (left := unfinished_line([part.totals for part in parts])) is not None:
        yield f"**{left.capitalize()}**\n\n"
    for part in parts:
        yield from _part(part)
    yield from _waits(first.info.activity)


def _sum(totals: Totals, results: Results) -> str:
    passed, failed, errors, left = (totals.count(status) for status in Status)
    ended = totals.ended
    tokens = sum(column.tokens for column in totals.columns)
    cached = sum(column.from_cache for column in totals.columns)
    cost = math.fsum((own.cost or 0) + (own.grading_cost or 0) for own in totals.columns)
    share = f"{percent(passed, ended)} %" if ended else "None"
    rate = f"**{share} of {ended} rows passed**"
    counts = f"{passed} passed, {failed} failed, {errors} errors"
    counts += f", {left} not run" if left else ""
    facts = [
        f"{rate}: {counts}",
        f"{results.info.duration_ms / 1000:.1f} s",
        *([f"{tokens} tokens"] if tokens else ()),
        *([f"{cached} replies from the cache"] if cached else ()),
        *([f"{cost:.4f} US dollars"] if cost else ()),
    ]
    return "; ".join(facts)


def _part(part: Results) -> Iterator[str]:
    if part.task is not None:
        yield f"### Task {code(part.task)}\n\n"
    if part.totals.rows:
        yield from _table(
            _HEADINGS,
            (
                [heading, *_column(own)]
                for heading, own in zip(_headings(part), part.totals.columns, strict=True)
                if own.rows
            ),
        )
        yield from _failures(part)
    if (dataset := part.shown_dataset()) is not None:
        for line in dataset_lines(dataset):
            yield f"* {code(line, _REASON)}\n"
        yield "\n"


def _headings(part: Results) -> list[str]:
    """The name of each column: its provider, and its prompt if there are several."""
    columns = part.columns
    if len({(column.id, column.label) for column in columns}) == 1:
        return [code(column.provider) for column in columns]
    labels = (code(part.prompt_text(column.label)) for column in columns)
    return [
        f"{code(column.provider)} {label}" for column, label in zip(columns, labels, strict=True)
    ]


def _column(own: ColumnTotals) -> list[str]:
    passed, failed = own.statuses[Status.PASS], own.statuses[Status.FAIL]
    latencies = (nearest_rank(own.latencies, at) for at in (0.50, 0.95))
    cost = None if own.cost is None else own.cost + (own.grading_cost or 0)
    return [
        *(str(count) for count in (passed, failed, own.statuses[Status.ERROR])),
        f"{percent(passed, own.ended)} %" if own.ended else "–",
        _interval(own.sums.pass_interval()),
        *("–" if latency is None else f"{latency:.0f}" for latency in latencies),
        str(own.tokens),
        "–" if cost is None else f"{cost:.4f}",
    ]


def _interval(found: Estimate | None) -> str:
    if found is None or found.low is None or found.high is None:
        return "–"
    return f"{100 * found.low:.1f} to {100 * found.high:.1f} %"


def _failures(part: Results) -> Iterator[str]:
    """The first rows that did not pass, and how many more there are."""
    bad = part.totals.ended - part.totals.count(Status.PASS)
    if not bad:
        return
    yield "#### What did not pass\n\n"
    headings = _headings(part)
    yield from _table(("test", "", "provider", "status", "reason"), _bad_rows(part, headings))
    if bad > _FAILURES:
        yield f"… and {bad - _FAILURES} more rows.\n\n"


def _bad_rows(part: Results, headings: Sequence[str]) -> Iterator[Sequence[str]]:
    found = 0
    for row in part.shown():
        if row.status not in {Status.PASS, Status.NOT_RUN}:
            yield _bad_row(row, headings)
            found += 1
            if found == _FAILURES:
                return


def _bad_row(row: RowRecord, headings: Sequence[str]) -> Sequence[str]:
    return (
        str(row.test_idx),
        code(row.name),
        headings[row.prompt_idx],
        row.status.name,
        code(row.error or "", _REASON),
    )


def _waits(activity: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What it waited for, the longest first."""
    waits = [wait for wait in longest_waits(activity) if wait.lane not in OWN_LANES][:_WAITS]
    told = [wait for wait in waits if wait.seconds >= 0.05]  # noqa: PLR2004 - shown as 0.1
    if not told:
        return
    took = math.fsum(one["durationS"] for one in activity)
    yield "#### What it waited for\n\n"
    for wait in told:
        yield (
            f"* {wait.seconds:.1f} s of {took:.1f} s: {code(wait.lane)}, {WAIT_WORDS[wait.why]}\n"
        )
    yield "\n"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |\n|{' --- |' * len(headings)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"
    yield "\n"
