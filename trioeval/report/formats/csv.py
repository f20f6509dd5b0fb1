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
from collections.abc import Iterable, Iterator, Sequence

from trioeval.grading import output_text
from trioeval.report.records import RowRecord
from trioeval.report.results import Results
from trioeval.report.totals import ColumnTotals
from trioeval.run import Status


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
        for _, group in itertools.groupby(results.shown(), key=lambda row: row.test_idx):
            by_column = {row.prompt_idx: row for row in group}
            some = next(iter(by_column.values()))
            cells = [] if results.task is None else [results.task]
            cells += [some.title or ""] if described else []
            cells += [output_text(some.vars[name]) if name in some.vars else "" for name in names]
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


def _cells(row: RowRecord | None, totals: ColumnTotals) -> list[str]:
    metrics = totals.metrics
    if row is None:
        more = len(_QUESTION) if totals.questions.total else 0
        more += len(_AGENT) if totals.attempts is not None else 0
        return [""] * (6 + len(metrics) + more + (len(_GRADING) if _judged(totals) else 0))
    named = row.named_scores
    rounded = {name: round(score, 2) for name, score in named.items()}
    return [
        "" if row.output is None else output_text(row.output),
        "ERROR" if row.status is Status.NOT_RUN else row.status.name,
        f"{row.score:.2f}",
        output_text(rounded) if rounded else "",
        *(f"{named[metric]:.2f}" if metric in named else "" for metric in metrics),
        *(_question_cells(row) if totals.questions.total else ()),
        *(_agent_cells(row) if totals.attempts is not None else ()),
        row.reason or "",
        *(_grading_cells(row) if _judged(totals) else ()),
        "",
    ]


def _question_cells(row: RowRecord) -> list[str]:
    return [row.question.get("outcome", ""), row.question.get("agentAnswer", "")]


def _agent_cells(row: RowRecord) -> list[str]:
    return ["" if row.agent is None else str(len(row.agent.attempts))]


def _grading_cells(row: RowRecord) -> list[str]:
    facts = (row.judge_tokens, row.grading_cost)
    return ["" if fact is None else output_text(fact) for fact in facts]


def _line(cells: Iterable[str], *, escape: bool) -> str:
    # What may end a line is quoted; a carriage return in a cell would end one for most readers.
    text, end = io.StringIO(newline=""), "\r\n"
    writer = csv.writer(text, lineterminator=end)
    writer.writerow([inert_cell(cell) for cell in cells] if escape else cells)
    return text.getvalue().removesuffix(end) + "\n"
