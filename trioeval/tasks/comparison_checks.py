"""Which comparisons of outputs can be known not to work, before anything is paid for."""

from collections.abc import Collection, Iterator

from trioeval.errors import Problem
from trioeval.grading import COMPARISONS, Assertion
from trioeval.suite import Expansion
from trioeval.suite.merge import merged

_TOLD = 100  # a million lines may be wrong alike


def wrong_comparisons(steps: Expansion) -> Iterator[Problem]:
    """Tests whose outputs are compared although there is one only, or nothing to compare them by.

    Example:
        >>> from trioeval.suite import expand, parse_suite
        >>> test = {"assert": [{"type": "max-score"}]}
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["a"], "tests": [test]})
        >>> [problem.path for problem in wrong_comparisons(expand(suite))]
        ['$.tests[0].assert[0]', '$.tests[0].assert[0]']
    """
    seen: set[str] = set()
    compared = [span for span in steps.spans if span.compared]
    if not compared:
        return
    for span in compared:
        if span.width != 1:  # without a column there is no row either
            continue
        for place in span.places[:_TOLD]:
            path, assertion = _first(steps, place)
            if path not in seen:
                seen.add(path)
                message = (
                    f"{assertion.type} compares the outputs of a test, and this one has one only"
                )
                yield Problem(path, message, "name several prompts or providers for it")
    for place in steps.looked_at:
        test = steps.tests[place]
        whole = merged(steps.suite.default_test, test)
        types = {assertion.type for assertion in whole.assertions}
        if "max-score" in types and types <= COMPARISONS:
            path, _ = _first(steps, place, {"max-score"})
            message = "max-score compares the scores of other assertions, and the test has none"
            yield Problem(path, message, 'add assertions that score, or write "select-best"')


def _first(
    steps: Expansion, place: int, types: Collection[str] = COMPARISONS
) -> tuple[str, Assertion]:
    """Where the first comparison of a test stands, and what it is."""
    for number, assertion in enumerate(steps.tests[place].assertions):
        if assertion.type in types:
            return steps.path_of(place, f".assert[{number}]"), assertion
    suite = steps.suite
    default = () if suite.default_test is None else suite.default_test.assertions
    number = next(n for n, assertion in enumerate(default) if assertion.type in types)
    return f"$.defaultTest.assert[{number}]", default[number]
