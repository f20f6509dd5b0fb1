"""Texts and tables that fit a terminal without becoming unreadable."""

from collections.abc import Iterable, Iterator, Sequence

import attrs
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

# Texts cut in the middle, as their ends distinguish them.


def cut_middle(text: str, cells: int) -> str:
    """Return a text in at most this many cells of a terminal, ≥ 1, cut in the middle.

    Example:
        >>> cut_middle("openai|http://127.0.0.1:8799|6b_finetuning", 24)
        'openai|http:…_finetuning'
        >>> cut_middle("short", 24)
        'short'
    """
    if cell_len(text) <= cells:
        return text
    end = (cells - 1) // 2
    tail = text[len(text) - end :]
    while cell_len(tail) > end:  # wide characters
        tail = tail[1:]
    return f"{set_cell_size(text, cells - 1 - cell_len(tail)).rstrip()}…{tail}"


# Tables that a narrow terminal shows as lines.


_WIDEST = 100_000  # characters, more than any terminal has
_INDENT = "  "


@attrs.frozen
class FittingTable:
    """A table if it fits; otherwise a heading for each row, with its cells below.

    Cells are texts or `Text`; empty cells are left out of the lines. A row without a name belongs to the row
    above.
    """

    table: Table
    names: int = 1
    """The number of leading columns that name a row."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        _keep_whole(self.table)
        free = options.update(width=_WIDEST)
        if Measurement.get(console, free, self.table).minimum <= options.max_width:
            yield self.table
            return
        titles = [str(column.header) for column in self.table.columns]
        for cells in zip(*(column.cells for column in self.table.columns), strict=True):
            plain = [str(cell) for cell in cells]
            if heading := " ".join(filter(None, plain[: self.names])):
                yield Text(f"\n{heading}", style="bold", overflow="fold")
            titled = zip(titles[self.names :], plain[self.names :], strict=True)
            parts = (f"{title} {cell}".strip() for title, cell in titled if cell)
            for line in packed(parts, options.max_width - len(_INDENT)):
                yield Text(f"{_INDENT}{line}", overflow="fold")


def _keep_whole(table: Table) -> None:
    """Set the minimum width of columns that are not wrapped, as rich measures only their longest word."""
    for column in table.columns:
        if column.no_wrap:
            texts = (str(column.header), *map(str, column.cells))
            column.min_width = max(map(cell_len, texts))


def packed(parts: Iterable[str], width: int) -> Iterator[str]:
    """Yield the parts joined by commas, in lines of at most this width, or of one part."""
    left = [*parts]
    line = ""
    while left:
        part = left.pop(0) + ("," if left else "")
        joined = f"{line} {part}" if line else part
        if line and cell_len(joined) > width:
            yield line
            joined = part
        line = joined
    if line:
        yield line


@attrs.frozen
class Figure:
    """A column of a table: one fact about each row."""

    title: str
    cells: Sequence[Text]
    is_number: bool = True

    @classmethod
    def of(cls, title: str, cells: Iterable[str], *, is_number: bool = True) -> "Figure":
        """Return a column of plain texts."""
        return cls(title, [*map(Text, cells)], is_number)

    @property
    def width(self) -> int:
        """The width of its widest cell, or of its title."""
        return max(cell_len(self.title), *(cell.cell_len for cell in self.cells), 0)
