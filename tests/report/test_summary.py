"""The summary of a run on a terminal: tables, failures, rates and waits."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from finished import SUITE, headed, records_of, rows_of, totals_of
from rich.console import Console

import trioeval
from trioeval.kernel import WaitReason
from trioeval.report.activity import WAIT_WORDS
from trioeval.report.records import STRIPPED_OUTPUT, RowRecord
from trioeval.report.statistics.grouped import RowPlace
from trioeval.report.summary import (
    RunUsage,
    failures_view,
    not_graded_line,
    not_run_line,
    usage_lines,
)
from trioeval.report.tables import Failures, FirstRows, columns_table, rows_table
from trioeval.report.totals import Totals, counts_text
from trioeval.run import Status

MANY = {**SUITE, "providers": [{"id": "echo", "label": f"provider {n}"} for n in range(100)]}
WIDE = {
    **SUITE,
    "providers": [{"id": "mine", "label": "供應商" * 9}, {"id": "echo", "label": "x" * 300}],
    "prompts": ["say {{word}}", "漢字 {{word}}"],
    "tests": [{"description": "測試" * 20, "vars": {"word": "漢"}}, {"vars": {"word": "y" * 300}}],
}
SAYS = [{"type": "contains", "value": "say"}]
NONE = {"providers": ["echo"], "prompts": ["x"], "scenarios": []}


def printed(*pictures: Any, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for picture in pictures:
        console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def kept(records: Sequence[dict[str, Any]], most: int = 10) -> Failures:
    found = Failures(most)
    for index, record in enumerate(records):
        found.add(index, RowRecord.of(record))
    return found


def first(records: Sequence[dict[str, Any]]) -> FirstRows:
    found = FirstRows(40, 50)
    for index, record in enumerate(records):
        found.add(RowRecord.of(record, index=index))
    return found


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("suite", [SUITE, MANY, WIDE, NONE], ids=["two", "many", "wide", "none"])
def test_no_line_is_wider_than_the_terminal(suite: Any, width: int) -> None:
    """This holds for any number of columns and any width of their names."""
    parsed, rows = rows_of(suite)
    columns, records = headed(parsed).columns, records_of(rows)
    parts = [rows_table(columns, first(records)), columns_table(columns, totals_of(parsed, rows))]
    view = failures_view(columns, kept(records), lambda index: f"trioeval show eval-{index}")
    lines = printed(*parts, *([] if view is None else [view]), width=width)
    console = Console(width=width)
    assert max(console.measure(line).maximum for line in lines) <= width


@pytest.mark.parametrize("width", [40, 80, 120])
def test_columns_show_the_same_numbers_at_every_width(width: int) -> None:
    """They are shown in one table, in two, or in lines: no number is truncated."""
    suite, rows = rows_of()
    text = " ".join(
        printed(columns_table(headed(suite).columns, totals_of(suite, rows)), width=width)
    )
    for part in ("50.0 %", "9–91 %", "0.875 (0.00–1.00)", "0.750", "$0.5000", "score", "of 2"):
        assert part in text, part
    for title in ("pass rate", "95 % CI", "p50 ms", "p95 ms", "tokens", "cost"):
        assert title in text, title


def test_columns_without_room_are_counted() -> None:
    """The shown ones are readable."""
    parsed, rows = rows_of(MANY)
    lines = printed(rows_table(headed(parsed).columns, first(records_of(rows))), width=120)
    assert sum(f"{n} " in f"{lines[2]} " for n in range(20)) == 8
    assert lines[-1] == "… and 92 more columns do not fit"
    two = {**SUITE, "providers": [{"id": "echo", "label": f"{n}"} for n in range(3)]}
    parsed, rows = rows_of(two)
    lines = printed(rows_table(headed(parsed).columns, first(records_of(rows))), width=40)
    assert lines[-1] == "… and 1 more column does not fit"


def test_a_score_has_an_interval_if_it_differs_from_the_pass_rate() -> None:
    """The interval is cut to the range of scores."""
    whole = {**SUITE, "tests": [{"vars": {"word": word}, "assert": SAYS} for word in ("hi", "ho")]}
    suite, rows = rows_of(whole)
    table = columns_table(headed(suite).columns, totals_of(suite, rows))
    (line,) = (line for line in printed(table, width=140) if line.startswith(" back"))
    assert ("±" in line, "(" in line) == (False, False)
    totals = totals_of(suite, rows)
    passed = records_of(rows)[3]
    for number in range(20):
        scored = RowRecord.of({**passed, "score": 0.5 + number % 2 / 10})
        totals.columns[0].add(scored, RowPlace(number))
    text = " ".join(printed(columns_table(headed(suite).columns, totals), width=120))
    assert "± 0." in text


def test_unfinished_rows_are_counted_separately() -> None:
    """Their column is shown only then; they are in no rate, score or interval."""
    suite, rows = rows_of({**SUITE, "providers": ["echo"]})
    totals, columns = totals_of(suite, rows), headed(suite).columns
    assert "not run" not in " ".join(printed(columns_table(columns, totals), width=120))
    sums = totals.columns[0].sums
    before = sums.pass_interval(), sums.score_interval()
    record = records_of(rows)[0] | {"failureReason": 2, "score": 0, "gradingResult": None}
    for outcome in ("not_run", "interrupted"):
        facts = {**record["metadata"]["trioeval"], "outcome": outcome}
        totals.add(RowRecord.of({**record, "metadata": {"trioeval": facts}}))
    own = totals.columns[0]
    assert (own.rows, own.ended, own.left, own.statuses[Status.ERROR]) == (4, 2, 2, 0)
    assert (sums.pass_interval(), sums.score_interval()) == before
    assert (own.json()["testErrorCount"], own.json()["testNotRunCount"]) == (0, 2)
    head, _, line = printed(columns_table(columns, totals), width=120)[1:4]
    assert head.split()[:6] == ["provider", "pass", "fail", "error", "not", "run"]
    assert line.split()[:7] == ["echo", "1", "1", "0", "2", "50.0", "%"]


def test_few_rows_have_wide_intervals() -> None:
    """Two of three rows give a wide interval; no rows give none."""
    suite, rows = rows_of(NONE)
    line = printed(columns_table(headed(suite).columns, Totals.of([0])), width=120)[3]
    assert line.split() == ["echo", "0", "0", "0", "–", "–", "–", "–", "–", "0"]
    tests = [
        {"vars": {"n": n}, "assert": [{"type": "equals", "value": value}]}
        for n, value in enumerate(("x", "x", "y"))
    ]
    suite, rows = rows_of({**NONE, "tests": tests})
    table = columns_table(headed(suite).columns, totals_of(suite, rows))
    assert printed(table, width=120)[3].split()[:9] == [
        *("echo", "2", "1", "0"),
        *("66.7", "%", "of", "3", "21–94"),
    ]


def test_narrow_intervals_have_a_decimal() -> None:
    """Whole percents are too coarse for thousands of rows."""
    suite, rows = rows_of()
    totals = totals_of(suite, rows)
    passed = records_of(rows)[3]
    for number in range(2000):
        totals.columns[0].add(RowRecord.of(passed), RowPlace(number))
    line = printed(columns_table(headed(suite).columns, totals), width=120)[3]
    assert "99.6–100.0 %" in line


def test_failures_have_index_status_name_and_reason() -> None:
    """They are in the order of the rows; a single provider is not named."""
    suite, rows = rows_of()
    view = failures_view(headed(suite).columns, kept(records_of(rows)), lambda n: f"show me {n}")
    assert printed(view, width=100) == [
        "3 rows did not pass",
        "row",
        '  0  FAIL   word=hi | mine: the output does not equal "no"; output: "say hi"',
        '  1  FAIL   word=hi | back: the output does not equal "no"; output: "say hi"',
        "  2  ERROR  second | mine: server: down",
        "one row in full: show me 0",
        "",
    ]
    suite, rows = rows_of({**SUITE, "providers": ["echo"]})
    view = failures_view(headed(suite).columns, kept(records_of(rows)))
    assert printed(view, width=100) == [
        "1 row did not pass",
        "row",
        '  0  FAIL  word=hi: the output does not equal "no"; output: "say hi"',
        "",
    ]


def test_the_expected_value_is_shown_if_the_reason_lacks_it() -> None:
    """It is that of the first failed assertion."""
    suite, rows = rows_of()
    record = records_of(rows)[0]
    record["gradingResult"]["reason"] = "not good"
    (failure,) = kept([record]).groups
    assert (failure.reason, failure.expected) == ("not good", "equals no")
    view = failures_view(headed(suite).columns, kept([record]))
    assert "not good; expected: equals no" in " ".join(printed(view, width=100))
    record["gradingResult"]["componentResults"][1]["assertion"].pop("value")
    assert kept([record]).groups[0].expected is None


def test_the_template_of_an_expected_value_is_not_shown() -> None:
    """The reason quotes the rendered value."""
    _, rows = rows_of()
    record = records_of(rows)[0]
    record["gradingResult"]["componentResults"][1]["assertion"]["value"] = "{{answer}}"
    assert kept([record]).groups[0].expected is None


def failed_record(output: object, reason: str, **said: object) -> dict[str, Any]:
    """Return a row whose only assertion failed."""
    record = records_of(rows_of()[1])[0]
    part = {"pass": False, "score": 0, "reason": reason, "assertion": {"type": "equals", **said}}
    record["response"]["output"] = output
    record["gradingResult"] |= {"reason": reason, "componentResults": [part]}
    return record


NOT_EQUAL = 'the output does not equal "109"'


@pytest.mark.parametrize(
    ("output", "reason", "shown"),
    [
        ("109 dollars", NOT_EQUAL, '"109 dollars"'),
        ("two\nlines", NOT_EQUAL, r'"two\nlines"'),
        ("x" * 500, NOT_EQUAL, f'"{"x" * 78}…'),
        ("", NOT_EQUAL, '""'),
        ({"a": 1}, NOT_EQUAL, '{"a":1}'),
        (None, NOT_EQUAL, None),
        (STRIPPED_OUTPUT, NOT_EQUAL, None),
        ("109 dollars", 'the output contains "109 dollars"', None),
        ("109 dollars", "the judge found no number", None),
    ],
)
def test_a_failure_shows_the_output_that_its_reason_is_about(
    output: object, reason: str, shown: str | None
) -> None:
    """The excerpt is made from the row when it is shown, so stored reasons do not contain the output."""
    record = RowRecord.of(failed_record(output, reason))
    assert record.output_excerpt == shown
    assert record.explained(300) == (reason if shown is None else f"{reason}; output: {shown}")
    (failure,) = kept([failed_record(output, reason)]).groups
    assert (failure.reason, failure.output) == (reason, shown)


def test_the_text_that_a_transform_made_is_not_taken_for_the_output() -> None:
    """An assertion with a transform compares another text."""
    record = failed_record("109 dollars", NOT_EQUAL, transform="json.price")
    assert RowRecord.of(record).output_excerpt is None


def test_failures_without_outputs_have_only_reasons() -> None:
    """So the list of a run whose outputs are stripped shows none."""
    found = Failures(1, shows_outputs=False)
    found.add(0, RowRecord.of(failed_record("109 dollars", NOT_EQUAL)))
    assert [(one.reason, one.output) for one in found.groups] == [(NOT_EQUAL, None)]


def test_rows_with_the_same_error_are_one_group() -> None:
    """One line names the provider, the number of rows and their numbers; failed assertions stay separate."""
    suite, rows = rows_of()
    records = records_of(rows) * 4
    failures = kept(records)
    view = printed(failures_view(headed(suite).columns, failures), width=100)
    assert [line.split()[:2] for line in view[2:-1]] == [
        ["0", "FAIL"],
        ["1", "FAIL"],
        ["2,", "6,"],
        *([str(index), "FAIL"] for index in (4, 5, 8, 9, 12, 13)),
    ]
    assert view[4].split() == [
        *("2,", "6,", "10,", "14", "ERROR"),
        *("4", "rows", "of", "mine:", "server:", "down"),
    ]
    assert (failures.count, failures.grouped) == (12, 12)


def test_a_group_takes_rows_when_no_further_group_has_room() -> None:
    """A thousand rows that a provider refuses are one line, whatever else failed before."""
    _, rows = rows_of()
    fail, _, error, _ = records_of(rows)
    failures = kept([fail, error, fail, *[error] * 1000], most=2)
    assert [str(group.rows) for group in failures.groups] == ["0", "1, 3–1002"]
    assert (failures.count, failures.grouped) == (1003, 1002)


def test_a_row_without_assertions_is_not_graded() -> None:
    """It has its own count and label, and is in no rate, score or interval; files call it a success."""
    graded, bare = {"vars": {"word": "a"}, "assert": SAYS}, {"vars": {"word": "b"}}
    suite, rows = rows_of({**SUITE, "providers": ["echo"], "tests": [graded, bare, bare]})
    totals, columns = totals_of(suite, rows), headed(suite).columns
    assert (totals.passed, totals.not_graded, totals.rated) == (1, 2, 1)
    assert counts_text(totals) == "1 passed, 0 failed, 0 errors, 2 not graded"
    assert totals.pass_rate == 100
    data = totals.columns[0].json()
    assert (data["testPassCount"], data["testNotGradedCount"]) == (3, 2)
    assert data["statistics"]["passRate"]["n"] == 1
    assert all(record["success"] for record in records_of(rows))
    table = " ".join(printed(rows_table(columns, first(records_of(rows))), width=80))
    assert (table.count("NOT GRADED say b"), table.count("PASS say a")) == (2, 1)
    text = " ".join(printed(columns_table(columns, totals), width=140))
    assert "not graded" in text
    assert "100.0 % of 1 " in text
    assert not_graded_line([totals]) is None


def test_a_run_without_any_assertion_shows_how_to_add_one() -> None:
    """The hint is shown once, and not for a run without finished rows."""
    suite, rows = rows_of({**SUITE, "providers": ["echo"], "tests": [{"vars": {"word": "b"}}]})
    hint = not_graded_line([totals_of(suite, rows)])
    assert (
        hint
        == "no row was graded, as no test has an assertion: add assert to tests or to defaultTest"
    )
    assert not_graded_line([Totals.of([0])]) is None


def test_rows_that_were_not_run_are_one_line() -> None:
    """They are not in the table of rows; the line has their numbers and the command that runs them."""
    suite, rows = rows_of()
    records = [dict(record) for record in records_of(rows) * 12]
    for record in records[3:]:
        facts = {**record["metadata"]["trioeval"], "outcome": "not_run"}
        record["metadata"] = {"trioeval": facts}
    failures = kept(records[:3])
    for index, record in enumerate(records[4:], 3):
        failures.add(index, RowRecord.of(record))
    line = not_run_line(failures.not_run, "quiz", "trioeval resume eval-1")
    assert line == "task quiz: 44 rows not run: 3–46; continue with trioeval resume eval-1"
    assert "NOT RUN" not in " ".join(
        printed(rows_table(headed(suite).columns, first(records[4:])), width=80)
    )


def test_only_the_first_failures_are_kept() -> None:
    """The others are counted."""
    suite, rows = rows_of()
    failures = kept(records_of(rows) * 5, most=2)
    assert (len(failures.groups), failures.count) == (2, 15)
    assert "… and 13 more rows" in printed(failures_view(headed(suite).columns, failures), width=80)


def test_rows_that_were_not_run_are_not_failures() -> None:
    """They are not evidence about a provider; if nothing else failed nothing is shown."""
    suite, rows = rows_of()
    record = records_of(rows)[2]
    record["metadata"]["trioeval"]["outcome"] = "not_run"
    failures = kept([record])
    assert (failures.count, failures.not_run.count) == (0, 1)
    assert not_run_line(failures.not_run) == "1 row not run: 0"
    assert failures_view(headed(suite).columns, failures) is None
    totals = Totals.of(headed(suite).columns)
    totals.add(RowRecord.of(record))


def test_rates_and_waits_are_shown() -> None:
    """The three longest waits of at least a twentieth of the time are shown, of lanes with calls."""
    waits = {"tokens": 31.0, "slot": 5.0, "blocked": 3.0, "shared_limit": 2.5, "pace": 0.1}
    lanes = {"openai": {"waits": waits}, "own": {"waits": {"slot": 43.0}}}
    again = {"openai": {"waits": {"slot": 1.0}}}
    took = RunUsage(
        seconds=44.0,
        rows=11,
        tokens=880,
        activity=[{"lanes": lanes}, {"lanes": again}],
        hidden={"own"},
    )
    assert [*usage_lines(took)] == [
        "0.25 rows/s, 20 tokens/s over 44 s",
        "waited 31 s of 44 s: openai tpm",
        "waited 6 s of 44 s: openai slots",
        "waited 3 s of 44 s: openai 429",
    ]


def test_a_wait_names_the_distinctive_part_of_its_lane() -> None:
    """It is the end of a key, also of a long one."""
    host = "openai|http://127.0.0.1:8799/v1|-|-"
    lanes = {f"{host}|{name}": {"waits": {"slot": 9.0}} for name in ("6b", "x" * 80 + "_tuned")}
    took = RunUsage(seconds=10.0, rows=0, tokens=0, activity=[{"lanes": lanes}])
    first, second = usage_lines(took)
    assert first == "waited 9 s of 10 s: 6b slots"
    assert second.endswith("_tuned slots")
    assert "…" in second


def test_a_very_short_run_has_no_rates() -> None:
    """A part of a second is too short, and so is a run without rows."""
    suite, rows = rows_of()
    totals = totals_of(suite, rows)
    assert [*usage_lines(RunUsage.of(0.9, [totals], []))] == []
    assert [*usage_lines(RunUsage.of(2.0, [Totals.of([0])], []))] == []
    assert [*usage_lines(RunUsage.of(2.0, [totals], []))] == ["2 rows/s, 2.5 tokens/s over 2 s"]


def test_every_wait_has_a_short_name() -> None:
    """Names are unique, and fit narrow lines."""
    assert WAIT_WORDS.keys() == {*WaitReason}
    assert len({*WAIT_WORDS.values()}) == len(WAIT_WORDS)
    assert all(len(word) < 20 for word in WAIT_WORDS.values())


async def broken(request: trioeval.Request) -> trioeval.Reply:
    raise trioeval.ProviderError("server", "down")


def test_a_run_of_errors_has_a_summary() -> None:
    """It has no score and no latency, and every reason."""
    suite, rows = rows_of({**SUITE, "providers": ["mine"]}, broken)
    columns = headed(suite).columns
    totals = totals_of(suite, rows)
    assert {row.status for row in rows} == {Status.ERROR}
    text = " ".join(printed(columns_table(columns, totals), width=120))
    assert "0.0 %" in text
    assert "0–66 %" in text
    shown = printed(failures_view(columns, kept(records_of(rows))), width=80)
    assert shown[0] == "2 rows did not pass"
