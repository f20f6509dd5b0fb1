"""Templates in tests that cannot be read: they are told before anything is paid for."""

from pathlib import Path
from typing import Any

import pytest

from trioeval.errors import SuiteError
from trioeval.suite import parse_suite

WRONG = "{{ b.length }}"
SAID = "nunjucks-only: `.length` at line 1; write `x | length`"


def said_of(folder: Path, **keys: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parse_suite({"providers": ["echo"], **keys}, directory=folder, environ={})
    return [str(problem) for problem in caught.value.problems]


def contains(value: Any, **keys: Any) -> dict[str, Any]:
    return {"assert": [{"type": "contains", "value": value, **keys}]}


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"tests": [contains(WRONG)]}, "$.tests[0].assert[0].value"),
        ({"tests": [contains("a", metric=WRONG)]}, "$.tests[0].assert[0].metric"),
        (
            {"tests": [{"assert": [{"type": "equals", "value": ["a", WRONG]}]}]},
            "$.tests[0].assert[0].value[1]",
        ),
        ({"tests": [{"options": {"prefix": WRONG}}]}, "$.tests[0].options.prefix"),
        ({"tests": [{"options": {"suffix": WRONG}}]}, "$.tests[0].options.suffix"),
        ({"defaultTest": contains(WRONG)}, "$.defaultTest.assert[0].value"),
        ({"defaultTest": {"options": {"suffix": WRONG}}}, "$.defaultTest.options.suffix"),
        (
            {"scenarios": [{"config": [contains(WRONG)]}]},
            "$.scenarios[0].config[0].assert[0].value",
        ),
        (
            {"scenarios": [{"config": [{}], "tests": [contains(WRONG)]}]},
            "$.scenarios[0].tests[0].assert[0].value",
        ),
    ],
)
def test_a_template_that_cannot_be_read_is_told_at_load(
    tmp_path: Path, keys: dict[str, Any], path: str
) -> None:
    """Its row would be paid for, and an error then."""
    assert said_of(tmp_path, **keys) == [f"{path}: {SAID}"]


def test_the_text_of_a_file_is_looked_at_as_well(tmp_path: Path) -> None:
    """It is rendered like a value in place."""
    (tmp_path / "v.txt").write_text(WRONG)
    assert said_of(tmp_path, tests=[contains("file://v.txt")]) == [
        f"$.tests[0].assert[0].value: {SAID}"
    ]


def test_what_is_no_template_may_hold_anything(tmp_path: Path) -> None:
    """Variables, members of objects, marks that do not close, and filters that the suite brings."""
    (tmp_path / "f.py").write_text("def twice(x):\n    return x * 2\n")
    tests = [
        {"vars": {"x": WRONG}, "metadata": {"y": WRONG}},
        {"assert": [{"type": "equals", "value": {"x": WRONG}}]},
        contains("{{ open"),
        contains("{{ x | twice }}"),
    ]
    parse_suite(
        {"providers": ["echo"], "tests": tests, "nunjucksFilters": {"twice": "file://f.py"}},
        directory=tmp_path,
    )


def test_where_there_are_no_templates_nothing_is_one(tmp_path: Path) -> None:
    """A switch of the environment says so."""
    parse_suite(
        {"providers": ["echo"], "prompts": [WRONG], "tests": [contains(WRONG)]},
        directory=tmp_path,
        environ={"PROMPTFOO_DISABLE_TEMPLATING": "true"},
    )
