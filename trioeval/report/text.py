"""Foreign text made harmless for a terminal: no escape sequences, no line breaks, no odd controls.

Nor is there room for many combining characters on one: terminals draw them over the lines around.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator

import attrs
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

# Texts that are cut in the middle: their ends tell them apart.


def cut_middle(text: str, cells: int) -> str:
    """A text in at most so many cells of a terminal, ≥ 1; what goes is in the middle.

    Example:
        >>> cut_middle("openai|http://127.0.0.1:8799|6b_finetuning", 24)
        'openai|http:…_finetuning'
        >>> cut_middle("short", 24)
        'short'
    """
    if cell_len(text) <= cells:
        return text
    end = (cells - 1) // 2
    kept = text[len(text) - end :]
    while cell_len(kept) > end:  # wide characters
        kept = kept[1:]
    return f"{set_cell_size(text, cells - 1 - cell_len(kept)).rstrip()}…{kept}"


# Tables that a narrow terminal shows as lines: nothing is squeezed until it cannot be read.


_WIDEST = 100_000  # characters that no terminal has
_INDENT = "  "


@attrs.frozen
class FittingTable:
    """A table where it finds room, else a heading for each of its rows with the cells below it.

    Its cells are texts or `Text`; empty ones are left out of the lines. A row without a name belongs to the
    one above.
    """

    table: Table
    names: int = 1
    """How many of the first columns are what a row is called by."""

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
            told = zip(titles[self.names :], plain[self.names :], strict=True)
            parts = (f"{title} {cell}".strip() for title, cell in told if cell)
            for line in packed(parts, options.max_width - len(_INDENT)):
                yield Text(f"{_INDENT}{line}", overflow="fold")


def _keep_whole(table: Table) -> None:
    """See that columns that are not wrapped are not cut: they are measured by their longest word."""
    for column in table.columns:
        if column.no_wrap:
            texts = (str(column.header), *map(str, column.cells))
            column.min_width = max(map(cell_len, texts))


def packed(parts: Iterable[str], width: int) -> Iterator[str]:
    """Parts behind each other, with commas, on lines of at most that width, or of one part."""
    line = ""
    for part in parts:
        joined = f"{line}, {part}" if line else part
        if line and cell_len(joined) >= width:
            yield f"{line},"
            joined = part
        line = joined
    if line:
        yield line


def inert(text: object, width: int | None = None) -> str:
    r"""Text on one line without control or direction characters, cut to `width` characters.

    Example:
        >>> inert("two\nlines \x1b[31mred", 12)
        'two lines […'
    """
    # What is beyond a few times the width can never be seen; replies may be megabytes.
    whole = str(text)
    seen = whole if width is None else whole[: 4 * width + 64]
    plain = " ".join((seen if seen.isascii() and seen.isprintable() else _blanked(seen)).split())
    if width is None or (len(plain) <= width and len(seen) == len(whole)):
        return plain
    return plain[: width - 1].rstrip() + "…"


def inert_lines(text: object, most: int) -> str:
    r"""Text on as many lines as it has, without control or direction characters.

    Example:
        >>> inert_lines("a:\r\n\tb \x1b[31m", 99)
        'a:\n    b  [31m'
        >>> inert_lines("abcdef", 2)
        'ab… (4 more characters)'
    """
    whole = str(text)
    lines = whole[:most].replace("\r\n", "\n").replace("\t", "    ")
    plain = "\n".join(map(_blanked, lines.split("\n")))
    return plain if len(whole) <= most else f"{plain}… ({len(whole) - most} more characters)"


def escaped(text: str) -> str:
    r"""Text on as many lines as it has, with the escapes of JSON for all that cannot be seen.

    What is JSON is the same JSON afterwards: nothing of the kind stands outside of its texts.

    Example:
        >>> print(escaped("red \x1b[31m, \u202edirection\ttab\nnext \U000e0001 line"))
        red \u001b[31m, \u202edirection    tab
        next \udb40\udc01 line
    """
    lines = text.replace("\r\n", "\n").replace("\t", "    ")
    if not lines.replace("\n", "").isprintable():
        lines = "".join(
            _code(char) if char != "\n" and unicodedata.category(char) in _UNSAFE else char
            for char in lines
        )
    if max(lines, default="") < _FIRST_MARK:
        return lines
    for char in map(chr, _FILLERS):
        lines = lines.replace(char, _code(char))
    return _floods().sub(r"\1", lines)


def _code(char: str) -> str:
    coded = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{coded[at : at + 4]}" for at in range(0, len(coded), 4))


def _blanked(text: str) -> str:
    """The text with a space for each character that is none to be seen, and without floods of marks."""
    if not text.isprintable():
        text = "".join(" " if unicodedata.category(char) in _UNSAFE else char for char in text)
    if max(text, default="") < _FIRST_MARK:
        return text
    return _floods().sub(r"\1", text.translate(_FILLERS))


_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_FILLERS = dict.fromkeys((0x115F, 0x1160, 0x3164, 0xFFA0), " ")
"""Letters that cannot be seen, and of which terminals do not agree how wide they are."""
_MARKS = {"Mn", "Me"}
_FIRST_MARK, _LAST_MARK = "\u0300", "\uffff"  # the few rare ones behind it would cost much time
_MOST_MARKS = 6  # on one character; languages need four


@functools.cache
def _floods() -> re.Pattern[str]:
    """More combining characters in a row than any language has. Takes ten milliseconds, once."""
    codes = range(ord(_FIRST_MARK), ord(_LAST_MARK) + 1)
    marks = "".join(char for char in map(chr, codes) if unicodedata.category(char) in _MARKS)
    return re.compile(f"([{marks}]{{{_MOST_MARKS}}})[{marks}]+")
