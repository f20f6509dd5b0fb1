"""Documents and tables: their form, and inert foreign text."""

import io
import json
from collections.abc import Iterable
from typing import Any

import pytest
from finished import headed, records_of, results_of, rows_of, totals_of
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import trioeval
from trioeval.report.formats.document import document
from trioeval.report.formats.json import json_chunks
from trioeval.report.records import RowRecord
from trioeval.report.redact import redacted
from trioeval.report.row import row_json
from trioeval.report.tables import FirstRows, columns_table, rows_table
from trioeval.report.usage import usage_json
from trioeval.run import Row
from trioeval.testing import run_virtual
from trioeval.text_safety import escape_control_characters

SPENT = trioeval.Usage(prompt=2, completion=3, total=5)


def test_a_document_has_the_form_of_version_3() -> None:
    """A document has rows by test and column, totals of columns, the suite, and our additions."""
    found = json.loads("".join(json_chunks(document(results_of()))))
    assert list(found) == [
        "evalId",
        "results",
        "config",
        "shareableUrl",
        "metadata",
        "vars",
        "runtimeOptions",
    ]
    results = found["results"]
    assert (results["version"], results["timestamp"]) == (3, "2026-01-01T00:00:00+00:00")
    indices = [(row["testIdx"], row["promptIdx"]) for row in results["results"]]
    assert indices == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert results["stats"]["successes"] == 1
    assert results["stats"]["failures"] == 2
    assert results["stats"]["errors"] == 1
    assert results["stats"]["tokenUsage"]["total"] == 5
    metrics = results["prompts"][0]["metrics"]
    assert metrics["score"] == 0.75
    assert (metrics["testPassCount"], metrics["testFailCount"], metrics["testErrorCount"]) == (
        0,
        1,
        1,
    )
    assert (metrics["assertPassCount"], metrics["assertFailCount"]) == (1, 1)
    assert metrics["namedScores"] == {"m": 3}
    assert metrics["namedScoreWeights"] == {"m": 4}
    assert metrics["namedScoresCount"] == {"m": 2}
    assert metrics["cost"] == 0.5
    assert [prompt["provider"] for prompt in results["prompts"]] == ["mine", "back"]
    assert found["vars"] == ["word"]


def test_a_row_contains_all_its_facts() -> None:
    """A row has its prompt, reply, verdict with parts, and the facts of its job."""
    _, rows = rows_of()
    first, _, failed, _ = (row_json(row, "e1") for row in rows)
    assert first["prompt"]["raw"] == "say hi"
    assert first["response"]["output"] == "say hi"
    assert first["response"]["finishReason"] == "stop"
    assert first["namedScores"] == {"m": 0.75}
    assert first["failureReason"] == 1
    assert first["error"] == 'the output does not equal "no"'
    parts = first["gradingResult"]["componentResults"]
    assert [(part["pass"], part["assertion"]["type"]) for part in parts] == [
        (True, "contains"),
        (False, "equals"),
    ]
    assert first["gradingResult"]["namedScoreWeights"] == {"m": 4}
    assert first["testCase"]["options"] == {}
    nothing = usage_json()["assertions"]
    assert first["tokenUsage"] == {**usage_json(SPENT), "assertions": nothing}
    assert set(nothing) == set(first["tokenUsage"]) - {"assertions"}
    assert first["metadata"] == {
        "case": 7,
        "trioeval": {"outcome": "done", "lane": "mine", "attempts": 1, "waitMs": 0.0},
    }
    assert failed["error"] == "server: down"
    assert (failed["response"], failed["gradingResult"], failed["failureReason"]) == (None, None, 2)
    assert failed["testCase"]["description"] == "second"


def test_usage_includes_tokens_of_caches() -> None:
    """The keys of the reply have promptfoo's names."""
    used = trioeval.Usage(cached=3, cache_creation=4)
    details = usage_json(used, used)["completionDetails"]
    assert (details["cacheReadInputTokens"], details["cacheCreationInputTokens"]) == (6, 8)


def test_a_document_contains_no_credential() -> None:
    """Keys and headers of a config are removed, limits on tokens are not."""
    config = {
        "apiKey": "sk-1",
        "headers": {"Authorization": "Bearer sk-1", "x-team": "a"},
        "max_tokens": 5,
        "tools": [{"secretValue": "s"}],
    }
    assert redacted(config) == {
        "apiKey": "[redacted]",
        "headers": {"Authorization": "[redacted]", "x-team": "[redacted]"},
        "max_tokens": 5,
        "tools": [{"secretValue": "[redacted]"}],
    }


def printed(table: Any, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def first_rows(rows: Iterable[Row], width: int, tests: int = 50) -> FirstRows:
    found = FirstRows(width, tests)
    for record in records_of([*rows]):
        found.add(RowRecord.of(record))
    return found


def test_a_table_shows_the_first_tests_and_counts_the_rest() -> None:
    """Shown tests have all of their columns; rows of other tests are counted."""
    suite, rows = rows_of()
    first = first_rows(rows, 30, tests=1)
    shown = printed(rows_table(headed(suite).columns, first))
    assert "word=hi" in shown
    assert "second" not in shown
    assert (list(first.cells), first.hidden) == ([(0, 0), (0, 1)], 2)


def test_tables_name_every_row_and_column() -> None:
    """Tables have verdict and output for each test and provider, and counts and times for each column."""
    suite, rows = rows_of()
    columns = headed(suite).columns
    shown = printed(rows_table(columns, first_rows(rows, 30)))
    for part in (
        "mine",
        "back",
        "word=hi",
        "second",
        "FAIL say hi",
        "PASS say ho",
        "ERROR server: down",
    ):
        assert part in shown
    totals = printed(columns_table(columns, totals_of(suite, rows)), width=140)
    assert [
        line.split()[:5] for line in totals.splitlines() if line.strip()[:4] in {"mine", "back"}
    ] == [
        ["mine", "0", "1", "1", "0.0"],
        ["back", "1", "1", "0", "50.0"],
    ]


HOSTILE = [
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "[bold red]markup[/] [link=file:///etc/passwd]x[/link]",
    "right\u202eto left\u202c and \u200bnothing",
    "line\nbreak\r\x0b\x0c\x85\u2028\u2029",
    "\ud800 lone",
    "a" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_inert_in_tables(text: str) -> None:
    """No escape, control or direction character reaches the terminal, and no markup is read."""

    async def main() -> list[Row]:
        async def mine(_request: trioeval.Request) -> str:
            return text

        return await trioeval.collect(suite, providers={"mine": mine})

    suite = trioeval.parse_suite({"providers": ["mine"], "prompts": ["x"]})
    shown = printed(rows_table(headed(suite).columns, first_rows(run_virtual(main), 40)))
    assert all(char.isprintable() for char in shown.replace("\n", ""))
    assert len(shown) < 2000
    if "[bold" in text:
        assert "[bold red]markup[/]" in shown


@given(st.text(max_size=300), st.integers(8, 60))
def test_inert_text_is_printable_short_and_on_one_line(text: str, width: int) -> None:
    """This holds for any input."""
    shown = escape_control_characters(text, width)
    assert shown.isprintable() or not shown
    assert len(shown) <= width
    assert escape_control_characters(shown, width) == shown or shown.endswith("…")
