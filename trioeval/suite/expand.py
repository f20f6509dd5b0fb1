"""From a suite to its steps: pure, lazy, and always in the same order.

    for test:  for repeat:  for combination of list variables:  for provider:  for prompt of it

Nothing is made until it is looked at. Tests that have the same shape, which is how many steps they stand
for and for which columns, form a stretch; a step is computed from its index by a binary search over the
stretches and division within one. A million equal tests are one stretch, and a file that holds them need
not be read to know where its steps are.

What a test is excluded from leaves holes: the other steps keep their numbers, so that a row is the same
row whichever filters a run has.
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
from trioeval.suite.merge import ScenarioTests, inner, merged, scenario_test
from trioeval.suite.model import MOST_ROWS, Prompt, ProviderEntry, Scenario, Suite, Test
from trioeval.suite.tests import Joined, SparseTests, remarkable_places

# Columns: which prompts each provider gets, and who is meant by a reference.


@attrs.frozen
class Column:
    """One provider with one prompt."""

    prompt_idx: int
    """Its number, over providers in order and over each provider's prompts in order."""
    provider_index: int
    """The place of its provider in the suite."""
    prompt: Prompt


def columns_of(suite: Suite) -> Iterator[Column]:
    """All columns of a suite, in order."""
    numbers = itertools.count()
    for provider_index, entry in enumerate(suite.providers):
        for prompt in suite.prompts:
            if entry.prompts is None or means_prompt(entry.prompts, prompt):
                yield Column(next(numbers), provider_index, prompt)


def means_prompt(references: Iterable[str], prompt: Prompt) -> bool:
    """Whether one of the references names the prompt's label or id."""
    names = [name for name in (prompt.label, prompt.given_id, prompt.id) if name is not None]
    return any(refers_to(reference, name) for reference in references for name in names)


def means_provider(references: Iterable[str], entry: ProviderEntry) -> bool:
    """Whether one of the references names the provider's label or id."""
    names = [name for name in (entry.label, entry.id) if name is not None]
    return any(refers_to(reference, name) for reference in references for name in names)


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


_LOOKED_AT = 2_000_000  # tests of a scenario, in settings that are not alike


@attrs.frozen
class Step:
    """One row to be: a test, with its variables chosen, for one column."""

    index: int
    """Its place among the steps of the run, without holes."""
    test_idx: int
    """Counts tests, repeats and combinations; with `prompt_idx` it names the row for ever."""
    prompt_idx: int
    repeat_index: int
    column: Column
    test: Test
    """Merged with the suite's `default_test`."""
    vars: Mapping[str, Any]
    provider_index: int
    """The place in `Expansion.providers` of who is asked: the column's provider, or the test's own."""

    @property
    def template(self) -> str:
        """The prompt with the test's prefix and suffix, not rendered yet."""
        options = self.test.options
        return f"{options.prefix or ''}{self.column.prompt.raw}{options.suffix or ''}"


@attrs.frozen
class Shape:
    """What of a test decides where its steps are."""

    repeats: int
    combinations: int
    """Sets of variables that it stands for."""
    chosen: int
    """How many of them are run, the first ones."""
    columns: tuple[int, ...]
    """Numbers of the columns that it is for."""
    provider_index: int | None
    """That of its own provider."""
    serial: bool
    compared: bool
    """Whether the outputs of each `test_idx` are compared with each other."""

    @property
    def rounds(self) -> int:
        """Values of `test_idx` that one test takes."""
        return self.repeats * self.combinations

    @property
    def steps(self) -> int:
        """Steps of one test."""
        return self.repeats * self.chosen * len(self.columns)

    def round(self, number: int) -> int:
        """Which of the values of `test_idx` one of those that are run is."""
        if self.chosen == self.combinations:
            return number
        repeat, combination = divmod(number, self.chosen)
        return repeat * self.combinations + combination


@attrs.frozen
class Stretch:
    """Tests of one shape, one after another."""

    shape: Shape
    first_place: int
    first_test_idx: int
    first_index: int
    first_round: int = 0
    """Other than 0 only where it is a single round of one test, see `narrowed`."""


@attrs.frozen
class Span:
    """Steps in a row that come in groups of the same size: those of one `test_idx` each."""

    start: int
    """Index of the first step."""
    stop: int
    """Index behind the last step."""
    width: int
    """Steps of one group, ≥ 1."""
    compared: bool
    """Whether the outputs of a group are compared with each other."""
    places: range = range(0)
    """Those of its tests in `Expansion.tests`."""


@attrs.frozen
class Expansion(LazySequence[Step]):
    """All steps of a suite; see `expand`."""

    suite: Suite
    columns: tuple[Column, ...]
    providers: tuple[ProviderEntry, ...]
    """Those of the suite, and then those that single tests have of their own."""
    tests: Sequence[Test]
    """As they stand in the suite, and those of scenarios behind them."""
    stretches: tuple[Stretch, ...]
    _firsts: tuple[int, ...]
    """`first_index` of each stretch."""
    _size: int

    def __len__(self) -> int:
        return self._size

    def entry(self, index: int) -> Step:
        """One step."""
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
        )

    @property
    def serial_indices(self) -> Sequence[int]:
        """The steps whose test says `runSerially`, ascending. No indices are stored for a whole stretch."""
        ends = (*self._firsts, self._size)[1:]
        serial = [
            range(stretch.first_index, end)
            # There is an end too many if there are no steps at all.
            for stretch, end in zip(self.stretches, ends, strict=False)
            if stretch.shape.serial and stretch.first_index < end
        ]
        if serial and all(one.stop == other.start for one, other in itertools.pairwise(serial)):
            return range(serial[0].start, serial[-1].stop)
        return tuple(itertools.chain.from_iterable(serial))

    @property
    def spans(self) -> Iterator[Span]:
        """All steps, ascending, by what is common to their groups."""
        ends = (*self._firsts, self._size)[1:]
        for stretch, end in zip(self.stretches, ends, strict=False):
            shape = stretch.shape
            if stretch.first_index < end:
                count = max(1, (end - stretch.first_index) // shape.steps)
                places = range(stretch.first_place, stretch.first_place + count)
                width = len(shape.columns)
                yield Span(stretch.first_index, end, width, shape.compared, places)

    @property
    def looked_at(self) -> Iterator[int]:
        """The places of the tests that are checked before a run: not plain lines of large files.

        Of scenarios that multiply to very many tests those that are run.
        """
        few = len(self.tests) <= MOST_ROWS or not self.suite.scenarios
        yield from remarkable_places(self.tests if few else self.suite.tests)
        if few:
            return
        for span in self.spans:
            yield from (place for place in span.places if place >= len(self.suite.tests))

    def path_of(self, place: int, below: str = "") -> str:
        """Where a test stands in the suite, and what is below it; those of scenarios stand in several."""
        return f"$.tests[{place}]{below}" if place < len(self.suite.tests) else "$.scenarios"

    @property
    def used_providers(self) -> tuple[int, ...]:
        """The places in `providers` of those that some step asks, ascending."""
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
    """All steps of a suite, in the order of their results.

    Args:
        suite: The suite.
        selected: Places of the tests that are run, among `all_tests`; None is all of them.
        first_n: How many tests are run of those, the first ones, where each set of variables that a test
            stands for counts as one; None is all of them.

    Raises:
        PlanError: They are more than can be counted.

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
    stretches: list[Stretch] = []
    place = test_idx = index = 0
    found = _selected(shapes.walk(tests), selected)
    for count, shape in found if first_n is None else _first(found, first_n):
        if not stretches or stretches[-1].shape != shape:
            stretches.append(Stretch(shape, place, test_idx, index))
        place += count
        test_idx += count * shape.rounds
        index += count * shape.steps
    if index > sys.maxsize:
        msg = f"the suite stands for {index} rows, more than can be counted"
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
    """The tests of a suite and then those of its scenarios, not merged with the default test."""
    return suite.tests if not suite.scenarios else Joined.of(suite.tests, ScenarioTests(suite))


@attrs.define(eq=False)
class _Shapes:
    """Finds the shapes of tests, and keeps the providers that they bring along."""

    _suite: Suite
    _columns: tuple[Column, ...]
    _own: dict[str, int] = attrs.field(init=False, factory=dict)
    """Places of the providers of tests, by what they are."""
    _providers: list[ProviderEntry] = attrs.field(init=False)
    _every: tuple[int, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._providers = list(self._suite.providers)
        self._every = tuple(range(len(self._columns)))

    @property
    def providers(self) -> tuple[ProviderEntry, ...]:
        return tuple(self._providers)

    @property
    def _default_expands(self) -> bool:
        """Whether the default test has alternatives, so that every test has to be looked at."""
        default = self._suite.default_test
        return default is not None and combinations(default.vars) != 1

    def walk(self, tests: Sequence[Test]) -> Iterator[tuple[int, Shape]]:
        """How many tests follow that have which shape; not always as many as there are."""
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
        """The same for all settings of a scenario; those that are alike are looked at once."""
        known: dict[str, list[tuple[int, Shape]]] = {}
        default = self._suite.default_test
        named = {*(() if default is None else default.vars)}
        named.update(name for test in scenario.tests for name in test.vars)
        every = range(len(scenario.tests))
        for place, setting in enumerate(scenario.config):
            alike = repr(_bare(setting, named))
            if alike not in known:
                if len(known) * len(every) > _LOOKED_AT:
                    msg = f"a scenario has more than {len(known)} different settings, too many to be counted"
                    raise PlanError(msg)
                several = (
                    self._shape(scenario_test(scenario, place, one, default, 0)) for one in every
                )
                known[alike] = [
                    (sum(1 for _ in same), one) for one, same in itertools.groupby(several)
                ]
            yield from known[alike]

    def _shape(self, test: Test) -> Shape:
        default = self._suite.default_test or Test()
        options, inherited = test.options, default.options
        whole = inner(options.disable_var_expansion, inherited.disable_var_expansion)
        variables = {**default.vars, **test.vars} if default.vars else test.vars
        several = 1 if whole else combinations(variables)
        return Shape(
            options.repeat or inherited.repeat or self._suite.evaluate_options.repeat,
            several,
            several,
            self._allowed(
                inner(test.providers, default.providers), inner(test.prompts, default.prompts)
            ),
            self._place(inner(test.provider, default.provider)),
            bool(inner(options.run_serially, inherited.run_serially)),
            self._is_compared(test, default),
        )

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
        what = repr(attrs.astuple(own))  # configs have no hash
        if what not in self._own:
            self._own[what] = len(self._providers)
            self._providers.append(own)
        return self._own[what]


def _bare(setting: Test, named: Container[str]) -> tuple[object, ...]:
    """What of the settings of a scenario decides the shapes of its tests.

    Args:
        setting: One of its settings.
        named: The variables of tests, and of the default test, which it may share with them.
    """
    shared = {
        name: combinations({name: value}) if _alternatives(value) else None
        for name, value in setting.vars.items()
        if name in named
    }
    own = combinations({name: value for name, value in setting.vars.items() if name not in named})
    options = setting.options
    return (
        shared,
        own,
        (options.repeat, options.disable_var_expansion, options.run_serially),
        options.disable_default_asserts,
        (setting.providers, setting.prompts, setting.provider),
        any(one.type in COMPARISONS for one in setting.assertions),
    )


def _selected(
    shapes: Iterator[tuple[int, Shape]], selected: Container[int] | None
) -> Iterator[tuple[int, Shape]]:
    """The same, with no columns for tests that are not selected."""
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
    """As `_runs`, of what is sorted: the places between are not looked at."""
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
    """How many of some places follow each other that are selected, or are not."""
    if isinstance(selected, range) and selected.step == 1:
        start = min(max(selected.start, places.start), places.stop)
        stop = min(max(selected.stop, start), places.stop)
        parts = ((False, start - places.start), (True, stop - start), (False, places.stop - stop))
        yield from (part for part in parts if part[1])
        return
    for is_selected, same in itertools.groupby(places, selected.__contains__):
        yield is_selected, sum(1 for _ in same)


def _first(shapes: Iterator[tuple[int, Shape]], wanted: int) -> Iterator[tuple[int, Shape]]:
    """The same, without columns behind the first tests, of which each set of variables counts as one."""
    for count, shape in shapes:
        if not shape.columns:
            yield count, shape
            continue
        whole = min(count, wanted // shape.combinations)
        wanted -= whole * shape.combinations
        if whole:
            yield whole, shape
        if whole < count and wanted:
            yield 1, attrs.evolve(shape, chosen=wanted)
            whole, wanted = whole + 1, 0
        if whole < count:
            yield count - whole, attrs.evolve(shape, columns=())


def combinations(variables: Mapping[str, Any]) -> int:
    """How many sets of variables some variables stand for: lists of texts are alternatives."""
    return math.prod(len(value) for value in variables.values() if _alternatives(value))


def chosen(test: Test, combination: int) -> Mapping[str, Any]:
    """The variables of one combination of a merged test; those of later names vary fastest.

    Names that are whole numbers come before all others, and by size, as in the objects of JavaScript.

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
