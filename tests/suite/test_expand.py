import itertools
import sys
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import PlanError
from trioeval.grading import Assertion
from trioeval.suite import (
    EvaluateOptions,
    Prompt,
    ProviderEntry,
    Suite,
    Test,
    TestOptions,
    expand,
    parse_suite,
)
from trioeval.suite.expand import merged

VALUES: st.SearchStrategy[Any] = (
    st.sampled_from(["a", 1, None, []])
    | st.lists(st.sampled_from("abc"), max_size=3)
    | st.lists(st.integers(), max_size=2)
)
OPTIONS = st.builds(
    TestOptions,
    run_serially=st.none() | st.booleans(),
    repeat=st.none() | st.integers(1, 3),
)
TESTS = st.builds(
    Test,
    vars=st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3),
    options=OPTIONS,
)
PROMPTS = [
    Prompt(raw=label, label=label, id=f"digest of {label}", given_id=given_id)
    for label, given_id in [("a", None), ("ab", "p1"), ("b:1", None), ("b:2", "p2")]
]
REFERENCES = st.lists(st.sampled_from(["a", "a*", "b", "p1", "p*", "digest of a", "*", "z"]))
SUITES = st.builds(
    Suite,
    providers=st.lists(
        st.builds(ProviderEntry, id=st.just("echo"), prompts=st.none() | REFERENCES.map(tuple)),
        max_size=3,
    ).map(tuple),
    prompts=st.lists(st.sampled_from(PROMPTS), max_size=4, unique=True).map(tuple),
    tests=st.lists(TESTS, max_size=4).map(tuple),
    default_test=st.none() | TESTS,
    evaluate_options=st.builds(EvaluateOptions, repeat=st.integers(1, 2)),
)


def names(reference: str, prompt: Prompt) -> bool:
    known = [prompt.label, prompt.id, prompt.given_id or prompt.label]
    if reference.endswith("*"):
        return any(name.startswith(reference.rstrip("*")) for name in known)
    return any(name == reference or name.split(":")[0] == reference for name in known)


def by_nested_loops(suite: Suite) -> Iterator[tuple[int, int, int, int, Prompt, dict[str, Any]]]:
    """The order of the specification, written as it is written there."""
    test_idx = itertools.count()
    default = suite.default_test or Test()
    for test in suite.tests:
        variables = {**default.vars, **test.vars}
        repeat = test.options.repeat or default.options.repeat or suite.evaluate_options.repeat
        choices = [
            value if isinstance(value, list) and value and isinstance(value[0], str) else [value]
            for value in variables.values()
        ]
        for repeat_index in range(repeat):
            for choice in itertools.product(*choices):
                number = next(test_idx)
                prompt_idx = itertools.count()
                for place, provider in enumerate(suite.providers):
                    for prompt in suite.prompts:
                        wanted = provider.prompts
                        if wanted is None or any(names(reference, prompt) for reference in wanted):
                            chosen = dict(zip(variables, choice, strict=True))
                            yield number, next(prompt_idx), repeat_index, place, prompt, chosen


@pytest.mark.slow
@given(SUITES)
def test_steps_are_those_of_the_nested_loops(suite: Suite) -> None:
    """Indices are 0, 1, 2, …, and whatever is at an index is the same from either end."""
    steps = expand(suite)
    assert [
        (
            step.test_idx,
            step.prompt_idx,
            step.repeat_index,
            step.column.provider_index,
            step.column.prompt,
            step.vars,
        )
        for step in steps
    ] == list(by_nested_loops(suite))
    assert [step.index for step in steps] == list(range(len(steps)))
    assert [steps[-position - 1] for position in range(len(steps))] == list(steps[::-1])


@pytest.mark.slow
@given(SUITES)
def test_serial_indices_are_the_steps_that_say_so(suite: Suite) -> None:
    """Ascending, and by the merged options: a test may say no where the default says yes."""
    default = suite.default_test or Test()
    steps = expand(suite)
    assert list(steps.serial_indices) == [
        step.index for step in steps if step.test.options.run_serially
    ]
    for test in suite.tests:
        said = test.options.run_serially
        wanted = default.options.run_serially if said is None else said
        assert bool(merged(suite.default_test, test).options.run_serially) is bool(wanted)


def test_sc_01_the_documented_example() -> None:
    """Two values by two values, repeated, then a second test; two prompts for two providers."""
    suite = parse_suite(
        {
            "providers": ["echo", "echo"],
            "prompts": ["p", "q"],
            "evaluateOptions": {"repeat": 2},
            "tests": [{"vars": {"x": ["1", "2"], "y": ["3", "4"]}}, {"vars": {"x": "5"}}],
        }
    )
    steps = expand(suite)
    assert len(steps) == 40
    firsts = [step for step in steps if step.prompt_idx == 0]
    assert [(step.test_idx, step.repeat_index, *step.vars.values()) for step in firsts] == [
        (0, 0, "1", "3"),
        (1, 0, "1", "4"),
        (2, 0, "2", "3"),
        (3, 0, "2", "4"),
        (4, 1, "1", "3"),
        (5, 1, "1", "4"),
        (6, 1, "2", "3"),
        (7, 1, "2", "4"),
        (8, 0, "5"),
        (9, 1, "5"),
    ]
    columns = [(c.prompt_idx, c.provider_index, c.prompt.raw) for c in steps.columns]
    assert columns == [(0, 0, "p"), (1, 0, "q"), (2, 1, "p"), (3, 1, "q")]


def test_sc_03_the_repeat_of_a_test_wins() -> None:
    """Over that of the suite, and over that of the default test."""
    suite = parse_suite(
        {
            "providers": ["echo"],
            "evaluateOptions": {"repeat": 2},
            "tests": [{"options": {"repeat": 3}}, {"metadata": {}}],
        }
    )
    assert [step.repeat_index for step in expand(suite)] == [0, 1, 2, 0, 1]


def test_sc_04_only_lists_that_begin_with_text_are_alternatives() -> None:
    """Lists of other things, and the empty list, are one value."""
    suite = parse_suite(
        {
            "providers": ["echo"],
            "tests": [{"vars": {"a": ["1", 2], "b": [1, "2"], "c": [], "d": [{"x": "y"}]}}],
        }
    )
    assert [dict(step.vars) for step in expand(suite)] == [
        {"a": value, "b": [1, "2"], "c": [], "d": [{"x": "y"}]} for value in ("1", 2)
    ]


def test_sc_06_assertions_of_the_default_come_first() -> None:
    """Variables, metadata and threshold are those of the test where it has them."""
    one, two = (Assertion(type="contains", value=value) for value in "ab")
    default = Test(
        description="default",
        vars={"x": "1", "y": "1"},
        assertions=(one,),
        threshold=0.5,
        metadata={"k": 1, "l": 1},
        options=TestOptions(repeat=2, run_serially=True),
    )
    test = Test(vars={"y": "2"}, assertions=(two,), metadata={"l": 2})
    both = merged(default, test)
    assert both == Test(
        vars={"x": "1", "y": "2"},
        assertions=(one, two),
        threshold=0.5,
        metadata={"k": 1, "l": 2},
        options=TestOptions(repeat=2, run_serially=True),
    )
    assert merged(default, attrs.evolve(test, threshold=0.0)).threshold == 0.0
    assert merged(None, test) is test


@pytest.mark.parametrize(
    ("references", "labels"),
    [
        (None, ["a", "ab", "b:1", "b:2"]),
        ((), []),
        (("a",), ["a"]),
        (("a*",), ["a", "ab"]),
        (("b",), ["b:1", "b:2"]),
        (("b:2", "a"), ["a", "b:2"]),
        (("p1",), ["ab"]),
        (("digest of a",), ["a"]),
        (("*",), ["a", "ab", "b:1", "b:2"]),
    ],
)
def test_a_provider_gets_the_prompts_that_it_names(
    references: tuple[str, ...] | None, labels: list[str]
) -> None:
    """By label, id, beginning or group; in the order of the suite, not of the references."""
    suite = Suite(providers=(ProviderEntry(id="echo", prompts=references),), prompts=tuple(PROMPTS))
    assert [column.prompt.label for column in expand(suite).columns] == labels


def test_a_million_million_steps_cost_nothing() -> None:
    """Only what is looked at is made."""
    suite = parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["a", "b"],
            "tests": [{"vars": {"x": list("abc")}, "options": {"repeat": 10**12}}],
            "defaultTest": {"options": {"runSerially": True}},
        }
    )
    steps = expand(suite)
    assert len(steps) == 6 * 10**12
    last = steps[-1]
    assert (last.index, last.repeat_index, last.vars) == (6 * 10**12 - 1, 10**12 - 1, {"x": "c"})
    assert steps[5 : 10**12 : 10**11][1].index == 10**11 + 5
    assert steps.serial_indices == range(6 * 10**12)


def test_nothing_serial_is_an_empty_range_of_indices() -> None:
    """So asking costs no memory."""
    suite = parse_suite({"providers": ["echo"], "tests": [{"vars": {"x": "1"}}] * 3})
    assert expand(suite).serial_indices == ()


def test_separate_stretches_of_serial_steps_are_listed() -> None:
    """SC-15: tests 1 and 3 of four, two columns."""
    serial = {"options": {"runSerially": True}}
    suite = parse_suite(
        {
            "providers": ["echo", "echo"],
            "tests": [{"metadata": {}}, serial, {"metadata": {}}, serial],
        }
    )
    assert expand(suite).serial_indices == (2, 3, 6, 7)


def test_more_steps_than_can_be_counted_are_refused() -> None:
    """At the edge, one more is one too many."""
    entry = {"providers": ["echo"], "evaluateOptions": {"repeat": sys.maxsize}}
    assert len(expand(parse_suite(entry))) == sys.maxsize
    with pytest.raises(PlanError) as caught:
        expand(parse_suite({**entry, "evaluateOptions": {"repeat": sys.maxsize + 1}}))
    assert str(caught.value) == (
        "the suite stands for 9223372036854775808 rows, more than can be counted"
    )


def test_an_index_beyond_the_end_is_an_error() -> None:
    """As for any sequence, also for an empty one."""
    with pytest.raises(IndexError):
        expand(parse_suite({"providers": ["echo"]}))[1]
    nothing = expand(parse_suite({"providers": [{"id": "echo", "prompts": []}]}))
    assert list(nothing) == []
    with pytest.raises(IndexError):
        nothing[0]
