"""Tests from tables: one row is one test.

What a row says becomes a test as a suite file would write it, and goes the way of all tests; what is wrong
with that test is told at the cell it comes from.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.grading import Kinds, quote
from trioeval.grading.lists import SPACES
from trioeval.suite.mistakes import Mistake, MistakenError, Place
from trioeval.suite.models import Test
from trioeval.suite.paths import DocumentPath
from trioeval.suite.placing import TOLD, shortened
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.csv_text import Row, place_at, read_rows
from trioeval.suite.sources.expected import assertion_from_text, looks_typed
from trioeval.suite.sources.prompt_files import read_text
from trioeval.suite.sources.table_columns import Column, column_of, oddity

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SWALLOWED = "the rows behind this line are read as one cell: their line breaks are of another kind"
_ONE_KIND = "end all lines as the first one ends, or put the cell in quotes"
_COMMA = re.compile(r"(?<!\\),")


@attrs.frozen
class Table:
    """Rows of cells, and where they stand."""

    rows: Iterable[Row]
    place: Callable[[int], Place]
    """From where a cell begins, as its row says, to line and column."""

    def placed(
        self, row: Row, found: Iterable[tuple[int, Mistake]], file: Path
    ) -> Iterator[Mistake]:
        """Mistakes at the cells that they come from; one in another file stays where it is."""
        for cell, mistake in found:
            if mistake.file is not None:
                yield mistake
            else:
                place = self.place(row.starts[cell])
                yield attrs.evolve(mistake, file=file, place=place)


def read_csv_tests(file: Path, around: Around, structure: Callable[[Any], Test]) -> Sequence[Test]:
    """The tests of a CSV file; those without a description are called by their number.

    Args:
        file: Absolute.
        around: Its `CSV_DELIMITER` and `CSV_STRICT` say how the file is read.
        structure: Makes a test of plain data, or raises MistakenError.

    Raises:
        MistakenError: Everything that is wrong with the file, each with line and column.
    """
    text = read_text(file)
    rows = read_rows(
        text, delimiter=around.variable("CSV_DELIMITER", ","), strict=around.switch("CSV_STRICT")
    )
    return read_table(Table(rows, lambda at: place_at(text, at)), file, around, structure)


def read_table(
    table: Table, file: Path, around: Around, structure: Callable[[Any], Test]
) -> Sequence[Test]:
    """The tests of a table whose first row is the header.

    Raises:
        MistakenError: Everything that is wrong with it.
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
            if (mistake := oddity(column))
        ]
        for warning in table.placed(header, odd, file):
            around.warn(warning)
        told: set[str] = set()
        for number, row in enumerate(rows):
            if row.swallowed is not None and _SWALLOWED not in told:
                told.add(_SWALLOWED)
                place = table.place(row.swallowed)
                around.warn(Mistake(_SWALLOWED, _ONE_KIND, file=file, place=place))
            for warning in table.placed(
                row, _suspects(columns, row, number, around.kinds, told), file
            ):
                around.warn(warning)
            try:
                tests.append(_test(columns, row, number, structure, around.kinds))
            except _CellError as error:
                if len(mistakes) <= TOLD:
                    mistakes += table.placed(row, error.found, file)
                else:  # they are only counted; to place one is to look at all that is before it
                    mistakes += (mistake for _, mistake in error.found)
    except MistakenError as error:  # from here on nothing can be read
        mistakes += (attrs.evolve(mistake, file=file) for mistake in error.parts)
    if mistakes:
        raise MistakenError(*shortened(mistakes, file))
    return tuple(tests)


def _columns(header: Row) -> tuple[Sequence[Column], Sequence[tuple[int, Mistake]]]:
    """The columns, and what is wrong with them, each with its cell."""
    columns: list[Column] = []
    mistakes: list[tuple[int, Mistake]] = []
    for cell, name in enumerate(header.cells):
        try:
            columns.append(column_of(name))
        except MistakenError as error:
            columns.append(Column(name, "nothing"))
            mistakes += ((cell, mistake.below(name)) for mistake in error.parts)
    return columns, [*mistakes, *_repeated(columns)]


def _repeated(columns: Sequence[Column]) -> Iterator[tuple[int, Mistake]]:
    seen: set[str] = set()
    for cell, column in enumerate(columns):
        if column.name in seen:
            message = f"the column {quote(column.name)} stands here for the second time"
            hint = "give every column a name of its own"
            yield cell, Mistake(message, hint, at=(column.name,))
        seen.add(column.name)


def _suspects(
    columns: Sequence[Column], row: Row, number: int, kinds: Kinds, told: set[str]
) -> Iterator[tuple[int, Mistake]]:
    """The cells of a row that look like assertions and are texts; each word that is told of is told once."""
    for cell, (column, text) in enumerate(zip(columns, row.cells, strict=False)):
        if column.role == "assertion" and (found := looks_typed(text, kinds)) is not None:
            word, warning = found
            if word not in told:
                told.add(word)
                yield cell, attrs.evolve(warning, at=(number, column.name))


def _ragged(row: Row, width: int) -> Mistake:
    if row.cells == ("",):
        return Mistake("an empty line is no row here", "delete it")
    cells = "1 cell" if len(row.cells) == 1 else f"{len(row.cells)} cells"
    hint = "is there a comma in a text without quotes around it?"
    return Mistake(f"a row of {cells} under a header of {width}", hint)


class _CellError(ValueError):
    """What is wrong with a row: for each mistake the cell that it comes from."""

    def __init__(self, *found: tuple[int, Mistake]) -> None:
        self.found = found
        super().__init__("; ".join(mistake.message for _, mistake in found))


def _test(
    columns: Sequence[Column],
    row: Row,
    number: int,
    structure: Callable[[Any], Test],
    kinds: Kinds,
) -> Test:
    """The test of one row.

    Raises:
        _CellError: Everything that is wrong with it.
    """
    if len(row.cells) != len(columns):
        raise _CellError((0, _ragged(row, len(columns)).below(number)))
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
        raise _CellError(
            *(
                # The path is that of the cell: what the test's would be is no business of the reader.
                (cell, mistake)
                if mistake.file
                else (cell, attrs.evolve(mistake, at=(number, columns[cell].name), key=False))
                for cell, mistake in mistakes
            )
        )
    return test


@attrs.define(eq=False)
class _Plain:
    """A test as plain data, in the making, and the cells that its parts come from."""

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

    def take(self, column: Column, text: str, cell: int) -> None:
        """What one cell adds."""
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

    def _take_read(self, column: Column, text: str, cell: int) -> None:
        """What a cell adds that stands for something else than its text."""
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
        """The test; the description is for one that has none."""
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
        """The cell that the part at `path` comes from; the first one if it comes from several."""
        return self._cells.get(path[:2], self._cells.get(path[:1], 0))


def cell_number(text: str) -> float | None:
    """The number that a cell holds, if it holds nothing else.

    Example:
        >>> cell_number(" .5 "), cell_number("80%")
        (0.5, None)
    """
    text = text.strip(SPACES)
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None
