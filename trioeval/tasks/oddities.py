"""What is odd about a suite, though nothing is wrong with it."""

import difflib
from collections.abc import Iterator

from trioeval.errors import Problem
from trioeval.grading import quote
from trioeval.suite import Expansion, Templates
from trioeval.suite.mistakes import nearest
from trioeval.tasks.access import CONVERSATION_VARIABLE, Sharing

_ALIKE = 0.75  # of difflib's ratio, from which two names are taken for one
_LOOKED_AT = 10_000  # tests


def oddities(steps: Expansion, sharing: Sharing, templates: Templates) -> Iterator[Problem]:
    """Warnings for whoever runs a suite."""
    yield from _shared_by_columns(steps, sharing)
    yield from _misspelt(steps, sharing, templates)
    yield from _not_in_rows(steps, sharing, templates)


def _shared_by_columns(steps: Expansion, sharing: Sharing) -> Iterator[Problem]:
    scope = steps.suite.evaluate_options.register_scope
    if sharing.registers and len(steps.columns) > 1 and scope == "suite":
        names = ", ".join(sorted(sharing.registers))
        yield Problem(
            "$.evaluateOptions",
            f"all columns share what storeOutputAs stores: {names}",
            '"registerScope": "column" gives each column its own',
        )


def _misspelt(steps: Expansion, sharing: Sharing, templates: Templates) -> Iterator[Problem]:
    """Tests without a variable that a prompt uses, and with one of nearly the same name that none uses.

    What is not defined prints nothing, and a prompt may mean that; a name that is nearly right is a slip.
    Each name is told once.
    """
    if steps.suite.evaluate_options.strict_variables:
        return  # the rows say it
    wanted, common = _wanted(steps, sharing, templates), _common(steps)
    told: set[str] = set()
    for count, place in enumerate(steps.looked_at):
        if count == _LOOKED_AT:
            return
        given = common.union(steps.tests[place].vars)
        for name in sorted(wanted - given - told):
            close = difflib.get_close_matches(name, sorted(given - wanted), n=1, cutoff=_ALIKE)
            if close:
                told.add(name)
                message = f"the prompt uses {name}, and the test has {quote(close[0])}"
                hint = f'did you mean "{name}"? What is not defined prints nothing'
                yield Problem(f"$.tests[{place}].vars", message, hint)


def _not_in_rows(steps: Expansion, sharing: Sharing, templates: Templates) -> Iterator[Problem]:
    """Variables of prompts that no row of an earlier task brings, although it is said what they bring."""
    rows_of = steps.suite.rows_of
    if rows_of is None or rows_of.vars is None:
        return
    given = _common(steps).union(rows_of.vars)
    for name in sorted(_wanted(steps, sharing, templates) - given):
        hint = f"{nearest(name, given)}; what is not defined prints nothing"
        message = f"the prompt uses {name}, and the rows of {rows_of.task} bring no such variable"
        yield Problem("$.tests.vars", message, hint)


def _wanted(steps: Expansion, sharing: Sharing, templates: Templates) -> frozenset[str]:
    """The variables that prompts use, without those that are always there."""
    prompts = [prompt for prompt in steps.suite.prompts if prompt.function is None]
    used = [templates.references(prompt.raw) for prompt in prompts]
    return frozenset().union(*used) - sharing.registers - {CONVERSATION_VARIABLE, "env"}


def _common(steps: Expansion) -> frozenset[str]:
    """The variables that all tests have."""
    default = steps.suite.default_test
    return frozenset() if default is None else frozenset(default.vars)
