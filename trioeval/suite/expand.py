"""Expansion of a suite to its steps: pure, lazy, and always in the same order.

    for test:  for repeat:  for combination of list variables:  for provider:  for prompt of it

Steps are created when they are accessed. Consecutive tests of the same shape, which is their number of steps
and the columns of these, form a stretch; a step is computed from its index by a binary search over the
stretches and a division within one. A million equal tests are one stretch, and a file that contains them need
not be read to know the positions of its steps.

Tests that exclude columns leave holes: the other steps keep their numbers, so that a row keeps its identity
whatever the filters of a run.
"""

import bisect
import itertools
import math
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import attrs

from trioeval.errors import PlanError
from trioeval.grading import COMPARISONS
from trioeval.sequences import LazySequence
from trioeval.suite.grader_entries import grader_for
from trioeval.suite.merge import ScenarioTests, inner, merged, scenario_test
from trioeval.suite.model import MOST_ROWS, Prompt, ProviderEntry, Scenario, Suite, Test
from trioeval.suite.tests import Joined, SparseTests, checked_places

# Columns: the prompts of each provider, and the matching of references.


@attrs.frozen
class Column:
    """One provider with one prompt."""

    prompt_idx: int
    """Its number, over providers in order and over each provider's prompts in order."""
    provider_index: int
    """The index of its provider in the suite."""
    prompt: Prompt


def columns_of(suite: Suite) -> Iterator[Column]:
    """Yield all columns of a suite, in order."""
    numbers = itertools.count()
    for provider_index, entry in enumerate(suite.providers):
        for prompt in suite.prompts:
            if entry.prompts is None or means_prompt(entry.prompts, prompt):
                yield Column(next(numbers), provider_index, prompt)


def means_prompt(references: Iterable[str], prompt: Prompt) -> bool:
    """Return whether one of the references names the prompt's label or id."""
    names = [name for name in (prompt.label, prompt.given_id, prompt.id) if name is not None]
    return any(refers_to(reference, name) for reference in references for name in names)


def means_provider(references: Iterable[str], entry: ProviderEntry) -> bool:
    """Return whether one of the references names the provider's label or id."""
    names = [name for name in (entry.label, entry.shown_id) if name is not None]
    return any(refers_to(reference, name) for reference in references for name in names)


def refers_to(reference: str, name: str) -> bool:
    """Return whether a reference matches a name: equal, a prefix followed by `*`, or a group before `:`.

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


@attrs.frozen
class CalledUser:
    """The provider that plays the simulated user of a test."""

    place: int
    """Its index in `Expansion.providers`."""
    entry: ProviderEntry


_LOOKED_AT = 2_000_000  # tests of a scenario that are examined if its settings differ


@attrs.define  # not frozen: every row has one
class Step:
    """A future row: a test, with its variables chosen, for one column."""

    index: int
    """Its index among the steps of the run, without holes."""
    test_idx: int
    """Counts tests, repeats and combinations; with `prompt_idx` it identifies the row permanently."""
    prompt_idx: int
    repeat_index: int
    column: Column
    test: Test
    """Merged with the suite's `default_test`."""
    vars: Mapping[str, Any]
    provider_index: int
    """The index in `Expansion.providers` of the provider called: the column's, or the test's own."""
    user: CalledUser | None = None
    """The provider that plays the simulated user, who talks to the column's provider; None without one."""

    @property
    def template(self) -> str:
        """The prompt with the test's prefix and suffix, not rendered yet."""
        options = self.test.options
        return f"{options.prefix or ''}{self.column.prompt.raw}{options.suffix or ''}"


@attrs.frozen
class Shape:
    """The properties of a test that determine the positions of its steps."""

    repeats: int
    combinations: int
    """The number of sets of variables."""
    chosen: int
    """The number of them that are run, from the first."""
    columns: tuple[int, ...]
    """Numbers of its columns."""
    provider_index: int | None
    """The index of its own provider."""
    serial: bool
    compared: bool
    """True if the outputs of each `test_idx` are compared with each other."""
    user: CalledUser | None = None
    """The provider that plays the simulated user."""
    rounds: int = attrs.field(init=False)
    """The number of values of `test_idx` of one test."""
    steps: int = attrs.field(init=False)
    """The number of steps of one test."""

    @rounds.default
    def _count_rounds(self) -> int:
        return self.repeats * self.combinations

    @steps.default
    def _count_steps(self) -> int:
        return self.repeats * self.chosen * len(self.columns)

    def round(self, number: int) -> int:
        """Return the offset in `test_idx` of a round, from its number among those that are run."""
        if self.chosen == self.combinations:
            return number
        repeat, combination = divmod(number, self.chosen)
        return repeat * self.combinations + combination


@attrs.frozen
class TestRange:
    """Consecutive tests of one shape."""

    shape: Shape
    first_place: int
    first_test_idx: int
    first_index: int
    first_round: int = 0
    """Not 0 only for a single round of one test, see `narrowed`."""


@attrs.frozen
class StepSpan:
    """Consecutive steps in groups of equal size: the steps of one `test_idx` each."""

    start: int
    """The index of the first step."""
    stop: int
    """The index after the last step."""
    width: int
    """The number of steps of one group, ≥ 1."""
    compared: bool
    """True if the outputs of a group are compared with each other."""
    places: range = range(0)
    """The indices of its tests in `Expansion.tests`."""


@attrs.frozen
class Expansion(LazySequence[Step]):
    """All steps of a suite; see `expand`."""

    suite: Suite
    columns: tuple[Column, ...]
    providers: tuple[ProviderEntry, ...]
    """Those of the suite, then those that single tests define."""
    tests: Sequence[Test]
    """The tests of the suite, then those of scenarios, not merged with the default test."""
    stretches: tuple[TestRange, ...]
    _firsts: tuple[int, ...]
    """`first_index` of each stretch."""
    _size: int

    def __len__(self) -> int:
        return self._size

    def of_suite(self, suite: Suite) -> "Expansion":
        """Return the same steps of a suite that differs only in texts of its providers."""
        providers = (*suite.providers, *self.providers[len(suite.providers) :])
        return self if suite is self.suite else attrs.evolve(self, suite=suite, providers=providers)

    def entry(self, index: int) -> Step:
        """Return one step."""
        stretch = self.stretches[bisect.bisect_right(self._firsts, index) - 1]
        shape = stretch.shape
        nth, within = divmod(index - stretch.first_index, shape.steps)
        round_, place = divmod(within, len(shape.columns))
        round_ = shape.round(round_ + stretch.first_round)
        repeat, combination = divmod(round_, shape.combinations)
        test = merged(self.suite.default_test, self.tests[stretch.first_place + nth])
        column = self.columns[shape.columns[place]]
        own = shape.provider_index
        return Step(
            index,
            stretch.first_test_idx + nth * shape.rounds + round_,
            column.prompt_idx,
            repeat,
            column,
            test,
            chosen(test, combination),
            column.provider_index if own is None else own,
            shape.user,
        )

    @property
    def serial_indices(self) -> Sequence[int]:
        """The steps whose test sets `runSerially`, ascending. No indices are stored for a whole stretch."""
        ends = (*self._firsts, self._size)[1:]
        serial = [
            range(stretch.first_index, end)
            # Without any step there is one end more than stretches.
            for stretch, end in zip(self.stretches, ends, strict=False)
            if stretch.shape.serial and stretch.first_index < end
        ]
        if serial and all(one.stop == other.start for one, other in itertools.pairwise(serial)):
            return range(serial[0].start, serial[-1].stop)
        return tuple(itertools.chain.from_iterable(serial))

    @property
    def spans(self) -> Iterator[StepSpan]:
        """All steps, ascending, in spans of equal properties."""
        ends = (*self._firsts, self._size)[1:]
        for stretch, end in zip(self.stretches, ends, strict=False):
            shape = stretch.shape
            if stretch.first_index < end:
                count = max(1, (end - stretch.first_index) // shape.steps)
                places = range(stretch.first_place, stretch.first_place + count)
                width = len(shape.columns)
                yield StepSpan(stretch.first_index, end, width, shape.compared, places)

    @property
    def checked_tests(self) -> Iterator[int]:
        """The indices of the tests that are checked before a run: all but plain lines of large files.

        If scenarios multiply to very many tests, only those of them that are run.
        """
        few = len(self.tests) <= MOST_ROWS or not self.suite.scenarios
        yield from checked_places(self.tests if few else self.suite.tests)
        if few:
            return
        for span in self.spans:
            yield from (place for place in span.places if place >= len(self.suite.tests))

    def path_of(self, place: int, below: str = "") -> str:
        """Return the path of a test, or of a part of it; tests of scenarios share one path."""
        return f"$.tests[{place}]{below}" if place < len(self.suite.tests) else "$.scenarios"

    @property
    def used_providers(self) -> tuple[int, ...]:
        """The indices in `providers` of those that some step calls, ascending."""
        return tuple(
            sorted(
                {
                    self.columns[number].provider_index
                    if stretch.shape.provider_index is None
                    else stretch.shape.provider_index
                    for stretch in self.stretches
                    for number in stretch.shape.columns
                }
            )
        )


def expand(
    suite: Suite, selected: Container[int] | None = None, *, first_n: int | None = None
) -> Expansion:
    """Return all steps of a suite, in the order of their results.

    Args:
        suite: The suite.
        selected: Indices of the tests to run, among `all_tests`; None runs all.
        first_n: How many of these tests to run, from the first; each set of variables counts as one test.
            None runs all.

    Raises:
        PlanError: The number of steps exceeds the largest index.

    Example:
        >>> from trioeval import parse_suite
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
    tests = all_tests(suite)
    columns = tuple(columns_of(suite))
    shapes = _Shapes(suite, columns)
    stretches: list[TestRange] = []
    place = test_idx = index = 0
    found = _selected(shapes.walk(tests), selected)
    for count, shape in found if first_n is None else _first(found, first_n):
        if not stretches or stretches[-1].shape != shape:
            stretches.append(TestRange(shape, place, test_idx, index))
        place += count
        test_idx += count * shape.rounds
        index += count * shape.steps
    if index > sys.maxsize:
        msg = f"the suite expands to {index} rows, more than can be counted"
        raise PlanError(msg)
    return Expansion(
        suite,
        columns,
        shapes.providers,
        tests,
        tuple(stretches),
        tuple(stretch.first_index for stretch in stretches),
        index,
    )


def all_tests(suite: Suite) -> Sequence[Test]:
    """Return the tests of a suite and then those of its scenarios, not merged with the default test."""
    return suite.tests if not suite.scenarios else Joined.of(suite.tests, ScenarioTests(suite))


@attrs.define(eq=False, repr=False)
class _Shapes:
    """Computes the shapes of tests and collects the providers that tests define."""

    _suite: Suite
    _columns: tuple[Column, ...]
    _own: dict[str, int] = attrs.field(init=False, factory=dict)
    """Indices of the providers that tests define, by their contents."""
    _providers: list[ProviderEntry] = attrs.field(init=False)
    _every: tuple[int, ...] = attrs.field(init=False)
    _default: Test = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._default = self._suite.default_test or Test()
        self._providers = list(self._suite.providers)
        self._every = tuple(range(len(self._columns)))

    @property
    def providers(self) -> tuple[ProviderEntry, ...]:
        return tuple(self._providers)

    @property
    def _default_expands(self) -> bool:
        """True if the default test has list variables, so that every test must be examined."""
        return combinations(self._default.vars) != 1

    def walk(self, tests: Sequence[Test]) -> Iterator[tuple[int, Shape]]:
        """Yield counts of consecutive tests with their shape; equal shapes may come in several parts."""
        if isinstance(tests, Joined):
            for part in tests.parts:
                yield from self.walk(part)
        elif isinstance(tests, ScenarioTests):
            for scenario in self._suite.scenarios or ():
                yield from self._walk_scenario(scenario)
        elif isinstance(tests, SparseTests) and not self._default_expands:
            behind = 0
            for place in tests.irregular:
                if place > behind:
                    yield place - behind, self._shape(Test())
                yield 1, self._shape(tests[place])
                behind = place + 1
            if len(tests) > behind:
                yield len(tests) - behind, self._shape(Test())
        else:
            for test in tests:
                yield 1, self._shape(test)

    def _walk_scenario(self, scenario: Scenario) -> Iterator[tuple[int, Shape]]:
        """Yield counts and shapes for all settings of a scenario; equal settings are examined once."""
        known: dict[str, list[tuple[int, Shape]]] = {}
        default = self._suite.default_test
        named = {*(() if default is None else default.vars)}
        named.update(name for test in scenario.tests for name in test.vars)
        every = range(len(scenario.tests))
        for place, setting in enumerate(scenario.config):
            alike = repr(_bare(setting, named))
            if alike not in known:
                if len(known) * len(every) > _LOOKED_AT:
                    msg = f"a scenario has more than {len(known)} different settings, too many to count"
                    raise PlanError(msg)
                several = (
                    self._shape(scenario_test(scenario, place, one, default, 0)) for one in every
                )
                known[alike] = [
                    (sum(1 for _ in same), one) for one, same in itertools.groupby(several)
                ]
            yield from known[alike]

    def _shape(self, test: Test) -> Shape:
        default = self._default
        options, inherited = test.options, default.options
        whole = inner(options.disable_var_expansion, inherited.disable_var_expansion)
        variables = {**default.vars, **test.vars} if default.vars else test.vars
        own, user = inner(test.provider, default.provider), None
        if own is not None and own.user is not None:
            user = self._user(own, inner(options.provider, inherited.provider))
            own = None
        several = 1 if whole else combinations(variables)
        return Shape(
            options.repeat or inherited.repeat or self._suite.evaluate_options.repeat,
            several,
            several,
            self._allowed(
                inner(test.providers, default.providers), inner(test.prompts, default.prompts)
            ),
            self._place(own),
            bool(inner(options.run_serially, inherited.run_serially)),
            self._is_compared(test, default),
            user,
        )

    def _user(self, own: ProviderEntry, judge: object) -> CalledUser | None:
        from trioeval.suite.simulated_user_form import named_provider, user_entry

        entry = None if own.user is None else user_entry(own.user, judge)
        if entry is None:
            return None
        place = named_provider(entry, self._suite.providers)
        place = self._place(entry) if place is None else place
        return None if place is None else CalledUser(place, self._providers[place])

    @staticmethod
    def _is_compared(test: Test, default: Test) -> bool:
        own = any(one.type in COMPARISONS for one in test.assertions)
        if own or test.options.disable_default_asserts or not default.assertions:
            return own
        return any(one.type in COMPARISONS for one in default.assertions)

    def _allowed(
        self, providers: tuple[str, ...] | None, prompts: tuple[str, ...] | None
    ) -> tuple[int, ...]:
        if providers is None and prompts is None:
            return self._every
        entries = self._suite.providers
        return tuple(
            column.prompt_idx
            for column in self._columns
            if (providers is None or means_provider(providers, entries[column.provider_index]))
            and (prompts is None or means_prompt(prompts, column.prompt))
        )

    def _place(self, own: ProviderEntry | None) -> int | None:
        if own is None:
            return None
        identity = repr(attrs.astuple(own))  # configs have no hash
        if identity not in self._own:
            self._own[identity] = len(self._providers)
            self._providers.append(own)
        return self._own[identity]


def _bare(setting: Test, named: Container[str]) -> tuple[object, ...]:
    """Return the properties of settings of a scenario that determine the shapes of its tests.

    Args:
        setting: One of its settings.
        named: The variables of its tests and of the default test; settings may define the same ones.
    """
    shared = {
        name: combinations({name: value}) if _alternatives(value) else None
        for name, value in setting.vars.items()
        if name in named
    }
    own = combinations({name: value for name, value in setting.vars.items() if name not in named})
    options = setting.options
    called = (setting.provider, grader_for(options.provider, "text"))  # a judge may play a user
    return (
        shared,
        own,
        (options.repeat, options.disable_var_expansion, options.run_serially),
        options.disable_default_asserts,
        (setting.providers, setting.prompts),
        [None if one is None else attrs.astuple(one) for one in called],
        any(one.type in COMPARISONS for one in setting.assertions),
    )


def _selected(
    shapes: Iterator[tuple[int, Shape]], selected: Container[int] | None
) -> Iterator[tuple[int, Shape]]:
    """Yield the same counts and shapes, without columns for tests that are not selected."""
    if selected is None:
        yield from shapes
        return
    place = 0
    ordered = sorted(selected) if isinstance(selected, AbstractSet) else None
    for count, shape in shapes:
        without = attrs.evolve(shape, columns=())
        places = range(place, place + count)
        runs = _runs(selected, places) if ordered is None else _runs_of(ordered, places)
        for is_selected, number in runs:
            yield number, shape if is_selected else without
        place += count


def _runs_of(ordered: Sequence[int], places: range) -> Iterator[tuple[bool, int]]:
    """Do the same as `_runs` for sorted indices: the indices between them are not examined."""
    behind = places.start
    first, last = (bisect.bisect_left(ordered, place) for place in (places.start, places.stop))
    for one in ordered[first:last]:
        if one > behind:
            yield False, one - behind
        yield True, 1
        behind = one + 1
    if places.stop > behind:
        yield False, places.stop - behind


def _runs(selected: Container[int], places: range) -> Iterator[tuple[bool, int]]:
    """Yield the lengths of runs of indices that are selected, or are not."""
    if isinstance(selected, range) and selected.step == 1:
        start = min(max(selected.start, places.start), places.stop)
        stop = min(max(selected.stop, start), places.stop)
        parts = ((False, start - places.start), (True, stop - start), (False, places.stop - stop))
        yield from (part for part in parts if part[1])
        return
    for is_selected, same in itertools.groupby(places, selected.__contains__):
        yield is_selected, sum(1 for _ in same)


def _first(shapes: Iterator[tuple[int, Shape]], most_steps: int) -> Iterator[tuple[int, Shape]]:
    """Yield the same, without columns after the first tests; each set of variables counts as one test."""
    for count, shape in shapes:
        if not shape.columns:
            yield count, shape
            continue
        whole = min(count, most_steps // shape.combinations)
        most_steps -= whole * shape.combinations
        if whole:
            yield whole, shape
        if whole < count and most_steps:
            yield 1, attrs.evolve(shape, chosen=most_steps)
            whole, most_steps = whole + 1, 0
        if whole < count:
            yield count - whole, attrs.evolve(shape, columns=())


def combinations(variables: Mapping[str, Any]) -> int:
    """Return the number of sets of variables: a list whose first member is text has one for each member."""
    return math.prod(len(value) for value in variables.values() if _alternatives(value))


def chosen(test: Test, combination: int) -> Mapping[str, Any]:
    """Return the variables of one combination of a merged test; later names vary fastest.

    Names that are whole numbers come before all others, and in numeric order, as in JavaScript objects.

    Example:
        >>> test = Test(vars={"x": ["a", "b"], "10": ["c", "d"], "2": "e"})
        >>> [tuple(chosen(test, combination).values()) for combination in range(4)]
        [('a', 'c', 'e'), ('b', 'c', 'e'), ('a', 'd', 'e'), ('b', 'd', 'e')]
    """
    found = dict(test.vars)
    if test.options.disable_var_expansion:
        return found
    several = [name for name, value in found.items() if _alternatives(value)]
    if len(several) > 1:
        several.sort(key=_js_order)
    for name in reversed(several):
        combination, place = divmod(combination, len(found[name]))
        found[name] = found[name][place]
    return found


def _js_order(name: str) -> tuple[bool, int]:
    is_index = len(name) < 10 and name.isascii() and name.isdecimal() and str(int(name)) == name  # noqa: PLR2004 - digits of 32 bits
    return (False, int(name)) if is_index else (True, 0)


def _alternatives(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)
