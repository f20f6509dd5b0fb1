"""What filters leave of a task of type `agent`: with a case, all that it depends on is run."""

from collections.abc import Container, Sequence

import attrs

from trioeval.errors import Problem
from trioeval.suite.models import Suite

_TOLD = 5  # names of cases


@attrs.frozen
class Selected:
    """Tests that are run."""

    places: Container[int] | None
    """Among all tests of the suite; None is all of them."""
    warnings: Sequence[Problem] = ()
    """Which of them nobody has asked for, in one."""


def with_dependencies(suite: Suite, places: Container[int] | None) -> Selected:
    """The same tests of a suite, and the cases that they depend on: without those none could be begun.

    Args:
        suite: Any; one whose tests are no cases is left as it is.
        places: The tests that filters leave.

    Example:
        >>> from trioeval.suite import parse_suite
        >>> tests = [{"id": "a"}, {"id": "b", "dependsOn": "a"}, {"id": "c"}]
        >>> task = {"id": "t", "type": "agent", "prompts": ["Do it."], "tests": tests}
        >>> suite = parse_suite({"providers": ["echo"], "tasks": [task]}).tasks[0].suite
        >>> found = with_dependencies(suite, [1])
        >>> sorted(found.places), found.warnings[0].message
        ([0, 1], 'case a is run although the filters leave it out: others depend on it')
    """
    if suite.agents is None or places is None:
        return Selected(places)
    cases = [test.case for test in suite.tests]
    by_name = {case.name: place for place, case in enumerate(cases) if case is not None}
    wanted = [place for place in range(len(cases)) if place in places]
    found = set(wanted)
    while wanted:
        case = cases[wanted.pop()]
        needed = () if case is None else case.depends_on
        new = {by_name[name] for name in needed if name in by_name} - found
        found |= new
        wanted += new
    names = [
        case.name
        for place, case in enumerate(cases)
        if case is not None and place in found and place not in places
    ]
    return Selected(frozenset(found), [Problem("$.tests", _told(names))] if names else ())


def _told(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"case {names[0]} is run although the filters leave it out: others depend on it"
    rest = len(names) - _TOLD
    more = f" and {rest} more" if rest > 0 else ""
    listed = ", ".join(names[:_TOLD])
    return (
        f"cases {listed}{more} are run although the filters leave them out: others depend on them"
    )
