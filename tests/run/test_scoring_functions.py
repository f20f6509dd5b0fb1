"""Code of a suite that grades: functions with the final decision, and own assertion types."""

from pathlib import Path
from typing import Any

import pytest
import trio

import trioeval
from trioeval.run import Row

CODE = """
def func(named, context):
    parts = [(part["assertion"] or {}).get("type") for part in context["componentResults"]]
    reason = f"{parts} {context.get('threshold', 'none')} {context['tokensUsed']['total']}"
    return {"pass": True, "score": named["m"] * 2, "reason": reason, "namedScores": {"own": 1}}

def fails(named, context):
    raise ValueError("not today")

def malformed(named, context):
    return {"pass": 1, "score": 1, "reason": "one is not true"}

def hangs(named, context):
    while True:
        pass

def is_long(output, context):
    least = context["value"] or 3
    return {"pass": len(output) >= least, "score": min(1, len(output) / least), "reason": "by length"}

def polite(output, context):
    return "please" in output

def broken(output, context):
    raise LookupError("nothing")
"""


def rows(folder: Path, tests: list[Any], **top: Any) -> list[Row]:
    (folder / "own.py").write_text(CODE)
    document = {"providers": ["echo"], "prompts": ["{{x}}"], "tests": tests, **top}
    suite = trioeval.parse_suite(document, directory=folder)
    return trio.run(trioeval.collect, suite)


def seen(row: Row) -> tuple[str, float, str]:
    assert row.verdict is not None
    return row.status.value, row.score, row.verdict.reason


@pytest.mark.slow
def test_a_scoring_function_decides(tmp_path: Path) -> None:
    """It overrides the threshold; that of the default test applies if a test has none."""
    yes = {"type": "equals", "value": "a", "metric": "m"}
    both = {"type": "assert-set", "assert": [yes, {"type": "contains", "value": "z"}]}
    tests: list[dict[str, Any]] = [
        {"vars": {"x": "a"}, "assert": [both], "threshold": 0.9},
        {"vars": {"x": "a"}, "assert": [yes], "assertScoringFunction": "file://own.py:fails"},
        {"vars": {"x": "a"}, "assert": [yes], "assertScoringFunction": "file://own.py:malformed"},
        {"vars": {"x": "a"}},
    ]
    default = {"assertScoringFunction": "file://own.py"}
    first, second, third, fourth = rows(tmp_path, tests, defaultTest=default)
    assert seen(first) == ("pass", 2, "['assert-set', 'equals', 'contains'] 0.9 0")
    assert first.named_scores == {"own": 1}
    status, score, reason = seen(second)
    assert (status, score) == ("fail", 0)
    assert reason.startswith("the scoring function failed: own.py:fails")
    assert "ValueError: not today" in reason
    assert seen(third)[:2] == ("fail", 0)
    assert "it must return an object with pass (true or false)" in seen(third)[2]
    assert seen(
        rows(tmp_path, [{"vars": {"x": "a"}, "assert": [yes]}], defaultTest=default)[0]
    ) == (("pass", 2, "['equals'] none 0"))
    assert seen(fourth) == ("not_graded", 1, "no assertions")


@pytest.mark.slow
def test_a_scoring_function_that_hangs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row gets no verdict; the results of the assertions are kept."""
    monkeypatch.setenv("TRIOEVAL_SCRIPT_TIMEOUT_MS", "300")
    yes = {"type": "equals", "value": "a"}
    tests = [{"vars": {"x": "a"}, "assert": [yes], "assertScoringFunction": "file://own.py:hangs"}]
    (row,) = rows(tmp_path, tests)
    assert row.status.value == "error"
    assert "did not end within 0.3 seconds (SCRIPT_TIMEOUT_MS)" in str(row.error)


@pytest.mark.slow
def test_a_suite_may_define_types(tmp_path: Path) -> None:
    """They take values and thresholds, can be inverted, and may be in sets; their failure is a failure."""
    own = {
        "long": "file://own.py:is_long",
        "polite": "file://own.py:polite",
        "broken": "file://own.py:broken",
    }
    found = rows(
        tmp_path,
        [
            {"vars": {"x": "abcd"}, "assert": [{"type": "long"}]},
            {"vars": {"x": "abcd", "n": 8}, "assert": [{"type": "long", "value": 8}]},
            {"vars": {"x": "abcd"}, "assert": [{"type": "long", "value": 8, "threshold": 0.6}]},
            {"vars": {"x": "no"}, "assert": [{"type": "not-polite"}]},
            {
                "vars": {"x": "please"},
                "assert": [{"type": "assert-set", "assert": [{"type": "polite", "metric": "m"}]}],
            },
            {"vars": {"x": "a"}, "assert": [{"type": "not-broken"}]},
        ],
        assertionTypes=own,
    )
    assert [seen(row)[:2] for row in found] == [
        ("pass", 1),
        ("fail", 0.5),
        ("fail", 0.5),
        ("pass", 1),
        ("pass", 1),
        ("fail", 0),
    ]
    assert found[4].named_scores == {"m": 1}
    assert "LookupError: nothing" in seen(found[5])[2]


@pytest.mark.slow
def test_cells_of_tables_know_the_types_of_a_suite(tmp_path: Path) -> None:
    """They accept a threshold and a value, like built-in types."""
    (tmp_path / "tests.csv").write_text(
        "x,__expected\nplease,polite\nabcd,long(0.1): 0\nno,polite\n"
    )
    found = rows(
        tmp_path,
        ["tests.csv"],
        assertionTypes={"long": "file://own.py:is_long", "polite": "file://own.py:polite"},
    )
    types = [(one.type, one.threshold) for row in found for one in row.step.test.assertions]
    assert types == [("polite", None), ("long", 0.1), ("polite", None)]
    assert [row.status.value for row in found][::2] == ["pass", "fail"]


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"contains": "file://own.py:polite"},
        ['$.assertionTypes.contains: the assertion type "contains" already exists'],
    ),
    (
        {"not-x": "file://own.py:polite"},
        ['$.assertionTypes.not-x: "not-x" is not a valid name of an assertion type'],
    ),
    (
        {"x": "file://own.py"},
        ['$.assertionTypes.x: "file://own.py" names no function'],
    ),
    ({"x": "own.py"}, ['$.assertionTypes.x: must name a function in a file, got "own.py"']),
    ({"x": "file://none.py:f"}, ['$.assertionTypes.x: file not found: "none.py"']),
    ({"assert-set": "file://own.py:f"}, ["$.assertionTypes"]),
]


@pytest.mark.parametrize(("types", "problems"), WRONG, ids=[next(iter(one)) for one, _ in WRONG])
def test_errors_of_a_type_are_reported(
    tmp_path: Path, types: dict[str, Any], problems: list[str]
) -> None:
    """The mistake is reported before the run, at its place."""
    (tmp_path / "own.py").write_text(CODE)
    with pytest.raises(trioeval.SuiteError) as caught:
        trioeval.parse_suite({"providers": ["echo"], "assertionTypes": types}, directory=tmp_path)
    messages = [str(problem) for problem in caught.value.problems]
    assert len(messages) == len(problems)
    assert all(one.startswith(start) for one, start in zip(messages, problems, strict=True)), (
        messages
    )


def test_a_misspelt_type_of_a_suite_is_reported_like_any_other(tmp_path: Path) -> None:
    """The probable name is suggested."""
    (tmp_path / "own.py").write_text(CODE)
    document = {
        "providers": ["echo"],
        "assertionTypes": {"polite": "file://own.py:polite"},
        "tests": [{"assert": [{"type": "polit"}]}],
    }
    with pytest.raises(trioeval.SuiteError, match='did you mean "polite"'):
        trioeval.parse_suite(document, directory=tmp_path)
