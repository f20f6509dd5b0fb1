"""The page about templates is complete."""

import re

from snippets import DOCS
from trioeval.templates.checks import CHECKS
from trioeval.templates.list_filters import LIST_FILTERS
from trioeval.templates.text_filters import TEXT_FILTERS

from trioeval.templates.limits import CHARACTERS, LEVELS, STEPS

PAGE = (DOCS / "reference" / "templates.md").read_text()


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"\n#+ ", PAGE.split(f"# {title}\n", 1)[1], maxsplit=1)[0]


def test_all_filters_and_tests_are_listed() -> None:
    """The page has no others."""
    cells = re.findall(r"^\| (`.*?) \|", section("Filters"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == {*TEXT_FILTERS, *LIST_FILTERS}
    assert re.findall(r"`(\w+)`", section("Tests")) == list(CHECKS)


def test_all_bounds_are_listed() -> None:
    """They are in the order of the module."""
    bounds = re.findall(r"\| (\d+) \|", section("Bounds"))
    assert list(map(int, bounds)) == [STEPS, CHARACTERS, LEVELS]
