"""Expansion equals nested loops in the order of the specification."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.grading import COMPARISONS, Assertion
from trioeval.suite.expand import Expansion, all_tests, expand
from trioeval.suite.filters import narrowed
from trioeval.suite.model import (
    EvaluateOptions,
    Prompt,
    ProviderEntry,
    Scenario,
    Suite,
    Test,
    TestOptions,
)
from trioeval.suite.tests import Joined, SparseTests

pytestmark = pytest.mark.slow

Wanted = tuple[int, int, int, int, int, dict[str, Any]]
"""test_idx, prompt_idx, repeat_index, the column's provider, the called provider, and the variables."""

VALUES: st.SearchStrategy[Any] = (
    st.sampled_from(["a", 1, None, [], {"k": ["v"]}])
    | st.lists(st.sampled_from("abc"), max_size=3)
    | st.sampled_from([[1, "a"], ["a", 1], [["a"], "b"]])
)
REFERENCES = st.lists(st.sampled_from(["a", "b", "g", "g:*", "id of b", "z", "*"])).map(tuple)
FLAGS = st.none() | st.booleans()
OPTIONS = st.builds(
    TestOptions,
    run_serially=FLAGS,
    repeat=st.none() | st.integers(1, 3),
    disable_var_expansion=FLAGS,
    disable_default_asserts=FLAGS,
)
ASSERTIONS = st.sampled_from([(), (Assertion(type="max-score"),), (Assertion(type="contains"),)])
OWN = [ProviderEntry(id="echo", label="own"), ProviderEntry(id="echo", config={"k": [1]})]
TESTS = st.builds(
    Test,
    vars=st.dictionaries(st.sampled_from(["x", "y", "2", "10"]), VALUES, max_size=3),
    options=OPTIONS,
    providers=st.none() | REFERENCES,
    prompts=st.none() | REFERENCES,
    provider=st.none() | st.sampled_from(OWN),
    assertions=ASSERTIONS,
)
SCENARIOS = st.builds(
    Scenario,
    config=st.lists(TESTS, max_size=2).map(tuple),
    tests=st.lists(TESTS, max_size=2).map(tuple),
)
PROMPTS = [
    Prompt(raw=label, label=label, id=f"id of {label}") for label in ("a", "b", "g:1", "g:2")
]
PROVIDERS = st.builds(
    ProviderEntry,
    id=st.just("echo"),
    label=st.none() | st.sampled_from(["a", "g:1"]),
    prompts=st.none() | REFERENCES,
)


@attrs.frozen
class Lines(Sequence[Test]):
    """Tests of which some are known to be plain, as those of a large file are."""

    tests: tuple[Test, ...]
    file: Path = Path("tests.jsonl")
    irregular: tuple[int, ...] = attrs.field(init=False)

    @irregular.default
    def _found(self) -> tuple[int, ...]:
        return tuple(place for place, test in enumerate(self.tests) if not is_plain(test))

    def __len__(self) -> int:
        return len(self.tests)

    @overload
    def __getitem__(self, index: int) -> Test: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Test]: ...
    def __getitem__(self, index: int | slice) -> Test | Sequence[Test]:
        return self.tests[index]


def is_plain(test: Test) -> bool:
    """Return whether only the variables of a test are set, and none of them is a list."""
    bare = attrs.evolve(test, vars={})
    return bare == Test() and not any(isinstance(value, list) for value in test.vars.values())


PLAIN = st.builds(Test, vars=st.dictionaries(st.sampled_from("xy"), st.sampled_from(["a", 1])))
SOURCES: st.SearchStrategy[Sequence[Test]] = st.lists(TESTS, max_size=3).map(tuple) | st.lists(
    TESTS | PLAIN, max_size=5
).map(lambda tests: Lines(tuple(tests)))
SUITES = st.builds(
    Suite,
    providers=st.lists(PROVIDERS, max_size=3).map(tuple),
    prompts=st.lists(st.sampled_from(PROMPTS), max_size=3).map(tuple),
    tests=SOURCES | st.lists(SOURCES, max_size=3).map(lambda parts: Joined.of(*parts)),
    scenarios=st.none() | st.lists(SCENARIOS, max_size=2).map(tuple),
    default_test=st.none() | TESTS,
    evaluate_options=st.builds(EvaluateOptions, repeat=st.integers(1, 2)),
)


def means(reference: str, *names: str | None) -> bool:
    known = [name for name in names if name is not None]
    if reference.endswith("*") and any(name.startswith(reference[:-1]) for name in known):
        return True
    return reference in known or any(name.startswith(reference + ":") for name in known)


def allows(references: Sequence[str] | None, *names: str | None) -> bool:
    return references is None or any(means(reference, *names) for reference in references)


def first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def layers(suite: Suite) -> Iterator[list[Test]]:
    """Yield the tests that each test is merged from, outermost first: every test, then every scenario's."""
    outer = [suite.default_test or Test()]
    yield from ([*outer, test] for test in suite.tests)
    for scenario in suite.scenarios or ():
        for setting in scenario.config:
            yield from ([*outer, setting, test] for test in scenario.tests)


def by_nested_loops(
    suite: Suite, selected: set[int] | None, first_n: int | None = None
) -> Iterator[Wanted]:
    test_idx = itertools.count()
    counted: set[tuple[int, int]] = set()
    columns = [
        (provider, prompt)
        for provider in range(len(suite.providers))
        for prompt in suite.prompts
        if allows(suite.providers[provider].prompts, prompt.label, prompt.id)
    ]
    own: list[ProviderEntry] = []
    for place, layer in enumerate(layers(suite)):
        inside_out = layer[::-1]
        variables = {name: value for test in layer for name, value in test.vars.items()}
        names = sorted(variables, key=lambda name: int(name) if name.isdecimal() else 99)
        whole = first(*(test.options.disable_var_expansion for test in inside_out))
        choices = [
            value if isinstance(value, list) and value and isinstance(value[0], str) else [value]
            for value in (variables[name] for name in names)
        ]
        if whole:
            choices = [[variables[name]] for name in names]
        provider = first(*(test.provider for test in inside_out))
        if provider is not None and provider not in own:
            own.append(provider)
        repeats = first(
            *(test.options.repeat for test in inside_out), suite.evaluate_options.repeat
        )
        for repeat in range(repeats):
            for nth, choice in enumerate(itertools.product(*choices)):
                number = next(test_idx)
                asked_at_all = [
                    prompt_idx
                    for prompt_idx, (column, prompt) in enumerate(columns)
                    if is_asked(suite, inside_out, column, prompt)
                    and (selected is None or place in selected)
                ]
                if asked_at_all and first_n is not None and (place, nth) not in counted:
                    if repeat or len(counted) == first_n:
                        continue
                    counted.add((place, nth))
                for prompt_idx, (column, _) in enumerate(columns):
                    if prompt_idx in asked_at_all:
                        called = (
                            column
                            if provider is None
                            else len(suite.providers) + own.index(provider)
                        )
                        chosen = dict(zip(names, choice, strict=True))
                        yield number, prompt_idx, repeat, column, called, chosen


def is_asked(suite: Suite, inside_out: Sequence[Test], column: int, prompt: Prompt) -> bool:
    entry = suite.providers[column]
    return allows(
        first(*(test.providers for test in inside_out)), entry.label, entry.id
    ) and allows(first(*(test.prompts for test in inside_out)), prompt.label, prompt.id)


def found(steps: Sequence[Any]) -> list[Wanted]:
    return [
        (
            step.test_idx,
            step.prompt_idx,
            step.repeat_index,
            step.column.provider_index,
            step.provider_index,
            dict(step.vars),
        )
        for step in steps
    ]


@given(SUITES, st.none() | st.sets(st.integers(0, 8)), st.none() | st.integers(1, 9))
def test_steps_are_those_of_the_nested_loops(
    suite: Suite, selected: set[int] | None, first_n: int | None
) -> None:
    """Every index gives the step of the nested loops, in any order; unselected steps leave holes."""
    steps = expand(suite, selected, first_n=first_n)
    wanted = list(by_nested_loops(suite, selected, first_n))
    assert len(steps) == len(wanted)
    assert found(steps) == wanted
    assert found(steps[::-1]) == wanted[::-1]
    assert [steps[place - len(steps)].index for place in range(len(steps))] == [*range(len(steps))]
    called = {one[4] for one in wanted}
    assert called <= set(steps.used_providers) <= set(range(len(steps.providers)))


@given(SUITES, st.none() | st.sets(st.integers(0, 8)))
def test_serial_indices_are_the_steps_with_the_option(
    suite: Suite, selected: set[int] | None
) -> None:
    """Serial indices are ascending and follow the merged options."""
    steps = expand(suite, selected)
    serial = [step.index for step in steps if step.test.options.run_serially]
    assert list(steps.serial_indices) == serial


@given(SUITES, st.sets(st.integers(0, 8)))
def test_filters_never_renumber(suite: Suite, selected: set[int]) -> None:
    """A filtered row has the same index and content as without the filter."""

    def rows(steps: Expansion) -> list[tuple[Any, ...]]:
        return [(step.test_idx, step.prompt_idx, step.test, dict(step.vars)) for step in steps]

    everything = rows(expand(suite))
    assert all(row in everything for row in rows(expand(suite, selected)))
    assert rows(expand(suite, range(len(all_tests(suite))))) == everything


def test_the_fake_sequence_is_not_read_as_a_whole() -> None:
    """Otherwise the properties above would not cover files that are read in parts."""
    lines = Lines((Test(vars={"x": "a"}), Test(threshold=1)))
    assert isinstance(lines, SparseTests)
    assert list(lines.irregular) == [1]


@given(SUITES)
def test_spans_mark_groups_and_those_that_are_compared(suite: Suite) -> None:
    """A group is all steps of one `test_idx`; they are compared if one of their assertions compares."""
    steps = expand(suite)
    found = [
        (start, span.width, span.compared)
        for span in steps.spans
        for start in range(span.start, span.stop, span.width)
    ]
    groups = [list(group) for _, group in itertools.groupby(steps, lambda step: step.test_idx)]
    assert found == [
        (
            group[0].index,
            len(group),
            any(assertion.type in COMPARISONS for assertion in group[0].test.assertions),
        )
        for group in groups
    ]


@given(SUITES, st.sets(st.tuples(st.integers(0, 12), st.integers(0, 8))))
@settings(max_examples=settings().max_examples // 2)
def test_single_rows_equal_those_of_the_whole_suite(
    suite: Suite, wanted: set[tuple[int, int]]
) -> None:
    """A selection of rows adds exactly those that they are compared with."""
    steps = expand(suite)
    compared = {
        steps[index].test_idx
        for span in steps.spans
        if span.compared
        for index in range(span.start, span.stop)
        if (steps[index].test_idx, steps[index].prompt_idx) in wanted
    }
    kept = [
        step
        for step in steps
        if (step.test_idx, step.prompt_idx) in wanted or step.test_idx in compared
    ]
    few = narrowed(steps, wanted)
    assert list(few) == [attrs.evolve(step, index=place) for place, step in enumerate(kept)]
    groups = [list(group) for _, group in itertools.groupby(few, lambda step: step.test_idx)]
    assert [(span.start, span.width) for span in few.spans] == [
        (group[0].index, len(group)) for group in groups
    ]
