"""Inheritance of tests: from the suite's `defaultTest`, and from the settings of a scenario.

Variables, options and metadata are merged key by key, and inner values win; assertions are concatenated,
outer ones first; everything else is taken from the innermost place that defines it.
"""

import bisect
import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import attrs

from trioeval.grading.registry import split_type
from trioeval.sequences import LazySequence
from trioeval.suite.model import Scenario, Suite, Test, TestOptions

T = TypeVar("T")

CONVERSATION = "conversationId"
"""The metadata key that identifies a conversation."""

_MERGED_OPTIONS = {"prefix", "suffix", "overrides"}
_PLAIN_OPTIONS = [
    field.name for field in attrs.fields(TestOptions) if field.name not in _MERGED_OPTIONS
]


def merged(default: Test | None, test: Test) -> Test:
    """Return a test merged with the suite's `default_test`: the test wins, its assertions come last.

    Description and `provider_output` are never inherited. Assertions of its type of task come first.

    Example:
        >>> default = Test(vars={"a": "1"}, threshold=0.5, description="default")
        >>> test = merged(default, Test(vars={"b": "2"}))
        >>> dict(test.vars), test.threshold, test.description
        ({'a': '1', 'b': '2'}, 0.5, None)
    """
    if default is None:
        return _judged_as_its_type(test)
    found = _laid_over(default, test)
    # `disableDefaultAsserts` is read from the test and its scenario, not from the default test itself.
    with_defaults = not test.options.disable_default_asserts
    return _judged_as_its_type(
        attrs.evolve(
            found,
            description=test.description,
            provider_output=test.provider_output,
            assertions=found.assertions if with_defaults else test.assertions,
        )
    )


def _judged_as_its_type(test: Test) -> Test:
    """Return the test with the assertions of its type of task first, except types it uses itself."""
    if test.extra is None:
        return test
    own = {split_type(one.type)[0] for one in test.assertions}
    added = [one for one in test.extra.assertions if one.type not in own]
    return attrs.evolve(test, assertions=(*added, *test.assertions)) if added else test


def scenario_test(
    scenario: Scenario, config: int, test: int, default: Test | None, number: int
) -> Test:
    """Return one test of a scenario in one of its settings, merged with the suite's default test.

    The assertions of the default test are left out: `merged` adds them, as to any test.

    Args:
        scenario: The scenario.
        config: The index of the setting.
        test: The index of the test.
        default: The suite's default test.
        number: The number of settings before this one, over all scenarios; the default conversation id of
            its tests contains it.
    """
    found = _laid_over(scenario.config[config], scenario.tests[test])
    if default is not None:
        found = attrs.evolve(_laid_over(default, found), assertions=found.assertions)
    if found.metadata.get(CONVERSATION) is not None:
        return found
    metadata = {**found.metadata, CONVERSATION: f"__scenario_{number}__"}
    return attrs.evolve(found, metadata=metadata)


def _laid_over(under: Test, over: Test) -> Test:
    return Test(
        description=inner(over.description, under.description),
        vars={**under.vars, **over.vars},
        provider=inner(over.provider, under.provider),
        providers=inner(over.providers, under.providers),
        prompts=inner(over.prompts, under.prompts),
        provider_output=inner(over.provider_output, under.provider_output),
        assertions=(*under.assertions, *over.assertions),
        threshold=inner(over.threshold, under.threshold),
        assert_scoring_function=inner(over.assert_scoring_function, under.assert_scoring_function),
        metadata={**under.metadata, **over.metadata},
        options=_options_over(under.options, over.options),
        fault=over.fault,
        is_data=over.is_data,
        extra=over.extra,
    )


def _options_over(under: TestOptions, over: TestOptions) -> TestOptions:
    if over == under:
        return over
    plain: dict[str, Any] = {
        name: inner(getattr(over, name), getattr(under, name)) for name in _PLAIN_OPTIONS
    }
    return TestOptions(
        **plain,
        prefix=over.prefix or under.prefix,
        suffix=over.suffix or under.suffix,
        overrides={**under.overrides, **over.overrides},
    )


def inner(one: T | None, other: T | None) -> T | None:
    """Return the inner of two values if it is set, otherwise the outer one."""
    return other if one is None else one


@attrs.frozen
class ScenarioTests(LazySequence[Test]):
    """All tests of the scenarios of a suite: scenario by scenario, setting by setting, test by test."""

    suite: Suite
    _ends: tuple[int, ...] = attrs.field(init=False, repr=False)
    """For each scenario, the index after its last test."""
    _settings: tuple[int, ...] = attrs.field(init=False, repr=False)
    """For each scenario, the number of settings before it."""

    @_ends.default
    def _counted(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(len(one.config) * len(one.tests) for one in self._all))

    @_settings.default
    def _numbered(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate((len(one.config) for one in self._all), initial=0))

    @property
    def _all(self) -> Sequence[Scenario]:
        return self.suite.scenarios or ()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def entry(self, index: int) -> Test:
        """Return one test."""
        place, config, test = self.origin(index)
        number = self._settings[place] + config
        return scenario_test(self._all[place], config, test, self.suite.default_test, number)

    def origin(self, index: int) -> tuple[int, int, int]:
        """Return the indices of a test's scenario, setting and test in that."""
        place = bisect.bisect_right(self._ends, index)
        first = self._ends[place - 1] if place else 0
        return place, *divmod(index - first, len(self._all[place].tests))

    def first(self, scenario: int, config: int) -> int:
        """Return the index of the first test of a scenario in one of its settings."""
        begin = self._ends[scenario - 1] if scenario else 0
        return begin + config * len(self._all[scenario].tests)
