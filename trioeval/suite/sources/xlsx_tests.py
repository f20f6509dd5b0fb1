"""Tests from spreadsheets: a sheet is a table like a CSV file. Needs the extra xlsx."""

import importlib
import itertools
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree as ET

from trioeval.grading import quote
from trioeval.grading.text import output_text
from trioeval.suite.mistakes import Mistake, MistakenError, Place, nearest
from trioeval.suite.models import Test
from trioeval.suite.placing import TOLD
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.csv_tests import Table, read_table
from trioeval.suite.sources.csv_text import Row
from trioeval.suite.sources.xlsx_bounds import check_workbook

_SAVE_AGAIN = "open it in a spreadsheet program and save it again"
_LONGEST = 1 << 20
"""Rows that a sheet can have."""
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
        chosen = _chosen(book, sheet, file, around)
        _check_cells(file, chosen)
        table = Table(_rows(chosen, file), lambda at: divmod(at, _WIDEST))
        return read_table(table, file, around, structure)
    finally:
        book.close()


def _chosen(book: Any, sheet: str | None, file: Path, around: Around) -> Any:
    names = book.sheetnames
    if sheet is None:
        name = names[0]
    elif sheet in names:
        name = sheet
    elif sheet.isdecimal() and 1 <= int(sheet) <= len(names):
        name = names[int(sheet) - 1]
    else:
        hint = f"{nearest(sheet, names)}; or a number from 1 to {len(names)}"
        raise MistakenError(Mistake(f"there is no sheet {quote(sheet)}", hint, file=file))
    found = book[name]
    if not hasattr(found, "iter_rows"):
        message = f"the sheet {quote(name)} is a chart"
        raise MistakenError(Mistake(message, "name a sheet with cells", file=file))
    if sheet is None and found.sheet_state != "visible":
        message = f"the first sheet, {quote(name)}, is hidden, and its rows are the tests"
        around.warn(
            Mistake(message, f"name the sheet that is meant: {file.name}#{name}", file=file)
        )
    return found


def _check_cells(file: Path, sheet: Any) -> None:
    """Refuse what openpyxl would leave out without a word.

    Raises:
        MistakenError: Rows or cells are out of order or where no sheet has any, or formulas have no value.
    """
    mistakes: list[Mistake] = []
    try:
        with zipfile.ZipFile(file) as archive, archive.open(sheet._worksheet_path) as source:  # noqa: SLF001 - nothing public tells it
            for message, place in itertools.islice(_lost_cells(source), TOLD):
                mistakes.append(Mistake(message, _SAVE_AGAIN, file=file, place=place))
    except (ET.ParseError, KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        message = f"not a spreadsheet: {error}"
        raise MistakenError(Mistake(message, "save it as .xlsx", file=file)) from None
    if mistakes:
        raise MistakenError(*mistakes)


def _lost_cells(source: IO[bytes]) -> Iterator[tuple[str, Place]]:
    """The rows and cells of a sheet that would be lost, in the order of the file."""
    last_row = 0
    for _, row in ET.iterparse(source):  # noqa: S314 - openpyxl has read the same XML with it before
        if not row.tag.endswith("}row"):
            continue
        number = int(float(row.get("r", last_row + 1)))
        if number > _LONGEST:
            yield f"no sheet has a row {number}", (number, 1)
            return
        if number <= last_row:
            yield f"row {number} stands behind row {last_row}", (number, 1)
        last_row, last_column = number, 0
        for cell in row:
            reference = cell.get("r")
            column = last_column + 1 if reference is None else _column(reference)
            if not last_column < column < _WIDEST:
                yield f"the cell {reference} stands behind another one of its row", (number, 1)
            last_column = column
            texts = {part.tag.rpartition("}")[2]: part.text for part in cell}
            if "f" in texts and not texts.get("v"):
                yield "the value of this formula is not in the file", (number, column)
        row.clear()


def _column(reference: str) -> int:
    """The number of a column, from 1.

    Example:
        >>> _column("A1"), _column("AB12")
        (1, 28)
    """
    number = 0
    for letter in itertools.takewhile(str.isalpha, reference.upper()):
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def _rows(sheet: Any, file: Path) -> Iterator[Row]:
    """The rows that hold something, as wide as the first one unless more is written behind it.

    Raises:
        MistakenError: Nearly all that it has are empty cells, because one stands far away from all others.
    """
    width = blank = 0
    sheet.reset_dimensions()  # what a file says of its own size may be out of date, and hide rows
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
