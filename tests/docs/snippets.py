"""Fenced blocks of the pages: finds them, and compares what they print.

* `python`: run in order, in one namespace per file; a `text` block right after one is its output.
* A block of any language that begins with `# name.ext` is an additional file, and is not run.
* `console`: its `$ ` lines are run one after another in the folder of those files and the examples; the
  other lines are the output.

In expected output, `...` stands for any text, including line ends.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w.-]+\.\w+)\n")
# The percentiles of latency after a score, and the duration of a run.
_TIMES = re.compile(r"(?<=\.\d{3} )\d+ \d+ |(?<= in )\d+\.\d s")
# The throughput and the waits of a run, which are printed if it takes at least a second.
_RATES = re.compile(r"[\d.]+ rows/s.* over |waited .* s of ")
# The widths of the columns of a table, and the places where cells are cut off.
_LAYOUT = re.compile(r"(?<=─)─+|(?<= ) +|\S* ?(?=…)")


@attrs.frozen
class Block:
    """One fenced block."""

    language: str
    text: str
    line: int
    """Line of its first fence, from 1."""

    @property
    def file(self) -> str | None:
        """The name of the file that the block contains; None for other blocks."""
        named = _FILE.match(self.text)
        return None if named is None else named[1]


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 1)
        for found in _BLOCK.finditer(text)
    ]


def python_blocks(page: Path) -> Iterator[tuple[Block, str | None]]:
    """The blocks that are run, each with its expected output if the page shows one."""
    found = blocks(page)
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.language == "python" and block.file is None:
            is_output = following is not None and following.language == "text"
            yield block, following.text if following is not None and is_output else None


def table(text: str, first: str) -> list[list[str]]:
    """The cells of the first table whose first column has the given heading."""
    found = re.search(rf"^\| {first} \|.*\n\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert found is not None, first
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in found[1].splitlines()]


def same(expected: str, printed: str) -> bool:
    """True if a text was printed as expected; empty lines, times, rates and the layout do not count."""
    pattern = re.escape(_essence(expected)).replace(re.escape("..."), ".*?")
    return re.fullmatch(pattern, _essence(printed), re.DOTALL) is not None


def _essence(text: str) -> str:
    lines = (_LAYOUT.sub("", line).strip() for line in text.splitlines())
    return _TIMES.sub("", "\n".join(line for line in lines if line and not _RATES.match(line)))
