"""What the judges of a suite will be asked, as far as that is known before a run."""

from collections.abc import Mapping

from trioeval.grading.algebra import leaves
from trioeval.grading.judge_calls import Count, judge_calls
from trioeval.grading.kind import Comparing
from trioeval.grading.kinds import split_type
from trioeval.tasks.grader_entries import SEARCHING
from trioeval.tasks.prepare import PreparedSuite


def planned_judging(prepared: PreparedSuite) -> Mapping[str, Count]:
    """Calls to judges by lane, in the order of the lanes; a suite with tasks has none of its own.

    Args:
        prepared: One suite, or one task.
    """
    found = dict.fromkeys(prepared.judge_lanes, Count())
    if not found:
        return {}
    suite, graders, test_idx = prepared.suite, prepared.graders, -1
    lenient = suite.evaluate_options.grading == "lenient"
    for step in prepared.steps:
        begins, test_idx = step.test_idx != test_idx, step.test_idx
        options = step.test.options.provider
        for _, assertion in leaves(step.test.assertions):
            name, _ = split_type(assertion.type)
            kind = suite.kinds.get(name)
            # The outputs of a test are compared once.
            if kind is None or (isinstance(kind.judge, Comparing) and not begins):
                continue
            for role, count in judge_calls(assertion, kind, lenient=lenient):
                place = graders.place(
                    assertion, options, suite.default_test, role, searches=name in SEARCHING
                )
                if isinstance(place, int):
                    found[prepared.judge_lanes[place]] += count
    return found
