"""Whether there is what a suite names clusters by, found before anything is asked."""

from collections.abc import Iterator

from trioeval.errors import Problem
from trioeval.suite import Expansion
from trioeval.tasks.access import Sharing

_MOST = 20  # names that are told


def idle_cluster(steps: Expansion, sharing: Sharing) -> Iterator[Problem]:
    """A warning where `evaluateOptions.cluster` names what no test has.

    Nothing is said where names become known while tests run: those that hooks, transforms and rows make.

    Args:
        steps: Of a suite.
        sharing: What its rows give each other.

    Example:
        >>> from trioeval.suite import expand, parse_suite
        >>> said = {"providers": ["echo"], "prompts": ["x"], "tests": [{"vars": {"book": "a"}}]}
        >>> suite = parse_suite(said | {"evaluateOptions": {"cluster": "bok"}})
        >>> nothing = Sharing(frozenset(), frozenset())
        >>> [problem.hint for problem in idle_cluster(expand(suite), nothing)]
        ['there is: book']
    """
    suite = steps.suite
    name = suite.evaluate_options.cluster
    if name is None or suite.extensions or suite.rows_of is not None or name in sharing.registers:
        return
    known: dict[str, None] = {}
    if suite.default_test is not None:
        if suite.default_test.options.transform_vars is not None:
            return
        known |= dict.fromkeys((*suite.default_test.metadata, *suite.default_test.vars))
    for test in steps.tests if name not in known else ():
        if test.options.transform_vars is not None or name in test.metadata or name in test.vars:
            return
        known |= dict.fromkeys((*test.metadata, *test.vars))
    if name not in known and len(steps):
        told = ", ".join(sorted(known)[:_MOST])
        yield Problem(
            "$.evaluateOptions.cluster",
            f"no test has such a key of metadata or such a variable, got {name!r}",
            f"there is: {told}" if told else "there is none at all",
        )
