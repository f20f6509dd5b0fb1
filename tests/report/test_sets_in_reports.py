"""Assertion sets and other nested assertions in result files."""

import attrs
from finished import results_of, rows_of, totals_of

import trioeval
from trioeval.grading import Verdict
from trioeval.report.formats.junit import junit_chunks
from trioeval.report.row import row_json

SUITE = {
    "providers": ["echo"],
    "prompts": ["{{word}}"],
    "tests": [
        {
            "vars": {"word": "hi"},
            "assert": [
                {"type": "contains", "value": "h", "metric": "m"},
                {
                    "type": "assert-set",
                    "metric": "both",
                    "threshold": 0.9,
                    "weight": 3,
                    "config": {"a": 1},
                    "assert": [
                        {"type": "contains", "value": "i", "weight": 3, "metric": "m"},
                        {"type": "equals", "value": "no"},
                    ],
                },
            ],
        },
    ],
}


def test_a_set_is_followed_by_its_members() -> None:
    """The set is not an assertion itself, for readers that look for one; its definition is next to it."""
    _, (row,) = rows_of(SUITE)
    graded = row_json(row, "e")["gradingResult"]
    parts = graded["componentResults"]
    assert [(part.get("assertion", {}).get("type"), part["score"]) for part in parts] == [
        ("contains", 1),
        (None, 0.75),
        ("contains", 1),
        ("equals", 0),
    ]
    assert parts[1]["metadata"]["assertionSet"] == {
        "type": "assert-set",
        "assertionCount": 2,
        "metric": "both",
        "threshold": 0.9,
        "weight": 3,
    }
    assert parts[1]["namedScoreWeights"] == {"m": 3}
    assert parts[2]["assertion"]["config"] == {"a": 1}
    assert graded["namedScores"] == {"m": 1, "both": 0.75}
    assert graded["namedScoreWeights"] == {"m": 10, "both": 3}


def test_a_test_with_a_set_can_be_read_back() -> None:
    """The test in a row is equivalent to the original one."""
    _, (row,) = rows_of(SUITE)
    assertions = row_json(row, "e")["testCase"]["assert"]
    suite = trioeval.parse_suite({"providers": ["echo"], "tests": [{"assert": assertions}]})
    assert suite.tests[0].assertions == row.step.test.assertions


def test_totals_count_a_set_and_its_members() -> None:
    """Sums of named scores are weighted; a set is one contribution to its own metric."""
    suite, rows = rows_of(SUITE)
    (column,) = totals_of(suite, rows * 2).columns
    data = column.json()
    assert (data["assertPassCount"], data["assertFailCount"]) == (4, 4)
    assert data["namedScores"] == {"m": 20, "both": 4.5}
    assert data["namedScoreWeights"] == {"m": 20, "both": 6}
    assert data["namedScoresCount"] == {"m": 4, "both": 2}


def test_junit_names_the_sets_that_failed() -> None:
    """Their members follow, in order."""
    text = "".join(junit_chunks(results_of(SUITE)))
    assert "Failed assertions:\n- assert-set\n- equals" in text


def test_assertions_of_a_row_without_a_verdict_are_kept() -> None:
    """They are next to the missing verdict, so that no reader takes them for one."""
    _, (row,) = rows_of(SUITE)
    assert row.verdict is not None
    broken = attrs.evolve(row, verdict=None, graded=row.verdict.parts)
    data = row_json(broken, "e")
    assert data["gradingResult"] is None
    kept = data["metadata"]["trioeval"]["componentResults"]
    assert [part["score"] for part in kept] == [1, 0.75, 1, 0]


def test_parts_judged_by_a_script_belong_to_the_script() -> None:
    """Results without an assertion are reported under that of the script."""
    _, (row,) = rows_of(SUITE)
    assert row.verdict is not None
    inner = Verdict(passed=False, score=0.0, reason="inner")
    script = attrs.evolve(row.verdict.parts[0], parts=(inner,))
    verdict = attrs.evolve(row.verdict, parts=(script,))
    parts = row_json(attrs.evolve(row, verdict=verdict), "e")["gradingResult"]["componentResults"]
    assert [(part["assertion"]["type"], part["reason"]) for part in parts] == [
        ("contains", script.reason),
        ("contains", "inner"),
    ]
