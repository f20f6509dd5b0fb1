"""Tables as text: rows of cells, and the position of each cell.

The dialect is that of csv-parse, which reads the CSV files of promptfoo and differs from that of the standard
library: the first line break of the file is the only kind that ends rows; nothing is stripped; an empty line
is a row with one empty cell. A misplaced quote is an error in strict mode, and otherwise an ordinary
character: `5" screen` is a text, and so is `"very" good`.
"""

import re
from collections.abc import Iterator

import attrs

from trioeval.documents.mistakes import Mistake, MistakenError, Place

_LINE_BREAK = re.compile(r"\r\n|\n|\r")
_QUOTED = re.compile(r'"((?:[^"]|"")*+)')
"""A quote and the text after it, up to a quote that is not doubled."""


@attrs.frozen
class CsvRow:
    """One row of a table."""

    cells: tuple[str, ...]
    starts: tuple[int, ...]
    """The start of each cell, in characters of the text."""
    swallowed: int | None = None
    """The start of an unquoted cell that contains a line break of another kind than the file's."""


def read_rows(text: str, *, delimiter: str = ",", strict: bool = False) -> Iterator[CsvRow]:
    r"""Yield the rows of a CSV text, including the header.

    Args:
        text: The text, without a byte order mark.
        delimiter: The separator of cells; one character or more.
        strict: Quotes must follow the rules of CSV.

    Raises:
        MistakenError: A quote is never closed or, in strict mode, misplaced; with its line and column. Raised
            when that row is reached.

    Example:
        >>> [row.cells for row in read_rows('a,b\n1,"x\n""y"" z"\n')]
        [('a', 'b'), ('1', 'x\n"y" z')]
    """
    # Unquoted cells end here; after the first line break, only line breaks equal to it count.
    end = re.compile(f"{re.escape(delimiter)}|{_LINE_BREAK.pattern}")
    any_break = True
    cells: list[str] = []
    starts: list[int] = []
    swallowed: int | None = None
    at = 0
    while at < len(text) or cells:
        cell, behind = _cell(text, at, end, strict=strict)
        if text[at : at + 1] != '"' and not any_break and _LINE_BREAK.search(cell):
            swallowed = at
        cells.append(cell)
        starts.append(at)
        ending = end.match(text, behind)
        at = ending.end() if ending else len(text)
        if ending and ending[0] == delimiter:
            continue
        if ending and any_break:
            end = re.compile(f"{re.escape(delimiter)}|{ending[0]}")
            any_break = False
        yield CsvRow(tuple(cells), tuple(starts), swallowed)
        cells, starts, swallowed = [], [], None


def place_at(text: str, at: int) -> Place:
    r"""Return the line and column of a character.

    Example:
        >>> place_at("a\nbc", 3)
        (2, 2)
    """
    breaks = text.count("\n", 0, at) + text.count("\r", 0, at) - text.count("\r\n", 0, at)
    return breaks + 1, at - max(text.rfind("\n", 0, at), text.rfind("\r", 0, at))


def _cell(text: str, at: int, end: re.Pattern[str], *, strict: bool) -> tuple[str, int]:
    """Return the cell that begins at `at`, and its end."""
    content = ""
    if found := _QUOTED.match(text, at):
        content, closing = found[1].replace('""', '"'), found.end()
        if closing == len(text):
            raise MistakenError(_misplaced(text, at, "a quote is never closed"))
        at = closing + 1
        if at == len(text) or end.match(text, at):
            return content, at
        if strict:
            message = "a quote inside of a quoted cell must be doubled"
            raise MistakenError(_misplaced(text, closing, message))
        # The quote closes nothing: the cell was never quoted.
        content, at = f'"{content}', closing
    ending = end.search(text, at)
    stop = ending.start() if ending else len(text)
    rest = text[at:stop]
    if strict and '"' in rest:
        message = "a cell that contains a quote must be quoted"
        raise MistakenError(_misplaced(text, at + rest.index('"'), message))
    return content + rest, stop


def _misplaced(text: str, at: int, message: str) -> Mistake:
    return Mistake(
        message, 'write a quote as "" in a cell between quotes', place=place_at(text, at)
    )
