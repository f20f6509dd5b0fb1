"""Tests from spreadsheets: a sheet is a table like a CSV file. Needs the extra xlsx."""

import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from trioeval.grading import quote
from trioeval.grading.text import output_text
from trioeval.suite.mistakes import Mistake, MistakenError, nearest
from trioeval.suite.models import Test
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.csv_tests import Table, read_table
from trioeval.suite.sources.csv_text import Row
from trioeval.suite.sources.xlsx_bounds import check_workbook

_WIDEST = 1 << 20
"""More columns than a sheet can have: the place of a cell is written as one number."""
_MOST_BLANK = 30_000_000
"""Empty cells that are passed over; one cell in the last corner of a sheet makes seventeen billion."""


def read_xlsx_tests(
    file: Path, sheet: str | None, around: Around, structure: Callable[[Any], Test]
) -> Sequence[Test]:
    """The tests of one sheet; rows without any text are passed over.

    Args:
        file: Absolute.
        sheet: Its name, or its number from 1; None takes the first one.
        around: The suite's surroundings.
        structure: Makes a test of plain data, or raises MistakenError.

    Raises:
        MistakenError: Everything that is wrong with the sheet, each with row and column; or the extra is not
            installed.
    """
    try:
        openpyxl: Any = importlib.import_module("openpyxl")
    except ModuleNotFoundError:
        message = f"tests from {quote(file.name)} need the extra xlsx"
        hint = "pip install trioeval[xlsx], or save the sheet as CSV"
        raise MistakenError(Mistake(message, hint)) from None
    try:
        with warnings.catch_warnings():
            # About styles and extensions that are not kept: nothing is written here.
            warnings.simplefilter("ignore")
            check_workbook(file)
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except MistakenError:
        raise
    except Exception as error:  # noqa: BLE001 - openpyxl lets through whatever zip and XML parsers raise
        message = f"not a spreadsheet: {error}"
        raise MistakenError(Mistake(message, "save it as .xlsx", file=file)) from None
    try:
        table = Table(_rows(_chosen(book, sheet, file), file), lambda at: divmod(at, _WIDEST))
        return read_table(table, file, around, structure)
    finally:
        book.close()


def _chosen(book: Any, sheet: str | None, file: Path) -> Any:
    names = book.sheetnames
    if sheet is None:
        return book[names[0]]
    if sheet in names:
        return book[sheet]
    if sheet.isdecimal() and 1 <= int(sheet) <= len(names):
        return book[names[int(sheet) - 1]]
    hint = f"{nearest(sheet, names)}; or a number from 1 to {len(names)}"
    raise MistakenError(Mistake(f"there is no sheet {quote(sheet)}", hint, file=file))


def _rows(sheet: Any, file: Path) -> Iterator[Row]:
    """The rows that hold something, as wide as the first one unless more is written behind it.

    Raises:
        MistakenError: Nearly all that it has are empty cells, because one stands far away from all others.
    """
    width = blank = 0
    for number, cells in enumerate(sheet.iter_rows(values_only=True), 1):
        empty = cells.count(None)
        blank += empty
        if blank > _MOST_BLANK:
            message = f"the sheet {quote(sheet.title)} has more than {_MOST_BLANK:,} empty cells"
            hint = "delete what stands far to the right or far below, and save it again"
            raise MistakenError(Mistake(message, hint, file=file))
        if empty == len(cells):
            continue
        texts = [_text(cell) for cell in cells]
        while texts and not texts[-1]:
            texts.pop()
        if not texts:
            continue
        width = width or len(texts)
        texts += [""] * (width - len(texts))
        starts = range(number * _WIDEST + 1, number * _WIDEST + 1 + len(texts))
        yield Row(tuple(texts), tuple(starts))


def _text(cell: Any) -> str:
    match cell:
        case None:
            return ""
        case datetime() | date() | time():
            return cell.isoformat()
        case _:
            return output_text(cell)
