"""From a suite to its steps: pure, lazy, and always in the same order.

    for test:  for repeat:  for combination of list variables:  for provider:  for prompt of it

Nothing is made until it is looked at: a step is computed from its index, by a binary search over the
tests and division within one of them, so a million tests cost a million tests and not a step more.
"""

import bisect
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import attrs

from trioeval.errors import PlanError
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
        """The steps whose test says `runSerially`, ascending. No indices are stored for a whole stretch."""
        width = len(self.columns)
        default = self._suite.default_test
        stretches = [
            range(self._starts[place] * width, self._starts[place + 1] * width)
            for place, test in enumerate(self._tests)
            if _runs_serially(default, test)
        ]
        if stretches and all(
            one.stop == other.start for one, other in itertools.pairwise(stretches)
        ):
            return range(stretches[0].start, stretches[-1].stop)
        return tuple(itertools.chain.from_iterable(stretches))


def expand(suite: Suite) -> Expansion:
    """All steps of a suite, in the order of their results.

    Raises:
        PlanError: They are more than can be counted.

    Example:
        >>> from trioeval.suite import parse_suite
        >>> suite = parse_suite(
        ...     {
        ...         "providers": ["echo"],
        ...         "prompts": ["a", "b"],
        ...         "tests": [{"vars": {"x": ["1", "2"]}}, {"vars": {"x": "3"}}],
        ...     }
        ... )
        >>> [(step.test_idx, step.prompt_idx, step.vars["x"]) for step in expand(suite)]
        [(0, 0, '1'), (0, 1, '1'), (1, 0, '2'), (1, 1, '2'), (2, 0, '3'), (2, 1, '3')]
    """
    columns = tuple(_columns(suite))
    sizes = (_size(suite, merged(suite.default_test, test)) for test in suite.tests)
    starts = tuple(itertools.accumulate(sizes, initial=0))
    if starts[-1] * len(columns) > sys.maxsize:
        msg = f"the suite stands for {starts[-1] * len(columns)} rows, more than can be counted"
        raise PlanError(msg)
    return Expansion(columns, suite, suite.tests, starts)


def _size(suite: Suite, test: Test) -> int:
    return (test.options.repeat or suite.evaluate_options.repeat) * combinations(test)


def _runs_serially(default: Test | None, test: Test) -> bool:
    if test.options.run_serially is not None:
        return test.options.run_serially
    return default is not None and default.options.run_serially is True


def merged(default: Test | None, test: Test) -> Test:
    """A test with what the suite's `default_test` adds: the test wins, its assertions come last."""
    if default is None:
        return test
    options = test.options
    return Test(
        description=test.description,
        vars={**default.vars, **test.vars},
        assertions=(*default.assertions, *test.assertions),
        threshold=test.threshold if test.threshold is not None else default.threshold,
        metadata={**default.metadata, **test.metadata},
        options=attrs.evolve(
            options,
            run_serially=_runs_serially(default, test),
            repeat=options.repeat or default.options.repeat,
        ),
    )


def combinations(test: Test) -> int:
    """How many sets of variables a test stands for: lists of texts are alternatives."""
    return math.prod(len(value) for value in test.vars.values() if _alternatives(value))


def chosen(variables: Mapping[str, Any], combination: int) -> Mapping[str, Any]:
    """The variables of one combination; those of later keys vary fastest."""
    found = dict(variables)
    for name in reversed(list(variables)):
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
    """Whether a provider gets a prompt: one of its references names the prompt's label or id."""
    if entry.prompts is None:
        return True
    names = [name for name in (prompt.label, prompt.given_id, prompt.id) if name is not None]
    return any(refers_to(reference, name) for reference in entry.prompts for name in names)


def refers_to(reference: str, name: str) -> bool:
    """Whether a reference means a name: the same, a beginning followed by `*`, or a group before `:`.

    Example:
        >>> (
        ...     refers_to("short*", "short and sweet"),
        ...     refers_to("short", "short:b"),
        ...     refers_to("b", "ab"),
        ... )
        (True, True, False)
    """
    if reference == name or name.startswith(f"{reference}:"):
        return True
    return reference.endswith("*") and name.startswith(reference[:-1])
