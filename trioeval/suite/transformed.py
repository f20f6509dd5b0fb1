"""Applies `transformVars`, so that an expansion can be pure: code has run before it.

The code gets the variables of a test and of the default test together. All tests with the same code are
done in one process.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.grading import quote
from trioeval.suite.joined import remarkable_places
from trioeval.suite.merge import ScenarioTests
from trioeval.suite.mistakes import Mistake, MistakenError
from trioeval.suite.models import MOST_ROWS, Suite, Test
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.transform_vars import transform_vars_of_each
from trioeval.suite.sources.variables import resolve_file_vars


def with_transformed_vars(suite: Suite, around: Around) -> Suite:
    """A suite whose tests have the variables that their `transformVars` makes.

    Tests from a large file are all read if the default test has such code, and so are those of scenarios.

    Raises:
        MistakenError: Code fails, or gives no object, or variables that cannot be written either.
    """
    default = suite.default_test or Test()
    everywhere = default.options.transform_vars
    tests = suite.tests
    if suite.scenarios and (everywhere or _has_code(suite)):
        if (size := len(ScenarioTests(suite))) > MOST_ROWS:
            message = f"{size:,} tests of scenarios: too many for transformVars, which reads each"
            hint = f"at most {MOST_ROWS:,}; take settings away, or transformVars"
            raise MistakenError(Mistake(message, hint, at=("scenarios",)))
        tests = (*tests, *ScenarioTests(suite))
        suite = attrs.evolve(suite, scenarios=())
    places: dict[str, list[int]] = {}
    for place in range(len(tests)) if everywhere else remarkable_places(tests):
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
            if not around.may_run(quote(code), makes):
                continue
            found = transform_vars_of_each(code, variables, around)
            made |= zip(several, _resolved(found, around), strict=True)
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


def _resolved(found: Sequence[Mapping[str, Any]], around: Around) -> list[dict[str, Any]]:
    """Variables that code made, as if they were written: what they may be called, and the files they name.

    Raises:
        MistakenError: Everything that is wrong with them; paths begin with the position of the test.
    """
    resolved: list[dict[str, Any]] = []
    mistakes: list[Mistake] = []
    for position, variables in enumerate(found):
        try:
            resolved.append(resolve_file_vars(variables, around))
        except MistakenError as error:
            mistakes += (
                Mistake(f"transformVars gives {part.message}", part.hint, at=(position,))
                for part in error.parts
            )
    if mistakes:
        raise MistakenError(*mistakes)
    return resolved


def _has_code(suite: Suite) -> bool:
    return any(
        test.options.transform_vars
        for scenario in suite.scenarios or ()
        for test in (*scenario.config, *scenario.tests)
    )


def _placed(mistake: Mistake, places: Sequence[int], *, of_default: bool) -> Mistake:
    """A mistake at the code that made it; its path begins with the place among the tests of that code."""
    at: tuple[str | int, ...] = ("defaultTest", "options", "transformVars")
    if not of_default:
        first = (
            places[mistake.at[0]] if mistake.at and isinstance(mistake.at[0], int) else places[0]
        )
        at = ("tests", first, "options", "transformVars")
    return mistake if mistake.file else attrs.evolve(mistake, at=at)
