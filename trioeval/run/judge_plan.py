# Separate from `cli.run.plan`: this module belongs to this package, which the other only uses.
"""The calls to the judges of a suite, as far as they are known before a run."""

from collections.abc import Iterator, Mapping

from trioeval.evaluation.graders import SEARCHING_KINDS
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.grading.algebra import leaves
from trioeval.grading.judge_calls import Count, judge_calls
from trioeval.grading.kind import ComparisonJudge
from trioeval.grading.registry import split_type
from trioeval.suite.expand import Expansion
from trioeval.suite.merge import merged
from trioeval.suite.model import Test
from trioeval.suite.sizes import stretch_sizes


def planned_judging(prepared: PreparedSuite) -> Mapping[str, Count]:
    """Return the calls to judges by lane, in the order of the lanes; empty for a suite with tasks.

    Args:
        prepared: A suite, or the suite of a task.
    """
    found = dict.fromkeys(prepared.judge_lanes, Count())
    if not found:
        return {}
    suite, graders = prepared.suite, prepared.graders
    lenient = suite.evaluate_options.grading == "lenient"
    for test, rounds, columns in _tests(prepared.steps):
        options = test.options.provider
        for _, assertion in leaves(test.assertions):
            name, _ = split_type(assertion.type)
            kind = suite.kinds.get(name)
            if kind is None:
                continue
            # The outputs of a test are compared once for all columns.
            times = rounds if isinstance(kind.judge, ComparisonJudge) else rounds * columns
            for role, count in judge_calls(assertion, kind, lenient=lenient):
                place = graders.place(
                    assertion, options, suite.default_test, role, searches=name in SEARCHING_KINDS
                )
                if isinstance(place, int):
                    found[prepared.judge_lanes[place]] += count * times
    return found


def _tests(steps: Expansion) -> Iterator[tuple[Test, int, int]]:
    """Yield the tests that are run, with their number of runs and the number of columns."""
    default = steps.suite.default_test
    for stretch, several in stretch_sizes(steps):
        shape = stretch.shape
        for place in range(stretch.first_place, stretch.first_place + several):
            rounds = shape.repeats * shape.chosen
            yield merged(default, steps.tests[place]), rounds, len(shape.columns)
