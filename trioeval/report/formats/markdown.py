"""A run as a page of Markdown, for the summary of a step of GitHub Actions, or for a comment.

Foreign text is in code spans, where nothing is markup: no HTML, link, image, mention or emphasis.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trioeval.columns.lanes import OWN_LANES
from trioeval.report.activity import WAIT_WORDS, labels_of, lane_names, longest_waits
from trioeval.report.columns import dataset_lines
from trioeval.report.counts import money, percent
from trioeval.report.records import shown_output
from trioeval.report.results import Results
from trioeval.report.statistics.estimates import Estimate
from trioeval.report.summary import hint_lines, not_run_line
from trioeval.report.tables import UNFINISHED, FailureGroup, Failures
from trioeval.report.totals import LATENCY_SHARES, ColumnTotals, Totals, counts_text
from trioeval.run import Status
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

# Workflow commands of GitHub Actions: lines of a log that the runner executes. Pure.


_IN_TEXT = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY = {**_IN_TEXT, ":": "%3A", ",": "%2C"}


def workflow_command(
    name: str, text: str = "", properties: Mapping[str, str | None] | None = None
) -> str:
    r"""Return a command on one line, whatever text it has.

    Args:
        name: Such as `error` or `group`.
        text: The message.
        properties: Properties such as the file; those that are None are left out.

    Example:
        >>> workflow_command("error", "100 %\nx", {"file": "a,b.yaml", "line": None})
        '::error file=a%2Cb.yaml::100 %25%0Ax'
    """
    given = (properties or {}).items()
    shown = [f"{key}={_escaped(fact, _IN_PROPERTY)}" for key, fact in given if fact is not None]
    head = f"{name} {','.join(shown)}" if shown else name
    # The runner executes commands of the old syntax anywhere in a line.
    return f"::{head}::{_escaped(text, _IN_TEXT)}".replace("##[", "##\\[")


def without_commands(text: str) -> str:
    r"""Return foreign text without commands: a backslash breaks what would be one.

    The runner executes a line that begins with `::`, after blanks, or that contains `##[`.

    Example:
        >>> without_commands("a::b\n  ::error::x\n##[group]")
        'a::b\n  \\::error::x\n##\\[group]'
    """
    return _AT_FIRST.sub(r"\1\2\\::", text).replace("##[", "##\\[")


_AT_FIRST = re.compile(r"(^|[\r\n])([^\S\r\n]*)::")


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in text)


_NAME = 80  # characters of a name
_REASON = 300  # characters of the reason why a row did not pass
_OUTPUT = 100  # characters of the output beside it
_FAILURES = 50  # groups of rows of a task that are listed
_WAITS = 5  # waits that are listed
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
    "cost",
)
_COUNTS = 4  # headings before those that a table may lack
_BACKTICKS = re.compile("`+")


def code(text: object, width: int = _NAME) -> str:
    r"""Return foreign text as a code span that is also valid in a table cell; a dash for an empty text.

    Example:
        >>> print(code("a | b <i>"), code("`x`"), code(""))
        `a \| b <i>` `` `x` `` –
    """
    plain = escape_control_characters(text, width)
    if not plain:
        return "–"
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(plain)), default=0))
    # A backslash before the escaped pipe would end the cell.
    cell = plain.replace("\\|", "\\ |").replace("|", "\\|")
    blank = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{blank}{cell}{blank}{fence}"


def markdown_chunks(*parts: Results) -> Iterator[str]:
    """Yield the page of a run."""
    first, *_ = parts
    description = first.head.config.get("description")
    yield "## trioeval" + (f": {code(description)}" if description else "") + "\n\n"
    totals = Totals.joined(part.totals for part in parts)
    if totals.rows:
        yield f"{_sum(totals, first)}\n\n"
    for hint in hint_lines([part.totals for part in parts]):
        yield f"{hint[:1].upper()}{hint[1:]}.\n\n"
    for part in parts:
        yield from _part(part)
    yield from _waits(first.info.activity)


def _sum(totals: Totals, results: Results) -> str:
    tokens = sum(column.tokens for column in totals.columns)
    cached = sum(column.from_cache for column in totals.columns)
    replies = counted(sum(column.replies for column in totals.columns), "reply", "replies")
    cost = math.fsum((own.cost or 0) + (own.grading_cost or 0) for own in totals.columns)
    share = f"{percent(totals.passed, totals.rated)} %" if totals.rated else "None"
    rate = f"**{share} of {counted(totals.rated, 'row')} passed**"
    facts = [
        f"{rate}: {counts_text(totals)}",
        f"{results.info.duration_ms / 1000:.1f} s",
        *([counted(tokens, "token")] if tokens else ()),
        *([f"{cached} of {replies} from cache"] if cached else ()),
        *([money(cost)] if cost or cached else ()),
    ]
    return "; ".join(facts)


def _part(part: Results) -> Iterator[str]:
    if part.task is not None:
        yield f"### Task {code(part.task)}\n\n"
    if part.totals.rows:
        more = [
            *(["not graded"] if part.totals.not_graded else ()),
            *(["not run"] if part.totals.left else ()),
        ]
        headings = [*_HEADINGS[:_COUNTS], *more, *_HEADINGS[_COUNTS:]]
        columns = zip(_headings(part), part.totals.columns, strict=True)
        yield from _table(
            headings, ([name, *_column(own, more)] for name, own in columns if own.rows)
        )
        yield from _failures(part)
    if (dataset := part.shown_dataset()) is not None:
        for line in dataset_lines(dataset):
            yield f"* {code(line, _REASON)}\n"
        yield "\n"


def _headings(part: Results) -> list[str]:
    """Return the name of each column: its provider, and its prompt if there are several."""
    columns = part.columns
    if len({(column.id, column.label) for column in columns}) == 1:
        return [code(column.provider) for column in columns]
    labels = (code(part.prompt_text(column.label)) for column in columns)
    return [
        f"{code(column.provider)} {label}" for column, label in zip(columns, labels, strict=True)
    ]


def _column(own: ColumnTotals, more: Sequence[str]) -> list[str]:
    counts = [own.passed, own.statuses[Status.FAIL], own.statuses[Status.ERROR]]
    counts += [own.not_graded] if "not graded" in more else []
    counts += [own.left] if "not run" in more else []
    latencies = map(own.latency_at, LATENCY_SHARES)
    cost = None if own.cost is None else own.cost + (own.grading_cost or 0)
    return [
        *map(str, counts),
        own.rate,
        _interval(own.intervals.pass_interval()),
        *("–" if latency is None else f"{latency:.0f}" for latency in latencies),
        str(own.tokens),
        "–" if cost is None else money(cost),
    ]


def _interval(found: Estimate | None) -> str:
    if found is None or found.low is None or found.high is None:
        return "–"
    return f"{100 * found.low:.1f} to {100 * found.high:.1f} %"


def _failures(part: Results) -> Iterator[str]:
    """The rows that did not pass, rows with the same error on one line, and the rows that were not run."""
    failures = _grouped(part)
    if failures.count:
        yield "#### Rows that did not pass\n\n"
        headings = _headings(part)
        lines = (_failure(group, headings) for group in failures.groups)
        yield from _table(("row", "", "provider", "status", "reason"), lines)
        if rest := failures.count - failures.grouped:
            yield f"… and {counted(rest, 'more row', 'more rows')}.\n\n"
    if (left := not_run_line(failures.not_run)) is not None:
        yield f"**{left}**\n\n"


def _grouped(part: Results) -> Failures:
    failures = Failures(_FAILURES)
    if part.totals.successes < part.totals.rows:
        for row in part.shown():
            failures.add(row.number, row)
    for one in part.never_began:
        if one["outcome"] in UNFINISHED:
            failures.not_run.add_range(range(one["firstRow"], one["lastRow"] + 1))
    return failures


def _failure(group: FailureGroup, headings: Sequence[str]) -> Sequence[str]:
    is_one = group.rows.count == 1
    return (
        str(group.rows),
        code(group.name) if is_one else counted(group.rows.count, "row"),
        headings[group.prompt_idx] if is_one else code(group.provider),
        group.status.name,
        code(_reason(group), _REASON + _OUTPUT),
    )


def _reason(group: FailureGroup) -> str:
    return group.reason if group.output is None else group.reason + shown_output(group.output)


def _waits(activity: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the waits of the run, the longest first."""
    waits = [wait for wait in longest_waits(activity) if wait.lane not in OWN_LANES][:_WAITS]
    shown = [wait for wait in waits if wait.seconds >= 0.05]  # noqa: PLR2004 - shown as 0.1
    if not shown:
        return
    took = math.fsum(one["durationS"] for one in activity)
    keys = (key for execution in activity for key in execution["lanes"] if key not in OWN_LANES)
    names = lane_names(keys, labels_of(activity))
    yield "#### Longest waits\n\n"
    for wait in shown:
        lane, why = code(names[wait.lane]), WAIT_WORDS[wait.why]
        yield f"* {wait.seconds:.1f} s of {took:.1f} s: {lane}, {why}\n"
    yield "\n"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |\n|{' --- |' * len(headings)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"
    yield "\n"
