"""The page about templates is complete."""

import re

from snippets import DOCS

from trioeval.templates import Templates
from trioeval.templates.limits import CHARACTERS, LEVELS, MEMORY, SECONDS, STEPS

PAGE = (DOCS / "reference" / "templates.md").read_text()


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"\n#+ ", PAGE.split(f"# {title}\n", 1)[1], maxsplit=1)[0]


def test_all_listed_filters_and_tests_exist() -> None:
    """A template with each of them is valid."""
    cells = re.findall(r"^\| (`.*?) \|", section("Filters"), re.MULTILINE)
    filters = re.findall(r"`(\w+)`", " ".join(cells))
    tests = re.findall(r"`(\w+)`", section("Tests"))
    assert len(filters) == len(set(filters)) == 43
    assert len(tests) == 27
    templates = Templates()
    for text in [f"{{{{ a | {name} }}}}" for name in filters] + [
        f"{{{{ a is {name} }}}}" for name in tests
    ]:
        assert templates.syntax_error(text) is None


def test_all_bounds_are_listed() -> None:
    """They are in the order of the module."""
    bounds = re.findall(r"\| (\d+) \|", section("Bounds"))
    assert list(map(int, bounds)) == [STEPS, CHARACTERS, SECONDS, MEMORY, LEVELS]


def test_the_rules_of_the_engine_have_the_bounds_of_the_module() -> None:
    """They are written in both languages."""
    rules = (DOCS.parent / "trioeval" / "templates" / "rules.js").read_text()
    assert f"const STEPS = {STEPS};" in rules
    assert f"const CHARACTERS = {CHARACTERS};" in rules
