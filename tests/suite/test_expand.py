"""Expansion by example; its laws are property tests elsewhere."""

import sys

import attrs
import pytest

from trioeval.errors import PlanError
from trioeval.loading.load import parse_suite
from trioeval.suite.expand import expand
from trioeval.suite.model import Prompt, ProviderEntry, Suite, Test, TestOptions

PROMPTS = tuple(
    Prompt(raw=label, label=label, id=f"digest of {label}", given_id=given_id)
    for label, given_id in [("a", None), ("ab", "p1"), ("b:1", None), ("b:2", "p2")]
)


def test_sc_01_the_documented_example() -> None:
    """Two values by two values, repeated, then a second test; two prompts for two providers."""
    suite = parse_suite(
        {
            "providers": [{"id": "echo", "label": label} for label in "lr"],
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


def test_sc_03_the_repeat_of_a_test_overrides_others() -> None:
    """It overrides that of the suite, and that of the default test."""
    suite = parse_suite(
        {
            "providers": ["echo"],
            "evaluateOptions": {"repeat": 2},
            "tests": [{"options": {"repeat": 3}}, {"metadata": {}}],
        }
    )
    assert [step.repeat_index for step in expand(suite)] == [0, 1, 2, 0, 1]


def test_sc_04_only_lists_that_begin_with_text_are_alternatives() -> None:
    """Lists of other values, and the empty list, are one value."""
    suite = parse_suite(
        {
            "providers": ["echo"],
            "tests": [{"vars": {"a": ["1", 2], "b": [1, "2"], "c": [], "d": [{"x": "y"}]}}],
        }
    )
    assert [dict(step.vars) for step in expand(suite)] == [
        {"a": value, "b": [1, "2"], "c": [], "d": [{"x": "y"}]} for value in ("1", 2)
    ]


def test_sc_02_excluded_columns_leave_holes() -> None:
    """They may be excluded by provider, by prompt, or by both; the other steps keep their numbers."""
    suite = parse_suite(
        {
            "providers": [{"id": "echo", "label": label} for label in ("left", "right")],
            "prompts": [{"raw": "a", "label": "a"}, {"raw": "b", "label": "b"}],
            "tests": [
                {"vars": {}, "providers": ["right"]},
                {"vars": {}, "prompts": ["b"], "providers": ["left"]},
                {"vars": {}, "providers": []},
                {"vars": {}},
            ],
        }
    )
    steps = expand(suite)
    assert [(step.test_idx, step.prompt_idx) for step in steps] == [
        (0, 2),
        (0, 3),
        (1, 1),
        *((3, column) for column in range(4)),
    ]
    assert [step.index for step in steps] == list(range(7))


def test_sc_07_scenarios_follow_all_plain_tests() -> None:
    """Two settings by two tests, in the order scenario, setting, test."""
    suite = parse_suite(
        {
            "providers": ["echo"],
            "tests": [{"vars": {"x": "plain"}}],
            "scenarios": [
                {
                    "config": [{"vars": {"y": "1"}}, {"vars": {"y": "2"}}],
                    "tests": [{"vars": {"x": "a"}}, {"vars": {"x": "b"}}],
                }
            ],
        }
    )
    steps = expand(suite)
    assert [(step.test_idx, *step.vars.values()) for step in steps] == [
        (0, "plain"),
        (1, "1", "a"),
        (2, "1", "b"),
        (3, "2", "a"),
        (4, "2", "b"),
    ]
    names = [step.test.metadata.get("conversationId") for step in steps]
    assert names == [None, *["__scenario_0__"] * 2, *["__scenario_1__"] * 2]


def test_sc_08_no_tests_make_one_step_and_no_scenarios_make_none() -> None:
    """One step per column; but none if there is an empty list of scenarios."""
    assert len(expand(parse_suite({"providers": ["echo"], "prompts": ["a", "b"]}))) == 2
    nothing = expand(parse_suite({"providers": ["echo"], "scenarios": []}))
    assert (len(nothing), list(nothing.serial_indices), nothing.used_providers) == (0, [], ())


def test_prefix_and_suffix_surround_the_prompt() -> None:
    """They are not rendered yet."""
    suite = Suite(
        providers=(ProviderEntry(id="echo"),),
        prompts=PROMPTS[:1],
        tests=(Test(options=TestOptions(prefix="<{{x}}")), Test()),
        default_test=Test(options=TestOptions(suffix=">")),
    )
    assert [step.template for step in expand(suite)] == ["<{{x}}a>", "a>"]


def test_a_provider_of_a_test_replaces_the_columns() -> None:
    """It follows those of the suite, once for any number of tests."""
    own = ProviderEntry(id="echo", config={"k": [1]})
    suite = Suite(
        providers=(ProviderEntry(id="a"), ProviderEntry(id="b")),
        prompts=PROMPTS[:1],
        tests=(Test(provider=own), Test(), Test(provider=attrs.evolve(own))),
    )
    steps = expand(suite)
    assert steps.providers == (*suite.providers, own)
    assert [step.provider_index for step in steps] == [2, 2, 0, 1, 2, 2]
    assert [step.column.provider_index for step in steps] == [0, 1] * 3
    assert steps.used_providers == (0, 1, 2)


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
def test_a_provider_gets_the_prompts_that_it_references(
    references: tuple[str, ...] | None, labels: list[str]
) -> None:
    """References are labels, ids, prefixes or groups; the order is that of the suite."""
    suite = Suite(providers=(ProviderEntry(id="echo", prompts=references),), prompts=PROMPTS)
    assert [column.prompt.label for column in expand(suite).columns] == labels


def test_a_million_million_steps_need_no_memory() -> None:
    """Only steps that are accessed are created."""
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


def test_steps_without_order_are_an_empty_range() -> None:
    """The range needs no memory."""
    suite = parse_suite({"providers": ["echo"], "tests": [{"vars": {"x": "1"}}] * 3})
    assert expand(suite).serial_indices == ()


def test_separate_ranges_of_serial_steps_are_listed() -> None:
    """SC-15: tests 1 and 3 of four, two columns."""
    serial = {"options": {"runSerially": True}}
    suite = parse_suite(
        {
            "providers": [{"id": "echo", "label": label} for label in "lr"],
            "tests": [{"metadata": {}}, serial, {"metadata": {}}, serial],
        }
    )
    assert expand(suite).serial_indices == (2, 3, 6, 7)


def test_more_steps_than_the_maximum_are_refused() -> None:
    """The maximum is accepted, and one more is not."""
    entry = {"providers": ["echo"], "evaluateOptions": {"repeat": sys.maxsize}}
    assert len(expand(parse_suite(entry))) == sys.maxsize
    with pytest.raises(PlanError) as caught:
        expand(parse_suite({**entry, "evaluateOptions": {"repeat": sys.maxsize + 1}}))
    assert str(caught.value) == (
        "the suite expands to 9223372036854775808 rows, more than can be counted"
    )


def test_an_index_beyond_the_end_is_an_error() -> None:
    """This is as for any sequence, also for an empty one."""
    with pytest.raises(IndexError):
        expand(parse_suite({"providers": ["echo"]}))[1]
    nothing = expand(parse_suite({"providers": [{"id": "echo", "prompts": []}]}))
    assert list(nothing) == []
    with pytest.raises(IndexError):
        nothing[0]
