"""The page about assertions names every type there is, and what expressions know."""

import re

from snippets import DOCS

from trioeval.grading import KINDS
from trioeval.grading.expressions import FUNCTIONS

PAGE = (DOCS / "reference" / "assertions.md").read_text()


def test_every_type_stands_in_a_table() -> None:
    """Once, and none that there is not."""
    tables = PAGE[PAGE.index("## Types\n") :]
    cells = re.findall(r"^\| (`[^|]*`) \|", tables, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(named) == sorted(KINDS)


def test_every_function_of_expressions_stands_there() -> None:
    """In the order of the alphabet."""
    (listed,) = re.findall(r"^\| functions \| (.*) \|$", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", listed) == list(FUNCTIONS)
