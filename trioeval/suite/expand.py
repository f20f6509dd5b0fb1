"""From a suite to its steps: pure, lazy, and always in the same order.

    for test:  for repeat:  for combination of list variables:  for provider:  for prompt of it

Nothing is made until it is looked at: a step is computed from its index, by a binary search over the
tests and division within one of them, so a million tests cost a million tests and not a step more.
"""

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import attrs

from trioeval.suite.models import Prompt, ProviderEntry, Suite, Test


@attrs.frozen
class Column:
    """One provider with one prompt."""

    prompt_idx: int
    """Its number, over providers in order and over each provider's prompts in order."""
    provider_index: int
    """The place of its provider in the suite."""
    prompt: Prompt


@attrs.frozen
class Step:
    """One row to be: a test, with its variables chosen, for one column."""

    index: int
    test_idx: int
    """Counts tests, repeats and combinations; with `prompt_idx` it names the row for ever."""
    prompt_idx: int
    repeat_index: int
    column: Column
    test: Test
    """Merged with the suite's `default_test`."""
    vars: Mapping[str, Any]


@attrs.frozen
class Expansion(Sequence[Step]):
    """All steps of a suite; see `expand`."""

    columns: tuple[Column, ...]
    _suite: Suite
    _tests: tuple[Test, ...]
    _starts: Sequence[int]
    """The `test_idx` at which each test begins, and behind the last test their number."""

    def __len__(self) -> int:
        return self._starts[-1] * len(self.columns)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        test_idx, prompt_idx = divmod(index, len(self.columns))
        place = bisect.bisect_right(self._starts, test_idx) - 1
        test = merged(self._suite.default_test, self._tests[place])
        repeat, combination = divmod(test_idx - self._starts[place], combinations(test))
        return Step(
            index,
            test_idx,
            prompt_idx,
            repeat,
            self.columns[prompt_idx],
            test,
            chosen(test.vars, combination),
        )

    @property
    def serial_indices(self) -> Sequence[int]:
        """The steps whose test says `runSerially`, ascending."""
        default = self._suite.default_test
        width = len(self.columns)
        return [
            index
            for place, test in enumerate(self._tests)
            if test.options.run_serially or (default and default.options.run_serially)
            for index in range(self._starts[place] * width, self._starts[place + 1] * width)
        ]


def expand(suite: Suite) -> Expansion:
    """All steps of a suite, in the order of their results.

    Example:
        >>> from trioeval.suite.structure import parse_suite
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["a", "b"], "tests": [
        ...     {"vars": {"x": ["1", "2"]}}, {"vars": {"x": "3"}}]})
        >>> [(step.test_idx, step.prompt_idx, step.vars["x"]) for step in expand(suite)]
        [(0, 0, '1'), (0, 1, '1'), (1, 0, '2'), (1, 1, '2'), (2, 0, '3'), (2, 1, '3')]
    """
    tests = suite.tests
    repeat, default = suite.evaluate_options.repeat, suite.default_test
    sizes = (
        ((both := merged(default, test)).options.repeat or repeat) * combinations(both)
        for test in tests
    )
    return Expansion(
        tuple(_columns(suite)), suite, tests, tuple(itertools.accumulate(sizes, initial=0))
    )


def merged(default: Test | None, test: Test) -> Test:
    """A test with what the suite's `default_test` adds: the test wins, its assertions come last."""
    if default is None:
        return test
    return Test(
        description=test.description if test.description is not None else default.description,
        vars={**default.vars, **test.vars},
        assertions=(*default.assertions, *test.assertions),
        threshold=test.threshold if test.threshold is not None else default.threshold,
        metadata={**default.metadata, **test.metadata},
        options=attrs.evolve(
            test.options,
            run_serially=test.options.run_serially or default.options.run_serially,
            repeat=test.options.repeat or default.options.repeat,
        ),
    )


def combinations(test: Test) -> int:
    """How many sets of variables a test stands for: lists of texts are alternatives."""
    return math.prod(len(value) for value in test.vars.values() if _alternatives(value))


def chosen(variables: Mapping[str, Any], combination: int) -> Mapping[str, Any]:
    """The variables of one combination; those of later keys vary fastest."""
    found = dict(variables)
    for name in reversed(variables):
        value = variables[name]
        if _alternatives(value):
            combination, place = divmod(combination, len(value))
            found[name] = value[place]
    return found


def _alternatives(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _columns(suite: Suite) -> Iterator[Column]:
    numbers = itertools.count()
    for provider_index, entry in enumerate(suite.providers):
        for prompt in suite.prompts:
            if uses(entry, prompt):
                yield Column(next(numbers), provider_index, prompt)


def uses(entry: ProviderEntry, prompt: Prompt) -> bool:
    """Whether a provider gets a prompt: by its label or id, a prefix with `*`, or a group `ref:`."""
    if entry.prompts is None:
        return True
    return any(
        name == reference
        or (reference.endswith("*") and name.startswith(reference[:-1]))
        or name.startswith(f"{reference}:")
        for reference in entry.prompts
        for name in (prompt.label, prompt.id)
    )
