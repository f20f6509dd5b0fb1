"""The page about assertions lists every type, and the functions of expressions."""

import re

from snippets import DOCS

from trioeval.grading import KINDS
from trioeval.grading.expressions import FUNCTIONS

PAGE = (DOCS / "reference" / "assertions.md").read_text()


def test_every_type_is_in_a_table() -> None:
    """Each occurs once, and no other name does."""
    tables = PAGE[PAGE.index("## Types\n") :]
    cells = re.findall(r"^\| (`[^|]*`) \|", tables, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(named) == sorted(KINDS)


def test_every_function_of_expressions_is_listed() -> None:
    """They are in alphabetical order."""
    (listed,) = re.findall(r"^\| functions \| (.*) \|$", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", listed) == list(FUNCTIONS)
