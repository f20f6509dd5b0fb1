"""Invalid templates in tests are reported before the run."""

import json
from pathlib import Path
from typing import Any

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import parse_suite
from trioeval.suite.plain import plain_test
from trioeval.text import is_template

WRONG = "{{ b.length() ) }}"
SAID = "not a template: line 1: expected variable end, got )"


def problems_of(folder: Path, **keys: Any) -> list[str]:
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
        ({"prompts": [{"raw": WRONG}]}, "$.prompts[0].raw"),
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
def test_an_invalid_template_is_reported_at_load(
    tmp_path: Path, keys: dict[str, Any], path: str
) -> None:
    """Otherwise the row would be paid for, and then be an error."""
    assert problems_of(tmp_path, **keys) == [f"{path}: {SAID}"]


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"prompts": ["Hi {{ b"]}, "$.prompts[0]"),
        ({"prompts": ['[{"content": "Hi {{ b"}]']}, "$.prompts[0]"),
        ({"tests": [contains("Hi {{ b")]}, "$.tests[0].assert[0].value"),
        ({"tests": [contains("a", metric="Hi {{ b")]}, "$.tests[0].assert[0].metric"),
        ({"tests": [{"options": {"prefix": "Hi {{ b"}}]}, "$.tests[0].options.prefix"),
        (
            {"defaultTest": {"options": {"rubricPrompt": "Hi {{ b"}}},
            "$.defaultTest.options.rubricPrompt",
        ),
    ],
)
def test_an_unclosed_tag_is_refused_at_load(
    tmp_path: Path, keys: dict[str, Any], path: str
) -> None:
    """The model or the assertion would see the text of the tag."""
    [problem] = problems_of(tmp_path, **keys)
    assert problem.startswith(f'{path}: not a template: line 1, column 4: "{{{{" is not closed')


def test_the_text_of_a_file_is_not_a_template(tmp_path: Path) -> None:
    """It is compared and shown literally."""
    (tmp_path / "v.txt").write_text(WRONG)
    (tmp_path / "v.json").write_text(json.dumps([WRONG, {"a": WRONG}]))
    tests = [contains("file://v.txt"), {"assert": [{"type": "equals", "value": "file://v.json"}]}]
    listed = {"assert": [{"type": "contains-any", "value": ["file://v.txt", "{{ a }}"]}]}
    suite = parse_suite(
        {"providers": ["echo"], "tests": [*tests, listed]}, directory=tmp_path, environ={}
    )
    values = [test.assertions[0].value for test in suite.tests]
    assert values == [WRONG, [WRONG, {"a": WRONG}], [WRONG, "{{ a }}"]]
    assert not any(map(is_template, [values[0], *values[1]]))
    plain = [plain_test(test)["assert"][0]["value"] for test in suite.tests]
    assert plain == values
    assert type(plain[0]) is str


def test_mistakes_in_a_file_with_template_marks_are_reported(
    tmp_path: Path,
) -> None:
    (tmp_path / "v.txt").write_text("{{ [")
    (tmp_path / "w.txt").write_text("{{ [ }}")
    regex = [{"type": "regex", "value": f"file://{name}.txt"} for name in "vw"]
    assert len(problems_of(tmp_path, tests=[{"assert": regex}])) == 2


def test_text_that_is_not_a_template_may_contain_anything(tmp_path: Path) -> None:
    """Variables, members of objects, marks without a name, code, and the suite's own filters."""
    (tmp_path / "f.py").write_text("def twice(x):\n    return x * 2\n")
    tests = [
        {"vars": {"x": WRONG}, "metadata": {"y": WRONG}},
        {"assert": [{"type": "equals", "value": {"x": WRONG}}]},
        {"vars": {"x": "{{ open"}},
        {"assert": [{"type": "not-contains", "value": "{{"}]},
        {"assert": [{"type": "python", "value": "len(f'{{ {output}') > 3"}]},
        contains("{{ x | twice }}"),
    ]
    parse_suite(
        {"providers": ["echo"], "tests": tests, "nunjucksFilters": {"twice": "file://f.py"}},
        directory=tmp_path,
    )


def test_disabled_templates_are_not_checked(tmp_path: Path) -> None:
    """An environment switch disables templates."""
    parse_suite(
        {"providers": ["echo"], "prompts": [WRONG], "tests": [contains(WRONG)]},
        directory=tmp_path,
        environ={"PROMPTFOO_DISABLE_TEMPLATING": "true"},
    )
