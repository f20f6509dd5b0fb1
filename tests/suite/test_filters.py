"""Selection of tests: each filter, their order, scenarios, and rows of earlier results."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import UsageError
from trioeval.grading.patterns import compile_javascript
from trioeval.loading.load import parse_suite
from trioeval.suite.expand import all_tests, expand
from trioeval.suite.filters import (
    EarlierRow,
    Filters,
    earlier_rows,
    keep_prompts,
    keep_providers,
    read_pair,
    read_pattern,
    read_range,
    select_tests,
    variables_key,
)
from trioeval.suite.model import Suite


def suite_of(tests: Iterable[Any], **more: Any) -> Suite:
    return parse_suite({"providers": ["echo"], "prompts": ["{{x}}"], "tests": [*tests], **more})


def selected(suite: Suite, filters: Filters) -> list[int]:
    places = select_tests(suite, filters)
    return [place for place in range(len(all_tests(suite))) if places is None or place in places]


TEN = suite_of(
    {
        "description": f"test {n}",
        "vars": {"x": str(n)},
        "metadata": {"n": n, "tags": ["even" if n % 2 == 0 else "odd", "all"]},
    }
    for n in range(10)
)


@pytest.mark.parametrize(
    ("filters", "places"),
    [
        (Filters(), [*range(10)]),
        (Filters(first_n=3), [0, 1, 2]),
        (Filters(first_n=30), [*range(10)]),
        (Filters(range=slice(2, 4)), [2, 3]),
        (Filters(range=slice(8, None)), [8, 9]),
        (Filters(range=slice(None, 1)), [0]),
        (Filters(pattern=compile_javascript("[36]$")), [3, 6]),
        (Filters(metadata=(("tags", "odd"),)), [1, 3, 5, 7, 9]),
        (Filters(metadata=(("tags", "od"), ("n", "5"))), [5]),
        (Filters(metadata=(("none", "5"),)), []),
        (Filters(metadata=(("tags", "odd"),), range=slice(1, None), first_n=2), [3, 5]),
        (
            Filters(pattern=compile_javascript("test"), range=slice(4, 8), first_n=3, sample=9),
            [4, 5, 6],
        ),
    ],
)
def test_each_filter_applies_to_the_result_of_those_before(
    filters: Filters, places: list[int]
) -> None:
    """The order is metadata, pattern, range, first-n, sample."""
    assert selected(TEN, filters) == places


@given(st.integers(1, 12), st.integers())
def test_a_sample_keeps_its_order_and_is_equal_for_equal_seeds(size: int, seed: int) -> None:
    """It has the requested number of tests, if there are that many."""
    drawn = selected(TEN, Filters(sample=size, sample_seed=seed))
    assert drawn == sorted(set(drawn))
    assert len(drawn) == min(size, 10)
    assert drawn == selected(TEN, Filters(sample=size, sample_seed=seed))


def test_a_pattern_selects_cases_by_name() -> None:
    """It also selects them by their description, as any test."""
    tests = [
        {"id": "ring"},
        {"id": "words", "description": "Brings"},
        {"description": "Calc it", "vars": {}},
    ]
    task = {"id": "t", "type": "agent", "prompts": ["p"], "tests": tests}
    suite = parse_suite({"providers": ["echo"], "tasks": [task]}).tasks[0].suite
    for pattern, places in (("ring", [0, 1]), ("^words$", [1]), ("^calc-it$", [2])):
        assert selected(suite, Filters(pattern=compile_javascript(pattern))) == places


def test_rows_keep_their_numbers() -> None:
    """A test that is left out still takes its numbers: a row keeps its identity."""
    suite = suite_of([{"vars": {"x": ["a", "b"]}}, {"vars": {"x": "c"}}, {"vars": {"x": "d"}}])
    steps = expand(suite, select_tests(suite, Filters(range=slice(1, 3))))
    assert [(step.test_idx, step.vars["x"]) for step in steps] == [(2, "c"), (3, "d")]


SCENARIOS = suite_of(
    [{"description": "plain a", "vars": {}}, {"description": "plain b", "metadata": {"k": "v"}}],
    scenarios=[
        {
            "config": [{"vars": {"x": "1"}}, {"vars": {"x": "2"}}],
            "tests": [{"description": "one a", "vars": {}}, {"description": "one b", "vars": {}}],
        },
        {
            "config": [{"vars": {"x": "3"}}],
            "tests": [{"description": "two b", "vars": {}}, {"vars": {"y": "1"}}],
        },
    ],
)
"""Indices 0 and 1, then 2 to 5 of the first scenario, then 6 and 7."""


@pytest.mark.parametrize(
    ("filters", "places"),
    [
        (Filters(first_n=1), [0]),
        (Filters(first_n=3), [0, 1, 2]),
        (Filters(pattern=compile_javascript("b$"), first_n=2), [1, 3]),
        (Filters(pattern=compile_javascript("a$")), [0, 2, 4]),
        (Filters(range=slice(1, 4)), [1, 2, 3]),
        (Filters(pattern=compile_javascript("b$"), range=slice(1, 3)), [3, 5]),
        (Filters(metadata=(("k", "v"),)), [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_scenarios_are_filtered_inside_and_ranges_count_all_tests(
    filters: Filters, places: list[int]
) -> None:
    """Patterns apply before multiplication; metadata to plain tests; range and first-n come last."""
    assert selected(SCENARIOS, filters) == places


def row(test_idx: int, reason: int, **variables: Any) -> dict[str, Any]:
    return {
        "testIdx": test_idx,
        "success": reason == 0,
        "failureReason": reason,
        "vars": variables,
        "testCase": {"vars": variables},
    }


def test_earlier_rows_are_selected_by_status() -> None:
    """These are failures, errors, or both; never rows that passed."""
    rows = [row(0, 0, x="a"), row(1, 1, x="b"), row(2, 2, x="c", _conversation=[1])]
    failed, broken = EarlierRow(1, '{"x": "b"}'), EarlierRow(2, '{"x": "c"}')
    assert earlier_rows(rows, failures=True, errors=True) == {failed, broken}
    assert earlier_rows(rows, failures=True, errors=False) == {failed}
    assert earlier_rows(rows, failures=False, errors=True) == {broken}


@pytest.mark.parametrize(
    ("rows", "places"),
    [
        ([row(1, 1, x="b")], [1]),
        ([row(3, 1, x="a")], [2]),
        ([row(0, 1, x="a")], [0]),
        ([row(9, 1, x="a")], [0, 2]),
        ([row(0, 1, x="a"), row(9, 1, x="a")], [0, 2]),
        ([row(2, 1, x="B")], [1]),
        ([row(0, 1, x="other")], []),
    ],
)
def test_an_earlier_row_selects_its_test(rows: list[dict[str, Any]], places: list[int]) -> None:
    """The test has its variables; of equal tests it is the one with its number, or all if none has it."""
    suite = suite_of([{"vars": {"x": "a"}}, {"vars": {"x": ["b", "B"]}}, {"vars": {"x": "a"}}])
    wanted = earlier_rows(rows, failures=True, errors=True)
    assert selected(suite, Filters(earlier=wanted)) == places


def test_earlier_rows_select_tests_of_scenarios_and_with_defaults() -> None:
    """Variables are those of the whole row: of default test, setting and test."""
    suite = suite_of(
        [{"vars": {"x": "a"}}],
        defaultTest={"vars": {"d": 1}},
        scenarios=[
            {"config": [{"vars": {"x": "1"}}, {"vars": {"x": "2"}}], "tests": [{"vars": {}}]}
        ],
    )
    wanted = earlier_rows([row(2, 1, x="2", d=1.0)], failures=True, errors=False)
    assert selected(suite, Filters(earlier=wanted)) == [2]


@given(st.dictionaries(st.text(min_size=1), st.integers() | st.text()))
def test_equal_variables_have_equal_keys(variables: dict[str, Any]) -> None:
    """The key ignores order, and whole floats equal integers."""
    turned = dict(reversed(variables.items()))
    assert variables_key(variables) == variables_key(turned)
    assert variables_key({"a": 1, "_run": 2}) == variables_key({"a": 1.0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3:1", "--filter-range begins after its end, got '3:1'"),
        *(
            (text, f"--filter-range must be a:b, a: or :b in whole numbers from 0, got {text!r}")
            for text in ("a:b", ":", "", "5", "-1:2", "1:2:3", "1.5:2", "٣:٤")
        ),
    ],
)
def test_an_invalid_range_is_refused(text: str, message: str) -> None:
    """The message names the valid forms."""
    with pytest.raises(UsageError) as caught:
        read_range(text, "--filter-range")
    assert str(caught.value) == message


def test_ranges_and_pairs_are_parsed() -> None:
    """Either side of a range may be open; a value may contain `=`, or be empty."""
    assert read_range("2:2", "x") == slice(2, 2)
    assert read_range(":5", "x") == slice(None, 5)
    assert read_pair("a==b", "--var") == ("a", "=b")
    assert read_pair("a=", "--var") == ("a", "")
    for text in ("a", "=b", ""):
        with pytest.raises(UsageError, match=r"^--var must be key=value, got "):
            read_pair(text, "--var")


def test_patterns_are_javascript_regular_expressions() -> None:
    """An invalid one is refused."""
    suite = suite_of([{"description": "a1", "vars": {"x": "y"}}])
    for pattern, places in ((r"(?<a>\d)$", [0]), ("^\\d", []), ("\\p{L}", [])):
        assert selected(suite, Filters(pattern=read_pattern(pattern, "x"))) == places
    with pytest.raises(
        UsageError, match=r"^--filter-pattern '\(' is not a valid regular expression: "
    ):
        read_pattern("(", "--filter-pattern")


@pytest.mark.slow
def test_a_pattern_that_takes_too_long_is_a_usage_error() -> None:
    """No test is left out, or selected, by chance."""
    suite = suite_of([{"description": "a" * 40 + "!", "vars": {"x": "y"}}])
    with pytest.raises(UsageError) as caught:
        selected(suite, Filters(pattern=read_pattern("(a+)+$", "x")))
    assert str(caught.value) == 'the search for "(a+)+$" took longer than 2 seconds on this text'


def test_columns_are_selected_by_label_or_id() -> None:
    """They are filtered before they are numbered."""
    suite = parse_suite(
        {
            "providers": [{"id": "echo", "label": "one"}, {"id": "echo", "label": "two"}],
            "prompts": [{"raw": "x", "label": "short"}, {"raw": "y", "id": "long"}],
        }
    )
    kept = keep_prompts(
        keep_providers(suite, compile_javascript("^t")), compile_javascript("long|nothing")
    )
    (step,) = expand(kept)
    assert (step.prompt_idx, step.column.prompt.raw) == (0, "y")
    assert kept.providers[step.column.provider_index].label == "two"
    assert len(keep_providers(suite, compile_javascript("^ec")).providers) == 2
