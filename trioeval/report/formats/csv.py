"""Results as a spreadsheet: a line for each test, a group of columns for each provider and prompt.

Replies of models are foreign text, and spreadsheets run cells that begin like a formula. Such cells get a
leading apostrophe, which spreadsheets read as "this is text". A program that splits cells at semicolons or
tabs does so inside of quotes too, so a formula behind a separator, or on a later line of a cell, gets an
apostrophe as well. Lists with dashes stay unchanged.
"""

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from trioeval.grading import output_text
from trioeval.report.records import RowRecord
from trioeval.report.results import Results
from trioeval.run import Status


def csv_chunks(*parts: Results) -> Iterator[str]:
    """Yield the CSV text of all rows, line by line.

    Args:
        parts: One run, or its tasks: each has its own columns, which are empty in the rows of the others.
    """
    escape = parts[0].info.escape_formulas
    described = any(part.totals.has_descriptions for part in parts)
    names = _names(parts)
    columns = [[*_columns(part)] for part in parts]
    about = [] if parts[0].task is None else ["Task"]
    about += ["Description"] if described else []
    titles = (cell.title for own in columns for cells in own for cell in cells)
    yield _line([*about, *names, *titles], escape=escape)
    for results in parts:
        for _, group in itertools.groupby(results.shown(), key=lambda row: row.test_idx):
            by_column = {row.prompt_idx: row for row in group}
            some = next(iter(by_column.values()))
            cells = [] if results.task is None else [results.task]
            cells += [some.title or ""] if described else []
            cells += [output_text(some.vars[name]) if name in some.vars else "" for name in names]
            for part, own in zip(parts, columns, strict=True):
                for prompt_idx, shown in enumerate(own):
                    row = by_column.get(prompt_idx) if part is results else None
                    cells += ["" if row is None else cell.text(row) for cell in shown]
            yield _line(cells, escape=escape)


def inert_cell(text: str) -> str:
    r"""Return a cell that no spreadsheet runs as a formula; numbers stay numbers.

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
    # Tabs and line ends start new cells when a file is read again;
    "[\t\n\v\f\r]"
    # leading blanks and invisible characters are skipped, and the formula may be in wide characters.
    f"|[{_UNSEEN}]*[=@+\\-＝＠＋－]"
)
"""The beginnings of cells that spreadsheets may run."""
_PARTED = re.compile("[;\t\n\v\f\r]")
_INNER = re.compile(
    # Quotes are doubled on writing, and an empty pair is skipped.
    f'([;\t\n\v\f\r][{_UNSEEN}"]*+)'
    # A line under a heading is not a formula; a dash before words cannot call a function.
    "((?!(?:=++|-++)(?:[;\t\n\v\f\r]|$))"
    "(?=[=@＝＠]|[+\\-＋－](?! +[^|(!;\t\n\v\f\r]*+(?:[;\t\n\v\f\r]|$))))?"
)
"""The separators of cells, with a formula behind them or not; matches no character twice."""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "n" not in text.lower() and "_" not in text  # excludes nan and infinity


def _names(parts: Sequence[Results]) -> list[str]:
    if parts[0].info.strip.test_vars:
        return []
    return list({name: None for part in parts for name in part.totals.vars})


@attrs.frozen
class _CsvCell:
    """One cell of a row."""

    title: str
    text: Callable[[RowRecord], str]


def _columns(results: Results) -> Iterator[Sequence[_CsvCell]]:
    """Return the cells of a row for each provider and prompt."""
    for column, totals in zip(results.columns, results.totals.columns, strict=True):
        name = f"[{column.provider}] {results.prompt_text(column.label)}"
        metrics = (_CsvCell(f"Metric: {one}", partial(_metric, one)) for one in totals.metrics)
        is_question, is_agent = totals.questions.total, totals.attempts is not None
        yield (
            _CsvCell(name, lambda row: _known(row.output)),
            _CsvCell("Status", lambda row: row.status.label),
            _CsvCell("Score", _score),
            _CsvCell("Named Scores", _named_scores),
            *metrics,
            *(_QUESTION if is_question else ()),
            *(_AGENT if is_agent else ()),
            _CsvCell("Grader Reason", lambda row: row.reason or ""),
            *(_GRADING if totals.usage.judges is not None else ()),
            _CsvCell("Comment", lambda _: ""),
        )


def _known(fact: Any) -> str:
    return "" if fact is None else output_text(fact)


def _score(row: RowRecord) -> str:
    # An empty cell enters no average of a spreadsheet.
    score = None if row.status is Status.NOT_RUN else row.counted_score
    return "" if score is None else f"{score:.2f}"


def _named_scores(row: RowRecord) -> str:
    rounded = {name: round(score, 2) for name, score in row.named_scores.items()}
    return output_text(rounded) if rounded else ""


def _metric(name: str, row: RowRecord) -> str:
    return f"{row.named_scores[name]:.2f}" if name in row.named_scores else ""


_QUESTION = (
    _CsvCell("Outcome", lambda row: row.question.get("outcome", "")),
    _CsvCell("Answer", lambda row: row.question.get("agentAnswer", "")),
)
_AGENT = (
    _CsvCell("Attempts", lambda row: "" if row.agent is None else str(len(row.agent.attempts))),
)
_GRADING = (
    _CsvCell("Grading Tokens", lambda row: _known(row.judge_tokens)),
    _CsvCell("Grading Cost", lambda row: _known(row.grading_cost)),
)


def _line(cells: Iterable[str], *, escape: bool) -> str:
    # Line separators are quoted; for most readers a carriage return in a cell would end the line.
    text, end = io.StringIO(newline=""), "\r\n"
    writer = csv.writer(text, lineterminator=end)
    writer.writerow([inert_cell(cell) for cell in cells] if escape else cells)
    return text.getvalue().removesuffix(end) + "\n"
