"""Tests that are not all in memory: several sources as one sequence, and files that are read on access."""

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError, read_list
from trioeval.grading import quote
from trioeval.sequences import LazySequence
from trioeval.suite.merge import ScenarioTests
from trioeval.suite.model import MOST_ROWS, Suite, Test
from trioeval.suite.sources.values import resolve_file_vars


@runtime_checkable
class SparseTests(Protocol):
    """Tests most of which have the shape of an empty test, and are not examined to expand them."""

    @property
    def file(self) -> Path:
        """The file that contains them."""
        ...

    @property
    def irregular(self) -> Sequence[int]:
        """The indices of the others, ascending."""
        ...


@attrs.frozen
class Joined(LazySequence[Test]):
    """The tests of several sources, concatenated.

    Example:
        >>> Joined.of((Test(),), (Test(threshold=1),))[1].threshold
        1
    """

    parts: tuple[Sequence[Test], ...]
    _ends: tuple[int, ...] = attrs.field(init=False)

    @classmethod
    def of(cls, *parts: Sequence[Test]) -> "Joined":
        """Return the concatenation of some tests."""
        flat = (part.parts if isinstance(part, Joined) else (part,) for part in parts)
        return cls(tuple(itertools.chain.from_iterable(flat)))

    @_ends.default
    def _counted(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def entry(self, index: int) -> Test:
        """Return one test."""
        part = bisect.bisect_right(self._ends, index)
        return self.parts[part][index - (self._ends[part - 1] if part else 0)]


def checked_places(tests: Sequence[Test]) -> Iterator[int]:
    """Yield the indices of all tests that must be examined: all but the plain lines of large files."""
    if isinstance(tests, Joined):
        begin = 0
        for part in tests.parts:
            yield from (begin + place for place in checked_places(part))
            begin += len(part)
    elif isinstance(tests, SparseTests):
        yield from tests.irregular
    else:
        yield from range(len(tests))


# `transformVars` is applied here, so that an expansion can be pure: code has run before it.
#
# The code gets the variables of a test and of the default test together. All tests with the same code share
# one process.


def with_transformed_vars(suite: Suite, context: FileContext) -> Suite:
    """Return a suite whose tests have the variables that their `transformVars` returns.

    Tests of a large file are all read if the default test has such code, and so are those of scenarios.

    Raises:
        MistakenError: Code fails, or returns no object, or variables that a file could not define either.
    """
    default = suite.default_test or Test()
    everywhere = default.options.transform_vars
    tests = suite.tests
    if suite.scenarios and (everywhere or _has_code(suite)):
        if (size := len(ScenarioTests(suite))) > MOST_ROWS:
            message = f"{size:,} tests of scenarios: too many for transformVars, which reads each"
            hint = f"at most {MOST_ROWS:,}; remove settings, or transformVars"
            raise MistakenError(Mistake(message, hint, at=("scenarios",)))
        tests = (*tests, *ScenarioTests(suite))
        suite = attrs.evolve(suite, scenarios=())
    places: dict[str, list[int]] = {}
    for place in range(len(tests)) if everywhere else checked_places(tests):
        code = tests[place].options.transform_vars or everywhere
        if code and tests[place].fault is None:
            places.setdefault(code, []).append(place)
    if not places:
        return suite
    made: dict[int, dict[str, Any]] = {}
    mistakes: list[Mistake] = []
    for code, several in places.items():
        variables = [{**default.vars, **tests[place].vars} for place in several]
        try:
            makes = f"the variables that transformVars makes for {len(several)} tests"
            if not context.may_run(quote(code), makes):
                continue
            from trioeval.suite.sources.code import transform_vars_of_each

            found = transform_vars_of_each(code, variables, context)
            made |= zip(several, _resolved(found, context), strict=True)
        except MistakenError as error:
            of_default = code == everywhere
            mistakes += [_placed(part, several, of_default=of_default) for part in error.parts]
    if mistakes:
        raise MistakenError(*mistakes)
    changed = tuple(
        attrs.evolve(test, vars=made[place]) if place in made else test
        for place, test in enumerate(tests)
    )
    return attrs.evolve(suite, tests=changed)


def _resolved(found: Sequence[Mapping[str, Any]], context: FileContext) -> list[dict[str, Any]]:
    """Check variables that code returned as if they were written in a file: their names, and their files.

    Raises:
        MistakenError: All of their mistakes; paths begin with the index of the test.
    """

    def read(variables: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return resolve_file_vars(variables, context)
        except MistakenError as error:
            parts = (
                (f"in variables of transformVars: {part.message}", part.hint)
                for part in error.parts
            )
            raise MistakenError(*itertools.starmap(Mistake, parts)) from None

    return read_list(found, read)


def _has_code(suite: Suite) -> bool:
    return any(
        test.options.transform_vars
        for scenario in suite.scenarios or ()
        for test in (*scenario.config, *scenario.tests)
    )


def _placed(mistake: Mistake, places: Sequence[int], *, of_default: bool) -> Mistake:
    """Return a mistake at the code that caused it; its path begins with an index among the code's tests."""
    at: tuple[str | int, ...] = ("defaultTest", "options", "transformVars")
    if not of_default:
        first = (
            places[mistake.at[0]] if mistake.at and isinstance(mistake.at[0], int) else places[0]
        )
        at = ("tests", first, "options", "transformVars")
    return mistake if mistake.file else attrs.evolve(mistake, at=at)
