"""Which comparisons of outputs can be known not to work, before anything is paid for."""

from collections.abc import Iterator

from trioeval.errors import Problem
from trioeval.grading import COMPARISONS, Assertion
from trioeval.suite import Expansion, Suite, Test
from trioeval.suite.joined import remarkable_places
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
    suite, seen = steps.suite, set[str]()
    for span in steps.spans:
        if not span.compared or span.width != 1:  # without a column there is no row either
            continue
        for place in span.places[:_TOLD]:
            path, assertion = _first(suite, steps.tests[place], place)
            if path not in seen:
                seen.add(path)
                message = (
                    f"{assertion.type} compares the outputs of a test, and this one has one only"
                )
                yield Problem(path, message, "name several prompts or providers for it")
    for place in remarkable_places(steps.tests):
        test = steps.tests[place]
        whole = merged(suite.default_test, test)
        types = {assertion.type for assertion in whole.assertions}
        if "max-score" in types and types <= COMPARISONS:
            path, _ = _first(suite, test, place, ("max-score",))
            message = "max-score compares the scores of other assertions, and the test has none"
            yield Problem(path, message, 'add assertions that score, or write "select-best"')


def _first(
    suite: Suite, test: Test, place: int, types: tuple[str, ...] = tuple(COMPARISONS)
) -> tuple[str, Assertion]:
    """Where the first comparison of a test stands, and what it is."""
    at = f"$.tests[{place}]" if place < len(suite.tests) else "$.scenarios"
    for number, assertion in enumerate(test.assertions):
        if assertion.type in types:
            return (f"{at}.assert[{number}]" if place < len(suite.tests) else at), assertion
    default = () if suite.default_test is None else suite.default_test.assertions
    number = next(n for n, assertion in enumerate(default) if assertion.type in types)
    return f"$.defaultTest.assert[{number}]", default[number]
