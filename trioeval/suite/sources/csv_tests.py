"""Tests from tables: one row is one test.

A row is converted to a test as a suite file would define it, and read like any other test; a mistake in that
test is reported at the cell that caused it.
"""

import importlib
import itertools
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias
from xml.etree import ElementTree as ET

import attrs

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError, Place, nearest
from trioeval.documents.paths import DocumentPath
from trioeval.documents.placing import MOST_SHOWN, first_mistakes
from trioeval.grading import Kinds, quote
from trioeval.grading.kinds.text import SPACES
from trioeval.suite.model import Test
from trioeval.suite.sources.csv_text import CsvRow, place_at, read_rows
from trioeval.suite.sources.expected import assertion_from_text, looks_typed
from trioeval.suite.sources.prompts import read_text
from trioeval.suite.sources.xlsx_bounds import check_workbook
from trioeval.text import output_text

# The roles of columns of a table of tests, by their names in the header.
#
# A name that begins with two underscores is not a variable.


Role: TypeAlias = Literal[
    "variable",
    "assertion",
    "assertion threshold",
    "metadata",
    "metadata list",
    "prefix",
    "suffix",
    "description",
    "providerOutput",
    "metric",
    "threshold",
    "nothing",
]
"""The meaning of the cells of a column."""

_SPECIAL: dict[str, Role] = {
    "__prefix": "prefix",
    "__suffix": "suffix",
    "__description": "description",
    "__providerOutput": "providerOutput",
    "__metric": "metric",
    "__threshold": "threshold",
}
_NEARLY_SPECIAL = re.compile(
    "_(?:expected|prefix|suffix|description|providerOutput|metric|threshold|metadata|config)"
)
_CONFIG = re.compile(r"__config:(?P<of>[^:]*):(?P<key>[^:]*)")
_EXPECTED = re.compile("__expected(?:0*[1-9][0-9]*)?")


@attrs.frozen
class TableColumn:
    """One column of a table of tests."""

    name: str
    """The header without surrounding space."""
    role: Role
    key: str = ""
    """The variable, the metadata key, or for a threshold the `__expected…` column."""


def column_of(name: str) -> TableColumn:
    """Return the column with a name in the header.

    Raises:
        MistakenError: It names an unknown setting.

    Example:
        >>> column_of(" city ").key, column_of("__metadata:tags[]").role
        ('city', 'metadata list')
    """
    name = name.strip(SPACES)
    if role := _SPECIAL.get(name):
        return TableColumn(name, role)
    if name.startswith("__expected"):
        return TableColumn(name, "assertion")
    if name.startswith("__metadata:"):
        key = name.removeprefix("__metadata:")
        if key.endswith("[]"):
            return TableColumn(name, "metadata list", key.removesuffix("[]"))
        return TableColumn(name, "metadata", key)
    if found := _CONFIG.fullmatch(name):
        if found["key"] != "threshold":
            message = f"{quote(found['key'])} is not a setting of an assertion in {quote(name)}"
            raise MistakenError(Mistake(message, 'the only one is "threshold"'))
        if not _EXPECTED.fullmatch(found["of"]):
            message = f"{quote(found['of'])} is not a column of assertions in {quote(name)}"
            raise MistakenError(Mistake(message, "write __expected, or __expected1 and so on"))
        return TableColumn(name, "assertion threshold", found["of"])
    if name == "__metadata" or name.startswith("__config:"):
        return TableColumn(name, "nothing")
    return TableColumn(name, "variable", name)


def column_warning(column: TableColumn) -> Mistake | None:
    """Return a warning about a column; None if it is as expected."""
    match column:
        case TableColumn("__metadata"):
            message = "the column __metadata has no effect without a key"
            return Mistake(message, "write __metadata:key")
        case TableColumn(name, "nothing"):
            message = f"the column {quote(name)} has no effect"
            return Mistake(message, "write __config:__expected1:threshold")
        case TableColumn("", "variable"):
            return Mistake("a column has no name", "check for a superfluous delimiter")
        case TableColumn(name, "variable") if _NEARLY_SPECIAL.match(name):
            return Mistake(f"the column {quote(name)} is a variable", f'did you mean "_{name}"?')
        case TableColumn(name, "variable") if name.startswith("__"):
            known = [*_SPECIAL, "__expected", "__metadata:key", "__config:__expected1:threshold"]
            return Mistake(f"the column {quote(name)} is a variable", nearest(name, known))
        case _:
            return None


_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SWALLOWED = "the rows after this line are read as one cell: their line breaks are of another kind"
_ONE_KIND = "end all lines like the first one, or quote the cell"
_COMMA = re.compile(r"(?<!\\),")


@attrs.frozen
class TestTable:
    """Rows of cells, and their positions."""

    rows: Iterable[CsvRow]
    place: Callable[[int], Place]
    """Converts the start of a cell, as its row records it, to line and column."""

    def placed(
        self, row: CsvRow, found: Iterable[tuple[int, Mistake]], file: Path
    ) -> Iterator[Mistake]:
        """Yield mistakes with the positions of their cells; one in another file is unchanged."""
        for cell, mistake in found:
            if mistake.file is not None:
                yield mistake
            else:
                place = self.place(row.starts[cell])
                yield attrs.evolve(mistake, file=file, place=place)


def read_csv_tests(
    file: Path, context: FileContext, structure: Callable[[Any], Test]
) -> Sequence[Test]:
    """Return the tests of a CSV file.

    Raises:
        MistakenError: All mistakes of the file, each with line and column.
    """
    text = read_text(file)
    rows = read_rows(
        text, delimiter=context.variable("CSV_DELIMITER", ","), strict=context.switch("CSV_STRICT")
    )
    return read_table(TestTable(rows, lambda at: place_at(text, at)), file, context, structure)


def read_table(
    table: TestTable, file: Path, context: FileContext, structure: Callable[[Any], Test]
) -> Sequence[Test]:
    """Return the tests of a table whose first row is the header.

    Raises:
        MistakenError: All of its mistakes.
    """
    tests: list[Test] = []
    mistakes: list[Mistake] = []
    rows = iter(table.rows)
    try:
        header = next(rows, None)
        if header is None:
            return ()
        columns, found = _columns(header)
        mistakes += table.placed(header, found, file)
        odd = [
            (cell, mistake.below(column.name))
            for cell, column in enumerate(columns)
            if (mistake := column_warning(column))
        ]
        for warning in table.placed(header, odd, file):
            context.warn(warning)
        reported: set[str] = set()
        for number, row in enumerate(rows):
            if row.swallowed is not None and _SWALLOWED not in reported:
                reported.add(_SWALLOWED)
                place = table.place(row.swallowed)
                context.warn(Mistake(_SWALLOWED, _ONE_KIND, file=file, place=place))
            for warning in table.placed(
                row, _suspects(columns, row, number, context.kinds, reported), file
            ):
                context.warn(warning)
            try:
                tests.append(_test(columns, row, number, structure, context.kinds))
            except _RowMistakesError as error:
                if len(mistakes) <= MOST_SHOWN:
                    mistakes += table.placed(row, error.found, file)
                else:  # only counted; finding a position scans all text before it
                    mistakes += (mistake for _, mistake in error.found)
    except MistakenError as error:  # the rest cannot be read
        mistakes += (attrs.evolve(mistake, file=file) for mistake in error.parts)
    if mistakes:
        raise MistakenError(*first_mistakes(mistakes, file))
    return tuple(tests)


def _columns(header: CsvRow) -> tuple[Sequence[TableColumn], Sequence[tuple[int, Mistake]]]:
    """Return the columns of a header, and its mistakes, each with its cell."""
    columns: list[TableColumn] = []
    mistakes: list[tuple[int, Mistake]] = []
    for cell, name in enumerate(header.cells):
        try:
            columns.append(column_of(name))
        except MistakenError as error:
            columns.append(TableColumn(name, "nothing"))
            mistakes += ((cell, mistake.below(name)) for mistake in error.parts)
    return columns, [*mistakes, *_repeated(columns)]


def _repeated(columns: Sequence[TableColumn]) -> Iterator[tuple[int, Mistake]]:
    seen: set[str] = set()
    for cell, column in enumerate(columns):
        if column.name in seen:
            message = f"duplicate column {quote(column.name)}"
            hint = "give every column a unique name"
            yield cell, Mistake(message, hint, at=(column.name,))
        seen.add(column.name)


def _suspects(
    columns: Sequence[TableColumn], row: CsvRow, number: int, kinds: Kinds, reported: set[str]
) -> Iterator[tuple[int, Mistake]]:
    """Yield warnings about cells that look like assertions and are texts; each word is reported once."""
    for cell, (column, text) in enumerate(zip(columns, row.cells, strict=False)):
        if column.role == "assertion" and (found := looks_typed(text, kinds)) is not None:
            word, warning = found
            if word not in reported:
                reported.add(word)
                yield cell, attrs.evolve(warning, at=(number, column.name))


def _ragged(row: CsvRow, width: int) -> Mistake:
    if row.cells == ("",):
        return Mistake("an empty line is not a valid row", "delete it")
    cells = "1 cell" if len(row.cells) == 1 else f"{len(row.cells)} cells"
    hint = "check for a comma in a text without quotes around it"
    return Mistake(f"a row of {cells} under a header of {width}", hint)


class _RowMistakesError(ValueError):
    """The mistakes of a row, each with its cell."""

    def __init__(self, *found: tuple[int, Mistake]) -> None:
        self.found = found
        super().__init__("; ".join(mistake.message for _, mistake in found))


def _test(
    columns: Sequence[TableColumn],
    row: CsvRow,
    number: int,
    structure: Callable[[Any], Test],
    kinds: Kinds,
) -> Test:
    """Return the test of one row.

    Raises:
        _CellError: All of its mistakes.
    """
    if len(row.cells) != len(columns):
        raise _RowMistakesError((0, _ragged(row, len(columns)).below(number)))
    mistakes: list[tuple[int, Mistake]] = []
    plain = _Plain(kinds)
    for cell, (column, text) in enumerate(zip(columns, row.cells, strict=True)):
        try:
            plain.take(column, text, cell)
        except MistakenError as error:
            mistakes += ((cell, mistake) for mistake in error.parts)
    try:
        test = structure(plain.test(f"Row #{number + 1}"))
    except MistakenError as error:
        mistakes += ((plain.source(mistake.at), mistake) for mistake in error.parts)
    if mistakes:
        raise _RowMistakesError(
            *(
                # Positions are those of cells: paths in the test would mean nothing to the reader.
                (cell, mistake)
                if mistake.file
                else (cell, attrs.evolve(mistake, at=(number, columns[cell].name), key=False))
                for cell, mistake in mistakes
            )
        )
    return test


@attrs.define(eq=False, repr=False)
class _Plain:
    """A test as plain data, under construction, and the cells that its parts come from."""

    kinds: Kinds
    vars: dict[str, str] = attrs.field(factory=dict)
    options: dict[str, str] = attrs.field(factory=dict)
    metadata: dict[str, Any] = attrs.field(factory=dict)
    others: dict[str, Any] = attrs.field(factory=dict)
    metric: str = ""
    _assertions: list[tuple[str, dict[str, Any]]] = attrs.field(factory=list)
    """Each with the name of its column."""
    _thresholds: dict[str, float] = attrs.field(factory=dict)
    """By the column of the assertion."""
    _cells: dict[DocumentPath, int] = attrs.field(factory=dict)

    def take(self, column: TableColumn, text: str, cell: int) -> None:
        """Add one cell."""
        match column.role:
            case "variable":
                self.vars[column.key] = text
                self._cells["vars", column.key] = cell
            case "prefix" | "suffix":
                self.options[column.role] = text
                self._cells["options", column.role] = cell
            case "metric":
                self.metric = text
            case "description" | "providerOutput":
                if text:
                    self.others[column.role] = text
                    self._cells[column.role,] = cell
            case _ if text.strip(SPACES):
                self._take_read(column, text, cell)
            case _:
                pass

    def _take_read(self, column: TableColumn, text: str, cell: int) -> None:
        """Add a cell whose value is not simply its text."""
        match column.role:
            case "threshold":
                if (number := cell_number(text)) is not None:
                    self.others["threshold"] = number
                    self._cells["threshold",] = cell
            case "metadata":
                self.metadata[column.key] = text
            case "metadata list":
                self.metadata[column.key] = [
                    part.strip(SPACES).replace("\\,", ",") for part in _COMMA.split(text)
                ]
            case "assertion":
                self._cells["assert", len(self._assertions)] = cell
                self._assertions.append((column.name, assertion_from_text(text, self.kinds)))
            case "assertion threshold":
                self._take_threshold(column.key, text)
            case _:
                pass

    def _take_threshold(self, column: str, text: str) -> None:
        number = cell_number(text)
        if number is None:
            message = f"must be a number, got {quote(text)}"
            raise MistakenError(Mistake(message, "or leave the cell empty"))
        self._thresholds[column] = number
        self.metadata["threshold"] = number

    def test(self, description: str) -> dict[str, Any]:
        """Return the test; the description is used if it has none."""
        assertions = []
        for name, assertion in self._assertions:
            other = {"__expected": "__expected1", "__expected1": "__expected"}.get(name, name)
            threshold = self._thresholds.get(name, self._thresholds.get(other))
            if threshold is not None:
                assertion["threshold"] = threshold
            if self.metric:
                assertion["metric"] = self.metric
            assertions.append(assertion)
        test: dict[str, Any] = {"description": description, "vars": self.vars, **self.others}
        parts = {"assert": assertions, "options": self.options, "metadata": self.metadata}
        return test | {key: part for key, part in parts.items() if part}

    def source(self, path: DocumentPath) -> int:
        """Return the cell that the part at `path` comes from; the first of several."""
        return self._cells.get(path[:2], self._cells.get(path[:1], 0))


def cell_number(text: str) -> float | None:
    """Return the number in a cell that contains nothing else; None for other cells.

    Example:
        >>> cell_number(" .5 "), cell_number("80%")
        (0.5, None)
    """
    text = text.strip(SPACES)
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


# Tests from spreadsheets: a sheet is a table like a CSV file. Requires the extra xlsx.


_SAVE_AGAIN = "open it in a spreadsheet program and save it again"
_LONGEST = 1 << 20
"""The maximum number of rows of a sheet."""
_WIDEST = 1 << 20
"""More columns than a sheet can have: the position of a cell is stored as one number."""
_MOST_BLANK = 30_000_000
"""The maximum number of empty cells skipped; one cell in the last corner of a sheet makes 17 billion."""


def read_xlsx_tests(
    file: Path, sheet: str | None, context: FileContext, structure: Callable[[Any], Test]
) -> Sequence[Test]:
    """Return the tests of one sheet; rows without any text are skipped.

    Args:
        file: Absolute.
        sheet: Its name, or its number from 1; None takes the first one.
        context: The context of the suite's files.
        structure: Converts plain data to a test, or raises MistakenError.

    Raises:
        MistakenError: All mistakes of the sheet, each with row and column; or the extra is not installed.
    """
    try:
        openpyxl: Any = importlib.import_module("openpyxl")
    except ModuleNotFoundError:
        message = f"tests from {quote(file.name)} require the extra xlsx"
        hint = "pip install trioeval[xlsx], or save the sheet as CSV"
        raise MistakenError(Mistake(message, hint)) from None
    try:
        with warnings.catch_warnings():
            # About styles and extensions that are lost when writing: nothing is written here.
            warnings.simplefilter("ignore")
            check_workbook(file)
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except MistakenError:
        raise
    except Exception as error:  # noqa: BLE001 - openpyxl lets through whatever zip and XML parsers raise
        message = f"not a spreadsheet: {error}"
        raise MistakenError(Mistake(message, "save it as .xlsx", file=file)) from None
    try:
        chosen = _chosen(book, sheet, file, context)
        _check_cells(file, chosen)
        table = TestTable(_rows(chosen, file), lambda at: divmod(at, _WIDEST))
        return read_table(table, file, context, structure)
    finally:
        book.close()


def _chosen(book: Any, sheet: str | None, file: Path, context: FileContext) -> Any:
    names = book.sheetnames
    if sheet is None:
        name = names[0]
    elif sheet in names:
        name = sheet
    elif sheet.isdecimal() and 1 <= int(sheet) <= len(names):
        name = names[int(sheet) - 1]
    else:
        hint = f"{nearest(sheet, names)}; or a number from 1 to {len(names)}"
        raise MistakenError(Mistake(f"unknown sheet {quote(sheet)}", hint, file=file))
    found = book[name]
    if not hasattr(found, "iter_rows"):
        message = f"the sheet {quote(name)} is a chart"
        raise MistakenError(Mistake(message, "name a sheet with cells", file=file))
    if sheet is None and found.sheet_state != "visible":
        message = f"the first sheet, {quote(name)}, is hidden; its rows are used as tests"
        context.warn(Mistake(message, f"name the sheet to use: {file.name}#{name}", file=file))
    return found


def _check_cells(file: Path, sheet: Any) -> None:
    """Refuse a sheet of which openpyxl would silently skip parts.

    Raises:
        MistakenError: Rows or cells are out of order or out of range, or formulas have no value.
    """
    mistakes: list[Mistake] = []
    try:
        with zipfile.ZipFile(file) as archive, archive.open(sheet._worksheet_path) as source:  # noqa: SLF001 - not available in public
            for message, place in itertools.islice(_lost_cells(source), MOST_SHOWN):
                mistakes.append(Mistake(message, _SAVE_AGAIN, file=file, place=place))
    except (ET.ParseError, KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        message = f"not a spreadsheet: {error}"
        raise MistakenError(Mistake(message, "save it as .xlsx", file=file)) from None
    if mistakes:
        raise MistakenError(*mistakes)


def _lost_cells(source: IO[bytes]) -> Iterator[tuple[str, Place]]:
    """Yield the rows and cells of a sheet that would be lost, in the order of the file."""
    last_row = 0
    for _, row in ET.iterparse(source):  # noqa: S314 - openpyxl has read the same XML with it before
        if not row.tag.endswith("}row"):
            continue
        number = int(float(row.get("r", last_row + 1)))
        if number > _LONGEST:
            yield f"row {number} is out of range", (number, 1)
            return
        if number <= last_row:
            yield f"row {number} follows row {last_row}", (number, 1)
        last_row, last_column = number, 0
        for cell in row:
            reference = cell.get("r")
            column = last_column + 1 if reference is None else _column(reference)
            if not last_column < column < _WIDEST:
                yield f"the cell {reference} is out of order in its row", (number, 1)
            last_column = column
            texts = {part.tag.rpartition("}")[2]: part.text for part in cell}
            if "f" in texts and not texts.get("v"):
                yield "the value of this formula is not in the file", (number, column)
        row.clear()


def _column(reference: str) -> int:
    """Return the number of a column, from 1.

    Example:
        >>> _column("A1"), _column("AB12")
        (1, 28)
    """
    number = 0
    for letter in itertools.takewhile(str.isalpha, reference.upper()):
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def _rows(sheet: Any, file: Path) -> Iterator[CsvRow]:
    """Yield the rows that are not empty, padded to the width of the first one.

    Raises:
        MistakenError: Nearly all cells are empty, because one is far away from all others.
    """
    width = blank = 0
    sheet.reset_dimensions()  # the size recorded in a file may be out of date, and hide rows
    for number, cells in enumerate(sheet.iter_rows(values_only=True), 1):
        empty = cells.count(None)
        blank += empty
        if blank > _MOST_BLANK:
            message = f"the sheet {quote(sheet.title)} has more than {_MOST_BLANK:,} empty cells"
            hint = "delete the contents far to the right or far below, and save it again"
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
        yield CsvRow(tuple(texts), tuple(starts))


def _text(cell: Any) -> str:
    match cell:
        case None:
            return ""
        case datetime() | date() | time():
            return cell.isoformat()
        case _:
            return output_text(cell)
