"""The Markdown page of a run."""

from itertools import pairwise
from pathlib import Path

import attrs
import pytest
from finished import SUITE, records_of, results_of, rows_of, totals_of
from hostile import HUGE_LINE, TEXTS, assert_inert_markdown
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import trioeval
from trioeval.cli.run.execution import add_step_summary
from trioeval.report.formats.markdown import code, markdown_chunks
from trioeval.report.strip import Strip
from trioeval.text_safety import escape_control_characters

ACTIVITY = {
    "durationS": 44.0,
    "lanes": {"openai": {"waits": {"tokens": 31.0, "slot": 2.0}}, "b": {"waits": {"pace": 0.01}}},
}


def cells(page: str) -> list[list[str]]:
    """Return the cells of all tables, as a Markdown parser reads them; a list for each row."""
    found: list[list[str]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    for before, token in pairwise(tokens):
        if token.type == "tr_open":
            found.append([])
        elif before.type in {"th_open", "td_open"}:
            found[-1].append("".join(part.content for part in token.children or ()))
    return found


def test_a_page_has_totals_failures_and_waits() -> None:
    """Each column is a line, and each row that did not pass is a line with its reason."""
    results = results_of()
    info = attrs.evolve(results.info, duration_ms=44_000, activity=[ACTIVITY])
    page = "".join(markdown_chunks(attrs.evolve(results, info=info)))
    assert page.startswith(
        "## trioeval: `d`\n\n**25.0 % of 4 rows passed**: 1 passed, 2 failed, 1 error; "
    )
    assert "; 44.0 s; 5 tokens; $0.5000\n" in page
    table = cells(page)
    assert table[1][:6] == ["mine", "0", "1", "1", "0.0 % of 2", "0.0 to 65.8 %"]
    assert table[2][:6] == ["back", "1", "1", "0", "50.0 % of 2", "9.5 to 90.5 %"]
    assert table[4][:4] == ["0", "word=hi", "mine", "FAIL"]
    assert table[4][4] == 'the output does not equal "no"; output: "say hi"'
    assert [row[:4] for row in table[6:]] == [["2", "second", "mine", "ERROR"]]
    assert "down" in table[6][4]
    assert page.endswith(
        "#### Longest waits\n\n"
        "* 31.0 s of 44.0 s: `openai`, tpm\n* 2.0 s of 44.0 s: `openai`, slots\n\n"
    )


def test_rows_that_were_not_run_are_not_failures() -> None:
    """They are counted and listed, also in stripped pages."""
    suite, rows = rows_of()
    cut = [*rows[:2], *(attrs.evolve(row, outcome="not_run", error="not run") for row in rows[2:])]
    records = records_of(cut)
    for strip in (Strip(), Strip(metadata=True)):
        results = attrs.evolve(
            results_of(strip=strip),
            totals=totals_of(suite, cut),
            records=lambda column: (
                row for row in records if column is None or row["promptIdx"] == column
            ),
        )
        page = "".join(markdown_chunks(results))
        assert "**2 rows not run: 2–3**\n" in page
        assert "`not run`" not in page
        assert "more rows" not in page
        assert [row[0] for row in cells(page)[4:]] == ["0", "1"]


def test_rows_with_the_same_error_are_one_line() -> None:
    """The line has the numbers of the rows, and their provider in place of their names."""

    async def refuses(_request: trioeval.Request) -> trioeval.Reply:
        raise trioeval.ProviderError("bad_request", "HTTP 400: no such model")

    tests = [{"vars": {"word": str(n)}} for n in range(200)]
    page = "".join(
        markdown_chunks(results_of({**SUITE, "providers": ["mine"], "tests": tests}, refuses))
    )
    (line,) = cells(page)[3:]
    assert line[:4] == ["0–199", "200 rows", "mine", "ERROR"]
    assert line[4].endswith("HTTP 400: no such model")


def test_tasks_have_sections_and_many_failures_are_counted() -> None:
    suite = {
        "providers": ["echo"],
        "prompts": ["{{n}}"],
        "tests": [
            {"vars": {"n": f"{n}"}, "assert": [{"type": "equals", "value": "x"}]} for n in range(53)
        ],
    }
    results = results_of(suite)
    head = attrs.evolve(results.head, task="first")
    page = "".join(markdown_chunks(attrs.evolve(results, head=head), results_of()))
    assert "### Task `first`\n" in page
    assert "… and 3 more rows.\n" in page
    assert "of 57 rows passed" in page


def test_stripped_parts_are_not_in_a_markdown_page() -> None:
    """Variables, prompts and replies are each left out on request."""
    page = "".join(markdown_chunks(results_of(strip=Strip(test_vars=True, grading_result=True))))
    assert "word=hi" not in page
    assert "does not equal" not in page


_HOSTILE = [*TEXTS.values(), HUGE_LINE]


@pytest.mark.slow
@given(st.text() | st.sampled_from(_HOSTILE), st.text() | st.sampled_from(_HOSTILE))
def test_foreign_text_is_one_cell_of_code(one: str, two: str) -> None:
    """Any text is in its cell, and creates no other cell, row or markup."""
    page = f"| a | b |\n| --- | --- |\n| {code(one)} | {code(two)} |\n"
    heading, row = cells(page)
    assert heading == ["a", "b"]
    assert [text.replace(" ", "") for text in row] == [
        escape_control_characters(text, 80).replace(" ", "") or "–" for text in (one, two)
    ]
    assert_inert_markdown(page)
    assert_inert_markdown(f"## trioeval: {code(one)}\n\n* {code(two)}, tpm\n")


def test_the_page_is_appended_to_a_github_step_summary(tmp_path: Path) -> None:
    """A summary file that cannot be written is a warning, not an error of the run."""
    warnings: list[str] = []
    results = [results_of()]
    add_step_summary({}, results, warnings.append)
    summary = tmp_path / "summary.md"
    for _ in range(2):
        add_step_summary({"GITHUB_STEP_SUMMARY": str(summary)}, results, warnings.append)
    assert warnings == []
    assert summary.read_text() == 2 * "".join(markdown_chunks(*results))
    add_step_summary({"GITHUB_STEP_SUMMARY": str(tmp_path)}, results, warnings.append)
    assert warnings == [f"the summary of the step cannot be written: {tmp_path}: Is a directory"]
