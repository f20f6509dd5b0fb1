"""Filters: which tests of a suite are run. Pure; nothing is renumbered, so a row keeps its identity.

The order is metadata, earlier results, pattern, range, first-n, sample: each filter applies to the tests
that the filters before it left. Tests of scenarios are filtered inside their scenario, by earlier results,
pattern, first-n and sample, before they are multiplied by its settings; first-n and a range then count the
tests of the whole suite.
"""

import itertools
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import attrs

from trioeval.errors import GradingError, UsageError
from trioeval.grading.patterns import Pattern, compile_javascript, found_in_time
from trioeval.suite.expand import Expansion, TestRange, all_tests, chosen, combinations
from trioeval.suite.merge import ScenarioTests, merged
from trioeval.suite.model import Suite, Test
from trioeval.text import output_text

# Single rows of a suite as an expansion of their own.


def narrowed(steps: Expansion, selected: Container[tuple[int, int]]) -> Expansion:
    """Return an expansion with only the wanted steps, which keep the ids that they have among all.

    If the outputs of a test are compared with each other, each step brings all steps of its test.

    Args:
        steps: The result of `expand`.
        selected: Pairs of `test_idx` and `prompt_idx`.

    Example:
        >>> from trioeval.suite.expand import expand
        >>> from trioeval import parse_suite
        >>> suite = parse_suite(
        ...     {
        ...         "providers": ["echo"],
        ...         "prompts": ["a", "b"],
        ...         "tests": [{"vars": {"x": ["1", "2"]}}, {"vars": {"x": "3"}}],
        ...     }
        ... )
        >>> few = narrowed(expand(suite), {(1, 0), (2, 1)})
        >>> [(step.index, step.test_idx, step.prompt_idx, step.vars["x"]) for step in few]
        [(0, 1, 0, '2'), (1, 2, 1, '3')]
    """
    stretches: list[TestRange] = []
    index = 0
    for stretch in _rounds(steps):
        shape = stretch.shape
        columns = tuple(one for one in shape.columns if (stretch.first_test_idx, one) in selected)
        if not columns:
            continue
        if shape.compared:
            columns = shape.columns
        # `first_test_idx` of a stretch is that of its first round.
        stretches.append(
            attrs.evolve(
                stretch,
                shape=attrs.evolve(shape, columns=columns),
                first_test_idx=stretch.first_test_idx - shape.round(stretch.first_round),
                first_index=index,
            )
        )
        index += len(columns)
    firsts = tuple(stretch.first_index for stretch in stretches)
    return attrs.evolve(steps, stretches=tuple(stretches), firsts=firsts, size=index)


def _rounds(steps: Expansion) -> Iterator[TestRange]:
    """Yield a stretch for each `test_idx`, with that as its first."""
    ends = (*(stretch.first_index for stretch in steps.stretches), len(steps))[1:]
    # Without any step there is one end more than stretches.
    for stretch, end in zip(steps.stretches, ends, strict=False):
        shape = stretch.shape
        for nth in range((end - stretch.first_index) // shape.steps if shape.columns else 0):
            for round_ in range(shape.repeats * shape.chosen):
                yield attrs.evolve(
                    stretch,
                    first_place=stretch.first_place + nth,
                    first_test_idx=stretch.first_test_idx
                    + nth * shape.rounds
                    + shape.round(round_),
                    first_round=round_,
                )


_RANGE = re.compile(r"([0-9]*):([0-9]*)")


@attrs.frozen
class EarlierRow:
    """A row of an earlier run, reduced to the identity of its test."""

    test_idx: int
    vars: str
    """Canonical JSON of its variables; see `variables_key`."""


@attrs.frozen(kw_only=True)
class Filters:
    """Conditions on tests; a field that is None admits all tests."""

    metadata: tuple[tuple[str, str], ...] = ()
    """Keys with texts that their values must contain; all must match."""
    earlier: frozenset[EarlierRow] | None = None
    """Only tests that had one of these rows."""
    pattern: Pattern | None = None
    """Must match the description, or the name of a case; a test without one does not match."""
    range: slice | None = None
    """Indices from 0."""
    first_n: int | None = None
    sample: int | None = None
    """The size of a random sample; tests keep their order."""
    sample_seed: int | None = None
    """Makes the sample reproducible: that of Python's `Random(seed).sample`. None draws a new one."""


def select_tests(suite: Suite, filters: Filters) -> Container[int] | None:
    """Return the indices of the tests to run, among `all_tests`; None means all.

    Example:
        >>> from trioeval import parse_suite
        >>> suite = parse_suite(
        ...     {
        ...         "providers": ["echo"],
        ...         "tests": [{"description": "a", "vars": {"x": n}} for n in range(5)],
        ...     }
        ... )
        >>> sorted(select_tests(suite, Filters(range=slice(1, None), first_n=2)))
        [1, 2]
    """
    if filters == Filters():
        return None
    chosen_tests = _Selection(suite, filters)
    places = chosen_tests.plain()
    if not suite.scenarios:
        return places if isinstance(places, range) else frozenset(places)
    every: Iterator[int] = itertools.chain(places, chosen_tests.of_scenarios())
    if filters.range is not None:
        every = itertools.islice(every, filters.range.start, filters.range.stop)
    # Of the tests that scenarios multiply to, only those that are run are examined.
    return frozenset(itertools.islice(every, filters.first_n))


@attrs.frozen(eq=False, repr=False)
class _Selection:
    suite: Suite
    filters: Filters
    earlier: frozenset[int] = attrs.field(init=False)
    """Indices of the tests that had one of the earlier rows."""

    @earlier.default
    def _found(self) -> frozenset[int]:
        earlier_filter = self.filters.earlier
        return (
            frozenset()
            if earlier_filter is None
            else frozenset(_places_of(self.suite, earlier_filter))
        )

    def plain(self) -> Sequence[int]:
        tests, filters = self.suite.tests, self.filters
        places: Sequence[int] = range(len(tests))
        if filters.metadata:
            places = [place for place in places if _has(tests[place], filters.metadata)]
        if filters.earlier is not None:
            places = [place for place in places if place in self.earlier]
        if filters.pattern is not None:
            places = [place for place in places if _matches(filters.pattern, tests[place])]
        if filters.range is not None and not self.suite.scenarios:
            places = places[filters.range]
        return self._cut(places)

    def of_scenarios(self) -> Iterator[int]:
        multiplied = ScenarioTests(self.suite)
        offset = len(self.suite.tests)
        for number, scenario in enumerate(self.suite.scenarios or ()):
            allowed = self._of_scenario(scenario.tests)
            for setting in range(len(scenario.config)):
                first = offset + multiplied.first(number, setting)
                yield from (first + test for test in allowed if self._was_earlier(first + test))

    def _of_scenario(self, tests: Sequence[Test]) -> Sequence[int]:
        pattern = self.filters.pattern
        places: Sequence[int] = range(len(tests))
        if pattern is not None:
            places = [place for place in places if _matches(pattern, tests[place])]
        return self._cut(places)

    def _was_earlier(self, place: int) -> bool:
        return self.filters.earlier is None or place in self.earlier

    def _cut(self, places: Sequence[int]) -> Sequence[int]:
        filters = self.filters
        if filters.first_n is not None:
            places = places[: filters.first_n]
        if filters.sample is not None and filters.sample < len(places):
            drawn = Random(filters.sample_seed).sample(range(len(places)), filters.sample)  # noqa: S311 - no secret
            places = [places[one] for one in sorted(drawn)]
        return places


def _has(test: Test, pairs: Iterable[tuple[str, str]]) -> bool:
    return all(_contains(test.metadata.get(key), text) for key, text in pairs)


def _contains(value: Any, text: str) -> bool:
    match value:
        case None:
            return False
        case list():
            return any(_contains(part, text) for part in value)
        case _:
            return text in output_text(value)


def _matches(pattern: Pattern, test: Test) -> bool:
    named = None if test.extra is None else test.extra.name
    return _found_in(pattern, test.description or None, named)


def _places_of(suite: Suite, earlier: frozenset[EarlierRow]) -> Iterator[int]:
    """Yield the tests that had one of the wanted rows.

    A row belongs to a test with the same variables; if several tests have them, to the one with its number.
    If none of these has that number, because the suite was changed since, it may belong to any of them:
    better one test too many than one that failed and is left out.
    """
    exact: set[EarlierRow] = set()
    same: list[tuple[int, EarlierRow]] = []
    known = {row.vars for row in earlier}
    for place, row in _rows_of(suite):
        if row.vars in known:
            same.append((place, row))
            exact |= {row} & earlier
    inexact = {row.vars for row in earlier - exact}
    yield from (place for place, row in same if row in exact or row.vars in inexact)


def _rows_of(suite: Suite) -> Iterator[tuple[int, EarlierRow]]:
    default = suite.default_test
    test_idx = 0
    for place, test in enumerate(all_tests(suite)):
        whole = merged(default, test)
        alternatives = 1 if whole.options.disable_var_expansion else combinations(whole.vars)
        repeats = whole.options.repeat or suite.evaluate_options.repeat
        for _ in range(repeats):
            for combination in range(alternatives):
                yield place, EarlierRow(test_idx, variables_key(chosen(whole, combination)))
                test_idx += 1


def variables_key(variables: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal variables; variables that only a run adds are ignored.

    Example:
        >>> variables_key({"b": 1.0, "a": "x", "_conversation": []})
        '{"a": "x", "b": 1}'
    """
    own = {name: value for name, value in variables.items() if not name.startswith("_")}
    return json.dumps(_plain(own), sort_keys=True, default=str)


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(part) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def read_range(text: str, name: str) -> slice:
    """Parse `a:b`: indices from a up to, but without, b.

    Raises:
        UsageError: It is not valid; the message contains the name of the flag or key.

    Example:
        >>> read_range("10:", "--filter-range")
        slice(10, None, None)
    """
    found = _RANGE.fullmatch(text.strip())
    begin, end = (int(part) if part else None for part in found.groups()) if found else (None, None)
    if begin is None and end is None:
        msg = f"{name} must be a:b, a: or :b in whole numbers from 0, got {text!r}"
        raise UsageError(msg)
    if begin is not None and end is not None and begin > end:
        msg = f"{name} begins after its end, got {text!r}"
        raise UsageError(msg)
    return slice(begin, end)


def read_pattern(text: str, name: str) -> Pattern:
    """Compile a regular expression with the rules of JavaScript.

    Raises:
        UsageError: It is not valid.
    """
    try:
        return compile_javascript(text)
    except ValueError as error:
        raise UsageError(f"{name} {text!r} is not a valid regular expression: {error}") from None


def read_pair(text: str, name: str) -> tuple[str, str]:
    """Parse `key=value`.

    Raises:
        UsageError: It has no key.

    Example:
        >>> read_pair("a=b=c", "--var")
        ('a', 'b=c')
    """
    key, separator, value = text.partition("=")
    if not key or not separator:
        msg = f"{name} must be key=value, got {text!r}"
        raise UsageError(msg)
    return key, value


def earlier_rows(
    rows: Iterable[Mapping[str, Any]], *, failures: bool, errors: bool
) -> frozenset[EarlierRow]:
    """Return the rows of a result file that did not pass.

    Args:
        rows: Rows in the format of result files.
        failures: Include rows that failed.
        errors: Include rows without a verdict.
    """
    included = {1: failures, 2: errors}
    return frozenset(
        EarlierRow(row["testIdx"], variables_key(row["testCase"].get("vars") or row["vars"]))
        for row in rows
        if not row["success"] and included.get(row["failureReason"], errors)
    )


def keep_providers(suite: Suite, pattern: Pattern) -> Suite:
    """Return the suite with only the providers whose label or id matches the pattern."""
    return attrs.evolve(
        suite,
        providers=tuple(
            entry for entry in suite.providers if _found_in(pattern, entry.label, entry.shown_id)
        ),
    )


def keep_prompts(suite: Suite, pattern: Pattern) -> Suite:
    """Return the suite with only the prompts whose label or id matches the pattern."""
    return attrs.evolve(
        suite,
        prompts=tuple(
            prompt for prompt in suite.prompts if _found_in(pattern, prompt.label, prompt.given_id)
        ),
    )


def _found_in(pattern: Pattern, *names: str | None) -> bool:
    try:
        return any(name is not None and found_in_time(pattern, name) for name in names)
    except GradingError as error:
        raise UsageError(str(error)) from None
