# Apart from `cli.output`: loaded when it is used.
"""Results as a spreadsheet: a line a test, a group of columns for each provider and prompt.

What models answer is foreign text, and spreadsheets run cells that begin like a formula: those get an
apostrophe in front, which spreadsheets read as "this is text". Where semicolons or tabs part cells, a program
that opens the file parts it there too, also inside of quotes: what begins like a formula behind one, or on a
later line of a cell, gets an apostrophe as well. Lists with dashes stay as they are.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trioeval.grading import output_text
from trioeval.report.head import agent_of
from trioeval.report.records import title_of_test
from trioeval.report.results import Results
from trioeval.report.totals import ColumnTotals
from trioeval.report.usage import was_judged

_STATUSES = ("PASS", "FAIL", "ERROR")


def csv_chunks(*parts: Results) -> Iterator[str]:
    """The CSV text of all rows, a line at a time.

    Args:
        parts: One run, or its tasks: each has columns of its own, which are empty for the others.
    """
    escape = parts[0].info.escape_formulas
    described = any(part.totals.has_descriptions for part in parts)
    names = _names(parts)
    yield _line(_headings(parts, names, described=described), escape=escape)
    for results in parts:
        for _, group in itertools.groupby(results.shown(), key=lambda row: row["testIdx"]):
            by_column = {row["promptIdx"]: row for row in group}
            some = next(iter(by_column.values()))
            cells = [] if results.task is None else [results.task]
            cells += [title_of_test(some) or ""] if described else []
            cells += [
                output_text(some["vars"][name]) if name in some["vars"] else "" for name in names
            ]
            for part in parts:
                for prompt_idx, totals in enumerate(part.totals.columns):
                    row = by_column.get(prompt_idx) if part is results else None
                    cells += _cells(row, totals)
            yield _line(cells, escape=escape)


def inert_cell(text: str) -> str:
    r"""A cell that no spreadsheet takes for a formula; numbers stay numbers.

    Example:
        >>> inert_cell("=1+1"), inert_cell(" @x"), inert_cell("-1.5"), inert_cell("-a")
        ("'=1+1", "' @x", '-1.5', "'-a")
        >>> inert_cell("\tx"), inert_cell("＝1+1")
        ("'\tx", "'＝1+1")
        >>> inert_cell("a;=1+1"), inert_cell("a\t@x\n=b"), inert_cell("two:\n- a\n- b; c")
        ("a;'=1+1", "a\t'@x\n'=b", 'two:\n- a\n- b; c')
    """
    is_formula = _FORMULA.match(text) and not _is_number(text)
    if _PARTED.search(text):
        text = _INNER.sub(lambda found: found[1] + "'" * (found[2] is not None), text)
    return "'" + text if is_formula else text


_UNSEEN = (
    "\\s\\x00-\\x20\\x7f-\\xa0\\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f"
)
_FORMULA = re.compile(
    # Tabs and line ends make cells of what is behind them where a file is read anew;
    "[\t\n\v\f\r]"
    # and what is white or cannot be seen is skipped before a formula, which may be of wide characters.
    f"|[{_UNSEEN}]*[=@+\\-＝＠＋－]"
)
"""How cells begin that spreadsheets may run."""
_PARTED = re.compile("[;\t\n\v\f\r]")
_INNER = re.compile(
    # Quotes are doubled when they are written, and an empty pair is skipped.
    f'([;\t\n\v\f\r][{_UNSEEN}"]*+)'
    # A line under a heading is no formula; a dash before words is none that calls anything.
    "((?!(?:=++|-++)(?:[;\t\n\v\f\r]|$))"
    "(?=[=@＝＠]|[+\\-＋－](?! +[^|(!;\t\n\v\f\r]*+(?:[;\t\n\v\f\r]|$))))?"
)
"""Where semicolons, tabs or lines part a cell, and whether a formula begins there; looks at nothing twice."""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "n" not in text.lower() and "_" not in text  # neither nan nor infinity


def _names(parts: Sequence[Results]) -> list[str]:
    if parts[0].info.strip.test_vars:
        return []
    return list({name: None for part in parts for name in part.totals.vars})


def _headings(parts: Sequence[Results], names: Sequence[str], *, described: bool) -> list[str]:
    found = [] if parts[0].task is None else ["Task"]
    found += ["Description"] if described else []
    found += names
    for results in parts:
        for column, totals in zip(results.columns, results.totals.columns, strict=True):
            name = f"[{column.provider}] {results.prompt_text(column.label)}"
            found += [name, "Status", "Score", "Named Scores"]
            found += [f"Metric: {metric}" for metric in totals.metrics]
            found += _QUESTION if totals.questions.total else ()
            found += _AGENT if totals.attempts is not None else ()
            found += ["Grader Reason", *_GRADING, "Comment"] if _judged(totals) else _REASON
    return found


_QUESTION = ("Outcome", "Answer")
_AGENT = ("Attempts",)
_REASON = ("Grader Reason", "Comment")
_GRADING = ("Grading Tokens", "Grading Cost")


def _judged(totals: ColumnTotals) -> bool:
    """Whether models judged rows of a column."""
    return totals.usage.judges is not None


def _cells(row: Mapping[str, Any] | None, totals: ColumnTotals) -> list[str]:
    metrics = totals.metrics
    if row is None:
        more = len(_QUESTION) if totals.questions.total else 0
        more += len(_AGENT) if totals.attempts is not None else 0
        return [""] * (6 + len(metrics) + more + (len(_GRADING) if _judged(totals) else 0))
    response, graded, named = row["response"], row["gradingResult"], row["namedScores"]
    output = None if response is None else response["output"]
    rounded = {name: round(score, 2) for name, score in named.items()}
    # A row without a verdict says in its place why there is none.
    reason = row["error"] if graded is None else graded["reason"]
    return [
        "" if output is None else output_text(output),
        _STATUSES[row["failureReason"]],
        f"{row['score']:.2f}",
        output_text(rounded) if rounded else "",
        *(f"{named[metric]:.2f}" if metric in named else "" for metric in metrics),
        *(_question_cells(row) if totals.questions.total else ()),
        *(_agent_cells(row) if totals.attempts is not None else ()),
        reason or "",
        *(_grading_cells(row) if _judged(totals) else ()),
        "",
    ]


def _question_cells(row: Mapping[str, Any]) -> list[str]:
    question = row.get("question", {})
    return [question.get("outcome", ""), question.get("agentAnswer", "")]


def _agent_cells(row: Mapping[str, Any]) -> list[str]:
    agent = agent_of(row)
    return ["" if agent is None else str(len(agent.attempts))]


def _grading_cells(row: Mapping[str, Any]) -> list[str]:
    judges = row["tokenUsage"]["assertions"]
    cost = row["metadata"]["trioeval"].get("gradingCost")
    return [
        str(judges["total"]) if was_judged(row["tokenUsage"]) else "",
        "" if cost is None else output_text(cost),
    ]


def _line(cells: Iterable[str], *, escape: bool) -> str:
    # What may end a line is quoted; a carriage return in a cell would end one for most readers.
    text, end = io.StringIO(newline=""), "\r\n"
    writer = csv.writer(text, lineterminator=end)
    writer.writerow([inert_cell(cell) for cell in cells] if escape else cells)
    return text.getvalue().removesuffix(end) + "\n"
