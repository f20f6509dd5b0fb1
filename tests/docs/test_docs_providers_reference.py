"""The pages about providers in general, and about local ones, agree with the code."""

from collections.abc import Sequence

import attrs
import pytest
from snippets import DOCS, table

from trioeval.providers import Usage
from trioeval.providers.config import Key
from trioeval.providers.http.failures import RULES, Rule
from trioeval.providers.local import embedding, replay, sequence, sim
from trioeval.providers.local.recordings import FIELDS
from trioeval.providers.mcp import entry as mcp
from trioeval.providers.other_keys import PROMPTFOO_KEYS
from trioeval.providers.prices import list_prices
from trioeval.providers.resolve import FORMS

PAGE = (DOCS / "reference" / "providers.md").read_text()
LOCAL = (DOCS / "reference" / "providers" / "local.md").read_text()
PAGES = DOCS / "reference" / "providers"


def test_every_form_of_an_id_is_listed() -> None:
    """They are in the order of messages."""
    assert [row[0] for row in table(PAGE, "id")] == [f"`{form}`" for form in FORMS]


def test_every_page_of_a_provider_is_named() -> None:
    """The general page links all of them."""
    openai = (PAGES / "openai.md").read_text()
    for page in PAGES.iterdir():
        assert f"providers/{page.name}" in PAGE or f"({page.name})" in openai, page


def _statuses(rule: Rule) -> str:
    numbers = sorted(rule.statuses)
    parts: list[str] = []
    while numbers:
        run = 1
        while run < len(numbers) and numbers[run] == numbers[0] + run:
            run += 1
        parts += (
            [f"{numbers[0]} to {numbers[run - 1]}"] if run > 2 else [str(n) for n in numbers[:run]]
        )
        del numbers[:run]
    return ", ".join(parts) or "any"


def _words(rule: Rule) -> str:
    codes = [f"`{code}`" for code in sorted(rule.codes)]
    return ", ".join([*codes, "words"] if rule.text else codes)


def test_the_table_of_failures_is_the_table_of_the_code() -> None:
    """It has every row, in the order of their evaluation."""
    expected = [[f"`{rule.kind}`", _statuses(rule), _words(rule)] for rule in RULES]
    assert table(PAGE, "kind") == expected


def test_the_prices_have_a_date() -> None:
    """The page has the date of the price list."""
    assert f"as of {list_prices().date}" in PAGE


@pytest.mark.parametrize(
    ("first", "known"),
    [
        ("`inputs`", sequence.KEYS),
        ("`latencyMs`", sim.KEYS),
        ("`maxTokens`", embedding.KEYS),
        ("`model`", replay.KEYS),
    ],
)
def test_every_key_of_a_config_is_listed(first: str, known: Sequence[Key]) -> None:
    """Each has its valid values, in the order of the code."""
    rows = [[f"`{key.name}`", key.right] for key in known]
    lines = [f"| {name} | {right} |" for name, right in rows]
    assert "\n".join(lines) in LOCAL
    assert rows[0][0] == first


def test_every_field_of_a_recording_is_listed() -> None:
    """The page also lists every count of its usage."""
    assert [row[0] for row in table(LOCAL, "field")] == [f"`{name}`" for name in FIELDS]
    counts = ", ".join(f"`{field.name}`" for field in attrs.fields(Usage))
    assert f"counts of tokens: {counts} |" in LOCAL


def test_every_key_of_promptfoo_is_listed() -> None:
    """Each has its valid values, in the order of the code."""
    rows = [row[:2] for row in table(PAGE, "key of promptfoo")]
    assert rows == [[f"`{key.name}`", key.right] for key in PROMPTFOO_KEYS]


@pytest.mark.parametrize(
    ("first", "known"), [("key of the config", mcp.KEYS), ("key of a server", mcp.SERVER_KEYS)]
)
def test_every_key_of_mcp_is_listed(first: str, known: Sequence[Key]) -> None:
    """Each has its valid values, in the order of the code."""
    rows = [row[:2] for row in table((PAGES / "mcp.md").read_text(), first)]
    assert rows == [[f"`{key.name}`", key.right] for key in known]
